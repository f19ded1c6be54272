from abc import abstractmethod
from copy import copy
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.candidates.base import Lookahead, PlayedLog, SelectingBelief, padded, require_finite
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.rows import row_keys


class ModelBelief(SelectingBelief):
    """A BoTorch model on the whole history, for candidates that cannot be listed once for all rounds.

    The exact posterior is an ``OnlineGP`` that is told; the Nyström one is rebuilt, so that it is a function of history
    and dictionary alone. Cost of a tell: O(u²) or O(n m²).
    """

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float, *, exact: bool) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        empty = example[:0]
        self._log = PlayedLog(example)
        self._X, self._Y = empty, empty.new_zeros(0)
        self._model = self.model(self._X, self._Y, empty)

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return len(self._X)

    @property
    def posterior_model(self) -> NystromGP | OnlineGP:
        """The model that points are chosen by."""
        return self._model

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points if the posterior is exact."""
        return self._model.inducing_points if isinstance(self._model, NystromGP) else self._log.points

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim."""
        return self._model.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._model.information_gain()

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim."""
        return self._model.mean_norm()

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """The largest k(x, x) known of, 0-dim."""

    def mean(self, X: Tensor) -> Tensor:
        """Return the posterior means at X (q, d), (q,)."""
        with torch.no_grad():
            return cast(Tensor, self._model.posterior(X.unsqueeze(-2)).mean).flatten()

    def variance(self, X: Tensor) -> Tensor:
        """Return the posterior variances at X (q, d), (q,)."""
        with torch.no_grad():
            return self._model.posterior(X.unsqueeze(-2)).variance.flatten()

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        return self._log.points[self.mean(self._log.points).argmax(), None].clone()

    def leverage_scores(self, X: Tensor) -> Tensor:
        """Return the ridge leverage scores of points (q, d) under the current posterior, (q,)."""
        return self.variance(X) / self.regularization

    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior."""
        located = self._log.locate(X)
        points, counts = self._log.points_with(X, located)
        scores, new = self.leverage_scores(points), self._log.new_counts(X, located)
        dictionary = set(row_keys(self.inducing_points))
        held = torch.tensor([key in dictionary for key in row_keys(points)], device=points.device)
        weights = padded(self._rule_weights, len(points))
        return PlayedPoints(points, self.kernel, self.regularization, counts, scores, held, new, weights)

    def update(self, X: Tensor, Y: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        everything, rewards = torch.cat([self._X, X]), torch.cat([self._Y, Y])
        if selection is None:
            # What it knows is replaced and never written into, so the model told before stays as it was.
            model = copy(cast(OnlineGP, self._model))
            model.tell(X, Y.unsqueeze(-1))
        else:
            model = self._checked(self.model(everything, rewards, selection.points), X)
        self._X, self._Y, self._model = everything, rewards, model
        self._log = self._log.with_rewards(X, Y, self._log.locate(X))
        self._rule_weights = self._log.weights_of(selection)

    def restore(self, X: Tensor, Y: Tensor, dictionary: Selection) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        model = self._checked(self.model(X, Y, dictionary.points), X)
        self._X, self._Y, self._model = X, Y, model
        self._log = self._log.with_rewards(X, Y, self._log.locate(X))
        self._rule_weights = self._log.weights_of(dictionary)

    def _checked(self, model: NystromGP | OnlineGP, X: Tensor) -> NystromGP | OnlineGP:
        """Return the model if its posterior is finite; the factors are computed here, before anything changes."""
        with torch.no_grad():
            mean = cast(Tensor, model.posterior(X[:1]).mean)
        require_finite(mean)
        return model


class ModelLookahead(Lookahead):
    """The model with points pending, which acquisition functions hallucinate themselves."""

    def __init__(self, belief: ModelBelief, pending: Tensor) -> None:
        super().__init__(pending)
        self._belief = belief

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._belief.leverage_scores(self.pending)

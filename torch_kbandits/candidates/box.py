from dataclasses import replace
from typing import cast

import torch
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain, hallucinate
from torch_kbandits.candidates.base import Belief, Candidates, Lookahead, PlayedLog, padded, require_finite
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.gram import prior_variance
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.random import seed_for
from torch_kbandits.rows import distinct, row_keys

#: Points of the box at which the largest prior variance, and the largest change of a variance, are sought.
_PROBES = 512


class Box(Candidates):
    """A box of points, searched by BoTorch's ``optimize_acqf``.

    The search also starts where the last one may have ended; see ``BoxBelief.domain``.

    Args:
        bounds: (2, d), finite lower bounds, then upper bounds above them.
        num_restarts: random starting points of the gradient search, beside the warm ones.
        raw_samples: random points from which they are chosen.
    """

    def __init__(self, bounds: Tensor, num_restarts: int = 8, raw_samples: int = 128) -> None:
        self.bounds = checks.bounds(bounds).detach().clone()
        self.num_restarts = checks.positive_integer("num_restarts", num_restarts)
        self.raw_samples = checks.positive_integer("raw_samples", raw_samples)

    @property
    def example(self) -> Tensor:
        """The lower corner, (1, d)."""
        return self.bounds[:1]

    @property
    def domain(self) -> Domain:
        """The bounds and the effort of the search."""
        return Domain(bounds=self.bounds, num_restarts=self.num_restarts, raw_samples=self.raw_samples)

    def belief(self, kernel: Kernel, regularization: float, seed: int, *, exact: bool) -> "BoxBelief":
        """Return the prior."""
        return BoxBelief(self, kernel, regularization, seed, exact=exact)

    def describe(self) -> dict[str, object]:
        """Return the bounds and the search's settings."""
        return {
            "bounds": str(self.bounds.tolist()),
            "dtype": str(self.bounds.dtype),
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
        }


class BoxBelief(Belief):
    """A model on the whole history.

    The exact posterior is an ``OnlineGP`` that is told; the Nyström one is rebuilt, so that it is a function of history
    and dictionary alone. Cost of a tell: O(u²) or O(n m²).
    """

    def __init__(self, box: Box, kernel: Kernel, regularization: float, seed: int, *, exact: bool) -> None:
        super().__init__(box.example, kernel, regularization, exact=exact)
        self.box = box
        self.seed = seed_for(seed, 0, "sobol") % 2**31
        empty = box.example[:0]
        self._log = PlayedLog(box.example)
        self._X, self._Y = empty, empty.new_zeros(0)
        self._model = self.model(self._X, self._Y, empty)
        self._incumbent: Tensor | None = None
        self.probes = torch.cat([box.bounds, draw_sobol_samples(box.bounds, n=_PROBES, q=1, seed=0).squeeze(-2)])
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, self.probes).max()

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

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance in the box, 0-dim: the largest over its two corners and a Sobol set."""
        return self._kernel_bound

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        with torch.no_grad():
            means = cast(Tensor, self._model.posterior(self._log.points.unsqueeze(-2)).mean).flatten()
        return self._log.points[means.argmax(), None].clone()

    @property
    def domain(self) -> Domain:
        """The box, with the last point learned and the learned point of the largest posterior mean to start from.

        The former is the optimum of the last search, if points were told as asked. Both follow from the history, so a
        loaded bandit searches as the saved one would. Points outside the box are moved to its border. Pending points
        are no starts: where a shrunken deviation raises a score, as it may the probability of improvement, the search
        would stay there.

        The largest mean is sought once for given rewards, at O(n m) for m points in the basis. It may lose a tie to
        rounding, which ``recommend`` does not and the start of a search can afford.
        """
        if self.num_observations == 0:
            return self.box.domain
        if self._incumbent is None:
            self._incumbent = self._X[self._model.observed_means().argmax(), None]
        starts = torch.cat([self._X[-1:], self._incumbent]).clamp(*self.box.bounds)
        return replace(self.box.domain, starts=distinct(starts)[0])

    def variance(self, X: Tensor) -> Tensor:
        """Return the posterior variances at X (q, d), (q,)."""
        with torch.no_grad():
            return self._model.posterior(X.unsqueeze(-2)).variance.flatten()

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
            model = self._model
            cast(OnlineGP, model).tell(X, Y.unsqueeze(-1))
        else:
            model = self._checked(self.model(everything, rewards, selection.points), X)
        self._X, self._Y, self._model, self._incumbent = everything, rewards, model, None
        self._log = self._log.with_rewards(X, Y, self._log.locate(X))
        self._rule_weights = self._log.weights_of(selection)

    def restore(self, X: Tensor, Y: Tensor, dictionary: Selection) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        model = self._checked(self.model(X, Y, dictionary.points), X)
        self._X, self._Y, self._model, self._incumbent = X, Y, model, None
        self._log = self._log.with_rewards(X, Y, self._log.locate(X))
        self._rule_weights = self._log.weights_of(dictionary)

    def lookahead(self, pending: Tensor) -> "BoxLookahead":
        """Return the model with points (k, d) pending."""
        return BoxLookahead(self, pending)

    def _checked(self, model: NystromGP | OnlineGP, X: Tensor) -> NystromGP | OnlineGP:
        """Return the model if its posterior is finite; the factors are computed here, before anything changes."""
        with torch.no_grad():
            mean = cast(Tensor, model.posterior(X[:1]).mean)
        require_finite(mean)
        return model


class BoxLookahead(Lookahead):
    """The model with points pending, which acquisition functions hallucinate themselves."""

    def __init__(self, belief: BoxBelief, pending: Tensor) -> None:
        super().__init__(pending)
        self._belief = belief

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> Tensor:
        """Return the point (1, d) that the rule finds; points of a Sobol sequence before any reward."""
        box = self._belief.box
        if rule.needs_observations and self._belief.num_observations == 0:
            number = len(self.pending)
            return draw_sobol_samples(box.bounds, n=number + 1, q=1, seed=self._belief.seed)[number]
        pending = self.pending if len(self.pending) else None
        return rule.on_box(self._belief.posterior_model, beta, pending, self._belief.domain, seed)

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._belief.leverage_scores(self.pending)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over corners, a Sobol set and the pending points, 0-dim."""
        X = torch.cat([self._belief.probes, self.pending])
        before = self._belief.variance(X)
        with torch.no_grad():
            model = cast(NystromGP | OnlineGP, hallucinate(self._belief.posterior_model, self.pending))
            after = model.posterior(X.unsqueeze(-2)).variance.flatten()
        least = torch.finfo(X.dtype).eps * self._belief.kernel_bound()
        return ((before + least) / (after + least)).max()

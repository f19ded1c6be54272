"""Improvement over the best of what was played, as a BoTorch acquisition function."""

from collections.abc import Callable
from typing import cast

import torch
from botorch.acquisition.analytic import _log_ei_helper  # what LogExpectedImprovement computes, without a model
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.probability.utils import log_ndtr
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import deviation_of, posterior_variance


def log_expected_improvement(mean: Tensor, variance: Tensor, best: Tensor) -> Tensor:
    """Return log EI over a value, 0-dim, from posterior marginals of equal shape; unlike BoTorch's in any units."""
    deviation = deviation_of(variance)
    return _log_ei_helper((mean - best) / deviation) + deviation.log()


def log_probability_of_improvement(mean: Tensor, variance: Tensor, best: Tensor) -> Tensor:
    """Return the logarithm of the probability of exceeding a value, 0-dim, from posterior marginals of equal shape."""
    return log_ndtr((mean - best) / deviation_of(variance))


class ImprovementFunction(PendingPoints):
    """Improvement over the largest posterior mean of a point played or pending, 0 before any.

    Pending points count as observed at their posterior means. In a context improvement is over the largest posterior
    mean of the actions.

    Args:
        model: without anything pending.
        X_pending: points pending, (k, d); None for none.
        domain: where the function is maximised.
        score: of posterior marginals, given what is to be improved on.
        margin: improvements count above this, in reward units.

    Raises:
        InputError: if the domain is a box in a context and has no incumbent.
    """

    def __init__(
        self,
        model: Model,
        X_pending: Tensor | None,
        domain: Domain,
        score: Callable[[Tensor, Tensor, Tensor], Tensor],
        margin: float = 0.0,
    ) -> None:
        super().__init__(model=model)
        known = cast(tuple[Tensor], model.train_inputs)[0]
        self._round: Domain | None = Domain(context=domain.context, allows=domain.allows)
        if domain.incumbent is not None:
            known = domain.incumbent
        elif domain.arms is not None and domain.context is not None:
            known = domain.arms if domain.allowed is None else domain.arms[domain.allowed]
            self._round = None
        elif domain.context is not None and len(known):
            raise InputError(
                "Improvement on a box beside a context needs Domain.incumbent, the point of the best mean there."
            )
        self.register_buffer("_known", known, persistent=False)
        self._known: Tensor
        self._score, self._margin = score, margin
        self.set_X_pending(X_pending)

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the logarithms of the improvement at single points X (b, 1, d), (b,)."""
        model, best = self._current(self._X_pending)
        posterior = model.posterior(X)
        mean, variance = posterior.mean, posterior_variance(posterior)
        return self._score(mean.squeeze(-1).squeeze(-1), variance.squeeze(-1).squeeze(-1), best)

    @override
    def _make(self) -> tuple[Model, Tensor]:
        """Return the model conditioned on the pending points, and what is to be improved on, 0-dim."""
        model, known = self.model, self._known
        if self.X_pending is not None:
            model = cast(FactoredGP, model).with_pending(self.X_pending)
            known = known if self._round is None else torch.cat([known, self._round.eligible(self.X_pending)])
        if len(known) == 0:
            return model, known.new_zeros(()) + self._margin
        return model, cast(GPyTorchPosterior, self.model.posterior(known.unsqueeze(-2))).mean.max() + self._margin

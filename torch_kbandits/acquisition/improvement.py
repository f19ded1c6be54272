"""Improvement over the best of what was played, as BoTorch acquisition functions and as rules over arms and boxes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from botorch.acquisition.analytic import _log_ei_helper  # what LogExpectedImprovement computes, without a model
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.probability.utils import log_ndtr
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints
from torch_kbandits.acquisition.rules import AcquisitionRule, ArmPosterior
from torch_kbandits.errors import InputError
from torch_kbandits.loops import score_loops
from torch_kbandits.loops.compiled import loops_over_each
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import MIN_VARIANCE, deviation_of, posterior_variance

#: A margin that is not given is this share of the largest prior deviation.
_MARGIN = 0.01


def _log_expected_improvement(improvement: Tensor, variance: Tensor) -> Tensor:
    """Return log EI from means less what is to be improved on, and variances; unlike BoTorch's in any units."""
    deviation = deviation_of(variance)
    return _log_ei_helper(improvement / deviation) + deviation.log()


def _log_probability_of_improvement(improvement: Tensor, variance: Tensor) -> Tensor:
    """Return the logarithm of the probability of improvement, from the same."""
    return log_ndtr(improvement / deviation_of(variance))


class ImprovementFunction(PendingPoints):
    """Improvement over the largest posterior mean of a point played or pending, 0 before any.

    Pending points count as observed at their posterior means. In a context improvement is over the largest posterior
    mean of the actions.

    Args:
        model: without anything pending.
        X_pending: points pending, (k, d); None for none.
        domain: where the function is maximised.
        score: of means less what is to be improved on, and variances.
        margin: improvements count above this, in reward units.

    Raises:
        InputError: if the domain is a box in a context and has no incumbent.
    """

    def __init__(
        self,
        model: Model,
        X_pending: Tensor | None,
        domain: Domain,
        score: Callable[[Tensor, Tensor], Tensor],
        margin: float = 0.0,
    ) -> None:
        super().__init__(model)
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
        self.X_pending = X_pending

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the logarithms of the improvement at single points X (b, 1, d), (b,)."""
        model, best = self._current(self._X_pending)
        posterior = model.posterior(X)
        mean, variance = (part.squeeze(-1).squeeze(-1) for part in (posterior.mean, posterior_variance(posterior)))
        return self._score(mean - best, variance)

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


@dataclass(frozen=True)
class ExpectedImprovementRule(AcquisitionRule):
    """Maximise the expected improvement over the largest posterior mean of a played point, by its logarithm.

    In a context it is over the largest posterior mean of an action there, which on a box is searched for. Pending
    points count as played, and observed at their mean.

    Source: Mockus, 1975; Ament et al., NeurIPS 2023 (BoTorch's logarithm). With noise there is no best observed value;
    the posterior mean takes its place.
    """

    needs_incumbent = True
    scores_arms_apart = True

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return log EI, (A,)."""
        mean, variance, best = posterior.mean, posterior.variance, posterior.incumbent
        if loops_over_each(mean, variance):
            scores = score_loops.log_expected_improvement(mean.numpy(), variance.numpy(), float(best), MIN_VARIANCE)
            return torch.from_numpy(scores)
        return _log_expected_improvement(mean - best, variance)

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> ImprovementFunction:
        """Return the logarithm of the expected improvement."""
        return ImprovementFunction(model, X_pending, domain, _log_expected_improvement)


@dataclass(frozen=True)
class ProbabilityOfImprovementRule(AcquisitionRule):
    """Maximise the probability of improving on the same as ``ExpectedImprovementRule``.

    Source: Kushner, 1964. The score on arms is the standardised improvement, of which the probability is a monotone
    function.

    Args:
        margin: improvements count above this many units of reward; at 0 the best point so far would be played for ever.
            Unless given it is 0.01 of the largest prior deviation, of an arm or, without arms, of a point played.
    """

    margin: float | None = None

    needs_incumbent = True
    scores_arms_apart = True

    def __post_init__(self) -> None:
        checks.keep(self, margin=checks.optional(checks.non_negative))

    def scaled_to(self, surrogate: Any) -> Self:
        """Return the rule with a margin."""
        if self.margin is not None:
            return self
        return replace(self, margin=float(_MARGIN * surrogate.kernel_bound().sqrt()))

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return (μ − best − margin) / σ, (A,), of a rule with a margin."""
        improvement = posterior.mean - posterior.incumbent - cast(float, self.margin)
        return improvement / deviation_of(posterior.variance)

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> ImprovementFunction:
        """Return the logarithm of the probability of improvement, of a rule with a margin."""
        margin = cast(float, self.margin)
        return ImprovementFunction(model, X_pending, domain, _log_probability_of_improvement, margin)

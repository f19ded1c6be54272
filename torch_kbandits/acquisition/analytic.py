"""Upper confidence bounds and improvement, as BoTorch acquisition functions and as rules over arms and boxes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import _log_ei_helper  # what LogExpectedImprovement computes, without a model
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.utils.probability.utils import log_ndtr
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints, one_after_another
from torch_kbandits.acquisition.rules import AcquisitionRule, ArmPosterior, OptimisticRule
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import multiplier
from torch_kbandits.errors import InputError
from torch_kbandits.loops import score_loops
from torch_kbandits.loops.compiled import loops_over_each
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import MIN_VARIANCE, deviation_of, posterior_variance

#: A margin that is not given is this share of the largest prior deviation.
_MARGIN = 0.01


class KernelUCB(PendingPoints):
    """Upper confidence bound μ(x) + β σ(x) with points pending that count as observed at their means (hallucinated).

    ``beta`` multiplies the standard deviation. BoTorch's ``UpperConfidenceBound(beta=b)`` multiplies by √b, so
    ``KernelUCB(model, beta=2.0)`` equals ``UpperConfidenceBound(model, beta=4.0)``.

    Pending points shrink σ and leave μ alone, so batches spread out. For q > 1 the value is the sum of the bounds of
    the q points, each with those before it pending. It is that of the model as it is, also after ``tell`` or a fit.

    The value is in units of rewards, and ``optimize_acqf`` ends where slopes are below 1e-5: where rewards are far
    smaller than 1 give it ``options={"gtol": ...}`` in these units.

    Source: Srinivas et al., ICML 2010; pending points: Desautels et al., JMLR 2014 (GP-BUCB). Differs: β is not
    inflated for the batch.

    Args:
        model: any BoTorch model with one output, or several and a ``posterior_transform``.
        beta: the multiplier, at least 0, or a ``Width``, which is evaluated on the model now.
        posterior_transform: as in BoTorch.
        X_pending: points asked for but not yet told, (k, d).
        maximize: False where small outcomes are sought, as in ``UpperConfidenceBound``: the value is −μ + β σ.

    Raises:
        InputError: if beta is negative or not a number, or pending points do not fit.
        UnsupportedError: if the model has several outputs, or an input transform that makes several points of one, and
            no ``posterior_transform``; at q > 1 if its posterior is not one Gaussian with a value for each point.
    """

    def __init__(
        self,
        model: Model,
        beta: float | Tensor | Width,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        maximize: bool = True,
    ) -> None:
        super().__init__(model, posterior_transform)
        for part in model.modules() if posterior_transform is None else ():
            if isinstance(part, InputTransform) and part.is_one_to_many and part.transform_on_eval:
                raise UnsupportedError(
                    f"{type(part).__name__} makes several points of one: give a posterior_transform that joins them, "
                    "such as BoTorch's ExpectationPosteriorTransform."
                )
        self.register_buffer("beta", multiplier(beta, model))
        self.beta: Tensor
        self.maximize = checks.flag("maximize", maximize)
        self.X_pending = X_pending

    @override
    def _make(self) -> Model:
        """Return the model, conditioned on the pending points if it is ours and of one output."""
        model, pending = self.model, self.X_pending
        return cast(FactoredGP, model).with_pending(pending) if pending is not None and self._conditions else model

    @property
    def _conditions(self) -> bool:
        return isinstance(self.model, FactoredGP) and self.model.num_outputs == 1

    @t_batch_mode_transform()
    @average_over_ensemble_models  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the upper confidence bounds at X (b, q, d), those before each pending, (b,)."""
        model, pending, at = self._current(self._X_pending), self.X_pending, X
        if pending is not None and not self._conditions:
            at = torch.cat([pending.to(X).expand(*X.shape[:-2], *pending.shape), X], -2)
        if at.shape[-2] == 1:
            mean, variance = marginals(model, at, self.posterior_transform)
            mean, variance = mean.unsqueeze(-1), variance.unsqueeze(-1)
        else:
            mean, variance = one_after_another(model, at, self.posterior_transform)
        bounds = (mean if self.maximize else -mean) + self.beta.to(X) * deviation_of(variance)
        return bounds[..., -X.shape[-2] :].sum(-1)


def marginals(model: Model, X: Tensor, transform: PosteriorTransform | None = None) -> tuple[Tensor, Tensor]:
    """Return the posterior means and variances (...,) of a model at single points X (..., 1, d)."""
    if transform is None and isinstance(model, FactoredGP) and model.is_untransformed:
        return model.marginals(X.squeeze(-2))
    posterior = cast(Any, model.posterior(X, posterior_transform=transform))
    return posterior.mean.squeeze(-1).squeeze(-1), posterior_variance(posterior).squeeze(-1).squeeze(-1)


@dataclass(frozen=True)
class UpperConfidenceRule(OptimisticRule):
    """Maximise the upper confidence bound μ + β σ; see ``KernelUCB``."""

    uses_width = True
    scores_arms_apart = True

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,)."""
        mean, variance = posterior.mean, posterior.variance
        if loops_over_each(mean, variance, beta):
            scores = score_loops.upper_confidence(mean.numpy(), variance.numpy(), beta.item(), MIN_VARIANCE)
            return torch.from_numpy(scores)
        return mean + beta * deviation_of(variance)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> KernelUCB:
        """Return a ``KernelUCB``."""
        return KernelUCB(model, beta, X_pending=X_pending)


def _log_expected_improvement(improvement: Tensor, variance: Tensor) -> Tensor:
    """Return log EI from means less what is to be improved on, and variances; unlike BoTorch's in any units."""
    if loops_over_each(improvement.detach(), variance.detach()):
        return cast(Tensor, _LogExpectedImprovement.apply(improvement, variance))
    deviation = deviation_of(variance)
    return _log_ei_helper(improvement / deviation) + deviation.log()


class _LogExpectedImprovement(torch.autograd.Function):
    """log EI (A,) of few points: EI rises by Φ(u) with μ and by φ(u) with σ, u = (μ − best)/σ."""

    @staticmethod
    def forward(context: Any, improvement: Tensor, variance: Tensor) -> Tensor:
        scores = score_loops.log_expected_improvement(improvement.numpy(), variance.numpy(), 0.0, MIN_VARIANCE)
        context.save_for_backward(improvement, variance, value := torch.from_numpy(scores))
        return value

    @staticmethod
    @once_differentiable
    def backward(context: Any, along: Tensor) -> tuple[Tensor, Tensor]:
        improvement, variance, value = context.saved_tensors
        deviation = deviation_of(variance)
        u = improvement / deviation
        of_deviation = (-0.5 * u.square() - 0.5 * math.log(2.0 * math.pi) - value).exp() / (2.0 * deviation)
        return along * (torch.special.log_ndtr(u) - value).exp(), along * of_deviation * (variance > MIN_VARIANCE)


def _log_probability_of_improvement(improvement: Tensor, variance: Tensor) -> Tensor:
    """Return the logarithm of the probability of improvement, from the same."""
    return log_ndtr(improvement / deviation_of(variance))


class ImprovementFunction(PendingPoints):
    """Improvement in a domain over the largest posterior mean of a point played or pending, 0 before any, and a margin.

    Pending points count as observed at their posterior means. In a context improvement is over the largest posterior
    mean of the actions, on a box that of ``Domain.incumbent``. It is scored by means less that, and variances.
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
            raise InputError("Improvement on a box beside a context needs Domain.incumbent, the best point there.")
        self.register_buffer("_known", known, persistent=False)
        self._known: Tensor
        self._score, self._margin = score, margin
        self.X_pending = X_pending

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the logarithms of the improvement at single points X (b, 1, d), (b,)."""
        model, best = self._current(self._X_pending)
        mean, variance = marginals(model, X)
        return self._score(mean - best, variance)

    @override
    def _make(self) -> tuple[Model, Tensor]:
        """Return the model conditioned on the pending points, and what is to be improved on, 0-dim."""
        model, known = self.model, self._known
        if self.X_pending is not None:
            model = cast(FactoredGP, model).with_pending(self.X_pending)
            known = known if self._round is None else torch.cat([known, self._round.eligible(self.X_pending)])
        best = marginals(self.model, known.unsqueeze(-2))[0].max() if len(known) else known.new_zeros(())
        return model, best + self._margin


@dataclass(frozen=True)
class ExpectedImprovementRule(AcquisitionRule):
    """Maximise the expected improvement over the largest posterior mean of a played point, by its logarithm.

    In a context it is over the largest posterior mean of an action there. Pending points count as played, and observed
    at their mean.

    Source: Mockus, 1975; Ament et al., NeurIPS 2023 (BoTorch's logarithm).
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
    ) -> AcquisitionFunction:
        """Return the logarithm of the expected improvement."""
        return ImprovementFunction(model, X_pending, domain, _log_expected_improvement)


@dataclass(frozen=True)
class ProbabilityOfImprovementRule(AcquisitionRule):
    """Maximise the probability of improving on the same as ``ExpectedImprovementRule``.

    Improvements count above a margin; at 0 the best point so far would be played for ever.

    Source: Kushner, 1964. The score on arms is the standardised improvement, a monotone function of the probability.
    """

    margin: float | None = None  #: In reward units; None for 0.01 of the largest prior deviation of an arm or a play.

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
    ) -> AcquisitionFunction:
        """Return the logarithm of the probability of improvement, of a rule with a margin."""
        margin = cast(float, self.margin)
        return ImprovementFunction(model, X_pending, domain, _log_probability_of_improvement, margin)

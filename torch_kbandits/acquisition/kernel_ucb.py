"""The upper confidence bound, as a BoTorch acquisition function and as a rule over arms and boxes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.outcome_constraints import Barrier, OutcomeConstraints, scored_part
from torch_kbandits.acquisition.pending import PendingPoints, one_after_another, require_one_to_one
from torch_kbandits.acquisition.rules import ArmPosterior, OptimisticRule
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import DEFAULT_BETA, Mode, multiplier
from torch_kbandits.errors import InputError
from torch_kbandits.loops import score_loops
from torch_kbandits.loops.compiled import loops_over_each
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import MIN_VARIANCE, deviation_of, posterior_variance


class KernelUCB(PendingPoints):
    """Upper confidence bound μ(x) + β σ(x) with points pending that count as observed at their means (hallucinated).

    ``beta`` multiplies the standard deviation. BoTorch's ``UpperConfidenceBound(beta=b)`` multiplies by √b, so
    ``KernelUCB(model, beta=2.0)`` equals ``UpperConfidenceBound(model, beta=4.0)``.

    Pending points shrink σ and leave μ alone, so sequential and asynchronous batches spread out. For q > 1 the value is
    the sum of the bounds of the q points, each with those before it pending: so a joint search spreads out, too.

    The value is in units of rewards, and ``optimize_acqf`` ends where slopes are below 1e-5: where rewards are far
    smaller than 1 give it ``options={"gtol": ...}`` in these units. It is that of the model as it is: after ``tell``,
    ``remove`` or a fit it is made anew.

    With ``constraints`` a point is within them if, of all outcomes within β_c deviations of their means, the worst
    ("safe") or the best ("optimistic") keeps them, as with the ``Limit`` of a ``Bandit``. That is exact for callables
    that are linear, or monotone, in each outcome. A point that is not within scores less the further it is beyond, and
    less than any that was observed, so that a search by gradients comes back. Near a limit the value is a little lower
    than the bound: a maximiser is strictly within, and loses about 0.003 prior deviations for each limit that it is at.
    Pending points do not count as seen by the constraints. No point is tried only to show that others are safe.

    Source: Srinivas et al., ICML 2010; pending points: Desautels et al., JMLR 2014 (GP-BUCB). Differs: β is not
    inflated for the batch. Constraints: safe: Sui et al., ICML 2015, without its Lipschitz constant and its expansion;
    optimistic: Xu et al., ICML 2023 (CONFIG).

    Args:
        model: any BoTorch model with one output, or several and a ``posterior_transform``.
        beta: the multiplier, at least 0, or a ``Width``, which is evaluated on the model now; of a list of models on
            the one that the ``posterior_transform`` picks.
        posterior_transform: as in BoTorch.
        X_pending: points asked for but not yet told, (k, d).
        maximize: False where small outcomes are sought, as in ``UpperConfidenceBound``: the value is −μ + β σ.
        constraints: callables on outcomes, (..., q, m) to (..., q), negative where they are kept, as those of BoTorch's
            ``qLogExpectedImprovement``. The model must have the points it was told, and at most 8 outputs.
        constraint_mode: "safe" or "optimistic".
        constraint_beta: the multiplier of the outcomes' deviations for the constraints, or a ``Width``, evaluated on
            each model of a list; unless given 3 for "safe" and 2 for "optimistic".

    Raises:
        InputError: if beta is negative or not a number, a constraint is no such callable, or pending points do not fit.
        UnsupportedError: if the model has several outputs, or an input transform that makes several points of one, and
            there is no ``posterior_transform``; if it has too many outputs or no points for constraints. When evaluated
            at q > 1: if its posterior is not one Gaussian with a value for each point.
    """

    def __init__(
        self,
        model: Model,
        beta: float | Tensor | Width,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        maximize: bool = True,
        constraints: Sequence[Callable[[Tensor], Tensor]] | None = None,
        constraint_mode: Mode = "safe",
        constraint_beta: float | Width | None = None,
    ) -> None:
        checks.instance("model", model, Model, "a BoTorch model")
        checks.absent_or("posterior_transform", posterior_transform, PosteriorTransform, "a BoTorch transform")
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"KernelUCB scores one output and the model has {model.num_outputs}: give a posterior_transform."
            )
        if posterior_transform is None:
            require_one_to_one(model)
        self.register_buffer("beta", multiplier(beta, scored_part(model, posterior_transform)))
        self.beta: Tensor
        self.posterior_transform = posterior_transform
        self.maximize = checks.flag("maximize", maximize)
        mode = checks.one_of("constraint_mode", constraint_mode, DEFAULT_BETA)
        if constraint_beta is None:
            constraint_beta = DEFAULT_BETA[mode]
        elif not isinstance(constraint_beta, Width):
            constraint_beta = checks.non_negative("constraint_beta", constraint_beta)
        self._constraints = None
        if constraints := () if constraints is None else checks.entries("constraints", constraints):
            self._constraints = OutcomeConstraints.of(model, constraints, mode, constraint_beta)
            self._current()  # which refuses a model without points
        self.set_X_pending(X_pending)

    @staticmethod
    def score(mean: Tensor, variance: Tensor, beta: Tensor) -> Tensor:
        """Return μ + β σ from posterior marginals of equal shape."""
        return mean + beta * deviation_of(variance)

    @override
    def _make(self) -> tuple[Model, Barrier | None]:
        """Return the model, ours conditioned on the pending points, and a barrier if there are constraints."""
        model, known = self.model, self._constraints
        if self.X_pending is not None and isinstance(model, FactoredGP):
            model = model.with_pending(self.X_pending)
        return model, None if known is None else Barrier.of(self.model, known, self._objective)

    def excess(self, X: Tensor) -> Tensor:
        """Return by how much points X (..., d) are beyond each of k constraints, (..., k); <= 0 is within.

        In units of the callables, by the worse bounds of the outcomes for "safe" and by the better for "optimistic".
        """
        return self._given_constraints().excess(self.model.posterior(X.unsqueeze(-2)))

    def nonlinear_inequality_constraints(self) -> list[tuple[Callable[[Tensor], Tensor], bool]]:
        """Return the constraints as ``optimize_acqf`` takes them, of any acquisition function: >= 0 is within.

        It wants starts that are within, by ``batch_initial_conditions`` or ``ic_generator``, and one at a time,
        ``options={"batch_limit": 1}``.
        """
        number = len(self._given_constraints().callables)
        return [(lambda x, k=k: -self.excess(x)[..., k], True) for k in range(number)]

    def _given_constraints(self) -> OutcomeConstraints:
        if self._constraints is None:
            raise InputError("There are no constraints: give constraints=[...] when the acquisition function is made.")
        return self._constraints

    @t_batch_mode_transform()
    @average_over_ensemble_models  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the upper confidence bounds at X (b, q, d), those before each pending, (b,)."""
        model, barrier = self._current(self._X_pending, self.posterior_transform, self.maximize)
        pending, at = self.X_pending, X
        if pending is not None and not isinstance(model, FactoredGP):
            at = torch.cat([pending.to(X).expand(*X.shape[:-2], *pending.shape), X], -2)
        given = [model.posterior(X)] if at.shape[-2] == 1 else one_after_another(model, at)[-X.shape[-2] :]
        values = []
        for x, posterior in zip(X.split(1, dim=-2), given, strict=True):
            bound = self.score(*self._objective(posterior, x), self.beta.to(x))
            if barrier is not None:  # pending points are not seen by constraints
                bound = barrier.within(bound, self._given_constraints().excess(self.model.posterior(x)))
            values.append(bound)
        return torch.stack(values).sum(0)

    def _objective(self, posterior: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances of what is maximised at single points x (..., 1, d), both (...,)."""
        if self.posterior_transform is not None:
            posterior = self.posterior_transform(posterior, x)
        mean = posterior.mean.squeeze(-1).squeeze(-1)
        return mean if self.maximize else -mean, posterior_variance(posterior).squeeze(-1).squeeze(-1)


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
        return KernelUCB.score(mean, variance, beta)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> KernelUCB:
        """Return a ``KernelUCB``."""
        return KernelUCB(model, beta, X_pending=X_pending)

"""The upper confidence bound, as a BoTorch acquisition function and as a rule over arms and boxes."""

from dataclasses import dataclass

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints, one_after_another
from torch_kbandits.acquisition.rules import ArmPosterior, OptimisticRule
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import multiplier
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
            there is no ``posterior_transform``. When evaluated at q > 1: if its posterior is not one Gaussian with a
            value for each point.
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

    @staticmethod
    def score(mean: Tensor, variance: Tensor, beta: Tensor) -> Tensor:
        """Return μ + β σ from posterior marginals of equal shape."""
        return mean + beta * deviation_of(variance)

    @override
    def _make(self) -> Model:
        """Return the model, ours conditioned on the pending points."""
        model, pending = self.model, self.X_pending
        return model.with_pending(pending) if pending is not None and isinstance(model, FactoredGP) else model

    @t_batch_mode_transform()
    @average_over_ensemble_models  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the upper confidence bounds at X (b, q, d), those before each pending, (b,)."""
        model, pending, at = self._current(self._X_pending), self.X_pending, X
        if pending is not None and not isinstance(model, FactoredGP):
            at = torch.cat([pending.to(X).expand(*X.shape[:-2], *pending.shape), X], -2)
        given = [model.posterior(X)] if at.shape[-2] == 1 else one_after_another(model, at)[-X.shape[-2] :]
        values = []
        for x, posterior in zip(X.split(1, dim=-2), given, strict=True):
            sought = posterior if self.posterior_transform is None else self.posterior_transform(posterior, x)
            mean, variance = (part.squeeze(-1).squeeze(-1) for part in (sought.mean, posterior_variance(sought)))
            values.append(self.score(mean if self.maximize else -mean, variance, self.beta.to(x)))
        return torch.stack(values).sum(0)


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

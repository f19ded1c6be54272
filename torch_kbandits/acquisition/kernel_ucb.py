"""The upper confidence bound, as a BoTorch acquisition function and as a rule over arms and boxes."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits.acquisition.pending import hallucinate, has_changed, kept_posteriors
from torch_kbandits.acquisition.rules import MIN_VARIANCE, AcquisitionRule, ArmPosterior, Domain
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import multiplier
from torch_kbandits.errors import InputError


class KernelUCB(AcquisitionFunction):
    """Upper confidence bound μ(x) + β σ(x) with hallucinated pending points.

    ``beta`` multiplies the standard deviation. BoTorch's ``UpperConfidenceBound(beta=b)`` multiplies by √b, so
    ``KernelUCB(model, beta=2.0)`` equals ``UpperConfidenceBound(model, beta=4.0)``.

    Pending points shrink σ as if they had been observed at their posterior mean and leave μ alone, so sequential and
    asynchronous batches spread out. For q > 1 the value is the sum over the q points, each scored on its own.

    The bound is that of the model as it is: after ``tell``, ``remove`` or a fit pending points are hallucinated anew.

    Source: Srinivas et al., ICML 2010; pending points: Desautels et al., JMLR 2014 (GP-BUCB). Differs: β is not
    inflated for the batch.

    Args:
        model: any BoTorch model with one output, or several and a ``posterior_transform``.
        beta: the multiplier, at least 0, or a ``Width``, which is evaluated on the model now.
        posterior_transform: as in BoTorch.
        X_pending: points asked for but not yet told, (k, d).
        maximize: False where small outcomes are sought, as in ``UpperConfidenceBound``: the value is −μ + β σ.

    Raises:
        InputError: if beta is negative or not a number.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.
    """

    def __init__(
        self,
        model: Model,
        beta: float | Tensor | Width,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        maximize: bool = True,
    ) -> None:
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"KernelUCB scores one output and the model has {model.num_outputs}: give a posterior_transform."
            )
        self.register_buffer("beta", multiplier(beta, model))
        self.beta: Tensor
        self.posterior_transform = posterior_transform
        self.maximize = maximize
        self.set_X_pending(X_pending)

    @staticmethod
    def score(mean: Tensor, variance: Tensor, beta: Tensor) -> Tensor:
        """Return μ + β σ from posterior marginals of equal shape."""
        return mean + beta * variance.clamp_min(MIN_VARIANCE).sqrt()

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d); None or no rows: there are none."""
        super().set_X_pending(X_pending)
        self._hallucinate()

    def _hallucinate(self) -> None:
        """Condition the model on the pending points, if there are any."""
        # In a tuple, so that the conditioned model stays out of the module tree and the state_dict.
        self._hallucinated: tuple[Model, list[Any]] | None = None
        if self.X_pending is not None and self.X_pending.shape[-2] > 0:
            with torch.no_grad():
                conditioned = hallucinate(self.model, self.X_pending)
            self._hallucinated = conditioned, kept_posteriors(self.model)

    @t_batch_mode_transform()
    @average_over_ensemble_models  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the upper confidence bounds at X (b, q, d), (b,)."""
        return torch.stack([self._score(X[..., i : i + 1, :]) for i in range(X.shape[-2])]).sum(0)

    def _score(self, x: Tensor) -> Tensor:
        """Return the upper confidence bounds at single points x (..., 1, d), (...,)."""
        mean, variance = _marginals(self.model, x, self.posterior_transform)
        if self._hallucinated is not None:
            if has_changed(self.model, self._hallucinated[1]):
                self._hallucinate()
            _, variance = _marginals(self._hallucinated[0], x, self.posterior_transform)
        return self.score(mean if self.maximize else -mean, variance, self.beta.to(x))


@dataclass(frozen=True)
class UpperConfidenceRule(AcquisitionRule):
    """Maximise the upper confidence bound μ + β σ; see ``KernelUCB``."""

    uses_width = True
    grows_with_mean_and_variance = True

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,)."""
        return KernelUCB.score(posterior.mean, posterior.variance, beta)

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Return a ``KernelUCB``."""
        return KernelUCB(model, beta, X_pending=X_pending)


def _marginals(model: Model, x: Tensor, transform: PosteriorTransform | None) -> tuple[Tensor, Tensor]:
    """Return the posterior means and variances of single points x (..., 1, d), both (...,)."""
    posterior = cast(GPyTorchPosterior, model.posterior(x, posterior_transform=transform))
    return posterior.mean.squeeze(-1).squeeze(-1), posterior.variance.squeeze(-1).squeeze(-1)


@acqf_input_constructor(KernelUCB)
def construct_inputs_kernel_ucb(
    model: Model,
    beta: float | Tensor | Width | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    maximize: bool = True,
) -> dict[str, Any]:
    """Return the arguments of ``KernelUCB`` for BoTorch's and Ax's generic construction.

    Args:
        model: the posterior.
        beta: multiplier of σ or a ``Width``; there is no default, since none is right for every reward.
        posterior_transform: as in BoTorch; Ax minimises through it.
        X_pending: pending points.
        maximize: as in ``KernelUCB``.

    Raises:
        InputError: if there is no beta.
    """
    if beta is None:
        raise InputError(
            "KernelUCB needs beta, the multiplier of the standard deviation or a Width, and has no default: none is "
            'right for every reward. Give it; in Ax by botorch_acqf_options={"beta": 2.0}.'
        )
    return {
        "model": model,
        "beta": beta,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
        "maximize": maximize,
    }

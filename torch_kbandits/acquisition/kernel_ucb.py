from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.confidence import Evidence, Width
from torch_kbandits.errors import InputError
from torch_kbandits.models import NystromGP

#: Keeps the gradient of the square root finite, and is far below any variance that matters in any units.
MIN_VARIANCE = 1e-30


class KernelUCB(AcquisitionFunction):
    """Upper confidence bound μ(x) + β σ(x) with hallucinated pending points.

    ``beta`` multiplies the standard deviation. BoTorch's ``UpperConfidenceBound(beta=b)`` multiplies by √b, so
    ``KernelUCB(model, beta=2.0)`` equals ``UpperConfidenceBound(model, beta=4.0)``.

    Pending points shrink σ as if they had been observed at their posterior mean and leave μ alone, so sequential and
    asynchronous batches spread out. For q > 1 the value is the sum over the q points, each scored on its own.

    Source: Srinivas et al., ICML 2010; pending points: Desautels et al., JMLR 2014 (GP-BUCB). Differs: β is not
    inflated for the batch.

    Args:
        model: any BoTorch model with one output, or several and a ``posterior_transform``.
        beta: the multiplier, at least 0, or a ``Width``, which is evaluated on the model now.
        posterior_transform: as in BoTorch.
        X_pending: points asked for but not yet told, (k, d).

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
    ) -> None:
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"KernelUCB scores one output and the model has {model.num_outputs}: give a posterior_transform."
            )
        self.register_buffer("beta", multiplier(beta, model))
        self.beta: Tensor
        self.posterior_transform = posterior_transform
        # In a tuple, so that the conditioned model stays out of the module tree and the state_dict.
        self._hallucinated: tuple[Model] = (model,)
        self.set_X_pending(X_pending)

    @staticmethod
    def score(mean: Tensor, variance: Tensor, beta: Tensor) -> Tensor:
        """Return μ + β σ from posterior marginals of equal shape."""
        return mean + beta * variance.clamp_min(MIN_VARIANCE).sqrt()

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d); None or no rows: there are none."""
        super().set_X_pending(X_pending)
        self._hallucinated = (self.model,)
        if self.X_pending is not None and self.X_pending.shape[-2] > 0:
            with torch.no_grad():
                self._hallucinated = (hallucinate(self.model, self.X_pending),)

    @t_batch_mode_transform()
    @average_over_ensemble_models  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the upper confidence bounds at X (b, q, d), (b,)."""
        return torch.stack([self._score(X[..., i : i + 1, :]) for i in range(X.shape[-2])]).sum(0)

    def _score(self, x: Tensor) -> Tensor:
        """Return the upper confidence bounds at single points x (..., 1, d), (...,)."""
        mean, variance = _marginals(self.model, x, self.posterior_transform)
        (hallucinated,) = self._hallucinated
        if hallucinated is not self.model:
            _, variance = _marginals(hallucinated, x, self.posterior_transform)
        return self.score(mean, variance, self.beta.to(x))


def multiplier(beta: float | Tensor | Width, model: Model) -> Tensor:
    """Return the multiplier of σ that ``beta`` stands for on a model."""
    if isinstance(beta, Width):
        if not isinstance(model, Evidence):
            raise InputError(
                f"A width reads the evidence of its posterior, which NystromGP has and {type(model).__name__} has not: "
                "give a number."
            )
        beta = beta(model)
    if not isinstance(beta, Tensor):
        return torch.tensor(checks.non_negative("beta", beta), dtype=torch.float64)
    if beta.numel() != 1 or not bool((beta >= 0).all()):
        raise InputError(f"beta must be one number of at least 0, got {beta.tolist()}.")
    return beta.reshape(())


def _marginals(model: Model, x: Tensor, transform: PosteriorTransform | None) -> tuple[Tensor, Tensor]:
    """Return the posterior means and variances of single points x (..., 1, d), both (...,)."""
    posterior = cast(GPyTorchPosterior, model.posterior(x, posterior_transform=transform))
    return posterior.mean.squeeze(-1).squeeze(-1), posterior.variance.squeeze(-1).squeeze(-1)


def hallucinate(model: Model, X: Tensor) -> Model:
    """Return the model conditioned on its own posterior mean at X (k, d): the variance shrinks, the mean stays.

    Points join the dictionary of a Nyström posterior: at a fixed one the variance outside its span would not shrink.
    """
    if isinstance(model, NystromGP):
        return model.hallucinated(X)
    mean = cast(GPyTorchPosterior, model.posterior(X)).mean
    likelihood = getattr(model, "likelihood", None)
    kwargs: dict[str, Any] = {}
    if isinstance(likelihood, FixedNoiseGaussianLikelihood) and not hasattr(model, "regularization"):
        # Models without a noise level for later observations get the mean of the earlier ones.
        level = likelihood.noise.mean(-1, keepdim=True)
        kwargs["noise"] = (level.mT if model.num_outputs > 1 else level.unsqueeze(-1)).expand(mean.shape)
    if isinstance(model, ModelListGP):
        return model.condition_on_observations([X] * model.num_outputs, mean, **kwargs)
    return model.condition_on_observations(X, mean, **kwargs)


@acqf_input_constructor(KernelUCB)
def construct_inputs_kernel_ucb(
    model: Model,
    beta: float | Tensor | Width,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Return the arguments of ``KernelUCB`` for BoTorch's and Ax's generic construction.

    Args:
        model: the posterior.
        beta: multiplier of σ or a ``Width``; there is no default, since none is right for every reward.
        posterior_transform: as in BoTorch; Ax minimises through it.
        X_pending: pending points.
    """
    return {"model": model, "beta": beta, "posterior_transform": posterior_transform, "X_pending": X_pending}

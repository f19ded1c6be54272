"""Acquisition functions with points pending, and what these take of the uncertainty elsewhere."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DenseLinearOperator
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import posterior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky


class PendingPoints(AcquisitionFunction):
    """An acquisition function with points pending, which are set or, as BoTorch's wrappers do, assigned.

    They follow the function to another dtype or device, and are no part of its ``state_dict``. What the function is
    made of is made again once the model was told, fitted, moved or replaced.

    Args:
        model: without anything pending.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model=model)
        self.register_buffer("_X_pending", None, persistent=False)
        self._X_pending: Tensor | None
        # In a tuple, so that a conditioned model stays out of the module tree and the state_dict.
        self._made: tuple[Any, list[Any]] | None = None

    @property
    @override
    def X_pending(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The points asked for but not yet told, (k, d); None if there are none."""
        return self._X_pending

    @X_pending.setter
    @override
    def X_pending(self, X_pending: Tensor | None) -> None:
        X_pending = self._checked(X_pending)
        self._X_pending = None if X_pending is None else X_pending.detach().clone()

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d); None or no rows: there are none.

        Raises:
            InputError: if they do not fit the model, or are not finite.
        """
        super().set_X_pending(self._checked(X_pending))

    def _checked(self, X: Any) -> Tensor | None:
        """Return points pending (k, d) that fit the model; None if there are none."""
        if X is None or (isinstance(X, Tensor) and not X.is_nested and X.shape[:1] == (0,)):
            return None
        X = checks.points("X_pending", X, **inputs_of(self.model))
        if X.dim() != 2:
            raise InputError(f"X_pending must be (k, d), got {checks.describe(X)}.")
        return X

    @abstractmethod
    def _make(self) -> Any:
        """Return what the function is made of."""

    def _current(self, *parts: Any) -> Any:
        """Return what was made of the same parts and the model as it is, or make it.

        Models of this package notice what has changed by themselves, others once their posterior was computed.
        """
        if self._made is not None:
            before, now = self._made[1], [*parts, *_posteriors(self.model)]
            if len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True)):
                return self._made[0]
        with torch.no_grad():
            self._made = self._make(), [*parts, *_posteriors(self.model)]
        return self._made[0]


class CombinedFunction(AcquisitionFunction):
    """An acquisition function made of others, to which points pending are handed on.

    Args:
        functions: at least one; ``model`` and ``X_pending`` are those of the first.
        combine: takes the values of each, (b,), and points X (b, q, d) to values (b,); None for the largest.
        own: for each what makes its points (..., d') of points (..., d); None where they take them as they are.
    """

    def __init__(
        self,
        functions: Sequence[AcquisitionFunction],
        combine: Callable[[list[Tensor], Tensor], Tensor] | None = None,
        own: Sequence[Callable[[Tensor], Tensor]] | None = None,
    ) -> None:
        super().__init__(model=cast(Model, functions[0].model))
        self.functions = torch.nn.ModuleList(functions)
        self._combine, self._own = combine, own

    @t_batch_mode_transform()  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the values at X (b, q, d), (b,)."""
        values = [function(own) for function, own in zip(self.functions, self.own_points(X), strict=True)]
        return torch.stack(values).amax(0) if self._combine is None else self._combine(values, X)

    def own_points(self, X: Tensor) -> list[Tensor]:
        """Return points (..., d) as each of the functions takes them."""
        return [X] * len(self.functions) if self._own is None else [own(X) for own in self._own]

    @property
    @override
    def X_pending(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The points asked for but not yet told, (k, d); None if there are none."""
        return cast(AcquisitionFunction, self.functions[0]).X_pending

    @X_pending.setter
    @override
    def X_pending(self, X_pending: Tensor | None) -> None:
        self.set_X_pending(X_pending)

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d), of all the functions; None or no rows: there are none."""
        own: list[Tensor | None] = [None] * len(self.functions)
        if X_pending is not None:
            X = checks.floating_tensor("X_pending", X_pending)
            own = [*self.own_points(X)]
            for points in own:
                if points is not None and torch.promote_types(points.dtype, X.dtype) != X.dtype:
                    raise InputError(f"X_pending must have dtype {points.dtype}, got {X.dtype}.")
        for function, points in zip(self.functions, own, strict=True):
            cast(AcquisitionFunction, function).set_X_pending(points)


# ---------------------------------------------------------------- of any model


def observed_inputs(model: Model) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the points (..., n, d) that the parts of a model were told, as they were given, and the targets."""
    for part in model.modules():
        if isinstance(part, ExactGP) and part.train_inputs is not None:
            is_moved = bool(getattr(part, "_has_transformed_inputs", False))
            X = cast(Any, part)._original_train_inputs if is_moved else part.train_inputs[0]
            yield X, cast(Tensor, part.train_targets)


def inputs_of(model: Model) -> dict[str, Any]:
    """Return what is known of the columns and the dtype of a model's inputs, in the words of ``checks.points``."""
    for X, targets in observed_inputs(model):
        return {"dimension": X.shape[-1], "like": targets}
    return {}


def require_one_to_one(model: Model) -> None:
    """Refuse a model whose posterior at a point is that of several, which an input transform makes of it."""
    for part in model.modules():
        if isinstance(part, InputTransform) and part.is_one_to_many and part.transform_on_eval:
            raise UnsupportedError(
                f"{type(part).__name__} makes several points of one: give a posterior_transform that joins them, "
                "such as BoTorch's ExpectationPosteriorTransform."
            )


def one_after_another(model: Model, X: Tensor) -> list[GPyTorchPosterior]:
    """Return the posterior at each of q points X (..., q, d), with those before it observed at their posterior means.

    Gradients reach through all points.

    Raises:
        UnsupportedError: if the posterior is not one Gaussian with a value for each point.

    Cost: that of three joint posteriors, and O(q³) for one output.
    """
    posterior = model.posterior(X)
    if not isinstance(posterior, GPyTorchPosterior) or posterior.mean.shape[-2] != X.shape[-2]:
        raise UnsupportedError(
            f"The posterior of this {type(model).__name__} is not one Gaussian with a value for each point, to "
            "condition on points of a batch, or pending: take one by one, as optimize_acqf(..., sequential=True) does."
        )
    with torch.no_grad():
        noise = _later_noise(model, X).flatten(-2)
    covariance, outputs = _by_point(posterior), posterior.mean.shape[-1]
    factor = jittered_cholesky(covariance + noise.diag_embed())
    single = []
    for start in range(0, covariance.shape[-1], outputs):
        own = slice(start, start + outputs)
        taken = factor[..., own, :start]
        left = DenseLinearOperator(covariance[..., own, own] - taken @ taken.mT)
        mean = posterior.mean[..., start // outputs, :]
        kind = MultivariateNormal(mean, left) if outputs == 1 else MultitaskMultivariateNormal(mean.unsqueeze(-2), left)
        single.append(GPyTorchPosterior(kind))
    return single


def _later_noise(model: Model, X: Tensor) -> Tensor:
    """Return the noise variances of observations made now at points X (..., q, d), (..., q, m)."""
    if isinstance(model, ModelListGP):
        return torch.cat([_later_noise(cast(Model, part), X) for part in model.models], -1)
    likelihood, noise = getattr(model, "likelihood", None), True
    if isinstance(model, FactoredGP) and isinstance(likelihood, FixedNoiseGaussianLikelihood):
        level = model.regularization - likelihood.second_noise  # which the likelihood adds
        level = level if level.dim() and model.num_outputs > 1 else level.unsqueeze(-1)
        noise = level.unsqueeze(-2).expand(*X.shape[:-1], model.num_outputs)
    noisy = model.posterior(X, observation_noise=noise)  # pyright: ignore[reportArgumentType]
    return (posterior_variance(noisy) - posterior_variance(model.posterior(X))).clamp_min(0.0)


def _by_point(posterior: GPyTorchPosterior) -> Tensor:
    """Return the covariance of q points with m outputs, (..., q m, q m), all outputs of a point next to each other."""
    distribution, (q, m) = posterior.distribution, posterior.mean.shape[-2:]
    covariance = distribution.covariance_matrix
    if m == 1 or cast(MultitaskMultivariateNormal, distribution)._interleaved:
        return covariance
    by_output = covariance.unflatten(-1, (m, q)).unflatten(-3, (m, q))
    return by_output.transpose(-4, -3).transpose(-2, -1).flatten(-4, -3).flatten(-2, -1)


def _posteriors(model: Model) -> list[Any]:
    """Return a model and what its parts keep of their posteriors: each another object once its part has changed."""
    parts = [part for part in model.modules() if isinstance(part, ExactGP)]
    return [model, *(part.kept if isinstance(part, FactoredGP) else part.prediction_strategy for part in parts)]

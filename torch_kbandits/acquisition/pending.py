"""Acquisition functions with points pending, and what these take of the uncertainty elsewhere."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.models import ExactGP
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP
from torch_kbandits.models.normal import posterior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky


class PendingPoints(AcquisitionFunction):
    """An acquisition function of one output, with points pending that are set or, as BoTorch's wrappers do, assigned.

    They follow the function to another dtype or device, and are no part of its ``state_dict``. What the function is
    made of is made again once the model was told, fitted, moved or replaced.
    """

    def __init__(self, model: Model, posterior_transform: PosteriorTransform | None = None) -> None:
        checks.instance("model", model, Model, "a BoTorch model")
        checks.absent_or("posterior_transform", posterior_transform, PosteriorTransform, "a BoTorch transform")
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(f"The model has {model.num_outputs} outputs: give a posterior_transform.")
        self.posterior_transform = posterior_transform
        self.register_buffer("_X_pending", None, persistent=False)
        self._X_pending: Tensor | None
        # In a tuple, so that a conditioned model stays out of the module tree and the state_dict.
        self._made: tuple[Any, list[Any]] = None, []

    @property
    @override
    def X_pending(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The points asked for but not yet told, (k, d); None if there are none."""
        return self._X_pending

    @X_pending.setter
    @override
    def X_pending(self, X_pending: Tensor | None) -> None:
        is_tensor = isinstance(X_pending, Tensor) and not X_pending.is_nested
        if X_pending is None or (is_tensor and X_pending.shape[:1] == (0,)):
            self._X_pending = None
            return
        self._X_pending = checks.listed_points("X_pending", X_pending, **inputs_of(self.model)).detach().clone()

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d); an ``InputError`` if they do not fit the model."""
        self.X_pending = X_pending

    @abstractmethod
    def _make(self) -> Any:
        """Return what the function is made of."""

    def _current(self, *parts: Any) -> Any:
        """Return what was made of the same parts and the model as it is, or make it.

        Models of this package notice what has changed by themselves, others once their posterior was computed.
        """
        made, before = self._made
        now = [*parts, *_posteriors(self.model)]
        if [*map(id, before)] != [*map(id, now)]:
            with torch.no_grad():
                made = self._make()
            self._made = made, [*parts, *_posteriors(self.model)]
        return made


class CombinedFunction(AcquisitionFunction):
    """An acquisition function made of others, at least one, to which points pending are handed on.

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
        own: Sequence[Tensor | None] = [None] * len(self.functions)
        if X_pending is not None:
            X = checks.floating_tensor("X_pending", X_pending)
            own = self.own_points(X)
            if other := [each.dtype for each in own if torch.promote_types(each.dtype, X.dtype) != X.dtype]:
                raise InputError(f"X_pending must have dtype {other[0]}, got {X.dtype}.")
        for function, points in zip(self.functions, own, strict=True):
            cast(AcquisitionFunction, function).set_X_pending(points)

    @override
    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the points asked for but not yet told, (k, d), of all the functions."""
        self.X_pending = X_pending


# ---------------------------------------------------------------- of any model


def inputs_of(model: Model) -> dict[str, Any]:
    """Return what is known of the columns and the dtype of a model's inputs, in the words of ``checks.points``."""
    for part in model.modules():
        if isinstance(part, ExactGP) and part.train_inputs is not None:
            is_moved = bool(getattr(part, "_has_transformed_inputs", False))
            given = cast(Any, part)._original_train_inputs if is_moved else part.train_inputs[0]
            return {"dimension": given.shape[-1], "like": part.train_targets}
    return {}


def one_after_another(model: Model, X: Tensor, transform: PosteriorTransform | None) -> tuple[Tensor, Tensor]:
    """Return the means and variances of q points X (..., q, d), those before each observed at their posterior means.

    They are (..., q), of the one outcome that a transform makes, if there is one, and with its noise. Gradients reach
    through all points. Cost: that of two joint posteriors, and O(q³).
    """
    posterior = model.posterior(X, posterior_transform=transform)
    if not isinstance(posterior, GPyTorchPosterior) or posterior.mean.shape[-2:] != (X.shape[-2], 1):
        raise UnsupportedError(
            f"The posterior of this {type(model).__name__} is not one Gaussian with a value for each point, to "
            "condition on points of a batch, or pending: take one by one, as optimize_acqf(..., sequential=True) does."
        )
    covariance = posterior.distribution.covariance_matrix
    with torch.no_grad():
        noisy = model.posterior(X, observation_noise=True, posterior_transform=transform)
        noise = (posterior_variance(noisy) - posterior_variance(posterior)).clamp_min(0.0).squeeze(-1)
    taken = jittered_cholesky(covariance + noise.diag_embed()).tril(-1)
    return posterior.mean.squeeze(-1), covariance.diagonal(dim1=-2, dim2=-1) - taken.square().sum(-1)


def _posteriors(model: Model) -> list[Any]:
    """Return a model and what its parts keep of their posteriors: each another object once its part has changed."""
    parts = [part for part in model.modules() if isinstance(part, ExactGP)]
    return [model, *(part.kept if isinstance(part, FactoredGP) else part.prediction_strategy for part in parts)]

"""Acquisition functions made of others, and the largest of several."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.errors import InputError


class CombinedFunction(AcquisitionFunction):
    """An acquisition function made of others, to which points pending are handed on.

    Args:
        functions: at least one; ``model`` and ``X_pending`` are those of the first.
        own: for each what makes its points (..., d') of points (..., d); None where they take them as they are.
    """

    def __init__(
        self, functions: Sequence[AcquisitionFunction], own: Sequence[Callable[[Tensor], Tensor]] | None = None
    ) -> None:
        super().__init__(model=cast(Model, functions[0].model))
        self.functions = torch.nn.ModuleList(functions)
        self._own = own

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


class LargestOf(CombinedFunction):
    """The pointwise maximum of acquisition functions."""

    def forward(self, X: Tensor) -> Tensor:
        """Return the largest of the values at X (b, q, d), (b,)."""
        return torch.stack([function(X) for function in self.functions]).amax(0)

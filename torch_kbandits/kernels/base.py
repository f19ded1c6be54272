"""What kernels share: one number on a column of time, batch shapes without any, and bounds for fits."""

import math
from typing import Any, ClassVar, cast

import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def bounded(lower: float, upper: float) -> Interval:
    """Return a constraint that is a bound for the fit and no change of variables, so that its ends can be met."""
    identity: dict[str, Any] = {"transform": None, "inv_transform": None}
    if math.isinf(upper):
        return GreaterThan(lower, **identity)
    return Interval(lower, upper, **identity)


def require_own_class(kernel: Kernel, kind: type[Kernel], *, on_some_columns: bool = False) -> None:
    """Refuse random Fourier features of a subclass, which may be another function, and on some columns."""
    if type(kernel) is not kind or (kernel.active_dims is not None and not on_some_columns):
        raise UnsupportedError(
            f"There are no random Fourier features of {type(kernel).__name__}, or none of it on some columns."
        )


class TimeKernel(Kernel):
    """A kernel on one column of time with one number, learned with the other hyperparameters.

    The number is kept in double precision until ``.to`` or a model casts it: GPyTorch's own setters round it to single.
    """

    #: Its name, above 0 or 0 and below what it lies, in words, and the constraint that keeps any optimiser inside.
    _number: ClassVar[str]
    _below: ClassVar[float]
    _range: ClassVar[str]
    _inside: ClassVar[str]

    def __init__(self, value: float | Tensor, constraint: Interval | None, fitted: Interval, **kwargs: Any) -> None:
        checks.absent_or(f"{self._number}_constraint", constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        raw = torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)
        self.register_parameter(f"raw_{self._number}", Parameter(raw))
        self.register_constraint(f"raw_{self._number}", constraint or fitted)
        setattr(self, self._number, value)

    def _value(self) -> Tensor:
        return getattr(self, f"raw_{self._number}_constraint").transform(getattr(self, f"raw_{self._number}"))

    def _set(self, value: float | Tensor) -> None:
        raw: Tensor = getattr(self, f"raw_{self._number}")
        if isinstance(value, Tensor) and value.dim():
            exact = checks.finite(self._number, checks.floating_tensor(self._number, value)).to(raw)
            if value.numel() not in (1, raw.numel()):
                raise InputError(f"{self._number} must have {raw.numel()} number(s), got {checks.describe(value)}.")
        else:
            exact = raw.new_tensor(checks.finite_number(self._number, value))
        inverse = getattr(self, f"raw_{self._number}_constraint").inverse_transform
        self.initialize(**{f"raw_{self._number}": inverse(self._checked(exact))})

    def _checked(self, value: Tensor) -> Tensor:
        if not bool(((value >= 0.0) & (value < self._below)).all()):
            raise InputError(
                f"{self._number} must be {self._range}, got {value.flatten().tolist()}. If an optimiser went there, "
                f"give {self._number}_constraint={self._inside}."
            )
        return value

    def _checked_times(self, *points: Tensor) -> None:
        """Refuse points (..., n, d) of more columns than the one of time, or times that their precision cannot tell."""
        for X in points:
            if X.shape[-1] != 1:
                raise InputError(
                    f"A kernel on time takes one column, the time; got {checks.describe(X)}. Name it: active_dims=(i,)."
                )
            checks.precise_times(X)


class NumberlessKernel(Kernel):
    """A kernel with no parameter of its own that would carry its batch shape."""

    def in_batch(self, values: Tensor, diag: bool) -> Tensor:
        """Return values (..., n, n'), or (..., n) with ``diag``, for each member of the batch."""
        batch, own = (values.shape[:-1], values.shape[-1:]) if diag else (values.shape[:-2], values.shape[-2:])
        return values.expand(*torch.broadcast_shapes(self.batch_shape, batch), *own)

    def __getitem__(self, index: Any) -> Kernel:
        """Return the kernel of some members of the batch."""
        member = cast(Kernel, super().__getitem__(index))
        if len(self._batch_shape):
            member.batch_shape = torch.empty(()).expand(self._batch_shape)[index].shape
        return member

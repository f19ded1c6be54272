"""Parameters of kernels that keep the number they were given, and batch shapes of kernels that have none."""

import math
from typing import Any, cast

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def exact_value(name: str, value: Any, parameter: Tensor) -> Tensor:
    """Return a number as a tensor like the parameter; GPyTorch's own setters round it to single precision first."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        value = checks.finite_number(name, value)
    else:
        value = checks.finite(name, checks.floating_tensor(name, value))
        if value.numel() not in (1, parameter.numel()):
            raise InputError(f"{name} must be one number, or {parameter.numel()}, got {checks.describe(value)}.")
    return torch.as_tensor(value, dtype=parameter.dtype, device=parameter.device)


def bounded(lower: float, upper: float) -> Interval:
    """Return a constraint that is a bound for the fit and no change of variables, so that its ends can be met."""
    identity: dict[str, Any] = {"transform": None, "inv_transform": None}
    if math.isinf(upper):
        return GreaterThan(lower, **identity)
    return Interval(lower, upper, **identity)


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

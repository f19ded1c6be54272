"""Hyperparameters that keep the number they were given, also at the end of its range."""

import math
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval
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

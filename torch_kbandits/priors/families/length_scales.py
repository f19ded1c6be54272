"""Hypotheses that differ in the length scales of a kernel."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.priors.families.base import Variant


def shrinking_scales(number: int, dimension: int) -> tuple[float, ...]:
    """Return e^(−i/d) for i = 0 … number − 1: each bounds the regret at most about e times as high as the one before.

    Source: Ziomek, Adachi and Osborne, NeurIPS 2024, for Gaussian kernels.

    Args:
        number: how many, at least 1.
        dimension: d >= 1.
    """
    number, dimension = checks.size("number", number), checks.positive_integer("dimension", dimension)
    return tuple(math.exp(-i / dimension) for i in range(number))


def of_length_scales(kernel: Kernel, scales: Sequence[float]) -> tuple[Variant, ...]:
    """Return hypotheses whose kernels have the length scales of a kernel, all of them, times each number.

    Args:
        kernel: any GPyTorch kernel in which a part has length scales; a copy is changed.
        scales: numbers above 0, at least one.

    Raises:
        InputError: if no part of the kernel has length scales, or they may not become that long or short.
    """
    if not isinstance(scales, (tuple, list)) or not scales:
        raise InputError(f"scales must be one or more numbers above 0, got {checks.describe(scales)}.")
    factors = [checks.positive(f"scales[{place}]", scale) for place, scale in enumerate(scales)]
    return tuple(Variant(kernel=_stretched(kernel, factor)) for factor in factors)


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    other = deepcopy(kernel)
    parts = [cast(Any, part) for part in other.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    if not parts:
        raise InputError(
            f"No part of this {type(kernel).__name__} has a length scale to multiply by scales: give kernels=, one for "
            "each hypothesis."
        )
    for part in parts:
        longer: Tensor = part.lengthscale.detach() * factor
        constraint = part.raw_lengthscale_constraint
        if not constraint.check(longer):
            raise InputError(
                f"A length scale of the {type(part).__name__}, times {factor:g}, is {longer.flatten().tolist()}, and "
                f"must be in {constraint}: give other scales, or a kernel without that constraint."
            )
        if factor != 1.0:  # which would change its last digits
            with torch.no_grad():
                part.raw_lengthscale.copy_(constraint.inverse_transform(longer))
    return other

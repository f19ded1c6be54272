"""Kernels whose values are a sum of products of plain functions of two points, as numbers that a loop reads."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from gpytorch import kernels
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.loops.kernel_loops import EXPONENTIAL, HEAD, LINEAR, MATERN, RATIONAL, SMOOTH, SQUARED

Array = NDArray[Any]

#: A sum of products: numbers and the factors that they multiply, each a row of its kind, what else it depends on, and a
#: weight for each column of points; see ``kernel_loops``.
Terms = list[tuple[float, list[Array]]]

#: Products of more factors than this in all are left to GPyTorch.
_MOST_FACTORS = 16

K = TypeVar("K", bound=Kernel)


def terms_of(kernel: Kernel, columns: Array, *, is_called: bool = True) -> Terms:
    """Return what a kernel is on columns (c, d): when it is called, it selects its own among these, else not."""
    known = FORMULAS.get(type(kernel))
    if known is None or kernel.batch_shape:
        raise ValueError(f"{type(kernel).__name__} has no formula.")
    own = cast(Tensor | None, kernel.active_dims) if is_called else None
    return known(kernel, columns if own is None else columns[own.cpu().numpy()])


def factor(kind: float, weights: Tensor | float, columns: Array, extra: float = 0.0) -> Array:
    """Return a function of two points as a row, whose weights are one for all columns (c, d) or one for each."""
    numbers = np.asarray(weights.detach().double().cpu() if isinstance(weights, Tensor) else weights).reshape(-1)
    if len(numbers) not in (1, len(columns)) or (np.count_nonzero(columns, 0) > 1).any():
        raise ValueError("There is not one weight for each column.")
    shares = columns**2 if kind == LINEAR else columns
    return np.concatenate(([kind, extra], np.broadcast_to(numbers, len(columns)) @ shares))


def product_of(parts: Sequence[Terms]) -> Terms:
    """Return the product of kernels."""
    terms: Terms = [(1.0, [])]
    for part in parts:
        if len(part) * len(terms) > _MOST_FACTORS:
            raise ValueError("There are too many factors.")
        terms = [(scale * other, factors + others) for scale, factors in terms for other, others in part]
    return terms


def _affine(kernel: kernels.PolynomialKernel, columns: Array) -> Terms:
    """Return offset + ⟨x, x'⟩, a polynomial of power 1; a number alone is one times a function that is 1."""
    if kernel.power != 1:
        raise ValueError("A power is no product of plain functions.")
    return [(float(kernel.offset), [factor(SQUARED, 0.0, columns)]), (1.0, [factor(LINEAR, 1.0, columns)])]


_MATERNS = {0.5: EXPONENTIAL, 1.5: MATERN, 2.5: SMOOTH}

#: What kernels of exactly these classes are, subclasses of which may be other functions, given the share (d,) that each
#: column that they get to see has of the columns of a point. ``ValueError`` where one is no such sum.
FORMULAS: dict[type[Kernel], Callable[[Any, Array], Terms]] = {
    kernels.RBFKernel: lambda kernel, columns: [(1.0, [factor(SQUARED, 1.0 / kernel.lengthscale, columns)])],
    kernels.MaternKernel: lambda kernel, columns: [
        (1.0, [factor(_MATERNS[kernel.nu], math.sqrt(2.0 * kernel.nu) / kernel.lengthscale, columns)])
    ],
    kernels.RQKernel: lambda kernel, columns: [
        (1.0, [factor(RATIONAL, 1.0 / kernel.lengthscale, columns, float(kernel.alpha))])
    ],
    kernels.LinearKernel: lambda kernel, columns: [(1.0, [factor(LINEAR, kernel.variance, columns)])],
    kernels.PolynomialKernel: _affine,
    kernels.ScaleKernel: lambda kernel, columns: [  # whose base kernel selects no columns
        (float(kernel.outputscale) * scale, factors)
        for scale, factors in terms_of(kernel.base_kernel, columns, is_called=False)
    ],
    kernels.AdditiveKernel: lambda kernel, columns: [
        term for part in kernel.kernels for term in terms_of(part, columns)
    ],
    kernels.ProductKernel: lambda kernel, columns: product_of([terms_of(part, columns) for part in kernel.kernels]),
}


def formula(kernel: Kernel, dimension: int) -> Array | None:
    """Return a kernel on points of d columns as ``kernel_loops`` takes it; None if it is no such sum."""
    try:
        with torch.no_grad():
            terms = terms_of(kernel, np.eye(dimension))
    except ValueError:
        return None
    rows = [
        (row[0], float(number == 0), scale, *row[1:]) for scale, factors in terms for number, row in enumerate(factors)
    ]
    known = np.array(rows).reshape(-1, HEAD + dimension)
    return known if len(known) <= _MOST_FACTORS and bool(np.isfinite(known).all()) else None


#: For kernels of one smooth factor of s = Σ w² (x − x')² the kind of −2 dk/ds, and its share of the number before k.
_SLOPES = {SQUARED: (SQUARED, 1.0), MATERN: (EXPONENTIAL, 1.0), SMOOTH: (MATERN, 1.0 / 3.0)}

#: Of kernels that nobody changes the formulas on points of so many columns. A copy may be changed, and is another key.
_FROZEN: WeakKeyDictionary[Kernel, dict[int, Array | None]] = WeakKeyDictionary()


def frozen(kernel: K) -> K:
    """Return a kernel that is not changed from now on, nor are its parts, whose values a loop may compute."""
    for part in kernel.modules():
        if isinstance(part, Kernel):
            _FROZEN.setdefault(part, {})
    return kernel


def known_formula(kernel: Kernel, dimension: int) -> Array | None:
    """Return the formula of a kernel that was frozen, on points of d columns; None where there is none."""
    known = _FROZEN.get(kernel)
    if known is not None and dimension not in known:
        known[dimension] = formula(kernel, dimension)
    return None if known is None else known[dimension]


def known_slope(kernel: Kernel, dimension: int) -> Array | None:
    """Return the formula of −2 dk/ds of a known kernel of one smooth factor: dk/dx is less it times w² (x − x')."""
    known = known_formula(kernel, dimension)
    if known is None or len(known) != 1 or known[0, 0] not in _SLOPES:
        return None
    kind, share = _SLOPES[known[0, 0]]
    return np.concatenate(([[kind, 1.0, share * known[0, 2]]], known[:, 3:]), 1)

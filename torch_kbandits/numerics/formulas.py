"""Kernels whose values are a sum of products of plain functions of two points, as numbers that a loop reads."""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor

from torch_kbandits.loops.kernel_loops import EQUAL, EXPONENTIAL, HEAD, LINEAR, MATERN, RATIONAL, SMOOTH, SQUARED

#: Products of more factors than this in all are left to GPyTorch.
_MOST_FACTORS = 16

K = TypeVar("K", bound=Kernel)


class Factor(NamedTuple):
    """A function of two points x and x'.

    Attributes:
        kind: which one: ``LINEAR`` of s = Σ_c w_c x_c x'_c, the others of s = Σ_c w_c² (x_c − x'_c)².
        weights: w, (d,).
        extra: what else it depends on.
    """

    kind: float
    weights: np.ndarray
    extra: float = 0.0


class Product(NamedTuple):
    """A number times factors, of which there may be none."""

    scale: float
    factors: tuple[Factor, ...]


#: A kernel as a sum of products; None where it is not known as one.
Terms = Sequence[Product] | None


@singledispatch
def formula_of(kernel: Kernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return what a kernel is; ``formula_of.register`` takes those of kernels of your own.

    Args:
        kernel: of no batch shape. A subclass of a kernel that is known may be another function.
        columns: the numbers (k,) of the columns of a point that the kernel gets to see.
        dimension: d, of all columns.
    """
    return None


def called(kernel: Kernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return what a kernel is when it is called: then it selects its own columns among those that it gets to see."""
    if type(kernel).__call__ is not Kernel.__call__ or kernel.batch_shape:
        return None
    own = cast(Tensor | None, kernel.active_dims)
    return formula_of(kernel, columns if own is None else columns[own.cpu().numpy()], dimension)


def scattered(weights: Tensor | np.ndarray | float, columns: np.ndarray, dimension: int) -> np.ndarray | None:
    """Return weights, one for all or one for each of some columns, as (d,); None where they are another number."""
    if isinstance(weights, Tensor):
        weights = weights.detach().double().cpu().numpy().reshape(-1)
    if np.size(weights) not in (1, len(columns)) or len({*columns.tolist()}) < len(columns):
        return None
    whole = np.zeros(dimension)
    whole[columns] = weights
    return whole


def product_of(parts: Sequence[Terms]) -> Terms:
    """Return the product of kernels."""
    terms: Terms = [Product(1.0, ())]
    for part in parts:
        if part is None or len(part) * len(terms) > _MOST_FACTORS:
            return None
        terms = [Product(a.scale * b.scale, a.factors + b.factors) for a in terms for b in part]
    return terms


def of_distance(kind: float, weights: Tensor | float, columns: np.ndarray, dimension: int, extra: float = 0.0) -> Terms:
    """Return a factor alone, whose weights are one for all columns or one for each."""
    whole = scattered(weights, columns, dimension)
    return None if whole is None else [Product(1.0, (Factor(kind, whole, extra),))]


def stretched(terms: Terms, scale: np.ndarray) -> Terms:
    """Return a kernel of points whose columns are multiplied by numbers (d,) first."""
    if terms is None:
        return None
    powers = {LINEAR: 2, EQUAL: 0}
    return [
        term._replace(
            factors=tuple(
                factor._replace(weights=factor.weights * scale ** powers.get(factor.kind, 1)) for factor in term.factors
            )
        )
        for term in terms
    ]


@formula_of.register
def _rbf(kernel: RBFKernel, columns: np.ndarray, dimension: int) -> Terms:
    return of_distance(SQUARED, 1.0 / kernel.lengthscale, columns, dimension) if type(kernel) is RBFKernel else None


@formula_of.register
def _matern(kernel: MaternKernel, columns: np.ndarray, dimension: int) -> Terms:
    if type(kernel) is not MaternKernel:
        return None
    nu = cast(float, kernel.nu)
    kind = {0.5: EXPONENTIAL, 1.5: MATERN, 2.5: SMOOTH}[nu]
    return of_distance(kind, math.sqrt(2.0 * nu) / kernel.lengthscale, columns, dimension)


@formula_of.register
def _rational(kernel: RQKernel, columns: np.ndarray, dimension: int) -> Terms:
    if type(kernel) is not RQKernel:
        return None
    return of_distance(RATIONAL, 1.0 / kernel.lengthscale, columns, dimension, float(kernel.alpha))


@formula_of.register
def _linear(kernel: LinearKernel, columns: np.ndarray, dimension: int) -> Terms:
    return of_distance(LINEAR, kernel.variance, columns, dimension) if type(kernel) is LinearKernel else None


@formula_of.register
def _scale(kernel: ScaleKernel, columns: np.ndarray, dimension: int) -> Terms:
    base = cast(Kernel, kernel.base_kernel)
    if type(kernel) is not ScaleKernel or base.batch_shape:
        return None
    terms, scale = formula_of(base, columns, dimension), float(kernel.outputscale)  # its columns are this one's
    return None if terms is None else [term._replace(scale=scale * term.scale) for term in terms]


@formula_of.register
def _sum(kernel: AdditiveKernel, columns: np.ndarray, dimension: int) -> Terms:
    parts = [called(cast(Kernel, each), columns, dimension) for each in kernel.kernels]
    if type(kernel) is not AdditiveKernel:
        return None
    return None if None in parts else [term for part in parts if part is not None for term in part]


@formula_of.register
def _product(kernel: ProductKernel, columns: np.ndarray, dimension: int) -> Terms:
    if type(kernel) is not ProductKernel:
        return None
    return product_of([called(cast(Kernel, each), columns, dimension) for each in kernel.kernels])


def formula(kernel: Kernel, dimension: int) -> np.ndarray | None:
    """Return a kernel on points of d columns as rows of numbers, one a factor; None where it is not known as such.

    See ``kernel_loops`` for what they mean.
    """
    with torch.no_grad():
        terms = called(kernel, np.arange(dimension), dimension)
    if terms is None:
        return None
    constant = Factor(EQUAL, np.zeros(dimension))  # 1 everywhere
    rows = [
        (factor.kind, float(number == 0), term.scale, factor.extra, *factor.weights)
        for term in terms
        for number, factor in enumerate(term.factors or (constant,))
    ]
    known = np.array(rows).reshape(-1, HEAD + dimension)
    return known if len(known) <= _MOST_FACTORS and bool(np.isfinite(known).all()) else None


#: Of kernels that nobody changes the formulas on points of so many columns. A copy may be changed, and is another key.
_FROZEN: WeakKeyDictionary[Kernel, dict[int, np.ndarray | None]] = WeakKeyDictionary()


def frozen(kernel: K) -> K:
    """Return a kernel that is not changed from now on, so that its values may be computed by a loop."""
    _FROZEN.setdefault(kernel, {})
    return kernel


def known_formula(kernel: Kernel, dimension: int) -> np.ndarray | None:
    """Return the formula of a kernel that was frozen, on points of d columns; None where there is none."""
    known = _FROZEN.get(kernel)
    if known is None:
        return None
    if dimension not in known:
        known[dimension] = formula(kernel, dimension)
    return known[dimension]

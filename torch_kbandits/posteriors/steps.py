"""What is done to arrays that have a number for each of many points: on the CPU by NumPy and loops."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.loops import table_loops
from torch_kbandits.loops.compiled import in_parts
from torch_kbandits.posteriors.gaussian import Gaussian

Array = NDArray[Any]

#: What ``table_loops.follow`` takes of an update: rows, last, scales, spans, steps.
Arrays = tuple[Array, Array, Array, Array, Array]

_NONE = np.empty(0)

#: Products of fewer numbers than this are computed by one thread.
_FEW = 2**18


class Steps(ABC):
    """How, for points of one place. What has no number for each of them is NumPy's, in double precision.

    Values are (n,), means (k, n), features z (n, m), and moments are means, variances and what the dictionary spans.
    """

    @abstractmethod
    def kept(self, *arrays: Array) -> Sequence[Any]:
        """Return what the host knows of each point where the points are."""

    @abstractmethod
    def own(self, values: Tensor) -> Any:
        """Return what PyTorch computed where the points are as it is kept."""

    @abstractmethod
    def empty(self, like: Any, rows: int, columns: int) -> Any:
        """Return memory, (rows, columns), of the kind of other."""

    @abstractmethod
    def times(self, values: Tensor, matrix: Array) -> Any:
        """Return values (n, m) that PyTorch computed where the points are times a matrix (m, r)."""

    @abstractmethod
    def products(self, rows: Array, features: Any) -> Any:
        """Return the products (r, n) of rows (r, m) with features. Cost: O(n m r), one read of the features."""

    @abstractmethod
    def followed(self, update: Arrays, values: Any, corner: float, features: Any, memory: Any, moments: Any) -> Any:
        """Return moments after an update. Cost: one read of the features.

        Args:
            update: what there is of it.
            values: of the kernel with the point of a new coordinate; None for none.
            corner: what that is divided by.
            features: before.
            memory: of which column m is written with the new coordinate, (n, M).
            moments: before.
        """

    @abstractmethod
    def refitted(self, gaussian: Gaussian, void: Array, features: Any, prior: Any, expected: Any) -> Sequence[Any]:
        """Return moments computed afresh, given prior variances and means. Cost: O(n m²)."""

    @abstractmethod
    def bordered(self, taken: Any, below: Array, column: Any, corner: float) -> Any:
        """Return F (l, n) with one more row, (column − belowᵀF) / corner; see ``Pending``."""

    @abstractmethod
    def left(self, variance: Any, taken: Any) -> Any:
        """Return what F (l, n) leaves of variances, at least 0."""


class HostSteps(Steps):
    """On the CPU, by NumPy and loops."""

    @override
    def kept(self, *arrays: Array) -> Sequence[Array]:
        return arrays

    @override
    def own(self, values: Tensor) -> Array:
        return values.numpy()

    @override
    def empty(self, like: Array, rows: int, columns: int) -> Array:
        return np.empty((rows, columns), like.dtype)

    @override
    def times(self, values: Tensor, matrix: Array) -> Array:
        array = values.numpy()
        return _product(array, np.ascontiguousarray(matrix, array.dtype))

    @override
    def products(self, rows: Array, features: Array) -> Array:
        return _product(rows.astype(features.dtype, copy=False), features.T)

    @override
    def followed(self, update: Arrays, values: Any, corner: float, features: Array, memory: Array, moments: Any) -> Any:
        (n, m), column = features.shape, _NONE if values is None else np.asarray(values, np.float64)
        mean, variance, spanned = (each.copy() for each in moments)
        words = self.products(update[0], features), column, corner, *update[1:], memory, m, mean, variance, spanned
        in_parts(table_loops.follow, n, 16 * n, *words)
        return mean, variance, spanned

    @override
    def refitted(
        self, gaussian: Gaussian, void: Array, features: Array, prior: Array, expected: Array
    ) -> Sequence[Array]:
        inside = np.einsum("ij,ij->i", features, features, dtype=np.float64)
        products = _product(features.astype(np.float64, copy=False), gaussian.cov)
        left = np.einsum("ij,ij->i", products, features, dtype=np.float64)
        spanned = inside - np.square(features @ void.T).sum(1) if len(void) else inside
        return expected + gaussian.mean @ features.T, prior - inside + left, spanned

    @override
    def bordered(self, taken: Array, below: Array, column: Array, corner: float) -> Array:
        return np.vstack((taken, (column - below @ taken) / corner))

    @override
    def left(self, variance: Array, taken: Array) -> Array:
        return np.maximum(variance - np.einsum("la,la->a", taken, taken), 0.0)


def _product(left: Array, right: Array) -> Array:
    """Return the product of matrices, by PyTorch's threads where these pay: others wait for them on a busy machine."""
    if left.size * right.shape[1] < _FEW:
        return left @ right
    return torch.mm(torch.from_numpy(left), torch.from_numpy(right)).numpy()


#: One for all.
HOST = HostSteps()

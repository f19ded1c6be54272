"""A lower triangular matrix that grows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from torch import Tensor

#: Parts that are kept apart.
_MOST_PARTS = 64


@dataclass(frozen=True, eq=False)
class Triangle:
    """A lower triangular matrix (m, m) in parts. A value, shared by all that has the same matrix.

    Attributes:
        parts: rows (a, m') of what was there before and the lower triangle (a, a) beside them, one after another.
    """

    parts: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, matrix: Tensor) -> Self:
        """Hold a matrix (m, m)."""
        return cls(((matrix[:, :0], matrix),))

    @cached_property
    def matrix(self) -> Tensor:
        """All of it, (m, m). Put together once and when asked for, since copies would cost where points only join."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        size = sum(self.parts[-1][0].shape)
        matrix = self.parts[0][1].new_zeros(size, size)
        for left, corner in self.parts:
            first, last = left.shape[1], sum(left.shape)
            matrix[first:last, :first] = left
            matrix[first:last, first:last] = corner
        return matrix

    def bordered(self, left: Tensor, corner: Tensor) -> "Triangle":
        """Return the matrix with rows (a, m) and their own triangle (a, a) below."""
        is_whole = "matrix" in vars(self) or len(self.parts) >= _MOST_PARTS
        parts = Triangle.of(self.matrix).parts if is_whole else self.parts
        return Triangle((*parts, (left, corner)))

"""Low-rank changes of a symmetric matrix, and of the variances that it makes: sums of squares of rows."""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class Squares(NamedTuple):
    """How the variance at a point of coordinates z changes: by squares of rows applied to z.

    Attributes:
        fallen: rows (k, m) whose squares come off.
        risen: rows (j, m) whose squares come on.
    """

    fallen: Tensor
    risen: Tensor

    @classmethod
    def none(cls, size: int, like: Tensor) -> Self:
        """Return no change, in ``size`` coordinates."""
        none = like.new_empty(0, size)
        return cls(none, none)

    def then(self, other: Self) -> "Squares":
        """Return this change and another one after it, in coordinates of which there may be more by then."""
        if len(self.fallen) + len(self.risen) == 0:
            return other
        padding = (0, other.fallen.shape[1] - self.fallen.shape[1])
        pairs = zip(self, other, strict=True)
        return Squares(*(torch.cat([torch.nn.functional.pad(mine, padding), theirs]) for mine, theirs in pairs))

    def times(self, matrix: Tensor, columns: Tensor) -> Tensor:
        """Return a matrix (m, m), changed by these squares, times columns (m, c). Cost: O(m² c)."""
        product = matrix @ columns
        if len(self.fallen):
            product = product - self.fallen.mT @ (self.fallen @ columns)
        if len(self.risen):
            product = product + self.risen.mT @ (self.risen @ columns)
        return product

    def added_to(self, matrix: Tensor) -> Tensor:
        """Return a matrix (m, m) changed by these squares. Cost: O(m²) a row."""
        if len(self.fallen):
            matrix = torch.addmm(matrix, self.fallen.mT, self.fallen, alpha=-1.0)
        return torch.addmm(matrix, self.risen.mT, self.risen) if len(self.risen) else matrix

    def bordered(self, corner: Tensor, right: Tensor, last: Tensor) -> Tensor:
        """Return a matrix of a corner (m, m), changed by these squares, and more columns (m, a) and (a, a)."""
        m = corner.shape[0]
        size = m + last.shape[0]
        matrix = corner.new_empty(size, size)
        matrix[:m, :m], matrix[:m, m:], matrix[m:, :m], matrix[m:, m:] = corner, right, right.mT, last
        for rows, sign in zip(self, (-1, 1), strict=True):
            if len(rows) == 1:
                matrix[:m, :m].addcmul_(rows.mT, rows, value=sign)
            elif len(rows):
                matrix[:m, :m].addmm_(rows.mT, rows, alpha=sign)
        return matrix

"""Points that join the span of a table's features."""

from typing import NamedTuple

import torch
from torch import Tensor

from torch_kbandits.errors import NumericalError
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.squares import Squares, joined
from torch_kbandits.tables.panels import Columns

#: A point whose Schur complement is below this fraction of its prior variance is in the dictionary's span already.
#: Rounding over this fraction is by how much the norm of features may be off where they extrapolate; its root, over the
#: deviation of the noise, by how much means are off that leave such a point out.
SPAN_TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}

#: After a point whose Schur complement is below this fraction it matters in which order points span.
FRAGILE = {torch.float64: 1e-6, torch.float32: 1e-3}

#: No rounding makes a Schur complement negative beyond this fraction of the prior variance.
_IMPOSSIBLE = -1e-2


class Growth(NamedTuple):
    """Spanning points that were added.

    Attributes:
        dtc: the posterior with them.
        rows: their rows, (a,).
        own: their coordinates in the old ones, (a, m).
        corner: factor (a, a) of their covariance given the old ones.
        squares: how variances change, see ``OnlineDTC.grown``.
        at_played: the new coordinates of the played points, (a, u).
        columns: their kernel values with a block of the arms.
    """

    dtc: OnlineDTC
    rows: Tensor
    own: Tensor
    corner: Tensor
    squares: Squares
    at_played: Tensor
    columns: Columns

    def followed_by(self, squares: Squares) -> Squares:
        """Return how variances change by this and then by squares, those of the new coordinates among them."""
        units = torch.nn.functional.pad(
            torch.eye(len(self.own), dtype=self.own.dtype, device=self.own.device), (self.own.shape[1], 0)
        )
        return joined([Squares.of(units, -1.0, 1.0), self.squares, squares])


def spanning_factor(schur: Tensor, prior_variance: Tensor, dtype: torch.dtype) -> tuple[list[int], Tensor, bool]:
    """Say which of a points are not spanned by others to rounding.

    Args:
        schur: their covariance given the spanning points, (a, a).
        prior_variance: (a,).
        dtype: that of the kernel values, whose rounding decides.

    Returns:
        The numbers of those points, the least explained first, as in pivoted Cholesky; the Cholesky factor of their
        part of ``schur``; and whether one of them is so close to the span that order matters from now on.

    Raises:
        NumericalError: if a variance is negative beyond rounding.
    """
    if len(schur) == 1:  # as below, in plain numbers
        if schur.is_cpu:
            left, prior = schur.item(), prior_variance.item()
        else:  # one copy
            left, prior = torch.cat([schur.ravel(), prior_variance]).tolist()
        if left > SPAN_TOLERANCE[dtype] * prior:
            return [0], schur.sqrt(), left <= FRAGILE[dtype] * prior
    residual, least = schur.diagonal(), SPAN_TOLERANCE[dtype] * prior_variance
    rows, kept, is_open = schur[:0], [], residual > least
    while bool(is_open.any()):
        kept.append(int(residual.where(is_open, -torch.inf).argmax()))
        row = (schur[kept[-1]] - rows[:, kept[-1]] @ rows) / residual[kept[-1]].sqrt()
        rows, residual = torch.cat([rows, row.unsqueeze(0)]), residual - row.square()
        is_open = is_open & (residual > least)
        is_open[kept[-1]] = False
    shares = torch.where(prior_variance > 0.0, residual / prior_variance, 0.0)
    shares[kept] = 0.0
    if float(shares.min()) < _IMPOSSIBLE:
        raise NumericalError(
            f"A posterior variance came out at {float(shares.min()):.3g} times the prior variance, beyond rounding: "
            "the kernel is not positive semi-definite, or single precision is not enough."
        )
    corner = rows[:, kept].mT.tril()
    return kept, corner, bool((corner.diagonal().square() <= FRAGILE[dtype] * prior_variance[kept]).any())

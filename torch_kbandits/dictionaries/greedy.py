"""Greedy dictionaries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.numerics.gram import gram, prior_variance


@dataclass(frozen=True)
class GreedyDictionary(DictionaryRule):
    """Add the point that the dictionary explains least, one after another: the maximal Schur complement.

    This is pivoted Cholesky, the greedy maximum of det K_ZZ. Deterministic: ties go to the point played first.

    Args:
        size: at most this many points.
        tolerance: stop when no point's Schur complement exceeds this fraction of the largest prior variance.

    Cost of a selection: O(u m²) time, O(u m) memory.
    """

    size: int
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer, tolerance=checks.non_negative)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Choose up to ``size`` points; the generator is not used."""
        played.require_some()
        with torch.no_grad():
            return Selection.rows(played, greedy_pivots(played, self.size, self.tolerance))

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Choose exactly ``size`` points, also after the Schur complements have vanished."""
        played.require_some()
        with torch.no_grad():
            return Selection.rows(played, greedy_pivots(played, size, tolerance=None))


def greedy_pivots(played: PlayedPoints, size: int, tolerance: float | None) -> Tensor:
    """Return the rows (m,) of the greedy pivots in the order chosen; batch members share them, by the summed criterion.

    Args:
        played: the points.
        size: at most this many pivots.
        tolerance: relative Schur complement at which to stop, or None to go on to ``size``.
    """
    points, kernel = played.points, played.kernel
    if played.size == 0:
        return torch.zeros(0, dtype=torch.long, device=points.device)
    residual = prior_variance(kernel, points).clone()
    largest = residual.amax(-1, keepdim=True)
    largest = torch.where(largest == 0.0, 1.0, largest)  # a kernel may vanish at all points, as a linear one at 0
    rows = residual.new_empty(*residual.shape[:-1], min(size, played.size), played.size)
    available = torch.ones(played.size, dtype=torch.bool, device=points.device)
    pivots: list[Tensor] = []
    for k in range(rows.shape[-2]):
        criterion = (
            (residual / largest)
            .clamp_min(0.0)
            .reshape(-1, played.size)
            .sum(0)
            .where(available, residual.new_tensor(-1.0))
        )
        pivot = criterion.argmax()
        if k and tolerance is not None and bool(criterion[pivot] <= tolerance):
            break
        column = gram(kernel, points[..., pivot, None, :], points).squeeze(-2)
        explained = (rows[..., :k, pivot].unsqueeze(-2) @ rows[..., :k, :]).squeeze(-2)
        schur = residual[..., pivot].unsqueeze(-1).clamp_min(torch.finfo(residual.dtype).eps * largest)
        rows[..., k, :] = (column - explained) / schur.sqrt()
        residual = residual - rows[..., k, :].square()
        available[pivot] = False
        pivots.append(pivot)
    return torch.stack(pivots)

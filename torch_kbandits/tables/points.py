"""The rows of a table: arms, and points told that are no arms."""

from collections.abc import Iterator
from typing import Self, cast

import torch
from torch import Tensor

from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.numerics.places import beside, known
from torch_kbandits.numerics.rows import RowIndex, Rows, row_keys
from torch_kbandits.numerics.shallow import shallow_copy

#: Points, their keys, and their rows if all are known.
_Keyed = tuple[Tensor, list[bytes], list[int | None] | None]

#: So many points that were not looked up before are looked for in one pass through all arms.
_TOGETHER_ABOVE = 32


class PointList:
    """The rows of a table: the arms of a source, in order, then points told that are no arms.

    A value, but for what it remembers of rows that were looked up.

    Args:
        source: the arms.
    """

    def __init__(self, source: ArmSource) -> None:
        self.source = source
        self.num_arms = len(source)  # A, the number of arms, which are the first rows
        self._strangers = Rows(source.block(0, 0))
        self._rows_of_others = RowIndex.of({})
        self._rows_of_arms: dict[bytes, int] = {}  # shared with longer lists; rows of arms never change
        self._handed_out: dict[int, _Keyed] = {}  # arms
        # Those whose keys were asked for last.
        self._keyed: _Keyed = self._others, [], None

    def __len__(self) -> int:
        return self.num_arms + len(self._strangers)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of all points."""
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        """Device of all points."""
        return self.source.device

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self.source.dimension

    @property
    def _others(self) -> Tensor:
        """The points that are no arms."""
        return self._strangers.tensor

    @property
    def tensor(self) -> Tensor | None:
        """All points, (N, d), if the arms are in memory, else None."""
        arms = self.source.tensor
        return arms if arms is None or len(self._others) == 0 else torch.cat([arms, self._others])

    def rows(self, index: Tensor) -> Tensor:
        """Return the points of rows ``index`` (k,), (k, d), as a new tensor."""
        if not len(self._strangers):
            return self.source.rows(beside(index, self._others))
        if self.num_arms == 0:
            return self._others[index]
        arms = index < self.num_arms
        if bool(arms.all()):
            return self.source.rows(beside(index, self._others))
        points, others = self._others.new_empty(len(index), self.dimension), ~arms
        points[others] = self._others[index[others] - self.num_arms]
        if bool(arms.any()):
            points[arms] = self.source.rows(beside(index[arms], self._others))
        return points

    def block(self, start: int, stop: int) -> Tensor:
        """Return the points of rows start … stop − 1, (stop − start, d), arms or not; not to be written to."""
        last = self.num_arms
        if stop <= last:
            return self.source.block(start, stop)
        others = self._others[max(start - last, 0) : stop - last]
        return others if start >= last else torch.cat([self.source.block(start, last), others])

    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Yield rows start … stop − 1 in order, at most ``size`` at a time: the first row of a block and its points."""
        stop = len(self) if stop is None else stop
        for first in range(start, stop, size):
            yield first, self.block(first, min(first + size, stop))

    def with_points(self, others: Tensor) -> Self:
        """Return the list with points (k, d), all different and not in it yet, appended."""
        keys, rows = self.keys(others), list[int | None](range(len(self), len(self) + others.shape[0]))
        entries = dict(zip(keys, cast(list[int], rows), strict=True))
        longer = shallow_copy(self)
        longer._strangers = self._strangers.followed(others)
        longer._rows_of_others = self._rows_of_others.extended(entries)
        longer._keyed = others, keys, rows
        return longer

    def with_others_at(self, places: Tensor) -> Self:
        """Return the list with those alone of the points that are no arms that stand at these places (k,) of them."""
        shorter = shallow_copy(self)
        others = self._others[places]
        shorter._strangers = Rows(others)
        shorter._keyed = others, row_keys(others), None
        shorter._rows_of_others = RowIndex.of({key: row for row, key in enumerate(shorter._keyed[1], self.num_arms)})
        return shorter

    def verify(self) -> None:
        """Raise ``ArmsChangedError`` if it is cheap to see that the arms are no longer what they were."""
        self.source.verify()

    def find(self, points: Tensor) -> list[int | None]:
        """Return for each of points (k, d) a row that equals it, the first unless another was handed out, or None.

        Arms that are not to be searched equal only what was handed out.

        Cost: O(1) for a point that was found before; others O(N d) each, or one pass for all if they are many.
        """
        known, keys, rows = self._keyed  # another thread may replace it
        if points is known and rows is not None:
            return rows
        keys = self.keys(points)
        rows = [self._row(key) for key in keys]
        if None in rows and self.source.is_searched:
            self._search(keys, points)
            rows = [self._row(key) for key in keys]
        if None not in rows:
            self._keyed = points, keys, rows
        return rows

    def keys(self, points: Tensor) -> list[bytes]:
        """Return ``row_keys`` of points (k, d), which are remembered of the last ones."""
        known, keys, _ = self._keyed
        if points is not known:
            keys = row_keys(points)
            self._keyed = points, keys, None
        return keys

    def _row(self, key: bytes) -> int | None:
        """Return the row of a point that was looked up or appended before."""
        row = self._rows_of_arms.get(key)
        return self._rows_of_others.place(key) if row is None else row

    def _search(self, keys: list[bytes], points: Tensor) -> None:
        """Find the rows of those points (k, d) that are arms and were not found before."""
        unknown = {key: point for key, point in zip(keys, points, strict=True) if self._row(key) is None}
        if len(unknown) > _TOGETHER_ABOVE:
            self._look_up(set(unknown))
        else:
            for key, point in unknown.items():
                row = self.source.find(point)
                if row is not None:
                    self._rows_of_arms[key] = row

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d), not to be written to, and remember it, so that nobody looks for it."""
        found = self._handed_out.get(row)
        if found is None:
            arms = self.source.tensor
            point = self.rows(torch.tensor([row], device=self.device)) if arms is None else arms[row : row + 1].clone()
            found = self._remembered(row, point)
        else:
            self.source.verify()  # as reading would
        self._keyed = found
        return found[0]

    def hand_out(self, row: int, point: Tensor, host: Tensor) -> None:
        """Remember the arm of a row, (1, d), and its numbers on the host, (1, d), so that ``arm`` need not read it."""
        if row not in self._handed_out:
            self._remembered(row, known(point, host))

    def _remembered(self, row: int, point: Tensor) -> _Keyed:
        keys = row_keys(point)
        found = self._handed_out[row] = point, keys, [self._rows_of_arms.setdefault(keys[0], row)]
        return found

    def _look_up(self, wanted: set[bytes]) -> None:
        """Find the first rows of those of many points that are arms."""
        for start, block in self.source.blocks():
            for row, key in enumerate(row_keys(block), start=start):
                if key in wanted:
                    self._rows_of_arms[key] = row
                    wanted.remove(key)
            if not wanted:
                return

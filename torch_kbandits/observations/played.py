"""The unique played points, each with how often it was played and the sum of its rewards."""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.places import beside
from torch_kbandits.numerics.rows import RowIndex, Rows
from torch_kbandits.numerics.shallow import shallow_copy


class Located(NamedTuple):
    """Where points told stand among the unique played ones.

    Attributes:
        positions: of each point, as they will be once the points are added.
        fresh: rows of the points that are played for the first time, each point once.
        keys: of all points.
    """

    positions: list[int]
    fresh: list[int]
    keys: list[bytes]

    @property
    def is_all_fresh(self) -> bool:
        """Whether all points are different and played for the first time."""
        return len(self.fresh) == len(self.keys)

    def first_plays(self, X: Tensor) -> Tensor:
        """Return those of the points X (q, d) that are played for the first time: X itself if all are."""
        return X if self.is_all_fresh else X[self.fresh]

    def plays(self, Y: Tensor) -> "Plays":
        """Return the rewards Y (q,) of each point, in order of first appearance."""
        places = torch.tensor(self.positions, dtype=torch.long, device=Y.device)
        counts, sums = torch.ones_like(Y, dtype=torch.float64), Y.double()
        if self.is_all_fresh or len(self.positions) == 1:
            return Plays(places, counts, sums)
        numbers = {place: number for number, place in enumerate(dict.fromkeys(self.positions))}
        of = torch.tensor([numbers[place] for place in self.positions], dtype=torch.long, device=Y.device)
        none = sums.new_zeros(len(numbers))
        return Plays(places.new_tensor(list(numbers)), none.index_add(0, of, counts), none.index_add(0, of, sums))


class Plays(NamedTuple):
    """Rewards of some of the unique played points.

    Attributes:
        places: of the points, (k,).
        counts: how many there are of each, (k,), in double precision like the next.
        sums: of the rewards of each, (k,).
    """

    places: Tensor
    counts: Tensor
    sums: Tensor


def merged(places: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the places that rewards (q,) are of, each once, (k,), how many it has, (k,), and their sums, (k,).

    Counts and sums are in double precision.
    """
    if len(places) == 1:
        return places, _ONE, np.ascontiguousarray(Y, np.float64)
    unique, numbers = np.unique(places, return_inverse=True)
    return unique, np.bincount(numbers).astype(np.float64), np.bincount(numbers, weights=Y)


#: How many rewards one is.
_ONE = np.ones(1)
_ONE_TENSOR = torch.from_numpy(_ONE)


class PlayedLog:
    """The unique played points with how often each was played and the sum of its rewards, in order of first play.

    Counts and sums are in double precision, so that a million plays add up.

    Args:
        example: no points, (0, d), whose dtype and device those have that are told.
        device: of counts and sums.
    """

    def __init__(self, example: Tensor, device: torch.device) -> None:
        nothing = torch.zeros(0, dtype=torch.float64, device=device)
        self._points, self._counts, self._sums = Rows(example[:0]), Rows(nothing), Rows(nothing)
        self._positions = RowIndex.of({})
        self._known: tuple[Located, Rows, Rows] | None = None  # points and counts with some added, asked for last

    def __len__(self) -> int:
        return len(self._points)

    @property
    def points(self) -> Tensor:
        """The points, (u, d)."""
        return self._points.tensor

    @property
    def counts(self) -> Tensor:
        """How often each was played, (u,)."""
        return self._counts.tensor

    @property
    def sums(self) -> Tensor:
        """The sum of the rewards of each, (u,)."""
        return self._sums.tensor

    def locate(self, keys: list[bytes]) -> Located:
        """Return where points of these keys stand.

        New points get the positions that they will have once they are added.
        """
        new: dict[bytes, int] = {}
        positions, fresh = [], []
        for row, key in enumerate(keys):
            position = new.get(key) if (known := self._positions.place(key)) is None else known
            if position is None:
                position = new[key] = len(self) + len(new)
                fresh.append(row)
            positions.append(position)
        return Located(positions, fresh, keys)

    def points_with(self, X: Tensor, located: Located) -> tuple[Tensor, Tensor]:
        """Return the unique points and their counts as they will be once X (q, d) is added."""
        points, counts = self._with(X, located)
        return points.tensor, counts.tensor

    def sums_with(self, Y: Tensor, located: Located) -> Tensor:
        """Return the sums of rewards as they will be once rewards Y (q,) are added."""
        return self._added(self._sums, self._summable(Y), located).tensor

    def new_counts(self, X: Tensor, located: Located) -> Tensor:
        """Return how many rows of X (q, d) are each of the unique points as they will be once X is added, (u,)."""
        if self.counts.is_cpu and X.shape[0] == 1:
            place, size = located.positions[0], len(self)
            counts = np.zeros(max(size, place + 1))
            counts[place] = 1.0
            return torch.from_numpy(counts)
        return self._added(Rows(torch.zeros_like(self.counts)), self._ones(X), located).tensor

    def with_rewards(self, X: Tensor, Y: Tensor, located: Located) -> Self:
        """Return the log with rewards Y (q,) at X (q, d) added; this one stays as it is. Cost: O(u)."""
        other = shallow_copy(self)
        other._points, other._counts = self._with(X, located)
        other._sums = self._added(self._sums, self._summable(Y), located)
        other._known = None
        if located.fresh:
            entries = {located.keys[row]: located.positions[row] for row in located.fresh}
            other._positions = self._positions.extended(entries)
        return other

    def recounted(self, places: Tensor, counts: Tensor, sums: Tensor) -> Self:
        """Return the log of the points at these places alone, in this order, with other rewards. Cost: O(u)."""
        other = shallow_copy(self)
        points = self.points[beside(places, self.points)]
        other._points, other._counts, other._sums = Rows(points), Rows(counts), Rows(sums)
        other._known = None
        keys = list(self._positions.entries())  # in the order in which they came, which is that of the positions
        other._positions = RowIndex.of({keys[old]: new for new, old in enumerate(places.tolist())})
        return other

    def _with(self, X: Tensor, located: Located) -> tuple[Rows, Rows]:
        """Return the points and counts as they will be once X (q, d) is added; the last ones are remembered."""
        known = self._known
        if known is None or known[0] is not located:
            points = self._points.followed(located.first_plays(X)) if located.fresh else self._points
            known = self._known = located, points, self._added(self._counts, self._ones(X), located)
        return known[1:]

    def _ones(self, X: Tensor) -> Tensor:
        """Return how many rewards each of points (q, d) has, (q,), in double precision."""
        counts = self.counts
        return _ONE_TENSOR if counts.is_cpu and X.shape[0] == 1 else counts.new_ones(X.shape[0])

    def _summable(self, Y: Tensor) -> Tensor:
        """Return rewards (q,) as they are added to sums."""
        return beside(Y, self.sums).double()

    def _added(self, old: Rows, new: Tensor, located: Located) -> Rows:
        """Return numbers (u,) with others (q,), in double precision, added to those of their points."""
        if located.is_all_fresh:
            return old.followed(new)
        if len(located.positions) == 1:
            return old.with_added(located.positions[0], new.item() if new.is_cpu else new[0])
        positions = torch.tensor(located.positions, dtype=torch.long, device=new.device)
        grown = torch.cat([old.tensor, new.new_zeros(len(located.fresh))]) if located.fresh else old.tensor
        return Rows(grown.index_add(0, positions, new))

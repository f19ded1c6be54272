"""The played points with their features, in buffers that grow by doubling."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PlayedRows:
    """Observations in the order told, and the coordinates of their points. A value; the newest owns the buffers' ends.

    What is added stands behind what this value shows, so a value made before a failed change still shows what it did.
    Values must form a chain: once a value was extended, extending an earlier one writes over what the later one shows.

    Attributes:
        number: n observations.
        width: m coordinates.
        features: whether coordinates are kept; where not, they are computed when asked for.
    """

    _points: Tensor
    _rewards: Tensor
    _coordinates: Tensor
    number: int
    width: int
    features: bool

    @classmethod
    def empty(cls, example: Tensor, width: int, *, features: bool) -> Self:
        """Return no observations, of the kind of a point (1, d), with so many coordinates."""
        double = torch.zeros(0, width, dtype=torch.float64, device=example.device)
        return cls(example[:0], double.sum(-1), double, 0, width, features)

    @property
    def points(self) -> Tensor:
        """The points, (n, d)."""
        return self._points[: self.number]

    @property
    def rewards(self) -> Tensor:
        """The rewards, (n,), in double precision."""
        return self._rewards[: self.number]

    @property
    def coordinates(self) -> Tensor:
        """The coordinates, (n, m), in double precision."""
        return self._coordinates[: self.number, : self.width]

    def extended(self, points: Tensor, rewards: Tensor, coordinates: Tensor) -> Self:
        """Return the rows with k more observations. Cost: O(k (d + m)) on average.

        Args:
            points: (k, d).
            rewards: (k,).
            coordinates: (k, m); not read where none are kept.
        """
        number = self.number + len(points)
        after = replace(
            self,
            _points=_written(self._points, self.points, number, points),
            _rewards=_written(self._rewards, self.rewards, number, rewards.to(self._rewards)),
            number=number,
        )
        return after._with_coordinates(number, self.width, slice(self.number, number), coordinates)

    def widened(self, coordinates: Tensor) -> Self:
        """Return the rows with more coordinates of each observation, (n, a). Cost: O(n a) on average."""
        width = self.width + coordinates.shape[1]
        return replace(self, width=width)._with_coordinates(self.number, width, slice(0, self.number), coordinates)

    def without_features(self, width: int) -> Self:
        """Return the rows without coordinates, of which there are so many."""
        return replace(self, _coordinates=self._coordinates[:0, :0], width=width, features=False)

    def _with_coordinates(self, number: int, width: int, rows: slice, coordinates: Tensor) -> Self:
        """Return the rows with coordinates written: the last columns of these rows."""
        if not self.features:
            return self
        buffer, old = self._coordinates, self._coordinates[: min(number, rows.start or number), :]
        if buffer.shape[0] < number or buffer.shape[1] < width:
            shown = old[: min(self.number, len(old)), : min(self.width, old.shape[1])]
            buffer = buffer.new_empty(_room(buffer.shape[0], number), _room(buffer.shape[1], width))
            buffer[: len(shown), : shown.shape[1]] = shown
        buffer[rows, width - coordinates.shape[1] : width] = coordinates
        return replace(self, _coordinates=buffer)


def _written(buffer: Tensor, shown: Tensor, number: int, new: Tensor) -> Tensor:
    """Return a buffer that shows ``shown`` and ``new`` after one another."""
    if len(buffer) < number:
        buffer = buffer.new_empty(_room(len(buffer), number), *buffer.shape[1:])
        buffer[: len(shown)] = shown
    buffer[len(shown) : number] = new
    return buffer


def _room(have: int, needed: int) -> int:
    """Return the length of a buffer: what it is, or at least twice that and at least what is needed."""
    return have if have >= needed else max(needed, 2 * have, 16)

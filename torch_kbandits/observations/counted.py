"""What counts of the rewards told, and how much."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.places import beside
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.observations import played_loops
from torch_kbandits.observations.played import Plays

#: A column as a tensor, or on a CPU as an array.
Column = Tensor | np.ndarray


class Counted:
    """The observations that count, in the order told. A value.

    Where nothing is ever forgotten, all but X and Y may be those of the first ones only; see ``followed``.

    Args:
        X: points (n, d).
        Y: rewards (n,).
        times: when each was made, (n,), in double precision like the next.
        weights: how many fresh observations each counts for, λ over its noise variance, (n,).
        places: where its point stands among the unique played ones, (n,).
        numbers: how many observations were told before it, (n,).
    """

    __slots__ = ("_columns",)

    def __init__(self, X: Column, Y: Column, times: Column, weights: Column, places: Column, numbers: Column) -> None:
        self._columns = tuple(map(Rows, (X, Y, times, weights, places, numbers)))

    @classmethod
    def none(cls, example: Tensor, device: torch.device) -> Self:
        """Return no observations, at points of the kind of an example (1, d) or (0, d); all else is on a device."""
        nothing = torch.zeros(0, dtype=torch.float64, device=device)
        return cls(example[:0], nothing.to(example.dtype), nothing, nothing, nothing.long(), nothing.long())

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Tensor]:
        return (rows.tensor for rows in self._columns)

    @property
    def X(self) -> Tensor:  # noqa: N802 the field's name
        """Points (n, d)."""
        return self._columns[0].tensor

    @property
    def Y(self) -> Tensor:  # noqa: N802 the field's name
        """Rewards (n,)."""
        return self._columns[1].tensor

    @property
    def times(self) -> Tensor:
        """When each was made, (n,)."""
        return self._columns[2].tensor

    @property
    def weights(self) -> Tensor:
        """How many fresh observations each counts for, (n,)."""
        return self._columns[3].tensor

    @property
    def places(self) -> Tensor:
        """Where its point stands among the unique played ones, (n,)."""
        return self._columns[4].tensor

    @property
    def numbers(self) -> Tensor:
        """How many observations were told before it, (n,)."""
        return self._columns[5].tensor

    def rows(self, which: Tensor) -> "Counted":
        """Return some of them: (n,) bool, or numbers in another order."""
        index = which.nonzero().squeeze(-1) if which.dtype == torch.bool else which
        return Counted(*[part.index_select(0, beside(index, part)) for part in self])

    def weighed(self, weights: Tensor) -> "Weighed":
        """Return what is left with other weights (n,), of which some may be 0. Cost: O(n)."""
        if runs_compiled(self.places, self.weights, self.Y, self.X):
            X, Y, times, before, places, numbers = (part.numpy() for part in self)
            now = weights.contiguous().numpy()
            columns = np.ascontiguousarray(places), np.ascontiguousarray(before), now
            values = np.ascontiguousarray(Y, np.float64)
            kept, moved, left, gone, is_same = played_loops.parted(*columns, values)
            parts = X[kept], Y[kept], times[kept], now[kept], moved, numbers[kept]
            plays = Plays(*map(torch.from_numpy, left)), Plays(*map(torch.from_numpy, gone))
            return Weighed(Counted(*parts), plays[0], plays[1], is_same)
        counts = weights > 0.0
        kept, weights = self.rows(counts), weights[counts]
        now = Counted(kept.X, kept.Y, kept.times, weights, kept.places, kept.numbers)
        left, gone = now.plays(), self.rows(~counts).plays()
        moved = torch.empty_like(self.places)
        moved[left.places] = torch.arange(len(left.places), device=moved.device)
        now = Counted(kept.X, kept.Y, kept.times, weights, moved[kept.places], kept.numbers)
        return Weighed(now, left, gone, torch.equal(weights, kept.weights))

    def followed(self, X: Tensor, Y: Tensor, *others: Tensor) -> Self:
        """Return these and others (q,) after them, of which no more than X and Y need be known if none is forgotten."""
        after, new = object.__new__(type(self)), (X, Y, *others)
        followed = tuple(rows.followed(column) for rows, column in zip(self._columns, new, strict=False))
        after._columns = (*followed, *self._columns[len(new) :])
        return after

    def in_full(self, places: Tensor) -> "Counted":
        """Return these with the places (n,) of their points, each counting in full, whatever the time."""
        ones = torch.ones_like(places, dtype=torch.float64)
        numbers = torch.arange(len(places), device=places.device)
        return Counted(self.X, self.Y, torch.zeros_like(ones), ones, places, numbers)

    def plays(self) -> Plays:
        """Return what each point was played for, in the order of first plays. Cost: O(n)."""
        if runs_compiled(self.places, self.weights, self.Y):
            columns = self.places.numpy(), self.weights.numpy(), self.Y.double().numpy()
            return Plays(*map(torch.from_numpy, played_loops.totals(*map(np.ascontiguousarray, columns))))
        size = int(self.places.max()) + 1 if len(self.places) else 0
        numbers = torch.arange(len(self.places), device=self.places.device)
        first = numbers.new_full((size,), len(numbers)).scatter_reduce(0, self.places, numbers, "amin")
        order = first.argsort()[: int((first < len(numbers)).sum())]
        none = self.weights.new_zeros(size)
        counts = none.index_add(0, self.places, self.weights)
        sums = none.index_add(0, self.places, self.Y * self.weights)
        return Plays(order, counts[order], sums[order])


class Weighed(NamedTuple):
    """What is left of observations that have other weights.

    Attributes:
        kept: those that count, with their places from now on: the order in which they first appear.
        left: what each point was played for of these, by the old places.
        gone: what is gone of each, by these places.
        is_same: whether each that is left has the weight that it had.
    """

    kept: Counted
    left: Plays
    gone: Plays
    is_same: bool

"""What counts of the rewards told, and how much."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.appended import appended
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.observations import played_loops
from torch_kbandits.observations.played import Plays


class Counted(NamedTuple):
    """The observations that count, in the order told.

    Where nothing is ever forgotten, all but X and Y may be those of the first ones only; see ``followed``.

    Attributes:
        X: points (n, d).
        Y: rewards (n,).
        times: when each was made, (n,), in double precision like the next.
        weights: how many fresh observations each counts for, λ over its noise variance, (n,).
        places: where its point stands among the unique played ones, (n,).
        numbers: how many observations were told before it, (n,).
    """

    X: Tensor
    Y: Tensor
    times: Tensor
    weights: Tensor
    places: Tensor
    numbers: Tensor

    @classmethod
    def none(cls, example: Tensor) -> "Counted":
        """Return no observations, at points of the kind of an example (1, d) or (0, d)."""
        nothing = example.new_zeros(0, dtype=torch.float64)
        return cls(example[:0], example.new_zeros(0), nothing, nothing, nothing.long(), nothing.long())

    def rows(self, which: Tensor) -> "Counted":
        """Return some of them: (n,) bool, or numbers in another order."""
        index = which.nonzero().squeeze(-1) if which.dtype == torch.bool else which
        return Counted(*[part.index_select(0, index) for part in self])

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
            return Weighed(Counted(*map(torch.from_numpy, parts)), plays[0], plays[1], is_same)
        counts = weights > 0.0
        kept = self._replace(weights=weights).rows(counts)
        left, gone = kept.plays(), self.rows(~counts).plays()
        moved = torch.empty_like(self.places)
        moved[left.places] = torch.arange(len(left.places), device=moved.device)
        is_same = torch.equal(kept.weights, self.weights[counts])
        return Weighed(kept._replace(places=moved[kept.places]), left, gone, is_same)

    def followed(self, X: Tensor, Y: Tensor) -> "Counted":
        """Return these and others after them of which nothing is forgotten, so that no more need be known."""
        return self._replace(X=appended(self.X, X), Y=appended(self.Y, Y))

    def in_full(self, places: Tensor) -> "Counted":
        """Return these with the places (n,) of their points, each counting in full, whatever the time."""
        ones = torch.ones_like(places, dtype=torch.float64)
        numbers = torch.arange(len(places), device=places.device)
        return Counted(self.X, self.Y, torch.zeros_like(ones), ones, places, numbers)

    def joined(self, other: "Counted") -> "Counted":
        """Return these and others after them."""
        parts = zip(self, other, strict=True)
        return Counted(*[appended(rows, new) for rows, new in parts])

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

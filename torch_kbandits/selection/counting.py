"""The observations that count under a memory, in the order told."""

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.observations import Places

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Counting:
    """The observations that count, in the order told. A value, whose successors share its memory.

    Where nothing is ever forgotten there are X and Y alone, and the noise.

    Attributes:
        X: points (n, d).
        Y: rewards, (n, 1).
        rests: the same less prior means, (n, 1).
        times: when each was made, (n,).
        weights: how many fresh observations each counts for, λ over its noise variance, (n,).
        places: where its point stands among those that the posterior knows, (n,).
        noise: what was told of the noise variance of each, (n,), NaN where nothing was; None where it never was.
    """

    X: Rows
    Y: Rows
    rests: Rows
    times: Rows
    weights: Rows
    places: Rows
    noise: Rows | None = None

    @classmethod
    def none(cls, example: Tensor) -> Self:
        """Return none, of points like an example (0, d)."""
        nothing, whole, numbers = np.empty(0), np.empty(0, np.int64), np.empty((0, 1))
        none = (Rows(each) for each in (numbers, numbers, nothing, nothing, whole))
        return cls(Rows(example[:0]), *none)

    def __len__(self) -> int:
        return len(self.X)

    def noise_with(self, new: Tensor | None, number: int) -> Rows | None:
        """Return what was told of the noise of these and of so many others, (q,) if it was."""
        if new is None and self.noise is None:
            return None
        known = Rows(np.full(len(self), np.nan)) if self.noise is None else self.noise
        return known.followed(np.full(number, np.nan) if new is None else new)

    def followed(self, *new: Any, noise: Rows | None = None) -> Self:
        """Return these and others after them, given the noise of all, see ``noise_with``."""
        followed = {name: getattr(self, name).followed(each) for name, each in zip(vars(self), new, strict=False)}
        return changed(self, noise=noise, **followed)

    def kept(self, which: NDArray[np.bool_]) -> Self:
        """Return some of these, (n,) bool."""
        return type(self)(*cast(Any, [None if rows is None else rows.kept(which) for rows in vars(self).values()]))

    def at(self, places: Places) -> Self:
        """Return those at places (k,) in the order told."""
        return type(self)(*cast(Any, [None if rows is None else rows.at(places) for rows in vars(self).values()]))


def in_order(places: Places) -> Places:
    """Return the distinct places in the order in which they first appear."""
    each, first = np.unique(places, return_index=True)
    return each if (np.diff(first) > 0).all() else places[np.sort(first)]


def totals(places: Places, weights: Array, rests: Array, size: int) -> tuple[Array, Array]:
    """Return how much counts of each of so many points, (u,), and the sums of rests (n, k) times that, (k, u)."""
    sums = [np.bincount(places, weights * column, size) for column in rests.T]
    return np.bincount(places, weights, size), np.stack(sums)

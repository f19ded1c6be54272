"""The points that a posterior knows, with how much was told of each, and what it came to."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.rows import RowIndex, Rows, row_keys
from torch_kbandits.numerics.shallow import changed

Array = NDArray[Any]
Places = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Observations:
    """Sufficient statistics of rewards: u points, how much counts of each, and the sum of it. A value.

    An observation of noise variance λ_s counts λ / λ_s. Points that nothing counts of may be among them, as those of a
    dictionary that were not played.

    Attributes:
        rows: the points, (u, d).
        index: where each is.
        prior: their prior variances, (u,).
        expected: their prior means, (u, k).
        counts: (u,).
        sums: of what was told less its prior mean, each as often as it counts, (k, u).
    """

    rows: Rows
    index: RowIndex
    prior: Rows
    expected: Rows
    counts: Array
    sums: Array

    @classmethod
    def none(cls, example: Tensor, number: int) -> Self:
        """Return no points of the kind of an example (0, d), of which so many numbers are told."""
        none, expected = np.empty(0), np.empty((0, number))
        return cls(Rows(example[:0]), RowIndex.of({}), Rows(none), Rows(expected), none, expected.T)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def points(self) -> Tensor:
        """The points, (u, d)."""
        return self.rows.tensor

    def points_at(self, places: Places) -> Tensor:
        """Return the points at places (n,), (n, d): the same object where these are all, in order."""
        points = self.points
        if len(places) == len(points) and (places[1:] > places[:-1]).all():
            return points
        return points[torch.from_numpy(places)]

    def unknown(self, X: Tensor) -> tuple[Places, list[int]]:
        """Return the places (q,) of points X (q, d) as they will be, and the numbers of those not known yet."""
        new: dict[bytes, int] = {}
        known, places, fresh = len(self), np.empty(len(X), np.int64), list[int]()
        for number, key in enumerate(row_keys(X)):
            place = self.index.place(key)
            if place is None and (place := new.get(key)) is None:
                place = new[key] = known + len(new)
                fresh.append(number)
            places[number] = place
        return places, fresh

    def with_points(self, X: Tensor, prior: Array, expected: Array) -> Self:
        """Return them with points (q, d) that are not known, of which nothing was told."""
        keys = {key: len(self) + number for number, key in enumerate(row_keys(X))}
        nothing = np.zeros((len(self.sums), len(X)))
        return changed(
            self,
            rows=self.rows.followed(X),
            index=self.index.extended(keys),
            prior=self.prior.followed(prior),
            expected=self.expected.followed(expected),
            counts=np.concatenate((self.counts, nothing[0])),
            sums=np.concatenate((self.sums, nothing), axis=1),
        )

    def told(self, places: Places, counts: Array, sums: Array) -> Self:
        """Return them once more is told of points, each once, with sums (k, q); less where counts (q,) are negative."""
        after = changed(self, counts=self.counts.copy(), sums=self.sums.copy())
        gaussian_loops.count(places, counts, sums, after.counts, after.sums)
        return after

    def kept(self, which: NDArray[np.bool_]) -> tuple[Self, Places]:
        """Return some of them, (u,) bool, in order, and where each of them stands then, (u,)."""
        places = np.flatnonzero(which)
        points, moved = self.points_at(places), np.cumsum(which) - 1
        return changed(
            self,
            rows=Rows(points),
            index=RowIndex.of({key: number for number, key in enumerate(row_keys(points))}),
            prior=Rows(self.prior.array[places]),
            expected=Rows(self.expected.array[places]),
            counts=self.counts[places],
            sums=self.sums[:, places],
        ), moved


def merged(places: Places, weights: Array, values: Array) -> tuple[Places, Array, Array]:
    """Return each place once, (u,), with the sum of its weights, (u,), and of weights times values (k, q), (k, u)."""
    if len(places) == 1 or len(set(places.tolist())) == len(places):
        return places, weights, weights * values
    each, number = np.unique(places, return_inverse=True)
    totals = [np.bincount(number, weights * row, len(each)) for row in values]
    return each, np.bincount(number, weights, len(each)), np.stack(totals)

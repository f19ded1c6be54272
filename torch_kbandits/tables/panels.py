"""The posterior at many points in the coordinates of a dictionary: their features, means and variances."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.compiled import in_parts, runs_compiled
from torch_kbandits.numerics.places import beside, sent
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.squares import Squares
from torch_kbandits.tables import panel_loops
from torch_kbandits.tables.store import FeatureStore

#: Returns the kernel values (a, |block|) of some points against a block of the arms.
Columns = Callable[[slice], Tensor]

Array = NDArray[np.float64]

#: What loops take where there is nothing, and signs of the square by which variances fall.
_NOTHING, _NONE, FALLS, _STAYS = np.empty((0, 0)), np.empty(0), np.array([-1.0]), np.zeros(1)

#: With more rows than this products are those of matrices, which are faster then.
_MOST_ROWS = 128

#: Points handled at a time when rows are applied to many, and products that may come of it, so that these stay small.
_BLOCK = 65536
_PRODUCTS = 2**19


class Change(NamedTuple):
    """How posteriors at points follow a posterior: coordinates added, then squares that change variances.

    The squares of the new coordinates themselves come off too.

    Attributes:
        squares: in m + a coordinates.
        own: coordinates of new spanning points in the old ones, (a, m); None where there are none.
        corner: lower factor (a, a) of their covariance given the old ones; the same.
    """

    squares: Squares
    own: Tensor | None = None
    corner: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """The posterior at n points, which may be on a device; what it follows from may be on the host.

    Attributes:
        features: their coordinates.
        prior_variance: k(x, x), (n,).
        variance: posterior variances, (n,); rounding may have made them slightly negative.
        mean: posterior means, (n,).
        prior_mean: prior means, (n,); None if they are zero.
        spanned: what the dictionary spans of the prior variances, (n,), followed where somebody asks for it; else None.
    """

    features: FeatureStore
    prior_variance: Tensor
    variance: Tensor
    mean: Tensor
    prior_mean: Tensor | None = None
    spanned: Tensor | None = None

    @classmethod
    def prior(
        cls, prior_variance: Tensor, prior_mean: Tensor | None = None, features: FeatureStore | None = None
    ) -> Self:
        """Return the prior at points of prior variance (n,) and prior mean (n,), which may have features already."""
        store = FeatureStore(len(prior_variance), prior_variance) if features is None else features
        mean = torch.zeros_like(prior_variance) if prior_mean is None else prior_mean
        return cls(store, prior_variance, prior_variance, mean, prior_mean)

    def fitted(self, dtc: OnlineDTC, weights: Tensor) -> "Panel":
        """Return the posterior at these points, from factors rather than from what follows them. Cost: O(n m²)."""
        variance = torch.empty_like(self.prior_variance)
        for block, values in self.features.blocks():
            variance[block] = dtc.variance(self.prior_variance[block], values)
        none = Change(Squares.none(dtc.size, weights))
        return replace(self, variance=variance, spanned=None).following(none, weights)

    def at(self, index: Tensor) -> Self:
        """Return the posterior at some of the points, given their numbers (q,)."""
        index = beside(index, self.mean)
        return self._with_parts(self.features.selected(index), lambda name: getattr(self, name)[index])

    def shortened(self, size: int) -> "Panel":
        """Return the same posterior where it does not depend on other than the first features."""
        return replace(self, features=self.features.shortened(size))

    def joined(self, other: "Panel") -> Self:
        """Return the posterior at these points and others."""
        store = self.features.copy()
        store.append_points(other.features.columns(torch.arange(other.features.num_points, device=other.mean.device)))
        return self._with_parts(store, lambda name: torch.cat([getattr(self, name), getattr(other, name)]))

    def _with_parts(self, features: FeatureStore, part: Callable[[str], Tensor]) -> Self:
        """Return a panel of other points, given what it has of each kind that there is here."""
        names = ("prior_variance", "variance", "mean", "prior_mean", "spanned")
        kept = {name: part(name) for name in names if getattr(self, name) is not None}
        return replace(self, features=features, **kept)

    def knowing_what_is_spanned(self, dtc: OnlineDTC) -> "Panel":
        """Return the same posterior, which follows from now on what the dictionary of ``dtc`` spans."""
        if self.spanned is not None:
            return self
        # Written into one piece: small pieces would lie between the large ones that each block needs for a while, and
        # the C library would keep as much memory as all features take.
        spanned = torch.empty_like(self.variance)
        for block, values in self.features.blocks():
            spanned[block] = dtc.spanned(values)
        return replace(self, spanned=spanned)

    def following(self, change: Change, weights: Tensor, columns: Columns | None = None) -> "Panel":
        """Return the posterior after a change, in one pass over the features.

        Args:
            change: what changed since this posterior.
            weights: those of the mean after it, (m + a,).
            columns: gives the kernel values (a, |block|) of new spanning points at a block of points.
        """
        store, (squares, own, corner), dtype = self.features.copy(), change, self.variance.dtype
        store.resize(weights.shape[0])
        rows = torch.cat([squares.rows, weights.unsqueeze(0)]).to(dtype)
        old_rows, new_rows = rows, rows[:, :0]
        if own is not None:
            known = own.shape[1]
            old_rows, new_rows = torch.cat([own.to(dtype), rows[:, :known]]), rows[:, known:].contiguous()
        corner = None if corner is None else corner.to(dtype).contiguous()
        spanned = None if self.spanned is None else torch.empty_like(self.spanned)
        mean, variance = torch.empty_like(self.variance), torch.empty_like(self.variance)
        after = changed(self, features=store, variance=variance, mean=mean, spanned=spanned)
        applied = _Applied(squares, columns, corner, old_rows, new_rows)
        if old_rows.shape[0] <= _MOST_ROWS and runs_compiled(variance):
            after._follow_by_loop(self, applied)
        else:
            after._follow(self, applied)
        return after

    def _follow(self, old: "Panel", applied: "_Applied") -> None:
        """Write what comes of a change of another posterior."""
        (_, *given), columns, corner, old_rows, new_rows = applied
        store, first, rows = self.features, old_rows.shape[1], old_rows[:0] if corner is None else corner
        numbers = (torch.from_numpy(each).to(rows) for each in given)
        old_rows, new_rows, rows, signs, spans = sent(self.variance, old_rows, new_rows, rows, *numbers)
        size = points_at_a_time(old_rows.device, min(_BLOCK, _PRODUCTS // len(old_rows)), len(old_rows))
        for start in range(0, store.num_points, size):
            block = slice(start, min(start + size, store.num_points))
            products = store.products(old_rows, block)
            variance, spanned = old.variance[block], None if old.spanned is None else old.spanned[block]
            if corner is not None and columns is not None:
                added = len(rows)
                new = torch.linalg.solve_triangular(rows, columns(block) - products[:added], upper=False)
                store.write(new, block, first)
                products = products[added:].addmm_(new_rows, new)
                gone = new.square().sum(0)
                variance, spanned = variance - gone, None if spanned is None else spanned + gone
            changes = products[:-1].square()
            torch.add(variance, signs @ changes, out=self.variance[block])
            self.mean[block] = products[-1] if self.prior_mean is None else products[-1] + self.prior_mean[block]
            if self.spanned is not None and spanned is not None:
                self.spanned[block] = spanned + spans @ changes

    def _follow_by_loop(self, old: "Panel", applied: "_Applied") -> None:
        """Do what ``_follow`` does."""
        (_, signs, spans), columns, corner, old_rows, new_rows = applied
        variance = self.variance.numpy()
        kind, nothing, none = variance.dtype, np.empty(0, variance.dtype), np.empty((0, 0), variance.dtype)
        expected, spanned_before, spanned = (
            nothing if each is None else each.numpy() for each in (self.prior_mean, old.spanned, self.spanned)
        )
        arrays = (expected, old.variance.numpy(), spanned_before, self.mean.numpy(), variance, spanned)
        rows = none if corner is None else corner.numpy(), old_rows.numpy(), new_rows.numpy()
        signs, spans, values = signs.astype(kind, copy=False), spans.astype(kind, copy=False), none
        for block, segment in self.features.segments():
            number = block.stop - block.start
            if columns is not None and corner is not None:
                values = columns(block).contiguous().numpy()
            parts = [each[block] for each in arrays]
            arguments = (segment.numpy(), values, *rows, signs, spans, *parts)
            in_parts(panel_loops.follow, number, number * old_rows.numel(), *arguments)


def observed(
    features: FeatureStore, row: Array, weights: Array, expected: Array | None, before: Array
) -> tuple[Array, Array]:
    """Return means and variances of n points in double precision, after rewards of one point, in one pass by a loop.

    Args:
        features: of the points.
        row: by whose square variances fall, (1, m).
        weights: those of the mean, (m,).
        expected: prior means, (n,); None if they are zero.
        before: variances, (n,).
    """
    rows, mean, variance = np.concatenate((row, weights[None])), np.empty(len(before)), np.empty(len(before))
    given = _NOTHING, _NOTHING, rows, np.empty((2, 0)), FALLS, _STAYS
    for block, segment in features.segments():
        parts = (
            _NONE if expected is None else expected[block],
            before[block],
            _NONE,
            mean[block],
            variance[block],
            _NONE,
        )
        number = block.stop - block.start
        in_parts(panel_loops.follow, number, number * rows.size, segment.numpy(), *given, *parts)
    return mean, variance


class _Applied(NamedTuple):
    """A change in the dtype of a panel, as its features take it.

    Attributes:
        squares: how variances change.
        columns: gives the kernel values (a, |block|) of new spanning points at a block of points.
        corner: factor of the covariance of the new spanning points, (a, a); None where there are none.
        old_rows: their coordinates in the old ones, and the rows of the squares and the weights there, (a + k + 1, m).
        new_rows: these rows and weights in the new coordinates, (k + 1, a).
    """

    squares: Squares
    columns: Columns | None
    corner: Tensor | None
    old_rows: Tensor
    new_rows: Tensor

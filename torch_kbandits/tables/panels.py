"""The posterior at many points in the coordinates of a dictionary: their features, means and variances."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.compiled import in_parts, runs_compiled
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.squares import Squares
from torch_kbandits.tables import panel_loops
from torch_kbandits.tables.store import FeatureStore

#: Returns the kernel values (a, |block|) of some points against a block of the arms.
Columns = Callable[[slice], Tensor]

#: With more rows than this products are those of matrices, which are faster then.
_MOST_ROWS = 128

#: Points handled at a time when rows are applied to many, and products that may come of it, so that these stay small.
_BLOCK = 65536
_PRODUCTS = 2**19


class Change(NamedTuple):
    """How posteriors at points follow a posterior: coordinates added, then squares that change variances.

    The squares of the new coordinates themselves come off too.

    Attributes:
        own: coordinates of new spanning points in the old ones, (a, m).
        corner: lower factor (a, a) of their covariance given the old ones.
        squares: in m + a coordinates.
    """

    own: Tensor
    corner: Tensor
    squares: Squares

    @classmethod
    def none(cls, size: int, like: Tensor) -> Self:
        """Return no change, in ``size`` coordinates."""
        squares = Squares.none(size, like)
        return cls(squares.rows, like.new_empty(0, 0), squares)


@dataclass(frozen=True, eq=False)
class Panel:
    """The posterior at n points.

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
        return replace(self, variance=variance, spanned=None).following(Change.none(dtc.size, variance), weights)

    def at(self, index: Tensor) -> Self:
        """Return the posterior at some of the points, given their numbers (q,)."""
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
        parts = [dtc.spanned(each) for _, each in self.features.blocks()]
        return replace(self, spanned=torch.cat([self.variance[:0], *parts]))

    def following(self, change: Change, weights: Tensor, columns: Columns | None = None) -> "Panel":
        """Return the posterior after a change, in one pass over the features.

        Args:
            change: what changed since this posterior.
            weights: those of the mean after it, (m + a,).
            columns: gives the kernel values (a, |block|) of new spanning points at a block of points.
        """
        store, squares, dtype = self.features.copy(), change.squares, self.variance.dtype
        store.resize(len(weights))
        rows = torch.cat([squares.rows, weights.unsqueeze(0)]).to(dtype)
        first = change.own.shape[1] if len(change.own) else len(weights)
        old_rows = torch.cat([change.own.to(dtype), rows[:, :first]]) if len(change.own) else rows
        mean, variance = torch.empty_like(self.variance), torch.empty_like(self.variance)
        spanned = None if self.spanned is None else torch.empty_like(self.spanned)
        after = replace(self, features=store, variance=variance, mean=mean, spanned=spanned)
        applied = _Applied(
            squares, columns, change.corner.to(dtype).contiguous(), old_rows, rows[:, first:].contiguous()
        )
        if len(old_rows) <= _MOST_ROWS and runs_compiled(variance):
            after._follow_by_loop(self, applied)
        else:
            after._follow(self, applied)
        return after

    def _follow(self, old: "Panel", applied: "_Applied") -> None:
        """Write what comes of a change of another posterior."""
        squares, columns, corner, old_rows, new_rows = applied
        store, added, first = self.features, len(corner), old_rows.shape[1]
        size = points_at_a_time(old_rows.device, min(_BLOCK, _PRODUCTS // len(old_rows)), len(old_rows))
        for start in range(0, store.num_points, size):
            block = slice(start, min(start + size, store.num_points))
            products = store.products(old_rows, block)
            new = products[:0]
            if added and columns is not None:
                new = torch.linalg.solve_triangular(corner, columns(block) - products[:added], upper=False)
                store.write(new, block, first)
                products = products[added:].addmm_(new_rows, new)
            gone, changed = new.square().sum(0), products[:-1]
            self.variance[block] = old.variance[block] - gone + squares.change(squares.signs, changed)
            self.mean[block] = products[-1] if self.prior_mean is None else products[-1] + self.prior_mean[block]
            if self.spanned is not None and old.spanned is not None:
                self.spanned[block] = old.spanned[block] + gone + squares.change(squares.spans, changed)

    def _follow_by_loop(self, old: "Panel", applied: "_Applied") -> None:
        """Do what ``_follow`` does."""
        (_, signs, spans), columns, corner, old_rows, new_rows = applied
        kind = self.variance.numpy().dtype
        rows = corner.numpy(), old_rows.numpy(), new_rows.numpy(), signs.astype(kind, copy=False)
        given = (self.prior_mean, old.spanned, self.spanned)
        expected, spanned_before, spanned = (np.empty(0, kind) if each is None else each.numpy() for each in given)
        arrays = (expected, old.variance.numpy(), spanned_before, self.mean.numpy(), self.variance.numpy(), spanned)
        values = np.empty((0, 0), kind)
        for block, segment in self.features.segments():
            number = block.stop - block.start
            if columns is not None and len(corner):
                values = columns(block).contiguous().numpy()
            parts = (each[block] for each in arrays)
            arguments = (segment.numpy(), values, *rows, spans.astype(kind, copy=False), *parts)
            in_parts(panel_loops.follow, number, number * old_rows.numel(), *arguments)


class _Applied(NamedTuple):
    """A change in the dtype of a panel, as its features take it.

    Attributes:
        squares: how variances change.
        columns: gives the kernel values (a, |block|) of new spanning points at a block of points.
        corner: factor of the covariance of the new spanning points, (a, a).
        old_rows: their coordinates in the old ones, and the rows of the squares and the weights there, (a + k + 1, m).
        new_rows: these rows and weights in the new coordinates, (k + 1, a).
    """

    squares: Squares
    columns: Columns | None
    corner: Tensor
    old_rows: Tensor
    new_rows: Tensor

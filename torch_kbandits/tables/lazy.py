"""The posterior at all arms, brought up to date only as far as the choice of the best arm needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.places import sent
from torch_kbandits.numerics.shallow import changed, shallow_copy
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.squares import Squares, joined
from torch_kbandits.tables import panel_loops
from torch_kbandits.tables.panels import Change, Columns, Panel
from torch_kbandits.tables.store import FeatureStore

#: Below this many features in all a pass over them is cheaper than bounds. Off the CPU bounds take a wait and some
#: thirty launches more than a pass, a fifth of a millisecond, in which so many are read.
_WORTHWHILE = 2**20
_WORTHWHILE_ELSEWHERE = 2**28

#: Arms looked at first after a pass: those of the highest scores at it.
_FIRST = 32

#: A pass is made when more than one in so many arms must be looked at, since single arms cost more than in a pass.
_SHARE = 32

#: After bounds that did not help, up to so many passes are made before others are tried.
_LONGEST_WAIT = 16

#: A pass is made after so many rows, whose number also is what memory of a pass grows with.
_LONGEST = 128

#: Returns scores (k,) from means (k,), variances (k,) and rows (k,), None for all; grows with the former two.
Score = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, eq=False)
class SomeArms:
    """The posterior at some arms, as a rule that grows with mean and variance reads it.

    Attributes:
        mean: posterior means, (k,).
        variance: posterior variances, (k,).
        read_incumbent: returns what is to be improved on, 0-dim, for the rules that ask for it.
    """

    mean: Tensor
    variance: Tensor
    read_incumbent: Callable[[], Tensor]

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim."""
        return self.read_incumbent()

    def deviation(self, seed: int) -> Tensor:
        """Raise: a draw depends on more than an arm's own mean and variance."""
        raise NotImplementedError("A rule that draws does not grow with mean and variance alone.")


class Near(NamedTuple):
    """Arms that are kept up to date: their rows (h,), their posterior, and how many rows it has taken in."""

    rows: Tensor
    panel: Panel
    taken: int


class LazyPanel:
    """The posterior at all arms as of the last pass over their features, and what was observed since.

    While the dictionary stays, no arm can be better than its stale values allow: with w the weights of the mean, M the
    precision and σ the standard deviation as of the last pass,

        |mean(x) − stale mean(x)| = |zᵀ(w − w_stale)| ≤ σ_stale(x) ‖w − w_stale‖_M,

    by Cauchy's inequality, and rewards only shrink variances. (With points left out, both w are in the dictionary's
    span, where the same holds.) Rewards that are taken back let them rise, at most by the factor by which they let the
    determinant of the precision fall. Arms whose bound is below the best score known need no visit.

    Source: ours; ALGORITHMS §2 states the sum of single changes. Differs: changes of opposite sign cancel in the norm
    of their sum, so this bound is never larger. Points pending shrink variances, too.
    Values are replaced, never changed: what is done late is remembered.

    Args:
        panel: the posterior at all arms, which may be on a device.
        dtc: what it was computed from, on the host or there.
        weights: those of its mean.
    """

    def __init__(self, panel: Panel, dtc: OnlineDTC, weights: Tensor) -> None:
        self._panel = panel
        self._stale = (dtc, weights)
        self._now = (dtc, weights)
        self._squares: list[Squares] = []
        self._num_rows = 0
        self._log_rise = dtc.log_det.new_zeros(())
        self._near: Near | None = None
        self._patience, self._waited = 0, 0

    @property
    def features(self) -> FeatureStore:
        """The features of all arms, which are never stale."""
        return self._panel.features

    @property
    def num_pending(self) -> int:
        """Number of rows that were not applied to the arms yet."""
        return self._num_rows

    @property
    def is_small(self) -> bool:
        """Whether a pass is cheaper than bounds."""
        least = _WORTHWHILE if self._panel.mean.is_cpu else _WORTHWHILE_ELSEWHERE
        return self._panel.mean.shape[0] * self._now[0].size < least

    def up_to_date(self) -> Panel:
        """Return the posterior at all arms, after a pass if anything is new. Cost: O(A m k) for k rewards since."""
        if self._squares:
            self._pass(self._change(0), None)
        return self._panel

    def observed(self, squares: Squares, dtc: OnlineDTC, weights: Tensor) -> Self:
        """Return the panel after rewards at an unchanged dictionary came, or were taken back. Cost: O(1).

        See ``OnlineDTC.observed`` and ``OnlineDTC.forgotten``.
        """
        after = shallow_copy(self)
        if (squares.signs > 0.0).any():
            after._log_rise = self._log_rise + (self._now[0].log_det - dtc.log_det).clamp_min(0.0)
        after._squares = [*self._squares, squares]
        after._num_rows = self._num_rows + squares.rows.shape[0]
        after._now = (dtc, weights)
        if after._num_rows > _LONGEST:
            after.up_to_date()
        return after

    def passed(self, mean: Tensor, variance: Tensor, dtc: OnlineDTC) -> Self:
        """Return the panel after a pass at an unchanged dictionary, whose means and variances, (A,), are given."""
        after = shallow_copy(self)
        after._panel, after._near = changed(self._panel, mean=mean, variance=variance), None
        after._stale = after._now = dtc, dtc.weights
        after._squares, after._num_rows, after._log_rise = [], 0, torch.zeros_like(self._log_rise)
        return after

    @property
    def spanned(self) -> Tensor:
        """What the dictionary spans of the prior variances, (A,). Cost: O(A m) the first time.

        Rewards do not change it, so it is never stale.
        """
        self._panel = panel = self._panel.knowing_what_is_spanned(self._stale[0])
        return cast(Tensor, panel.spanned)

    def changed(self, change: Change, dtc: OnlineDTC, weights: Tensor, columns: Columns | None) -> Self:
        """Return the panel after any change, in one pass; see ``Panel.following``."""
        after = shallow_copy(self)
        after._now = (dtc, weights)
        after._pass(change._replace(squares=joined([*self._squares, change.squares])), columns)
        return after

    def contenders(
        self, score: Score, tie_width: Callable[[Tensor], Tensor], bound: Score | None = None
    ) -> tuple[Tensor | None, Tensor]:
        """Return rows among which are all arms of the highest score, and their scores.

        Args:
            score: the scores.
            tie_width: how far below the best score (0-dim) an arm still counts as the best.
            bound: upper bounds of the scores, where these are not known without a pass; None if they are.

        Returns:
            Rows (k,), or None for all arms, and their scores.
        """
        rows, panel = self._visited(score, tie_width, bound)
        return rows, score(panel.mean, panel.variance.clamp_min(0.0), rows)

    def _visited(
        self, score: Score, tie_width: Callable[[Tensor], Tensor], bound: Score | None
    ) -> tuple[Tensor | None, Panel]:
        n = self._panel.mean.shape[0]
        if not (self._squares or bound) or self.is_small:
            return None, self.up_to_date()
        if self._waited < self._patience:
            self._waited += 1
            return None, self.up_to_date()
        bounds = self._bounds(score if bound is None else bound)
        near = self._taken_in(bounds)
        best = score(near.panel.mean, near.panel.variance.clamp_min(0.0), near.rows).max()
        bounds[near.rows] = -torch.inf
        # Twice the width of ties leaves room for rounding in the bounds.
        more = (bounds >= best - 2.0 * tie_width(best)).nonzero().squeeze(-1)
        if more.shape[0] + near.rows.shape[0] > max(n // _SHARE, _FIRST):
            self._waited, self._patience = 0, min(2 * self._patience + 1, _LONGEST_WAIT)
            return None, self.up_to_date()
        self._patience //= 2
        if more.shape[0]:
            near = near._replace(rows=torch.cat([near.rows, more]), panel=near.panel.joined(self._at(more)))
        self._near = near
        return near.rows, near.panel

    def _bounds(self, score: Score) -> Tensor:
        """Return upper bounds of the scores of all arms, (A,). Cost: O(A + m²)."""
        (dtc, weights), mean, variance = self._stale, self._panel.mean, self._panel.variance
        distance, rise = dtc.distance(self._now[1] - weights).to(mean.dtype), self._log_rise.exp().to(mean.dtype)
        if runs_compiled(mean, variance):
            parts = panel_loops.bounds(mean.numpy(), variance.numpy(), distance.item(), rise.item())
            upper, most = map(torch.from_numpy, parts)
        else:
            (distance, rise), least = sent(mean, distance, rise), variance.clamp_min(0.0)
            upper, most = torch.addcmul(mean, distance, least.sqrt()), least * rise
        return score(upper, most, None)

    def _taken_in(self, bounds: Tensor) -> Near:
        """Return the near arms up to date. Cost: O(h m)."""
        count = len(self._squares)
        if self._near is None:
            rows = bounds.topk(min(_FIRST, len(bounds))).indices
            return Near(rows, self._at(rows), count)
        rows, panel, taken = self._near
        if taken < count:
            panel = panel.following(self._change(taken), self._now[1])
        return Near(rows, panel, count)

    def _at(self, rows: Tensor) -> Panel:
        """Return the posterior at some arms, now."""
        return self._panel.at(rows).following(self._change(0), self._now[1])

    def _change(self, first: int) -> Change:
        """Return what was observed from a row on."""
        squares = self._squares[first:]
        return Change(joined(squares) if squares else Squares.none(self._now[0].size, self._now[1]))

    def _pass(self, change: Change, columns: Columns | None) -> None:
        self._panel = self._panel.following(change, self._now[1], columns)
        self._stale = self._now
        self._squares, self._num_rows = [], 0
        self._log_rise = torch.zeros_like(self._log_rise)
        self._near = None

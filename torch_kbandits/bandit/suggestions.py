"""What an ask says beyond points: which rows were chosen, what was expected of them, and what was left out."""

import math
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.listing import Listing
from torch_kbandits.candidates.timed import listing_of
from torch_kbandits.errors import InputError
from torch_kbandits.selection import Choice, FantasyPosterior, Playable


class Suggestion(NamedTuple):
    """What ``ask(details=True)`` returns.

    Attributes:
        x: the points (q, d) to play; with contexts actions (q, a); of a parameter space a list of q mappings.
        ids: the number of each, by which ``tell`` and ``forget`` know it; none if they are not pending.
        rows: which of the arms, or of the actions of the round, each is, (q,), on the CPU; None on a box or a space.
        names: of these, (q,); None where they have none.
        mean: posterior means of rewards there, (q,), in reward units.
        std: posterior standard deviations, (q,), as they were chosen: given that all pending before returned its mean.
        propensities: with what probability each was chosen, (q,) in double precision on the CPU, given those before
            it; see ``Bandit.propensities``. None where candidates are not listed in one process, and where counting
            would cost many choices, unless ``EpsilonGreedy`` says that they are wanted: by Thompson sampling of more
            than 2,000 candidates, of several objectives and of families that draw or eliminate hypotheses.
        points: as ``Bandit.history`` has them, (q, d): the context, then the action.
        time: when they were chosen, as ``Bandit.now``.
        actions: of which rows are, (A, a), where they differ from round to round; None where they stay.
    """

    x: Any
    ids: tuple[int, ...]
    rows: Tensor | None
    names: tuple[str, ...] | None
    mean: Tensor
    std: Tensor
    propensities: Tensor | None
    points: Tensor
    time: float
    actions: Tensor | None


class Slate:
    """What one ``ask`` leaves out, and what is noted of each of its choices.

    Args:
        excluded: what is not to be played, as ``Bandit.ask`` takes it; None for nothing.
        distinct: whether no action is chosen twice.
        states: whether it is noted with what probabilities choices are made.
        spares: whether it is not where that would cost many choices.

    Attributes:
        rows: of the points chosen, (q,), if there is a listing.
        propensities: of these, (q,), 0 where they are not noted; none if none is to be.
        probabilities: those of all actions in the last choice, (A,); None if they are not noted.
    """

    probabilities: Tensor | None = None

    _listing: Listing | None
    _brought: Tensor | None  # points (A, d) of the actions that a round brought
    _domain: Domain  # without what was left out so far, whatever limits say

    def __init__(
        self, excluded: Any = None, *, distinct: bool = False, states: bool = True, spares: bool = False
    ) -> None:
        self._excluded, self._distinct, self.states, self._spares = excluded, distinct, states, spares
        self.rows, self.propensities, self._moments = list[int](), list[float](), list[tuple[Tensor, Tensor]]()

    def begun(self, candidates: Candidates, domain: Domain, brought: Any) -> Domain:
        """Return what may be played of a round's domain, given the actions that the round brought, if any."""
        self._brought = None if brought is None else domain.arms
        self._listing, self._domain = listing_of(candidates, brought, domain.arms), domain
        if not self._distinct and self._excluded is None:
            return domain
        if self._listing is None or candidates.is_split:
            raise InputError("exclude= and distinct=True need a finite set of actions in one process: leave them out.")
        if self._excluded is not None:
            excluded = self._listing.rows("exclude", self._excluded, masks=True)
            self._domain = domain.without(excluded, self._listing.size)
            if not len(cast(Tensor, self._domain.allowed)):
                raise InputError(f"exclude leaves none of the {self._listing.size} action(s): leave one, or ask later.")
        return self._domain

    def number_of(self, domain: Domain, q: int | None, most: int) -> int:
        """Return how many points to choose of a domain within limits, None for at most so many; refuse too many."""
        if not self._distinct:
            return most if q is None else q
        left = cast(Listing, self._listing).size if domain.allowed is None else len(domain.allowed)
        if q is not None and q > left:
            raise InputError(f"distinct=True with q={q}: only {left} action(s) may be played now; ask for as many.")
        return min(left, most) if q is None else q

    def is_left_out(self, x: Tensor) -> bool:
        """Say whether a point (1, d) may not be played again, whatever limits say."""
        return self._domain.allowed is not None and self._row_of(x) is None

    def _row_of(self, x: Tensor) -> int | None:
        """Return the first row of a point (1, d) that was not left out, if any."""
        hits = [(part == x.to(part.device)).all(-1) for part in self._domain.parts()]
        if not hits:  # nobody has all arms
            return cast(Any, self._listing).find(x[0])
        rows = torch.cat(hits).nonzero().flatten()
        rows = rows if self._domain.allowed is None else rows[torch.isin(rows, self._domain.allowed)]
        return int(rows[0]) if len(rows) else None

    def with_choice(self, x: Tensor, choice: Choice | None, ahead: FantasyPosterior, offer: Playable) -> Playable:
        """Note a point (1, d), how it was chosen if not again, before it is pending; return what may be chosen next."""
        self._moments.append(ahead.moments(x))
        if self._listing is None:
            return offer
        row = cast(int, self._row_of(x)) if choice is None else int(choice.row)
        self.rows.append(row)
        if self.states and (choice is not None or self._domain.is_listed):
            self._state(choice, row, self._listing.size)
        if not self._distinct:
            return offer
        size = self._listing.size
        self._domain = self._domain.without(self.rows[-1:], size)
        return replace(offer, domain=offer.domain.without(self.rows[-1:], size), beyond=self._domain)

    def _state(self, choice: Choice | None, row: int, size: int) -> None:
        """Note with what probability a row of so many was chosen, or surely if again."""
        self.probabilities = None
        if choice is None:
            self.probabilities = (torch.arange(size, device="cpu") == row).double()
        elif not (self._spares and choice.is_expensive):
            self.probabilities = choice.probabilities()
        self.propensities.append(0.0 if self.probabilities is None else float(self.probabilities[row]))

    def suggestion(
        self, x: Any, X: Tensor, state: State, candidates: Candidates, *, is_pending: bool = True
    ) -> Suggestion:
        """Return what is said of points X (q, d), asked for as x: the last that are pending, or none of these."""
        mean, variance = (torch.cat(each).to(candidates.device) for each in zip(*self._moments, strict=True))
        listing, names, rows = self._listing, None, None
        if listing is not None:
            rows = torch.tensor(self.rows, device="cpu")
            names = listing.names and tuple(listing.names[row] for row in self.rows)
        chosen, actions = None, None if self._brought is None else candidates.actions(self._brought)
        if any(self.propensities):
            chosen = torch.tensor([each or math.nan for each in self.propensities], dtype=torch.float64, device="cpu")
        ids, points = state.ledger.pending.ids[-len(X) :] if is_pending else (), X.to(candidates.device, copy=True)
        std = variance.clamp_min(0.0).sqrt()
        return Suggestion(x, ids, rows, names, mean, std, chosen, points, state.now, actions)


def actions_of(candidates: Candidates, rows: Any, brought: Any, x: Any) -> tuple[Tensor, list[int]]:
    """Return the actions (q, a) that rows or names mean, of a round's actions if it brought any, and the rows (q,)."""
    if rows is None or x is not None:
        raise InputError("Give either x or rows; candidates are the actions of which rows are told, and go with these.")
    listing = listing_of(candidates, brought)
    if listing is None:
        hint = "give candidates=, the actions of that round, or tell x or ids"
        raise InputError(f"rows are of a finite set of actions, and none is known here: {hint}.")
    found = listing.rows("rows", rows)
    return listing.actions(found), found

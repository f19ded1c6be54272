"""What an ask says beyond points: which rows were chosen, what was expected of them, and what was left out."""

import math
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates import ArmSource, Candidates
from torch_kbandits.candidates.listing import Listing
from torch_kbandits.candidates.timed import listing_of
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.rows import among
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
    """

    x: Any
    ids: tuple[int, ...]
    rows: Tensor | None
    names: tuple[str, ...] | None
    mean: Tensor
    std: Tensor
    propensities: Tensor | None = None


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
    _source: ArmSource | None  # of arms that are split
    _barred: Tensor  # points (k, d) that may not be chosen again, of candidates that stay

    def __init__(
        self, excluded: Any = None, *, distinct: bool = False, states: bool = True, spares: bool = False
    ) -> None:
        self._excluded, self._distinct, self.states, self._spares = excluded, distinct, states, spares
        self.rows, self.propensities, self._moments = list[int](), list[float](), list[tuple[Tensor, Tensor]]()

    def begun(self, candidates: Candidates, domain: Domain, brought: Any) -> Domain:
        """Return what may be played of a round's domain, given the actions that the round brought, if any."""
        self._listing = listing = listing_of(candidates, brought, domain.arms)
        self._source = cast(Any, candidates).source if candidates.is_split else None
        self._barred = candidates.example[:0]
        if listing is None and (self._distinct or self._excluded is not None):
            raise InputError("exclude= and distinct=True are for a finite set of actions: leave them out here.")
        if listing is None or self._excluded is None:
            return domain
        excluded = sorted({*listing.rows("exclude", self._excluded, masks=True)})
        if len(excluded) == listing.size:
            raise InputError(f"exclude leaves none of the {listing.size} action(s): leave one, or ask later.")
        self._barred = listing.actions(excluded).cpu() if candidates.is_lasting else self._barred
        return self._without(domain, excluded, self._barred)

    def number_of(self, domain: Domain, q: int | None, most: int) -> int:
        """Return how many points to choose of a domain within limits, None for at most so many; refuse too many."""
        if not self._distinct or self._listing is None:
            return most if q is None else q
        left = self._listing.size - len(self._barred) if domain.allowed is None else len(domain.allowed)
        if q is not None and q > left:
            raise InputError(f"distinct=True with q={q}: only {left} action(s) may be played now; ask for as many.")
        return min(left, most) if q is None else q

    def bars(self, x: Tensor) -> bool:
        """Say whether a point (1, d) is not to be chosen, where candidates stay."""
        return bool(among(x, self._barred))

    def with_choice(self, x: Tensor, choice: Choice | None, ahead: FantasyPosterior, offer: Playable) -> Playable:
        """Note a point (1, d), how it was chosen if not again, before it is pending; return what may be chosen next."""
        self._moments.append(ahead.moments(x))
        if self._listing is None:
            return offer
        if self._source is not None and self.bars(x):
            raise InputError("Nothing is left that may be played: exclude less, or ask for fewer that are distinct.")
        row = self._found(x, offer.domain) if choice is None else int(choice.row)
        self.rows.append(row)
        if self.states and self._source is None:
            self._state(choice, row, self._listing.size)
        if not self._distinct:
            return offer
        self._barred = torch.cat([self._barred, x.to(self._barred)])
        within, beyond = (self._without(each, self.rows[-1:], x) for each in (offer.domain, offer.beyond))
        return replace(offer, domain=within, beyond=beyond)

    def _state(self, choice: Choice | None, row: int, size: int) -> None:
        """Note with what probability a row of so many was chosen, or surely if again."""
        self.probabilities = None
        if choice is None:
            self.probabilities = (torch.arange(size, device="cpu") == row).double()
        elif not (self._spares and choice.is_dear):
            self.probabilities = choice.probabilities()
        self.propensities.append(0.0 if self.probabilities is None else float(self.probabilities[row]))

    def _found(self, x: Tensor, domain: Domain) -> int:
        """Return the first row of a point (1, d), of those that may be played."""
        if self._source is not None:
            return cast(int, self._source.find(x[0]))
        rows = torch.cat([(part == x.to(part.device)).all(-1) for part in domain.parts()]).nonzero().flatten()
        return int(rows[0] if domain.allowed is None else rows[torch.isin(rows, domain.allowed)][0])

    def _without(self, domain: Domain, rows: list[int], points: Tensor) -> Domain:
        """Return a domain without rows, whose points (k, d) are known."""
        if self._source is None:
            return domain.without(rows, cast(Listing, self._listing).size)
        return replace(domain, avoided=points if domain.avoided is None else torch.cat([domain.avoided, points]))

    def suggestion(self, x: Any, ids: tuple[int, ...], candidates: Candidates) -> Suggestion:
        """Return what is said of the points that were chosen."""
        mean, variance = (torch.cat(each).to(candidates.device) for each in zip(*self._moments, strict=True))
        listing, names, rows = self._listing, None, None
        if listing is not None:
            rows = torch.tensor(self.rows, device="cpu")
            names = listing.names and tuple(listing.names[row] for row in self.rows)
        chosen = None
        if any(self.propensities):
            chosen = torch.tensor([each or math.nan for each in self.propensities], dtype=torch.float64, device="cpu")
        return Suggestion(x, ids, rows, names, mean, variance.clamp_min(0.0).sqrt(), chosen)


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

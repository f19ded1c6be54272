"""How a bandit goes on: saved and loaded, after a restart, from the history of another one; and who is told of it."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import Logger, LoggerAdapter
from os import PathLike
from typing import Any, Self, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.callbacks import Callback, Callbacks, JSONLog, Told
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.health import said_of_clipping, said_of_corners
from torch_kbandits.bandit.learning import over_others, replayed, restarted
from torch_kbandits.bandit.reports import synchronize
from torch_kbandits.bandit.saving import loaded, restored, save, state_of
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.suggestions import Suggestion, actions_of
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.listing import Listing
from torch_kbandits.candidates.timed import listing_of, table_of, with_table
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.evaluation.log import require_log
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.selection import FantasyPosterior


class KeptBandit:
    """What a bandit takes over from elsewhere, as what another one knew, and what others get to know of it."""

    candidates: Candidates
    _config: BanditConfig
    _state: State
    _cached_fantasy: tuple[State, FantasyPosterior] | None
    _diagnostics: tuple[str, ...]
    _warned_of_clipping: bool
    _callbacks: Callbacks

    def restart(self) -> None:
        """Forget all that was told so far, as where the function has become another; the history keeps it.

        The next choice is from the prior. Points stay pending, and their rewards count once they are told: ``forget``
        those that were played on the function that was.
        """
        self._become(restarted(self._config, self._state))

    def add_arms(self, arms: Any, *, names: Any = None) -> None:
        """Add arms, or actions that stay, behind those that there are; what was told and what is pending stays.

        From then on the bandit is that of all these arms, told the same. Its width stays: see ``guarantee``.

        Args:
            arms: (k, d), as ``Arms`` takes them, or as ``ContextualActions`` does.
            names: of these, if the others have names.

        Raises:
            InputError: if what may be played is no table in memory, or these do not fit it; then nothing changes.

        Cost: O(k m²) for m points told that differ, or of the dictionary, and a copy of the table, O(A m).
        """
        self._take_table(torch.arange(len(table_of(self.candidates).source), device="cpu"), arms, names)

    def remove_arms(self, rows: Any) -> None:
        """Remove arms, or actions that stay; what was told of them still counts, and what is pending may be told.

        Args:
            rows: their rows, names, or a mask (A,), True for those to be removed. Later arms move up.

        Raises:
            InputError: as ``add_arms``, and if there are no such arms, or none would be left.

        Cost: a copy of the table, O(A m).
        """
        listing = cast(Listing, listing_of(table_of(self.candidates)))
        left = sorted({*range(listing.size)}.difference(listing.rows("rows", rows, masks=True)))
        if not left:
            raise InputError(f"All {listing.size} arm(s) would be removed: leave one, or add_arms first.")
        self._take_table(torch.tensor(left, device="cpu"))

    def _take_table(self, kept: Tensor, *new: Any) -> None:
        """Take over rows kept (k,) of the arms, and new ones behind them, in one step."""
        config = replace(self._config, candidates=with_table(self._config.candidates, kept, *new))
        state, attributes = over_others(config, self._state, kept), cast("dict[str, Any]", vars(self))
        attributes |= {"_config": config, "candidates": config.candidates, "_state": state, "_cached_fantasy": None}

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        return state_of(type(self), self._config, self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        The posterior is computed afresh, so it agrees with the saved one to rounding.

        Raises:
            StateMismatchError: if the state is of another format or configuration; the message names each difference.
                Then the bandit is as it was.
        """
        self._become(restored(type(self), self._config, state))
        if self._config.advice is not None and self._config.advice.expert is not None:
            self._config.advice.expert.restore(state["expert"]["counts"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write this bandit to one file, whole or not at all, from which ``load`` makes it again, anywhere.

        It holds the state, and what the bandit is made of as plain values: no code, so that reading it runs none.

        Raises:
            FileError: if the file cannot be written; then an old one of that name is as it was.

        Cost: that of ``state_dict``, and a copy of the arms where they are in memory.
        """
        save(self, path, self._config.arguments)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, into: Self | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Return the bandit that ``save`` wrote; it goes on where that one was.

        ``Bandit.load`` finds the algorithm; that of a class takes this one only. A bandit of a class, kernel or other
        piece of your own, of arms that a function computes, or that asks an expert is not made again from a file: make
        it as it was and give it as ``into``. Arms in a file are looked for where they were.

        Args:
            path: of the file.
            into: a bandit of the same configuration, to take the state and be returned; after an error it is as it was.
            device: of the tensors; None for that of the saved ones, or of ``into``.

        Raises:
            FileError: if the file cannot be read.
            DamagedFileError: if it is cut, changed or no bandit's.
            StateMismatchError: if it is of a newer format, or no bandit like ``into`` or of this class can be made of
                it; the message says what to do.
            InputError: if the device cannot be used, or is given with ``into``.
        """
        return loaded(cls, path, into, device)

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet.

        The bandit then chooses as the recorded one would, if its configuration and seed are the same. A history does
        not say when there was a restart, nor of what kind its times are: give the next ones as before. Times at which
        rewards were told, if they are the numbers of the rounds, are taken for rounds. Without them, as in a log, each
        reward is told as if it had come when its point was played, or when one before it was that was played later.

        Cost: that of telling it. Of a prior that is learned all fits are made; the posterior is computed after the last
        one, unless those before decided something: when to restart, when a batch was complete, which memory counted.

        Raises:
            InputError: if something was told already, or the history does not fit; then the bandit stays empty.
        """
        if number := self._state.round:
            raise InputError(f"replay needs a bandit that was told nothing; this one was told {number} round(s).")
        state = replayed(self._config, self._state, history)
        self._warn_of_fits(state, 4)
        self._become(state if self._config.clock.kind else changed(state, clock=state.clock.undecided))

    @property
    def callbacks(self) -> list[Callback]:
        """Who is told of each ask and tell, in this order, to be taken out as of any list; no part of the state."""
        return self._callbacks

    def add_callback(self, callback: Callback) -> None:
        """Tell a callback of each ask and tell from now on, after those that are in ``callbacks``."""
        if isinstance(callback, type) or not all(hasattr(callback, event) for event in ("on_ask", "on_tell")):
            hint = "an object with on_ask and on_tell, as of a subclass of torch_kbandits.bandit.Callback"
            raise InputError(f"callback must be {hint}, got {checks.describe(callback)}.")
        self._callbacks.append(callback)

    def log_to(self, where: str | PathLike[str] | Logger | LoggerAdapter[Any], *, contexts: bool = False) -> None:
        """Log each ask and tell from now on, a line of JSON for each point, which ``evaluation.read_log`` reads.

        Each line is handed to the system whole. Those that cannot be written are kept, with a warning, and written
        before the next ones; the bandit goes on whatever happens.

        Args:
            where: the path of a file, which is made if it is not there and appended to if it is; or a logger, which
                gets each line as a message of level INFO.
            contexts: whether lines have contexts and actions themselves, not only a digest and a row.

        Raises:
            FileError: if the file cannot be written.
            InputError: if this bandit logs to it already.

        Cost: of each ask that of ``details=True``, and an append to a file.
        """
        log = JSONLog(where, contexts=contexts)
        if any(isinstance(each, JSONLog) and each.where == log.where for each in self._callbacks):
            raise InputError(f"This bandit logs to {checks.shown(where)} already: each choice would be there twice.")
        self._callbacks.append(log)

    def _notify(
        self, before: Ledger, found: Suggestion | None = None, asked: Pending | None = None, places: Sequence[int] = ()
    ) -> None:
        """Tell callbacks what was asked, and what was told since a ledger: of places in what was pending, or -1."""
        if not self._callbacks:
            return
        if found is not None:
            self._callbacks.notify("on_ask", self, found)
        told = self._state.ledger.history_since(before.num_observations).copied(self.candidates.device)
        if number := len(told.X):
            ids = [asked.ids[place] if asked is not None and place >= 0 else None for place in places]
            expired = before.pending.ids[: number - len(ids)]  # as failed: those asked for first
            self._callbacks.notify("on_tell", self, Told((*expired, *ids), told))

    def _become(self, state: State, ahead: FantasyPosterior | None = None) -> None:
        """Take over what is known from now on, and the posterior with its batch pending, if that is known."""
        self._cached_fantasy = None if ahead is None else (state, ahead)
        self._state = state

    def _warn_of_fits(self, after: State, stacklevel: int) -> None:
        """Say once, to the caller so many calls above, what is odd about a fit, and that rewards are clipped."""
        corners = said_of_corners(self._config, self._state, after) if self._config.constraints else ()
        for diagnostic in (*after.diagnostics, *corners):
            if diagnostic not in self._diagnostics:
                self._diagnostics = (*self._diagnostics, diagnostic)
                warnings.warn(diagnostic, KernelBanditWarning, stacklevel=stacklevel)
        clips = not self._warned_of_clipping and after.spec.prior.floor > -math.inf
        if clips and (said := said_of_clipping(self._state, after)) is not None:
            self._warned_of_clipping = True  # first, since a warning may be an error
            warnings.warn(said, KernelBanditWarning, stacklevel=stacklevel)

    def _told(
        self, state: State, x: Any, context: Any, ids: Any, rows: Any, candidates: Any
    ) -> tuple[Tensor, list[int]]:
        """Return points told (q, d) and their places among what is pending, or -1, given by x, rows or ids."""
        if ids is not None:
            places = self._places(state, ids, x, context, rows, candidates)
            return state.ledger.pending.points[places], places
        noted = ()
        if rows is not None or candidates is not None:
            x, noted = actions_of(self.candidates, rows, candidates, x)
        return state.ledger.pending.found(self.candidates.points(x, context, 0.0), self._config.own_columns, noted)

    def _places(self, state: State, ids: Any, *others: Any) -> list[int]:
        """Return the places of pending points by their ids, in place of which nothing else may be given."""
        if any(each is not None for each in others):
            raise InputError("Give either x or rows (and their context) or ids, not both: an id names its point.")
        expiry, hint = self._config.expire_after, ", time=..." if state.clock.matters else ""
        expires = None if expiry is None else f"{expiry}, and tell(x, y{hint}) learns it late"
        return state.ledger.pending_rows(ids, expires)

    def _logged(self, log: Any, state: State, *others: Any) -> tuple[Tensor, Tensor, Any]:
        """Return points (q, d), rewards and times of the rows of a log that have one; nothing else may be given."""
        require_log(log)
        if any(each is not None for each in others):
            raise InputError("Give either a log or points with their rewards (x, y, context, time, ids), not both.")
        known = log.rewarded
        X = self.candidates.points(known.played, known.contexts, 0.0).detach().clone()
        return X, known.rewards, known.times if state.clock.matters else None


synchronize(KeptBandit)

"""A bandit whose every change is in its journal before it is answered."""

import hashlib
import logging
import math
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import Any, Self

import torch
from filelock import FileLock
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.callbacks import plain
from torch_kbandits.bandit.stopping import StopWhen
from torch_kbandits.candidates.timed import listing_of
from torch_kbandits.errors import DamagedFileError, FileError, InputError, StateMismatchError
from torch_kbandits.files import locked, put_in_place, read_whole
from torch_kbandits.plotting.section import moments
from torch_kbandits.serving.journal import Journal, identity
from torch_kbandits.serving.requests import RefusedError, arguments, identified, time_of

#: Changes after which the bandit is saved whole and a new journal begun: so many are told again after a crash.
COMPACT_AFTER = 1000
#: Requests with a key or ids, and points in the answers to them, that are remembered: the latest.
REMEMBERED = 10_000

#: What the answer to an ask says where it is known, and what a ``Suggestion`` calls it.
_SAID = {"actions": "x", "rows": "rows", "names": "names", "propensities": "propensities", "means": "mean"}
_SAID |= {"deviations": "std"}
_CHANGES = ("ask", "tell", "forget", "answer")
_VIEWS = ("recommend", "posterior", "stop", "questions", "pending", "health", "metrics")

_log = logging.getLogger(__name__)


class Service:
    """A bandit that is asked and told by JSON, with a file, the journal of its changes since, and a memory of answers.

    What was answered is on the disk, and is there when the file is opened again after a crash. A request that comes
    again, known by its ids or its key, is answered again and not carried out again. Threads take turns.

    ``FILE.journal`` names the FILE that it continues by its checksum, and the next one before that takes its place: a
    crash leaves a pair of which it is known what to tell again. The bandit is also saved whole once a prior was fitted,
    so that no fit is made again.
    """

    def __init__(self, bandit: Bandit, path: Path, lock: FileLock, compact_after: int) -> None:
        self.bandit, self.path = bandit, path
        #: How many changes the journal has since the file was written.
        self.num_changes = 0
        self._sole, self._compact_after = lock, compact_after
        self._turns, self._is_between = RLock(), False
        self._answers, self._num_points = dict[str, tuple[str, dict[str, Any]]](), 0
        self._file, self._fits = identity(path), _last_fits(bandit)
        self.journal = Journal(self._beside(".journal"))
        try:
            self._recover()
        except Exception:
            self.journal.close()
            raise

    @classmethod
    def open(cls, path: str | PathLike[str], *, into: Bandit | None = None, compact_after: int = COMPACT_AFTER) -> Self:
        """Return the service of a bandit's file, with all that was answered before.

        Args:
            path: of a file that ``bandit.save`` wrote.
            into: a bandit of the same configuration, where the file alone does not make it again.
            compact_after: changes after which it is saved whole; as many are told again after a crash.

        Errors are those of ``Bandit.load``, also of the journal; ``StateMismatchError`` if that continues another file,
        ``InputError`` if another process has the file, or the bandit asks an expert.
        """
        compact_after = checks.positive_integer("compact_after", compact_after)
        file = Path(os.path.realpath(path))
        refusal = f"Another process serves {str(file)!r}: ask that one, or end it first."
        lock = locked(file.with_name(f"{file.name}.lock"), refusal)
        try:
            bandit = Bandit.load(file, into=into)
            if bandit.expert is not None:
                raise InputError(
                    "This bandit asks an expert, and what that says is in no journal: make it with expert=None, and "
                    "let whoever can look answer its questions."
                )
            return cls(bandit, file, lock, compact_after)
        except Exception:
            lock.release()
            raise

    def answer(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request once all that it shows is on the disk; after an error nothing has changed.

        Operations are "ask", "tell", "forget", "answer", "recommend", "posterior", "stop", "questions", "pending",
        "health" and "metrics", a request JSON. ``InputError`` if it does not fit, ``RefusedError`` for other reasons,
        and what the bandit raises.
        """
        with self._turns:
            self._require_working()
            checks.one_of("operation", operation, (*_CHANGES, *_VIEWS))
            words = arguments(operation, request)
            found = self._once(operation, words, request) if operation in _CHANGES else self._view(operation, words)
            if self.num_changes >= self._compact_after or _last_fits(self.bandit) != self._fits:
                try:
                    self.compact()
                except Exception:  # the change is in the journal, which goes on
                    self.num_changes, self._fits = 0, _last_fits(self.bandit)
                    _log.exception("%s could not be saved whole; its journal goes on.", self.path)
            position = self.journal.position
        self.journal.commit(position)
        return found

    @property
    def failure(self) -> str | None:
        """Why nothing is answered any more; None while all is well."""
        if self.journal.failure is None and self._turns.acquire(blocking=False):  # else a request has just looked
            try:
                if self.journal.is_displaced or identity(self.path) != self._file:
                    self.journal.failure = f"another process touched the file or its journal; {self._rescued()}"
            finally:
                self._turns.release()
        return self.journal.failure

    def compact(self) -> None:
        """Save the bandit whole and begin a new journal; after a ``FileError`` the old one goes on. Cost: O(n)."""
        with self._turns:
            self._require_working()
            draft = self._beside(".next")
            self.bandit.save(draft)
            first = self._beginning(draft)
            self.journal.append(first)  # from here on the journal continues either file
            self.journal.commit(self.journal.position)
            put_in_place(draft, self.path)
            self._file = identity(self.path)
            self.journal.restart(first)
            self.num_changes, self._fits = 0, _last_fits(self.bandit)

    def close(self) -> None:
        """Save the bandit whole if anything changed, and let others have the file."""
        with self._turns:
            try:
                if self.failure is None and not self._is_between and self.num_changes:
                    self.compact()
            finally:
                self.journal.close()
                self._sole.release()

    def _rescued(self) -> str:
        """Save all beside the file, and say so."""
        try:
            self.bandit.save(rescued := self._beside(".rescued"))
        except FileError as error:
            return f"and what was answered could not be saved: {error}"
        return f"all that was answered is saved in {str(rescued)!r}"

    def _require_working(self) -> None:
        if self.failure is not None:
            self.journal.require_working()
        if self._is_between:
            raise RefusedError("A change was interrupted before it was saved: open the file again.", 503)

    # ---------------------------------------------------------------- changes and views

    def _once(self, operation: str, words: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request unless it was before; return the answer."""
        key, known = identified(operation, request, words)
        before, answer = self._answers.get(key or "", (None, {}))
        if before not in (None, known) and "ids" not in words:
            reused = checks.shown(request["key"])
            raise RefusedError(f"The key {reused} came with another request: give each request its own.", 409)
        if before != known:
            if wrong := set(words.get("ids", [])).difference(self.bandit.pending_ids):
                raise RefusedError(
                    f"id {checks.shown(min(wrong))} is not pending: {self.bandit.num_asked} were asked for, and those "
                    "are not that were told, forgotten or expired. The same request is answered again, while it is one "
                    f"of the latest {REMEMBERED:,}; this is another.",
                    409,
                )
            answer = self._changed(operation, words, request, key, known)
        if operation == "ask":
            return answer
        return {"already": before == known} | ({"told": self.bandit.num_observations} if operation == "tell" else {})

    def _changed(
        self, operation: str, words: Mapping[str, Any], request: Mapping[str, Any], key: str | None, known: str
    ) -> dict[str, Any]:
        """Change the bandit, append the record of it, and remember; interrupted in between, no more is answered."""
        self._is_between, answer = True, {}
        try:
            if operation == "ask":
                found = self.bandit.ask(**words, details=True)
                said = {name: getattr(found, of) for name, of in _SAID.items()}
                answer = {"ids": list(found.ids)} | _known(said)
            else:
                getattr(self.bandit, operation)(**words)
        except Exception:
            self._is_between = False  # the bandit is as it was
            raise
        record: dict[str, Any] = {"op": operation, "key": key, "known": known}
        if operation == "ask":  # a crash needs what was answered, not the candidates of the round
            pending, asked = self.bandit._state.ledger.pending, slice(-len(answer["ids"]), None)
            stages = None if pending.stages is None else pending.stages[asked].tolist()
            record |= {"time": request.get("time"), "stages": stages, "points": pending.points[asked].tolist()}
            record["answer"] = {name: said for name, said in answer.items() if name != "actions"}
        else:
            record["request"] = {**request, "key": None}
        self.journal.append(record)
        self._remember(key, known, answer)
        self.num_changes, self._is_between = self.num_changes + 1, False
        return answer

    def _remember(self, key: str | None, known: str, answer: dict[str, Any]) -> None:
        """Remember what was answered to a request that may come again, as long as it is among the latest."""
        if key is None:
            return
        self._answers[key] = known, answer
        self._num_points += len(answer.get("ids", ()))
        while len(self._answers) > 1 and max(len(self._answers), self._num_points) > REMEMBERED:
            _, oldest = self._answers.pop(next(iter(self._answers)))
            self._num_points -= len(oldest.get("ids", ()))

    def _view(self, operation: str, words: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a request may see of the bandit without changing it."""
        bandit = self.bandit
        if operation == "recommend":
            found, listing = bandit.recommend(**words), listing_of(bandit.candidates, words.get("candidates"))
            if listing is None:
                return {"actions": plain(found if isinstance(found, Tensor) else [found])}
            rows = (listing.actions([*range(listing.size)]).to(found) == found).all(-1).nonzero().flatten().tolist()[:1]
            names = listing.names and [listing.names[row] for row in rows]
            return _known({"actions": found, "rows": rows, "names": names})
        if operation == "posterior":
            X = bandit.candidates.points(words["points"], words.get("context"), max(bandit.now, 0.0))
            mean, deviation = moments(bandit, X)
            return {"means": mean.tolist(), "deviations": deviation.tolist()}
        if operation == "stop":
            limits = {name: each for name, each in words.items() if name in StopWhen.__dataclass_fields__}
            asked = {name: each for name, each in words.items() if name not in limits}
            found = (stop := StopWhen(**limits)).measured(bandit, **asked)
            numbers = {name: each if math.isfinite(each) else None for name, each in found.items()}
            return {"stop": all(each <= getattr(stop, name) for name, each in found.items()), **numbers}
        if operation == "questions":
            X = bandit.questions(**words)
            return {"actions": plain(bandit.candidates.actions(X)) if len(X) else [], "points": X.tolist()}
        if operation == "pending":
            X, ids = bandit.pending, list(bandit.pending_ids)
            actions = plain(bandit.candidates.actions(X)) if ids else []
            return {"ids": ids, "actions": actions, "points": X.tolist(), "ages": plain(bandit.pending_ages)}
        health = bandit.health()
        shown = health.to_prometheus() if operation == "metrics" else plain(health.as_dict())
        numbers = {"asked": bandit.num_asked, "told": bandit.num_observations, "pending": len(bandit.pending_ids)}
        return {"round": bandit.round, **numbers, "bandit": shown}

    # ---------------------------------------------------------------- after a crash

    def _recover(self) -> None:
        """Tell the bandit what the journal has beyond its file; begin one where there is none."""
        self._beside(".next").unlink(missing_ok=True)  # of a crash while it was saved whole
        begin, place = self._beginning(self.path), self.journal.path
        records = self.journal.open() if place.exists() else []
        begins = [number for number, record in enumerate(records) if record.get("op") == "begin"]
        known = [number for number in begins if records[number].get("snapshot") == begin["snapshot"]]
        if not known and len(records) > len(begins):
            raise StateMismatchError(
                f"{str(self.path)!r} is not the file that its journal {str(place)!r} continues: put that one back, "
                "or move the journal away, and what was answered since is lost."
            )
        if not known:
            self.journal.restart(begin)
        for number in range(known[-1], len(records)) if known else ():
            try:
                self._repeat(records[number])
            except Exception as error:
                raise DamagedFileError(
                    f"{str(place)!r}: record {number + 1} does not fit the bandit of {str(self.path)!r}: {error}"
                ) from error

    def _repeat(self, record: Mapping[str, Any]) -> None:
        """Carry out what was answered before."""
        if (operation := record["op"]) == "begin":
            self._answers, self._num_points = {}, 0
            for remembered in record["answers"]:
                self._remember(*remembered)
            return
        answer = {}
        if operation == "ask":
            # A choice made anew agrees to rounding alone where the posterior was computed afresh.
            example, state = self.bandit.candidates.example, self.bandit._state
            X = torch.tensor(record["points"], dtype=torch.float64).to(example)
            checks.points("the points of the log", X, dimension=example.shape[-1], like=example)
            stages = None if record["stages"] is None else torch.tensor(record["stages"], dtype=torch.long)
            said, clock = record["answer"], state.clock.moved_to(time_of(record), state.round)
            rows = checks.whole_numbers("rows", said.get("rows", ()))
            propensities = [checks.unit_interval("a propensity", each or 0.0) for each in said.get("propensities", ())]
            if {len(rows), len(propensities)} - {0, len(X)}:
                raise InputError(f"the {len(X)} point(s) have {len(rows)} rows and {len(propensities)} propensities.")
            ids = list(self.bandit._mark(X, clock, stages, rows, propensities))
            if ids != said["ids"]:
                raise InputError(f"the points are numbered {ids} here and {said['ids']} there.")
            answer = said | {"actions": plain(self.bandit.candidates.actions(X))}
        else:
            change = getattr(self.bandit, checks.one_of("op", operation, _CHANGES[1:]))
            change(**arguments(operation, record["request"]))
        self.num_changes += 1
        self._remember(record["key"], record["known"], answer)

    def _beginning(self, snapshot: Path) -> dict[str, Any]:
        """Return the record with which a journal continues a file."""
        answers = [[key, *kept] for key, kept in self._answers.items()]
        return {"op": "begin", "snapshot": hashlib.sha256(read_whole(snapshot)).hexdigest(), "answers": answers}

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said as JSON has it, without what is None."""
    return {name: plain(value) for name, value in said.items() if value is not None}


def _last_fits(bandit: Bandit) -> list[Any]:
    """Return when the prior of rewards and those of outcomes were fitted last, if they are learned."""
    return [each.last_fit for each in (bandit._state, *bandit._state.outcomes)]

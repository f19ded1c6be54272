"""A bandit whose every change is in its journal before it is answered."""

import hashlib
import logging
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import Any, Self

import torch
from filelock import FileLock

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import DamagedFileError, FileError, InputError, StateMismatchError
from torch_kbandits.files import locked, put_in_place, read_whole
from torch_kbandits.serving.errors import KeyReusedError, NotPendingError, NotSavingError
from torch_kbandits.serving.journal import Journal
from torch_kbandits.serving.requests import arguments, fingerprint, key_of, plain, time_of
from torch_kbandits.serving.views import VIEWS

#: Changes after which the bandit is saved whole and a new journal begun: so many are told again after a crash.
COMPACT_AFTER = 1000
#: Requests with a key or ids, and points in the answers to them, that are remembered: the latest.
REMEMBERED = 10_000

_CHANGES = ("ask", "tell", "forget")

_log = logging.getLogger(__name__)


class Service:
    """A bandit that is asked and told by JSON, with a file, the journal of its changes since, and a memory of answers.

    What was answered is on the disk: after a crash the same file is opened again, with the points that were asked for
    exactly as they were answered. A request that comes again, known by its ids or its key, is answered again and not
    carried out again. One process at a time may have the file. Threads take turns. Use ``open``.

    ``FILE.journal`` names the FILE that it continues by its checksum, and the next one before that takes its place: a
    crash leaves a pair of which it is known what to tell again. It is also saved whole once a prior was fitted: so no
    fit is made again after a crash, but for one that the crash came upon.
    """

    def __init__(self, bandit: Bandit, path: Path, lock: FileLock, compact_after: int) -> None:
        self.bandit, self.path = bandit, path
        #: How many changes the journal has since the file was written.
        self.num_changes = 0
        self._sole, self._compact_after = lock, compact_after
        self._turns, self._is_between = RLock(), False
        self._fits = _last_fits(bandit)
        self._answers, self._num_points = dict[str, tuple[str, dict[str, Any]]](), 0
        self._file, self.journal = _identity(path), self._recovered()

    @classmethod
    def open(cls, path: str | PathLike[str], *, into: Bandit | None = None, compact_after: int = COMPACT_AFTER) -> Self:
        """Return the service of a bandit's file, with all that was answered before.

        Args:
            path: of a file that ``bandit.save`` wrote.
            into: a bandit of the same configuration, where the file alone does not make it again.
            compact_after: changes after which the bandit is saved whole; as many are told again after a crash.

        Raises:
            FileError: if a file cannot be read or written.
            DamagedFileError: if one was changed.
            StateMismatchError: if the journal continues another file, or is of another format; see ``Bandit.load``.
            InputError: if another process has the file, or the bandit asks an expert.
        """
        compact_after = checks.positive_integer("compact_after", compact_after)
        file = Path(os.path.realpath(path))
        lock = locked(_beside(file, ".lock"), f"Another process serves {str(file)!r}: ask that one, or end it first.")
        try:
            _beside(file, ".next").unlink(missing_ok=True)  # of a crash while it was saved whole
            bandit = Bandit.load(file, into=into)
            if bandit._config.advice is not None:
                raise InputError(
                    "This bandit asks an expert, and what that said is in no journal: serve a bandit without one."
                )
            return cls(bandit, file, lock, compact_after)
        except Exception:
            lock.release()
            raise

    def answer(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request once all that it shows is on the disk; after an error nothing has changed.

        Args:
            operation: "ask", "tell", "forget", "recommend", "posterior", "pending", "health" or "metrics".
            request: JSON: lists, objects with names, numbers, texts.

        Raises:
            InputError: if the request does not fit.
            RefusedError: if it is refused for another reason, see ``torch_kbandits.serving.errors``.
            KernelBanditError: whatever the bandit raises.
        """
        with self._turns:
            self._require_working()
            checks.one_of("operation", operation, (*_CHANGES, *VIEWS))
            words = arguments(operation, request)
            found = (
                VIEWS[operation](self.bandit, words) if operation in VIEWS else self._once(operation, words, request)
            )
            if self.num_changes >= self._compact_after or _last_fits(self.bandit) != self._fits:
                try:
                    self.compact()
                except Exception:  # the change is in the journal, which goes on
                    self.num_changes, self._fits = 0, _last_fits(self.bandit)
                    _log.exception("%s could not be saved whole; its journal goes on.", self.path)
            journal, position = self.journal, self.journal.position
        journal.commit(position)
        return found

    @property
    def failure(self) -> str | None:
        """Why nothing is answered any more; None while all is well."""
        if self.journal.failure is None and self._turns.acquire(blocking=False):  # else a request has just looked
            try:
                if self.journal.displaced or _identity(self.path) != self._file:
                    return "another process removed, cut, replaced or wrote to the file or its journal"
            finally:
                self._turns.release()
        return self.journal.failure

    def compact(self) -> None:
        """Save the bandit whole and begin a new journal. Cost: O(n) of all that was told.

        Raises:
            FileError: if a file cannot be written; then the journal goes on.
        """
        with self._turns:
            self._require_working()
            self.journal.commit(self.journal.position)
            draft = _beside(self.path, ".next")
            self.bandit.save(draft)
            first = self._beginning(_checksum(draft))
            self.journal.append(first)  # from here on the journal continues either file
            self.journal.commit(self.journal.position)
            put_in_place(draft, self.path)
            self._file = _identity(self.path)
            self.journal = self.journal.renewed(first)
            self.num_changes, self._fits = 0, _last_fits(self.bandit)

    def close(self) -> None:
        """Save the bandit whole if anything changed, and let others have the file."""
        with self._turns:
            try:
                if self.journal.failure is None and not self._is_between and (self.num_changes or self.failure):
                    self.compact()
            finally:
                self.journal.close()
                self._sole.release()

    def _require_working(self) -> None:
        """Raise if nothing is answered any more, also because others touched a file: then all is saved beside it."""
        self.journal.require_working()
        if self._is_between:
            raise NotSavingError("A change was interrupted before it was saved: open the file again.")
        if (reason := self.failure) is not None:
            rescued = _beside(self.path, ".rescued")
            try:
                self.bandit.save(rescued)
                self.journal.failure = f"{reason}; all that was answered is saved in {str(rescued)!r}"
            except FileError as error:
                self.journal.failure = f"{reason}; and what was answered could not be saved: {error}"
            self.journal.require_working()

    # ---------------------------------------------------------------- changes

    def _once(self, operation: str, words: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request unless it was before; return the answer."""
        key, known = key_of(request, words), fingerprint(operation, request)
        before, answer = self._answers.get(key or "", (None, {}))
        if before not in (None, known) and "ids" not in words:
            reused = checks.shown(request["key"])
            raise KeyReusedError(f"The key {reused} came with another request: give each request its own.")
        if before != known:
            if wrong := set(words.get("ids", [])).difference(self.bandit.pending_ids):
                raise NotPendingError(
                    f"id {checks.shown(min(wrong))} is not pending: {self.bandit.num_asked} were asked for, and "
                    "those are not that were told, forgotten or expired. The same request is answered again, while it "
                    f"is one of the latest {REMEMBERED:,}; this is another."
                )
            answer = self._changed(words, request, {"op": operation, "key": key, "known": known})
        if operation == "ask":
            return answer
        return {"already": before == known} | ({"told": self.bandit.num_observations} if operation == "tell" else {})

    def _changed(self, words: Mapping[str, Any], request: Mapping[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        """Change the bandit, append the record of it, and remember; interrupted in between, no more is answered."""
        self._is_between = True
        try:
            if record["op"] == "ask":
                found = self.bandit.ask(**words, return_ids=True)
                answer = {"ids": list(found.ids), "actions": plain(found.actions)}
            else:
                getattr(self.bandit, record["op"])(**words)
                answer = {}
        except Exception:
            self._is_between = False  # the bandit is as it was
            raise
        if record["op"] == "ask":  # a crash needs what was answered, not the candidates of the round
            record |= {"time": request.get("time"), "ids": answer["ids"], **_asked(self.bandit, len(answer["ids"]))}
        else:
            record["request"] = {**request, "key": None}
        self.journal.append(record)
        self.num_changes += 1
        self._remember(record["key"], record["known"], answer)
        self._is_between = False
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

    # ---------------------------------------------------------------- after a crash

    def _recovered(self) -> Journal:
        """Return the journal, with what it has beyond the bandit's file told to the bandit."""
        place, snapshot = _beside(self.path, ".journal"), _checksum(self.path)
        if not place.exists():
            return Journal.create(place, self._beginning(snapshot))
        journal, records = Journal.open(place)
        begins = [number for number, record in enumerate(records) if record.get("op") == "begin"]
        known = [number for number in begins if records[number].get("snapshot") == snapshot]
        if not known:
            journal.close()
            if len(records) > len(begins):
                raise StateMismatchError(
                    f"{str(self.path)!r} is not the file that its journal {str(place)!r} continues: put that one back, "
                    "or move the journal away, and what was answered since is lost."
                )
            return Journal.create(place, self._beginning(snapshot))
        for number in range(known[-1], len(records)):
            try:
                self._repeat(records[number])
            except Exception as error:
                journal.close()
                raise DamagedFileError(
                    f"{str(place)!r}: record {number + 1} does not fit the bandit of {str(self.path)!r}: {error}"
                ) from error
        return journal

    def _repeat(self, record: Mapping[str, Any]) -> None:
        """Carry out what was answered before."""
        if (operation := record["op"]) == "begin":
            self._answers, self._num_points = {}, 0
            for remembered in record["answers"]:
                self._remember(*remembered)
            return
        answer = {}
        if operation == "ask":
            answer["ids"] = _ask_again(self.bandit, record)
            if answer["ids"] != record["ids"]:
                raise InputError(f"the points are numbered {answer['ids']} here and {record['ids']} there.")
            asked = self.bandit.candidates.example.new_tensor(record["points"])
            answer["actions"] = plain(self.bandit.candidates.actions(asked))
        else:
            change = getattr(self.bandit, checks.one_of("op", operation, ("tell", "forget")))
            change(**arguments(operation, record["request"]))
        self.num_changes += 1
        self._remember(record["key"], record["known"], answer)

    def _beginning(self, snapshot: str) -> dict[str, Any]:
        return {"op": "begin", "snapshot": snapshot, "answers": [[key, *kept] for key, kept in self._answers.items()]}


def _asked(bandit: Bandit, number: int) -> dict[str, Any]:
    """Return so many points that were asked for last and the stages that chose them, as JSON holds them exactly."""
    pending = bandit._state.ledger.pending
    stages = None if pending.stages is None else pending.stages[-number:].tolist()
    return {"points": pending.points[-number:].tolist(), "stages": stages}


def _ask_again(bandit: Bandit, record: Mapping[str, Any]) -> list[int]:
    """Make points pending that this bandit chose before, without choosing anew; return their ids.

    A choice made anew agrees to rounding alone where the posterior was computed afresh; these are what was answered.
    """
    example, state = bandit.candidates.example, bandit._state
    X = torch.tensor(record["points"], dtype=torch.float64).to(example)
    checks.points("the points of the log", X, dimension=example.shape[-1], like=example)
    stages = None if record["stages"] is None else torch.tensor(record["stages"], dtype=torch.long)
    return list(bandit._mark(X, state.clock.moved_to(time_of(record), state.round), stages))


def _last_fits(bandit: Bandit) -> list[Any]:
    """Return when the prior of rewards and those of outcomes were fitted last, if they are learned."""
    return [each.last_fit for each in (bandit._state, *bandit._state.outcomes)]


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of its name; None where there is none."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _checksum(path: Path) -> str:
    return hashlib.sha256(read_whole(path)).hexdigest()

"""A bandit whose every change is in its journal before it is answered."""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import Any, Self, TypeVar

from filelock import FileLock, Timeout

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.replay_log import ask_again, last_fits, recorded
from torch_kbandits.errors import DamagedFileError, FileError, InputError, StateMismatchError
from torch_kbandits.files import file_error, put_in_place, read_whole
from torch_kbandits.serving.book import BY_POINT, EXPIRED, FORGOTTEN, Book, fingerprint
from torch_kbandits.serving.journal import REMOVED, REPLACED, Journal
from torch_kbandits.serving.refusals import NotSavingError, UnknownIdError
from torch_kbandits.serving.requests import Reader, ids_of, key_of, plain, time_of, values_of, without_key
from torch_kbandits.serving.views import VIEWS

#: Changes after which the bandit is saved whole and a new journal begun: so many are told again after a crash.
COMPACT_AFTER = 1000

_CHANGES = ("ask", "tell", "forget")

_Found = TypeVar("_Found")

_log = logging.getLogger(__name__)


class Service:
    """A bandit that is asked and told by JSON, with a file, the journal of its changes since, and a memory of answers.

    What was answered is on the disk: after a crash the same file is opened again, with the points that were asked for
    exactly as they were answered. A request that comes again, by its key or by ids already told, is answered again and
    not carried out again. One process at a time may have the file.

    ``FILE.journal`` names the FILE that it continues by its checksum, and the next one before that takes its place. So
    a crash at any moment leaves a pair of which it is known what to tell again.

    Once a learned prior was fitted, the bandit is saved whole: so no fit is made again after a crash, but for one that
    the crash came upon.

    Threads take turns. Use ``open``.
    """

    def __init__(self, bandit: Bandit, path: Path, lock: FileLock, compact_after: int) -> None:
        self.bandit, self.path = bandit, path
        self._sole, self._compact_after = lock, compact_after
        self._reader = Reader(bandit.candidates.example.to(bandit.candidates.device))
        self._turns, self._is_between, self._changes = RLock(), False, 0
        self._book, self._fits = Book(), last_fits(bandit)
        self._file, self._journal = _identity(path), self._recovered()

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
        lock = FileLock(_beside(file, ".lock"), timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise InputError(f"Another process serves {str(file)!r}: ask that one, or end it first.") from None
        except OSError as error:
            raise file_error("written", _beside(file, ".lock"), error) from error
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
        """Return the answer to a request once all that it shows is on the disk; see ``perform``."""
        found, position = self.perform(operation, request)
        self.wait(position)
        return found

    def perform(self, operation: str, request: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the answer to a request, and what to ``wait`` for before anybody sees it.

        Args:
            operation: "ask", "tell", "forget", "recommend", "belief", "pending", "health" or "metrics".
            request: JSON: lists, objects with names, numbers, texts.

        Raises:
            InputError: if the request does not fit.
            RefusedError: if it is refused for another reason, see ``refusals``.
            KernelBanditError: whatever the bandit raises.

        After an error the bandit is as it was.
        """
        with self._turns:
            self._require_in_place()
            if (view := VIEWS.get(checks.one_of("operation", operation, (*_CHANGES, *VIEWS)))) is not None:
                found = view(self.bandit, self._reader, request)
            else:
                found = self._once(operation, request)
            if self._changes >= self._compact_after or last_fits(self.bandit) != self._fits:
                try:
                    self.compact()
                except Exception:  # the change is in the journal, which goes on
                    self._changes, self._fits = 0, last_fits(self.bandit)
                    _log.exception("%s could not be saved whole; its journal goes on.", self.path)
            return found, self._journal.position

    def wait(self, position: int) -> None:
        """Return once so many changes are on the disk, so that an answer may be seen; else ``NotSavingError``."""
        self._journal.commit(position)

    @property
    def journal(self) -> Journal:
        """The log of changes since the file was written."""
        return self._journal

    @property
    def num_changes(self) -> int:
        """How many changes the journal has since the file was written."""
        return self._changes

    @property
    def failure(self) -> str | None:
        """Why nothing is answered any more; None while all is well."""
        return self._journal.failure or self._journal.displaced

    def compact(self) -> None:
        """Save the bandit whole and begin a new journal. Cost: O(n) of all that was told.

        Raises:
            FileError: if a file cannot be written; then the journal goes on.
        """
        with self._turns:
            self._require_whole()
            if self._displaced == REPLACED:
                self._require_in_place()
            self._save_whole()

    def close(self) -> None:
        """Save the bandit whole if anything changed, and let others have the file."""
        with self._turns:
            try:
                if (self._changes or self._displaced) and self._journal.failure is None and not self._is_between:
                    self.compact()
            finally:
                self._journal.close()
                self._sole.release()

    # ---------------------------------------------------------------- changes

    def _once(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request unless it was before, save and remember it; return the answer."""
        words, ids, values = self._read(operation, request)
        key, known = key_of(request), fingerprint(operation, request)
        kept = self._book.answer(key, known)
        if operation == "ask":
            return self._asked(words, key, known, request.get("time")) if kept is None else kept
        if not (already := kept is not None or (ids is not None and self._was_done(ids, values))):
            record = {"op": operation, "key": key, "request": without_key(request)}
            self._saved(lambda: self._carry_out(operation, words, ids, values), lambda _: record)
            self._book.keep(key, known, {})
        return {"already": already} | ({"told": self.bandit.num_observations} if operation == "tell" else {})

    def _asked(self, words: Mapping[str, Any], key: str | None, known: str, time: Any) -> dict[str, Any]:
        """Ask; save and remember what was answered."""
        # What a crash needs is the answer, not the candidates of the round.
        about = {"op": "ask", "key": key, "known": known, "time": time}
        found = self._saved(
            lambda: self._noted(lambda: self.bandit.ask(**words, return_ids=True), EXPIRED, {}),
            lambda asked: {**about, "ids": list(asked.ids), **recorded(self.bandit, len(asked.ids))},
        )
        answer = {"ids": list(found.ids), "actions": plain(found.actions)}
        self._book.keep(key, known, answer)
        return answer

    def _read(self, operation: str, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[int] | None, list[Any]]:
        """Return the arguments of a method, the ids that it is about, and what each is told."""
        words, ids = self._reader.words(operation, request), ids_of(request)
        number = 1 if ids is None else len(ids)
        return words, ids, values_of(words, number) if operation == "tell" else [FORGOTTEN] * number

    def _carry_out(self, operation: str, words: Mapping[str, Any], ids: list[int] | None, values: list[Any]) -> None:
        """Tell or forget, and note what became of the points."""
        others = FORGOTTEN if operation == "forget" else BY_POINT if ids is None else EXPIRED
        told = dict(zip(ids or (), values, strict=False))
        self._noted(lambda: getattr(self.bandit, operation)(**words), others, told)

    def _noted(self, change: Callable[[], _Found], others: str, told: Mapping[int, Any]) -> _Found:
        """Carry out a change; note what ids were told by it, and what became of others that are pending no more."""
        before = self.bandit.pending_ids
        found = change()
        left = set(self.bandit.pending_ids)
        self._book.settle({each: told.get(each, others) for each in before if each not in left})
        return found

    def _was_done(self, ids: list[int], values: list[Any]) -> bool:
        for number in ids:
            if not 0 <= number < self.bandit.num_asked:
                raise UnknownIdError(
                    f"id {checks.shown(number)} is unknown: {self.bandit.num_asked} point(s) were asked for, numbered "
                    "from 0."
                )
        return self._book.was_done(ids, values, self.bandit.pending_ids)

    # ---------------------------------------------------------------- inside

    def _saved(self, change: Callable[[], _Found], record: Callable[[_Found], Mapping[str, Any]]) -> _Found:
        """Change the bandit and append the record of it; interrupted between the two, nothing is answered any more."""
        self._is_between = True
        try:
            found = change()
        except Exception:
            self._is_between = False  # the bandit is as it was
            raise
        self._journal.append(record(found))
        self._changes += 1
        self._is_between = False
        return found

    def _require_whole(self) -> None:
        self._journal.require_working()
        if self._is_between:
            raise NotSavingError("A change was interrupted before it was saved: open the file again.")

    def _require_in_place(self) -> None:
        """Raise if nothing is answered any more, also because others removed or replaced a file.

        Then what was answered is saved first: whole, in the place of what is missing, or beside what others put there.
        """
        self._require_whole()
        if (reason := self._displaced) is None:
            return
        place = self.path if reason == REMOVED else _beside(self.path, ".rescued")
        try:
            self._save_whole() if reason == REMOVED else self.bandit.save(place)
            reason += f"; all that was answered is saved in {str(place)!r}"
        except FileError as error:
            reason += f"; and what was answered could not be saved: {error}"
        self._journal.failure = reason
        self._require_whole()

    @property
    def _displaced(self) -> str | None:
        """What others did to the journal or the file; None while both are there and ours."""
        if (reason := self._journal.displaced) is not None:
            return reason
        there = _identity(self.path)
        return None if there == self._file else REMOVED if there is None else REPLACED

    def _save_whole(self) -> None:
        """Save the bandit whole and begin a new journal."""
        self.wait(self._journal.position)
        draft = _beside(self.path, ".next")
        self.bandit.save(draft)
        first = self._beginning(_checksum(draft))
        self._journal.append(first)  # from here on the journal continues either file
        self.wait(self._journal.position)
        put_in_place(draft, self.path)
        self._file = _identity(self.path)
        self._journal.renew(first)
        self._changes, self._fits = 0, last_fits(self.bandit)

    def _recovered(self) -> Journal:
        """Return the journal, with what it has beyond the bandit's file told to the bandit."""
        place, snapshot = _beside(self.path, ".journal"), _checksum(self.path)
        if not place.exists():
            return Journal.create(place, self._beginning(snapshot))
        journal, records = Journal.open(place)
        starts = [number for number, record in enumerate(records) if record.get("op") == "begin"]
        known = [number for number in starts if records[number].get("snapshot") == snapshot]
        if not known:
            journal.close()
            if len(records) > len(starts):
                raise StateMismatchError(
                    f"{str(self.path)!r} is not the file that its journal {str(place)!r} continues: put that one back, "
                    "or move the journal away, and what was answered since is lost."
                )
            return Journal.create(place, self._beginning(snapshot))
        for number, record in enumerate(records[known[-1] :], known[-1] + 1):
            try:
                if number == known[-1] + 1:
                    self._book = Book.of(record["book"])
                else:
                    self._repeat(record)
            except Exception as error:
                journal.close()
                raise DamagedFileError(
                    f"{str(place)!r}: record {number} does not fit the bandit of {str(self.path)!r}: {error}"
                ) from error
        return journal

    def _repeat(self, record: Mapping[str, Any]) -> None:
        """Carry out what was answered before."""
        operation = record["op"]
        if operation == "begin":  # of a file that never took its place
            return
        self._changes += 1
        if operation == "ask":
            points, stages, time = record["points"], record["stages"], time_of(record)
            ids = self._noted(lambda: ask_again(self.bandit, points, stages, time), EXPIRED, {})
            if list(ids) != record["ids"]:
                raise InputError(f"the points are numbered {list(ids)} here and {record['ids']} there.")
            asked = self._reader.example.new_tensor(points)
            answer = {"ids": record["ids"], "actions": plain(self.bandit.candidates.actions(asked))}
            self._book.keep(key_of(record), record["known"], answer)
            return
        checks.one_of("op", operation, ("tell", "forget"))
        request = record["request"]
        self._carry_out(operation, *self._read(operation, request))
        self._book.keep(key_of(record), fingerprint(operation, request), {})

    def _beginning(self, snapshot: str) -> dict[str, Any]:
        return {"op": "begin", "snapshot": snapshot, "book": self._book.content()}


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

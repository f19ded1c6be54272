"""A log to which each change is appended before it is answered, and which is read back after a crash."""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple, Self

from torch_kbandits.errors import DamagedFileError, StateMismatchError
from torch_kbandits.files import file_error, read_whole, write_whole
from torch_kbandits.serving.refusals import NotSavingError

_KIND = b"torch_kbandits journal "
_FIRST_LINE = _KIND + b"1\n"
_SEED = hashlib.blake2b(_FIRST_LINE, digest_size=8).digest()


class Contents(NamedTuple):
    """What a journal holds.

    Attributes:
        records: in order.
        size: bytes of what is whole; what follows is the beginning of a record that was never answered.
        digest: of the last record and of all before it.
    """

    records: list[dict[str, Any]]
    size: int
    digest: bytes


class Journal:
    """A file with one record of JSON a line, each with its length and a checksum of it and all before it.

    ``append`` writes a record; ``commit`` waits until it is on the disk, together with all that was appended
    meanwhile: one ``fsync`` for all who wait. The cost of both does not depend on what is there already.

    Where a record cannot be written nobody knows what the disk has. So then every later call is refused: what was
    committed is there, and opening the file again says what else is.
    """

    def __init__(self, path: Path, size: int, digest: bytes) -> None:
        self.path = path
        #: Bytes of the file.
        self.size = size
        #: How often the disk was waited for, and for how many seconds in all.
        self.num_syncs, self.sync_seconds = 0, 0.0
        self._digest = digest
        self._file = _opened(path)
        self._changed = Condition()
        self._appended = self._durable = 0
        self._syncing = False
        #: Why nothing can be appended any more; None while all is well.
        self.failure: str | None = None

    @classmethod
    def create(cls, path: str | PathLike[str], first: Mapping[str, Any]) -> Self:
        """Return a journal with one record, which takes the place of an old one at once or not at all."""
        line, digest = _line(first, _SEED)
        write_whole(path, _FIRST_LINE + line)
        return cls(Path(path), len(_FIRST_LINE) + len(line), digest)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> tuple[Self, list[dict[str, Any]]]:
        """Return a journal to append to, and its records; a last one that was cut while it was written is removed.

        Raises:
            FileError: if the file cannot be read or written.
            DamagedFileError: if it was changed in any other way, or has no whole record.
            StateMismatchError: if it is of another format.
        """
        found = read(path)
        journal = cls(Path(path), found.size, found.digest)
        try:
            os.ftruncate(journal._file, found.size)
            os.fsync(journal._file)  # what a killed process wrote is read by us, and may not be on the disk yet
        except OSError as error:
            raise file_error("written", path, error) from error
        return journal, found.records

    @property
    def position(self) -> int:
        """How many records were appended since it was opened."""
        return self._appended

    @property
    def is_durable(self) -> bool:
        """Whether all that was appended is on the disk."""
        return self._durable == self._appended

    @property
    def displaced(self) -> str | None:
        """What others did to the file under our hands; None while it is there and ours."""
        with self._changed:
            if self.failure is not None:
                return None
            ours = os.fstat(self._file)
            try:
                there = os.stat(self.path)
            except OSError:
                return REMOVED
            if not os.path.samestat(ours, there) or ours.st_size > self.size:
                return REPLACED
            return REMOVED if ours.st_size < self.size else None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record behind all others, one thread at a time; ``NotSavingError`` if that or one before failed."""
        line, digest = _line(record, self._digest)
        with self._changed:
            self.require_working()
            self.failure = "a record was interrupted"
            try:
                left = memoryview(line)
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError as error:
                self.failure = error.strerror or str(error)
                self.require_working()
            self.failure = None
            self._digest = digest
            self.size += len(line)
            self._appended += 1

    def commit(self, position: int) -> None:
        """Return once so many records are on the disk, in any thread; ``NotSavingError`` if they may not be."""
        with self._changed:
            while True:
                if self._durable >= position:
                    return
                self.require_working()
                if not self._syncing:
                    break
                self._changed.wait()
            self._syncing, reached = True, self._appended
        failure, start = None, time.perf_counter()
        try:
            os.fsync(self._file)
        except OSError as error:
            failure = error.strerror or str(error)
        with self._changed:
            self._syncing = False
            self.num_syncs, self.sync_seconds = self.num_syncs + 1, self.sync_seconds + time.perf_counter() - start
            if failure is None:
                self._durable = max(self._durable, reached)
            else:
                self.failure = failure
            self._changed.notify_all()
        self.require_working()

    def renew(self, first: Mapping[str, Any]) -> None:
        """Go on in a new file with one record in the place of this one, all of which is committed.

        After a ``FileError`` the old file goes on.
        """
        line, digest = _line(first, _SEED)
        with self._changed:
            while self._syncing:
                self._changed.wait()
            self.require_working()
            write_whole(self.path, _FIRST_LINE + line)
            self.failure = "the new file could not be opened"
            os.close(self._file)
            self._file = _opened(self.path)
            self.failure = None
            self._digest, self.size = digest, len(_FIRST_LINE) + len(line)

    def close(self) -> None:
        """End it; nothing is appended afterwards."""
        with self._changed:
            while self._syncing:
                self._changed.wait()
            if self.failure != _CLOSED:
                self.failure = _CLOSED
                os.close(self._file)

    def require_working(self) -> None:
        """Raise ``NotSavingError``, which says why, if nothing can be appended any more."""
        if self.failure is not None:
            raise NotSavingError(
                f"{str(self.path)!r} cannot be written ({self.failure}), so nothing is answered any more: make room, "
                "or look at the disk, and start the server anew."
            )


_CLOSED = "it is closed"

#: What others do to a file.
REMOVED, REPLACED = "it was removed or cut by another process", "another process wrote to it or put a file in its place"


def read(path: str | PathLike[str]) -> Contents:
    """Return what a journal holds, without the beginning of a last record that was cut; errors as of ``open``."""
    return parsed(read_whole(path), repr(os.fspath(path)))


def parsed(content: bytes, file: str) -> Contents:
    """Return what ``read`` does, of the bytes of a file; its name is for messages."""
    if not content.startswith(_FIRST_LINE):
        first = content.partition(b"\n")[0]
        if first.startswith(_KIND) and first[len(_KIND) :].isdigit() and first + b"\n" != _FIRST_LINE:
            raise StateMismatchError(
                f"{file} has format {first[len(_KIND) :][:20].decode()} and this version reads 1: serve it with the "
                "version of torch_kbandits that wrote it."
            )
        raise DamagedFileError(f"{file} is no journal, or its first line was changed. {_ADVICE}")
    records, place, digest = [], len(_FIRST_LINE), _SEED
    while place < len(content):
        end = content.find(b"\n", place)
        length, digits, payload = _parts(content[place:] if end < 0 else content[place:end])
        if end < 0 and (length is None or len(payload) <= length):
            break  # the newline is written last
        after = _chained(digest, payload)
        if end < 0 or length != len(payload) or digits != after.hex().encode():
            raise DamagedFileError(f"{file} is damaged: record {len(records) + 1} was changed. {_ADVICE}")
        records.append(_record(payload, f"{file} is damaged: record {len(records) + 1}"))
        place, digest = end + 1, after
    if not records:
        raise DamagedFileError(f"{file} is cut: it has no whole record. {_ADVICE}")
    return Contents(records, place, digest)


_ADVICE = (
    "Take an earlier copy of it and of the bandit's file together; or move it away, and what was answered since the "
    "bandit's file was last written is lost."
)


def _parts(line: bytes) -> tuple[int | None, bytes, bytes]:
    """Return the length that a line says, its checksum and its payload; no length where none is whole."""
    length, _, rest = line.partition(b" ")
    digits, blank, payload = rest.partition(b" ")
    known = int(length) if blank and length.isdigit() and len(length) < 20 else None
    return known, digits, payload


def _record(payload: bytes, which: str) -> dict[str, Any]:
    """Return the record that a payload is; it is named in a message."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{which} is no JSON: {str(error)[:200]}. {_ADVICE}") from error
    if not isinstance(found, dict):
        raise DamagedFileError(f"{which} is no JSON object. {_ADVICE}")
    return found


def _line(record: Mapping[str, Any], before: bytes) -> tuple[bytes, bytes]:
    """Return the line of a record after others of a digest, and the digest with it."""
    payload = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    digest = _chained(before, payload)
    return b"%d %s %s\n" % (len(payload), digest.hex().encode(), payload), digest


def _chained(before: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(before + payload, digest_size=8).digest()


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        raise file_error("written", path, error) from error

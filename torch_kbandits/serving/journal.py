"""A log to which each change is appended before it is answered, and which is read back after a crash."""

import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Self

from torch_kbandits.errors import DamagedFileError, StateMismatchError
from torch_kbandits.files import file_error, read_whole, write_whole
from torch_kbandits.serving.errors import NotSavingError

_KIND = b"torch_kbandits journal "
_FIRST_LINE = _KIND + b"1\n"
_SEED = hashlib.blake2b(_FIRST_LINE, digest_size=8).digest()
_ADVICE = (
    "Take an earlier copy of it and of the bandit's file together; or move it away, and what was answered since the "
    "bandit's file was last written is lost."
)


class Journal:
    """A file with one record of JSON a line, each with its length and a checksum of it and all before it.

    ``append`` writes a record, one thread at a time. ``commit``, in any thread, waits until it is on the disk, together
    with all that was appended before the wait began: one ``fsync`` for all who wait. Neither costs more in a long file.

    Where a record cannot be written nobody knows what the disk has. So then every later call is refused: what was
    committed is there, and opening the file again says what else is.
    """

    def __init__(self, path: Path, size: int, digest: bytes) -> None:
        self.path = path
        #: Bytes of the file.
        self.size = size
        #: How many records were appended since it was opened.
        self.position = 0
        #: How often the disk was waited for, and for how many seconds in all.
        self.num_syncs, self.sync_seconds = 0, 0.0
        #: Why nothing can be appended any more; None while all is well.
        self.failure: str | None = None
        self._file, self._digest = _opened(path), digest
        self._syncing, self._durable = Lock(), 0

    @classmethod
    def create(cls, path: Path, first: Mapping[str, Any]) -> Self:
        """Return a journal with one record, which takes the place of an old one at once or not at all."""
        return cls(path, *_written(path, first))

    @classmethod
    def open(cls, path: Path) -> tuple[Self, list[dict[str, Any]]]:
        """Return a journal to append to, and its records; a last one that was cut while it was written is removed.

        Raises:
            FileError: if the file cannot be read or written.
            DamagedFileError: if it was changed in any other way, or has no whole record.
            StateMismatchError: if it is of another format.
        """
        records, size, digest = parsed(read_whole(path), repr(str(path)))
        journal = cls(path, size, digest)
        try:
            os.ftruncate(journal._file, size)
            os.fsync(journal._file)  # what a killed process wrote is read by us, and may not be on the disk yet
        except OSError as error:
            raise file_error("written", path, error) from error
        return journal, records

    @property
    def displaced(self) -> bool:
        """Whether others removed, cut or replaced the file under our hands, or wrote to it; between appends."""
        try:
            there = os.stat(self.path)
        except OSError:
            return True
        return not os.path.samestat(os.fstat(self._file), there) or there.st_size != self.size

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record behind all others; ``NotSavingError`` if that or one before failed."""
        self.require_working()
        line, self._digest = _line(_payload(record), self._digest)
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self.failure = error.strerror or str(error)
            self.require_working()
        self.size += len(line)
        self.position += 1

    def commit(self, position: int) -> None:
        """Return once so many records are on the disk, in any thread; ``NotSavingError`` if they may not be."""
        with self._syncing:  # who waits here finds that the disk got theirs, too
            if self._durable >= position:
                return
            self.require_working()
            reached, start = self.position, time.perf_counter()
            try:
                os.fsync(self._file)
            except OSError as error:
                self.failure = error.strerror or str(error)
                self.require_working()
            self.num_syncs, self.sync_seconds = self.num_syncs + 1, self.sync_seconds + time.perf_counter() - start
            self._durable = reached

    def renewed(self, first: Mapping[str, Any]) -> Self:
        """Return a journal with one record that takes the place of this one, all of which was committed."""
        found = self.create(self.path, first)
        found.num_syncs, found.sync_seconds = self.num_syncs, self.sync_seconds
        self.close()
        return found

    def close(self) -> None:
        """End it; nothing is appended afterwards."""
        with self._syncing:
            if self._file >= 0:
                os.close(self._file)
                self._file, self.failure = -1, self.failure or "it is closed"

    def require_working(self) -> None:
        """Raise ``NotSavingError``, which says why, if nothing can be appended any more."""
        if self.failure is not None:
            raise NotSavingError(
                f"{str(self.path)!r} cannot be written ({self.failure}), so nothing is answered any more: make room, "
                "or look at the disk, and start the server anew."
            )


def parsed(content: bytes, file: str) -> tuple[list[dict[str, Any]], int, bytes]:
    """Return the records of a journal, the bytes of those that are whole, and the digest of all; errors as of ``open``.

    What follows the whole ones is the beginning of a record that was never answered. The file's name is for messages.
    """
    if not content.startswith(_FIRST_LINE):
        if content.startswith(_KIND) and b"\n" in content:
            raise StateMismatchError(f"{file} is of another format: serve it with the version that wrote it. {_ADVICE}")
        raise DamagedFileError(f"{file} is no journal, or its first line was changed. {_ADVICE}")
    records, size, digest = [], len(_FIRST_LINE), _SEED
    for line in io.BytesIO(content[size:]):
        digits, _, rest = line.partition(b" ")
        payload, length = rest.partition(b" ")[2], int(digits) if digits.isdigit() and len(digits) < 20 else sys.maxsize
        if not line.endswith(b"\n") and len(payload) <= length:
            break  # it was cut: the newline is written last
        whole, digest = _line(payload[:-1], digest)
        try:
            record = json.loads(payload) if line == whole else None
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise DamagedFileError(f"{file} is damaged: record {len(records) + 1} was changed. {_ADVICE}")
        records.append(record)
        size += len(line)
    if not records:
        raise DamagedFileError(f"{file} is cut: it has no whole record. {_ADVICE}")
    return records, size, digest


def _line(payload: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Return the line of a record after others of a digest, and the digest with it."""
    digest = hashlib.blake2b(before + payload, digest_size=8).digest()
    return b"%d %s %s\n" % (len(payload), digest.hex().encode(), payload), digest


def _payload(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()


def _written(path: Path, first: Mapping[str, Any]) -> tuple[int, bytes]:
    """Write a journal of one record whole; return its size and its digest."""
    line, digest = _line(_payload(first), _SEED)
    write_whole(path, _FIRST_LINE + line)
    return len(_FIRST_LINE) + len(line), digest


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        raise file_error("written", path, error) from error

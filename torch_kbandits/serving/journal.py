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
from typing import Any

from torch_kbandits.errors import DamagedFileError
from torch_kbandits.files import file_error, read_whole, write_whole
from torch_kbandits.serving.requests import RefusedError

_FIRST_LINE = b"torch_kbandits journal 2\n"
_SEED = hashlib.blake2b(_FIRST_LINE, digest_size=8).digest()
_ADVICE = "Take an earlier copy of it and of the bandit's file together; or move it away, and what it has is lost."


class Journal:
    """A file with one record of JSON a line, each with its length and a checksum of it and all before it.

    ``append`` writes a record, one thread at a time. ``commit``, in any thread, waits until it is on the disk, together
    with all that was appended before the wait began: one ``fsync`` for all who wait. Where a record cannot be written
    nobody knows what the disk has: then every later call is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.position = path, 0, 0  # bytes of the file, and records appended here
        self.num_syncs, self.sync_seconds = 0, 0.0  # how often the disk was waited for, and for how long in all
        self.failure: str | None = None  # why nothing can be appended any more
        self._file, self._digest, self._syncing, self._durable = -1, _SEED, Lock(), 0

    def open(self) -> list[dict[str, Any]]:
        """Begin to append to the file, and return its records; a last one that was cut in writing is removed."""
        records, size, digest = parsed(read_whole(self.path), repr(str(self.path)))
        self._take(size, digest)
        return records

    def restart(self, first: Mapping[str, Any]) -> None:
        """Put one record in the place of all others, which were committed, at once or not at all."""
        line, digest = _line(_payload(first), _SEED)
        with self._syncing:
            write_whole(self.path, _FIRST_LINE + line)
            self._take(len(_FIRST_LINE) + len(line), digest)

    def _take(self, size: int, digest: bytes) -> None:
        """Append to what is at the path, of which so many bytes are whole."""
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(file, size)
            os.fsync(file)  # what a killed process wrote is read by us, and may not be on the disk yet
        except OSError as error:
            raise file_error("written", self.path, error) from error
        if self._file >= 0:
            os.close(self._file)
        self._file, self.size, self._digest = file, size, digest

    @property
    def is_displaced(self) -> bool:
        """Whether others removed, cut or replaced the file under our hands, or wrote to it; between appends."""
        ours = identity(self._file)
        return ours is None or identity(self.path) != (*ours[:2], self.size)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record behind all others; ``RefusedError`` if that or one before failed."""
        self.require_working()
        line, self._digest = _line(_payload(record), self._digest)
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self.failure = error.strerror or str(error)
        self.require_working()
        self.size, self.position = self.size + len(line), self.position + 1

    def commit(self, position: int) -> None:
        """Return once so many records are on the disk, in any thread; ``RefusedError`` if they may not be."""
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

    def close(self) -> None:
        """End it; nothing is appended afterwards."""
        with self._syncing:
            if self._file >= 0:
                os.close(self._file)
                self._file, self.failure = -1, self.failure or "it is closed"

    def require_working(self) -> None:
        """Raise ``RefusedError``, which says why, if nothing can be appended any more."""
        if self.failure is not None:
            raise RefusedError(
                f"{str(self.path)!r} cannot be written ({self.failure}), so nothing is answered any more: make room, "
                "or look at the disk, and start the server anew.",
                503,
            )


def parsed(content: bytes, file: str) -> tuple[list[dict[str, Any]], int, bytes]:
    """Return the whole records of a journal, their bytes, and the digest of all; one that was cut is left out."""
    if not content.startswith(_FIRST_LINE):
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


def identity(file: Path | int) -> tuple[int, int, int] | None:
    """Return what tells a file, or one that is open, from another of its name or size; None where there is none."""
    try:
        there = os.stat(file)
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_size


def _payload(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()


def _line(payload: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Return the line of a record after others of a digest, and the digest with it."""
    digest = hashlib.blake2b(before + payload, digest_size=8).digest()
    return b"%d %s %s\n" % (len(payload), digest.hex().encode(), payload), digest

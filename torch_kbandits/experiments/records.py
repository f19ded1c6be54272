"""Finished runs as JSON lines: read, append, and mend a file that was cut."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from torch_kbandits.errors import InputError
from torch_kbandits.files import file_error, write_text
from torch_kbandits.version import __version__

RECORDS_FILE = "records.jsonl"


@dataclass(frozen=True)
class Record:
    """One finished run: what was run, and what came out.

    Args:
        key: the digest of the configuration; equal keys are the same run.
        algorithm: label, name, options and batch.
        environment: label, name and options.
        settings: what the algorithm was given instead of what the environment knows.
        rounds: T.
        record_every: rounds between two recorded points.
        seed: of the problem and the algorithm.
        versions: of the packages and of Python.
        recorded_rounds: counted from 1; one entry for each of the next three.
        cumulative_regret: pseudo-regret, in reward units.
        cumulative_seconds: of ask and tell.
        dictionary_size: inducing points.
        recommended_mean: the true mean reward of the point that the algorithm recommends at the end, if it does; None
            with contexts.
        best_mean: the largest mean reward; None with contexts, where each has its own.
    """

    key: str
    algorithm: dict[str, Any]
    environment: dict[str, Any]
    settings: dict[str, Any]
    rounds: int
    record_every: int
    seed: int
    versions: dict[str, str]
    recorded_rounds: list[int]
    cumulative_regret: list[float]
    cumulative_seconds: list[float]
    dictionary_size: list[int]
    recommended_mean: float | None
    best_mean: float | None

    def line(self) -> str:
        """Return the record as one line of JSON, with its end."""
        return json.dumps(asdict(self), allow_nan=False) + "\n"


_SERIES = ("recorded_rounds", "cumulative_regret", "cumulative_seconds", "dictionary_size")


def read_records(path: str | Path) -> tuple[list[Record], list[str]]:
    """Read the finished runs of a records file or of the directory that holds it.

    Returns:
        The records in their order, one for each key, and what was lost, a line of words for each line of the file that
        is no record, such as the last one of a run that was killed while it wrote.

    Raises:
        InputError: if there is no such file.
    """
    file = records_file(path)
    if Path(path).is_dir() and not file.exists():
        raise InputError(f"There are no finished runs in {str(path)!r}: it has no file {RECORDS_FILE}.")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"The records {str(path)!r} cannot be read: {error.strerror}.") from None
    records: dict[str, Record] = {}
    losses = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = _parse(line)
        except ValueError as error:
            losses.append(f"{file.name}, line {number}: {error}; the line is left out.")
        else:
            records.setdefault(record.key, record)
    return list(records.values()), losses


def mend_records(directory: Path) -> tuple[list[Record], list[str]]:
    """Read the records of a directory, and if the file is damaged put a whole one in its place.

    Returns:
        As ``read_records``; nothing of either if there is no file yet.
    """
    file = directory / RECORDS_FILE
    if not file.exists():
        return [], []
    records, losses = read_records(file)
    if losses or not file.read_bytes().endswith(b"\n"):
        write_text(file, "".join(record.line() for record in records))
    return records, losses


def append_records(directory: Path, records: Sequence[Record]) -> None:
    """Write records at the end of a directory's file, whole, and wait until the disk has them.

    Raises:
        FileError: if they cannot be written; ``mend_records`` removes what there is of them.
    """
    file = directory / RECORDS_FILE
    try:
        with file.open("ab") as stream:
            stream.write("".join(record.line() for record in records).encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise file_error("written", file, error) from error


def records_file(path: str | Path) -> Path:
    """Return the records file that a path names: itself, or the one in a directory."""
    return Path(path) / RECORDS_FILE if Path(path).is_dir() else Path(path)


@cache
def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "gpytorch", "botorch")}
    return {"torch_kbandits": __version__, **packages, "python": platform.python_version()}


def _parse(line: bytes) -> Record:
    """Return the record of a line; ``ValueError`` says why there is none."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is cut or is not JSON") from None
    kinds: dict[str, Any] = {each.name: getattr(each.type, "__origin__", each.type) for each in fields(Record)}
    if not isinstance(content, dict) or set(content) != set(kinds):
        raise ValueError("it is JSON but no record of a run")
    for name, kind in kinds.items():
        if not isinstance(content[name], kind if isinstance(kind, type) else kind | int):
            raise ValueError(f"its {name} is not what a record holds")
    lengths = {len(content[name]) for name in _SERIES}
    if len(lengths) > 1 or lengths == {0}:
        raise ValueError("its series have different lengths")
    return Record(**content)

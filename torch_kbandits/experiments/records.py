"""Finished runs as JSON lines in the directory of an experiment."""

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch_kbandits.errors import InputError
from torch_kbandits.files import file_error, write_text
from torch_kbandits.version import __version__

#: Finished runs, in the directory of an experiment.
RECORDS_FILE = "records.jsonl"


@dataclass(frozen=True)
class Record:
    """One finished run: what was run, and what came out.

    Args:
        key: the digest of the configuration; equal keys are the same run.
        algorithm, environment: label, name and options; the algorithm's batch.
        settings: what the algorithm was given instead of what the environment knows.
        rounds, record_every, seed: as in ``ExperimentSpec``.
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

    def __post_init__(self) -> None:
        series = self.recorded_rounds, self.cumulative_regret, self.cumulative_seconds, self.dictionary_size
        if len(set(map(len, series))) > 1 or not self.recorded_rounds:
            raise InputError("The series of a record must have equal lengths, of at least 1.")

    def line(self) -> bytes:
        """Return the record as one line of JSON, with its end."""
        return json.dumps(asdict(self), allow_nan=False).encode() + b"\n"


def read_records(path: str | Path, *, mend: bool = False) -> tuple[list[Record], list[str]]:
    """Read the finished runs of a records file or of the directory that holds it; ``InputError`` if there is none.

    Args:
        path: of the file, or of the directory.
        mend: whether a whole file is put in the place of a damaged one.

    Returns:
        The records in their order, one for each key, and what was lost, a line of words for each line of the file that
        is no record, such as the last one of a run that was killed while it wrote.
    """
    file = Path(path) / RECORDS_FILE if Path(path).is_dir() else Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"The records {str(file)!r} cannot be read: {error.strerror}.") from None
    records: dict[str, Record] = {}
    losses = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            if line.strip():
                record = Record(**json.loads(line))
                records.setdefault(record.key, record)
        except (ValueError, TypeError, RecursionError):
            losses.append(f"{file.name}, line {number}: it is cut, or is no record of a run; it is left out.")
    if mend and (losses or not content.endswith(b"\n")):
        write_text(file, b"".join(record.line() for record in records.values()).decode())
    return list(records.values()), losses


def append_record(folder: Path, record: Record) -> None:
    """Write a record at the end of a directory's file, and wait until the disk has it; a part would be mended."""
    file = folder / RECORDS_FILE
    try:
        with file.open("ab") as stream:
            stream.write(record.line())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise file_error("written", file, error) from error


@cache
def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "gpytorch", "botorch")}
    return {"torch_kbandits": __version__, **packages, "python": platform.python_version()}

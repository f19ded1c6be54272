"""The directory of an experiment: its one writer, and which experiment is in it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from torch_kbandits.errors import DamagedFileError, InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.checkpoints import clear
from torch_kbandits.experiments.spec import ExperimentSpec, parse_spec
from torch_kbandits.files import file_error, read_whole, write_text

#: The spec that was last run in a directory, and what its runs are called: key, label of environment and algorithm.
EXPERIMENT_FILE = "experiment.json"
_LOCK_FILE = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a directory, which is made if it does not exist; the system frees it with the process, however that ends.

    Raises:
        InputError: if another process, or another call in this one, holds it.
        FileError: if it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK_FILE, timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"Another run is writing to {str(folder)!r}: wait for it, or take another directory."
        ) from None
    except OSError as error:
        raise file_error("written", folder, error) from error
    try:
        yield
    finally:
        lock.release()


def changed_code(folder: Path, spec: ExperimentSpec) -> list[str]:
    """Return the names of own code that is no longer that of the experiment that was last run in a directory."""
    if not (folder / EXPERIMENT_FILE).is_file():
        return []
    before, now = own.names_in(_index(folder).get("spec", {})), own.names_in(spec.content())
    return [name for name, digest in now.items() if before.get(name, digest) != digest]


def begin(folder: Path, spec: ExperimentSpec, finished: Mapping[str, Any]) -> None:
    """Write down which experiment is run, and remove what killed processes left of runs that are finished."""
    clear(folder, list(finished))
    runs = [[trial.key, trial.environment.label, trial.algorithm.label] for trial in spec.trials()]
    index = {"name": spec.name, "spec": spec.content(), "runs": runs}
    write_text(folder / EXPERIMENT_FILE, json.dumps(index, indent=1) + "\n")


def named_runs(folder: Path) -> list[tuple[str, str, str]] | None:
    """Return key, label of environment and label of algorithm of the runs that a directory is about, in order.

    Returns:
        None if the directory does not say.

    Raises:
        DamagedFileError: if what it says cannot be read.
    """
    if not (folder / EXPERIMENT_FILE).is_file():
        return None
    index = _index(folder)
    try:
        return [(key, environment, algorithm) for key, environment, algorithm in index["runs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, error) from error


def experiment_name(folder: Path) -> str | None:
    """Return the name of the experiment that was last run in a directory, None if the directory does not say.

    Raises:
        DamagedFileError: if what it says cannot be read.
    """
    return _index(folder).get("name") if (folder / EXPERIMENT_FILE).is_file() else None


def spec_in(directory: str | Path) -> ExperimentSpec:
    """Return the experiment that was last run in a directory.

    Raises:
        InputError: if the directory holds none, or one of a version that did not write down its spec.
        DamagedFileError: if what it holds cannot be read.
    """
    folder = Path(directory)
    if not (folder / EXPERIMENT_FILE).is_file():
        raise InputError(f"{str(directory)!r} holds no experiment: kbandits run SPEC --directory DIRECTORY begins one.")
    index = _index(folder)
    if "spec" not in index:
        raise InputError(
            f"{str(directory)!r} is of a version that did not write down the spec: go on with "
            "kbandits run SPEC --directory DIRECTORY."
        )
    try:
        return parse_spec(index["spec"])
    except (InputError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error


def _index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads(read_whole(folder / EXPERIMENT_FILE))
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, error) from error
    if not isinstance(index, dict):
        raise _damaged(folder, TypeError("it is no table"))
    return index


def _damaged(folder: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{str(folder / EXPERIMENT_FILE)!r} is damaged: {error}. kbandits run SPEC --directory DIRECTORY writes it "
        "anew and keeps the finished runs."
    )

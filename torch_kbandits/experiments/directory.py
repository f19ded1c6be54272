"""The directory of an experiment: its one writer, which experiment is in it, and runs on their way."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

import torch

from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.saving import read, write
from torch_kbandits.errors import DamagedFileError, KernelBanditWarning, StateMismatchError
from torch_kbandits.experiments.loop import PlayState, Trace
from torch_kbandits.experiments.records import versions
from torch_kbandits.files import clear_drafts, file_error, locked, read_whole, write_text

#: The spec that was last run in a directory, and what its runs are called: key, label of environment and algorithm.
EXPERIMENT_FILE = "experiment.json"
_LOCK_FILE, _CHECKPOINTS, _KIND = ".lock", "checkpoints", "checkpoint"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a directory, which is made if it does not exist; the system frees it with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", folder, error) from error
    refusal = f"Another run is writing to {str(folder)!r}: wait for it, or take another directory."
    lock = locked(folder / _LOCK_FILE, refusal)
    try:
        yield
    finally:
        lock.release()


def begin(folder: Path, name: str, content: Mapping[str, Any], runs: Sequence[Sequence[str]]) -> None:
    """Write down which experiment is run: its name, its spec as a table, and its runs."""
    text = json.dumps({"name": name, "spec": content, "runs": runs}, indent=1)
    write_text(folder / EXPERIMENT_FILE, text + "\n")


def index_of(folder: Path) -> dict[str, Any]:
    """Return what a directory says of the experiment that was last run there: name, spec and runs; {} if nothing."""
    if not (folder / EXPERIMENT_FILE).is_file():
        return {}
    try:
        index = json.loads(read_whole(folder / EXPERIMENT_FILE))
        index["runs"] = [(key, environment, algorithm) for key, environment, algorithm in index.get("runs", ())]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(folder, error) from error
    return index


def damaged(folder: Path, error: Exception) -> DamagedFileError:
    """Return the error for an experiment that cannot be read."""
    return DamagedFileError(
        f"{str(folder / EXPERIMENT_FILE)!r} is damaged: {error}. kbandits run SPEC --directory DIRECTORY writes it "
        "anew and keeps the finished runs."
    )


@dataclass(frozen=True)
class Checkpoint:
    """A run on its way, kept so that it goes on from there after a kill; nothing is written without a directory."""

    directory: Path | None
    key: str

    @property
    def file(self) -> Path | None:
        """Where it is, or would be."""
        return None if self.directory is None else self.directory / _CHECKPOINTS / f"{self.key}.kb"

    def keep(self, bandit: Bandit, state: PlayState, warnings: Sequence[str]) -> None:
        """Write where a run is, and let the bandit go on from what was written.

        It computes its posterior afresh, as the one that is loaded would. So a run that was killed rounds as one that
        was not, and both come out equal. Where the file cannot be written a warning says so and the run goes on.
        """
        known, trace, file = bandit.state_dict(), state.trace, self.file
        content = {
            "versions": versions(),
            "state": known,
            "played": torch.cat(state.played),
            "batches": [len(X) for X in state.played],
            "seconds": state.seconds,
            "recorded": [trace.rounds, trace.seconds, trace.dictionary_size],
            "generator": torch.get_rng_state(),
            "warnings": list(warnings),
        }
        if file is not None:
            try:
                file.parent.mkdir(exist_ok=True)
                write(file, _KIND, content)
            except OSError as error:
                warn(f"A run goes on without a checkpoint: {error}", KernelBanditWarning, stacklevel=2)
        bandit.load_state_dict(known)

    def restore(self, bandit: Bandit) -> tuple[PlayState, list[str]]:
        """Bring a new bandit to where the run was; return how far that is, and the warnings that it had drawn.

        Where there is no file, or none that serves, the bandit stays as it is.
        """
        if self.file is None or not self.file.exists():
            return PlayState(), []
        before = torch.get_rng_state()
        try:
            content = read(self.file, _KIND)
            if content["versions"] != versions():
                raise StateMismatchError(f"it is of other versions, {content['versions']}.")
            rounds, seconds, sizes = content["recorded"]
            played = list(content["played"].split(content["batches"]))
            state = PlayState(played, content["seconds"], Trace(rounds, [], seconds, sizes))
            torch.set_rng_state(content["generator"])
            bandit.load_state_dict(content["state"])
        except Exception as error:  # whatever is wrong with a file, the run is made
            torch.set_rng_state(before)
            return PlayState(), [f"A run begins anew, since its checkpoint does not serve: {error}"]
        return state, content["warnings"]


def clear(directory: Path, finished: Sequence[str]) -> None:
    """Remove the checkpoints of finished runs, and what killed processes left; nobody may be writing there."""
    clear_drafts(directory)
    folder = directory / _CHECKPOINTS
    if folder.is_dir():
        clear_drafts(folder)
        for key in finished:
            (folder / f"{key}.kb").unlink(missing_ok=True)
        with suppress(OSError):  # unless runs on their way are in it
            folder.rmdir()

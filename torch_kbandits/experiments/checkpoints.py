"""Runs on their way: a bandit and what was measured of it, kept so that a killed run goes on from there."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

import torch

from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.saving import read, write
from torch_kbandits.errors import KernelBanditWarning, StateMismatchError
from torch_kbandits.experiments.loop import Progress, Trace
from torch_kbandits.experiments.records import versions
from torch_kbandits.files import clear_drafts

#: Where in the directory of an experiment the runs on their way are.
FOLDER = "checkpoints"
_KIND = "checkpoint"


@dataclass(frozen=True)
class Kept:
    """What a checkpoint held: how far the run was, and the warnings that it had drawn."""

    progress: Progress
    warnings: list[str]


@dataclass(frozen=True)
class Checkpoint:
    """The file of a run on its way.

    Args:
        directory: of the experiment; None where nothing is written.
        key: of the run.
    """

    directory: Path | None
    key: str

    @property
    def file(self) -> Path | None:
        """Where it is, or would be."""
        return None if self.directory is None else self.directory / FOLDER / f"{self.key}.kb"

    def keep(self, bandit: Bandit, progress: Progress, warnings: Sequence[str]) -> None:
        """Write where a run is, and let the bandit go on from what was written.

        It computes its posterior afresh, as the one that is loaded would. So a run that was killed rounds as one that
        was not, and both come out equal. Where the file cannot be written a warning says so and the run goes on.

        Cost: that of ``Bandit.state_dict`` and ``Bandit.load_state_dict``.
        """
        state, trace, file = bandit.state_dict(), progress.trace, self.file
        content = {
            "versions": versions(),
            "state": state,
            "played": torch.cat(progress.played),
            "batches": [len(X) for X in progress.played],
            "seconds": progress.seconds,
            "recorded": [trace.rounds, trace.seconds, trace.dictionary_size],
            "generator": torch.get_rng_state(),
            "warnings": list(warnings),
        }
        if file is not None:
            try:
                file.parent.mkdir(exist_ok=True)
                write(file, _KIND, content, algorithm=type(bandit).__name__, rounds=progress.rounds)
            except OSError as error:
                warn(f"A run goes on without a checkpoint: {error}", KernelBanditWarning, stacklevel=2)
        bandit.load_state_dict(state)

    def restore(self, bandit: Bandit) -> Kept:
        """Bring a new bandit to where the run was; where there is no file, or none that serves, it stays as it is."""
        if self.file is None or not self.file.exists():
            return Kept(Progress(), [])
        before = torch.get_rng_state()
        try:
            content = read(self.file, _KIND)
            kept = _kept(content)
            torch.set_rng_state(content["generator"])
            bandit.load_state_dict(content["state"])
        except Exception as error:  # whatever is wrong with a file, the run is made
            torch.set_rng_state(before)
            return Kept(Progress(), [f"A run begins anew, since its checkpoint does not serve: {error}"])
        return kept

    def drop(self) -> None:
        """Remove the file."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def clear(directory: Path, finished: Sequence[str]) -> None:
    """Remove the checkpoints of finished runs, and what killed processes left; nobody may be writing there."""
    clear_drafts(directory)
    folder = directory / FOLDER
    if folder.is_dir():
        clear_drafts(folder)
        for key in finished:
            Checkpoint(directory, key).drop()
        with suppress(OSError):  # unless runs on their way are in it
            folder.rmdir()


def _kept(content: dict[str, Any]) -> Kept:
    if content["versions"] != versions():
        raise StateMismatchError(f"it is of other versions, {content['versions']}.")
    rounds, seconds, sizes = content["recorded"]
    played = list(content["played"].split(content["batches"]))
    return Kept(Progress(played, content["seconds"], Trace(rounds, [], seconds, sizes)), content["warnings"])

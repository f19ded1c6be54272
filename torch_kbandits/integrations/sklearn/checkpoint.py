"""What a search evaluated so far, in a file, so that one that was killed goes on from there."""

import textwrap
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.bandit.saving import read, write
from torch_kbandits.errors import DamagedFileError, FileError, InputError, KernelBanditWarning, StateMismatchError

_KIND = "search"

#: Characters that a message shows of a setting.
_SHOWN = 160


class Batch(NamedTuple):
    """Configurations that were evaluated together.

    Attributes:
        points: their encodings, (q, d).
        rows: what scikit-learn measured, one for each configuration and split; empty if every fit failed.
    """

    points: Tensor
    rows: list[dict[str, Any]]


class SearchCheckpoint:
    """The batches that a search evaluated, each kept as soon as it is; read from a file if it is there.

    Args:
        path: of the file; None keeps nothing.
        words: what must agree between the search that wrote a file and the one that reads it, by name.

    Raises:
        InputError: if the path is none.
        FileError: if the file cannot be read, or none can be written there.
        DamagedFileError: if it is cut, changed or no checkpoint's.
        StateMismatchError: if it is of another search; the message names each difference. Then it is as it was.
    """

    def __init__(self, path: Any, words: Mapping[str, str]) -> None:
        if not (path is None or isinstance(path, (str, PathLike))):
            raise InputError(f"checkpoint must be the path of a file or None, got {path!r}.")
        self.path, self.words = path, dict(words)
        self.splits: str | None = None
        self.batches: list[Batch] = []
        if path is None:
            return
        if Path(path).exists():
            self._read(path)
        else:
            self._write(path)  # says now, and not after hours, that this cannot be done

    def keep(self, batch: Batch, splits: str) -> None:
        """Write one more batch; a search goes on without its checkpoint, with a warning, where that cannot be done.

        Nothing is written before a fit succeeded: a search of which all failed is to fail again.

        Args:
            batch: what was evaluated.
            splits: a digest of the splits.
        """
        if self.path is None:
            return
        self.batches, self.splits = [*self.batches, batch], splits
        if not any(each.rows for each in self.batches):
            return
        try:
            self._write(self.path)
        except FileError as error:
            warn(f"The search goes on without its checkpoint: {error}", KernelBanditWarning, stacklevel=2)

    def _write(self, path: Any) -> None:
        batches = [{"points": batch.points, "rows": [_plain(row) for row in batch.rows]} for batch in self.batches]
        content = {"words": self.words, "splits": self.splits, "batches": batches}
        write(path, _KIND, content, configurations=sum(len(batch.points) for batch in self.batches))

    def _read(self, path: Any) -> None:
        try:
            content = read(path, _KIND)
            words, self.splits = content["words"], content["splits"]
            self.batches = [Batch(batch["points"], batch["rows"]) for batch in content["batches"]]
            known = all(isinstance(batch.points, Tensor) and isinstance(batch.rows, list) for batch in self.batches)
            if not known or not isinstance(words, dict):
                raise TypeError("its parts are of other kinds")
        except (KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{fspath(path)!r} is no checkpoint of a search, or of another version: {error!r}."
            ) from error
        except DamagedFileError as error:
            raise DamagedFileError(
                f"{error} Without the file, or with another checkpoint=, the search begins anew."
            ) from None
        names = [*self.words, *(name for name in words if name not in self.words)]
        differing = [name for name in names if words.get(name) != self.words.get(name)]
        if differing:
            found = "; ".join(
                f"{name}: {_shown(words, name)} there, {_shown(self.words, name)} here" for name in differing
            )
            raise StateMismatchError(
                f"{fspath(path)!r} is the checkpoint of another search. {found}. Give the same words and data to go on "
                "with it, or another checkpoint=."
            )


def _shown(words: Mapping[str, str], name: str) -> str:
    return textwrap.shorten(str(words.get(name, "nothing")), _SHOWN, placeholder=" …")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with plain numbers in place of NumPy's."""
    return {name: _plain(part) if isinstance(part, dict) else _number(part) for name, part in row.items()}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, torch.Tensor)) else value

"""What a search evaluated so far, in a file, so that one that was killed goes on from there."""

import dataclasses
import textwrap
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import joblib
import numpy as np
import torch
from torch import Tensor

from torch_kbandits.bandit.saving import read, settings_of, write
from torch_kbandits.errors import DamagedFileError, FileError, InputError, KernelBanditWarning, StateMismatchError
from torch_kbandits.integrations.sklearn.evaluations import Row

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
    rows: list[Row]


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
        if path is not None and Path(path).exists():
            self._read(path)
        elif path is not None:
            self._write(path)  # says now, and not after hours, that this cannot be done

    def keep(self, batch: Batch, splits: str) -> None:
        """Write one more batch, evaluated on splits of a digest; where that cannot be done, a warning says so.

        Nothing is written before a fit succeeded: a search of which all failed is to fail again.
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
        batches = [{"points": batch.points, "rows": _plain(batch.rows)} for batch in self.batches]
        content = {"words": self.words, "splits": self.splits, "batches": batches}
        write(path, _KIND, content)

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
        differing = [name for name in {**self.words, **words} if words.get(name) != self.words.get(name)]
        if differing:
            found = "; ".join(f"{name}: {_of(words, name)} there, {_of(self.words, name)} here" for name in differing)
            raise StateMismatchError(
                f"{fspath(path)!r} is the checkpoint of another search. {found}. Give the same words and data to go on "
                "with it, or another checkpoint=."
            )


def described(value: Any) -> str:
    """Return words for a setting or data, the same in every process: itself if it is plain, a name, or a digest."""
    if isinstance(value, np.generic | torch.Tensor):
        value = value.item() if isinstance(value, np.generic) else value.detach().cpu().numpy()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {described(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(described, value)) + "]"
    if hasattr(value, "__module__") and hasattr(value, "__qualname__"):  # a class or a function
        return f"{value.__module__}.{value.__qualname__}"
    name = " ".join(str(getattr(value, word)) for word in ("shape", "dtype") if hasattr(value, word))
    name = name or type(value).__qualname__
    if isinstance(value, torch.nn.Module) or dataclasses.is_dataclass(value):  # tensors are pickled with addresses
        return repr(settings_of(name, value))
    try:
        return f"{name} {joblib.hash(value)}"
    except Exception:  # pickling raises many kinds
        return name


def _of(words: Mapping[str, str], name: str) -> str:
    return textwrap.shorten(str(words.get(name, "nothing")), _SHOWN, placeholder=" …")


def _plain(value: Any) -> Any:
    """Return rows with plain numbers in place of NumPy's."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.item() if isinstance(value, (np.generic, Tensor)) else value

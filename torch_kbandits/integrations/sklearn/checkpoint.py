"""What a search evaluated so far, in a file, so that one that was killed goes on from there."""

import dataclasses
import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from warnings import warn

import joblib
import numpy as np
from torch import Tensor, nn

from torch_kbandits.bandit.saving import check_same, read, settings_of, write
from torch_kbandits.errors import DamagedFileError, FileError, InputError, KernelBanditWarning, StateMismatchError
from torch_kbandits.integrations.sklearn.evaluations import Row

_KIND = "search"

#: Encodings of configurations that were evaluated together, (q, d), and their rows, none if every fit failed.
Batch = tuple[Tensor, list[Row]]


class SearchCheckpoint:
    """The batches that a search evaluated, each kept as soon as it is; read from a file if it is there.

    The settings must agree between the search that wrote a file and the one that reads it; ``KernelBanditSearchCV.fit``
    has the errors. ``splits`` is the digest of the splits, None before any.
    """

    def __init__(self, path: Any, settings: Mapping[str, Any]) -> None:
        if not (path is None or isinstance(path, (str, PathLike))):
            raise InputError(f"checkpoint must be the path of a file or None, got {path!r}.")
        self._path: Any = path
        self._settings: dict[str, Any] = {}
        for name, value in settings.items():
            self._settings |= settings_of(name, described(value))
        self.splits: str | None = None
        self.batches: list[Batch] = []
        if path is not None and Path(path).exists():
            self._read()
        elif path is not None:
            self._write()  # says now, and not after hours, that this cannot be done

    def keep(self, points: Tensor, rows: list[Row], splits: str) -> None:
        """Write one more batch, evaluated on splits of a digest; where that cannot be done, a warning says so.

        Nothing is written before a fit succeeded: a search of which all failed is to fail again.
        """
        self.batches, self.splits = [*self.batches, (points, rows)], splits
        if self._path is None or not any(rows for _, rows in self.batches):
            return
        try:
            self._write()
        except FileError as error:
            warn(f"The search goes on without its checkpoint: {error}", KernelBanditWarning, stacklevel=2)

    def _write(self) -> None:
        batches = [[points, json.loads(json.dumps(rows, default=float))] for points, rows in self.batches]
        write(self._path, _KIND, {"settings": self._settings, "splits": self.splits, "batches": batches})

    def _read(self) -> None:
        name = repr(fspath(self._path))
        try:
            content = read(self._path, _KIND)
            settings, self.splits = content["settings"], content["splits"]
            self.batches = [(points, rows) for points, rows in content["batches"]]
        except (DamagedFileError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{name} is no checkpoint of a search that can be read: {error} Without the file, or with another "
                "checkpoint=, the search begins anew."
            ) from error
        try:
            check_same(settings, self._settings)
        except StateMismatchError as error:
            raise StateMismatchError(
                f"{name} is the checkpoint of another search. {error} Give the same words and data to go on with it, "
                "or another checkpoint=."
            ) from None


def described(value: Any) -> Any:
    """Return a setting as ``settings_of`` takes it: classes of estimators, digests of data and other objects."""
    if isinstance(value, (list, tuple)):
        return [described(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): described(part) for key, part in value.items()}
    if isinstance(value, (np.generic, float, bytes, complex)):
        return repr(value)
    if hasattr(value, "get_params") and not isinstance(value, type):  # its parameters are listed as well
        return type(value)
    is_known = value is None or isinstance(value, (bool, int, float, str, Tensor, nn.Module))
    if is_known or dataclasses.is_dataclass(value) or hasattr(value, "__qualname__"):
        return value
    try:
        return f"{type(value).__name__} {getattr(value, 'shape', '')} {joblib.hash(value)}"
    except Exception:  # pickling raises many kinds
        return type(value).__name__

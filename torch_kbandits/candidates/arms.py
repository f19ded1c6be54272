"""Finite sets of arms, in memory or in a file; those are read block by block, so that they need not fit into memory."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import LastingCandidates
from torch_kbandits.candidates.listing import checked_names, names_of
from torch_kbandits.errors import ArmsChangedError, InputError
from torch_kbandits.numerics.device import points_at_a_time
from torch_kbandits.numerics.rows import among

#: Bytes that are read at a time where all arms are gone through.
_BLOCK_BYTES = 2**22

_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}

_ADVICE = (
    "Arms must stay what they were for a whole run. To go on, build the bandit on the file as it is now and "
    "replay(history) what was told."
)


@dataclass(frozen=True)
class MappedFile:
    """Where an array is in a file, as ``numpy.memmap`` takes it."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: np.memmap) -> "MappedFile":
        """Return the place of an array that was mapped; no part of another, and none that may differ from the file."""
        if not isinstance(array.base, mmap) or array.mode == "c" or array.filename is None:
            hint = "the whole array of a file, as numpy.load(path, mmap_mode='r') returns it"
            raise InputError(f"candidates must be {hint}, got a part or a copy of {array.filename}: save that first.")
        order = "C" if array.flags.c_contiguous else "F"
        return cls(str(Path(array.filename).absolute()), array.dtype.str, array.offset, array.shape, order)

    def stamp(self) -> tuple[int, int]:
        """Return the size and the modification time of the file; ``OSError`` if it is gone. Cost: one ``os.stat``."""
        status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{self.path} is no regular file")
        return status.st_size, status.st_mtime_ns

    def mapped(self) -> np.memmap:
        """Return the array, or refuse a file that has none."""
        try:
            self.stamp()
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self.path} cannot be mapped: {error}.") from error

    def read_as(self, wanted: torch.dtype | None) -> torch.dtype:
        """Return in which dtype arms are read, that of the file unless one is wanted; refuse what is no arms."""
        array = self.mapped()
        if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
            hint = "an array (A, d), with an arm and a column, of real numbers"
            raise InputError(f"{self.path} must have {hint}, got shape {array.shape} and NumPy dtype {array.dtype}.")
        found = wanted or _DTYPES.get(array.dtype.newbyteorder("="))
        if found is None:
            hint = "give Arms(..., dtype=torch.float64), which converts its blocks"
            raise InputError(f"{self.path} must have dtype float64 or float32, got {array.dtype}: {hint}.")
        return found


class ArmSource:
    """A list of arms (A, d) that never changes, read by blocks or by rows. Nobody writes to what it returns.

    A file must stay as it is while a bandit uses it. Its size and modification time are checked before every read. It
    is mapped for each read, so that pages already read do not stay with the process.

    Args:
        arms: (A, d), A >= 1, finite, as ``checks.points`` takes them, of which a copy is kept; or an array of a file,
            ``numpy.load(path, mmap_mode="r")``, or its place, all of which is gone through once.
        dtype: to which numbers are converted; None for theirs, which must be float64 or float32.

    Attributes:
        tensor, file: all arms (A, d) if they are in memory, else None; and where they are otherwise.
        given: what makes the same arms again, with their dtype: they, or where they are.
        ranges: the least and the largest value of each column, (2, d), in double precision.
    """

    _fingerprint: str | None = None
    _asked_about: tuple[Tensor, Tensor] | None = None

    def __init__(self, arms: Any, dtype: torch.dtype | None = None) -> None:
        if dtype is not None:
            checks.precision("dtype", dtype)
        arms = MappedFile.of(arms) if isinstance(arms, np.memmap) else arms
        self.file = arms if isinstance(arms, MappedFile) else None
        if self.file is not None:
            example = torch.empty(0, self.file.shape[-1], dtype=self.file.read_as(dtype))
            self.given, self.tensor, self._stamp = self.file, None, self.file.stamp()
        else:
            arms = checks.listed_points("candidates", arms)
            self.given = self.tensor = example = arms.detach().to(dtype, copy=True)
        self._size = arms.shape[0]
        self.dimension, self.dtype, self.device = example.shape[-1], example.dtype, example.device
        ends = list[Tensor]()
        for start, block in self.blocks():
            if self.file is not None:
                _check(self.file.path, start, block)
            ends.append(torch.stack(block.aminmax(dim=0)).cpu().double())
        self.ranges = torch.stack(torch.cat(ends).aminmax(dim=0))

    def __len__(self) -> int:
        return self._size

    def block(self, start: int, stop: int) -> Tensor:
        """Return the arms of rows start … stop − 1; as all that reads, ``ArmsChangedError`` if they are others now."""
        return self._read(slice(start, stop)) if self.tensor is None else self.tensor[start:stop]

    def rows(self, index: Tensor) -> Tensor:
        """Return the arms of rows ``index`` (k,), (k, d), as a new tensor."""
        return self._read(index.numpy()) if self.tensor is None else self.tensor.index_select(0, index)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield all arms in order, as the first row and the arms (k, d) of blocks, of 4 MiB on a CPU."""
        cached = _BLOCK_BYTES // (self.dimension * self.dtype.itemsize)
        size = points_at_a_time(self.device, cached, self.dimension)
        for start in range(0, len(self), size):
            yield start, self.block(start, min(start + size, len(self)))

    def verify(self) -> None:
        """Raise ``ArmsChangedError`` if the file's size or modification time changed. Cost: one ``os.stat``."""
        if self.file is None:
            return
        try:
            now = self.file.stamp()
        except OSError as error:
            raise ArmsChangedError(f"The file of the arms is gone: {error}. {_ADVICE}") from error
        for name, old, new in zip(("size in bytes", "modification time in ns"), self._stamp, now, strict=True):
            if old != new:
                raise ArmsChangedError(f"{self.file.path} changed: its {name} was {old}, is {new}. {_ADVICE}")

    def parts(self) -> Iterator[Tensor]:
        """Yield the arms of these blocks."""
        return (block for _, block in self.blocks())

    def find(self, point: Tensor) -> int | None:
        """Return the first row whose numbers equal those of a point (d,), or None. Cost: O(A d)."""
        rows = (start + int(row) for start, block in self.blocks() for row in (block == point).all(-1).nonzero())
        return next(rows, None)

    def has(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool. Cost: a pass, unless these were asked about last."""
        last, points = self._asked_about, points.cpu()  # another thread may replace it
        if last is None or not torch.equal(last[0], points):
            found = torch.zeros(len(points), dtype=torch.bool)
            for _, block in self.blocks():
                found |= among(points.to(block.device), block).cpu()
            self._asked_about = last = points.clone(), found
        return last[1]

    def fingerprint(self) -> str:
        """Return a digest of the exact bytes of all arms, the same wherever the arms are; O(A d) once."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for _, block in self.blocks():
                digest.update(block.cpu().contiguous().numpy().data.cast("B"))
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def _read(self, rows: Any) -> Tensor:
        self.verify()
        values = cast(MappedFile, self.file).mapped()[rows]
        dtype = np.float64 if self.dtype == torch.float64 else np.float32
        with np.errstate(over="ignore"):  # what overflows is infinite and was refused when the file was opened
            return torch.from_numpy(np.array(values, dtype=dtype, order="C", subok=False))


def _check(path: str, start: int, block: Tensor) -> None:
    """Refuse a block of a file that is not finite, or out of reach."""
    if len(bad := (~torch.isfinite(block)).nonzero()):
        row, column = bad[0].tolist()
        what = f"in {block.dtype} the first that is not is {float(block[row, column])}"
        raise InputError(f"{path} must have finite numbers; {what} in row {start + row}, column {column}.")
    checks.within_reach(f"{path}, rows {start} to {start + len(block) - 1},", block)


class Arms(LastingCandidates):
    """A finite set of arms. Duplicate rows are allowed.

    Args:
        arms: (A, d), A >= 1, finite: a tensor in double or single precision, a list, an array or a data frame; or an
            array of a file that need not fit into memory, ``numpy.load(path, mmap_mode="r")``; or an ``ArmSource``.
        dtype: to which numbers are converted, those of a file block by block; see ``ArmSource``.
        names: of the arms, (A,), all different: texts, to which others are converted. None for the index of a data
            frame that is more than a numbering and tells its rows apart.

    Attributes:
        arm_names: these names, (A,); None for none.
    """

    def __init__(self, arms: Any, dtype: torch.dtype | None = None, *, names: Any = None) -> None:
        self.source = source = arms if isinstance(arms, ArmSource) else ArmSource(arms, dtype)
        self.arm_names = names_of(arms) if names is None else checked_names(names, len(source))
        self.is_stored, self.device, self.ranges = source.tensor is None, source.device, source.ranges
        self.example = source.block(0, 1).cpu().clone()
        self.domain = Domain(source.tensor, blocks=source.parts if self.is_stored else None)

    @property
    def on_host(self) -> "Arms":
        """These arms on the CPU; asked for and told they are where they were."""
        if self.source.tensor is None or self.source.tensor.is_cpu:
            return self
        arms = Arms(self.source.tensor.cpu(), names=self.arm_names)
        arms.device = self.device
        return arms

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool."""
        return self.source.has(points)

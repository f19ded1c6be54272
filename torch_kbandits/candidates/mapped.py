"""Arms in files."""

import os
import stat
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.errors import ArmsChangedError, InputError

_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


class MappedArms(ArmSource):
    """Arms in a NumPy file that is memory-mapped for each block read, so that they need not fit into memory.

    The file must stay as it is while a bandit uses it. Its size and modification time are looked at before every read;
    a change that keeps both is not seen.

    Args:
        path: a file ``.npy`` with an array (A, d), A >= 1, of finite numbers.
        dtype: ``torch.float64`` or ``torch.float32``, to which blocks are converted; None for the dtype of the file,
            which must then be one of the two.

    Raises:
        InputError: if the file cannot be read or its array does not fit; all of it is gone through once, in blocks.

    Cost: one pass through the file when made.
    """

    def __init__(self, path: str | PathLike[str], dtype: torch.dtype | None = None) -> None:
        self.path = Path(path).absolute()
        try:
            self._stamp = _stamp(self.path)
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                f"{self.path} cannot be mapped as a NumPy file: {error}. Write one with numpy.save."
            ) from error
        if not isinstance(array, np.memmap):
            array.close()
            raise InputError(f"{self.path} is an archive of arrays: give a .npy file, as numpy.save writes it.")
        if array.ndim != 2 or 0 in array.shape:
            raise InputError(
                f"{self.path} must have an array (A, d) with at least one arm and one column, got shape {array.shape}."
            )
        self._dtype = _resolve_dtype(self.path, array.dtype, dtype)
        self._file_dtype, self._shape, self._offset = array.dtype, array.shape, array.offset
        self._order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
        del array
        self._check_finite()

    def __len__(self) -> int:
        return self._shape[0]

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self._shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of all blocks."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def block(self, start: int, stop: int) -> Tensor:
        """Return the arms of rows start … stop − 1, (stop − start, d), read from the file."""
        return self._copied(self._mapped()[start:stop])

    def rows(self, index: Tensor) -> Tensor:
        """Return the arms of rows ``index`` (k,), (k, d), read from the file."""
        return self._copied(self._mapped()[index.numpy()])

    def verify(self) -> None:
        """Raise if the file's size or modification time changed. Cost: one ``os.stat``."""
        try:
            now = _stamp(self.path)
        except OSError as error:
            raise ArmsChangedError(f"The file of the arms is gone: {error}. {_ADVICE}") from error
        if now != self._stamp:
            changes = [
                f"{name} was {old}, is {new}"
                for name, old, new in zip(("size in bytes", "modification time in ns"), self._stamp, now, strict=True)
                if old != new
            ]
            raise ArmsChangedError(f"{self.path} changed under the bandit: {'; '.join(changes)}. {_ADVICE}")

    def __repr__(self) -> str:
        return f"MappedArms({str(self.path)!r}, dtype={self._dtype})"

    def _mapped(self) -> NDArray[np.generic]:
        """Return the file's array; a mapping for each read, so that pages already read do not stay with the process."""
        self.verify()
        return np.memmap(self.path, self._file_dtype, "r", self._offset, self._shape, self._order)

    def _copied(self, values: NDArray[np.generic]) -> Tensor:
        with np.errstate(over="ignore"):  # what overflows is infinite and was refused when the file was opened
            return torch.from_numpy(np.array(values, dtype=_numpy_dtype(self._dtype), order="C", subok=False))

    def _check_finite(self) -> None:
        for start, block in self.blocks():
            bad = (~torch.isfinite(block)).nonzero()
            if len(bad):
                row, column = bad[0].tolist()
                raise InputError(
                    f"{self.path} must have finite numbers only; in {self._dtype} the first that is not is "
                    f"{float(block[row, column])} in row {start + row}, column {column}."
                )
            checks.within_reach(f"{self.path}, rows {start} to {start + len(block) - 1},", block)


_ADVICE = (
    "Arms must stay what they were for a whole run. To go on, build the bandit on the file as it is now and "
    "replay(history) what was told."
)


def _stamp(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is no regular file")
    return status.st_size, status.st_mtime_ns


def _numpy_dtype(dtype: torch.dtype) -> np.dtype:
    return next(theirs for theirs, ours in _DTYPES.items() if ours == dtype)


def _resolve_dtype(path: Path, found: np.dtype, wanted: torch.dtype | None) -> torch.dtype:
    """Return the dtype of blocks of a file, or refuse it."""
    if wanted is not None:
        checks.precision("dtype", wanted)
        if found.kind not in "fiu":
            raise InputError(f"{path} must have real numbers, got the NumPy dtype {found}.")
        return wanted
    dtype = _DTYPES.get(found.newbyteorder("="))
    if dtype is None:
        raise InputError(
            f"{path} must have dtype float64 or float32, got {found}: give dtype=torch.float64 to convert its blocks, "
            "or write the file in that dtype."
        )
    return dtype

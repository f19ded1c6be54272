"""Where arms come from. Everything above reads them block by block, so that they need not fit into memory."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.rows import among

#: Bytes that are read at a time where all arms are gone through.
_BLOCK_BYTES = 2**22


class ArmSource(ABC):
    """A list of arms (A, d) that never changes, read by blocks or by rows. Nobody writes to what it returns."""

    #: All arms (A, d) if they are in memory, else None.
    tensor: Tensor | None = None

    #: How many arms are read at a time where all are gone through; None: as many as 4 MiB hold, and more
    #: off the CPU.
    block_length: int | None = None

    _fingerprint: str | None = None
    _ranges: Tensor | None = None
    _asked_about: tuple[Tensor, Tensor] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number A of arms, at least 1."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number d of columns."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Dtype of all blocks, double or single precision."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of all blocks."""

    @abstractmethod
    def block(self, start: int, stop: int) -> Tensor:
        """Return the arms of rows start … stop − 1, (stop − start, d), for 0 <= start <= stop <= A.

        Raises:
            ArmsChangedError: if the arms are no longer what they were; so do the other methods that read.
        """

    @abstractmethod
    def rows(self, index: Tensor) -> Tensor:
        """Return the arms of rows ``index`` (k,), (k, d), as a new tensor."""

    @abstractmethod
    def verify(self) -> None:
        """Raise ``ArmsChangedError`` if it is cheap to see that the arms are no longer what they were."""

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield all arms in order, as the first row and the arms (k, d) of blocks that suit the source."""
        cached = _BLOCK_BYTES // (self.dimension * self.dtype.itemsize)
        size = self.block_length or points_at_a_time(self.device, cached, self.dimension)
        for start in range(0, len(self), size):
            yield start, self.block(start, min(start + size, len(self)))

    def find(self, point: Tensor) -> int | None:
        """Return the first row whose numbers equal those of a point (d,), or None. Cost: O(A d)."""
        for start, block in self.blocks():
            matches = (block == point).all(-1).nonzero()
            if len(matches):
                return start + int(matches[0])
        return None

    def has(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool. Cost: a pass, unless these were asked about last."""
        last, points = self._asked_about, points.cpu()  # another thread may replace it
        if last is None or not torch.equal(last[0], points):
            found = torch.zeros(len(points), dtype=torch.bool)
            for _, block in self.blocks():
                found |= among(points.to(block.device), block).cpu()
            last = points.clone(), found
            self._asked_about = last
        return last[1]

    def fingerprint(self) -> str:
        """Return a digest of the exact bytes of all arms, the same for every source of the same arms; O(A d) once."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for _, block in self.blocks():
                digest.update(raw_bytes(block))
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def ranges(self) -> Tensor:
        """Return the least and the largest value of each column, (2, d), in double precision. Cost: O(A d), once."""
        if self._ranges is None:
            ends = torch.cat([torch.stack(block.aminmax(dim=0)).cpu().double() for _, block in self.blocks()])
            self._ranges = torch.stack(ends.aminmax(dim=0))
        return self._ranges


class TensorArms(ArmSource):
    """Arms in memory.

    Args:
        arms: (A, d), A >= 1, finite, as ``checks.points`` takes them; a copy is kept.

    Raises:
        InputError: if there is no arm or the tensor does not fit.
    """

    def __init__(self, arms: Any) -> None:
        arms = checks.points("candidates", arms)
        if arms.dim() != 2 or len(arms) == 0:
            raise InputError(f"candidates must be (A, d) with at least one arm, got {checks.describe(arms)}.")
        self.tensor = self._arms = arms.detach().clone()

    def __len__(self) -> int:
        return len(self._arms)

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self._arms.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the tensor."""
        return self._arms.dtype

    @property
    def device(self) -> torch.device:
        """Device of the tensor."""
        return self._arms.device

    def block(self, start: int, stop: int) -> Tensor:
        """Return the arms of rows start … stop − 1 as a view."""
        return self._arms[start:stop]

    def rows(self, index: Tensor) -> Tensor:
        """Return the arms of rows ``index`` (k,), (k, d)."""
        return self._arms.index_select(0, index)

    def verify(self) -> None:
        """Do nothing: nobody else has the copy."""


def as_source(arms: Any) -> ArmSource:
    """Return a source of arms, whether they are given as one or as numbers (A, d)."""
    return arms if isinstance(arms, ArmSource) else TensorArms(arms)


def raw_bytes(block: Tensor) -> memoryview:
    """Return the bytes of a tensor, row by row."""
    return block.detach().cpu().contiguous().numpy().data.cast("B")

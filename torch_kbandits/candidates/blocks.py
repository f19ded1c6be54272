"""Arms that are computed when they are read."""

import hashlib
import zlib
from collections.abc import Callable

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates.sources import ArmSource, raw_bytes
from torch_kbandits.errors import ArmsChangedError, InputError


class ArmBlocks(ArmSource):
    """Arms that a function computes block by block, whenever they are read; one block at a time is in memory.

    The function must return the same arms whenever it is called with the same number. A checksum of each block sees
    to that.

    Args:
        function: from the number of a block, 0 … num_blocks − 1, to its arms (k, d), k >= 1, finite, in double or
            single precision. All blocks have the same k, but for the last, which may be shorter.
        num_blocks: number of blocks.

    Raises:
        InputError: if a block does not fit; all are computed once.

    Cost: one call a block when made, and for each pass through the arms. A single row costs a call, unless it is of
    the block that was read last: blocks of some 10,000 arms are a good size.
    """

    def __init__(self, function: Callable[[int], Tensor], num_blocks: int) -> None:
        if not callable(function):
            raise InputError(
                f"function must take a block's number and return its arms, got {checks.describe(function)}."
            )
        num_blocks = checks.size("num_blocks", num_blocks)
        self._function = function
        first = _checked(function(0), 0, None)
        self._empty, self._length = first[:0].clone(), len(first)
        self.block_length = self._length
        self._last = 0, first
        self._checksums: list[int] = []
        digest = hashlib.sha256()
        for number in range(num_blocks):
            block = first if number == 0 else _checked(function(number), number, first)
            if len(block) > self._length or (len(block) < self._length and number < num_blocks - 1):
                raise InputError(
                    f"All blocks must have as many arms as block 0, {self._length}, and only the last may have fewer; "
                    f"block {number} of {num_blocks} has {len(block)}."
                )
            self._checksums.append(zlib.crc32(raw_bytes(block)))
            digest.update(raw_bytes(block))
            self._size = number * self._length + len(block)
        self._fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return self._size

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self._empty.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of all blocks."""
        return self._empty.dtype

    @property
    def device(self) -> torch.device:
        """Device of all blocks."""
        return self._empty.device

    def block(self, start: int, stop: int) -> Tensor:
        """Return the arms of rows start … stop − 1, (stop − start, d), whatever blocks they come from."""
        parts = [
            self._computed(number)[max(start - first, 0) : stop - first]
            for number, first in ((number, number * self._length) for number in self._numbers(start, stop))
        ]
        return parts[0] if len(parts) == 1 else torch.cat([self._empty, *parts])

    def rows(self, index: Tensor) -> Tensor:
        """Return the arms of rows ``index`` (k,), (k, d). Cost: a call for each block that they are of."""
        arms = self._empty.new_empty(len(index), self.dimension)
        numbers = index // self._length
        for number in numbers.unique().tolist():
            here = numbers == number
            arms[here] = self._computed(number)[index[here] - number * self._length]
        return arms

    def verify(self) -> None:
        """Do nothing: checksums are compared whenever a block is computed."""

    def __repr__(self) -> str:
        return f"ArmBlocks({self._function!r}, num_blocks={len(self._checksums)})"

    def _numbers(self, start: int, stop: int) -> range:
        return range(start // self._length, -(-stop // self._length) if stop > start else start // self._length)

    def _computed(self, number: int) -> Tensor:
        """Return a block (k, d), that of the last call or computed again."""
        if self._last[0] != number:
            block = checks.floating_tensor(f"block {number}", self._function(number), self._empty)
            shape = min(self._length, self._size - number * self._length), self.dimension
            if (
                block.shape != shape
                or block.dtype != self.dtype
                or zlib.crc32(raw_bytes(block)) != self._checksums[number]
            ):
                raise ArmsChangedError(
                    f"Block {number} came out differently from the first time: the function must return the same arms "
                    "whenever it is called with the same number. If it draws them, seed a generator of its own with "
                    "the number."
                )
            self._last = number, block.detach().clone()
        return self._last[1]


def _checked(block: Tensor, number: int, first: Tensor | None) -> Tensor:
    """Return a copy of a block, which the function may overwrite, or refuse it."""
    dimension = None if first is None else first.shape[-1]
    block = checks.points(f"block {number}", block, dimension=dimension, like=first)
    if block.dim() != 2 or len(block) == 0:
        raise InputError(f"block {number} must be (k, d) with at least one arm, got {checks.describe(block)}.")
    return block.detach().clone()

"""Square matrices that grow without copying what is there."""

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: Of matrices returned: the buffer that each shows a corner of, and how much of it is taken.
_BUFFERS = WeakIdKeyDictionary()


def grown(matrix: Tensor, right: Tensor, below: Tensor, corner: Tensor) -> Tensor:
    """Return [[matrix, right], [below, corner]] of (m, m), (m, a), (a, m) and (a, a). None may be written to.

    What was returned before has room around it. The first to grow it writes there, and whoever grows it later copies
    it. Cost: O(m a) numbers on average.
    """
    m, size = matrix.shape[0], matrix.shape[0] + right.shape[1]
    buffer, taken = _BUFFERS.get(matrix) or (matrix, [m])
    if taken[0] != m or buffer.shape[0] < size:
        room = size + size // 2
        buffer, taken = matrix.new_empty(room, room), [m]
        buffer[:m, :m] = matrix
    taken[0] = size  # first, so that after an interrupt nobody else writes there
    buffer[:m, m:size], buffer[m:size, :m], buffer[m:size, m:size] = right, below, corner
    shown = buffer[:size, :size]
    _BUFFERS[shown] = buffer, taken
    return shown


def as_rows(matrix: Tensor) -> np.ndarray:
    """Return a matrix (m, m) as loops take it: one row after another, with any numbers beyond each of them."""
    step = matrix.stride(0)
    if matrix.stride(1) != 1 or step < matrix.shape[1] or not matrix.shape[0]:
        return matrix.contiguous().numpy()
    return torch.as_strided(matrix, (matrix.shape[0], step), (step, 1)).numpy()

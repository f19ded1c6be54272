"""Rows that are appended to tensors without copying what is there."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: Below this many numbers a copy costs no more.
_SHORT = 16384

#: Of tensors returned: the buffer that each shows the beginning of, and how much of it is taken.
_BUFFERS = WeakIdKeyDictionary()


def appended(rows: Tensor, new: Tensor) -> Tensor:
    """Return rows (n, ...) and new ones (k, ...) after them, as ``torch.cat`` does. None of them may be written to.

    What was returned before has room behind it, which doubles when it is used up. The first to append to a tensor
    writes there, and whoever appends to the same tensor later copies it. Cost: O(k) numbers on average.
    """
    n, number = rows.shape[0], rows.shape[0] + new.shape[0]
    if rows.numel() <= _SHORT:
        return torch.cat([rows, new])
    buffer, taken = _BUFFERS.get(rows) or (rows, [n])
    if taken[0] != n or len(buffer) < number:
        buffer, taken = rows.new_empty(2 * number, *rows.shape[1:]), [n]
        buffer[:n] = rows
    taken[0] = number  # first, so that after an interrupt nobody else writes there
    buffer[n:number] = new
    shown = buffer[:number]
    _BUFFERS[shown] = buffer, taken
    return shown

"""Batch shapes for kernels that have no parameters."""

from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class NumberlessKernel(Kernel):
    """A kernel with no parameter of its own that would carry its batch shape."""

    def in_batch(self, values: Tensor, diag: bool) -> Tensor:
        """Return values (..., n, n'), or (..., n) with ``diag``, for each member of the batch."""
        batch, own = (values.shape[:-1], values.shape[-1:]) if diag else (values.shape[:-2], values.shape[-2:])
        return values.expand(*torch.broadcast_shapes(self.batch_shape, batch), *own)

    def __getitem__(self, index: Any) -> Kernel:
        """Return the kernel of some members of the batch."""
        member = cast(Kernel, super().__getitem__(index))
        if len(self._batch_shape):
            member.batch_shape = torch.empty(()).expand(self._batch_shape)[index].shape
        return member

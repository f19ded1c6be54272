from copy import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.gram import gram

#: Points against which a kernel is evaluated at a time: kernels need several temporaries of that width.
_BLOCK = 16384


class KernelColumns:
    """Kernel values of chosen points against all points, kept within a memory budget.

    Args:
        kernel: the prior covariance.
        points: (N, d).
        memory: bytes that kept columns may occupy; others are computed whenever they are asked for.
    """

    def __init__(self, kernel: Kernel, points: Tensor, memory: int) -> None:
        self._kernel = kernel
        self._points = points
        self._memory = memory
        self._slots = torch.full((len(points),), -1, dtype=torch.int32, device=points.device)
        self._num_arms = len(points)
        self._buffer = points.new_empty(0, len(points))
        self._num_kept = 0

    def over_arms(self, rows: Tensor, block: slice, *, keep: bool) -> Tensor:
        """Return the kernel values of points ``rows`` (a,) against a block of the arms, (a, |block|).

        Args:
            rows: numbers of points.
            block: of the arms.
            keep: whether columns that were not asked for before are kept, as far as the budget goes.
        """
        if keep:
            self._keep(rows)
        slots = self._slots[rows].long()
        if bool((slots >= 0).all()):
            return self._buffer[:, block][slots]
        values = [
            self._evaluate(rows, self._points[start : min(start + _BLOCK, block.stop)])
            for start in range(block.start, block.stop, _BLOCK)
        ]
        return values[0] if len(values) == 1 else torch.cat(values, dim=1)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the kernel values between a few points and a few others, (|rows|, |others|)."""
        return self._evaluate(rows, self._points[others])

    def extended(self, points: Tensor) -> "KernelColumns":
        """Return the columns with further points that are no arms."""
        other = copy(self)
        other._points = points
        other._slots = torch.cat([self._slots, self._slots.new_full((len(points) - len(self._slots),), -1)])
        return other

    def _keep(self, rows: Tensor) -> None:
        """Compute and keep the columns of ``rows`` that are not kept yet, as far as the budget goes."""
        missing = rows[self._slots[rows] < 0]
        budget = self._memory // (self._num_arms * self._points.element_size())
        missing = missing[: max(budget - self._num_kept, 0)]
        if len(missing) == 0:
            return
        needed = self._num_kept + len(missing)
        if needed > len(self._buffer):
            grown = self._points.new_empty(min(max(needed, 2 * len(self._buffer)), budget), self._num_arms)
            grown[: self._num_kept] = self._buffer[: self._num_kept]
            self._buffer = grown
        for start in range(0, self._num_arms, _BLOCK):
            block = slice(start, min(start + _BLOCK, self._num_arms))
            self._buffer[self._num_kept : needed, block] = self._evaluate(missing, self._points[block])
        self._slots[missing] = torch.arange(self._num_kept, needed, dtype=torch.int32, device=self._points.device)
        self._num_kept = needed

    def _evaluate(self, rows: Tensor, others: Tensor) -> Tensor:
        with torch.no_grad():
            return gram(self._kernel, self._points[rows], others)

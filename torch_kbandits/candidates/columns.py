import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.gram import gram, prior_variance

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
        self._buffer = points.new_empty(0, len(points))
        self._num_kept = 0

    def diagonal(self) -> Tensor:
        """Return k(x, x) of all points, (N,)."""
        with torch.no_grad():
            return prior_variance(self._kernel, self._points).clone()

    def block(self, rows: Tensor, where: slice | Tensor) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against points ``where``, (m, |where|), as a new tensor.

        Cost: a copy for kept columns, kernel evaluations for others.
        """
        self._keep(rows)
        slots = self._slots[rows].long()
        if bool((slots >= 0).all()):
            return self._buffer[:, where][slots]
        return self._evaluate(rows, self._points[where])

    def extended(self, points: Tensor) -> "KernelColumns":
        """Return columns over a longer list of points, none kept yet."""
        return KernelColumns(self._kernel, points, self._memory)

    def _keep(self, rows: Tensor) -> None:
        """Compute and keep the columns of ``rows`` that are not kept yet, as far as the budget goes."""
        missing = rows[self._slots[rows] < 0]
        budget = self._memory // (len(self._points) * self._points.element_size())
        missing = missing[: max(budget - self._num_kept, 0)]
        if len(missing) == 0:
            return
        needed = self._num_kept + len(missing)
        if needed > len(self._buffer):
            grown = self._points.new_empty(min(max(needed, 2 * len(self._buffer)), budget), len(self._points))
            grown[: self._num_kept] = self._buffer[: self._num_kept]
            self._buffer = grown
        for start in range(0, len(self._points), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._buffer[self._num_kept : needed, block] = self._evaluate(missing, self._points[block])
        self._slots[missing] = torch.arange(self._num_kept, needed, dtype=torch.int32, device=self._points.device)
        self._num_kept = needed

    def _evaluate(self, rows: Tensor, others: Tensor) -> Tensor:
        with torch.no_grad():
            return gram(self._kernel, self._points[rows], others)

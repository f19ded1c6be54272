import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.candidates.points import PointList
from torch_kbandits.gram import gram, prior_variance

#: Points against which a kernel is evaluated at a time: kernels need several temporaries of that width.
_BLOCK = 16384

#: Numbers that points evaluated at a time may have, where they have many columns.
_NUMBERS = 2**18


class KernelColumns:
    """Kernel values of chosen points against all points, kept within a memory budget.

    All methods may raise ``ArmsChangedError``; then nothing has changed.

    Args:
        kernel: the prior covariance.
        points: N of them.
        memory: bytes that kept columns may occupy; others are computed whenever they are asked for.
    """

    def __init__(self, kernel: Kernel, points: PointList, memory: int) -> None:
        self._kernel = kernel
        self._points = points
        self._memory = memory
        self._slots = torch.full((len(points),), -1, dtype=torch.int32, device=points.device)
        self._buffer = torch.empty(0, len(points), dtype=points.dtype, device=points.device)
        self._num_kept = 0

    def block(self, rows: Tensor, where: slice | Tensor) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against points ``where``, (m, |where|), as a new tensor.

        Columns are kept as far as the budget goes. Cost: a copy for kept columns, kernel evaluations for others.
        """
        self._keep(rows)
        if isinstance(where, Tensor):
            return self.between(rows, where)
        start, stop, _ = where.indices(len(self._points))
        return self._against(rows, start, stop)

    def over_arms(self, rows: Tensor, start: int, stop: int, *, keep: bool) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against arms start … stop − 1, (m, stop − start).

        Args:
            rows: arms or not.
            start: the first arm.
            stop: the arm after the last.
            keep: whether columns that are not kept yet may be added to what is kept, which reads all arms.

        Cost: a copy if all columns are kept, else kernel evaluations.
        """
        if keep:
            self._keep(rows)
        return self._against(rows, start, stop)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against points ``others`` (k,), (m, k); nothing is kept."""
        slots = self._kept(rows)
        if slots is not None:
            return self._buffer[slots.unsqueeze(-1), others]
        with torch.no_grad():
            return gram(self._kernel, self._points.rows(rows), self._points.rows(others))

    def extended(self, points: PointList) -> "KernelColumns":
        """Return columns over a longer list of points, none kept yet."""
        return KernelColumns(self._kernel, points, self._memory)

    def _kept(self, rows: Tensor) -> Tensor | None:
        """Return where in the buffer the columns of ``rows`` are, (m,), if all are kept."""
        slots = self._slots[rows].long()
        if not bool((slots >= 0).all()):
            return None
        self._points.verify()  # as reading would
        return slots

    def _keep(self, rows: Tensor) -> None:
        """Compute and keep the columns of ``rows`` that are not kept yet, as far as the budget goes."""
        missing = rows[self._slots[rows] < 0]
        budget = self._memory // (len(self._points) * self._points.dtype.itemsize)
        missing = missing[: max(budget - self._num_kept, 0)]
        if len(missing) == 0:
            return
        needed = self._num_kept + len(missing)
        if needed > len(self._buffer):
            grown = self._buffer.new_empty(min(max(needed, 2 * len(self._buffer)), budget), len(self._points))
            grown[: self._num_kept] = self._buffer[: self._num_kept]
            self._buffer = grown
        self._evaluate(missing, 0, self._buffer[self._num_kept : needed])
        self._slots[missing] = torch.arange(self._num_kept, needed, dtype=torch.int32, device=self._points.device)
        self._num_kept = needed

    def _against(self, rows: Tensor, start: int, stop: int) -> Tensor:
        slots = self._kept(rows)
        if slots is not None:
            return self._buffer[:, start:stop][slots]
        return self._evaluate(rows, start, self._buffer.new_empty(len(rows), stop - start))

    def _evaluate(self, rows: Tensor, start: int, values: Tensor) -> Tensor:
        """Fill ``values`` (m, k) with kernel values of points ``rows`` against points from ``start`` on."""
        chosen = self._points.rows(rows)
        with torch.no_grad():
            for first, block in self._points.blocks(block_size(self._points), start, start + values.shape[-1]):
                values[:, first - start : first - start + len(block)] = gram(self._kernel, chosen, block)
        return values


def block_size(points: PointList) -> int:
    """Return how many points a kernel is evaluated at, at a time."""
    return max(1, min(_BLOCK, _NUMBERS // points.dimension))


def prior_variances(kernel: Kernel, points: PointList) -> Tensor:
    """Return k(x, x) of all points, (N,)."""
    with torch.no_grad():
        return torch.cat([prior_variance(kernel, block) for _, block in points.blocks(block_size(points))])

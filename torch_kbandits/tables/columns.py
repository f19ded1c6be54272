"""Kernel values of few points against many arms, within a budget of memory."""

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.gram import gram, prior_mean, prior_variance
from torch_kbandits.numerics.places import beside, listed
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.tables.points import PointList

#: Points against which a kernel is evaluated at a time: kernels need several temporaries of that width.
_BLOCK = 16384

#: Numbers that points evaluated at a time may have, where they have many columns.
_NUMBERS = 2**18


class KernelColumns:
    """Kernel values of chosen points against all arms, kept within a memory budget.

    All methods may raise ``ArmsChangedError``; then nothing has changed. Rows may be on the host; values are where the
    arms are.

    Args:
        kernel: the prior covariance.
        points: N of them.
        memory: bytes that kept columns may occupy; others are computed whenever they are asked for.
    """

    def __init__(self, kernel: Kernel, points: PointList, memory: int) -> None:
        self._kernel = kernel
        self._points = points
        self._memory = memory
        self._slots: dict[int, int] = {}  # where in the buffer the column of a row is
        self._buffer = torch.empty(0, points.num_arms, dtype=points.dtype, device=points.device)
        self._num_kept = 0

    def over_arms(self, rows: Tensor, block: slice, *, keep: bool) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against a block of the arms, (m, |block|).

        Args:
            rows: arms or not.
            block: of the arms.
            keep: whether columns that are not kept yet may be added to what is kept, which reads all arms.

        Cost: a copy if all columns are kept, else kernel evaluations.
        """
        if keep:
            self._keep(rows)
        slots = self._kept(rows)
        if slots is not None:
            return self._buffer[:, block][slots]
        return self._evaluate(rows, block.start, self._buffer.new_empty(len(rows), block.stop - block.start))

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the kernel values of points ``rows`` (m,) against points ``others`` (k,), (m, k); nothing is kept."""
        slots = self._kept(rows) if len(self._points) == self._points.num_arms else None
        if slots is not None:
            return self._buffer[slots.unsqueeze(-1), beside(others, slots)]
        with torch.no_grad():
            return gram(self._kernel, self._points.rows(rows), self._points.rows(others))

    def extended(self, points: PointList) -> "KernelColumns":
        """Return the columns of a longer list of points, which has the same arms."""
        longer = shallow_copy(self)
        longer._points = points
        longer._slots = {**self._slots}
        return longer

    def _kept(self, rows: Tensor) -> Tensor | None:
        """Return where in the buffer the columns of ``rows`` are, (m,), if all are kept."""
        if self._points.num_arms == 0 or (self._num_kept == 0 and len(rows)):
            return None
        slots = [self._slots.get(row, -1) for row in listed(rows)]
        if -1 in slots:
            return None
        self._points.verify()  # as reading would
        return beside(torch.tensor(slots, dtype=torch.long), self._buffer)

    def _keep(self, rows: Tensor) -> None:
        """Compute and keep the columns of ``rows`` that are not kept yet, as far as the budget goes."""
        missing = [row for row in listed(rows) if row not in self._slots]
        budget = self._memory // (self._points.num_arms * self._points.dtype.itemsize)
        missing = missing[: max(budget - self._num_kept, 0)]
        if len(missing) == 0:
            return
        needed = self._num_kept + len(missing)
        if needed > len(self._buffer):
            grown = self._buffer.new_empty(min(max(needed, 2 * len(self._buffer)), budget), self._points.num_arms)
            grown[: self._num_kept] = self._buffer[: self._num_kept]
            self._buffer = grown
        self._evaluate(torch.tensor(missing, device=rows.device), 0, self._buffer[self._num_kept : needed])
        slots = range(self._num_kept, needed)
        self._num_kept = needed  # first, so that after an interrupt nothing is written over what a slot holds
        self._slots.update(zip(missing, slots, strict=True))

    def _evaluate(self, rows: Tensor, start: int, values: Tensor) -> Tensor:
        """Fill ``values`` (m, k) with kernel values of points ``rows`` against points from ``start`` on."""
        chosen, size = self._points.rows(rows), block_size(self._points, len(rows))
        with torch.no_grad():
            for first, block in self._points.blocks(size, start, start + values.shape[-1]):
                values[:, first - start : first - start + len(block)] = gram(self._kernel, chosen, block)
        return values


def block_size(points: PointList, number: int = 1) -> int:
    """Return how many points a kernel is evaluated at, at a time, against so many others."""
    cached = min(_BLOCK, _NUMBERS // points.dimension)
    return points_at_a_time(points.device, cached, max(number, points.dimension))


def prior_means(mean: Mean | None, points: PointList) -> Tensor | None:
    """Return the prior means of all points, (N,); None if they are zero."""
    if mean is None:
        return None
    with torch.no_grad():
        parts = [prior_mean(mean, block) for _, block in points.blocks(block_size(points))]
        return torch.cat(parts) if parts else points.block(0, 0).sum(-1)


def prior_variances(kernel: Kernel, points: PointList) -> Tensor:
    """Return k(x, x) of all points, (N,)."""
    with torch.no_grad():
        parts = [prior_variance(kernel, block) for _, block in points.blocks(block_size(points))]
        return torch.cat(parts) if parts else points.block(0, 0).sum(-1)

"""Kernels on arms and actions that have a number: given as a matrix, and that of LinUCB."""

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.composed import BatchedKernel
from torch_kbandits.loops.kernel_loops import EQUAL, LINEAR
from torch_kbandits.numerics.formulas import FORMULAS, Array, Terms, factor
from torch_kbandits.numerics.linalg import jittered_cholesky

#: Largest asymmetry, relative to the largest entry, that rounding alone explains.
_ASYMMETRY_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


class PrecomputedKernel(Kernel):
    """A fixed covariance between A things that have a number and no coordinates, such as sensors.

    Points are arm indices: (..., n, 1), whole numbers 0 … A − 1 as floats; beside other columns name theirs::

        PrecomputedKernel(covariance, active_dims=(0,)) * RBFKernel(active_dims=(1, 2))

    The covariance is a buffer, part of ``state_dict`` and not learned: a ``ScaleKernel`` around it learns a factor.

    Args:
        covariance: (A, A), in reward units squared; symmetric and positive semi-definite up to rounding, which is
            averaged away. Leading dimensions are a batch of covariances.
        batch_shape: of the kernel; that of the covariance by default, which it may expand.
        kwargs: of every GPyTorch kernel: ``active_dims``.

    Raises:
        InputError: if it is not a finite, symmetric (..., A, A) tensor with A >= 1, or of another batch shape.
        NotPositiveDefiniteError: if it has a clearly negative eigenvalue.

    Cost: O(A³) once, for the check; then a look-up an entry. O(A²) memory.
    """

    covariance: Tensor

    def __init__(
        self, covariance: Tensor, batch_shape: torch.Size | tuple[int, ...] | None = None, **kwargs: Any
    ) -> None:
        covariance = checks.finite("covariance", checks.floating_tensor("covariance", covariance)).detach()
        if covariance.dim() < 2 or covariance.shape[-2] != covariance.shape[-1] or covariance.numel() == 0:
            raise InputError(f"covariance must be (A, A) with A >= 1, got {checks.describe(covariance)}.")
        asymmetry, largest = (covariance - covariance.mT).abs(), covariance.abs().amax((-2, -1), keepdim=True)
        if bool((asymmetry > _ASYMMETRY_TOLERANCE[covariance.dtype] * largest).any()):
            raise InputError(f"covariance must be symmetric, entries differ by up to {float(asymmetry.max()):.6g}.")
        covariance = (covariance + covariance.mT) / 2.0
        jittered_cholesky(covariance)
        if batch_shape is not None:
            try:
                covariance = covariance.expand(*checks.batch_shape(batch_shape), *covariance.shape[-2:])
            except RuntimeError:
                raise InputError(f"batch_shape must expand {tuple(covariance.shape)}, got {batch_shape}.") from None
        super().__init__(batch_shape=covariance.shape[:-2], **kwargs)
        self.register_buffer("covariance", covariance)

    # GPyTorch asks parameters for these, and there are none.
    dtype = property(lambda self: self.covariance.dtype, doc="The dtype of the covariance.")
    device = property(lambda self: self.covariance.device, doc="The device of the covariance.")

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of arms x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``."""
        rows, columns = self._indices(x1), self._indices(x2)
        tables = self.covariance.reshape(-1, *self.covariance.shape[-2:])
        member = torch.arange(len(tables), device=x1.device).view(*self.covariance.shape[:-2], 1)
        if diag:
            return tables[member, rows, columns]
        return tables[member.unsqueeze(-1), rows.unsqueeze(-1), columns.unsqueeze(-2)]

    def _indices(self, X: Tensor) -> Tensor:
        checks.same_kind("arm indices", X, self.covariance)
        if X.shape[-1] != 1:
            raise InputError(f"arm indices must be one column, named by active_dims=(i,); got {checks.describe(X)}.")
        values, size = X.squeeze(-1), self.covariance.shape[-1]
        known = (values >= 0) & (values < size) & (values == values.round())
        if not bool(known.all()):
            got = float(values[~known][0])
            raise InputError(f"arm indices must be whole numbers from 0 to {size - 1}, got {got!r}.")
        return values.detach().long()


class PerActionLinearKernel(BatchedKernel):
    """A linear model in (1, context) for each action, all coefficients standard normal and independent.

        k((x, a), (x', a')) = (1 + ⟨x, x'⟩) · 1[a = a']

    An action may be an index column or a one-hot row: all its columns must agree.

    Args:
        context_dim: c >= 0, the number of context columns, the first of a joint point; the others are the action.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.
    """

    def __init__(self, context_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.context_dim = checks.non_negative_integer("context_dim", context_dim)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return k(x1, x2), (..., n, n'), or its diagonal (..., n)."""
        c = self.context_dim
        context, actions, other, others = x1[..., :c], x1[..., c:], x2[..., :c], x2[..., c:]
        if diag:
            return self.in_batch((1.0 + (context * other).sum(-1)) * (actions == others).all(-1), diag)
        same = (actions.unsqueeze(-2) == others.unsqueeze(-3)).all(-1)
        return self.in_batch((1.0 + context @ other.mT) * same, diag)


def _per_action(kernel: PerActionLinearKernel, columns: Array) -> Terms:
    context, action = columns[: kernel.context_dim], columns[kernel.context_dim :]
    same = factor(EQUAL, 1.0, action)
    return [(1.0, [same]), (1.0, [factor(LINEAR, 1.0, context), same])]


FORMULAS[PerActionLinearKernel] = _per_action

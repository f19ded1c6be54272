"""Kernels given as a matrix."""

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.linalg import jittered_cholesky

#: Largest asymmetry, relative to the largest entry, that rounding alone explains.
_ASYMMETRY_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


class PrecomputedKernel(Kernel):
    """A fixed covariance between A things that have a number and no coordinates, such as sensors.

    Points are arm indices: (..., n, 1), whole numbers 0 … A − 1 as floats. Beside other columns name the one of the
    indices::

        PrecomputedKernel(covariance, active_dims=(0,)) * RBFKernel(active_dims=(1, 2))

    The covariance is a buffer: it moves with ``.to`` and is part of ``state_dict``; it is not learned and has no
    gradient with respect to points. Put it inside a ``ScaleKernel`` to learn a factor.

    Args:
        covariance: (A, A), in reward units squared; symmetric and positive semi-definite up to rounding. It is kept as
            given but for its asymmetry, which is averaged away. Leading dimensions are a batch of covariances.
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
        covariance = checks.finite("covariance", checks.floating_tensor("covariance", covariance))
        if covariance.dim() < 2 or covariance.shape[-2] != covariance.shape[-1] or covariance.numel() == 0:
            raise InputError(f"covariance must be (A, A) with A >= 1, got {checks.describe(covariance)}.")
        covariance = covariance.detach()
        asymmetry = (covariance - covariance.mT).abs()
        largest = covariance.abs().amax((-2, -1), keepdim=True)
        if bool((asymmetry > _ASYMMETRY_TOLERANCE[covariance.dtype] * largest).any()):
            *_, row, column = (int(place) for place in torch.unravel_index(asymmetry.argmax(), asymmetry.shape))
            raise InputError(
                f"covariance must be symmetric: entries {row, column} and {column, row} differ by "
                f"{float(asymmetry.max()):.6g}."
            )
        covariance = (covariance + covariance.mT) / 2.0
        jittered_cholesky(covariance)
        if batch_shape is not None:
            try:
                covariance = covariance.expand(*checks.batch_shape(batch_shape), *covariance.shape[-2:])
            except RuntimeError:
                raise InputError(f"batch_shape must expand {tuple(covariance.shape)}, got {batch_shape}.") from None
        super().__init__(batch_shape=covariance.shape[:-2], **kwargs)
        self.register_buffer("covariance", covariance)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the covariance; GPyTorch asks parameters, and there are none."""
        return self.covariance.dtype

    @property
    def device(self) -> torch.device:
        """The device of the covariance."""
        return self.covariance.device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of arms x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``."""
        rows = self._indices(x1)
        columns = rows if x2 is x1 else self._indices(x2)
        size = self.covariance.shape[-1]
        tables = self.covariance.reshape(-1, size, size)
        member = torch.arange(len(tables), device=x1.device).view(*self.covariance.shape[:-2], 1)
        if diag:
            return tables[member, rows, columns]
        return tables[member.unsqueeze(-1), rows.unsqueeze(-1), columns.unsqueeze(-2)]

    def _indices(self, X: Tensor) -> Tensor:
        checks.same_kind("arm indices", X, self.covariance)
        if X.shape[-1] != 1:
            raise InputError(
                f"arm indices must have one column, shape (n, 1); got {checks.describe(X)}. Beside others name it: "
                "active_dims=(i,)."
            )
        values, size = X.squeeze(-1), self.covariance.shape[-1]
        known = (values >= 0) & (values < size) & (values == values.round())
        if not bool(known.all()):
            raise InputError(
                f"arm indices must be whole numbers from 0 to {size - 1}, got {float(values[~known][0])!r}."
            )
        return values.detach().long()

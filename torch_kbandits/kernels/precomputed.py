from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.linalg import jittered_cholesky

#: Largest asymmetry, relative to the largest entry, that rounding alone explains.
_ASYMMETRY_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


class PrecomputedKernel(Kernel):
    """A fixed covariance between A things that have a number and no coordinates, such as sensors.

    Points are arm indices: (..., n, 1), whole numbers 0 … A − 1 as floats. The covariance is a buffer: it moves with
    ``.to`` and is part of ``state_dict``; it is not learned and has no gradient with respect to points. Put it inside
    a ``ScaleKernel`` to learn a factor.

    Args:
        covariance: (A, A), in reward units squared; symmetric and positive semi-definite up to rounding. It is kept as
            given but for its asymmetry, which is averaged away.

    Raises:
        InputError: if it is not a finite, symmetric (A, A) tensor with A >= 1.
        NotPositiveDefiniteError: if it has a clearly negative eigenvalue.

    Cost: O(A³) once, for the check; then a look-up an entry. O(A²) memory.
    """

    covariance: Tensor

    def __init__(self, covariance: Tensor) -> None:
        checks.finite("covariance", checks.floating_tensor("covariance", covariance))
        if covariance.dim() != 2 or covariance.shape[0] != covariance.shape[1] or len(covariance) == 0:
            raise InputError(f"covariance must be (A, A) with A >= 1, got {checks.describe(covariance)}.")
        covariance = covariance.detach()
        asymmetry = (covariance - covariance.mT).abs()
        if bool(asymmetry.max() > _ASYMMETRY_TOLERANCE[covariance.dtype] * covariance.abs().max()):
            row, column = divmod(int(asymmetry.argmax()), len(covariance))
            raise InputError(
                f"covariance must be symmetric: entry ({row}, {column}) is {float(covariance[row, column]):.6g}, "
                f"entry ({column}, {row}) is {float(covariance[column, row]):.6g}."
            )
        covariance = (covariance + covariance.mT) / 2.0
        jittered_cholesky(covariance)
        super().__init__()
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
        """Return the covariance of arms x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``.

        Raises:
            InputError: if an entry is no arm index, or the dtype or device is not the covariance's.
        """
        rows = self._indices(x1)
        columns = rows if x2 is x1 else self._indices(x2)
        if diag:
            return self.covariance[rows, columns]
        return self.covariance[rows.unsqueeze(-1), columns.unsqueeze(-2)]

    def _indices(self, X: Tensor) -> Tensor:
        checks.same_kind("arm indices", X, self.covariance)
        if X.shape[-1] != 1:
            raise InputError(f"arm indices must have one column, shape (n, 1); got {checks.describe(X)}.")
        values = X.squeeze(-1)
        known = (values >= 0) & (values < len(self.covariance)) & (values == values.round())
        if not bool(known.all()):
            raise InputError(
                f"arm indices must be whole numbers from 0 to {len(self.covariance) - 1}, "
                f"got {float(values[~known][0])!r}."
            )
        return values.detach().long()

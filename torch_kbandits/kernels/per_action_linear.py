"""The kernel of LinUCB."""

from typing import Any

import numpy as np
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.kernels.base import NumberlessKernel
from torch_kbandits.loops.kernel_loops import EQUAL, LINEAR
from torch_kbandits.numerics.formulas import Factor, Product, Terms, formula_of, scattered


class PerActionLinearKernel(NumberlessKernel):
    """A linear model in (1, context) for each action, all coefficients standard normal and independent.

        k((x, a), (x', a')) = (1 + ⟨x, x'⟩) · 1[a = a']

    An action may be an index column or a one-hot row: all its columns must agree. A product of GPyTorch's kernels has
    the same values, but adds a constant to a linear kernel through a Cholesky factor of a singular matrix.

    Args:
        context_dim: c >= 0, the number of context columns, the first of a joint point; the others are the action.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Cost: O(n n' d).
    """

    def __init__(self, context_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.context_dim = checks.non_negative_integer("context_dim", context_dim)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return k(x1, x2), (..., n, n'), or its diagonal (..., n)."""
        c = self.context_dim
        if diag:
            same = (x1[..., c:] == x2[..., c:]).all(-1)
            return self.in_batch((1.0 + (x1[..., :c] * x2[..., :c]).sum(-1)) * same, diag)
        same = (x1[..., c:].unsqueeze(-2) == x2[..., c:].unsqueeze(-3)).all(-1)
        return self.in_batch((1.0 + x1[..., :c] @ x2[..., :c].mT) * same, diag)


@formula_of.register
def _formula(kernel: PerActionLinearKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return 1[a = a'] + ⟨x, x'⟩ · 1[a = a']."""
    context, action = (scattered(1.0, part, dimension) for part in np.split(columns, [kernel.context_dim]))
    if type(kernel) is not PerActionLinearKernel or context is None or action is None:
        return None
    same = Factor(EQUAL, action)
    return [Product(1.0, (same,)), Product(1.0, (Factor(LINEAR, context), same))]

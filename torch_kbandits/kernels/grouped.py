"""Kernels with fewer length scales than columns."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.base import require_own_class
from torch_kbandits.numerics.formulas import Terms, called, formula_of, scattered, stretched
from torch_kbandits.numerics.gram import covariance
from torch_kbandits.numerics.waves import wave_frequencies


class GroupedKernel(Kernel):
    """A kernel of columns that are divided by length scales, one for each group of columns.

        k(x, x') = k₀(x / ℓ, x' / ℓ),   ℓ_j = lengthscale[groups[j]]

    A choice that is encoded in several columns, such as one-hot, has one length scale this way. With 1/√2 for the value
    taken and 0 otherwise, as in ``ParameterSpace``, squared distances grow by 1/ℓ² where two choices differ: between
    encodings this is the kernel on Hamming distances that mixed spaces are usually given, and between them it is
    smooth. A length scale for each column instead knows nothing of a value until it is tried.

    Args:
        base_kernel: k₀, a stationary kernel such as ``MaternKernel(nu=2.5)``; a copy is kept, with length scale 1 that
            no fit moves.
        groups: of each of the d columns the number of its length scale, (d,); each of 0 … G - 1 at least once.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``, ``lengthscale_prior`` and
            ``lengthscale_constraint``.

    Attributes:
        lengthscale: ℓ of the groups, (..., 1, G).

    Raises:
        InputError: if ``groups`` are not such numbers.

    Cost: that of the base kernel.
    """

    has_lengthscale = True

    columns: Tensor

    def __init__(
        self,
        base_kernel: Kernel,
        groups: Sequence[int],
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        **kwargs: Any,
    ) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "a GPyTorch kernel")
        groups = checks.whole_numbers("groups", groups)
        if not groups or min(groups) < 0 or len({*groups}) != max(groups) + 1:
            raise InputError(f"groups must have each number from 0 to the largest one, got {groups}.")
        checks.absent_or("lengthscale_prior", lengthscale_prior, Prior, "a GPyTorch prior")
        checks.absent_or("lengthscale_constraint", lengthscale_constraint, Interval, "a GPyTorch constraint")
        super().__init__(lengthscale_prior=lengthscale_prior, lengthscale_constraint=lengthscale_constraint, **kwargs)
        each = cast(Tensor, self.raw_lengthscale).detach()
        self.raw_lengthscale = Parameter(each.repeat(*(1 for _ in each.shape[:-1]), max(groups) + 1))
        # With the batch shape in front, since GPyTorch indexes and expands buffers as it does parameters.
        self.register_buffer("columns", torch.tensor(groups).expand(*self.batch_shape, 1, -1).contiguous())
        self.base_kernel = deepcopy(base_kernel)
        if self.base_kernel.has_lengthscale:
            # Through a logarithm, whose inverse at 0 is 1 in every precision.
            unit = Positive(transform=torch.exp, inv_transform=torch.log, initial_value=1.0)  # pyright: ignore
            self.base_kernel.register_constraint("raw_lengthscale", unit)
            cast(Parameter, self.base_kernel.raw_lengthscale).requires_grad_(False)

    @property
    def groups(self) -> tuple[int, ...]:
        """Of each column the number of its length scale, (d,)."""
        return tuple(self.columns.flatten()[: self.columns.shape[-1]].tolist())

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is."""
        return self.base_kernel.is_stationary

    def named_sub_kernels(self) -> Iterator[tuple[str, Kernel]]:
        """Yield the base kernel and not its parts, which are its own to index and to expand."""
        yield from ((name, part) for name, part in self.named_children() if isinstance(part, Kernel))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of points x1 (..., n, d) and x2 (..., m, d), (..., n, m), or its diagonal."""
        scale = self.lengthscale.gather(-1, self.columns)
        return covariance(self.base_kernel, x1 / scale, x2 / scale, diag=diag)


@wave_frequencies.register
def _frequencies(kernel: GroupedKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw those of the base kernel, and divide them as the columns are."""
    require_own_class(kernel, GroupedKernel)
    drawn = wave_frequencies(kernel.base_kernel, dimension, number, generator)
    return drawn / kernel.lengthscale.gather(-1, kernel.columns).detach().reshape(-1, 1)


@formula_of.register
def _formula(kernel: GroupedKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return that of the base kernel, whose columns are divided by the length scales."""
    if type(kernel) is not GroupedKernel or kernel.columns.shape[-1] != len(columns):
        return None
    scale = scattered(1.0 / kernel.lengthscale.gather(-1, kernel.columns), columns, dimension)
    return None if scale is None else stretched(called(kernel.base_kernel, columns, dimension), scale)

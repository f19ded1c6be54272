"""Kernels on time and space."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.forgetting import ForgettingKernel
from torch_kbandits.kernels.numberless import NumberlessKernel
from torch_kbandits.kernels.wiener import WienerKernel
from torch_kbandits.numerics.formulas import Terms, called, formula_of, product_of
from torch_kbandits.numerics.gram import covariance
from torch_kbandits.numerics.waves import wave_frequencies


class SpaceTimeKernel(NumberlessKernel):
    """The product of a kernel on time, the first column, and one on space, the other columns.

    It is what ``time_kernel`` with ``active_dims=(0,)`` times ``space_kernel`` is, for a kernel on space that counts
    its columns from 0 and need not know of time.

    Args:
        space_kernel: any kernel on d columns, none of which is the time; a copy is kept.
        time_kernel: a kernel on one column; a copy is kept.
        kwargs: of every GPyTorch kernel: ``active_dims``, of which the first is the time; ``batch_shape``, beside those
            of the two kernels.

    Raises:
        InputError: if a part is no kernel, or a kernel on time is a part of that on space.

    Cost: that of both.
    """

    def __init__(self, space_kernel: Kernel, time_kernel: Kernel, **kwargs: Any) -> None:
        checks.instance("space_kernel", space_kernel, Kernel, "a GPyTorch kernel")
        checks.instance("time_kernel", time_kernel, Kernel, "a GPyTorch kernel")
        _refuse_time(space_kernel)
        super().__init__(**kwargs)
        self.space_kernel, self.time_kernel = deepcopy(space_kernel), deepcopy(time_kernel)

    def named_sub_kernels(self) -> Iterator[tuple[str, Kernel]]:
        """Yield the two kernels and not their parts, which are theirs to index and to expand."""
        yield "space_kernel", self.space_kernel
        yield "time_kernel", self.time_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of points x1 (..., n, 1 + d) and x2 (..., m, 1 + d), (..., n, m), or its diagonal."""
        times = covariance(self.time_kernel, x1[..., :1], x2[..., :1], diag=diag)
        places = covariance(self.space_kernel, x1[..., 1:], x2[..., 1:], diag=diag)
        return self.in_batch(times * places, diag)


def _refuse_time(kernel: Kernel) -> None:
    """Refuse a kernel on space with a part that would take one of its columns for the time."""
    for part in kernel.modules():
        if isinstance(part, (SpaceTimeKernel, ForgettingKernel, WienerKernel)):
            raise InputError(
                f"A kernel on space, without the time, is wanted, and {type(part).__name__} in {type(kernel).__name__} "
                "would take a column of space for the time. A memory that is a prior on time, BackToPrior, and a mean "
                "that depends on time take the kernel of the function at one time. Where a kernel on time is added to "
                "others leave out that memory, give candidates=Timed(...), and put its ε into "
                "SpaceTimeKernel(space, ForgettingKernel(ε)) + on_time."
            )


@wave_frequencies.register
def _frequencies(kernel: SpaceTimeKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw those of the two kernels, apart from each other: the density of a product of kernels on other columns."""
    if type(kernel) is not SpaceTimeKernel or kernel.active_dims is not None:  # a subclass may be another function
        raise UnsupportedError(
            f"There are no random Fourier features of {type(kernel).__name__}, nor of a product on some columns."
        )
    time = wave_frequencies(kernel.time_kernel, 1, number, generator)
    return torch.cat([time, wave_frequencies(kernel.space_kernel, dimension - 1, number, generator)])


@formula_of.register
def _formula(kernel: SpaceTimeKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return the product."""
    if type(kernel) is not SpaceTimeKernel:
        return None
    time, space = (
        called(kernel.time_kernel, columns[:1], dimension),
        called(kernel.space_kernel, columns[1:], dimension),
    )
    return product_of([time, space])

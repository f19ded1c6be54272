"""Kernels on time: TV-GP-UCB's, a random walk, and the product of one with a kernel on space."""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.base import NumberlessKernel, TimeKernel, bounded, require_own_class
from torch_kbandits.loops.kernel_loops import EXPONENTIAL
from torch_kbandits.numerics.formulas import Terms, called, formula_of, of_distance, product_of
from torch_kbandits.numerics.gram import covariance
from torch_kbandits.numerics.waves import wave_frequencies

#: Largest ε that a fit tries by default: at 1 the kernel has no gradient. A number of every dtype.
_LARGEST = 1.0 - 2.0**-20


class ForgettingKernel(TimeKernel):
    """(1 − ε)^(|t − t'| / 2) on one column of time: what was seen counts less as time goes by.

    Times a spatial kernel it is the prior of TV-GP-UCB, a function of which each unit of time replaces a share ε::

        ForgettingKernel(0.03, active_dims=(2,)) * MaternKernel(active_dims=(0, 1))

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, §2.2; times need not be whole numbers.

    ε is learned with the other hyperparameters; ``requires_grad_(False)`` fixes it. Gradients with respect to times
    exist where two times agree too, and are 0 there.

    Args:
        forgetting: ε in [0, 1), kept in double precision; 0 is a constant function of time, exactly.
        forgetting_constraint: of ε; by default a bound just below 1, which ``fit_gpytorch_mll`` keeps and ε = 0
            may meet. A loop of your own over an optimiser needs ``Interval(0.0, 1.0)``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if ε is not in [0, 1).

    Cost: O(n m) for n times against m.
    """

    _number, _below, _range, _inside = "forgetting", 1.0, "at least 0 and below 1", "Interval(0.0, 1.0)"

    def __init__(
        self, forgetting: float | Tensor = 0.1, forgetting_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        super().__init__(forgetting, forgetting_constraint, bounded(0.0, _LARGEST), **kwargs)

    raw_forgetting: Parameter
    forgetting = property(TimeKernel._value, TimeKernel._set, doc="ε (..., 1, 1).")

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``."""
        self._checked_times(x1, x2)
        rate = torch.log1p(-self._checked(self.forgetting)).to(x1) / 2.0
        if diag:
            return (rate.squeeze(-1) * (x1 - x2).squeeze(-1).abs()).exp()
        return (rate * (x1 - x2.mT).abs()).exp()


@wave_frequencies.register
def _cauchy_frequencies(kernel: ForgettingKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw from a Cauchy distribution of scale −½ ln(1 − ε), the density of an exponential."""
    require_own_class(kernel, ForgettingKernel, on_some_columns=True)
    turns = torch.rand(number, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    column = 0 if kernel.active_dims is None else int(cast(Tensor, kernel.active_dims))
    frequencies = torch.zeros(dimension, number, dtype=torch.float64, device="cpu")
    frequencies[column] = torch.tan(torch.pi * turns) * (-0.5 * torch.log1p(-kernel.forgetting.squeeze()))
    return frequencies


@formula_of.register
def _exponential(kernel: ForgettingKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return it as an exponential of distances in time."""
    forgetting = float(kernel.forgetting)
    if type(kernel) is not ForgettingKernel or len(columns) != 1 or not 0.0 <= forgetting < 1.0:
        return None
    return of_distance(EXPONENTIAL, -0.5 * math.log1p(-forgetting), columns, dimension)


class WienerKernel(TimeKernel):
    """rate · (min(t, t') − origin) on one column of time: a random walk in continuous time.

    Times a spatial kernel it is the drift of a function. One that has variance before it drifts is a sum::

        space = MaternKernel(active_dims=(0, 1))
        space + WienerKernel(0.1, active_dims=(2,)) * space

    Source: Brunzema, von Rohr and Trimpe, CDC 2022, where the origin is c₀ and the rate σ_w².

    The rate is learned with the other hyperparameters; ``requires_grad_(False)`` fixes it.

    Args:
        rate: at least 0, in reward units squared per unit of time; kept in double precision.
        origin: the time at which the walk starts; no time may be before it.
        rate_constraint: of the rate; by default at least 0 as a bound, which ``fit_gpytorch_mll`` keeps and rate = 0
            may meet. A loop of your own over an optimiser needs ``Positive()``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if the rate is not a finite number of at least 0, or the origin is not finite.

    Cost: O(n m) for n times against m.
    """

    _number, _below, _range, _inside = "rate", math.inf, "finite and at least 0", "Positive()"

    def __init__(
        self,
        rate: float | Tensor = 1.0,
        origin: float = 0.0,
        rate_constraint: Interval | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(rate, rate_constraint, bounded(0.0, math.inf), **kwargs)
        self.origin = checks.finite_number("origin", origin)

    raw_rate: Parameter
    rate = property(TimeKernel._value, TimeKernel._set, doc="Growth of the variance in a unit of time, (..., 1, 1).")

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``."""
        self._checked_times(x1, x2)
        rate = self._checked(self.rate).to(x1)
        for times in (x1, x2):
            early = ~(times >= self.origin)
            if bool(early.any()):
                raise InputError(
                    f"The walk starts at the origin {self.origin:.10g} and {int(early.sum())} times are before it or "
                    f"NaN, such as {float(times[early][0]):.10g}: give an origin at or before the earliest time."
                )
        if diag:
            return rate.squeeze(-1) * (torch.minimum(x1, x2).squeeze(-1) - self.origin)
        return rate * (torch.minimum(x1, x2.mT) - self.origin)


class SpaceTimeKernel(NumberlessKernel):
    """The product of a kernel on time, the first column, and one on space, which counts the other columns from 0.

    Args:
        space_kernel: any kernel on d columns, none of which is the time; a copy is kept.
        time_kernel: a kernel on one column; a copy is kept.
        kwargs: of every GPyTorch kernel: ``active_dims``, of which the first is the time; ``batch_shape``.

    Raises:
        InputError: if a part is no kernel, or a kernel on time is a part of that on space.

    Cost: that of both.
    """

    def __init__(self, space_kernel: Kernel, time_kernel: Kernel, **kwargs: Any) -> None:
        checks.instance("space_kernel", space_kernel, Kernel, "a GPyTorch kernel")
        checks.instance("time_kernel", time_kernel, Kernel, "a GPyTorch kernel")
        for part in space_kernel.modules():
            if isinstance(part, (SpaceTimeKernel, TimeKernel)):
                raise InputError(
                    f"space_kernel must be on space alone: {type(part).__name__} in {type(space_kernel).__name__} would"
                    " take a column of space for the time. A TemporalPrior and a mean that depends on time take the "
                    "kernel of the function at one time. For a sum with a kernel on time leave out that memory, give "
                    "candidates=Timed(...) and SpaceTimeKernel(space, ForgettingKernel(ε)) + on_time."
                )
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


@wave_frequencies.register
def _joint_frequencies(kernel: SpaceTimeKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw those of the two kernels, apart from each other: the density of a product of kernels on other columns."""
    require_own_class(kernel, SpaceTimeKernel)
    time = wave_frequencies(kernel.time_kernel, 1, number, generator)
    return torch.cat([time, wave_frequencies(kernel.space_kernel, dimension - 1, number, generator)])


@formula_of.register
def _product(kernel: SpaceTimeKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return the product."""
    if type(kernel) is not SpaceTimeKernel:
        return None
    time = called(kernel.time_kernel, columns[:1], dimension)
    return product_of([time, called(kernel.space_kernel, columns[1:], dimension)])

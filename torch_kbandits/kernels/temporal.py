"""Kernels on time: TV-GP-UCB's, a random walk, and the product of one with a kernel on space."""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.parameters import NumberlessKernel, bounded, exact_value
from torch_kbandits.loops.kernel_loops import EXPONENTIAL
from torch_kbandits.numerics.formulas import Terms, called, formula_of, of_distance, product_of
from torch_kbandits.numerics.gram import covariance
from torch_kbandits.numerics.waves import wave_frequencies

#: Largest ε that a fit tries by default: at 1 the kernel has no gradient. A number of every dtype.
_LARGEST = 1.0 - 2.0**-20


class ForgettingKernel(Kernel):
    """(1 − ε)^(|t − t'| / 2) on one column of time: what was seen counts less as time goes by.

    Times a spatial kernel it is the prior of TV-GP-UCB, a function of which each unit of time replaces a share ε::

        ForgettingKernel(0.03, active_dims=(2,)) * MaternKernel(active_dims=(0, 1))

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, §2.2; times need not be whole numbers.

    ε is learned with the other hyperparameters; ``requires_grad_(False)`` fixes it. Gradients with respect to times
    exist where two times agree too, and are 0 there.

    Args:
        forgetting: ε in [0, 1); 0 is a constant function of time, exactly. Kept in double precision until ``.to`` or a
            model casts it.
        forgetting_constraint: of ε; by default a bound just below 1, which ``fit_gpytorch_mll`` keeps and ε = 0
            may meet. A loop of your own over an optimiser needs ``Interval(0.0, 1.0)``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if ε is not in [0, 1).

    Cost: O(n m) for n times against m.
    """

    def __init__(
        self, forgetting: float | Tensor = 0.1, forgetting_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        checks.absent_or("forgetting_constraint", forgetting_constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        raw = torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)
        self.register_parameter("raw_forgetting", Parameter(raw))
        self.register_constraint("raw_forgetting", forgetting_constraint or bounded(0.0, _LARGEST))
        self.forgetting = forgetting

    raw_forgetting: Parameter
    raw_forgetting_constraint: Interval

    @property
    def forgetting(self) -> Tensor:
        """ε (..., 1, 1)."""
        return self.raw_forgetting_constraint.transform(self.raw_forgetting)

    @forgetting.setter
    def forgetting(self, value: float | Tensor) -> None:
        exact = exact_value("forgetting", value, self.raw_forgetting)
        _check_share(exact)
        self.initialize(raw_forgetting=self.raw_forgetting_constraint.inverse_transform(exact))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``.

        Raises:
            InputError: if there is more than one column, times in single precision are too large for it, or an
                optimiser took ε out of [0, 1).
        """
        _check_times(x1, x2)
        forgetting = self.forgetting
        _check_share(forgetting)
        rate = torch.log1p(-forgetting).to(x1) / 2.0
        if diag:
            return (rate.squeeze(-1) * (x1 - x2).squeeze(-1).abs()).exp()
        return (rate * (x1 - x2.mT).abs()).exp()


@wave_frequencies.register
def _cauchy_frequencies(kernel: ForgettingKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw from a Cauchy distribution of scale −½ ln(1 − ε), the density of an exponential."""
    if type(kernel) is not ForgettingKernel:  # a subclass may be another function
        raise UnsupportedError(f"There are no random Fourier features of {type(kernel).__name__}.")
    turns = torch.rand(number, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    frequencies = torch.zeros(dimension, number, dtype=torch.float64, device="cpu")
    frequencies[0 if kernel.active_dims is None else int(cast(Tensor, kernel.active_dims))] = torch.tan(
        torch.pi * turns
    ) * (-0.5 * torch.log1p(-kernel.forgetting.squeeze()))
    return frequencies


@formula_of.register
def _exponential(kernel: ForgettingKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return it as an exponential of distances in time."""
    forgetting = float(kernel.forgetting)
    if type(kernel) is not ForgettingKernel or len(columns) != 1 or not 0.0 <= forgetting < 1.0:
        return None
    return of_distance(EXPONENTIAL, -0.5 * math.log1p(-forgetting), columns, dimension)


def _check_share(forgetting: Tensor) -> None:
    if not bool(((forgetting >= 0.0) & (forgetting < 1.0)).all()):
        raise InputError(
            f"forgetting must be at least 0 and below 1, got {forgetting.flatten().tolist()}. If an optimiser went "
            "there, give forgetting_constraint=Interval(0.0, 1.0)."
        )


class WienerKernel(Kernel):
    """rate · (min(t, t') − origin) on one column of time: a random walk in continuous time.

    It starts at 0 at the origin, and its variance grows by ``rate`` in a unit of time. Times a spatial kernel it is
    the drift of a function. A function that has variance before it drifts is a sum of two products::

        space = MaternKernel(active_dims=(0, 1))
        space + WienerKernel(0.1, active_dims=(2,)) * space

    Source: Brunzema, von Rohr and Trimpe, CDC 2022, where the origin is c₀ and the rate σ_w².

    The rate is learned with the other hyperparameters; ``requires_grad_(False)`` fixes it.

    Args:
        rate: at least 0, in reward units squared per unit of time. Kept in double precision until ``.to`` or a model
            casts it.
        origin: the time at which the walk starts; no time may be before it.
        rate_constraint: of the rate; by default at least 0 as a bound, which ``fit_gpytorch_mll`` keeps and rate = 0
            may meet. A loop of your own over an optimiser needs ``Positive()``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if the rate is not a finite number of at least 0, or the origin is not finite.

    Cost: O(n m) for n times against m.
    """

    def __init__(
        self,
        rate: float | Tensor = 1.0,
        origin: float = 0.0,
        rate_constraint: Interval | None = None,
        **kwargs: Any,
    ) -> None:
        checks.absent_or("rate_constraint", rate_constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        self.origin = checks.finite_number("origin", origin)
        raw = torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)
        self.register_parameter("raw_rate", Parameter(raw))
        self.register_constraint("raw_rate", rate_constraint or bounded(0.0, math.inf))
        self.rate = rate

    raw_rate: Parameter
    raw_rate_constraint: Interval

    @property
    def rate(self) -> Tensor:
        """The growth of the variance in a unit of time, (..., 1, 1)."""
        return self.raw_rate_constraint.transform(self.raw_rate)

    @rate.setter
    def rate(self, value: float | Tensor) -> None:
        exact = exact_value("rate", value, self.raw_rate)
        _check_rate(exact)
        self.initialize(raw_rate=self.raw_rate_constraint.inverse_transform(exact))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``.

        Raises:
            InputError: if there is more than one column, times in single precision are too large for it, one is before
                the origin or NaN, or an optimiser took the rate below 0.
        """
        _check_times(x1, x2)
        rate = self.rate
        _check_rate(rate)
        for times in (x1,) if x2 is x1 else (x1, x2):
            early = ~(times >= self.origin)
            if bool(early.any()):
                raise InputError(
                    f"The walk starts at the origin {self.origin:.10g} and {int(early.sum())} times are before it or "
                    f"NaN, such as {float(times[early][0]):.10g}: give an origin at or before the earliest time."
                )
        if diag:
            return rate.squeeze(-1).to(x1) * (torch.minimum(x1, x2).squeeze(-1) - self.origin)
        return rate.to(x1) * (torch.minimum(x1, x2.mT) - self.origin)


def _check_rate(rate: Tensor) -> None:
    if not bool(((rate >= 0.0) & rate.isfinite()).all()):
        raise InputError(
            f"rate must be finite and at least 0, got {rate.flatten().tolist()}. If an optimiser went there, give "
            "rate_constraint=Positive()."
        )


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
                "would take a column of space for the time. A memory that is a prior on time, TemporalPrior, and a "
                "mean that depends on time take the kernel of the function at one time. Where a kernel on time is "
                "added to others leave out that memory, give candidates=Timed(...), and put its ε into "
                "SpaceTimeKernel(space, ForgettingKernel(ε)) + on_time."
            )


@wave_frequencies.register
def _joint_frequencies(kernel: SpaceTimeKernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw those of the two kernels, apart from each other: the density of a product of kernels on other columns."""
    if type(kernel) is not SpaceTimeKernel or kernel.active_dims is not None:  # a subclass may be another function
        raise UnsupportedError(
            f"There are no random Fourier features of {type(kernel).__name__}, nor of a product on some columns."
        )
    time = wave_frequencies(kernel.time_kernel, 1, number, generator)
    return torch.cat([time, wave_frequencies(kernel.space_kernel, dimension - 1, number, generator)])


@formula_of.register
def _product(kernel: SpaceTimeKernel, columns: np.ndarray, dimension: int) -> Terms:
    """Return the product."""
    if type(kernel) is not SpaceTimeKernel:
        return None
    time, space = (
        called(kernel.time_kernel, columns[:1], dimension),
        called(kernel.space_kernel, columns[1:], dimension),
    )
    return product_of([time, space])


def _check_times(*points: Tensor) -> None:
    """Refuse points (..., n, d) of more columns than the one of time, or of times that their precision cannot tell."""
    for X in points:
        if X.shape[-1] != 1:
            raise InputError(
                f"A kernel on time takes one column, the time; got {checks.describe(X)}. Name it: active_dims=(i,)."
            )
        checks.precise_times(X)

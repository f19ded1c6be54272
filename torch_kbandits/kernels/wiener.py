"""The kernel of a random walk on time."""

import math
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.hyperparameters import bounded, exact_value
from torch_kbandits.kernels.times import check_times


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
        _check(exact)
        self.initialize(raw_rate=self.raw_rate_constraint.inverse_transform(exact))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``.

        Raises:
            InputError: if there is more than one column, times in single precision are too large for it, one is before
                the origin or NaN, or an optimiser took the rate below 0.
        """
        check_times(x1, x2)
        rate = self.rate
        _check(rate)
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


def _check(rate: Tensor) -> None:
    if not bool(((rate >= 0.0) & rate.isfinite()).all()):
        raise InputError(
            f"rate must be finite and at least 0, got {rate.flatten().tolist()}. If an optimiser went there, give "
            "rate_constraint=Positive()."
        )

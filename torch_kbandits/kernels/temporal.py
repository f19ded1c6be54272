"""Kernels on time: TV-GP-UCB's, and a random walk."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.loops.kernel_loops import EXPONENTIAL
from torch_kbandits.numerics.formulas import FORMULAS, Array, Terms, factor

#: Largest ε that a fit tries by default: at 1 the kernel has no gradient. A number of every dtype.
_LARGEST = 1.0 - 2.0**-20


def bounded(lower: float, upper: float) -> Interval:
    """Return a constraint that is a bound for the fit and no change of variables, so that its ends can be met."""
    identity: dict[str, Any] = {"transform": None, "inv_transform": None}
    return GreaterThan(lower, **identity) if math.isinf(upper) else Interval(lower, upper, **identity)


class TimeKernel(Kernel):
    """A kernel on one column of time with one number, learned with the others unless ``requires_grad_(False)``.

    It is kept in double precision until ``.to`` or a model casts it. Cost: O(n m) for n times against m.
    """

    #: The name of the number, and below what it lies from 0.
    _number: ClassVar[str]
    _below: ClassVar[float]

    def __init__(self, value: float | Tensor, constraint: Interval | None, upper: float, **kwargs: Any) -> None:
        name = self._number
        checks.absent_or(f"{name}_constraint", constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        self.register_parameter(f"raw_{name}", Parameter(torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)))
        self.register_constraint(f"raw_{name}", constraint or bounded(0.0, upper))
        setattr(self, name, value)

    def _value(self) -> Tensor:
        return getattr(self, f"raw_{self._number}_constraint").transform(getattr(self, f"raw_{self._number}"))

    def _set(self, value: float | Tensor) -> None:
        name, raw = self._number, getattr(self, f"raw_{self._number}")
        if isinstance(value, Tensor) and value.dim():
            exact = checks.finite(name, checks.floating_tensor(name, value)).to(raw)
            if value.numel() not in (1, raw.numel()):
                raise InputError(f"{name} must have {raw.numel()} number(s), got {checks.describe(value)}.")
        else:
            exact = raw.new_tensor(checks.finite_number(name, value))
        inverse = getattr(self, f"raw_{name}_constraint").inverse_transform
        self.initialize(**{f"raw_{name}": inverse(self._checked(exact))})

    def _checked(self, value: Tensor) -> Tensor:
        name, below = self._number, self._below
        if not bool(((value >= 0.0) & (value < below)).all()):
            limits = "finite and at least 0" if math.isinf(below) else f"at least 0 and below {below:g}"
            raise InputError(
                f"{name} must be {limits}, got {value.flatten().tolist()}. If an optimiser went there, give a "
                f"{name}_constraint that maps to the inside, such as Interval(0.0, 1.0) or Positive()."
            )
        return value

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of times x1 (..., n, 1) and x2 (..., m, 1), (..., n, m), or (..., n) with ``diag``."""
        for X in (x1, x2):
            if X.shape[-1] != 1:
                got = checks.describe(X)
                raise InputError(f"A kernel on time takes one column, named by active_dims=(i,); got {got}.")
            checks.precise_times(X)
        number = self._checked(self._value()).to(x1)
        if diag:
            return self._covariance(number.squeeze(-1), x1.squeeze(-1), x2.squeeze(-1))
        return self._covariance(number, x1, x2.mT)

    @abstractmethod
    def _covariance(self, number: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the covariance of times, which broadcast."""


class ForgettingKernel(TimeKernel):
    """(1 − ε)^(|t − t'| / 2) on one column of time: what was seen counts less as time goes by.

    Times a spatial kernel it is the prior of TV-GP-UCB, a function of which each unit of time replaces a share ε::

        ForgettingKernel(0.03, active_dims=(2,)) * MaternKernel(active_dims=(0, 1))

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, §2.2; times need not be whole numbers.

    Args:
        forgetting: ε in [0, 1), in double precision; 0 is a constant function of time, exactly.
        forgetting_constraint: of ε; by default a bound just below 1, which ``fit_gpytorch_mll`` keeps and ε = 0
            may meet. A loop of your own over an optimiser needs ``Interval(0.0, 1.0)``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if ε is not in [0, 1).
    """

    _number, _below = "forgetting", 1.0
    is_stationary = property(lambda self: True, doc="True.")

    def __init__(
        self, forgetting: float | Tensor = 0.1, forgetting_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        super().__init__(forgetting, forgetting_constraint, _LARGEST, **kwargs)

    raw_forgetting: Parameter
    forgetting = property(TimeKernel._value, TimeKernel._set, doc="ε (..., 1, 1).")

    def _covariance(self, number: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
        return (torch.log1p(-number) / 2.0 * (x1 - x2).abs()).exp()


def _exponential(kernel: ForgettingKernel, columns: Array) -> Terms:
    if len(columns) != 1:
        raise ValueError("It is not on one column.")
    return [(1.0, [factor(EXPONENTIAL, -0.5 * math.log1p(-float(kernel.forgetting)), columns)])]


class WienerKernel(TimeKernel):
    """rate · (min(t, t') − origin) on one column of time: a random walk in continuous time.

    Times a spatial kernel it is the drift of a function, of which the sum has variance before it drifts::

        space = MaternKernel(active_dims=(0, 1))
        space + WienerKernel(0.1, active_dims=(2,)) * space

    Source: Brunzema, von Rohr and Trimpe, CDC 2022, where the origin is c₀ and the rate σ_w².

    Args:
        rate: at least 0, in reward units squared per unit of time, in double precision; learned.
        origin: the time at which the walk starts; no time may be before it.
        rate_constraint: of the rate; by default at least 0 as a bound, which ``fit_gpytorch_mll`` keeps and rate = 0
            may meet. A loop of your own over an optimiser needs ``Positive()``, which maps to the inside.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if the rate is not a finite number of at least 0, the origin is not finite, or a time is before it.
    """

    _number, _below = "rate", math.inf

    def __init__(
        self, rate: float | Tensor = 1.0, origin: float = 0.0, rate_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        super().__init__(rate, rate_constraint, math.inf, **kwargs)
        self.origin = checks.finite_number("origin", origin)

    raw_rate: Parameter
    rate = property(TimeKernel._value, TimeKernel._set, doc="Growth of the variance in a unit of time, (..., 1, 1).")

    def _covariance(self, number: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
        for times in (x1, x2):
            early = ~(times >= self.origin)
            if bool(early.any()):
                raise InputError(
                    f"The walk starts at the origin {self.origin:.10g} and {int(early.sum())} times are before it or "
                    f"NaN, such as {float(times[early][0]):.10g}: give an origin at or before the earliest time."
                )
        return number * (torch.minimum(x1, x2) - self.origin)


FORMULAS[ForgettingKernel] = _exponential

"""How the noise variance of an observation grows with its age: the formulas that likelihoods and memories share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

_CHECKS = {"rate": checks.non_negative, "discount": checks.discount}


def no_rate(forgetting: Any) -> InputError:
    """Return the error for a memory, or a growth, of which a rate was to be learned."""
    return InputError(
        f"The rate of {type(forgetting).__name__} cannot be learned: leave learn_memory out, or give its class a "
        "method with_horizon."
    )


class Growth(ABC):
    """How the noise variance of an observation grows with its age; a fresh observation has λ."""

    #: Name of the one number that sets the speed, and the least and the largest value of it that a fit may try.
    parameter: ClassVar[str]
    bounds: ClassVar[tuple[float, float]] = (0.0, math.inf)

    #: That number of a horizon; absent where it cannot be learned.
    at_horizon: ClassVar[Callable[[float], float]]

    def __post_init__(self) -> None:
        checks.keep(self, **{self.parameter: _CHECKS.get(self.parameter, checks.finite_number)})

    @property
    def value(self) -> float:
        """The number that ``parameter`` names."""
        return getattr(self, self.parameter)

    def noise(self, age: Tensor, regularization: float | Tensor) -> Tensor:
        """Return the noise variances of observations of ages (..., n), given λ: finite, at least λ, and λ at age 0."""
        level = torch.as_tensor(regularization, dtype=age.dtype, device=age.device)
        return self.formula(age, level, age.new_tensor(self.value))

    def with_horizon(self, horizon: float) -> Self:
        """Return the growth by which what is as old as the horizon counts about half; see ``Memory.with_horizon``."""
        if (at_horizon := getattr(self, "at_horizon", None)) is None:
            raise no_rate(self)
        return replace(self, **{self.parameter: at_horizon(horizon)})  # pyright: ignore[reportArgumentType]

    def scaled(self, factor: float) -> "Growth":
        """Return the growth of variances times a factor: itself where its number is no variance."""
        return self

    @staticmethod
    @abstractmethod
    def formula(age: Tensor, regularization: Tensor, value: Tensor) -> Tensor:
        """Return what ``noise`` does, for the number ``value`` as a tensor that may have a gradient."""


@dataclass(frozen=True)
class QuadraticGrowth(Growth):
    """λ (rate · age² + 1), for functions that drift in one direction: the standard deviation grows with the age.

    The rate is at least 0, per unit of time squared; 0 forgets nothing.

    Source: Mauduit et al., 2025, Eq. (10), where the rate is 1.
    """

    rate: float = 1.0

    parameter, at_horizon = "rate", staticmethod(lambda horizon: horizon**-2)

    @staticmethod
    def formula(age: Tensor, regularization: Tensor, value: Tensor) -> Tensor:
        """Return λ (value · age² + 1)."""
        return regularization * (value * age.square() + 1.0)


@dataclass(frozen=True)
class LinearGrowth(Growth):
    """λ + rate · age, for functions that wander without a direction: the variance grows as that of a Wiener process.

    The rate is at least 0, in reward units squared per unit of time; 0 forgets nothing.

    Source: Brunzema, von Rohr and Trimpe, CDC 2022.
    """

    rate: float

    parameter, at_horizon = "rate", staticmethod(lambda horizon: 1.0 / horizon)

    def scaled(self, factor: float) -> "LinearGrowth":
        """Return the rate times the factor."""
        return replace(self, rate=self.rate * factor)

    @staticmethod
    def formula(age: Tensor, regularization: Tensor, value: Tensor) -> Tensor:
        """Return λ + value · age."""
        return regularization + value * age


@dataclass(frozen=True)
class ExponentialGrowth(Growth):
    """λ η^(−age), up to the variance of ``negligible``: the weight falls by the factor η in a unit of time.

    The discount η is above 0 and at most 1, which forgets nothing.

    Source: Deng et al., AISTATS 2022, as written in Mauduit et al., 2025, Eq. (9).
    """

    discount: float

    parameter, at_horizon = "discount", staticmethod(lambda horizon: math.exp(-1.0 / horizon))
    bounds = (2.0**-40, 1.0)

    @staticmethod
    def formula(age: Tensor, regularization: Tensor, value: Tensor) -> Tensor:
        """Return λ value^(−age)."""
        # Bounded before the exponential: after it the gradient of what overflows would be NaN.
        exponent = (-age * value.log()).clamp_max(-2.0 * math.log(torch.finfo(age.dtype).eps))
        return regularization * exponent.exp()


def negligible(regularization: Tensor) -> Tensor:
    """Return a noise variance so large that an observation with it counts nothing: λ / eps², eps of the dtype."""
    return regularization / torch.finfo(regularization.dtype).eps ** 2


def ages(times: Tensor, now: Tensor) -> Tensor:
    """Return the ages ``now − times`` (..., n) of observations, none of which may be later than ``now``, 0-dim."""
    checks.precise_times(times)
    age = now.to(times) - times
    later = ~(age >= 0.0)
    if bool(later.any()):
        raise InputError(
            f"Time must not go backwards: now is {float(now):.10g}, and {int(later.sum())} of {times.numel()} times "
            f"are later or NaN, such as {float(times[later][0]):.10g}. Set now to the latest time or after it."
        )
    return age

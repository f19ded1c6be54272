"""The variances behind the likelihood of ageing observations, as GPyTorch's noise models give them."""

from collections.abc import Callable
from typing import Any, Self, cast

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.likelihoods.noise_models import Noise
from linear_operator.operators import DiagLinearOperator
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.hyperparameters import bounded
from torch_kbandits.memory import Growth, ages, negligible


class AgeingNoise(Noise):
    """The noise model of ``UncertaintyInjectionLikelihood``, which has its arguments and says what they are.

    Its times stay in double precision, whatever that of the model: in single precision dates of this century are two
    minutes apart.
    """

    now: Tensor
    times: Tensor | None
    raw_noise: Parameter
    raw_noise_constraint: Interval

    def __init__(
        self,
        growth: Growth,
        *,
        regularization: float,
        now: float,
        time_column: int | None,
        times: Tensor | None,
        max_variance: float | None,
        growth_constraint: Interval | None,
        batch_shape: torch.Size,
    ) -> None:
        super().__init__()
        self.time_column = time_column
        self.max_variance = max_variance
        self._growth = growth
        self._name = f"raw_{growth.parameter}"  # by name, so that the state of another growth does not load
        raw = torch.zeros(*batch_shape, 1, dtype=torch.float64)
        self.register_parameter("raw_noise", Parameter(raw))
        self.register_constraint("raw_noise", Positive())
        self.register_parameter(self._name, Parameter(raw.clone()))
        self.register_constraint(self._name, growth_constraint or bounded(*growth.bounds))
        self.set_noise(raw.new_tensor(regularization))
        self.set_growth_parameter(raw.new_tensor(growth.value))
        self._checked_growth_parameter()
        self.register_buffer("now", raw.new_tensor(now))
        self.register_buffer("times", None if times is None else times.detach().to(torch.float64, copy=True))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        now, times = self.now, self.times
        super()._apply(fn, recurse)
        self.now = now.to(self.now.device)
        self.times = None if times is None else times.to(self.now.device)
        return self

    @property
    def noise(self) -> Tensor:
        """λ (..., 1), of a fresh observation."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    def set_noise(self, value: Tensor) -> None:
        """Set λ."""
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(value))

    @property
    def growth_parameter(self) -> Tensor:
        """The rate, or η, (..., 1)."""
        return self._growth_constraint().transform(getattr(self, self._name))

    def set_growth_parameter(self, value: Tensor) -> None:
        """Set the rate, or η."""
        self.initialize(**{self._name: self._growth_constraint().inverse_transform(value)})

    @property
    def growth(self) -> Growth:
        """The growth in force: what was given, or what was learned since."""
        value = self.growth_parameter
        if value.numel() != 1:
            raise InputError(f"There is a growth for each of {value.numel()} members of a batch: see growth_parameter.")
        return type(self._growth)(**{self._growth.parameter: float(value.detach())})

    def forward(
        self,
        *params: Any,
        shape: torch.Size | None = None,
        noise: Tensor | None = None,
        fresh: bool = False,
        cut_off: bool | None = None,
        **kwargs: Any,
    ) -> DiagLinearOperator:
        """Return the noise of observations as a diagonal.

        Args:
            params: the inputs (..., n, d), or a list with them, as GPyTorch's likelihoods get them.
            shape: (..., n), which the diagonal has after broadcasting.
            noise: variances in place of the model's, as GPyTorch passes them.
            fresh: whether the observations are yet to be made, at age 0.
            cut_off: whether observations above the largest variance count nothing; by default unless in training.
            kwargs: not used; GPyTorch passes them on.
        """
        if noise is not None:
            return DiagLinearOperator(noise)
        X = _inputs(params)
        shape = X.shape[:-1] if shape is None and X is not None else shape
        if shape is None:
            raise InputError("The noise of observations has the shape of their inputs: give the inputs, or a shape.")
        level, value = self.noise, self._checked_growth_parameter()
        level, value = (level, value) if X is None else (level.to(X), value.to(X))
        if fresh:
            return DiagLinearOperator(level.expand(torch.broadcast_shapes(level.shape, shape)))
        age = ages(self._times(X, shape[-1]), self.now).to(level)
        variance = self._growth.formula(age, level, value)
        if self.max_variance is not None and (not self.training if cut_off is None else cut_off):
            dropped = (variance > self.max_variance) & (age > 0.0)
            variance = torch.where(dropped, negligible(level), variance)
        return DiagLinearOperator(variance.expand(torch.broadcast_shapes(variance.shape, shape)))

    def _times(self, X: Tensor | None, n: int) -> Tensor:
        """Return when the observations were made, (..., n)."""
        if self.time_column is not None:
            if X is None:
                raise InputError(
                    "The time is a column of the inputs, so the inputs must be given: likelihood(f, X), "
                    "mll(f, targets, X)."
                )
            if not -X.shape[-1] <= self.time_column < X.shape[-1]:
                raise InputError(f"time_column is {self.time_column} and the inputs are {checks.describe(X)}.")
            return X[..., self.time_column]
        times = cast(Tensor, self.times)
        if times.shape[-1] != n:
            raise InputError(f"times has {times.shape[-1]} observations and the model has {n}: give a time to each.")
        return times

    def _growth_constraint(self) -> Interval:
        return getattr(self, f"{self._name}_constraint")

    def _checked_growth_parameter(self) -> Tensor:
        value = self.growth_parameter
        lower, upper = self._growth.bounds
        if not bool(((value >= lower) & (value <= upper)).all()):
            raise InputError(
                f"The {self._growth.parameter} must be at least {lower:g} and at most {upper:g}, got "
                f"{value.flatten().tolist()}. If an optimiser went there, give a growth_constraint that maps to the "
                "inside."
            )
        return value


def _inputs(params: tuple[Any, ...]) -> Tensor | None:
    """Return the inputs among what GPyTorch passes to a likelihood, or None."""
    if not params:
        return None
    first = params[0]
    return first if isinstance(first, Tensor) else next(iter(first))

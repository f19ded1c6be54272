"""Gaussian noise that grows with age, or that is given for some observations."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self, cast

import torch
from botorch.models.model import Model
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.constraints import Interval, Positive
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor
from torch.nn import Module, Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.temporal import bounded
from torch_kbandits.memory import Growth, ages, negligible


class AgeingNoise(Noise):
    """The noise model of ``UncertaintyInjectionLikelihood``, whose ``now`` stays in double precision; see there."""

    now: Tensor
    raw_noise: Parameter
    raw_noise_constraint: Interval

    def __init__(
        self,
        growth: Growth,
        level: float,
        now: float,
        time_column: int,
        max_variance: float | None,
        constraint: Interval,
        batch_shape: torch.Size,
    ) -> None:
        super().__init__()
        self.max_variance, self.time_column, self._growth = max_variance, time_column, growth
        self._name = f"raw_{growth.parameter}"  # by name, so that the state of another growth does not load
        for name, value, kept in (("raw_noise", level, Positive()), (self._name, growth.value, constraint)):
            raw = torch.zeros(*batch_shape, 1, dtype=torch.float64)
            self.register_parameter(name, Parameter(raw))
            self.register_constraint(name, kept)
            self.initialize(**{name: kept.inverse_transform(raw.new_tensor(value))})
        self._checked_growth_parameter()
        self.register_buffer("now", torch.tensor(now, dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        now = self.now
        super()._apply(fn, recurse)
        self.now = now.to(self.now.device)
        return self

    @property
    def noise(self) -> Tensor:
        """λ (..., 1), of a fresh observation."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    @property
    def growth_parameter(self) -> Tensor:
        """The rate, or η, (..., 1)."""
        return getattr(self, f"{self._name}_constraint").transform(getattr(self, self._name))

    def forward(
        self,
        *params: Any,
        shape: torch.Size | None = None,
        noise: Tensor | None = None,
        cut_off: bool | None = None,
        **kwargs: Any,
    ) -> DiagLinearOperator:
        """Return the noise of observations at inputs (..., n, d), or a list of them, as a diagonal of a shape (..., n).

        What is above the largest variance is cut off, by default unless in training.
        """
        if noise is not None:
            return DiagLinearOperator(noise)
        if not params or params[0] is None:
            raise InputError("The time is a column of the inputs: give them, likelihood(f, X), mll(f, targets, X).")
        X = params[0] if isinstance(params[0], Tensor) else next(iter(params[0]))
        if not -X.shape[-1] <= self.time_column < X.shape[-1]:
            raise InputError(f"time_column is {self.time_column} and the inputs are {checks.describe(X)}.")
        level, value = self.noise.to(X), self._checked_growth_parameter().to(X)
        age = ages(X[..., self.time_column], self.now).to(level)
        variance = self._growth.formula(age, level, value)
        if self.max_variance is not None and (not self.training if cut_off is None else cut_off):
            variance = torch.where((variance > self.max_variance) & (age > 0.0), negligible(level), variance)
        shape = X.shape[:-1] if shape is None else shape
        return DiagLinearOperator(variance.expand(torch.broadcast_shapes(variance.shape, shape)))

    def _checked_growth_parameter(self) -> Tensor:
        value = self.growth_parameter
        lower, upper = self._growth.bounds
        if not bool(((value >= lower) & (value <= upper)).all()):
            hint = f"must be at least {lower:g} and at most {upper:g}, by a growth_constraint that maps to the inside"
            raise InputError(f"The {self._growth.parameter} {hint}; got {value.tolist()}.")
        return value


class UncertaintyInjectionLikelihood(_GaussianLikelihoodBase):
    """Gaussian noise whose variance grows with the age of an observation: what is old counts less.

    An observation made at time s has at time ``now`` the variance ``growth.noise(now − s, λ)``, a fresh one, as one
    predicted for ``now``, λ. It is a ``likelihood`` of any exact GP of GPyTorch or BoTorch, ``OnlineGP`` and
    ``NystromGP``. To move ``now`` use ``at_time(model, now)``: models of GPyTorch keep what they computed.

    λ and the number of the growth are learned with the other hyperparameters; ``noise_covar.requires_grad_(False)``
    fixes them. Where the function does not depend on the time give a kernel of the other columns, ``active_dims``.

    Source: Mauduit et al., 2025, Eq. (10); Brunzema, von Rohr and Trimpe, CDC 2022; Deng et al., AISTATS 2022.

    Args:
        growth: ``QuadraticGrowth``, ``LinearGrowth`` or ``ExponentialGrowth``.
        regularization: λ > 0, in reward units squared.
        now: the time at which the posterior is asked for, not before any observation.
        time_column: which column of the inputs is the time; an input transform must leave it as it is.
        max_variance: observations whose variance exceeds it get ``memory.negligible(λ)``, so that they count nothing;
            more than λ. Not while hyperparameters are learned: the marginal likelihood would jump.
        growth_constraint: of the rate or η; by default its range as a bound, which ``fit_gpytorch_mll`` keeps. A loop
            of your own over an optimiser needs one that maps to the inside: ``Positive()``, ``Interval(0.0, 1.0)``.
        batch_shape: of λ and of the growth's number: (o,) for o outputs.
    """

    noise_covar: AgeingNoise

    def __init__(
        self,
        growth: Growth,
        *,
        regularization: float,
        now: float,
        time_column: int,
        max_variance: float | None = None,
        growth_constraint: Interval | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
    ) -> None:
        checks.instance("growth", growth, Growth, "a growth such as QuadraticGrowth(1.0)")
        checks.absent_or("growth_constraint", growth_constraint, Interval, "a GPyTorch constraint")
        regularization = checks.positive("regularization", regularization)
        now, time_column = checks.finite_number("now", now), checks.whole_number("time_column", time_column)
        if max_variance is not None and checks.positive("max_variance", max_variance) <= regularization:
            raise InputError(f"max_variance must be above regularization, {regularization:g}, got {max_variance!r}.")
        constraint, batch = growth_constraint or bounded(*growth.bounds), checks.batch_shape(batch_shape)
        super().__init__(AgeingNoise(growth, regularization, now, time_column, max_variance, constraint, batch))

    @property
    def now(self) -> Tensor:
        """The current time, 0-dim."""
        return self.noise_covar.now

    @now.setter
    def now(self, value: float | Tensor) -> None:
        self.noise_covar.now = self.noise_covar.now.new_tensor(checks.finite_number("now", cast(float, value)))

    @property
    def time_column(self) -> int:
        """Which column of the inputs is the time."""
        return self.noise_covar.time_column

    @property
    def noise(self) -> Tensor:
        """λ (..., 1), the variance of a fresh observation."""
        return self.noise_covar.noise

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        raw = self.noise_covar.raw_noise
        level = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool(((level > 0.0) & level.isfinite()).all()):
            raise InputError(f"noise must be finite and above 0, got {level.flatten().tolist()}.")
        self.noise_covar.initialize(raw_noise=self.noise_covar.raw_noise_constraint.inverse_transform(level))

    @property
    def growth(self) -> Growth:
        """The growth in force, with the rate or η learned since; for a batch see ``growth_parameter``."""
        value, growth = self.growth_parameter, self.noise_covar._growth
        if value.numel() != 1:
            raise InputError(f"There is a growth for each of {value.numel()} members of a batch: see growth_parameter.")
        return type(growth)(**{growth.parameter: float(value.detach())})

    @property
    def growth_parameter(self) -> Tensor:
        """The rate, or η, (..., 1)."""
        return self.noise_covar.growth_parameter

    def observation_noise(self, X: Tensor) -> Tensor:
        """Return the variances (..., n) of observations made at inputs X (..., n, d), as a posterior counts them."""
        return self.noise_covar(X, shape=X.shape[:-1], cut_off=True).diagonal(dim1=-1, dim2=-2)

    def get_fantasy_likelihood(self, **kwargs: Any) -> Self:
        """Return a copy for a model with more observations."""
        if kwargs.get("noise") is not None:
            raise InputError("The noise of an observation follows from its age here: leave noise out.")
        return deepcopy(self)

    def _shaped_noise_covar(self, base_shape: torch.Size, *params: Any, **kwargs: Any) -> Tensor | LinearOperator:
        # GPyTorch passes training inputs as a list, and test inputs as a tensor or not at all. What is predicted is not
        # an observation that could be dropped, however old.
        of_training = self.training or (len(params) > 0 and not isinstance(params[0], Tensor))
        return self.noise_covar(*params, shape=base_shape, cut_off=of_training and not self.training, **kwargs)


def at_time(model: Module, now: float) -> None:
    """Set the time of models with ``UncertaintyInjectionLikelihood``, and clear what they computed for another."""
    value = checks.finite_number("now", now)
    models = [part for part in model.modules() if isinstance(part, ExactGP)]
    ageing = [(part, part.likelihood) for part in models if isinstance(part.likelihood, UncertaintyInjectionLikelihood)]
    if not ageing:
        raise InputError("No part of the model has an UncertaintyInjectionLikelihood: give it one as likelihood.")
    for part, likelihood in ageing:
        for X in part.train_inputs or ():
            ages(X[..., likelihood.time_column], likelihood.now.new_tensor(value))
    for part, likelihood in ageing:
        likelihood.now = value
        part._clear_cache()


class GivenNoiseLikelihood(GaussianLikelihood):
    """Gaussian noise of variance λ, but for the observations that came with a variance of their own.

    What is predicted has variance λ. GPyTorch passes the inputs of observations as a list, or in training mode.

    Args:
        noise_covar: the model of λ; shared, not copied.
        given: the variances of the observations (..., n), NaN for one that has λ.
    """

    given: Tensor

    def __init__(self, noise_covar: Noise, given: Tensor) -> None:
        _GaussianLikelihoodBase.__init__(self, noise_covar)
        self.register_buffer("given", given, persistent=False)  # data, which no state dict has
        self.train(noise_covar.training)

    def observation_noise(self, X: Tensor) -> Tensor:
        """Return the variances (..., n) of the observations, which were made at X (..., n, d)."""
        return self._shaped_noise_covar(X.shape[:-1], [X]).diagonal(dim1=-1, dim2=-2)

    def _shaped_noise_covar(self, base_shape: torch.Size, *params: Any, **kwargs: Any) -> Tensor | LinearOperator:
        usual = super()._shaped_noise_covar(base_shape, *params, **kwargs)
        of_predictions = bool(params) and isinstance(params[0], Tensor) and not self.training
        if of_predictions or "noise" in kwargs:
            return usual
        if not params and not self.training:
            raise InputError(
                "Observations have noise of their own, so say of what the noise is: likelihood(f, X) of predictions,"
                " likelihood(f, [X]) of the observations; for loo_cv remove rows from copies of the model."
            )
        return DiagLinearOperator(torch.where(self.given.isnan(), usual.diagonal(dim1=-1, dim2=-2), self.given))


@GaussianUpdate.register(ExactGP, (UncertaintyInjectionLikelihood, GivenNoiseLikelihood))
def update_with_observation_noise(
    model: ExactGP,
    likelihood: UncertaintyInjectionLikelihood | GivenNoiseLikelihood,
    *,
    points: Tensor | None = None,
    noise_covariance: Tensor | LinearOperator | None = None,
    **kwargs: Any,
) -> GeneralizedLinearPath:
    """Return BoTorch's update of prior paths, with the noise that the posterior counts.

    BoTorch's own rule asks a likelihood for noise without inputs, which say when observations were made or that
    observations are meant, and may do so in training mode, where nothing that is old is cut off.
    """
    if points is None:
        points = cast(Tensor, get_train_inputs(cast(Model, model), transformed=True)[0])
    if noise_covariance is None:
        noise_covariance = DiagLinearOperator(likelihood.observation_noise(points))
    update = GaussianUpdate.dispatch(ExactGP, _GaussianLikelihoodBase)
    return update(model, likelihood, points=points, noise_covariance=noise_covariance, **kwargs)

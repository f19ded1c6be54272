"""Noise that grows with age."""

from copy import deepcopy
from typing import Any, Self, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from linear_operator.operators import LinearOperator
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods.noise import AgeingNoise
from torch_kbandits.memory import Growth, ages


class UncertaintyInjectionLikelihood(_GaussianLikelihoodBase):
    """Gaussian noise whose variance grows with the age of an observation: what is old counts less.

    An observation made at time s and looked at at time ``now`` has the variance ``growth.noise(now − s, λ)``. It fits
    any exact GP of GPyTorch or BoTorch, and ``OnlineGP`` and ``NystromGP``, as ``likelihood``. A fresh observation,
    such as one predicted for ``now``, has variance λ.

    Source: Mauduit et al., 2025, Eq. (10); Brunzema, von Rohr and Trimpe, CDC 2022; Deng et al., AISTATS 2022.

    λ and the number of the growth are learned with the other hyperparameters. To fix them:
    ``noise_covar.requires_grad_(False)``, or ``noise_covar.raw_noise`` alone.

    To move ``now`` use ``at_time(model, now)``. Setting the attribute is enough for ``OnlineGP`` and ``NystromGP``;
    other models of GPyTorch keep what they computed, as they do when a hyperparameter is set.

    With ``time_column`` the variance is a function of the inputs, for predictions as well. With ``times`` inputs have
    no time, so predictions are of fresh observations; training inputs are told apart by how GPyTorch passes them.
    Points on which ``OnlineGP`` and ``NystromGP`` are conditioned were made at the ``now`` of that moment; other models
    with ``times`` cannot be conditioned further.

    Args:
        growth: ``Quadratic``, ``Linear`` or ``Exponential``.
        regularization: λ > 0, in reward units squared.
        now: the time at which the posterior is asked for, not before any observation.
        time_column: which column of the inputs is the time; an input transform must leave it as it is.
        times: the times of the training points (..., n) in its place, for inputs without time. They and ``now`` stay in
            double precision whatever that of the model; a column of inputs has theirs.
        max_variance: observations whose variance exceeds it count nothing; more than λ. A likelihood cannot drop them,
            so their variance becomes ``memory.negligible(λ)``, finite and beyond rounding. Not while hyperparameters
            are learned, where the marginal likelihood would jump whenever one came or went.
        growth_constraint: of the rate or η; by default its range as a bound, which ``fit_gpytorch_mll`` keeps and the
            end of the range may meet. A loop of your own over an optimiser needs one that maps to the inside, such as
            ``Positive()`` or ``Interval(0.0, 1.0)``.
        batch_shape: of λ and of the growth's number: (o,) for o outputs.

    Raises:
        InputError: if an argument is not what it says, or ``now`` is before one of ``times``. When used: if a time is
            after ``now``, if inputs are missing, or if there is not a time for each training point.

    Cost: O(n).
    """

    noise_covar: AgeingNoise

    def __init__(
        self,
        growth: Growth,
        *,
        regularization: float,
        now: float,
        time_column: int | None = None,
        times: Tensor | None = None,
        max_variance: float | None = None,
        growth_constraint: Interval | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
    ) -> None:
        checks.instance("growth", growth, Growth, "a growth such as Quadratic(1.0)")
        checks.absent_or("growth_constraint", growth_constraint, Interval, "a GPyTorch constraint")
        regularization = checks.positive("regularization", regularization)
        if (time_column is None) == (times is None):
            raise InputError("Give either time_column, the column of the inputs that is the time, or times.")
        if time_column is not None:
            time_column = checks.whole_number("time_column", time_column)
        now = checks.finite_number("now", now)
        if times is not None:
            times = checks.finite("times", checks.floating_tensor("times", times))
            if times.dim() == 0:
                raise InputError(f"times must have a time for each training point, got {checks.describe(times)}.")
            ages(times, times.new_tensor(now))
        if max_variance is not None and checks.positive("max_variance", max_variance) <= regularization:
            raise InputError(
                f"max_variance must be above the variance of a fresh observation, {regularization:g}; "
                f"got {max_variance!r}."
            )
        noise = AgeingNoise(
            growth,
            regularization=regularization,
            now=now,
            time_column=time_column,
            times=times,
            max_variance=max_variance,
            growth_constraint=growth_constraint,
            batch_shape=checks.batch_shape(batch_shape),
        )
        super().__init__(noise_covar=noise)

    @property
    def now(self) -> Tensor:
        """The time at which observations are looked at, 0-dim."""
        return self.noise_covar.now

    @now.setter
    def now(self, value: float | Tensor) -> None:
        now = self.noise_covar.now.new_tensor(checks.finite_number("now", cast(float, value)))
        self.check_time(now)
        self.noise_covar.now = now

    @property
    def time_column(self) -> int | None:
        """Which column of the inputs is the time; None if there are ``times``."""
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
        self.noise_covar.set_noise(level)

    @property
    def growth(self) -> Growth:
        """The growth in force, with the rate or η learned since; for a batch see ``growth_parameter``."""
        return self.noise_covar.growth

    @property
    def growth_parameter(self) -> Tensor:
        """The rate, or η, (..., 1)."""
        return self.noise_covar.growth_parameter

    def check_time(self, now: Tensor, inputs: Tensor | None = None) -> None:
        """Refuse a ``now`` (0-dim) before a known observation: ``times``, or those at the inputs (..., n, d).

        Raises:
            InputError: if it is.
        """
        noise = self.noise_covar
        if noise.times is not None:
            ages(noise.times, now)
        elif inputs is not None:
            ages(inputs[..., noise.time_column], now)

    def observation_noise(self, X: Tensor) -> Tensor:
        """Return the variances (..., n) of observations made at inputs X (..., n, d), as a posterior counts them.

        Raises:
            InputError: if one is later than ``now``, or there are ``times`` and not one for each.
        """
        return self.noise_covar(X, shape=X.shape[:-1], cut_off=True).diagonal(dim1=-1, dim2=-2)

    def get_fantasy_likelihood(self, **kwargs: Any) -> Self:
        """Return a copy for a model with more observations.

        Raises:
            InputError: if a noise is given, or there are ``times``: GPyTorch does not say how many observations join.
        """
        if self.time_column is None:
            raise InputError(
                "Only OnlineGP and NystromGP are conditioned on more observations where the likelihood has times: make "
                "the time a column of the inputs."
            )
        return self.joined_by(0, kwargs.get("noise"))

    def joined_by(self, count: int, noise: Tensor | None = None) -> Self:
        """Return a copy for a model with ``count`` more observations; where there are ``times``, they are made now.

        Raises:
            InputError: if a noise is given.
        """
        if noise is not None:
            raise InputError("The noise of an observation follows from its age here: leave noise out.")
        copy = deepcopy(self)
        times = copy.noise_covar.times
        if times is not None:
            copy.noise_covar.times = torch.cat([times, copy.now.to(times).expand(*times.shape[:-1], count)], dim=-1)
        return copy

    def _shaped_noise_covar(self, base_shape: torch.Size, *params: Any, **kwargs: Any) -> Tensor | LinearOperator:
        # GPyTorch passes training inputs as a list, and test inputs as a tensor or not at all.
        of_training = self.training or (len(params) > 0 and not isinstance(params[0], Tensor))
        fresh = self.time_column is None and not of_training
        # What is predicted is not an observation that could be dropped, however old.
        cut_off = of_training and not self.training
        return self.noise_covar(*params, shape=base_shape, fresh=fresh, cut_off=cut_off, **kwargs)

"""The marginal posterior of kernel, noise and ε, and the search for its maximum."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.optim.closures import ForwardBackwardClosure
from botorch.optim.closures.core import NdarrayOptimizationClosure
from botorch.optim.utils import get_bounds_as_ndarray, get_parameters_and_bounds
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior, NormalPrior
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import Growth, Memory, Stationary, ages
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky, normal_log_density
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.rows import distinct_in_order
from torch_kbandits.observations.history import own_or

#: λ before any fit, for rewards of variance 1, where also the prior of log λ has its mode; the least and the largest
#: that a fit tries.
_FIRST_NOISE, _LEAST_NOISE, _LARGEST_NOISE = math.exp(-5.0), 1e-6, 100.0

#: Deviation of log h, h the horizon of a prior on time: the prior says little.
_DECADE = math.log(10.0)

#: The shortest h: its ε is the largest that a ``ForgettingKernel`` tries by itself.
_SHORTEST = 2.0 / math.log(2.0**20)

#: Points of the dictionary of a bound, and points that it covers.
_DICTIONARY, COVERED = 200, 5_000

#: By so much a raw parameter may fall below its first value, or below 0: length scales to about 5e-5.
_REACH = 10.0

#: What SciPy says of a climb that ended at a maximum, or with all evaluations made; else it failed.
_ENDED = (0, 1)

#: Climbs of a fit, from the parameters given and from others near them, and the most of them where some fail. Of 64
#: fits the best of three was more than 0.1 nats below the best of seven in 3, of one in 7.
CLIMBS, _MOST_CLIMBS = 3, 6

#: Points in all evaluations together of a climb that goes on from another fit, and its fewest evaluations: 25 of 400
#: points. With ten, or 256 points, the rewards that came next were predicted worse; with all it takes no better.
_GOING_ON, _FEWEST = 10_000, 25

#: A climb ends where no slope, in nats a reward, is steeper: on 112 fits at most 0.002 nats below one to 1e-5.
_LEVEL = 1e-3

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What is fitted to: rewards (n,), n >= 1, less their mean, of variance 1, at points (n, d) in double precision.

    ``times`` are when each was made, its number unless given, and ``now`` the current one, unless given the latest;
    under a prior on time they are the first column of points, too. ``names`` are of the other columns, as far as known.
    ``noise`` are the noise variances told of rewards, (n,), NaN where λ is fitted; None where none is known.
    """

    X: Tensor
    Y: Tensor
    times: Tensor | None = None
    now: float | None = None
    names: Sequence[str] | None = None
    noise: Tensor | None = None

    def in_order(self) -> "TrainingData":
        """Return a copy in the order of times, with these, the current one, and the noise."""
        noise = torch.full_like(self.Y, math.nan) if self.noise is None else self.noise.to(self.Y)
        if self.times is None:
            times = torch.arange(len(self.Y), dtype=torch.float64, device=self.Y.device)
            return TrainingData(self.X.clone(), self.Y.clone(), times, float(len(times)), self.names, noise)
        order = self.times.argsort(stable=True)
        times = self.times[order].double()
        now = float(times[-1]) if self.now is None else self.now
        return TrainingData(self.X[order], self.Y[order], times, now, self.names, noise[order])


class MarginalPosterior:
    """The log density of rewards and parameters, log N(y | 0, K + Σ) + log p(parameters), as a function of these.

    The kernel, which is of one time if the memory has a prior on time, moves with the ``parameters``; that of λ, unless
    it is known, is its logarithm ``noise``, and that of ε that of its ``horizon``. To ``learn`` ε it is that of the
    memory or one more; then all rewards count. Of the distinct points at ``most`` so many are used: evenly spaced ones
    in the order of their first rewards, the latest under a prior on time. ``mean_variance`` is the prior variance of a
    constant that is added to the function, 0 for none, ``noise_spread`` the prior deviation of log λ. Σ has the noise
    variances that the memory leaves now.
    """

    def __init__(
        self,
        data: TrainingData,
        kernel: Kernel,
        regularization: float | None,
        memory: Memory,
        *,
        learn: bool = False,
        most: int,
        mean_variance: float,
        noise_spread: float = 1.0,
    ) -> None:
        on_time = learn or memory.needs_time_column
        data = data.in_order()
        X, Y, times, now = data.X, data.Y, cast(Tensor, data.times), cast(float, data.now)
        level = _FIRST_NOISE if regularization is None else regularization
        own = own_or(told := cast(Tensor, data.noise), level)
        noise = (Stationary() if learn else memory).noise(times, now, own)
        rows = noise.isfinite().nonzero().squeeze(-1)
        if len(rows) == 0:
            raise InputError(f"Of {len(Y)} reward(s) none counts at time {now:g} under {memory}: there is none to fit.")
        points, places = distinct_in_order(X[rows])
        self.num_points = len(points)
        if len(points) > most:
            first = len(points) - most if on_time else 0
            chosen = torch.linspace(first, len(points) - 1, most, dtype=torch.float64).round().long()
            rows = rows[torch.isin(places, chosen)]
            points, places = distinct_in_order(X[rows])
        self.points, self._places, self.names = points, places, data.names
        self.Y, self._relative, self._ages = Y[rows], (noise / own)[rows], ages(times[rows], times.new_tensor(now))
        self._told: Tensor | None = told[rows] if bool(told.isfinite().any()) else None
        self.keeps_noise = memory.keeps_noise and self._told is None
        self.mean_variance, self.noise_spread = mean_variance, noise_spread
        self._growth: Growth | None = getattr(memory, "growth", None)
        self._dictionary: Tensor | None = None
        self._log_noise = Parameter(Y.new_tensor(math.log(level)))
        self.kernel = self.joint = kernel
        self._others: tuple[MarginalPosterior, ...] = ()
        self.parameters, self.bounds = get_parameters_and_bounds(kernel, requires_grad=True)
        self._priors: dict[str, Any] = {}
        if regularization is None:
            self.parameters["noise"] = self._log_noise
            # BoTorch's prior of λ and its least one where the spread is 1.
            least = _FIRST_NOISE * (MIN_INFERRED_NOISE_LEVEL / _FIRST_NOISE) ** noise_spread
            self.least_noise, spread = max(_LEAST_NOISE, least), Y.new_tensor(noise_spread)
            self.bounds["noise"] = (math.log(self.least_noise), math.log(_LARGEST_NOISE))
            noise_prior = LogNormalPrior(math.log(_FIRST_NOISE) + spread.square(), spread)
            self._priors["noise"] = lambda raw: noise_prior.log_prob(raw.exp())
        if on_time:
            span, share = float(self._ages.max()) or 1.0, float(getattr(memory, "forgetting", 0.0))
            in_time = ForgettingKernel(share).requires_grad_(False)
            if learn:
                in_time = _with_free_horizon(share or -math.expm1(-2.0 / span))
                self.parameters["horizon"] = in_time.raw_forgetting
                self.bounds["horizon"] = (math.log(_SHORTEST), math.inf)
                horizon_prior = NormalPrior(Y.new_tensor(math.log(span)), Y.new_tensor(_DECADE))
                self._priors["horizon"] = horizon_prior.log_prob
            self.joint = _on_time(kernel, in_time)

    # ---------------------------------------------------------------- what is found

    @property
    def regularization(self) -> float:
        """λ."""
        return float(self._log_noise.detach().exp())

    @property
    def values(self) -> tuple[float, ...]:
        """All parameters one after another, (p,): where another climb may start."""
        return tuple(torch.cat([each.detach().flatten() for each in self.parameters.values()] or [self.Y[:0]]).tolist())

    @property
    def horizon(self) -> float:
        """h, at which ε is 1 − e^(−2/h), where it is a parameter."""
        return float(self.parameters["horizon"].detach().exp())

    @property
    def mean(self) -> float:
        """The posterior mean of the constant that is added to the function: its variance times 1ᵀ(K + Σ)⁻¹y."""
        if not self.mean_variance:
            return 0.0
        shift = self.Y.new_zeros(()).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.density(shift), shift)
        return self.mean_variance * float(slope)

    # ---------------------------------------------------------------- the density

    def __call__(self) -> Tensor:
        """Return the log density of rewards and parameters, 0-dim."""
        value = self.density_of_all()
        for _, module, prior, closure, _ in self.kernel.named_priors():
            value = value + prior.log_prob(closure(module)).sum()
        for name, log_prior in self._priors.items():
            value = value + log_prior(self.parameters[name]).sum()
        return value

    def density(self, shift: Tensor | float = 0.0) -> Tensor:
        """Return log N(y | shift, K + Σ), or once ``bounded`` a lower bound of it, 0-dim.

            log N(y | 0, K + Σ) >= log N(y | 0, Q + Σ) − ½ tr Σ⁻¹(K − Q),  Q = K_XZ K_ZZ⁻¹ K_ZX

        Source: Titsias, AISTATS 2009, Eq. (9). Differs: each observation may have a noise variance of its own.

        Cost: O(u³), or O(u m²) for a bound through m points.
        """
        y, noise, constant = self._merged(shift)
        if self._dictionary is None:
            return normal_log_density(self._gram(self.points) + noise.diag(), y) + constant
        embedding, left = self._projected(self._dictionary)
        whitened, targets = embedding / noise.sqrt(), y / noise.sqrt()
        factor = jittered_cholesky(torch.eye(len(embedding), dtype=y.dtype, device=y.device) + whitened @ whitened.mT)
        explained = torch.linalg.solve_triangular(factor, (whitened @ targets).unsqueeze(-1), upper=False)
        quadratic = targets.square().sum() - explained.square().sum()
        logarithms = noise.log().sum() + 2.0 * factor.diagonal().log().sum() + len(y) * math.log(2.0 * math.pi)
        return -0.5 * (quadratic + logarithms + (left / noise).sum()) + constant

    def density_of_all(self) -> Tensor:
        """Return the sum of this density and those of others that share kernel and λ, 0-dim."""
        return torch.stack([self.density(), *(other.density() for other in self._others)]).sum()

    def sharing(self, others: "Sequence[MarginalPosterior]") -> "MarginalPosterior":
        """Return this posterior, from now on with the rewards of others of the same kernel, each with its own mean."""
        self._others = tuple(others)
        for other in others:
            other._log_noise = self._log_noise
        return self

    def bounded(self, other: "MarginalPosterior") -> float:
        """Bound the density from now on, through a dictionary chosen under the kernel as it is and another's λ.

        Returned is what it leaves of the points, ½ tr Σ⁻¹(K − Q), in nats a point: λ is too large by twice this share.
        """
        with torch.no_grad():
            self._log_noise.copy_(other._log_noise)
            self._dictionary = spanning(self.joint, self.points, _DICTIONARY)
            return float((0.5 * self._projected(self._dictionary)[1] / self._merged(0.0)[1]).mean())

    def _gram(self, X: Tensor, other: Tensor | None = None) -> Tensor:
        return gram(self.joint, X, other) + self.mean_variance

    def _projected(self, dictionary: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points in coordinates of the dictionary, (m, u), and the variance that it leaves of each, (u,)."""
        Z = self.points[dictionary]
        embedding = torch.linalg.solve_triangular(
            jittered_cholesky(self._gram(Z)), self._gram(Z, self.points), upper=False
        )
        return embedding, prior_variance(self.joint, self.points) + self.mean_variance - embedding.square().sum(0)

    def _merged(self, shift: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean reward of each point, (u,), its noise variance, (u,), and what the logarithm lacks, 0-dim."""
        level = self._log_noise.exp()
        level = level if self._told is None else own_or(self._told, level)
        noise = level * self._relative if self._growth is None else self._growth.noise(self._ages, level)
        weights, y, size = 1.0 / noise, self.Y - shift, len(self.points)
        total = weights.new_zeros(size).index_add(0, self._places, weights)
        mean = weights.new_zeros(size).index_add(0, self._places, weights * y) / total
        squares = (weights * (y - mean[self._places]).square()).sum()
        spread = squares + (len(y) - size) * math.log(2.0 * math.pi)
        return mean, 1.0 / total, 0.5 * (weights.log().sum() - total.log().sum() - spread)

    # ---------------------------------------------------------------- its maximum

    def maximize(self, seed: int, climbs: int, start: Sequence[float] = ()) -> bool:
        """Move the parameters to the best maximum that some climbs find; False: there is none, and they stay.

        The first climb starts where the parameters are, the others near there. If a start is given there is one from
        it, of about 10,000 / u evaluations, u distinct points; and if that ends at a least length scale or noise one
        more from the parameters as they are: what few rewards were taken for may be far from what more of them say.
        """
        if not self.parameters:
            return True
        closure = NdarrayOptimizationClosure(
            ForwardBackwardClosure(lambda: -self() / len(self.Y), self.parameters), self.parameters
        )
        bounds, highest = cast(Array, get_bounds_as_ndarray(self.parameters, self._within_reach())), -math.inf
        options, given = {"maxiter": 200, "gtol": _LEVEL}, closure.state
        best, goes_on = given, len(start) == len(given)
        if goes_on:
            climbs, options = 1, options | {"maxfun": max(_GOING_ON // len(self.points), _FEWEST)}
        for climb in range(_MOST_CLIMBS):
            at_bound = goes_on and climb == 1 and bool((best <= bounds[:, 0]).any())
            if climb >= climbs and highest > -math.inf and not at_bound:
                break
            first = np.clip(start, *bounds.T) if goes_on and not climb else given
            if climb > goes_on:
                first = self._near(given, bounds, generator_for(seed, climb, "fit"))
            try:  # not by BoTorch, which limits the threads of all others meanwhile
                end = minimize(closure, first, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
            except NumericalError:  # some line searches look far away
                continue
            if end.status in _ENDED and -end.fun > highest:
                best, highest = end.x, -float(end.fun)
        closure.state = best
        return highest > -math.inf

    def _within_reach(self) -> dict[str, tuple[Any, Any]]:
        """Return bounds that keep a line search from length scales at which kernels are nothing but rounding."""
        reached = {}  # what has no least value is raw: a length scale is about e to the power of it where small
        for name, value in self.parameters.items():
            lower, upper = self.bounds.get(name, (None, None))
            if lower is None or bool((torch.as_tensor(lower) == -math.inf).all()):
                lower = value.detach().flatten().clamp_max(0.0) - _REACH
            reached[name] = lower, torch.inf if upper is None else upper
        return reached

    def _near(self, given: Array, bounds: Array, generator: torch.Generator) -> Array:
        """Return parameters near those given: times log-normal factors of deviation 1, or if below 0 plus."""
        lower, upper = bounds.T
        steps = [
            torch.randn(value.numel(), generator=generator, dtype=torch.float64, device="cpu")
            for value in self.parameters.values()
        ]
        step = torch.cat(steps).numpy()
        moved = np.where(lower >= 0.0, given * np.exp(step), given + step)  # raw, and a logarithm where small
        return np.clip(moved, lower, upper)


def spanning(kernel: Kernel, points: Tensor, most: int) -> Tensor:
    """Return the numbers (m,), m <= most, of points (u, d) that span the others: those of pivoted Cholesky."""
    return greedy_pivots(points, kernel, most, 1e-8)


def _with_free_horizon(forgetting: float) -> ForgettingKernel:
    """Return a kernel whose free parameter is log h, the logarithm of the horizon at which ε = 1 − e^(−2/h)."""
    log_horizon = Positive(
        transform=lambda raw: -torch.expm1(-2.0 * torch.exp(-raw)),  # pyright: ignore[reportArgumentType]
        inv_transform=lambda share: (-2.0 / torch.log1p(-share)).log(),  # pyright: ignore[reportArgumentType]
    )
    return ForgettingKernel(forgetting, forgetting_constraint=log_horizon)


def _on_time(kernel: Kernel, in_time: ForgettingKernel) -> SpaceTimeKernel:
    """Return the prior covariance of points that know the time, of these kernels and not of copies."""
    space, time = kernel, in_time
    if isinstance(kernel, SpaceTimeKernel):
        space, time = kernel.space_kernel, kernel.time_kernel * in_time
    joint = SpaceTimeKernel(space, time)
    joint.space_kernel, joint.time_kernel = space, time
    return joint

"""The marginal posterior of kernel, noise and ε: what a fit maximises."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.optim.utils import get_parameters_and_bounds
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import Growth, Memory, Stationary, ages
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.rows import distinct_in_order

#: Mean and deviation of log λ under BoTorch's prior of λ, for rewards of variance 1.
_NOISE_PRIOR = (-4.0, 1.0)

#: λ before any fit: the mode of that prior.
_FIRST_NOISE = math.exp(-5.0)

#: The largest λ that a fit tries.
_LARGEST_NOISE = 100.0

#: Deviation of log h, h the horizon of a prior on time: the prior says little.
_DECADE = math.log(10.0)

#: The shortest h: its ε is the largest that a ``ForgettingKernel`` tries by itself.
_SHORTEST = 2.0 / math.log(2.0**20)

#: Points of the dictionary of a bound, and points that it covers.
DICTIONARY, COVERED = 200, 5_000


@dataclass(frozen=True, eq=False)
class Data:
    """What is fitted to.

    Attributes:
        X: points (n, d), n >= 1, in double precision; under a prior on time with the time as their first column.
        Y: rewards (n,) less their mean, of variance 1.
        times: when each was made, (n,); its number unless given.
        now: the current time; without it the latest one, or n where there are no times.
        names: of the columns of points without the time, (d,), empty ones where they are not known.
    """

    X: Tensor
    Y: Tensor
    times: Tensor | None = None
    now: float | None = None
    names: Sequence[str] | None = None

    def in_order(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """Return copies of points, rewards and times, in the order of these, and the current time."""
        if self.times is None:
            times = torch.arange(len(self.Y), dtype=torch.float64, device=self.Y.device)
            return self.X.clone(), self.Y.clone(), times, float(len(times)) if self.now is None else self.now
        order = self.times.argsort(stable=True)
        times = self.times[order].double()
        return self.X[order], self.Y[order], times, float(times[-1]) if self.now is None else self.now


class MarginalPosterior:
    """The log density of rewards and parameters, log N(y | 0, K + Σ) + log p(parameters), as a function of these.

    Args:
        data: what is fitted to.
        kernel: the prior covariance, at one time if the memory has a prior on time. It moves with the parameters.
        regularization: λ, if it is known.
        memory: which rewards count, and with what noise.
        learn: whether the ε of a prior on time is a parameter. Then all rewards count.
        most: how many distinct points are used: evenly spaced ones in the order of their first rewards, the latest
            under a prior on time.
        mean_variance: the prior variance of a constant that is added to the function; 0 for none.
        bounded: whether the density is bounded through a dictionary, chosen under the kernel as it is, of many points.

    Attributes:
        parameters: by name; that of λ is its logarithm, ``noise``, and that of ε that of its horizon, ``horizon``.
        bounds: the least and the largest value of each.
        points: the distinct points that are used, (u, d).
        num_points: how many there are.
        Y: the rewards that are used, (n,).
        keeps_noise: whether each of them has noise variance λ.
        names: those of the data.

    Raises:
        InputError: if nothing counts.
    """

    def __init__(
        self,
        data: Data,
        kernel: Kernel,
        regularization: float | None,
        memory: Memory,
        learn: bool,
        most: int,
        bounded: bool = False,
        mean_variance: float = 0.0,
    ) -> None:
        X, Y, times, now = data.in_order()
        self.names = data.names
        level = _FIRST_NOISE if regularization is None else regularization
        noise = (Stationary() if learn else memory).noise(times, now, level)
        rows = noise.isfinite().nonzero().squeeze(-1)
        if len(rows) == 0:
            raise InputError(f"Of {len(Y)} reward(s) none counts at time {now:g} under {memory}: there is none to fit.")
        points, places = distinct_in_order(X[rows])
        self.num_points = len(points)
        if len(points) > most:
            first = len(points) - most if memory.needs_time_column else 0
            chosen = torch.linspace(first, len(points) - 1, most, dtype=torch.float64).round().long()
            rows = rows[torch.isin(places, chosen)]
            points, places = distinct_in_order(X[rows])
        self.points, self._places = points, places
        self.Y, self._relative = Y[rows], noise[rows] / level
        self._ages = ages(times[rows], times.new_tensor(now))
        self.keeps_noise, self.mean_variance = memory.keeps_noise, mean_variance
        self._growth: Growth | None = getattr(memory, "growth", None)
        self._log_noise = Parameter(Y.new_tensor(math.log(level)))
        self._noise_prior = LogNormalPrior(Y.new_tensor(_NOISE_PRIOR[0]), Y.new_tensor(_NOISE_PRIOR[1]))
        self.kernel = self.joint = kernel
        self.parameters, self.bounds = get_parameters_and_bounds(kernel, requires_grad=True)
        if regularization is None:
            self.parameters["noise"] = self._log_noise
            self.bounds["noise"] = (math.log(MIN_INFERRED_NOISE_LEVEL), math.log(_LARGEST_NOISE))
        if memory.needs_time_column:
            span, share = float(self._ages.max()) or 1.0, float(getattr(memory, "forgetting", 0.0))
            self._horizon_prior = NormalPrior(Y.new_tensor(math.log(span)), Y.new_tensor(_DECADE))
            if learn:
                in_time = _time_kernel(share or -math.expm1(-2.0 / span))
                self.parameters["horizon"] = in_time.raw_forgetting
                self.bounds["horizon"] = (math.log(_SHORTEST), math.inf)
            else:
                in_time = ForgettingKernel(share).requires_grad_(False)
            self.joint = _on_time(kernel, in_time)
        self._dictionary = self._spanning() if bounded else None

    @property
    def regularization(self) -> float:
        """λ."""
        return float(self._log_noise.detach().exp())

    @property
    def horizon(self) -> float:
        """h, at which ε is 1 − e^(−2/h), where it is a parameter."""
        return float(self.parameters["horizon"].detach().exp())

    def follow(self, other: "MarginalPosterior") -> None:
        """Go on from the λ of another."""
        with torch.no_grad():
            self._log_noise.copy_(other._log_noise)

    @property
    def mean(self) -> float:
        """The posterior mean of the constant that is added to the function: its variance times 1ᵀ(K + Σ)⁻¹y."""
        shift = self.Y.new_zeros(()).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.density(shift), shift)
        return self.mean_variance * float(slope)

    def __call__(self) -> Tensor:
        """Return the log density of rewards and parameters, 0-dim."""
        value = self.density()
        for _, module, prior, closure, _ in self.kernel.named_priors():
            value = value + prior.log_prob(closure(module)).sum()
        if "noise" in self.parameters:
            value = value + self._noise_prior.log_prob(self._log_noise.exp())
        if "horizon" in self.parameters:
            value = value + self._horizon_prior.log_prob(self.parameters["horizon"]).sum()
        return value

    def density(self, shift: Tensor | float = 0.0) -> Tensor:
        """Return log N(y | shift, K + Σ), or a lower bound of it, 0-dim.

            log N(y | 0, K + Σ) >= log N(y | 0, Q + Σ) − ½ tr Σ⁻¹(K − Q),  Q = K_XZ K_ZZ⁻¹ K_ZX

        Source: Titsias, AISTATS 2009, Eq. (9). Differs: each observation may have a noise variance of its own.

        Cost: O(u³), or O(u m²) for a bound through m points.
        """
        y, noise, constant = self._merged(shift)
        if self._dictionary is None:
            return _LogDensity.apply(self._gram(self.points) + noise.diag(), y) + constant  # pyright: ignore
        embedding, left = self._projected()
        whitened, targets = embedding / noise.sqrt(), y / noise.sqrt()
        eye = torch.eye(len(embedding), dtype=y.dtype, device=y.device)
        factor = jittered_cholesky(eye + whitened @ whitened.mT)
        explained = torch.linalg.solve_triangular(factor, (whitened @ targets).unsqueeze(-1), upper=False)
        quadratic = targets.square().sum() - explained.square().sum()
        logarithms = noise.log().sum() + 2.0 * factor.diagonal().log().sum() + len(y) * math.log(2.0 * math.pi)
        return -0.5 * (quadratic + logarithms + (left / noise).sum()) + constant

    def unexplained(self) -> float:
        """Return what the dictionary leaves of the points, ½ tr Σ⁻¹(K − Q), in nats a point.

        A bound makes λ too large by about twice this share of it.
        """
        with torch.no_grad():
            return float((0.5 * self._projected()[1] / self._merged(0.0)[1]).mean())

    def _gram(self, X: Tensor, other: Tensor | None = None) -> Tensor:
        return gram(self.joint, X, other) + self.mean_variance

    def _projected(self) -> tuple[Tensor, Tensor]:
        """Return the points in coordinates of the dictionary, (m, u), and the variance that it leaves of each, (u,)."""
        Z = self.points[self._dictionary]
        factor = jittered_cholesky(self._gram(Z))
        embedding = torch.linalg.solve_triangular(factor, self._gram(Z, self.points), upper=False)
        variance = prior_variance(self.joint, self.points) + self.mean_variance
        return embedding, variance - embedding.square().sum(0)

    def _merged(self, shift: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean reward of each point, (u,), its noise variance, (u,), and what the logarithm lacks, 0-dim."""
        level = self._log_noise.exp()
        noise = level * self._relative if self._growth is None else self._growth.noise(self._ages, level)
        weights, y, size = 1.0 / noise, self.Y - shift, len(self.points)
        total = weights.new_zeros(size).index_add(0, self._places, weights)
        mean = weights.new_zeros(size).index_add(0, self._places, weights * y) / total
        squares = (weights * (y - mean[self._places]).square()).sum()
        spread = squares + (len(y) - size) * math.log(2.0 * math.pi)
        return mean, 1.0 / total, 0.5 * (weights.log().sum() - total.log().sum() - spread)

    def _spanning(self) -> Tensor:
        """Return the numbers of points that span the others under the kernel as it is."""
        ones = torch.ones(len(self.points), dtype=torch.float64, device=self.points.device)
        with torch.no_grad():
            return greedy_pivots(PlayedPoints(self.points, self.joint, ones, ones), DICTIONARY, 1e-8)


class _LogDensity(torch.autograd.Function):
    """log N(y | 0, C). With α = C⁻¹ y its gradient in C is ½ (α αᵀ − C⁻¹), for less than it costs through the factor.

    Cost: O(n³), once for value and gradient together.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, y: Tensor) -> Tensor:
        factor = jittered_cholesky(covariance)
        solved = torch.cholesky_solve(y.unsqueeze(-1), factor).squeeze(-1)
        ctx.save_for_backward(factor, solved)
        return -0.5 * (y @ solved + len(y) * math.log(2.0 * math.pi)) - factor.diagonal().log().sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        factor, solved = ctx.saved_tensors
        (gradient,) = gradients
        slope = 0.5 * (torch.outer(solved, solved) - torch.cholesky_inverse(factor))
        return gradient * slope, -gradient * solved


def _time_kernel(forgetting: float) -> ForgettingKernel:
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

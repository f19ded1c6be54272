"""What past runs of like tasks say before a new one: a shared kernel and λ, a mean, and how far to believe in it."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import torch
from gpytorch.kernels import ConstantKernel, Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Stationary
from torch_kbandits.numerics.gram import check_kernel, gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.rows import distinct_in_order
from torch_kbandits.observations.history import own_or, rewards
from torch_kbandits.priors.marginal import CLIMBS, MarginalPosterior, TrainingData
from torch_kbandits.priors.prior import Prior
from torch_kbandits.priors.units import FIRST_NOISE, Units, column_spans, default_kernel

#: Distinct points of a run, of all runs and of what they have in common, at most.
_OF_RUN, _OF_ALL, _IN_COMMON = 400, 2_000, 500

#: By how much a reward of another run may count as noisier than one of this: ∞ where runs have nothing in common.
_NOISIER = (1.0, 4.0, 16.0, 64.0, math.inf)


class CommonMean(Mean):
    """A level, and k(x, X) α: the posterior mean of what the rewards of past runs at X (u, d) have in common."""

    X: Tensor
    coefficients: Tensor

    def __init__(self, level: float, kernel: Kernel, X: Tensor, coefficients: Tensor) -> None:
        super().__init__()
        self.level, self.kernel = level, kernel
        self.register_buffer("X", X)
        self.register_buffer("coefficients", coefficients)

    def forward(self, x: Tensor) -> Tensor:
        """Return the means at points (..., n, d), (..., n)."""
        return (self.level + gram(self.kernel, x.to(self.X), self.X) @ self.coefficients).to(x)


def _rewards_of(name: str, run: Any) -> tuple[Tensor, Tensor, Tensor, Sequence[int] | None]:
    """Return points (n, d), rewards and noise told, NaN where none was, each (n,), and groups of columns if known."""
    candidates, history, groups = getattr(run, "candidates", None), getattr(run, "history", run), None
    noise = None
    if hasattr(history, "rewarded"):
        X, Y, noise = history.rewarded.X, history.rewarded.Y, history.rewarded.noise
        if candidates is not None:
            X, groups = X[:, int(candidates.is_timed) :], untimed(candidates).groups
    elif isinstance(history, (tuple, list)) and len(history) == 2:
        X = checks.points(f"{name}[0]", history[0])
        Y = rewards(history[1], X)
    else:
        raise InputError(f"{name} must be a bandit, a history or a pair (X, Y), got {checks.describe(run)}.")
    if X.dim() != 2 or len(X) < 2:
        raise InputError(f"{name} must have rewards of two points (n, d) or more, got {checks.describe(X)}.")
    noise = torch.full_like(Y, math.nan) if noise is None else noise
    X, Y, noise = (part.detach().cpu().double() for part in (X, Y, noise))
    return X, Y, noise, groups


def priors_of(runs: Sequence[Any], kernel: Kernel | None, seed: int) -> tuple[Prior, Prior, Prior]:
    """Return the prior that runs say, the one without the mean in common, and one of their units alone."""
    if not isinstance(runs, (list, tuple)) or not runs:
        raise InputError(f"runs must be a list of one past run or more, got {checks.describe(runs)}.")
    X, Y, told, groups = zip(*(_rewards_of(f"runs[{place}]", run) for place, run in enumerate(runs)), strict=True)
    if len(widths := {points.shape[-1] for points in X}) > 1:
        raise InputError(f"All runs must have the columns of the task, and these have {sorted(widths)} columns.")
    seed = checks.whole_number("seed", seed)
    spans = column_spans(torch.cat(X), groups=groups[0]) if kernel is None else None
    units = Units.of(torch.cat([y - y.mean() for y in Y]), centered=True, floor=-math.inf, spans=spans)
    data = [
        TrainingData(units.points(x), (y - y.mean()) / units.scale, noise=noise / units.scale**2)
        for x, y, noise in zip(X, Y, told, strict=True)
    ]
    start = default_kernel(X[0].shape[-1], groups[0])
    if kernel is not None:
        checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        check_kernel(kernel, X[0][:1])
        is_free = any(parameter.requires_grad for parameter in kernel.parameters())
        start = deepcopy(kernel).double() if is_free else units.kernel(kernel)
    alone, levels = _fitted(data, start, seed)
    own = [replace(part, Y=part.Y - level) for part, level in zip(data, levels, strict=True)]
    centers = torch.stack([y.mean() + units.scale * level for y, level in zip(Y, levels, strict=True)])
    level = float(centers.mean())
    # As if one more run had been a standard deviation from the others.
    spread = (units.scale**2 + float((centers - level).square().sum())) / len(centers)

    def prior(fit: tuple[Kernel, float], mean: Any = level) -> Prior:
        whole, constant = units.prior(*fit, mean), ConstantKernel().double()
        constant.constant = torch.tensor(spread, dtype=torch.float64)
        return replace(whole, kernel=(whole.kernel + constant).requires_grad_(False).eval())

    fresh, vague, fit, noisier = prior(alone), prior((start, FIRST_NOISE)), alone, 1.0
    if len(own) > 1:
        noisier = max(_NOISIER, key=lambda number: _predicted(own, number, *alone))
        if noisier == math.inf:
            return fresh, fresh, vague
        left = [replace(part, Y=_left(own, place, noisier, *alone)) for place, part in enumerate(own)]
        fit, _ = _fitted(left, start, seed)
    points, coefficients = _in_common(own, noisier, *alone)
    points = points if spans is None else points * spans
    mean = CommonMean(level, units.prior(*alone, 0.0).kernel, points, coefficients / units.scale)
    return prior(fit, mean), fresh, vague


def _fitted(data: Sequence[TrainingData], kernel: Kernel, seed: int) -> tuple[tuple[Kernel, float], list[float]]:
    """Return a copy of the kernel and λ that are fitted to all runs, and the level of each, in units."""
    kernel, words = deepcopy(kernel), {"most": max(min(_OF_RUN, _OF_ALL // len(data)), 2), "mean_variance": 1.0}
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's grad mode
        each = [MarginalPosterior(part, kernel, None, Stationary(), **words) for part in data]
        shared = each[0].sharing(each[1:])
        shared.maximize(seed, CLIMBS)
    return (kernel.eval().requires_grad_(False), shared.regularization), [one.mean for one in each]


@torch.no_grad()
def _in_common(data: Sequence[TrainingData], noisier: float, kernel: Kernel, noise: float) -> tuple[Tensor, Tensor]:
    """Return points (u, d) and α (u,): the posterior mean of all rewards, of so many times λ or the noise told."""
    points, places = distinct_in_order(torch.cat([part.X for part in data]))
    weights = torch.cat([1.0 / own_or(cast(Tensor, part.noise), noise) for part in data])
    precision, sums = torch.zeros(2, len(points), dtype=torch.float64)
    precision.index_add_(0, places, weights)
    means = sums.index_add(0, places, weights * torch.cat([part.Y for part in data])) / precision
    rows = torch.linspace(0, len(points) - 1, min(len(points), _IN_COMMON), dtype=torch.float64).round().long()
    points, means, precision = points[rows], means[rows], precision[rows]
    factor = jittered_cholesky(gram(kernel, points) + (noisier / precision).diag())
    return points, torch.cholesky_solve(means.unsqueeze(-1), factor).squeeze(-1)


@torch.no_grad()
def _left(data: Sequence[TrainingData], place: int, noisier: float, kernel: Kernel, noise: float) -> Tensor:
    """Return the rewards (n,) of a run less what the others have in common."""
    if noisier == math.inf:
        return data[place].Y
    points, coefficients = _in_common([part for each, part in enumerate(data) if each != place], noisier, kernel, noise)
    return data[place].Y - gram(kernel, data[place].X, points) @ coefficients


@torch.no_grad()
def _predicted(data: Sequence[TrainingData], noisier: float, kernel: Kernel, noise: float) -> float:
    """Return the log density of each run given what the others have in common, summed."""
    total, words = 0.0, {"most": _OF_RUN, "mean_variance": 1.0}
    for place, part in enumerate(data):
        left = replace(part, Y=_left(data, place, noisier, kernel, noise))
        total += float(MarginalPosterior(left, kernel, noise, Stationary(), **words).density())
    return total

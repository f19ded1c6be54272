"""Kernel, noise and the number of a memory from rewards, by evidence or prediction, and what is odd about the fit."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from torch_kbandits.kernels import GroupedKernel, SpaceTimeKernel
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.rows import distinct_in_order
from torch_kbandits.observations.history import own_or
from torch_kbandits.posteriors.prediction import PredictionStrategy
from torch_kbandits.priors.marginal import CLIMBS, COVERED, MarginalPosterior, TrainingData, spanning

#: What a dictionary may leave of the points for a bound to be used, in nats a point: it makes λ too large by twice it.
_UNEXPLAINED = 0.02

#: Rewards that memories are to predict, how many of the latest they may remember, and points of their dictionary.
_PREDICTED, _REMEMBERED, _DICTIONARY = 100, 400, 128

#: A kernel that is to predict is fitted to the latest rewards, to a quarter of them, and so on down to so many; and the
#: shortest horizon, in rewards.
_FEWEST, _SHORTEST = 16, 4.0

#: By so many nats a memory must explain or predict rewards better than none before it is used: odds of twenty to one,
#: strong evidence after Kass and Raftery, JASA 1995.
_STRONG = 3.0


@dataclass(frozen=True, eq=False)
class Fit:
    """What was fitted: kernel, λ, constant prior mean in units of Y, and the memory with its number.

    ``evidence`` is the log density, in nats, of the rewards used and of what was fitted under its prior; NaN where
    nothing ``settled``, since no maximum was found: then all is as it was given. ``diagnostics`` say what is odd, and
    the ``end`` is where the next fit may start.
    """

    kernel: Kernel
    regularization: float
    memory: Memory | None
    evidence: float
    settled: bool
    diagnostics: tuple[str, ...]
    mean: float = 0.0
    end: tuple[float, ...] = ()


def fit_evidence(
    data: TrainingData,
    kernel: Kernel,
    *,
    regularization: float | None = None,
    memory: Memory | None = None,
    learn_memory: bool = False,
    learn_mean: bool = False,
    noise_spread: float = 1.0,
    seed: int,
    start: Sequence[float] = (),
    exact_up_to: int = 400,
) -> Fit:
    """Fit kernel, noise and the number of a memory to rewards.

    What is maximised is the ``MarginalPosterior`` of those parameters of a copy of the kernel that need a gradient, and
    of λ unless it is given, whose logarithm has the prior deviation ``noise_spread``. Of more distinct points than
    ``exact_up_to`` so many are taken; without a prior on time the fit goes on from there with up to 5,000 and a bound
    of the density, if a dictionary of 200 spans these. With ``learn_mean`` the prior mean is a constant that is N(0, 1)
    and learned, else 0. Where there is a ``start``, the end of an earlier fit of the same kind, the search goes on from
    there, else from the kernel and from points near it.

    The ε of a ``TemporalPrior`` is fitted jointly with the rest; it is 0 unless that is 3 nats more probable. For other
    memories the likelihood is no guide: noise that grows with the age says that old rewards lie further apart, which
    they do not. Their number is that under which rewards are predicted best from those before them, with the kernel and
    λ that predict best, of those fitted to the latest rewards, ever fewer, as if nothing changed, and of those under a
    prior on time; one that forgets nothing unless another has 3 nats more.

    Cost: O(u³) for each of some hundred evaluations, u distinct points; O(u m²) with m = 200 for a bound.
    """
    kept = Stationary() if memory is None else memory
    learn = learn_memory and not isinstance(kept, Stationary)
    words: Any = {"most": exact_up_to, "mean_variance": 1.0 if learn_mean else 0.0, "noise_spread": noise_spread}
    climb = partial(_climbed, kernel, regularization, seed, words)
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's grad mode
        by_prediction = learn and not kept.needs_time_column
        fit = _predicting(climb, words, data, kept) if by_prediction else climb(data, kept, learn, start=start)
    return fit if memory is not None else replace(fit, memory=None)


def _climbed(
    kernel: Kernel,
    regularization: float | None,
    seed: int,
    words: Any,
    data: TrainingData,
    memory: Memory,
    learn: bool = False,
    climbs: int = CLIMBS,
    start: Sequence[float] = (),
) -> Fit:
    """Return the best of some climbs; of many points one more, of the bound."""
    kernel, on_time = deepcopy(kernel).to(data.X), memory.needs_time_column
    posterior = MarginalPosterior(data, kernel, regularization, memory, learn=learn, **words)
    settled = posterior.maximize(seed, climbs, start)
    if settled and posterior.num_points > len(posterior.points) and not (learn or on_time):
        many = MarginalPosterior(data, deepcopy(kernel), regularization, memory, **words | {"most": COVERED})
        if many.bounded(posterior) <= _UNEXPLAINED and many.maximize(seed, 1, posterior.values if start else ()):
            posterior = many
    if not (settled and learn and on_time):
        return _described(posterior, memory, settled)
    never, end = memory.with_horizon(math.inf), posterior.values
    still = MarginalPosterior(data, deepcopy(kernel), regularization, never, **words)
    is_settled = still.maximize(seed, climbs, start[:-1])
    with torch.no_grad():
        changes = not is_settled or float(posterior() - still()) > _STRONG
    found, memory = (posterior, memory.with_horizon(posterior.horizon)) if changes else (still, never)
    return replace(_described(found, memory, True), end=end)


def _described(posterior: MarginalPosterior, memory: Memory, settled: bool) -> Fit:
    """Return the parameters of a posterior as they are, and what is odd about them."""
    evidence, mean = math.nan, 0.0
    said: tuple[str, ...] = (
        f"The kernel could not be fitted to {len(posterior.Y)} reward(s) and stays as it was: see whether it gives "
        "finite numbers at these points, or give another.",
    )
    if settled:
        with torch.no_grad():
            evidence, said, mean = float(posterior()), diagnostics(posterior), posterior.mean
    kernel = posterior.kernel.eval().requires_grad_(False)
    return Fit(kernel, posterior.regularization, memory, evidence, settled, said, mean, posterior.values)


# ---------------------------------------------------------------- by prediction


def _predicting(climb: Callable[..., Fit], words: Any, data: TrainingData, memory: Memory) -> Fit:
    """Return the kernel and the number of the memory that predict best."""
    ordered = data.in_order()
    told_at, now, told = cast(Tensor, ordered.times), cast(float, ordered.now), cast(Tensor, ordered.noise)
    X, Y, times, noise = (part[-_REMEMBERED:] for part in (ordered.X, ordered.Y, told_at, told))
    first, last = len(Y) // 2, len(Y) - 1
    predicted = torch.linspace(first, last, min(_PREDICTED, len(Y) - first), dtype=torch.float64).round().long()
    memories = [memory.with_horizon(horizon) for horizon in _horizons(times, memory)]
    best, highest = None, -math.inf
    for fit in _candidates(climb, X, Y, times, noise):
        if not fit.settled:
            continue
        levels = own_or(noise, fit.regularization)
        scores = _predictive_densities(fit, memories, X, Y - fit.mean, times, predicted, levels)
        scores[1:] -= _STRONG  # the first memory forgets nothing
        if float(scores.max()) > highest:
            best, highest = (fit, memories[int(scores.argmax())]), float(scores.max())
    if best is None:
        return climb(data, memory)
    fit, memory = best
    aged = memory.noise(told_at, now, own_or(told, fit.regularization))
    counts = bool(aged.isfinite().any())  # at a restart nothing does
    posterior = MarginalPosterior(data, fit.kernel, fit.regularization, memory if counts else Stationary(), **words)
    return replace(_described(posterior, memory, True), mean=fit.mean)


def _horizons(times: Tensor, memory: Memory) -> list[float]:
    """Return horizons to choose from: none, and from the number of rewards down by halves to a few."""
    size, span = len(times), float(times[-1] - times[0])
    each = span / (size - 1) if span > 0.0 and getattr(memory, "unit", "time") == "time" else 1.0
    halvings = max(math.ceil(math.log2(size / _SHORTEST)), 0)
    return [math.inf] + [each * _SHORTEST * 2.0**power for power in range(halvings, -1, -1)]


def _candidates(climb: Callable[..., Fit], X: Tensor, Y: Tensor, times: Tensor, noise: Tensor) -> Iterator[Fit]:
    """Yield fits to the latest rewards as if nothing changed, and one to all of them that knows of change."""
    size = len(Y)
    while size >= _FEWEST or size == len(Y):
        yield climb(TrainingData(X[-size:], Y[-size:], noise=noise[-size:]), Stationary(), climbs=1)
        size //= 4
    timed = TrainingData(torch.cat([times.unsqueeze(-1), X], dim=-1), Y, times, noise=noise)
    yield climb(timed, Stationary(), learn=True, climbs=1)


@torch.no_grad()
def _predictive_densities(
    fit: Fit, memories: Sequence[Memory], X: Tensor, Y: Tensor, times: Tensor, predicted: Tensor, noise: Tensor
) -> Tensor:
    """Return how well memories predict, (G,): the sum of the log densities of rewards, each given those before it.

    The posterior of points X (n, d) and rewards Y (n,), in the order of their times (n,), of noise (n,) when fresh, is
    the Nyström–DTC one with a dictionary of at most 128 points; predicted are rows (p,). Cost: O(G p u m²), u distinct
    points and m of these.
    """
    points, places = distinct_in_order(X)
    here, Z = places[predicted], points[spanning(fit.kernel, points, _DICTIONARY)]
    scores = list[Tensor]()
    for memory in memories:
        weights = Y.new_zeros(len(predicted), len(Y))
        for row, s in zip(weights, predicted.tolist(), strict=True):
            row[:s] = 1.0 / memory.noise(times[:s], float(times[s]), noise[:s])
        none = Y.new_zeros(len(predicted), len(points))
        precision, sums = none.index_add(1, places, weights), none.index_add(1, places, weights * Y)
        means = torch.where(precision > 0.0, sums / precision, 0.0)
        strategy, z = PredictionStrategy.nystrom(fit.kernel, Z, points, means, 1.0 / precision)
        at = strategy.at(points[here].unsqueeze(-2), z[:, here].mT.unsqueeze(-1))
        variance = noise[predicted] + strategy.own_variance(at).squeeze(-1)
        error = Y[predicted] - strategy.mean_at(at).squeeze(-1)
        scores.append(-0.5 * (error.square() / variance + variance.log() + math.log(2.0 * math.pi)).sum())
    return torch.stack(scores)


# ---------------------------------------------------------------- what is odd

#: Kernels that divide differences by their length scale.
_DIVIDING = (GroupedKernel, MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel)

#: Values so many length scales apart share next to nothing. If so many of all pairs are, the length scale is short.
_APART, _NEARLY_ALL = 3.0, 0.99

#: The least prior variance of what rewards differ by from one end of a column to the other, relative to their own; what
#: is at a bound but for rounding; a prior variance that is far below the noise; and points that are evaluated.
_NOTICED, _AT, _FAR_BELOW, _EVALUATED = 1e-3, 1e-3, 0.01, 200

#: Of fewer rewards nobody knows whether they are more than noise; and so many nats more than noise alone are nothing.
_ENOUGH, _NOTHING = 20, 2.0


def diagnostics(posterior: MarginalPosterior) -> tuple[str, ...]:
    """Return what is odd about kernel and noise given the rewards that they were fitted to.

    That is a length scale that is short, less than a third of the distance in 99 of 100 pairs of values, or so long
    that its columns explain nothing, or at a bound; a noise at the least that a fit tries; or, and then nothing else, a
    kernel under which 20 rewards or more are hardly more probable than under noise alone.

    Cost: one evaluation of the density, and O(d) kernel values of at most 200 points.
    """
    kernel, names = posterior.kernel, posterior.names
    with torch.no_grad():
        timed = posterior.joint is not kernel and not isinstance(kernel, SpaceTimeKernel)
        X = posterior.points[:, 1:] if timed else posterior.points  # as the kernel sees them
        X = X[torch.linspace(0, len(X) - 1, min(len(X), _EVALUATED), dtype=torch.float64).round().long()]
        if _explains_nothing(posterior, float(prior_variance(kernel, X).mean())):
            return (
                "The kernel explains nothing: the rewards are as probable as noise alone. See whether they depend on "
                "these columns at all, give more rewards, or another kernel.",
            )
        scales = length_scales(kernel, range(X.shape[-1]))
        faults = ((*scale, _fault(*scale, kernel, X)) for scale in scales)
        said = [f"{_subject(columns, value, names)} is {fault}" for columns, value, _, fault in faults if fault]
    # A wider prior says that there may be no noise.
    is_odd = "noise" in posterior.parameters and posterior.noise_spread <= 1.0
    if is_odd and posterior.regularization <= posterior.least_noise * (1.0 + _AT):
        said.append(
            "The noise is fitted as nothing: if equal plays do not bring equal rewards give regularization, or play "
            "some points again."
        )
    return tuple(dict.fromkeys(said))


def _explains_nothing(posterior: MarginalPosterior, variance: float) -> bool:
    if variance < _FAR_BELOW * posterior.regularization:
        return True
    if len(posterior.Y) < _ENOUGH or not posterior.keeps_noise:
        return False
    # Infinite where all rewards are equal.
    alone = -0.5 * len(posterior.Y) * (float((2.0 * math.pi * posterior.Y.square().mean()).log()) + 1.0)
    return float(posterior.density()) < alone + _NOTHING


def _subject(columns: Sequence[int], value: float, names: Sequence[str] | None) -> str:
    """Return what a sentence is about, given the names of all columns, as far as they are known."""
    own = [""] if names is None else [names[column] for column in columns]
    numbers = ", ".join(map(str, columns))
    called = f"{', '.join(map(repr, own))} ({numbers} from 0)" if all(own) else f"{numbers} (from 0)"
    return f"The length scale {value:.3g} of column{'s' if len(columns) > 1 else ''} {called}"


def _fault(columns: Sequence[int], value: float, constraint: Interval, kernel: Kernel, X: Tensor) -> str | None:
    """Return what is wrong with a length scale, and what to do; None if nothing is."""
    values = X[:, columns]
    if bool((values == values[:1]).all()):
        return None
    lower, upper = float(constraint.lower_bound), float(constraint.upper_bound)
    different = values.unique(dim=0)
    distances = torch.pdist(different)
    apart = (distances > _APART * value).double()
    # Of a category, all values of which are as far apart, each may well be alone.
    is_category = len(columns) > 1 and float(distances.amax()) <= (1.0 + _AT) * float(distances.amin())
    is_short = len(different) > 2 and float(apart.mean()) >= _NEARLY_ALL
    if not is_category and (is_short or (lower > 0.0 and value <= lower * (1.0 + _AT))):
        return (
            "short: rewards change faster than its values are apart. Treat it as a category, see GroupedKernel, if it "
            "names kinds of things; else leave it out, take something smoother, or give a lengthscale_prior."
        )
    if value >= upper * (1.0 - _AT):
        return "at its upper bound: raise that, or leave out what explains so little."
    low, high = X.clone(), X.clone()
    low[:, columns], high[:, columns] = values.amin(0), values.amax(0)
    across = gram(kernel, low.unsqueeze(-2), high.unsqueeze(-2)).flatten()
    noticed = prior_variance(kernel, low) + prior_variance(kernel, high) - 2.0 * across
    if float(noticed.mean()) < _NOTICED:
        return "so long that it explains nothing: leave it out, or give a lengthscale_prior."
    return None


def length_scales(kernel: Kernel, columns: Sequence[int]) -> Iterator[tuple[Sequence[int], float, Interval]]:
    """Yield the length scales of a kernel that sees these columns, with their columns, values and constraints."""
    if isinstance(kernel, ScaleKernel):  # whose columns are those of its base, which does not choose again
        kernel = kernel.base_kernel
    if kernel.active_dims is not None:
        columns = [columns[place] for place in cast(Tensor, kernel.active_dims).tolist()]
    if isinstance(kernel, _DIVIDING) and kernel.has_lengthscale:
        scales = cast(Tensor, kernel.lengthscale).flatten().tolist()
        each = range(len(columns)) if len(scales) == len(columns) else [0] * len(columns)
        groups = kernel.groups if isinstance(kernel, GroupedKernel) else each
        for number, value in enumerate(scales):
            own = tuple(column for column, group in zip(columns, groups, strict=True) if group == number)
            yield own, value, cast(Interval, kernel.raw_lengthscale_constraint)
    elif isinstance(kernel, SpaceTimeKernel):
        yield from length_scales(kernel.time_kernel, columns[:1])
        yield from length_scales(kernel.space_kernel, columns[1:])
    else:
        for part in kernel.children():
            for each in part if isinstance(part, torch.nn.ModuleList) else (part,):
                if isinstance(each, Kernel):
                    yield from length_scales(each, columns)

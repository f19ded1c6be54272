"""Few arms whose function goes back to the prior as time passes, by a Kalman filter."""

import math
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, ProductKernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import NumericalError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.gram import gram, prior_mean
from torch_kbandits.numerics.linalg import covariance_root, jittered_cholesky
from torch_kbandits.numerics.rows import Rows, distinct, distinct_in_order, row_keys
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History
from torch_kbandits.selection.base import FantasyPosterior, Surrogate
from torch_kbandits.selection.composite import delegated
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.propensities import Chosen

Array = NDArray[Any]

_EVER = -1e300  # before all times
_BETWEEN_STATES = 32  # after so many rewards a state is kept, from which late ones are learned


class _State(NamedTuple):
    """The posterior of the arms at a time."""

    clock: float  # the time of the latest reward
    covariance: Array  # (A, A)
    deviation: Array  # the means less the prior ones, (A,)
    log_det: float  # of V, which has the rewards so far
    number: int  # how many rewards these are, the first ones told


class FilteredArms(Surrogate):
    """The exact posterior over few arms under a prior on time that forgets at a constant rate, in double precision.

    Such a prior is a Markov process: with ρ = (1 − ε)^(age / 2) the mean μ and covariance C of all arms become, as time
    passes, m + ρ (μ − m) and ρ² C + (1 − ρ²) K. The joint surrogate over points that know the time has the same
    posterior. It serves for what a filter does not know: points that are no arms, and an expert's answers.

    Source: Kalman, "A new approach to linear filtering and prediction problems", 1960; for Gaussian processes Särkkä,
    Solin and Hartikainen, IEEE Signal Processing Magazine 2013.

    Args:
        arms: (A, d), in double precision.
        rate: ½ log(1 − ε), by which the logarithm of a correlation falls in a unit of time.
        joint: the surrogate over points (time, arm) before any reward.

    Cost of a round: O(A²). Of a reward that comes late O(l A²), where l, or some more, were told of later times.
    """

    dictionary_weights = None
    effective_dimension, mean_norm, recommend, shown = delegated(
        "joint", "effective_dimension", "mean_norm", "recommend", "shown"
    )

    def __init__(self, arms: Tensor, rate: float, joint: GaussianSurrogate) -> None:
        none, level = joint.inducing_points, float(joint.regularization)
        super().__init__(none, joint.kernel, level, exact=True, mean=joint.prior_mean)
        self._rate, self._empty, self._noise, self.tie_rank = rate, joint, level, joint.tie_rank
        self._rows = {key: row for row, key in reversed([*enumerate(row_keys(arms))])}  # of equal arms the first
        with torch.no_grad():
            values = gram(self.kernel, torch.cat([arms.new_zeros(len(arms), 1), arms], dim=-1))
        self._prior, nothing = values.contiguous().numpy(), np.empty(0)
        self._bound = values.diagonal().max()
        #: Points (n, 1 + d), rewards, times, arms and rewards less prior means, (n,), in the order told.
        self._told = tuple(map(Rows, (none, none.new_zeros(0), nothing, nothing.astype(int), nothing)))
        #: The latest state, and earlier ones from which late rewards are learned, the latest first.
        self._states = (_State(_EVER, self._prior, np.zeros(len(arms)), 0.0, 0),)

    # ---------------------------------------------------------------- what is known

    @cached_property
    def joint(self) -> GaussianSurrogate:
        """The joint surrogate of the same rewards. Cost: O(n³)."""
        told = self._history
        none = Selection(told.X[:0], told.Y[:0], None)
        return self._empty.at(self._states[0].clock).restored(told, none) if len(told.Y) else self._empty

    @property
    def _history(self) -> History:
        X, Y = (each.tensor for each in self._told[:2])
        return History(X, Y, torch.zeros_like(Y).long(), None, X[:, 0])

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return self._states[0].number

    @property
    def played(self) -> Tensor:
        """The points that count, (u, 1 + d), each once, in the order in which they were first played."""
        return distinct_in_order(self._told[0].tensor)[0]

    inducing_points: Any = played

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim."""
        return self._bound

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self.regularization.new_tensor(0.5 * self._states[0].log_det)

    def projection_error(self) -> Tensor:
        """Return 0, 0-dim: the posterior is exact."""
        return torch.zeros_like(self.regularization)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, 1 + d), each (q,), of times before or after now.

        Cost: O(q) at arms from the latest reward on; before it O(l³ + l² q) for l rewards later than that.
        """
        rows = self.rows_of(X)
        if rows is None or not len(X):
            return self.joint.moments(X)
        times = X[:, 0].numpy()
        state, at, arms, rests = self._since(float(times.min()))
        deviation = np.exp(self._rate * (times - state.clock)) * state.deviation[rows]
        variance = self._covariance(state, times, rows, times, rows)
        if len(at):
            late = at[:, None], arms[:, None]
            rests = rests - np.exp(self._rate * (at - state.clock)) * state.deviation[arms]
            noisy = self._covariance(state, *late, at, arms) + self._noise * np.eye(len(at))
            white = gaussian_loops.lower_inverse(jittered_cholesky(torch.from_numpy(noisy)).numpy())
            across = white @ self._covariance(state, *late, times, rows)
            deviation, variance = deviation + white @ rests @ across, variance - np.square(across).sum(0)
        return self._expected(X) + torch.from_numpy(deviation), torch.from_numpy(variance.clip(0.0))

    def at_arms(self, arms: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances of all arms (A, 1 + d) at a time, each (A,). Cost: O(A)."""
        state = self._states[0]
        if time < state.clock:
            return self.moments(arms)
        left = math.exp(self._rate * (time - state.clock))
        prior, known = self._prior.diagonal(), state.covariance.diagonal()
        mean, variance = left * state.deviation, prior + left * left * (known - prior)
        return self._expected(arms) + torch.from_numpy(mean), torch.from_numpy(variance.clip(0.0))

    def covariance_at(self, time: float, state: _State | None = None) -> Array:
        """Return the posterior covariance of the arms at a time from that of a state on, now the latest, (A, A)."""
        state = self._states[0] if state is None else state
        covariance = state.covariance - self._prior
        covariance *= math.exp(2.0 * self._rate * (time - state.clock))
        covariance += self._prior
        return covariance

    def _covariance(self, state: _State, times: Array, rows: Array, others: Array, columns: Array) -> Array:
        """Return the covariances in a state of arms at times after it with other arms at other times, (...,)."""
        prior, known = self._prior[rows, columns], state.covariance[rows, columns]
        left = np.exp(2.0 * self._rate * (np.minimum(times, others) - state.clock))
        return np.exp(self._rate * np.abs(times - others)) * (prior + left * (known - prior))

    def _expected(self, X: Tensor) -> Tensor:
        """Return the prior means of points (k, 1 + d), (k,)."""
        with torch.no_grad():
            return X.new_zeros(len(X)) if self.prior_mean is None else prior_mean(self.prior_mean, X).double()

    def rows_of(self, X: Tensor) -> Array | None:
        """Return which arms points (k, 1 + d) are, (k,); None if one is no arm."""
        rows = [self._rows.get(key) for key in row_keys(X[:, 1:])]
        return None if None in rows else np.array(rows, dtype=int)

    # ---------------------------------------------------------------- learning

    def at(self, now: float) -> Self:
        """Return this surrogate: points say of what time they are."""
        return self

    def learned(self, told: History, generator: Any = None, until: float | None = None) -> Surrogate:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the surrogate conditioned on more rewards: the joint one if one is of no arm, or has its own noise.

        Cost: O(q A²) for q rewards in the order of their times.
        """
        rows = self.rows_of(told.X) if told.noise is None else None
        if rows is None:
            now = max(self._states[0].clock, float(told.X[:, 0].max()))
            return self.joint.at(now).learned(told, generator, until)
        return self.followed(told.X, told.Y, rows, (told.Y - self._expected(told.X)).numpy())

    def restored(self, told: History, dictionary: Selection) -> Surrogate:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the empty surrogate conditioned on a whole history."""
        return self.learned(told)

    def advised(self, answers: Answers) -> Surrogate:
        """Return the joint surrogate conditioned on an expert's answers as well."""
        return self.joint.at(float(answers.X[0, 0])).advised(answers) if len(answers.X) else self

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> FantasyPosterior:
        """Return the posterior with points (k, 1 + d) pending."""
        is_known = not len(pending) or self.rows_of(pending) is not None
        return FilterFantasy(self, pending) if is_known else self.joint.fantasized(pending)

    def followed(self, X: Tensor, Y: Tensor, rows: Array, rests: Array) -> Self:
        """Return the surrogate with more rewards, (q,), of points (q, 1 + d), which are arms (q,)."""
        other, times = shallow_copy(self), X[:, 0].numpy()
        vars(other).pop("joint", None)
        new = X, Y, times, rows, rests
        other._told = tuple(known.followed(each) for known, each in zip(self._told, new, strict=True))
        if len(X):
            first = float(times.min())
            latest, *earlier = other._states = tuple(each for each in self._states if each.clock <= first)
            if not earlier or latest.number - earlier[0].number >= _BETWEEN_STATES:
                earlier = [latest, *earlier]
            state, *late = other._since(first)
            for reward in zip(*late, strict=True):
                state = self._observed(state, *reward)
            other._states = (state, *earlier[:2], *earlier[2:][-1:])
        return other

    def over(self, arms: Tensor, joint: GaussianSurrogate) -> Surrogate:
        """Return the surrogate over other arms (A, d), computed afresh; the joint one is that before any reward."""
        return FilteredArms(arms, self._rate, joint).learned(self._history)

    def _since(self, time: float) -> tuple[_State, Array, Array, Array]:
        """Return a state no later than a time, and times, arms and rests (l,) of the rewards after it, in order."""
        state = next(each for each in self._states if each.clock <= time)
        times, rows, rests = (each.array[state.number :] for each in self._told[2:])
        if len(times) > 1:
            order = times.argsort(kind="stable")
            times, rows, rests = times[order], rows[order], rests[order]
        return state, times, rows, rests

    @np.errstate(all="ignore")  # whether all is finite is checked
    def _observed(self, state: _State, time: float, row: int, rest: float) -> _State:
        """Return the state after a reward less its prior mean, at an arm and a time."""
        covariance = self.covariance_at(time, state)
        deviation = math.exp(self._rate * (time - state.clock)) * state.deviation
        column = covariance[row].copy()
        spread = column[row] + self._noise
        deviation += column * ((rest - deviation[row]) / spread)
        gaussian_loops.add_outer(covariance, column, -1.0 / spread, covariance)
        if not (spread > 0.0 and np.isfinite(deviation).all()):
            raise NumericalError("The posterior is not finite: rewards or hyperparameters are too large for the dtype.")
        gain = math.log(spread / self._noise)
        return _State(float(time), covariance, deviation, state.log_det + gain, state.number + 1)


class FilterFantasy(FantasyPosterior):
    """The posterior over the arms with some pending: their variance shrinks, the means stay."""

    def __init__(self, surrogate: FilteredArms, pending: Tensor) -> None:
        super().__init__(pending)
        self.surrogate, self.tie_rank = surrogate, surrogate.tie_rank
        self._ahead = surrogate, 0  # with so many of the pending points

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the arm of the highest score."""
        surrogate = self.surrogate
        return self._best_offered(rule.scaled_to(surrogate), beta, seed, domain, surrogate.kernel_bound())

    def offered(self, domain: Domain) -> SimpleNamespace:
        """Return the posterior at the arms in a round; improvement is on the largest mean of the arms allowed."""
        surrogate = self.surrogate
        arms, time = cast(Tensor, domain.arms), float(cast(Tensor, domain.context)[0])
        (mean, variance), ahead = surrogate.at_arms(arms, time), self.taken_in()
        if ahead is not surrogate:
            variance = ahead.at_arms(arms, time)[1]
        if domain.incumbent is not None:
            best = surrogate.moments(domain.incumbent)[0].squeeze(0)
        else:
            best = (mean if domain.allowed is None else mean[domain.allowed]).max()

        points, places = distinct(arms)

        def root(rows: Tensor) -> Tensor:
            order = torch.arange(len(places))
            first = order.new_full((len(points),), len(places)).scatter_reduce(0, places, order, "amin")
            return covariance_root(torch.from_numpy(surrogate.covariance_at(time))[first][:, first])[rows]

        def deviation(seed: int) -> Tensor:
            generator = torch.Generator().manual_seed(seed)
            normals = torch.randn(len(points), generator=generator, dtype=torch.float64, device="cpu")
            return (root(torch.arange(len(points))) @ normals)[places]

        return SimpleNamespace(
            mean=mean,
            variance=variance,
            incumbent=best,
            deviation=deviation,
            covariance_root=lambda rows: root(places[rows]),
            chosen=lambda row: arms[int(row), None].clone(),
        )

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means at points X (q, 1 + d), and variances with pending points hallucinated, each (q,)."""
        return self.surrogate.moments(X)[0], self.taken_in().moments(X)[1]

    def _add(self, point: Tensor, times: int, stage: int | None) -> None:
        """Do nothing: points are taken in when a variance is asked for."""

    def taken_in(self) -> FilteredArms:
        """Return the surrogate with the pending points observed, to read variances from."""
        surrogate, number = self._ahead
        if number < self.num_pending:
            X = self.pending[number:]
            nothing, rows = X.new_zeros(len(X)), cast(Array, surrogate.rows_of(X))
            self._ahead = surrogate.followed(X, nothing, rows, nothing.numpy()), self.num_pending
        return self._ahead[0]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self.surrogate.moments(self.pending)[1] / self.surrogate.regularization

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the pending points, 0-dim: at what time others are played is not known."""
        before, after = (each.moments(self.pending)[1] for each in (self.surrogate, self.taken_in()))
        least = torch.finfo(torch.float64).eps * self.surrogate.kernel_bound()
        return ((before + least) / (after + least)).max()


def filter_rate(kernel: Kernel) -> float | None:
    """Return ½ log(1 − ε) of a kernel on (time, point) that forgets at a constant rate; None for another kernel."""
    return _rate_in_time(kernel.time_kernel) if type(kernel) is SpaceTimeKernel and _is_plain(kernel) else None


def _rate_in_time(kernel: Kernel) -> float | None:
    if type(kernel) is ProductKernel:
        rates = [_rate_in_time(part) for part in cast("list[Kernel]", kernel.kernels)]
        return None if None in rates else sum(cast("list[float]", rates))
    if type(kernel) is not ForgettingKernel or not _is_plain(kernel):
        return None
    return 0.5 * math.log1p(-float(kernel.forgetting.detach()))


def _is_plain(kernel: Kernel) -> bool:
    return kernel.active_dims is None and not kernel.batch_shape

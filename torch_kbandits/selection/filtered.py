"""Few arms whose function goes back to the prior as time passes, by a Kalman filter."""

import math
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, ProductKernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.candidates import ArmSource
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.errors import NumericalError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.loops import filter_loops
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import gram, prior_mean
from torch_kbandits.numerics.linalg import covariance_root
from torch_kbandits.numerics.random import tie_rank
from torch_kbandits.numerics.rows import Rows, distinct, distinct_in_order, row_keys
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History
from torch_kbandits.selection.base import FantasyPosterior, Surrogate, required
from torch_kbandits.selection.gaussian import GaussianSurrogate

Array = NDArray[np.float64]

_Words = tuple[Array, Array, Array, float, float, float, Array, NDArray[np.int64], Array]

#: After so many rewards the posterior is kept, from which late ones are learned.
_BETWEEN_MARKS = 32


class _State(NamedTuple):
    """The posterior of the arms at a time.

    Attributes:
        clock: the time of the latest reward, minus infinity before any.
        covariance: (A, A).
        deviation: the means less the prior ones, (A,).
        log_det: of V, which has the rewards so far.
        number: how many rewards these are, the first ones told.
    """

    clock: float
    covariance: Array
    deviation: Array
    log_det: float
    number: int


class _Plays(NamedTuple):
    """Rewards of arms.

    Attributes:
        X: the points, with the time first, (n, 1 + d).
        Y: rewards, (n,).
        rows: the arms, (n,).
        rests: the rewards less their prior means, (n,).
    """

    X: Tensor
    Y: Tensor
    rows: Tensor
    rests: Tensor


class FilteredArms(Surrogate):
    """The exact posterior over few arms under a prior on time that forgets at a constant rate, in double precision.

    Such a prior is a Markov process: with ρ = (1 − ε)^(age / 2) what is known of the function at all arms, mean μ,
    covariance C, becomes, as time passes,

        m + ρ (μ − m),    ρ² C + (1 − ρ²) K

    so what was told need not be evaluated again: the cost of a round is that of a matrix, whatever was told. The joint
    surrogate over points that know the time has the same posterior. It serves for what a filter does not know: points
    that are no arms, and an expert's answers.

    Source: Kalman, "A new approach to linear filtering and prediction problems", 1960; for Gaussian processes Särkkä,
    Solin and Hartikainen, IEEE Signal Processing Magazine 2013.

    Args:
        arms: (A, d), in memory, in double precision.
        rate: ½ log(1 − ε), by which the logarithm of a correlation falls in a unit of time.
        joint: the surrogate over points (time, arm) before any reward.
        seed: addresses the order in which ties between arms are broken.

    Cost of a round: O(A²) time and memory. Of a reward that comes late O(l A²), where l were told of later times, or
    about all of them if these are many.
    """

    def __init__(self, arms: ArmSource, rate: float, joint: "GaussianSurrogate", seed: int) -> None:
        example, level = joint.inducing_points, float(joint.regularization)
        super().__init__(example, joint.kernel, level, exact=True, mean=joint.prior_mean)
        points = cast(Tensor, arms.tensor).cpu()
        self._index: dict[bytes, int] = {}
        for row, key in enumerate(row_keys(points)):
            self._index.setdefault(key, row)
        self._rate, self._empty, self._noise = rate, joint, level
        self.ranks = tie_rank(len(points), seed)
        now = torch.cat([points.new_zeros(len(points), 1), points], dim=-1)
        with torch.no_grad():
            self._prior = gram(self.kernel, now).contiguous().numpy()
        nothing, none = example.new_zeros(0), np.zeros(len(points))
        self._columns = tuple(map(Rows, (example, nothing, nothing.long(), nothing)))
        self._state = _State(-math.inf, self._prior, none, 0.0, 0)
        self._marks: tuple[_State, ...] = (self._state,)
        self._kernel_bound = example.new_tensor(self._prior.diagonal().max())
        self._known: tuple[float, Tensor, Tensor] | None = None  # means and variances of the time asked about last
        self._known_joint: GaussianSurrogate | None = None

    # ---------------------------------------------------------------- what is known

    @property
    def _told(self) -> _Plays:
        """The rewards, in the order told."""
        return _Plays(*(rows.tensor for rows in self._columns))

    @property
    def joint(self) -> GaussianSurrogate:
        """The joint surrogate of the same rewards, computed when it is asked for. Cost: O(n³)."""
        if self._known_joint is None:
            X, Y, rows, _ = self._told
            told, none = History(X, Y, torch.zeros_like(rows), None, X[:, 0]), Selection(X[:0], Y[:0], None)
            self._known_joint = self._empty.at(self._state.clock).restored(told, none) if len(Y) else self._empty
        return self._known_joint

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return self._state.number

    @property
    def played(self) -> Tensor:
        """The points that count, (u, 1 + d), each once, in the order in which they were first played."""
        return distinct_in_order(self._told.X)[0]

    @property
    def inducing_points(self) -> Tensor:
        """All played points, (u, 1 + d)."""
        return self.played

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What a dictionary rule wants handed back: nothing."""
        return None

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim."""
        return self._kernel_bound

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats. Cost: O(1)."""
        return self.regularization.new_tensor(0.5 * self._state.log_det)

    def projection_error(self) -> Tensor:
        """Return 0, 0-dim: the posterior is exact."""
        return torch.zeros_like(self.regularization)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim. Cost: O(n³)."""
        return self.joint.effective_dimension()

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in reward units. Cost: O(n³)."""
        return self.joint.mean_norm()

    def recommend(self) -> Tensor:
        """Return the played point (1, 1 + d) of the largest posterior mean. Cost: O(n³)."""
        return self.joint.recommend()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, 1 + d), each (q,), of times before or after now.

        Cost: O(q) at arms from the latest reward on; before it O(l (A² + q A)) for l rewards later than that.
        """
        rows = self._rows_of(X)
        if rows is None or not len(X):
            return self.joint.moments(X)
        asked = X[:, 0]
        if len(X) > 1 and bool((asked.diff() < 0.0).any()):
            order = asked.argsort(stable=True)
            back = order.argsort()
            mean, variance = self.moments(X[order])
            return mean[back], variance[back]
        words = self._words(*self._since(float(asked[0])))
        found = filter_loops.smoothed(*words, asked.contiguous().numpy(), rows.numpy())
        mean, variance = map(torch.from_numpy, found)
        return (mean if self.prior_mean is None else mean + self._expected(X)), variance

    def at_arms(self, arms: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances of the arms (A, 1 + d) at a time, each (A,). Cost: O(A)."""
        if time < self._state.clock:
            return self.moments(arms)
        deviation, variance = self._at(time)
        return (deviation if self.prior_mean is None else deviation + self._expected(arms)), variance

    def covariance_at(self, time: float) -> Tensor:
        """Return the posterior covariance of the arms at a time from the latest reward on, (A, A)."""
        fresh, known = -math.expm1(2.0 * self._rate * self._elapsed(time)), self._state.covariance
        return torch.from_numpy(known + fresh * (self._prior - known))

    def _at(self, time: float) -> tuple[Tensor, Tensor]:
        """Return the means less the prior ones and the variances at a time from the latest reward on; remembered."""
        if self._known is None or self._known[0] != time:
            now = self._prior, self._state.covariance, self._state.deviation
            mean, variance = filter_loops.predicted(*now, self._elapsed(time), self._rate)
            self._known = time, torch.from_numpy(mean), torch.from_numpy(variance)
        return self._known[1:]

    def _elapsed(self, time: float) -> float:
        """Return how long ago the latest reward was; nothing changes before the first."""
        return time - self._state.clock if self._state.number else 0.0

    def _expected(self, X: Tensor) -> Tensor:
        """Return the prior means of points (k, 1 + d), (k,)."""
        with torch.no_grad():
            return X.new_zeros(len(X)) if self.prior_mean is None else prior_mean(self.prior_mean, X).double()

    def _rows_of(self, X: Tensor) -> Tensor | None:
        """Return which arms points (k, 1 + d) are, (k,); None if one is no arm."""
        rows = [self._index.get(key) for key in row_keys(X[:, 1:])]
        return None if None in rows else torch.tensor(rows, dtype=torch.long)

    def shown(self) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.model(self._told.X, self._told.Y, self.inducing_points)

    # ---------------------------------------------------------------- learning

    def at(self, now: float) -> Self:
        """Return this surrogate: points say of what time they are."""
        return self

    def learned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        told: History,
        rule: DictionaryRule | None,
        generator: torch.Generator | None,
        until: float | None = None,
    ) -> Surrogate:
        """Return the surrogate conditioned on more rewards: the joint one if one of them is of a point that is no arm.

        Cost: O(q A²) for q rewards in the order of their times.
        """
        rows = self._rows_of(told.X)
        if rows is None:
            now = max(self._state.clock, float(told.X[:, 0].max()))
            return self.joint.at(now).learned(told, rule, generator, until)
        rests = told.Y.double() if self.prior_mean is None else told.Y - self._expected(told.X)
        after = self._learned(_Plays(told.X, told.Y, rows, rests))
        return after if until is None else after.at(until)

    def restored(self, told: History, dictionary: Selection) -> Surrogate:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the empty surrogate conditioned on a whole history."""
        return self.learned(told, None, None)

    def hallucinated(self, X: Tensor) -> Self:
        """Return the surrogate with arms at times X (k, 1 + d) observed, to read variances from."""
        nothing = X.new_zeros(len(X))
        return self._learned(_Plays(X, nothing, cast(Tensor, self._rows_of(X)), nothing))

    def advised(self, answers: Answers) -> Surrogate:
        """Return the joint surrogate conditioned on an expert's answers as well."""
        if len(answers.X) == 0:
            return self
        return self.joint.at(float(answers.X[0, 0])).advised(answers)

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> FantasyPosterior:
        """Return the posterior with points (k, 1 + d) pending."""
        if len(pending) and self._rows_of(pending) is None:
            return self.joint.fantasized(pending)
        return FilterFantasy(self, pending)

    def _learned(self, news: _Plays) -> Self:
        """Return the surrogate with more rewards. Cost: see the class."""
        other = shallow_copy(self)
        other._known = other._known_joint = None
        if not len(news.Y):
            return other
        times = news.X[:, 0]
        first = float(times[0]) if len(times) == 1 else float(times.min())
        other._columns = tuple(rows.followed(new) for rows, new in zip(self._columns, news, strict=True))
        if first >= self._state.clock:
            start, after = self._state, news
        else:
            other._marks = tuple(mark for mark in self._marks if mark.clock <= first)
            start, after = other._since(first)
        after = after if len(after.Y) == 1 else _in_order(after)
        other._state = other._conditioned(start, after)._replace(number=len(other._columns[0]))
        if other._state.number - other._marks[-1].number >= _BETWEEN_MARKS:
            first_mark, *others = other._marks
            other._marks = (first_mark, *others[-1:], other._state)
        return other

    def _since(self, time: float) -> tuple[_State, _Plays]:
        """Return what was believed no later than a time, and the rewards that it does not know, in order."""
        if time >= self._state.clock:
            return self._state, _Plays(*(part[:0] for part in self._told))
        start = next(mark for mark in reversed(self._marks) if mark.clock <= time)
        return start, _in_order(_Plays(*(part[start.number :] for part in self._told)))

    def _words(self, start: _State, after: _Plays) -> _Words:
        """Return what loops take of a state and of rewards after it, in order."""
        times, rows, rests = after.X[:, 0].contiguous().numpy(), after.rows.numpy(), after.rests.numpy()
        now = self._prior, start.covariance, start.deviation
        return *now, start.clock, self._rate, self._noise, times, rows, rests

    def _conditioned(self, start: _State, after: _Plays) -> _State:
        """Return the posterior after rewards, which are in order."""
        covariance, deviation, gain = filter_loops.filtered(*self._words(start, after))
        if not math.isfinite(gain) or not np.isfinite(deviation).all():
            raise NumericalError("The posterior is not finite: rewards or hyperparameters are too large for the dtype.")
        return _State(float(after.X[-1, 0]), covariance, deviation, start.log_det + gain, 0)


class FilterFantasy(FantasyPosterior):
    """The posterior over the arms with some pending: their variance shrinks, the means stay."""

    def __init__(self, surrogate: FilteredArms, pending: Tensor) -> None:
        super().__init__(pending)
        self.surrogate, self.tie_rank = surrogate, surrogate.ranks
        self._ahead = surrogate, 0  # with so many of the pending points

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, 1 + d) of the highest score."""
        domain = required(domain)
        if rule.needs_incumbent:
            rule = rule.scaled_to(self.surrogate)
        incumbent = None
        if domain.allowed is not None and domain.incumbent is None:
            incumbent = self.offered(domain).mean[domain.allowed].max()
        return self._best_offered(rule, beta, seed, domain, self.surrogate.kernel_bound(), incumbent)

    def offered(self, domain: Domain | None) -> "_Offer":
        """Return the posterior at the arms in a round."""
        return _Offer(self, required(domain))

    def _add(self, point: Tensor, times: int) -> None:
        """Do nothing: points are taken in when a variance is asked for."""

    def taken_in(self) -> FilteredArms:
        """Return the surrogate with the pending points hallucinated."""
        surrogate, number = self._ahead
        if number < self.num_pending:
            self._ahead = surrogate.hallucinated(self.pending[number:]), self.num_pending
        return self._ahead[0]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self.surrogate.moments(self.pending)[1] / self.surrogate.regularization

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the pending points, 0-dim: at what time others are played is not known."""
        before, after = (each.moments(self.pending)[1] for each in (self.surrogate, self.taken_in()))
        least = torch.finfo(torch.float64).eps * self.surrogate.kernel_bound()
        return ((before + least) / (after + least)).max()


class _Offer:
    """The posterior at the arms in a round, as ``ArmPosterior``.

    Args:
        ahead: with points pending.
        domain: of the round.
    """

    def __init__(self, ahead: FilterFantasy, domain: Domain) -> None:
        self._ahead, self._domain = ahead, domain
        self._arms, self._time = cast(Tensor, domain.arms), float(cast(Tensor, domain.context)[0])

    def chosen(self, row: int | Tensor) -> Tensor:
        """Return the arm of a row, (1, 1 + d)."""
        return self._arms[int(row), None].clone()

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._ahead.surrogate.at_arms(self._arms.cpu(), self._time)[0].to(self._arms.device)

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._ahead.taken_in().at_arms(self._arms.cpu(), self._time)[1].to(self._arms.device)

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim: the largest mean of these arms, unless the round says a point."""
        best = self._domain.incumbent
        return self.mean.max() if best is None else self._ahead.surrogate.moments(best)[0].squeeze(0)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior, (A,); equal arms get equal values."""
        points, places = distinct(self._arms.cpu())
        order = torch.arange(len(places))
        first = order.new_full((len(points),), len(places)).scatter_reduce(0, places, order, "amin")
        root = covariance_root(self._ahead.surrogate.covariance_at(self._time)[first][:, first])
        generator = torch.Generator().manual_seed(seed)
        normals = torch.randn(len(points), generator=generator, dtype=torch.float64, device="cpu")
        return (root @ normals)[places].to(self._arms.device)


def _in_order(plays: _Plays) -> _Plays:
    """Return rewards in the order of their times."""
    order = plays.X[:, 0].argsort(stable=True)
    return _Plays(*(part[order] for part in plays))


def filter_rate(kernel: Kernel) -> float | None:
    """Return ½ log(1 − ε) of a kernel on (time, point) that forgets at a constant rate; None for another kernel."""
    if type(kernel) is not SpaceTimeKernel or kernel.active_dims is not None or kernel.batch_shape:
        return None
    return _rate_in_time(kernel.time_kernel)


def _rate_in_time(kernel: Kernel) -> float | None:
    if type(kernel) is ProductKernel:
        rates = [_rate_in_time(part) for part in cast("list[Kernel]", kernel.kernels)]
        return None if None in rates else sum(cast("list[float]", rates))
    if type(kernel) is not ForgettingKernel or kernel.active_dims is not None or kernel.batch_shape:
        return None
    return 0.5 * math.log1p(-float(kernel.forgetting.detach()))

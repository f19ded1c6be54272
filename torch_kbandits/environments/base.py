"""What a problem with known means is: on arms or a box, with contexts, or changing from round to round."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.numerics.random import generator_for

#: Returns the rewards (q,) of points X (q, d), given X, their means (q,) and the round.
Noise = Callable[[Tensor, Tensor, int], Tensor]


class Known(TypedDict, total=False):
    """What is known of a problem, for the algorithms that play it; see ``Environment`` for each."""

    kernel: Kernel | None
    regularization: float | None
    norm_bound: float | None
    center: float


class Problem:
    """What every bandit problem with known means has: rewards, and what it tells algorithms; see ``Environment``."""

    def __init__(
        self,
        noise_scale: float,
        seed: int,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        norm_bound: float | None = None,
        center: float = 0.0,
        noise: Noise | None = None,
    ) -> None:
        checks.absent_or("kernel", kernel, Kernel, "a GPyTorch kernel")
        self.noise_scale = checks.non_negative("noise_scale", noise_scale)
        self.seed = checks.whole_number("seed", seed)
        self.kernel = kernel
        self.regularization = checks.optional(checks.positive)("regularization", regularization)
        self.norm_bound = checks.optional(checks.non_negative)("norm_bound", norm_bound)
        self.center = checks.finite_number("center", center)
        self._noise = noise

    def rewards(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of points X (q, d) with means (q,) in a round."""
        if self._noise is not None:
            return self._noise(X, means, round)
        generator = generator_for(self.seed, round, "noise")
        noise = torch.randn(len(means), generator=generator, dtype=torch.float64, device="cpu")
        return means + self.noise_scale * noise.to(means)


def noiseless(X: Tensor, means: Tensor, round: int) -> Tensor:
    """Return the means: rewards without noise, whatever ``noise_scale`` algorithms are told."""
    return means


class Environment(Problem, ABC):
    """A bandit problem whose mean rewards are known, so that regret is measured without noise.

    Exactly one of ``arms`` and ``bounds`` is not None: what may be played. The noise of a round has an address,
    (seed, round), so it does not depend on what is played or measured.

    Attributes:
        arms: (A, d), or None on a box.
        bounds: (2, d), lower then upper, or None on arms.
        best_mean: the largest mean reward, 0-dim; on a box the known optimum.

    Args:
        noise_scale: R, the noise scale to give to an algorithm, in reward units; for Gaussian noise its standard
            deviation. At least 0.
        seed: addresses the noise.
        kernel: the covariance that the problem was drawn from or that suits it, in reward units squared; None if
            unknown.
        regularization: λ, the noise variance for a surrogate, in reward units squared; None if unknown.
        norm_bound: B, the RKHS norm of the mean function under ``kernel``; None if unknown.
        center: constant to subtract from rewards before telling them to a model of prior mean zero.
        noise: returns the rewards (q,), given X (q, d), their means (q,) and the round, its randomness addressed by
            seed and round; None: Gaussian noise of deviation ``noise_scale`` is added to the means.
    """

    arms: Tensor | None = None
    bounds: Tensor | None = None
    best_mean: Tensor

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Return the mean rewards (q,) of X (q, d), without noise.

        Raises:
            InputError: if a row cannot be played.
        """

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of X (q, d) in a round."""
        return self.rewards(X, self.mean(X), round)

    def regret(self, X: Tensor) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of X (q, d): from means, without randomness.

        Raises:
            NumericalError: if a mean exceeds ``best_mean`` by more than rounding: then that is not the largest.
        """
        regret = self.best_mean - self.mean(X)
        rounding = 1e-8 if regret.dtype == torch.float64 else 1e-4
        if bool((regret < -rounding * (1.0 + abs(self.best_mean))).any()):
            raise NumericalError(
                f"best_mean {float(self.best_mean):.10g} is not the maximum: row {int(regret.argmin())} of X has mean "
                f"{float(self.best_mean - regret.min()):.10g}."
            )
        return regret.clamp_min(0.0)


class ContextualEnvironment(Problem, ABC):
    """A contextual bandit problem: each round brings a context, and an action must be chosen in it.

    Rewards belong to joint points: the context, then the action. Regret is against the best action that is available in
    the context of the round. Contexts and noise have addresses, (seed, round), so a round may be looked at again.

    Attributes:
        context_dim: c, the columns of a context.
        actions: (A, a), the same in every round, or None if ``candidates`` returns those of a round.

    Args:
        noise_scale: as in ``Environment``, like the words that follow; ``kernel`` and ``noise`` are on joint points.
        seed: addresses contexts and noise.
    """

    context_dim: int
    actions: Tensor | None = None

    @abstractmethod
    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round."""

    @abstractmethod
    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the mean rewards (q,) of joint points X (q, c + a) in a round, without noise."""

    def candidates(self, round: int) -> Tensor | None:
        """Return the actions (A_t, a) of a round where they differ from round to round; None: they are ``actions``."""
        return None

    def available(self, round: int) -> Tensor:
        """Return the actions (A, a) that may be played in a round."""
        own = self.candidates(round)
        actions = self.actions if own is None else own
        if actions is None:
            raise InputError(
                f"{type(self).__name__} has no actions in round {round}: set its attribute actions, or let "
                "candidates(round) return some."
            )
        return actions

    def joint_points(self, actions: Tensor, round: int) -> Tensor:
        """Return actions (q, a) behind the context of a round, (q, c + a)."""
        return torch.cat([self.context(round).expand(len(actions), -1), actions], dim=1)

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of joint points X (q, c + a), checked as by ``positions``, in a round."""
        self.positions(X, round)
        return self.rewards(X, self.mean(X, round), round)

    def best_mean(self, round: int) -> Tensor:
        """Return the largest mean reward of the actions available in a round, 0-dim."""
        return self._means(round).max()

    def regret(self, X: Tensor, round: int) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of joint points X (q, c + a). Cost: O(q A (c + a)) and A means."""
        # The means of the actions as they stand in the set: those of X, in a sum of other length, may round otherwise.
        means = self._means(round)
        return means.max() - means[self.positions(X, round)]

    def positions(self, X: Tensor, round: int) -> Tensor:
        """Return which of the round's available actions the rows of X (q, c + a) play, (q,); of equal ones the first.

        Raises:
            InputError: if a row has another context than the round, or an action that is not available in it.
        """
        points = self.joint_points(self.available(round), round)
        checked_rows(X, points)
        equal = (X.unsqueeze(1) == points).all(-1)
        if bool(equal.any(1).all()):
            return equal.int().argmax(1)
        foreign = (X[:, : self.context_dim] != points[0, : self.context_dim]).any(1).nonzero().flatten().tolist()
        if foreign:
            raise InputError(
                f"Row(s) {foreign} of X do not begin with the context of round {round}: joint points are "
                "joint_points(actions, round)."
            )
        unknown = (~equal.any(1)).nonzero().flatten().tolist()
        raise InputError(f"Row(s) {unknown} of X play no action that is available in round {round}.")

    def _means(self, round: int) -> Tensor:
        return self.mean(self.joint_points(self.available(round), round), round)


class DynamicEnvironment(Problem, ABC):
    """A non-stationary problem: fixed arms whose mean rewards change from round to round.

    Rounds count from 0. Regret is dynamic pseudo-regret: against the best arm of the round itself, from means, without
    randomness. Means and noise have addresses, (seed, round), so a round may be looked at again.

    Attributes:
        arms: (A, d), no two of them equal.
        rounds: how many rounds there are, where a record ends; None: any number.

    Args:
        arms: (A, d).
        noise_scale: as in ``Environment``, like the words that follow.
        seed: addresses means and noise.
        rounds: how many rounds there are; None: any number.
        noise: as in ``Environment``.
        variation_budget: what ``variation_budget`` returns, given T; None: it is unknown.
        known: kernel (on arms, without time), regularization, norm_bound (for the mean function of every round) and
            center, as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named; if two arms are equal.
    """

    def __init__(
        self,
        arms: Tensor,
        noise_scale: float,
        seed: int,
        *,
        rounds: int | None = None,
        noise: Noise | None = None,
        variation_budget: Callable[[int], float] | None = None,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, noise=noise, **known)
        self._index = ArmIndex(arms)
        if self._index.repeated:
            first, later = self._index.repeated[0]
            raise InputError(f"Arms {first} and {later} are the same point; every arm needs a point of its own.")
        self.arms = self._index.arms
        self.rounds = checks.optional(checks.positive_integer)("rounds", rounds)
        self._variation_budget = variation_budget

    @abstractmethod
    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round, without noise or randomness."""

    def variation_budget(self, rounds: int) -> float | None:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the first T = ``rounds``, in the RKHS of ``kernel``; None if unknown.

        Raises:
            InputError: if there are not so many rounds.

        Cost: O(T m²) for a sum of m kernels, O(T) for a peak.
        """
        if self._variation_budget is None:
            return None
        self.check_rounds(checks.positive_integer("rounds", rounds))
        return self._variation_budget(rounds)

    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the mean rewards (q,) of arms X (q, d) in a round, without noise.

        Raises:
            InputError: if a row is no arm, or there is no such round.
        """
        return self._checked_means(round)[self._index.find(X)]

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of arms X (q, d) in a round."""
        return self.rewards(X, self.mean(X, round), round)

    def best_mean(self, round: int) -> Tensor:
        """Return the largest mean reward of a round, 0-dim."""
        return self._checked_means(round).max()

    def regret(self, X: Tensor, round: int) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of arms X (q, d). Cost: the means of all arms."""
        means = self._checked_means(round)
        return means.max() - means[self._index.find(X)]

    def check_rounds(self, rounds: int) -> None:
        """Refuse to play more rounds than there are."""
        if self.rounds is not None and rounds > self.rounds:
            raise InputError(f"There are {self.rounds} rounds in this environment, and {rounds} are to be played.")

    def _checked_means(self, round: int) -> Tensor:
        round = checks.non_negative_integer("round", round)
        if self.rounds is not None and round >= self.rounds:
            raise InputError(f"There are {self.rounds} rounds, from 0 to {self.rounds - 1}; got round {round}.")
        means = checks.same_kind("means", checks.floating_tensor("means", self.means(round)), self.arms)
        if means.shape != self.arms.shape[:1]:
            raise InputError(
                f"means(round) must return one number an arm, ({len(self.arms)},); got {checks.describe(means)}."
            )
        return checks.finite(f"the means of round {round}", means)


class ArmIndex:
    """A look-up of arms (A, d) by their values; ``repeated`` has the positions (first, later) of equal ones.

    Cost: O(A d) time and memory once; then O(d) a row, whatever A.
    """

    def __init__(self, arms: Tensor) -> None:
        self.arms = finite_rows("arms", arms, "(A, d) with A >= 1")
        # Rows as tuples of Python floats: the look-up of a single row costs less than any tensor operation.
        self._first: dict[tuple[float, ...], int] = {}
        places = [self._first.setdefault(tuple(row), i) for i, row in enumerate(self.arms.tolist())]
        self.repeated = [(first, i) for i, first in enumerate(places) if first != i]

    def find(self, X: Tensor) -> Tensor:
        """Return the positions (q,) among the arms of the rows of X (q, d); of equal arms, the first."""
        if not (isinstance(X, Tensor) and X.dtype == self.arms.dtype and X.dim() == 2):
            X = checked_rows(X, self.arms)
        places = [self._first.get(tuple(row), -1) for row in X.tolist()]
        if -1 in places:
            checked_rows(X, self.arms)
            raise InputError(f"Row(s) {[i for i, place in enumerate(places) if place < 0]} of X are no arms.")
        return torch.tensor(places, dtype=torch.long, device=self.arms.device)

    def checked_means(self, means: Any) -> Tensor:
        """Return means as a tensor if they are (A,), finite and equal where arms are."""
        means = checks.floating_tensor("means", means, self.arms)
        checks.finite("means", checks.same_kind("means", means, self.arms))
        if means.shape != self.arms.shape[:1]:
            raise InputError(
                "arms must be (A, d) with A >= 1 and means (A,); "
                f"got {checks.describe(self.arms)} and {checks.describe(means)}."
            )
        for first, later in self.repeated:
            if bool(means[first] != means[later]):
                raise InputError(
                    f"Arms {first} and {later} are the same point but have means {float(means[first])} and "
                    f"{float(means[later])}."
                )
        return means


def finite_rows(name: str, value: Any, shape: str) -> Tensor:
    """Return points (n, d), n >= 1, as a tensor."""
    points = checks.points(name, value)
    if points.dim() != 2 or len(points) == 0:
        raise InputError(f"{name} must be {shape}, got {checks.describe(points)}.")
    return points


def checked_rows(X: Any, like: Tensor) -> Tensor:
    """Return points X (q, d) as a tensor, with the columns, the dtype and the device of others, (n, d)."""
    X = checks.points("X", X, dimension=like.shape[1], like=like)
    if X.dim() != 2:
        raise InputError(f"X must have shape (q, {like.shape[1]}), got {checks.describe(X)}.")
    return X


def values_of(function: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    """Return the values (q,) of a user's function at points X (q, d), if they are one finite number a row."""
    with torch.no_grad():
        values = function(X)
    if not isinstance(values, Tensor) or values.shape != X.shape[:1]:
        raise InputError(f"function must return one number a row, ({len(X)},); got {checks.describe(values)}.")
    return checks.finite("the function's values", values)

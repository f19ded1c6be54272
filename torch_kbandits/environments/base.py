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
    """What is known of a problem, and its noise if that is not Gaussian; see ``Environment`` for each."""

    kernel: Kernel | None
    regularization: float | None
    norm_bound: float | None
    center: float
    noise: Noise | None


class Problem:
    """Rewards with known means, and what algorithms are told of them; see ``Environment``."""

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
        self.noise = noise

    def rewards(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of points X (q, d) with means (q,) in a round."""
        if self.noise is not None:
            return self.noise(X, means, round)
        generator = generator_for(self.seed, round, "noise")
        noise = torch.randn(len(means), generator=generator, dtype=torch.float64, device="cpu")
        return means + self.noise_scale * noise.to(means)


def noiseless(X: Tensor, means: Tensor, round: int) -> Tensor:
    """Return the means: rewards without noise, whatever ``noise_scale`` algorithms are told."""
    return means


class Environment(Problem, ABC):
    """A bandit problem whose mean rewards are known, so that regret is measured without noise.

    The noise of a round has an address, (seed, round), so it does not depend on what is played or measured.

    Attributes:
        arms, bounds: what may be played: arms (A, d), or a box (2, d), lower then upper; the other is None.
        best_mean: the largest mean reward, 0-dim; on a box the known optimum.

    Args:
        noise_scale: R >= 0 for an algorithm, in reward units; for Gaussian noise its standard deviation.
        seed: addresses the noise.
        kernel: the covariance that the problem was drawn from or that suits it, in reward units squared.
        regularization: λ, the noise variance for a surrogate, in reward units squared.
        norm_bound: B, the RKHS norm of the mean function under ``kernel``; these three are None if unknown.
        center: constant to subtract from rewards before telling them to a model of prior mean zero.
        noise: returns the rewards (q,), given X (q, d), their means (q,) and the round, its randomness addressed by
            seed and round; None: Gaussian noise of deviation ``noise_scale`` is added to the means.
    """

    arms: Tensor | None = None
    bounds: Tensor | None = None
    best_mean: Tensor

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Return the mean rewards (q,) of X (q, d), without noise; ``InputError`` if a row cannot be played."""

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of X (q, d) in a round."""
        return self.rewards(X, self.mean(X), round)

    def regret(self, X: Tensor) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of X (q, d); ``NumericalError`` if a mean is above ``best_mean``."""
        regret = self.best_mean - self.mean(X)
        rounding = 1e-8 if regret.dtype == torch.float64 else 1e-4
        if bool((regret < -rounding * (1.0 + abs(self.best_mean))).any()):
            row, mean = int(regret.argmin()), float(self.best_mean - regret.min())
            got = f"best_mean {float(self.best_mean):.10g} is not the maximum"
            raise NumericalError(f"{got}: row {row} of X has mean {mean:.10g}.")
        return regret.clamp_min(0.0)


class RoundProblem(ABC):
    """What problems share whose rounds differ: regret is against the best that may be played in the round itself."""

    #: That of ``Problem``.
    rewards: Noise

    @abstractmethod
    def positions(self, X: Tensor, round: int) -> Tensor:
        """Return which of what may be played in a round the rows of X are, (q,); of equal ones the first."""

    @abstractmethod
    def means_of_round(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all that may be played in a round, checked."""

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of what is played in a round, X (q, d), with contexts joint points (q, c + a)."""
        return self.rewards(X, self.means_of_round(round)[self.positions(X, round)], round)

    def best_mean(self, round: int) -> Tensor:
        """Return the largest mean reward of a round, 0-dim."""
        return self.means_of_round(round).max()

    def regret(self, X: Tensor, round: int) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of what is played in a round. Cost: the means of all that may be."""
        means = self.means_of_round(round)
        # Not the means of X, which in a sum of other length may round otherwise.
        return means.max() - means[self.positions(X, round)]


class ContextualEnvironment(Problem, RoundProblem):
    """A contextual bandit problem: each round brings a context, and an action must be chosen in it.

    Rewards belong to joint points: the context, then the action. Regret is against the best action that is available in
    the context of the round. The arguments are those of ``Environment``; ``kernel`` and ``noise`` are on joint points.

    Attributes:
        context_dim: c, the columns of a context.
        actions: (A, a), the same in every round; None: override ``candidates``.
    """

    context_dim: int
    actions: Tensor | None = None

    @abstractmethod
    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round."""

    @abstractmethod
    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the mean rewards (q,) of joint points X (q, c + a) in a round, without noise."""

    def candidates(self, round: int) -> Tensor:
        """Return the actions (A, a) of a round: ``actions``, unless they differ from round to round."""
        if self.actions is None:
            raise InputError(f"{type(self).__name__} has no actions in round {round}: set actions, or candidates().")
        return self.actions

    def joint_points(self, actions: Tensor, round: int) -> Tensor:
        """Return actions (q, a) behind the context of a round, (q, c + a)."""
        return torch.cat([self.context(round).expand(len(actions), -1), actions], dim=1)

    def positions(self, X: Tensor, round: int) -> Tensor:
        """Return which of the round's actions the joint points X (q, c + a) play, (q,). Cost: O(q A (c + a))."""
        points = self.joint_points(self.candidates(round), round)
        equal = (checked_rows(X, points).unsqueeze(1) == points).all(-1)
        if unknown := true_rows(~equal.any(1)):
            raise InputError(f"Row(s) {unknown} of X are none of joint_points(actions, {round}), with its actions.")
        return equal.int().argmax(1)

    def means_of_round(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of a round's actions in its context."""
        return self.mean(self.joint_points(self.candidates(round), round), round)


class DynamicEnvironment(Problem, RoundProblem):
    """A non-stationary problem: fixed arms whose mean rewards change from round to round.

    Rounds count from 0. Regret is dynamic pseudo-regret: against the best arm of the round itself, from means, without
    randomness. Means and noise have addresses, (seed, round), so a round may be evaluated again.

    Args:
        arms: (A, d), no two of them equal.
        noise_scale, seed, known: as in ``Environment``; ``kernel`` is on arms, without time, and ``norm_bound`` holds
            for the mean function of every round.
        rounds: how many rounds there are, where a record ends; None: any number.
        variation_budget: what ``variation_budget`` returns, given T; None: it is unknown.
    """

    def __init__(
        self,
        arms: Tensor,
        noise_scale: float,
        seed: int,
        *,
        rounds: int | None = None,
        variation_budget: Callable[[int], float] | None = None,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        self._index = ArmIndex(arms)
        self.arms = self._index.arms
        self.rounds = checks.optional(checks.positive_integer)("rounds", rounds)
        self._variation_budget = variation_budget

    @abstractmethod
    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round, without noise or randomness."""

    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the mean rewards (q,) of arms X (q, d) in a round, without noise."""
        return self.means_of_round(round)[self.positions(X, round)]

    def positions(self, X: Tensor, round: int) -> Tensor:
        """Return the positions (q,) among the arms of the rows of X (q, d)."""
        return self._index.find(X)

    def means_of_round(self, round: int) -> Tensor:
        """Return ``means`` of a round; ``InputError`` if there is no such round, or they do not fit the arms."""
        self.check_rounds(checks.non_negative_integer("round", round) + 1)
        return self._index.checked_means(self.means(round), f"the means of round {round}")

    def variation_budget(self, rounds: int) -> float | None:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the first T = ``rounds``, in the RKHS of ``kernel``; None if unknown."""
        if self._variation_budget is None:
            return None
        self.check_rounds(checks.positive_integer("rounds", rounds))
        return self._variation_budget(rounds)

    def check_rounds(self, rounds: int) -> None:
        """Refuse to play more rounds than there are."""
        if self.rounds is not None and rounds > self.rounds:
            raise InputError(f"There are {self.rounds} rounds in this environment, and {rounds} are to be played.")


#: What an algorithm may play.
AnyEnvironment = Environment | ContextualEnvironment | DynamicEnvironment


class ArmIndex:
    """A look-up of arms (A, d) by their values, no two of them equal but with equal means (A,), if these are given.

    Cost: O(A d) time and memory once; then O(d) a row, whatever A.
    """

    def __init__(self, arms: Tensor, means: Any = None) -> None:
        self.arms = checks.listed_points("arms", arms)
        # Rows as tuples of Python floats: the look-up of a single row costs less than any tensor operation.
        self._first: dict[tuple[float, ...], int] = {}
        for i, row in enumerate(self.arms.tolist()):
            self._first.setdefault(tuple(row), i)
        number = torch.arange(len(self.arms), device=self.arms.device)
        self.means = number if means is None else self.checked_means(means)
        for later in true_rows(self.means != self.means[first := self.find(self.arms)]):
            raise InputError(f"Arms {int(first[later])} and {later} are the same point: leave one out.")

    def find(self, X: Tensor) -> Tensor:
        """Return the positions (q,) among the arms of the rows of X (q, d); of equal arms, the first."""
        if not (isinstance(X, Tensor) and X.dtype == self.arms.dtype and X.dim() == 2):
            X = checked_rows(X, self.arms)
        places = [self._first.get(tuple(row), -1) for row in X.tolist()]
        if -1 in places:
            checked_rows(X, self.arms)
            raise InputError(f"Row(s) {[i for i, place in enumerate(places) if place < 0]} of X are no arms.")
        return torch.tensor(places, dtype=torch.long, device=self.arms.device)

    def checked_means(self, means: Any, name: str = "means") -> Tensor:
        """Return one number an arm as a tensor, if all are finite."""
        means = checks.same_kind("means", checks.floating_tensor("means", means, self.arms), self.arms)
        if means.shape != self.arms.shape[:1]:
            raise InputError(f"{name} must be one number an arm, ({len(self.arms)},); got {checks.describe(means)}.")
        return checks.finite(name, means)


def checked_rows(X: Any, like: Tensor) -> Tensor:
    """Return points X (q, d) as a tensor, with the columns, the dtype and the device of others, (n, d)."""
    return checks.listed_points("X", X, least=0, dimension=like.shape[1], like=like)


def true_rows(mask: Tensor) -> list[int]:
    """Return where a mask (q,) is true."""
    return mask.nonzero().flatten().tolist()

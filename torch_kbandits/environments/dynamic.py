"""What a problem that changes is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arm_index import ArmIndex, rows_of
from torch_kbandits.environments.problem import Known, Noise, Problem
from torch_kbandits.errors import InputError


class DynamicEnvironment(Problem, ABC):
    """A problem on fixed arms whose mean rewards change from round to round.

    Rounds count from 0. Regret is dynamic pseudo-regret: against the best arm of the round itself, from means, without
    randomness. Means and noise have addresses, (seed, round): they do not depend on what is played or measured, and a
    round may be looked at again.

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
        self.rounds = None if rounds is None else checks.positive_integer("rounds", rounds)
        self._variation_budget = variation_budget

    @abstractmethod
    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round, without noise or randomness."""

    def variation_budget(self, rounds: int) -> float | None:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the T − 1 changes among the first T = ``rounds``; None if unknown.

        The norm is that of the RKHS of ``kernel``.

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
        return rows_of(self._all_means(round), self._index.find(X))

    def pull(self, X: Tensor, round: int) -> Tensor:
        """Return noisy rewards (q,) of arms X (q, d) in a round.

        Raises:
            InputError: as ``mean``.
        """
        return self.rewards(X, self.mean(X, round), round)

    def rewards_of_arms(self, rounds: range) -> Tensor | None:
        """Return the reward that each arm would have if it were the one that is played in a round, (r, A).

        None where that is not known beforehand: where the noise is of another kind, and in a class that has its own
        ``pull``, ``mean`` or ``rewards``.
        """
        if not self._has_methods_of(DynamicEnvironment):
            return None
        return self._with_noise(torch.stack([self._all_means(round) for round in rounds]), rounds)

    def best_mean(self, round: int) -> Tensor:
        """Return the largest mean reward of a round, 0-dim."""
        return self._all_means(round).max()

    def regret(self, X: Tensor, round: int) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of arms X (q, d), against the best arm of the round.

        Raises:
            InputError: as ``mean``.

        Cost: the means of all arms.
        """
        means = self._all_means(round)
        return means.max() - rows_of(means, self._index.find(X))

    def check_rounds(self, rounds: int) -> None:
        """Refuse to play more rounds than there are.

        Raises:
            InputError: if ``rounds`` exceeds those of the problem.
        """
        if self.rounds is not None and rounds > self.rounds:
            raise InputError(f"There are {self.rounds} rounds in this environment, and {rounds} are to be played.")

    def _all_means(self, round: int) -> Tensor:
        round = checks.non_negative_integer("round", round)
        if self.rounds is not None and round >= self.rounds:
            raise InputError(f"There are {self.rounds} rounds, from 0 to {self.rounds - 1}; got round {round}.")
        means = checks.same_kind("means", checks.floating_tensor("means", self.means(round)), self.arms)
        if means.shape != self.arms.shape[:1]:
            raise InputError(
                f"means(round) must return one number an arm, ({len(self.arms)},); got {checks.describe(means)}."
            )
        return checks.finite(f"the means of round {round}", means)

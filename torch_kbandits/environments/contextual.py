"""What a problem with contexts is."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.problem import Problem
from torch_kbandits.errors import InputError


class ContextualEnvironment(Problem, ABC):
    """A problem in which each round brings a context, and an action must be chosen in it.

    Rewards belong to joint points: the context, then the action. Regret is measured against the best action that is
    available in the context of the round. Contexts and noise have addresses, (seed, round): they do not depend on what
    is played or measured, and a round may be looked at again.

    Attributes:
        context_dim: c, the columns of a context.
        actions: (A, a), the same in every round, or None if ``candidates`` returns those of a round.

    Args:
        noise_scale: as in ``Environment``, like the words that follow.
        seed: addresses contexts and noise.
        kernel: on joint points, c + a columns.
        regularization: λ, in reward units squared.
        norm_bound: B.
        center: constant to subtract from rewards.
        noise: as in ``Environment``, of joint points.
    """

    context_dim: int
    actions: Tensor | None = None

    @abstractmethod
    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round."""

    @abstractmethod
    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the mean rewards (q,) of joint points X (q, c + a) in a round, without noise.

        Raises:
            InputError: if X does not fit.
        """

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
        """Return noisy rewards (q,) of joint points X (q, c + a) in a round.

        Raises:
            InputError: if a row has another context than the round, or an action that is not available in it.
        """
        self.positions(X, round)
        return self.rewards(X, self.mean(X, round), round)

    def best_mean(self, round: int) -> Tensor:
        """Return the largest mean reward of the actions available in a round, 0-dim."""
        return self.mean(self._all_points(round), round).max()

    def regret(self, X: Tensor, round: int) -> Tensor:
        """Return the pseudo-regrets (q,) >= 0 of joint points X (q, c + a): from means, without randomness.

        Raises:
            InputError: as ``pull``.

        Cost: O(q A (c + a)) and the means of the A actions.
        """
        points = self._all_points(round)
        # The means of the actions as they stand in the set: those of X, in a sum of other length, may round otherwise.
        means = self.mean(points, round)
        return means.max() - means[self._find(X, points, round)]

    def positions(self, X: Tensor, round: int) -> Tensor:
        """Return which of the round's available actions the rows of X (q, c + a) play, (q,); of equal ones the first.

        Raises:
            InputError: if a row has another context than the round, or an action that is not available in it.
        """
        return self._find(X, self._all_points(round), round)

    def check_joint_points(self, X: Tensor, actions: Tensor) -> None:
        """Refuse X unless it is (q, c + a), of the dtype of the actions (A, a)."""
        columns = self.context_dim + actions.shape[1]
        checks.points("X", X, dimension=columns, like=actions)
        if X.dim() != 2:
            raise InputError(f"X must have shape (q, {columns}), got {checks.describe(X)}.")

    def _all_points(self, round: int) -> Tensor:
        """Return the joint points (A, c + a) that may be played in a round."""
        return self.joint_points(self.available(round), round)

    def _find(self, X: Tensor, points: Tensor, round: int) -> Tensor:
        """Return the positions (q,) of the rows of X (q, c + a) among those that may be played, (A, c + a)."""
        self.check_joint_points(X, points[:, self.context_dim :])
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

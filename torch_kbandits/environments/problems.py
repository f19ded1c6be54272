"""Problems made of what you give: means of arms, records, a function, labelled examples."""

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import (
    ArmIndex,
    ContextualEnvironment,
    DynamicEnvironment,
    Environment,
    Known,
    checked_rows,
    noiseless,
    true_rows,
)
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for

#: From points (q, d) to mean rewards (q,), without noise or randomness.
Means = Callable[[Tensor], Tensor]


class FiniteArms(Environment):
    """Arms with known means. Cost: O(A d) once; then O(d) a row of any call, whatever A.

    Args:
        arms: (A, d); equal arms must have equal means.
        means: expected rewards (A,), in reward units.
        noise_scale, seed, known: as in ``Environment``.
    """

    arms: Tensor

    #: What was recorded of each arm, (A, S), of ``replayed_arms`` alone.
    records: Tensor

    def __init__(self, arms: Tensor, means: Tensor, noise_scale: float, seed: int, **known: Unpack[Known]) -> None:
        super().__init__(noise_scale, seed, **known)
        self._index = ArmIndex(arms, means)
        self.arms, self.means, self.best_mean = self._index.arms, self._index.means, self._index.means.max()

    def indices(self, X: Tensor) -> list[int]:
        """Return the positions among the arms of the rows of X (q, d); of equal arms, the first."""
        return self._index.find(X).tolist()

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of arms X (q, d)."""
        return self.means[self._index.find(X)]


def replayed_arms(
    arms: Tensor,
    records: Tensor,
    seed: int,
    *,
    simultaneous: bool,
    noise_scale: float | None = None,
    **known: Unpack[Known],
) -> FiniteArms:
    """Arms whose rewards were recorded: a pull returns one of an arm's records, so the noise is real.

    Args:
        arms: (A, d).
        records: (A, S) rewards, whose means are those of the arms; the attribute ``records`` of the problem.
        seed: addresses, with the round, which record a pull returns.
        simultaneous: whether the S columns were recorded together, as readings of many sensors at a time. Then all rows
            of a pull come from one column; otherwise each row of a pull draws a record of its own.
        noise_scale: R for an algorithm, no bound; the root of the variance within arms, averaged, unless given.
        known: as in ``Environment``, but for the noise.
    """
    records = checks.finite("records", checks.rows("records", records))
    if records.dim() != 2:
        raise InputError(f"records must be (A, S), got {checks.describe(records)}.")
    together = checks.flag("simultaneous", simultaneous)
    if noise_scale is None:
        noise_scale = float(records.var(1, correction=0).mean().sqrt())
    problem = FiniteArms(arms, records.mean(1), noise_scale, seed, **known)
    problem.records, problem.noise = records, partial(_recorded, problem, together)
    return problem


def _recorded(problem: FiniteArms, together: bool, X: Tensor, means: Tensor, round: int) -> Tensor:
    draws, generator = 1 if together else len(X), generator_for(problem.seed, round, "record")
    chosen = torch.randint(problem.records.shape[1], (draws,), generator=generator, device="cpu")
    return problem.records[problem.indices(X), chosen.to(problem.records.device)]


class SensorReplay(DynamicEnvironment):
    """Recorded readings, a row for each round: an arm is a sensor, its reward the reading of that time, without noise.

    Args:
        arms: (A, d), where the sensors are.
        readings: (T, A), in the order of time, in reward units.
        seed: draws nothing.
        noise_scale, known: as in ``DynamicEnvironment``, but for the noise; R is 0 if unknown.
    """

    def __init__(
        self, arms: Tensor, readings: Tensor, seed: int, *, noise_scale: float = 0.0, **known: Unpack[Known]
    ) -> None:
        readings = checks.finite("readings", checks.rows("readings", readings))
        known["noise"] = noiseless
        super().__init__(arms, noise_scale, seed, rounds=len(readings) or None, **known)
        self.readings, number = checks.same_kind("readings", readings, self.arms), len(self.arms)
        if readings.dim() != 2 or len(readings) == 0 or readings.shape[1] != number:
            raise InputError(f"readings must be (T, {number}) with T >= 1, got {checks.describe(readings)}.")

    def means(self, round: int) -> Tensor:
        """Return the readings (A,) of a round."""
        return self.readings[round].clone()


class BoxFunction(Environment):
    """A function on a box; regret is measured against its known maximum.

    Args:
        function: from points (q, d) in the box to mean rewards (q,), without noise or randomness.
        bounds: (2, d), lower then upper.
        best_mean: the maximum of the function over the box, in reward units.
        noise_scale, seed, known: as in ``Environment``.
    """

    bounds: Tensor

    def __init__(
        self, function: Means, bounds: Tensor, best_mean: float, noise_scale: float, seed: int, **known: Unpack[Known]
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        checks.instance("function", function, Callable, "callable")
        self.function, self.bounds = function, checks.bounds(bounds)
        self.best_mean = self.bounds.new_tensor(checks.finite_number("best_mean", best_mean))

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of points X (q, d) in the box."""
        X = checked_rows(X, self.bounds)
        if outside := true_rows((X.clamp(*self.bounds) != X).any(1)):
            raise InputError(f"Row(s) {outside} of X lie outside the box.")
        return _values(self.function, X)


class ContextualFunction(ContextualEnvironment):
    """A function of context and action: contexts uniform in [0, 1]^c, the same finite actions in every round.

    Args:
        function: from joint points (q, c + a) to mean rewards (q,), without noise or randomness.
        context_dim: c.
        actions: (A, a).
        noise_scale, seed, known: as in ``ContextualEnvironment``.
    """

    actions: Tensor

    def __init__(
        self, function: Means, context_dim: int, actions: Tensor, noise_scale: float, seed: int, **known: Unpack[Known]
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        checks.instance("function", function, Callable, "callable")
        self.function, self.context_dim = function, checks.size("context_dim", context_dim)
        self.actions = checks.listed_points("actions", actions)

    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round, uniform in the unit cube."""
        generator = generator_for(self.seed, round, "context")
        return torch.rand(self.context_dim, generator=generator, dtype=torch.float64, device="cpu").to(self.actions)

    def mean(self, X: Tensor, round: int = 0) -> Tensor:
        """Return the expected rewards (q,) of any joint points X (q, c + a), the same in every round."""
        return _values(self.function, checked_rows(X, self.joint_points(self.actions[:1], 0)))


class Classification(ContextualEnvironment):
    """Labelled examples that come one a round: the action is a label, the reward 1 if it is the right one, else 0.

    Actions are the rows of the identity. Every example comes once in an epoch of n rounds, each in an order of its own.
    Rewards have no noise; R = 0.5 holds for every reward in [0, 1].

    Args:
        contexts, labels, num_labels: the examples (n, c), whole numbers (n,) in 0, …, L − 1, and L, at least 2.
        seed, noise_scale, known: the seed addresses the order of the examples; others as in ``Environment``.
    """

    actions: Tensor

    def __init__(
        self,
        contexts: Tensor,
        labels: Tensor,
        num_labels: int,
        seed: int,
        *,
        noise_scale: float = 0.5,
        **known: Unpack[Known],
    ) -> None:
        known["noise"] = noiseless
        super().__init__(noise_scale, seed, **known)
        self.contexts = contexts = checks.listed_points("contexts", contexts)
        self.labels = torch.tensor(checks.whole_numbers("labels", labels), dtype=torch.long, device=contexts.device)
        number = checks.size("num_labels", num_labels, least=2)
        if len(self.labels) != len(contexts):
            raise InputError(f"labels must be one for each of {len(contexts)} contexts, (n,), got {len(self.labels)}.")
        least, largest = int(self.labels.min()), int(self.labels.max())
        if least < 0 or largest >= number:
            raise InputError(f"labels must be in 0, …, {number - 1}, got {least} to {largest}.")
        self.context_dim = contexts.shape[1]
        self.actions = torch.eye(number, dtype=contexts.dtype, device=contexts.device)
        self._epoch: tuple[int, list[int]] = (-1, [])

    def example(self, round: int) -> int:
        """Return which example comes in a round. Cost: O(n) where the epoch is another one than in the last call."""
        epoch, place = divmod(round, len(self.contexts))
        if self._epoch[0] != epoch:
            generator = generator_for(self.seed, epoch, "order")
            self._epoch = epoch, torch.randperm(len(self.contexts), generator=generator, device="cpu").tolist()
        return self._epoch[1][place]

    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round."""
        return self.contexts[self.example(round)].clone()

    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of joint points X (q, c + L) in a round: 1 for the label of its example, else 0."""
        return (self.positions(X, round) == self.labels[self.example(round)]).to(X)


def _values(function: Means, X: Tensor) -> Tensor:
    """Return the values (q,) of a user's function at points X (q, d), if they are one finite number a row."""
    with torch.no_grad():
        values = function(X)
    if not isinstance(values, Tensor) or values.shape != X.shape[:1]:
        raise InputError(f"function must return one number a row, ({len(X)},); got {checks.describe(values)}.")
    return checks.finite("the function's values", values)

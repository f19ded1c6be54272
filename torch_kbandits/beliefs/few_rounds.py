"""Rounds of few arms in a row, of which the reward of each arm is known beforehand."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from torch_kbandits.acquisition import (
    AcquisitionRule,
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.beliefs import covariance_loops as loops
from torch_kbandits.beliefs.course import Choice
from torch_kbandits.beliefs.covariances import MOST_WEAR, Gaussian
from torch_kbandits.beliefs.few_arms import FewArms
from torch_kbandits.confidence import RootOfGain, Width
from torch_kbandits.confidence.base import by_gain
from torch_kbandits.models.normal import MIN_VARIANCE
from torch_kbandits.numerics.random import ROUNDING_SHARE

#: What each rule is to the loops.
_KINDS: dict[type[AcquisitionRule], int] = {
    UpperConfidenceRule: loops.UPPER_CONFIDENCE,
    ExpectedImprovementRule: loops.EXPECTED_IMPROVEMENT,
    ProbabilityOfImprovementRule: loops.PROBABILITY_OF_IMPROVEMENT,
    ThompsonRule: loops.DRAW,
    UniformRule: loops.GIVEN,
}

#: Of so many rounds functions are drawn at once, at most.
_MOST_DRAWN = 64


class Counting(NamedTuple):
    """What counts before rounds in a row, and what will not by the end of each.

    Attributes:
        rows: of the rewards that may stop counting, in the order told.
        rewards: these.
        gone: how many of them, and of those told after them, no longer count by the end of each round.
        number: how many rewards count, those included that never stop.
    """

    rows: Sequence[int]
    rewards: Sequence[float]
    gone: Sequence[int]
    number: int


class Played(NamedTuple):
    """What came of rounds.

    Attributes:
        arms: what is believed of them after it.
        choices: of each round.
        rewards: of these.
    """

    arms: FewArms
    choices: list[Choice]
    rewards: list[float]


def rounds_of(
    arms: FewArms,
    rule: AcquisitionRule,
    width: Width,
    seed: Callable[[int], int],
    rewards: np.ndarray,
    counting: Counting,
) -> Played | None:
    """Return what comes of rounds in a row, of as many as loops play; None of none, or for a rule of another class.

    Args:
        arms: what is believed of them.
        rule: by which they are chosen.
        width: read before each choice.
        seed: of the draws of a round, counted from 0.
        rewards: of all arms in each round, (r, A).
        counting: what counts.
    """
    kind = _KINDS.get(type(rule))
    if kind is None:
        return None
    if kind == loops.DRAW:  # each draw is made for so many rows as count, of which a new arm makes more
        rewards = rewards[: max(1, min(_MOST_DRAWN, counting.number // max(len(arms.counts), 1)))]
    number, first = len(rewards), len(counting.rows)
    counts = range(counting.number - first, counting.number + number + 1)
    noise = float(arms.table.regularization)
    widths = by_gain(width, counts, noise)
    if widths is None:
        return None
    choice = _choice_by(kind, rule, [seed(each) for each in range(number)] if kind >= loops.DRAW else [], arms)
    came, has_failed = _tried(arms, rewards[:number], counting, choice, widths)
    if has_failed:  # and left half of a round written
        came = _tried(arms, rewards[: len(came.rewards)], counting, choice, widths)[0]
    return came if came.rewards else None


def _tried(
    arms: FewArms, rewards: np.ndarray, counting: Counting, choice: tuple[Any, ...], widths: RootOfGain
) -> tuple[Played, bool]:
    """Return what comes of rounds, of as many as can be played, and whether the one after them failed half-way."""
    number, first, table = len(rewards), len(counting.rows), arms.table
    (covariance, variance, mean, log_det, wear), prior = arms.believed, table.prior_gaussian
    believed = covariance.copy(), variance.copy(), mean.copy()
    rows, values, seen = np.zeros(first + number, np.int64), np.zeros(first + number), np.empty((number, 2))
    rows[:first], values[:first] = counting.rows, counting.rewards
    order, often, size = np.zeros(len(mean), np.int64), np.zeros(len(mean)), len(arms.counts)
    order[:size] = [*arms.counts]
    often[order[:size]] = [*arms.counts.values()]
    number, has_failed, log_det, wear, size = loops.played(
        believed,
        (prior.covariance, prior.mean),
        (rows, values, np.array(counting.gone[:number], np.int64)),
        (order, often),
        rewards,
        choice,
        (widths.offset, widths.scale, widths.constants, widths.slopes),
        (table.tie_rank.numpy(), float(table.kernel_bound()), ROUNDING_SHARE[torch.float64]),
        (log_det, wear, float(table.regularization), MIN_VARIANCE, MOST_WEAR),
        (first, size),
        seen,
    )
    told = slice(first, first + number)
    choices = [
        Choice(table.arm(row), row, *pair)
        for row, pair in zip(rows[told].tolist(), seen[:number].tolist(), strict=True)
    ]
    counts = dict(zip(order[:size].tolist(), often[order[:size]].tolist(), strict=True))
    return Played(
        FewArms(table, Gaussian(*believed, log_det, wear), counts), choices, values[told].tolist()
    ), has_failed


def _choice_by(kind: int, rule: AcquisitionRule, seeds: list[int], arms: FewArms) -> tuple[Any, ...]:
    """Return by what loops choose."""
    rule = rule.scaled_to(arms.table)
    margin = cast(float, rule.margin) if isinstance(rule, ProbabilityOfImprovementRule) else 0.0
    given, draws, normals, twins = np.empty(0, np.int64), np.empty((0, 0)), np.empty((0, 0)), np.empty(0, np.int64)
    if isinstance(rule, UniformRule):
        given = np.array([rule.drawn_row(len(arms.mean), each) for each in seeds], np.int64)
    elif kind == loops.DRAW:
        draws, normals, twins = arms.table.draws(seeds, len(arms.counts))
    return kind, margin, given, draws, normals, twins

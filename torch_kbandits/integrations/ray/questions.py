"""What a shard is asked, and how the answers of all shards become one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.integrations.ray.course import Array
from torch_kbandits.integrations.ray.table import ShardLookahead
from torch_kbandits.numerics.random import highest, tie_width
from torch_kbandits.outcomes.streaks import among


class Question(Protocol):
    """A question to every shard about its own arms."""

    #: Whether answers are, so that they may pass through other shards.
    is_small: ClassVar

    def asked_of(self, ahead: ShardLookahead) -> Any:
        """Return the answer of one shard, of which only NumPy arrays and plain values are sent."""
        ...

    def merged(self, answers: Sequence[Any]) -> Any:
        """Return the answer of several shards that follow each other, at least one, from those of each."""
        ...


class _Largest:
    """What is the largest of some number over the arms?"""

    is_small: ClassVar = True

    def merged(self, answers: Sequence[float]) -> float:
        """Return the largest."""
        return max(answers)


@dataclass(frozen=True)
class KernelBound(_Largest):
    """What is the largest prior variance of the arms?"""

    def asked_of(self, ahead: ShardLookahead) -> float:
        """Return it, in reward units squared."""
        return float(ahead.table.kernel_bound())


@dataclass(frozen=True)
class VarianceRatio(_Largest):
    """What is the largest ratio of the variances without and with the points pending?"""

    def asked_of(self, ahead: ShardLookahead) -> float:
        """Return it. Cost: O(A m) for each point that is new."""
        return float(ahead.variance_ratio())


@dataclass(frozen=True)
class Moments:
    """What are the means, and the variances with the points pending?"""

    is_small: ClassVar = False

    def asked_of(self, ahead: ShardLookahead) -> tuple[Array, Array]:
        """Return both, (A,) each."""
        return ahead.mean.cpu().numpy(), ahead.variance.cpu().numpy()

    def merged(self, answers: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
        """Return both of all arms."""
        return tuple(map(np.concatenate, zip(*answers, strict=True)))


@dataclass(frozen=True, eq=False)
class LocalBest:
    """The best arm of some shards; with those that would be chosen instead if the best of all were a little better.

    Attributes:
        scores: (k,), k >= 1, mostly 1.
        ranks: in the order in which ties are broken, (k,).
        points: (k, d).
        width: scores that are by so much lower than the highest may be its equals.
        visited: how many arms were looked at.
    """

    scores: Array
    ranks: Array
    points: Array
    width: float
    visited: float


#: Scores of arms that are avoided are so much lower: finite, since ties are told apart by the size of scores.
_FAR_BELOW = 2.0**100


@dataclass(frozen=True, eq=False)
class Best:
    """Which arm does a rule choose?

    Attributes:
        rule: how to choose.
        beta: the multiplier of σ, 0-dim.
        seed: all randomness of the choice.
        avoided: arms (k, d) that are not chosen while a shard has others; None for none.
    """

    rule: AcquisitionRule
    beta: Array
    seed: int
    avoided: Array | None = None
    is_small: ClassVar = True

    def asked_of(self, ahead: ShardLookahead) -> LocalBest:
        """Return a shard's best arm."""
        table = ahead.table
        beta = torch.from_numpy(np.array(self.beta)).to(table.tie_rank.device)
        if self.avoided is None:
            rows, scores = ahead.contenders(self.rule, beta, self.seed)
        else:
            rows, scores = None, self.rule.on_arms(ahead, beta, self.seed)
            avoided = [*torch.from_numpy(self.avoided).to(scores.device)]
            for start, block in ahead.arms.blocks():
                scores[start : start + len(block)] -= among(block.to(scores.device), avoided) * _FAR_BELOW
        ranks = table.tie_rank if rows is None else table.tie_rank[rows]
        # Twice the width of ties leaves room for rounding where the best of all shards sets it.
        width = 2.0 * table.tie_width(scores.max(), beta)
        places = undominated(scores, ranks, width)
        arms = places if rows is None else rows[places]
        return LocalBest(
            scores[places].cpu().numpy(),
            ranks[places].cpu().numpy(),
            ahead.arms.rows(arms).cpu().numpy(),
            float(width),
            ahead.visited_share * len(ahead.arms),
        )

    def merged(self, answers: Sequence[LocalBest]) -> LocalBest:
        """Return the best of all these, and what else may be."""
        if len(answers) == 1:
            return answers[0]
        scores, ranks, points = (
            np.concatenate([getattr(answer, name) for answer in answers]) for name in ("scores", "ranks", "points")
        )
        width = max(answers, key=lambda answer: answer.scores.max()).width
        places = undominated(torch.from_numpy(scores), torch.from_numpy(ranks), width).numpy()
        visited = sum(answer.visited for answer in answers)
        return LocalBest(scores[places], ranks[places], points[places], width, visited)


def undominated(scores: Tensor, ranks: Tensor, width: Tensor | float) -> Tensor:
    """Return the places (k,) of those scores (A,) within ``width`` of the highest that no other beats.

    A score is beaten by one as high of a higher rank (A,), or of the same rank and a smaller place. So whatever bound
    at least the highest score less ``width`` is set on the scores, the one of the highest rank above it is among them.
    """
    near = (scores >= scores.max() - width).nonzero().squeeze(-1)
    places: list[Tensor] = []
    while len(near):
        place = near[ranks[near].argmax()]
        places.append(place)
        near = near[scores[near] > scores[place]]
    return torch.stack(places)


def overall_best(answer: LocalBest, beta: Tensor, kernel_bound: Tensor) -> Tensor:
    """Return the arm (1, d) that one table of all arms would choose.

    Args:
        answer: of all shards.
        beta: the multiplier of σ, 0-dim.
        kernel_bound: the largest prior variance of all arms, 0-dim.
    """
    scores, ranks, points = map(torch.from_numpy, (answer.scores, answer.ranks, answer.points))
    place = int(highest(scores, ranks, tie_width(scores.max(), beta, kernel_bound)))
    return points[place].unsqueeze(0)

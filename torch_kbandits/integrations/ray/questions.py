"""What shards are asked, and how the answers of all become one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.beliefs.posterior_belief import wave_prior
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.shard import Array, Shard
from torch_kbandits.numerics.random import highest, tie_width
from torch_kbandits.outcomes.streaks import among
from torch_kbandits.posteriors.pending import largest_ratio

#: Scores of arms that are avoided are so much lower: finite, since ties are told apart by the size of scores.
_FAR_BELOW = 2.0**100


class KernelBound:
    """What is the largest prior variance of the arms?"""

    #: Whether answers are, so that they may pass through other shards.
    is_small: ClassVar = True

    def asked_of(self, shard: Shard) -> float:
        """Return it, in reward units squared."""
        return float(shard.arms.table.prior.max())

    def merged(self, answers: Sequence[float]) -> float:
        """Return that of several shards that follow each other, from those of each."""
        return max(answers)


@dataclass(frozen=True)
class VarianceRatio(KernelBound):
    """What is the largest ratio of variances without and with the points pending? See ``largest_ratio``."""

    least: float

    def asked_of(self, shard: Shard) -> float:
        """Return it."""
        return largest_ratio(shard.arms.table.variances(shard.learns_residual), shard.variance, self.least)


class Moments:
    """What are the means, (k, A), and the variances with the points pending, (A,)?"""

    is_small: ClassVar = False

    def asked_of(self, shard: Shard) -> tuple[Array, Array]:
        """Return both."""
        return shard.arms.table.mean, shard.variance

    def merged(self, answers: Sequence[tuple[Array, Array]]) -> tuple[Array, ...]:
        """Return both of all arms."""
        return tuple(np.concatenate(parts, axis=-1) for parts in zip(*answers, strict=True))


class LocalBest(NamedTuple):
    """The best arm of some shards; with those that would be chosen instead if the best of all were a little better.

    Attributes:
        scores: (k,), k >= 1, mostly 1.
        ranks: in the order in which ties are broken, (k,).
        points: (k, d).
        width: scores that are by so much lower than the highest may be its equals.
    """

    scores: Array
    ranks: Array
    points: Array
    width: float

    def of(self, places: Array) -> "LocalBest":
        """Return some of these."""
        return self._replace(scores=self.scores[places], ranks=self.ranks[places], points=self.points[places])


@dataclass(frozen=True, eq=False)
class Best:
    """Which arm does a rule choose?

    Attributes:
        rule: how to choose.
        beta: the multiplier of σ, 0-dim.
        kernel_bound: the largest prior variance of all arms.
        tie_seed: addresses the order in which ties are broken.
        column: which of the numbers told the choice is about.
        incumbent: what is to be improved on; None for a rule that needs none.
        seed: of draws.
        correction: weights of the coordinates that make a prior draw one of the posterior, (m,); None without draws.
        avoided: arms (k, d) that are not chosen while a shard has others; None for none.
    """

    rule: AcquisitionRule
    beta: Array
    kernel_bound: float
    tie_seed: int
    column: int
    incumbent: float | None
    seed: int
    correction: Array | None
    avoided: Array | None
    is_small: ClassVar = True

    def asked_of(self, shard: Shard) -> LocalBest:
        """Return a shard's best arm."""
        with torch.no_grad():
            scores = self.rule.on_arms(_ShardPosterior(shard, self), torch.tensor(self.beta), self.seed)
        if self.avoided is not None:
            avoided = [*torch.from_numpy(self.avoided).to(scores.device)]
            scores = scores - _FAR_BELOW * among(shard.source.block(0, len(scores)), avoided)
        # Twice the width of ties leaves room for rounding where the best of all shards sets it.
        ranks, width = shard.ranks(self.tie_seed), 2.0 * float(self._width(scores))
        places = undominated(scores, ranks, width)
        points = shard.source.rows(places)
        return LocalBest(*(each.cpu().numpy() for each in (scores[places], ranks[places], points)), width)

    def merged(self, answers: Sequence[LocalBest]) -> LocalBest:
        """Return the best of all these, and what else may be."""
        parts = [np.concatenate(each) for each in list(zip(*answers, strict=True))[:-1]]
        best = LocalBest(*parts, max(answers, key=lambda answer: answer.scores.max()).width)
        scores, ranks = map(torch.from_numpy, parts[:2])
        return best.of(undominated(scores, ranks, best.width).numpy())

    def chosen(self, best: LocalBest) -> Tensor:
        """Return the arm (1, d) that one table of all arms would choose."""
        scores, ranks, points = map(torch.from_numpy, best[:3])
        return points[highest(scores, ranks, self._width(scores))]

    def _width(self, scores: Tensor) -> Tensor:
        """Return by how much scores may be lower than the highest of these and its equals."""
        return tie_width(scores.max(), scores.new_tensor(self.beta), scores.new_tensor(self.kernel_bound))


class _ShardPosterior(NamedTuple):
    """The posterior at the arms of a shard, as ``ArmPosterior``."""

    shard: Shard
    asked: Best

    def _values(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self.shard.source.dtype)

    @property
    def mean(self) -> Tensor:
        return self._values(self.shard.arms.table.mean[self.asked.column])

    @property
    def variance(self) -> Tensor:
        return self._values(self.shard.variance)

    @property
    def incumbent(self) -> Tensor:
        return self._values(np.array(_sent(self.asked.incumbent, self.asked.rule, "needs_incumbent")))

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,): one function on the arms of all shards."""
        correction = _sent(self.asked.correction, self.asked.rule, "draws_functions")
        source, arms = self.shard.source, self.shard.arms
        waves: Any = wave_prior(arms.kernel, source.dimension).draw(torch.Generator().manual_seed(seed))
        prior = torch.cat([waves.at(block) for _, block in source.blocks()])
        return self._values(prior.numpy() + arms.table.features.products(correction[None])[0])


def _sent(value: Any, rule: AcquisitionRule, word: str) -> Any:
    """Return what was sent for a rule that says that it reads it."""
    if value is None:
        raise InputError(f"Shards are sent what rules say that they read: set {word} = True in {type(rule).__name__}.")
    return value


def undominated(scores: Tensor, ranks: Tensor, width: float) -> Tensor:
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

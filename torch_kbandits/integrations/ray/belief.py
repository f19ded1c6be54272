"""The posterior over arms that workers hold, seen from the bandit."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, partialmethod
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, RandomRule
from torch_kbandits.beliefs import PosteriorBelief, PosteriorConfig
from torch_kbandits.beliefs.fantasies import GaussianFantasy, TableOffer
from torch_kbandits.beliefs.search import SearchConfig
from torch_kbandits.candidates import ArmSource
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.shard import Change, Choice, Held, Message, Shard
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.numerics.random import highest, seed_for, tie_width
from torch_kbandits.numerics.shallow import changed

#: So many changes are remembered one by one for shards that are behind; those further behind are started anew.
_MOST_CHANGES = 64

#: So often an arm is drawn again that is to be avoided.
_DRAWS = 100

#: Returns a name that no posterior has had yet, in any process.
new_version = partial(secrets.randbits, 63)

#: Of each point pending the version with it, and the words of ``Arms.taken``.
Pending = tuple[tuple[int, tuple[Any, ...]], ...]


@dataclass(frozen=True, eq=False)
class RemoteArms:
    """What a posterior tells ``Arms``, remembered for workers, who do it when they are asked next. A value.

    Attributes:
        versions: names of the values before the first change and after each.
        changes: from one to the next.
    """

    versions: tuple[int, ...]
    changes: tuple[Change, ...] = ()

    #: What nothing pending takes of them.
    untaken: ClassVar[Pending] = ()

    def _after(self, name: str, *words: Any) -> Self:
        changes = (*self.changes, (name, _owned(words)))[-_MOST_CHANGES:]
        return type(self)((*self.versions, new_version())[-len(changes) - 1 :], changes)

    followed, refitted = partialmethod(_after, "followed"), partialmethod(_after, "refitted")
    rewritten, rotated = partialmethod(_after, "rewritten"), partialmethod(_after, "rotated")

    def taken(self, before: Pending, *words: Any) -> Pending:
        """Return what points pending take once there is one more."""
        return *before, (new_version(), _owned(words))


def _owned(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same with copies of tensors, which are sent with all of the memory that they are a view of."""
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in words)


class ShardedBelief(PosteriorBelief):
    """The posterior over arms that workers hold: here is all but the arms, whose changes are sent when one asks.

    Cost of a round: that of the posterior here, and for each shard that of ``Arms``. O(d + m) numbers to each shard,
    O(d) back; O(m² + m d) where all is computed afresh.

    Args:
        example: the first arm, (1, d), on the CPU.
        source: all arms.
        workers: of the shards.
        terms: what the belief is to be.
    """

    def __init__(self, example: Tensor, source: ArmSource, workers: Workers, terms: PosteriorConfig) -> None:
        names = "exact", "online", "memory", "mean", "full_at", "outcomes"
        words: dict[str, Any] = {name: getattr(terms, name) for name in names}
        super().__init__(example, terms.kernel, terms.regularization, SearchConfig(), **words)
        self.source, self.tie_seed, self._workers = source, terms.seed, workers
        self.posterior = changed(self.posterior, arms=cast(Any, RemoteArms((new_version(),))))
        self._bound = max(self.asked(Shard.kernel_bound))

    def asked(self, question: Callable[[Shard], Any], pending: Pending = ()) -> list[Any]:
        """Return what each shard answers, with points pending; see ``Workers.gather``."""
        return self._workers.gather(partial(self._message, pending), question)

    def _message(self, pending: Pending, held: Held | None) -> Message:
        """Return what a shard is to be sent; None stands for one that holds nothing that is known."""
        posterior, arms, words = self.posterior, cast(RemoteArms, self.posterior.arms), [each for _, each in pending]
        learned = arms.versions[-1]
        tips = [learned, *(version for version, _ in pending)]
        wanted = posterior.learns_residual, (learned, tips[-1])
        if held is None or held[0] not in arms.versions:
            void = getattr(posterior, "void", np.empty((0, posterior.size)))
            fresh = RemoteArms((0,)).rewritten(posterior.points, posterior.white).refitted(posterior.gaussian, void)
            start = self.kernel, posterior.prior
            return Message(None, start, fresh.changes if posterior.size else (), words, *wanted)
        if held[0] == learned and held[1] in tips:
            return Message(held, None, (), words[tips.index(held[1]) :], *wanted)
        rest = arms.changes[arms.versions.index(held[0]) :]
        return Message((held[0], held[0]), None, rest, words, *wanted)

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row of the source, (1, d), on the CPU; a copy."""
        return self.source.block(row, row + 1).cpu().clone()

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "ShardedFantasy":
        """Return the posterior with points (k, d) pending."""
        return ShardedFantasy(self, pending)


class _Gathered(NamedTuple):
    """The posterior at the arms of all shards, as ``Offered``: O(A) numbers in this process, and no arms."""

    chosen: Callable[[int], Tensor]
    mean: Tensor
    variance: Tensor


class ShardedFantasy(GaussianFantasy):
    """The posterior over the arms of all shards with points pending."""

    belief: ShardedBelief

    def _asked(self, question: Callable[[Shard], Any]) -> list[Any]:
        return self.belief.asked(question, getattr(self.taken_in(), "taken", ()))

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, d) of the highest score.

        Raises:
            InputError: if the rule needs all arms in one process, or draws and there are no waves of the kernel.
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        belief, avoided = self.belief, None if domain is None else domain.avoided
        if isinstance(rule, RandomRule):
            return self._drawn(rule, seed, avoided)
        if not rule.scores_arms_apart:
            raise InputError(
                f"{type(rule).__name__} needs all arms in one process: shards take rules whose score depends on what "
                "is believed of the arm alone, as those of this package do. Give Arms instead, or say so of the rule: "
                "scores_arms_apart = True."
            )
        incumbent = correction = None
        if rule.needs_incumbent:
            rule, incumbent = rule.scaled_to(belief), TableOffer(self).incumbent
        if rule.draws_functions:
            _, correction = belief.draws.waves(seed)
        words = belief.column, incumbent, correction, avoided
        choice = Choice(rule, beta.numpy(), seed, belief._bound, belief.tie_seed, *words)
        answers = zip(*self._asked(choice), strict=True)
        scores, ranks, arms = (torch.from_numpy(np.concatenate(each)) for each in answers)
        self.best_score = scores.max().item
        return arms[highest(scores, ranks, tie_width(scores.max(), beta, belief.kernel_bound()))]

    def _drawn(self, rule: RandomRule, seed: int, avoided: Tensor | None) -> Tensor:
        """Return the arm (1, d) of a row that is drawn here, or of one drawn instead if that is to be avoided."""
        source, number = self.belief.source, 0
        arm = self.belief.arm(rule.drawn_row(len(source), seed))
        while avoided is not None and bool((avoided == arm).all(-1).any()) and (number := number + 1) < _DRAWS:
            arm = self.belief.arm(rule.drawn_row(len(source), seed_for(seed, number, "drawn again")))
        return arm

    def offered(self, domain: Domain | None) -> Any:
        """Return the posterior at all arms, which all shards send here."""
        mean, variance = (np.concatenate(each, -1) for each in zip(*self._asked(Shard.moments), strict=True))
        return _Gathered(self.belief.arm, *map(self.belief._values, (mean[self.belief.column], variance)))

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        least = torch.finfo(self.belief._none.dtype).eps * self.belief._bound
        return self.belief._number(max(self._asked(partial(Shard.variance_ratio, least=least))))

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
from torch_kbandits.candidates import ArmSource
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.shard import Change, Choice, Message, Shard, Versions
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.numerics.random import highest, seed_for, tie_width
from torch_kbandits.numerics.rows import among
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.selection import GaussianSurrogate, PosteriorConfig
from torch_kbandits.selection.fantasies import GaussianFantasy, TableOffer
from torch_kbandits.selection.search import SearchConfig

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

    ``versions`` names what was before the first change and after each.
    """

    versions: tuple[int, ...]
    changes: tuple[Change, ...] = ()

    #: What nothing pending takes of them.
    untaken: ClassVar[Pending] = ()

    def _after(self, name: str, *words: Any) -> Self:
        changes = (*self.changes, (name, _owned(words)))[-_MOST_CHANGES:]
        return type(self)((*self.versions, new_version())[-len(changes) - 1 :], changes)

    followed, refitted = partialmethod(_after, "followed"), partialmethod(_after, "refitted")
    rewritten = partialmethod(_after, "rewritten")

    def taken(self, before: Pending, *words: Any) -> Pending:
        """Return what points pending take once there is one more."""
        return *before, (new_version(), _owned(words))


def _owned(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same with copies of tensors, which are sent with all of the memory that they are a view of."""
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in words)


class ShardedPosterior(GaussianSurrogate):
    """The posterior over arms that workers hold: here is all but the arms, whose changes are sent when one asks.

    Cost of a round: that of the posterior here, and for each shard that of ``Arms``. O(d + m) numbers to each shard,
    O(d) back; O(m² + m d) where all is computed afresh.
    """

    def __init__(self, example: Tensor, source: ArmSource, workers: Workers, config: PosteriorConfig) -> None:
        super().__init__(example, config, SearchConfig())
        self.source, self.tie_seed, self._workers = source, config.seed, workers
        self.posterior = changed(self.posterior, arms=cast(Any, RemoteArms((new_version(),))))
        self._kernel_bound = self._number(max(self.asked(Shard.kernel_bound)))

    def asked(self, question: Callable[[Shard], Any], pending: Pending = ()) -> list[Any]:
        """Return what each shard answers, with points pending; see ``Workers.gather``."""
        posterior, arms, words = self.posterior, cast(RemoteArms, self.posterior.arms), [each for _, each in pending]
        wanted: Versions = (arms.versions[-1], *(version for version, _ in pending))
        rest = posterior.learns_residual, wanted

        def message(held: Versions) -> Message:
            """Return what a shard is to be sent; nothing stands for one that holds nothing that is known."""
            if wanted[: len(held)] == held != ():
                return Message(held, None, (), words[len(held) - 1 :], *rest)
            if held and held[0] in arms.versions:
                return Message(held[:1], None, arms.changes[arms.versions.index(held[0]) :], words, *rest)
            void = getattr(posterior, "void", np.empty((0, posterior.size)))
            fresh = RemoteArms((0,)).rewritten(posterior.points, posterior.white).refitted(posterior.gaussian, void)
            start = self.kernel, posterior.prior
            return Message((), start, fresh.changes if posterior.size else (), words, *rest)

        return self._workers.gather(message, question)

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

    surrogate: ShardedPosterior

    def _asked(self, question: Callable[[Shard], Any]) -> list[Any]:
        return self.surrogate.asked(question, getattr(self.taken_in(), "taken", ()))

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, d) of the highest score.

        Raises:
            InputError: if the rule needs all arms in one process, or draws functions that the kernel has none of.
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        surrogate, avoided = self.surrogate, None if domain is None else domain.avoided
        if isinstance(rule, RandomRule):
            return self._drawn(rule, seed, avoided)
        if not rule.scores_arms_apart:
            raise InputError(
                f"{type(rule).__name__} needs all arms in one process: shards take rules whose score of an arm depends "
                "on the posterior there alone. Give Arms instead, or say so of the rule: scores_arms_apart = True."
            )
        incumbent = correction = None
        if rule.needs_incumbent:
            rule, incumbent = rule.scaled_to(surrogate), TableOffer(self).incumbent
        if rule.draws_functions:
            _, correction = surrogate.draws.function(seed)
        words = surrogate.column, incumbent, correction, avoided
        choice = Choice(rule, beta.numpy(), seed, surrogate.kernel_bound().item(), surrogate.tie_seed, *words)
        answers = zip(*self._asked(choice), strict=True)
        scores, ranks, arms = (torch.from_numpy(np.concatenate(each)) for each in answers)
        self.best_score = scores.max().item
        return arms[highest(scores, ranks, tie_width(scores.max(), beta, surrogate.kernel_bound()))]

    def _drawn(self, rule: RandomRule, seed: int, avoided: Tensor | None) -> Tensor:
        """Return the arm (1, d) of a row that is drawn here, or of one drawn instead if that is to be avoided."""
        for each in (seed, *(seed_for(seed, number, "drawn again") for number in range(1, _DRAWS))):
            arm = self.surrogate.arm(rule.drawn_row(len(self.surrogate.source), each))
            if avoided is None or not among(arm, avoided):
                break
        return arm  # pyright: ignore[reportPossiblyUnboundVariable]

    def offered(self, domain: Domain | None) -> Any:
        """Return the posterior at all arms, which all shards send here."""
        mean, variance = (np.concatenate(each, -1) for each in zip(*self._asked(Shard.moments), strict=True))
        return _Gathered(self.surrogate.arm, *map(self.surrogate._values, (mean[self.surrogate.column], variance)))

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        least = torch.finfo(self.surrogate._none.dtype).eps * self.surrogate.kernel_bound().item()
        return self.surrogate._number(max(self._asked(partial(Shard.variance_ratio, least=least))))

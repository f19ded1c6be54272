"""Arms split over workers, and the posterior over them, seen from the bandit."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, partialmethod
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain, RandomRule
from torch_kbandits.candidates import Arms, LastingCandidates
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.shard import Change, Choice, Message, Shard, Versions
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.numerics.random import highest, seed_for, tie_width
from torch_kbandits.numerics.rows import among
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.selection import Chosen, GaussianSurrogate, PosteriorConfig, surrogate_over
from torch_kbandits.selection.fantasies import GaussianFantasy, TableOffer
from torch_kbandits.selection.search import SearchConfig

#: So many changes are remembered one by one for shards that are behind; those further behind are started anew.
_MOST_CHANGES = 64
_DRAWS = 100  # so often an arm is drawn again that is to be avoided

#: Of each point pending the version with it, and the words of ``Arms.taken``.
Pending = tuple[tuple[int, tuple[Any, ...]], ...]


class ShardedArms(LastingCandidates):
    """A finite set of arms split over Ray actors, each with its block of the arms and of the embedding.

    What is chosen is what ``Arms`` would choose. A round sends O(d + m) numbers to each shard, and one arm comes back.
    A worker that is lost is replaced. Workers hold one posterior: bandits that take turns have it built anew at each.
    Where no Ray is initialised it is started. Workers end when nothing refers to this object, or with ``close``.

    Args:
        arms: what ``Arms`` takes, or these; of an array of a file each worker reads its own arms only, which every
            machine with a worker must be able to read under the same path.
        num_shards: number of actors, at least 1 and at most A. Sizes of shards differ by at most one arm.
        num_gpus_per_shard, num_cpus_per_shard: of each; with GPUs arms and embedding live on one. Torch has one thread.
        start_timeout: seconds that a worker may take to come up and read its arms.

    Raises:
        MissingExtraError: if Ray is not installed.
        InputError: if the arms do not fit or cannot be sent to another process, or a number is out of range.
    """

    is_stored = is_split = True

    def __init__(
        self,
        arms: Any,
        *,
        num_shards: int,
        num_gpus_per_shard: float = 0,
        num_cpus_per_shard: float = 1,
        start_timeout: float = 120.0,
    ) -> None:
        cpus = checks.non_negative("num_cpus_per_shard", num_cpus_per_shard)
        gpus = checks.non_negative("num_gpus_per_shard", num_gpus_per_shard)
        patience = checks.positive("start_timeout", start_timeout)
        table = arms if isinstance(arms, Arms) else Arms(arms)
        self.source, self.arm_names = table.source, table.arm_names
        count, number = len(self.source), checks.positive_integer("num_shards", num_shards)
        if number > count:
            raise InputError(f"num_shards must be at most the number of arms, {count}, got {number}.")
        shards = [range(*pair) for pair in pairwise(each * count // number for each in range(number + 1))]
        self.example, self.ranges = self.source.block(0, 1).cpu().clone(), self.source.ranges
        self.workers = Workers(self.source, shards, cpus, gpus, patience)

    @property
    def domain(self) -> Domain:
        """No arms: they are not all in this process."""
        return Domain()

    def close(self) -> None:
        """End the workers and free what they hold. What was learned is not lost: the next ``ask`` starts others."""
        self.workers.close()

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool; they are looked through in this process."""
        return self.source.has(points)


@dataclass(frozen=True, eq=False)
class RemoteArms:
    """What a posterior tells ``Arms``, for workers; ``versions`` names what was before the changes and after each."""

    versions: tuple[int, ...]
    changes: tuple[Change, ...] = ()

    #: What nothing pending takes of them.
    untaken: ClassVar[Pending] = ()

    def _after(self, name: str, *words: Any) -> Self:
        changes = (*self.changes, (name, _owned(words)))[-_MOST_CHANGES:]
        return type(self)((*self.versions, _new_version())[-len(changes) - 1 :], changes)

    followed, refitted = partialmethod(_after, "followed"), partialmethod(_after, "refitted")
    rewritten = partialmethod(_after, "rewritten")

    def taken(self, before: Pending, *words: Any) -> Pending:
        """Return what points pending take once there is one more."""
        return *before, (_new_version(), _owned(words))


def _new_version() -> int:
    """Return a name that no posterior has had yet, in any process."""
    return secrets.randbits(63)


def _owned(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same with copies of tensors, which are sent with all of the memory that they are a view of."""
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in words)


class ShardedPosterior(GaussianSurrogate):
    """The posterior over arms that workers hold: here is all but the arms, whose changes are sent when one asks.

    Cost of a round: that of ``Arms``, O(d + m) numbers to each shard, O(m² + m d) where all is computed afresh.
    """

    def __init__(self, candidates: ShardedArms, config: PosteriorConfig) -> None:
        super().__init__(candidates.example, config, SearchConfig())
        self.source, self.tie_seed, self._workers = candidates.source, config.seed, candidates.workers
        self.posterior = changed(self.posterior, arms=cast(Any, RemoteArms((_new_version(),))))
        self._kernel_bound = self._number(max(self.asked(Shard.kernel_bound)))

    def asked(self, question: Callable[[Shard], Any], pending: Pending = ()) -> list[Any]:
        """Return what each shard answers, with points pending; see ``Workers.gather``."""
        posterior, arms, words = self.posterior, cast(RemoteArms, self.posterior.arms), [each for _, each in pending]
        wanted: Versions = (arms.versions[-1], *(version for version, _ in pending))

        def message(held: Versions) -> Message:
            """Return what a shard is to be sent; nothing stands for one that holds nothing that is known."""
            since, start, changes = held[:1], None, arms.changes
            if wanted[: len(held)] == held != ():
                since, changes = held, ()
            elif held and held[0] in arms.versions:
                changes = changes[arms.versions.index(held[0]) :]
            else:
                void = getattr(posterior, "void", np.empty((0, posterior.size)))
                fresh = RemoteArms((0,)).rewritten(posterior.points, posterior.white).refitted(posterior.gaussian, void)
                since, start, changes = (), (self.kernel, posterior.prior), fresh.changes if posterior.size else ()
            new = words[max(0, len(since) - 1) :]
            return Message(since, start, changes, new, posterior.learns_residual, wanted)

        return self._workers.gather(message, question)

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row of the source, (1, d), on the CPU; a copy."""
        return self.source.block(row, row + 1).cpu().clone()

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "ShardedFantasy":
        """Return the posterior with points (k, d) pending."""
        return ShardedFantasy(self, pending)


surrogate_over.register(ShardedArms, ShardedPosterior)  # which starts the workers if they are not there


class ShardedFantasy(GaussianFantasy):
    """The posterior over the arms of all shards with points pending."""

    surrogate: ShardedPosterior

    def _asked(self, question: Callable[[Shard], Any]) -> list[Any]:
        return self.surrogate.asked(question, getattr(self.taken_in(), "taken", ()))

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the arm of the highest score; refuse a rule that needs all arms in one process."""
        surrogate, avoided = self.surrogate, domain.avoided
        if isinstance(rule, RandomRule):
            return Chosen(self._drawn(rule, seed, avoided))
        if not rule.scores_arms_apart:
            raise InputError(
                f"{type(rule).__name__} needs all arms in one process: shards take rules whose score of an arm depends "
                "on the posterior there alone. Give Arms instead, or say so of the rule: scores_arms_apart = True."
            )
        incumbent = correction = None
        if rule.needs_incumbent:
            rule, incumbent = rule.scaled_to(surrogate), TableOffer(self).incumbent
        if rule.draws_functions:
            _, correction = surrogate.drawn(seed)
        words = surrogate.tie_seed, incumbent, correction, avoided
        choice = Choice(rule, beta.numpy(), seed, surrogate.kernel_bound().item(), *words)
        answers = zip(*self._asked(choice), strict=True)
        scores, ranks, arms = (torch.from_numpy(np.concatenate(each)) for each in answers)
        row = highest(scores, ranks, tie_width(scores.max(), beta, surrogate.kernel_bound()))
        return Chosen(arms[row], None, scores.max().item)

    def _drawn(self, rule: RandomRule, seed: int, avoided: Tensor | None) -> Tensor:
        """Return the arm (1, d) of a row that is drawn here, or of one drawn instead if that is to be avoided."""
        for each in (seed, *(seed_for(seed, number, "drawn again") for number in range(1, _DRAWS))):
            arm = self.surrogate.arm(rule.drawn_row(len(self.surrogate.source), each))
            if avoided is None or not among(arm, avoided):
                break
        return arm  # pyright: ignore[reportPossiblyUnboundVariable]

    def offered(self, domain: Domain) -> Any:
        """Return the posterior at all arms, which all shards send here: O(A) numbers, and no arms."""
        mean, variance = (np.concatenate(each, -1) for each in zip(*self._asked(Shard.moments), strict=True))
        values = self.surrogate._values
        return SimpleNamespace(chosen=self.surrogate.arm, mean=values(mean[0]), variance=values(variance))

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        least = torch.finfo(self.surrogate._none.dtype).eps * self.surrogate.kernel_bound().item()
        return self.surrogate._number(max(self._asked(partial(Shard.variance_ratio, least=least))))

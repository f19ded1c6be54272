"""The posterior over arms that workers hold, seen from the bandit."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, BlindRule, Domain
from torch_kbandits.beliefs import PosteriorBelief, Terms
from torch_kbandits.beliefs.posterior_ahead import PosteriorAhead, TableOffer
from torch_kbandits.beliefs.posterior_belief import Place, wave_prior
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ray.questions import Best, KernelBound, Moments, VarianceRatio
from torch_kbandits.integrations.ray.shard import Array, Held, Message, Words
from torch_kbandits.integrations.ray.workers import Workers
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.table import Update

#: So many changes are remembered one by one for shards that are behind; those further behind are started anew.
_MOST_CHANGES = 64

#: So often an arm is drawn again that is to be avoided.
_DRAWS = 100


class _Point(NamedTuple):
    """A pending point: the version with it, and the words of ``Arms.taken``."""

    version: int
    words: Words


@dataclass(frozen=True, eq=False)
class RemoteArms:
    """What a posterior tells ``Arms``, remembered for workers, who do it when they are asked next. A value.

    Attributes:
        versions: names of the values before the first change and after each.
        changes: methods of ``Arms`` and their words.
    """

    versions: tuple[int, ...]
    changes: tuple[tuple[str, Words], ...] = ()

    def followed(self, update: Update, point: Tensor | None) -> Self:
        """Return them after an update."""
        return self._after("followed", update=update, point=None if point is None else point.numpy())

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return them with moments computed afresh."""
        return self._after("refitted", gaussian=gaussian, void=void)

    def rewritten(self, points: Tensor, white: Array) -> Self:
        """Return them in other coordinates, before ``refitted``."""
        return self._after("rewritten", points=points.numpy(), white=white)

    def _after(self, name: str, **words: Any) -> Self:
        changes = (*self.changes, (name, words))[-_MOST_CHANGES:]
        return type(self)((*self.versions, new_version())[-len(changes) - 1 :], changes)

    @property
    def untaken(self) -> tuple[_Point, ...]:
        """What nothing pending takes of them."""
        return ()

    def taken(self, before: tuple[_Point, ...], point: Tensor, *words: Any) -> tuple[_Point, ...]:
        """Return what points pending take once there is one more."""
        names = "own", "below", "corner", "learned"
        return *before, _Point(new_version(), {"point": point.numpy()} | dict(zip(names, words, strict=True)))


def new_version() -> int:
    """Return a name that no posterior has had yet, in any process."""
    return secrets.randbits(63)


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

    def __init__(self, example: Tensor, source: ArmSource, workers: Workers, terms: Terms) -> None:
        names = "exact", "online", "memory", "mean", "full_at", "outcomes"
        words: dict[str, Any] = {name: getattr(terms, name) for name in names}
        super().__init__(example, terms.kernel, terms.regularization, Place(), **words)
        self.source, self.tie_seed, self._workers = source, terms.seed, workers
        self.posterior = changed(self.posterior, arms=cast(Any, RemoteArms((new_version(),))))
        self._bound = self.asked_of_all(KernelBound())

    def asked_of_all(self, question: Any, pending: Sequence[_Point] = ()) -> Any:
        """Return what the shards answer, with points pending.

        Raises:
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        return self._workers.gather(partial(self._message, pending), question)

    def _message(self, pending: Sequence[_Point], held: Held | None) -> Message:
        """Return what a shard is to be sent; None stands for one that holds nothing that is known."""
        posterior, arms, words = self.posterior, cast(Any, self.posterior.arms), [each.words for each in pending]
        learned = arms.versions[-1]
        tips = [learned, *(each.version for each in pending)]
        wanted = posterior.learns_residual, Held(learned, tips[-1])
        if held is None or held.learned not in arms.versions:
            void = getattr(posterior, "void", np.empty((0, posterior.size)))
            fresh = RemoteArms((0,)).rewritten(posterior.points, posterior.white).refitted(posterior.gaussian, void)
            start = self.kernel, posterior.prior
            return Message(None, start, fresh.changes if posterior.size else (), words, *wanted)
        if held.learned == learned and held.tip in tips:
            return Message(held, None, (), words[tips.index(held.tip) :], *wanted)
        rest = arms.changes[arms.versions.index(held.learned) :]
        return Message(Held(held.learned, held.learned), None, rest, words, *wanted)

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row of the source, (1, d), on the CPU; a copy."""
        return self.source.block(row, row + 1).cpu().clone()

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "ShardedAhead":
        """Return the posterior with points (k, d) pending."""
        return ShardedAhead(self, pending)


class _Gathered(TableOffer):
    """The posterior at the arms of all shards: O(A) numbers in this process, and no arms."""

    def __init__(self, ahead: "ShardedAhead") -> None:
        super().__init__(ahead)
        self._moments = ahead.asked(Moments())

    def chosen(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d)."""
        return cast(ShardedBelief, self._belief).arm(row)

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._belief._values(self._moments[0][self._belief.column])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        return self._belief._values(self._moments[1])


class ShardedAhead(PosteriorAhead):
    """The posterior over the arms of all shards with points pending."""

    belief: ShardedBelief

    def asked(self, question: Any) -> Any:
        """Return what the shards answer."""
        return self.belief.asked_of_all(question, cast(Any, self.taken_in().taken))

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, d) of the highest score.

        Raises:
            InputError: if the rule needs more of an arm than its own mean, variance and deviation in a draw, or draws
                and there are no waves of the kernel.
            ShardLostError: if a worker was lost and cannot be replaced.
        """
        belief = self.belief
        avoided = None if domain is None or domain.avoided is None or not len(domain.avoided) else domain.avoided
        if isinstance(rule, BlindRule):
            return self._drawn(rule, seed, avoided)
        if not (rule.grows_with_mean_and_variance or rule.scores_arms_apart):
            raise InputError(
                f"{type(rule).__name__} needs all arms in one process: shards take rules whose score depends on what "
                "is believed of the arm alone, as those of this package do. Give Arms instead, or say so of the rule: "
                "scores_arms_apart = True."
            )
        incumbent = correction = None
        if rule.needs_incumbent:
            rule, incumbent = rule.scaled_to(belief), float(TableOffer(self).incumbent)
        if rule.draws_functions:
            generator = torch.Generator().manual_seed(seed)
            waves: Any = wave_prior(belief.kernel, belief.source.dimension).draw(generator)
            correction = belief.posterior.draw_correction(lambda X: waves.at(X).double().numpy(), generator)
        words = belief.tie_seed, belief.column, incumbent, seed, correction, None if avoided is None else avoided.numpy()
        question = Best(rule, beta.numpy(), belief._bound, *words)
        best = self.asked(question)
        self.best_score = best.scores.max().item
        return question.chosen(best)

    def _drawn(self, rule: BlindRule, seed: int, avoided: Tensor | None) -> Tensor:
        """Return the arm (1, d) of a row that is drawn here, or of one drawn instead if that is to be avoided."""
        belief = self.belief
        arm = belief.arm(rule.drawn_row(len(belief.source), seed))
        for number in range(1, _DRAWS):
            if avoided is None or not bool((avoided == arm).all(-1).any()):
                break
            arm = belief.arm(rule.drawn_row(len(belief.source), seed_for(seed, number, "drawn again")))
        return arm

    def offered(self, domain: Domain | None) -> _Gathered:
        """Return the posterior at all arms, which all shards send here."""
        return _Gathered(self)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        return self.belief._number(self.asked(VarianceRatio(self.belief.least_variance)))

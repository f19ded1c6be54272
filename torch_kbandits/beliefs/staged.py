"""A choice through stages: a belief for each of them, and one of everything told."""

from collections.abc import Iterable
from operator import is_
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, StagedRule
from torch_kbandits.beliefs.base import Belief, BeliefOf, FantasyPosterior, Offered, best_of
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.memory.windows import is_latest
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.history import History


class StagedBelief(BeliefOf):
    """A belief for each stage, which learns the rewards of points that this stage chose, and one of everything told.

    They are beliefs like any other: each has a dictionary of its own and forgets what the memory says. Points are
    chosen by the stages. The belief of everything serves all else: what is recommended, and widths that read the
    evidence. If posteriors are exact its gain and its effective dimension are at least those of every stage.

    Args:
        everything: the belief of everything told, before any reward.
        stages: those of the stages, before any reward.
        num_latest: how many of the latest rewards of all stages count, which none can tell from its own; then the
            memory of each is ``LastObservations``, and its time the number of its own among them. None where times
            decide.

    Cost of a reward: that of everything, and that of its stage.
    """

    def __init__(self, everything: Belief, stages: tuple[Belief, ...], *, num_latest: int | None = None) -> None:
        example, level = everything.inducing_points, float(everything.regularization)
        super().__init__(example, everything.kernel, level, exact=everything.exact, mean=everything.prior_mean)
        self.everything, self.stage_beliefs = everything, stages
        self._num_latest = num_latest
        self._latest: tuple[Tensor, Tensor] | None = None  # when they were played and in which stages, each (l,)

    @property
    def posterior(self) -> Belief:
        """The belief of everything told."""
        return self.everything

    @property
    def num_observations(self) -> int:
        """Number t of observations that count, in all stages and in none."""
        return self.everything.num_observations

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary of everything told, (m, d)."""
        return self.everything.inducing_points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self.everything.dictionary_weights

    def shown(self) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.everything.shown()

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief with more rewards, each in the stage that chose its point, if any.

        Everything told gets the dictionary that it has without stages; each stage draws from an address of its own.
        """
        latest = self._latest_after(told)
        parts = self._parts if latest is None else self._counting(latest)

        def one(stage: int, part: Belief, own: History) -> Belief:
            return part.learned(own, rule, stage_generator(generator, stage)) if len(own.X) else part

        return self._with(map(one, range(len(parts)), parts, self._split(told)), latest)

    def restored(self, told: History, dictionary: Selection, *of_stages: Selection) -> Self:
        """Return the empty belief conditioned on a whole history at known dictionaries.

        Args:
            told: the rewards.
            dictionary: of everything told.
            of_stages: of each stage; none if the posteriors are exact.
        """
        latest = self._latest_after(told)
        parts = self._parts if latest is None else self._counting(latest)
        dictionaries = (dictionary, *(of_stages or [dictionary] * len(self.stage_beliefs)))

        def one(part: Belief, own: History, known: Selection) -> Belief:
            return part.restored(own, known) if len(own.X) else part

        return self._with(map(one, parts, self._split(told), dictionaries), latest)

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the current one; this one stays as it is."""
        parts = self._parts if self._num_latest is not None else tuple(part.at(now) for part in self._parts)
        return self if all(map(is_, parts, self._parts)) else self._with(parts, self._latest)

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "StagedFantasy":
        """Return the posterior with points (k, d) pending that stages (k,) chose; no stage chose any without them."""
        none = torch.zeros(len(pending), dtype=torch.long, device=pending.device)
        return StagedFantasy(self._parts, pending, none if stages is None else stages)

    # ---------------------------------------------------------------- inside

    @property
    def _parts(self) -> tuple[Belief, ...]:
        """Everything told, then the stages."""
        return self.everything, *self.stage_beliefs

    def _latest_after(self, told: History) -> tuple[Tensor, Tensor] | None:
        """Return when the latest rewards were played and in which stages, once more are told; None if times decide."""
        if self._num_latest is None or told.times is None:
            return None
        times, stages = told.times, torch.zeros_like(told.rounds) if told.stages is None else told.stages
        if self._latest is not None:
            times, stages = torch.cat([self._latest[0], times]), torch.cat([self._latest[1], stages])
        counts = is_latest(times, self._num_latest)
        return times[counts], stages[counts]

    def _counting(self, latest: tuple[Tensor, Tensor]) -> tuple[Belief, ...]:
        """Return the parts, each at the number of its own among the latest rewards."""
        _, stages = latest
        numbers = [len(stages), *(int((stages == stage).sum()) for stage in range(1, len(self._parts)))]
        return tuple(part.at(float(number)) for part, number in zip(self._parts, numbers, strict=True))

    def _split(self, told: History) -> list[History]:
        """Return all rewards, and then those of each stage."""
        stages = torch.zeros_like(told.rounds) if told.stages is None else told.stages
        return [told, *(told.rows(stages == stage) for stage in range(1, len(self._parts)))]

    def _with(self, parts: Iterable[Belief], latest: tuple[Tensor, Tensor] | None) -> Self:
        other = shallow_copy(self)
        other.everything, *stages = parts
        other.stage_beliefs, other._latest = tuple(stages), latest
        return other


def stage_of(point: Tensor, pending: Tensor, stages: Tensor) -> int:
    """Return the stage that chose a point (1, d) last of those pending (k, d), which stages (k,) chose; 0 for none."""
    before = stages[(pending == point).all(-1)]
    return int(before[-1]) if len(before) else 0


def stage_generator(generator: torch.Generator | None, stage: int) -> torch.Generator | None:
    """Return the randomness of a stage, that of everything told for 0."""
    if generator is None or stage == 0:
        return generator
    return generator_for(generator.initial_seed(), stage, "stage")


class StagedFantasy(FantasyPosterior):
    """The stages with points pending; each takes those that it chose as if they had returned their posterior mean.

    Args:
        parts: the belief of everything told, then those of the stages.
        pending: (k, d).
        stages: the stage that chose each, (k,), 0 for none.
    """

    def __init__(self, parts: tuple[Belief, ...], pending: Tensor, stages: Tensor) -> None:
        super().__init__(pending)
        self._parts = parts
        self.stages: Tensor = stages
        self._chosen_in: int | None = None  # of a point that was chosen and not added yet
        self._aheads: dict[
            int, FantasyPosterior
        ] = {}  # of the parts that were asked; shared with copies, which replace it

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the point (1, d) that the stages choose; equals are broken at random.

        Another rule than a ``StagedRule`` chooses by the posterior of everything told.
        """
        if not isinstance(rule, StagedRule):
            return self._ahead(0).choose(rule, beta, seed, domain)
        with torch.no_grad():
            stage, offer = 1, self._ahead(1).offered(domain)
            rows = None if domain is None else domain.allowed
            rows = torch.arange(len(offer.mean), device=offer.mean.device) if rows is None else rows
            verdict = rule.verdict(stage, *_bounds(offer, beta, rows))
            while verdict.scores is None:
                rows, stage = rows[verdict.kept], stage + 1
                offer = self._ahead(stage).offered(domain)
                verdict = rule.verdict(stage, *_bounds(offer, beta, rows))
            best, _ = best_of(verdict.scores, beta, self._parts[0].kernel_bound(), seed)
            self._chosen_in = verdict.stage
            return offer.chosen(rows[best])

    def offered(self, domain: Domain | None) -> Offered:
        """Return the posterior of everything told at what may be played in a round."""
        return self._ahead(0).offered(domain)

    def _add(self, point: Tensor, times: int) -> None:
        """Note the stage of the point: the one that just chose it, or chose it last if it is played again."""
        stage = stage_of(point, self.pending, self.stages) if self._chosen_in is None else self._chosen_in
        aheads = dict(self._aheads)
        for part in {0, stage} & set(aheads):
            aheads[part] = shallow_copy(aheads[part])
            aheads[part].add(point, times)
        self._aheads, self._chosen_in = aheads, None
        self.stages = torch.cat([self.stages, self.stages.new_full((times,), stage)])

    def pending_scores(self) -> Tensor:
        """Return the score of each pending point under the belief that learns it, (k,): of its stage, or everything.

        Those of everything told are no larger if posteriors are exact, so a rule that sums them bounds all variances.
        """
        scores = self._ahead(0).pending_scores().clone()
        for stage in self._pending_stages():
            scores[self.stages == stage] = self._ahead(stage).pending_scores().to(scores)
        return scores

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio, 0-dim: of the stages with points pending, and of everything told."""
        ratios = [self._ahead(part).variance_ratio() for part in (0, *self._pending_stages())]
        return torch.stack(ratios).max()

    def _pending_stages(self) -> list[int]:
        """Return the stages that chose points which are pending."""
        return self.stages[self.stages > 0].unique().tolist()

    def _ahead(self, part: int) -> FantasyPosterior:
        """Return everything told with all that is pending, part 0, or a stage with what it chose."""
        if part not in self._aheads:
            own = self.pending if part == 0 else self.pending[self.stages == part]
            self._aheads[part] = self._parts[part].fantasized(own)
        return self._aheads[part]


def _bounds(offer: Offered, beta: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior means and the widths of some rows (k,) of what is offered, each (k,)."""
    return offer.mean[rows], beta * offer.variance[rows].sqrt()

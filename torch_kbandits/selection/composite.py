"""Surrogates made of several: one under each hypothesis of a family, or one for each stage of a choice."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, PhasedEliminationRule, StagedRule
from torch_kbandits.candidates import ArmSource
from torch_kbandits.confidence import Width
from torch_kbandits.dictionaries import Selection
from torch_kbandits.dictionaries.greedy import ConditionalVariances
from torch_kbandits.memory.base import is_latest
from torch_kbandits.numerics.random import generator_for, seed_for
from torch_kbandits.numerics.shallow import changed, shallow_copy
from torch_kbandits.observations.history import History
from torch_kbandits.priors.families import FamilyRule, Trials
from torch_kbandits.selection.base import FantasyPosterior, Surrogate, best_of
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.propensities import Choice, Chosen, counted, shares, spread_out

#: What is kept of the trials in a saved state, in this order; the rates follow from the surrogates.
_SUMS = ("plays", "rewards", "widths", "residuals", "scores", "active")


def delegated(to: str, *names: str) -> list[Any]:
    """Return what has the values that an attribute has under these names."""
    return [property(lambda surrogate, name=name: getattr(getattr(surrogate, to), name)) for name in names]


class CompositeSurrogate(Surrogate):
    """Several surrogates, one of which leads. What chose a point is its stage, from 1; 0 for nothing that learns it."""

    #: Whether each part takes in all that is told or pending; else the first does, and each other what its stage chose.
    shares_all: ClassVar[bool]

    parts: tuple[Surrogate, ...]
    leading: Surrogate

    #: How many of the latest rewards count, of all parts together; None where times decide.
    _num_latest: int | None = None
    #: When they were played and in which stages, each (l,).
    _latest: tuple[Tensor, Tensor]

    exact, kernel, regularization, prior_mean = delegated("leading", "exact", "kernel", "regularization", "prior_mean")
    inducing_points, dictionary_weights = delegated("leading", "inducing_points", "dictionary_weights")
    num_observations, played, learns_residual = delegated("leading", "num_observations", "played", "learns_residual")
    moments, recommend, shown = delegated("leading", "moments", "recommend", "shown")
    effective_dimension, information_gain = delegated("leading", "effective_dimension", "information_gain")
    projection_error, kernel_bound, mean_norm = delegated("leading", "projection_error", "kernel_bound", "mean_norm")

    @abstractmethod
    def _settle(self) -> None:
        """Say which part leads and which have a stage, once there are others."""

    def _with(self, parts: Iterable[Surrogate], **known: Any) -> Self:
        other = changed(self, parts=tuple(parts), **known)
        other._settle()
        return other

    def _told(self, told: History) -> list[History]:
        """Return what each part is told."""
        if self.shares_all:
            return [told] * len(self.parts)
        return [told, *(told.rows(_stages(told) == stage) for stage in range(1, len(self.parts)))]

    def _learned(self, told: History, random: torch.Generator | None) -> list[Surrogate]:
        """Return the parts with more rewards. The first draws as if it were alone, each other from its own address."""
        parts = []
        for number, (part, own) in enumerate(zip(self.parts, self._told(told), strict=True)):
            other = random if random is None or not number else generator_for(random.initial_seed(), number, "stage")
            parts.append(part.learned(own, other) if len(own.X) else part)
        return parts

    def restored(self, told: History, dictionary: Selection, *of_stages: Selection) -> Self:
        """Return the empty surrogate conditioned on a history, at dictionaries of what leads and of each stage."""
        known = (dictionary, *of_stages)[-len(self.parts) :] if of_stages else [dictionary] * len(self.parts)
        counting = self._counting(told)
        parts = zip(counting.parts, self._told(told), known, strict=True)
        return counting._with(part.restored(own, known) if len(own.X) else part for part, own, known in parts)

    def at(self, now: float) -> Self:
        """Return the surrogate at a time, which is not before the current one; this one stays as it is."""
        parts = self.parts if self._num_latest is not None else tuple(part.at(now) for part in self.parts)
        return self if all(map(is_, parts, self.parts)) else self._with(parts)

    def _counting(self, told: History) -> Self:
        """Return the surrogate with parts that count their own of the latest rewards, if a number says so."""
        if self._num_latest is None or told.times is None:
            return self
        times, stages = map(torch.cat, zip(self._latest, (told.times, _stages(told)), strict=True))
        counts = is_latest(times, self._num_latest)
        times, stages = times[counts], stages[counts]
        numbers = [len(stages), *(int((stages == stage).sum()) for stage in range(1, len(self.parts)))]
        parts = (part.at(float(number)) for part, number in zip(self.parts, numbers, strict=True))
        return self._with(parts, _latest=(times, stages))


def _stages(told: History) -> Tensor:
    """Return the stage that chose each point told, (n,); 0 where that is not known."""
    return torch.zeros_like(told.rounds) if told.stages is None else told.stages


class CompositeFantasy(FantasyPosterior):
    """Surrogates with points pending: each takes what it would be told of as if it had returned its posterior mean."""

    def __init__(self, surrogate: Any, pending: Tensor, stages: Tensor | None) -> None:
        super().__init__(pending)
        self._surrogate = surrogate
        none = torch.zeros(len(pending), dtype=torch.long, device=pending.device)
        self.stages: Tensor = none if stages is None else stages
        self._aheads = dict[int, FantasyPosterior]()  # of parts that were asked; copies share it, and replace it

    def offered(self, domain: Domain) -> Any:
        """Return the posterior of the part that leads at what may be played in a round."""
        return self._ahead(self._surrogate.leader).offered(domain)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at points X (q, d), each (q,), of the part that leads."""
        return self._ahead(self._surrogate.leader).moments(X)

    def _add(self, point: Tensor, times: int, stage: int | None) -> None:
        """Note the stage of the point: the one that chose it, or chose it last if it is played again."""
        if stage is None:
            before = self.stages[(self.pending == point).all(-1)]
            stage = int(before[-1]) if len(before) else 0
        aheads = dict(self._aheads)
        for part in aheads:
            if self._surrogate.shares_all or part in (0, stage):
                aheads[part] = shallow_copy(aheads[part])
                aheads[part].add(point, times)
        self._aheads = aheads
        self.stages = torch.cat([self.stages, self.stages.new_full((times,), stage)])

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio of a part that counts, 0-dim."""
        return torch.stack([self._ahead(part).variance_ratio() for part in self._counting()]).max()

    @abstractmethod
    def _counting(self) -> list[int]:
        """Return the parts whose variances decide when a batch is complete."""

    def _ahead(self, part: int) -> FantasyPosterior:
        """Return a part with what is pending that it takes in."""
        if part not in self._aheads:
            is_all = self._surrogate.shares_all or part == 0
            own = self.pending if is_all else self.pending[self.stages == part]
            self._aheads[part] = self._surrogate.parts[part].fantasized(own)
        return self._aheads[part]


class EnsembleSurrogate(CompositeSurrogate):
    """A surrogate under each of K hypotheses, all of which learn all rewards, and what each has shown.

    A rule decides between them; the width is read under each on its own. ``keeps_all``: all rewards count in full.
    """

    shares_all = True

    def __init__(self, parts: tuple[Surrogate, ...], rule: FamilyRule, width: Width, *, keeps_all: bool) -> None:
        self.parts, self.rule, self.width, self._keeps_all = parts, rule, width, keeps_all
        none = torch.zeros(len(parts), dtype=torch.float64)
        self.trials = Trials(none, none, none, none, none, none == 0.0, none)
        self._settle()

    def _settle(self) -> None:
        self.stage_surrogates = self.parts
        self.trials = replace(self.trials, rates=torch.stack([_rate(part, self.width) for part in self.parts]))
        self.leader = self.rule.leader(self.trials)
        self.leading = self.parts[self.leader]

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each hypothesis is believed, (K,); see ``FamilyRule.weights``."""
        return tuple(self.rule.weights(self.trials).tolist())

    def offering(self, seed: int) -> list[tuple[int, int]]:
        """Return the numbers of the hypotheses that offer a point, and the seeds of their draws."""
        numbers = self.rule.offering(self.trials, seed)
        return [(number, seed_for(seed, number, "hypothesis") if number else seed) for number in numbers]

    @property
    def sums(self) -> Tensor:
        """What the hypotheses have shown, as a saved state has it, (K, 6)."""
        return torch.stack([getattr(self.trials, name).double() for name in _SUMS], dim=-1)

    def with_sums(self, sums: Tensor, number: int) -> Self:
        """Return the surrogate with what its hypotheses have shown before, (K, 6), on so many rewards."""
        columns = dict(zip(_SUMS, sums.double().cpu().unbind(-1), strict=True))
        columns["active"] = columns["active"] > 0.0
        return self._with(self.parts, trials=replace(self.trials, **columns, number=number))

    def learned(self, told: History, generator: Any = None, until: float | None = None) -> Self:
        """Return the surrogate with more rewards, which all hypotheses learn, without those that these refute."""
        before, news, Y = [part.moments(told.X) for part in self.parts], [], told.Y.double()
        parts = self._learned(told, generator)
        for number, (part, after, (mean, variance)) in enumerate(zip(self.parts, parts, before, strict=True), 1):
            own, residual, variance = _stages(told) == number, (told.Y - mean).double(), variance.double()
            deviation = self.width(part).double() * variance.sqrt()
            score = self._score(told, part, after, residual, variance)
            amounts = own.sum(), Y[own].sum(), deviation[own].sum(), residual[own].sum(), score
            news.append([float(amount) for amount in amounts])
        sums = self.sums[:, :-1]
        sums[:, -1] *= self.rule.score_discount ** len(told.rounds.unique())
        sums = (sums + sums.new_tensor(news)).nan_to_num()  # of the largest rewards none is finite
        number = self.trials.number + len(told.X)
        trials = replace(self.trials, **dict(zip(_SUMS, sums.unbind(-1), strict=False)), number=number)
        noise = torch.stack([part.regularization.double().cpu() for part in self.parts])
        after = self._with(parts, trials=replace(trials, active=self.rule.kept(trials, noise)))
        return after if until is None else after.at(until)

    def _score(self, told: History, before: Surrogate, after: Surrogate, residual: Tensor, variance: Tensor) -> Tensor:
        """Return log p(y | what was told before) of rewards (q,), 0-dim, from the surrogates before them and after.

        Several at once have covariance Σ + λI, or λ_s where told. Where that is exact, (Σ + λI)⁻¹ times the residuals
        before is 1/λ times those after, and ½ log det(I + Σ/λ) is what was learned. Else each is predicted on its own.
        """
        noise = cast(Tensor, told.noise_or(after.regularization.double()))
        if len(residual) > 1 and self._keeps_all and (after.exact or before.num_observations == 0):
            left = (told.Y - after.moments(told.X)[0]).double()
            gain = (after.information_gain() - before.information_gain()).double()
            return -0.5 * (residual * left / noise + (2.0 * math.pi * noise).log()).sum() - gain
        variance = variance + noise
        return -0.5 * (residual.square() / variance + (2.0 * math.pi * variance).log()).sum()

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "EnsembleFantasy":
        """Return the posterior with points (k, d) pending that hypotheses (k,) chose; nobody without them."""
        return EnsembleFantasy(self, pending, stages)


def _rate(part: Surrogate, width: Width) -> Tensor:
    """Return 2 β √(c I), 0-dim, by which the regret bound of GP-UCB grows with the root of its rounds."""
    noise, bound = part.regularization.double(), part.kernel_bound().double()
    bound = bound.clamp_min(torch.finfo(torch.float64).tiny)  # where the function is known
    constant = 2.0 * bound / (bound / noise).log1p()
    return (2.0 * width(part).double() * (constant * part.information_gain().double()).clamp_min(0.0).sqrt()).cpu()


def offering(surrogate: Surrogate, seed: int) -> list[tuple[Surrogate, int]]:
    """Return the surrogates that offer a point, itself if it is no family's, and the seeds of their draws."""
    if not isinstance(surrogate, EnsembleSurrogate):
        return [(surrogate, seed)]
    return [(surrogate.parts[number], own) for number, own in surrogate.offering(seed)]


class EnsembleFantasy(CompositeFantasy):
    """The surrogates of the hypotheses with points pending."""

    _surrogate: EnsembleSurrogate

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point of the highest score that a hypothesis gives, by its own width, to its own."""
        surrogate, found = self._surrogate, list[Chosen]()
        if not rule.needs_observations:  # nor does a hypothesis say it
            return self._ahead(surrogate.leader).choose(rule, beta, seed, domain)
        for number, own_seed in surrogate.offering(seed):
            own_beta = surrogate.width(surrogate.parts[number])
            found.append(self._ahead(number).choose(rule, own_beta, own_seed, domain)._replace(stage=number + 1))
        best = found[0] if len(found) == 1 else max(found, key=lambda each: each.score())
        if best.choice is not None and (surrogate.rule.draws or (rule.is_random and len(found) > 1)):
            return best._replace(choice=counted(self, best.choice, rule, beta, seed, domain))
        return best

    def pending_scores(self) -> Tensor:
        """Return the largest score of each pending point under a hypothesis that is not rejected, (k,)."""
        return torch.stack([self._ahead(number).pending_scores() for number in self._counting()]).amax(0)

    def _counting(self) -> list[int]:
        return self._surrogate.trials.active.nonzero().flatten().tolist()


class StagedSurrogate(CompositeSurrogate):
    """A surrogate of everything told, which leads, and one for each stage, of the rewards of points that it chose.

    Each has a dictionary of its own. If posteriors are exact the gain and the effective dimension of everything are at
    least those of every stage. Where so many of the latest rewards of all stages count, the memory of each is
    ``LastObservations``, and its time the number of its own among them.
    """

    shares_all = False
    leader = 0

    def __init__(self, parts: tuple[Surrogate, ...], num_latest: int | None = None) -> None:
        self.parts, self._num_latest = parts, num_latest
        self._latest = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
        #: The plays of the phase asked for last, and before them what they follow from; shared by copies, a cache.
        self.design: list[Any] = [None, None]
        self._settle()

    def _settle(self) -> None:
        self.leading, *stages = self.parts
        self.stage_surrogates = tuple(stages)

    def learned(self, told: History, generator: Any = None, until: float | None = None) -> Self:
        """Return the surrogate with more rewards, each in the stage that chose its point, if any."""
        counting = self._counting(told)
        after = counting._with(counting._learned(told, generator))
        return after if until is None else after.at(until)

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "StagedFantasy":
        """Return the posterior with points (k, d) pending that stages (k,) chose; no stage chose any without them."""
        return StagedFantasy(self, pending, stages)


class StagedFantasy(CompositeFantasy):
    """The stages with points pending."""

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point that the stages choose; by another rule than a ``StagedRule`` that of everything."""
        if isinstance(rule, PhasedEliminationRule):
            return self._in_phase(rule, beta, domain)
        if not isinstance(rule, StagedRule):
            return self._ahead(0).choose(rule, beta, seed, domain)
        with torch.no_grad():
            stage, rows = 0, domain.allowed
            while True:
                stage, offer = stage + 1, self._ahead(stage + 1).offered(domain)
                rows = torch.arange(len(offer.mean), device=offer.mean.device) if rows is None else rows
                scores, learner, kept = rule.verdict(stage, offer.mean[rows], beta * offer.variance[rows].sqrt())
                if scores is not None:
                    break
                rows = rows[kept]
            bound = self._surrogate.kernel_bound()
            best, _ = best_of(scores, beta, bound, seed)
            row, own = rows[best], partial(shares, beta, bound, scores)
            choice = Choice(row, lambda: spread_out(own(), rows, len(offer.mean)))
            return Chosen(offer.chosen(row), choice, stage=learner)

    @torch.no_grad()
    def _in_phase(self, rule: PhasedEliminationRule, beta: Tensor, domain: Domain) -> Chosen:
        """Return the point that is next in the first phase that is not over, or the best of the last."""
        parts, rows = self._surrogate.parts, domain.allowed
        row, offer, stage = cast(Any, None), cast(Any, None), 0
        for phase, length in enumerate(rule.lengths, 1):
            offer = parts[phase].fantasized(self.pending[:0]).offered(domain)  # what is pending says nothing of means
            rows = torch.arange(len(offer.mean), device=offer.mean.device) if rows is None else rows
            number = parts[phase].num_observations + int((self.stages == phase).sum())
            if number < length:
                row, stage = self._designed(rule, phase, rows)[number], phase
                break
            mean, width = offer.mean[rows], beta * offer.variance[rows].sqrt()
            row = rows[(mean + width).argmax()]
            if number == parts[phase].num_observations:  # nothing is pending, so that each phase is one set of rewards
                rows = rows[rule.kept(mean, width)]
        one = row.reshape(1)
        choice = Choice(one, lambda: spread_out(torch.ones(1, dtype=torch.float64), one, len(offer.mean)))
        return Chosen(offer.chosen(row), choice, stage=stage)

    def _designed(self, rule: PhasedEliminationRule, phase: int, rows: Tensor) -> Tensor:
        """Return which of some rows (A',) a phase plays, (N,), in order; remembered. No reward enters."""
        surrogate, part = self._surrogate, cast(GaussianSurrogate, self._surrogate.parts[phase])
        epoch = getattr(part.memory, "epoch", lambda now: 0)(part.now)
        known, design = surrogate.design
        if known is not None and known[:3] == (rule, phase, epoch) and torch.equal(known[3], rows):
            return design
        source, ranks = cast(ArmSource, part.place.source), cast(Tensor, part.tie_rank)[rows].cpu()
        left, chosen = ConditionalVariances.of(source.rows(rows).cpu(), part.kernel), list[int]()
        for _ in range(rule.lengths[phase - 1]):
            best, _ = best_of(torch.from_numpy(left.variance), part.regularization, part.kernel_bound(), 0, ranks)
            chosen.append(int(best))
            left.observe(chosen[-1], float(part.regularization))
        design = rule.permuted(rows[chosen], phase, epoch)
        surrogate.design[:] = (rule, phase, epoch, rows), design
        return design

    def pending_scores(self) -> Tensor:
        """Return the score of each pending point under what learns it, (k,): its stage, or everything."""
        scores = self._ahead(0).pending_scores().clone()
        for stage in self._counting()[1:]:
            scores[self.stages == stage] = self._ahead(stage).pending_scores().to(scores)
        return scores

    def _counting(self) -> list[int]:
        return [0, *self.stages[self.stages > 0].unique().tolist()]

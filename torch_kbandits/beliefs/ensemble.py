"""A belief under each hypothesis of a family, all of which learn all rewards, and what each has shown."""

import math
from collections.abc import Iterable
from dataclasses import replace
from operator import is_
from typing import Self, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.base import Belief, BeliefOf, FantasyPosterior, Offered
from torch_kbandits.beliefs.staged import stage_generator, stage_of
from torch_kbandits.confidence import Width
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.history import History
from torch_kbandits.priors.families import FamilyRule, Trials

#: What is kept of the trials in a saved state, in this order; the rates follow from the beliefs.
_SUMS = ("plays", "rewards", "widths", "residuals", "scores", "active")

#: How many sums each hypothesis has.
NUM_SUMS = len(_SUMS)


class EnsembleBelief(BeliefOf):
    """A belief under each of K hypotheses. Who chose a point is its stage, counted from 1; 0 for nobody.

    The hypothesis that leads speaks for all: its are the posterior, the dictionary, the evidence that widths read, and
    what is recommended.

    Args:
        parts: the beliefs, before any reward.
        rule: between the hypotheses.
        width: the confidence width, read under each hypothesis on its own.
        keeps_all: whether all rewards count in full under every hypothesis.

    Cost of a reward: that of each of the K beliefs.
    """

    def __init__(self, parts: tuple[Belief, ...], rule: FamilyRule, width: Width, *, keeps_all: bool) -> None:
        first = parts[0]
        level = float(first.regularization)
        super().__init__(first.inducing_points, first.kernel, level, exact=first.exact, mean=first.prior_mean)
        self.rule, self.width, self._keeps_all = rule, width, keeps_all
        none = torch.zeros(len(parts), dtype=torch.float64)
        trials = Trials(none, none, none, none, none, none == 0.0, none)
        self._take(parts, trials)

    def _take(self, parts: Iterable[Belief], trials: Trials) -> None:
        """Take over beliefs, and what they have shown."""
        self.stage_beliefs = tuple(parts)
        rates = torch.stack([_rate(part, self.width) for part in self.stage_beliefs])
        self.trials = replace(trials, rates=rates)
        self.leader = self.rule.leader(self.trials)
        self.leading: Belief = self.stage_beliefs[self.leader]
        self.kernel, self.regularization = self.posterior.kernel, self.posterior.regularization
        self.prior_mean = self.posterior.prior_mean

    # ---------------------------------------------------------------- what is known

    @property
    def posterior(self) -> Belief:
        """The belief under the hypothesis that leads."""
        return self.stage_beliefs[self.leader]

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each hypothesis is believed, (K,); see ``FamilyRule.weights``."""
        return tuple(self.rule.weights(self.trials).tolist())

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return self.posterior.num_observations

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary under the hypothesis that leads, (m, d)."""
        return self.posterior.inducing_points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self.posterior.dictionary_weights

    @property
    def sums(self) -> Tensor:
        """What the hypotheses have shown, as a saved state has it, (K, ``NUM_SUMS``)."""
        return torch.stack([getattr(self.trials, name).double() for name in _SUMS], dim=-1)

    def with_sums(self, sums: Tensor, number: int) -> Self:
        """Return the belief with what its hypotheses have shown before, (K, ``NUM_SUMS``), on so many rewards."""
        columns = dict(zip(_SUMS, sums.double().cpu().unbind(-1), strict=True))
        columns["active"] = columns["active"] > 0.0
        return self._with(self.stage_beliefs, replace(self.trials, **columns, number=number))

    def shown(self) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.posterior.shown()

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief with more rewards, which all hypotheses learn; each draws from an address of its own."""
        before, parts = [part.moments(told.X) for part in self.stage_beliefs], []
        widths = [self.width(part) for part in self.stage_beliefs]
        known = [(part.num_observations, part.information_gain()) for part in self.stage_beliefs]
        for number, part in enumerate(self.stage_beliefs):
            parts.append(part.learned(told, rule, stage_generator(generator, number)))
        chosen = torch.zeros_like(told.rounds) if told.stages is None else told.stages
        news = []
        for number, (mean, variance) in enumerate(before):
            own, residual = chosen == number + 1, (told.Y - mean).double()
            deviation = widths[number].double() * variance.double().sqrt()
            score = self._score(told, parts[number], residual, variance.double(), *known[number])
            amounts = own.sum(), told.Y.double()[own].sum(), deviation[own].sum(), residual[own].sum(), score
            news.append([float(amount) for amount in amounts])
        return self._with(parts, self._after(torch.tensor(news, dtype=torch.float64), told))

    def _after(self, news: Tensor, told: History) -> Trials:
        """Return the trials once sums (K, 5) are added to them, without those that these refute."""
        before = self.trials
        fade = self.rule.score_discount ** len(told.rounds.unique())
        old = self.sums[:, :-1] * torch.tensor([1.0] * (NUM_SUMS - 2) + [fade], dtype=torch.float64)
        sums = (old + news).nan_to_num()  # of the largest rewards no sum is finite
        after = replace(before, **dict(zip(_SUMS, sums.unbind(-1), strict=False)), number=before.number + len(told.X))
        noise = torch.stack([part.regularization.double().cpu() for part in self.stage_beliefs])
        return replace(after, active=self.rule.kept(after, noise))

    def _score(
        self, told: History, after: Belief, residual: Tensor, variance: Tensor, number: int, gain: Tensor
    ) -> Tensor:
        """Return log p(y | what was told before) of rewards (q,), 0-dim, from the belief before them and the one after.

        Several at once are jointly normal with covariance Σ + λI. Of an exact posterior, and of one at the dictionary
        that was chosen for the first rewards, (Σ + λI)⁻¹ times the residuals before is 1/λ times those after, and half
        the logarithm of det(I + Σ/λ) is what information was gained. Else each is predicted on its own.
        """
        noise = after.regularization.double()
        if len(residual) > 1 and self._keeps_all and (after.exact or number == 0):
            left = (told.Y - after.moments(told.X)[0]).double()
            constant = 0.5 * len(left) * (2.0 * math.pi * noise).log()
            return -0.5 * (residual * left).sum() / noise - (after.information_gain() - gain).double() - constant
        variance = variance + noise
        return -0.5 * (residual.square() / variance + (2.0 * math.pi * variance).log()).sum()

    def restored(self, told: History, dictionary: Selection, *of_parts: Selection) -> Self:
        """Return the empty belief conditioned on a whole history at known dictionaries; see ``with_sums``.

        Args:
            told: the rewards.
            dictionary: of the hypothesis that led.
            of_parts: of each hypothesis; none if the posteriors are exact.
        """
        dictionaries = of_parts or [dictionary] * len(self.stage_beliefs)
        parts = [part.restored(told, known) for part, known in zip(self.stage_beliefs, dictionaries, strict=True)]
        return self._with(parts, self.trials)

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the current one; this one stays as it is."""
        parts = tuple(part.at(now) for part in self.stage_beliefs)
        return self if all(map(is_, parts, self.stage_beliefs)) else self._with(parts, self.trials)

    def fantasized(self, pending: Tensor, stages: Tensor | None = None) -> "EnsembleLookahead":
        """Return the posterior with points (k, d) pending that hypotheses (k,) chose; nobody without them."""
        none = torch.zeros(len(pending), dtype=torch.long, device=pending.device)
        return EnsembleLookahead(self, pending, none if stages is None else stages)

    def _with(self, parts: Iterable[Belief], trials: Trials) -> Self:
        other = shallow_copy(self)
        other._take(parts, trials)
        return other


def _rate(part: Belief, width: Width) -> Tensor:
    """Return 2 β √(c I), 0-dim, by which the regret bound of GP-UCB grows with the root of its rounds."""
    noise, bound = part.regularization.double(), part.kernel_bound().double()
    bound = bound.clamp_min(torch.finfo(torch.float64).tiny)  # where the function is known beforehand
    constant = 2.0 * bound / (bound / noise).log1p()
    return (2.0 * width(part).double() * (constant * part.information_gain().double()).clamp_min(0.0).sqrt()).cpu()


def offering(belief: Belief, seed: int) -> list[tuple[Belief, int]]:
    """Return the beliefs that offer a point for the next choice, each with the seed of its own draws.

    Args:
        belief: itself, if it is no family's.
        seed: of the choice.
    """
    if not isinstance(belief, EnsembleBelief):
        return [(belief, seed)]
    numbers = belief.rule.offering(belief.trials, seed)
    return [(belief.stage_beliefs[number], _own_seed(seed, number)) for number in numbers]


def _own_seed(seed: int, number: int) -> int:
    return seed_for(seed, number, "hypothesis") if number else seed


class EnsembleLookahead(FantasyPosterior):
    """The beliefs of the hypotheses with points pending: each takes all as if they had returned its posterior mean.

    Args:
        belief: without them.
        pending: (k, d).
        stages: the hypothesis that chose each, (k,), counted from 1; 0 for nobody.
    """

    def __init__(self, belief: EnsembleBelief, pending: Tensor, stages: Tensor) -> None:
        super().__init__(pending)
        self._belief = belief
        self.stages: Tensor = stages
        self._chosen_by: int | None = None  # of a point that was chosen and not added yet
        self._aheads: dict[
            int, FantasyPosterior
        ] = {}  # of the parts that were asked; shared with copies, which replace it

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the point (1, d) of the highest score that a hypothesis gives to what it would play.

        Each has its own width in place of ``beta``, and but for the first draws of its own.
        """
        belief, best, found = self._belief, -math.inf, None
        numbers = belief.rule.offering(belief.trials, seed)
        for number in numbers:
            part, ahead = belief.stage_beliefs[number], self._ahead(number)
            x = ahead.choose(rule, belief.width(part), _own_seed(seed, number), domain)
            score = ahead.best_score() if len(numbers) > 1 else 0.0
            if found is None or score > best:
                best, found, self._chosen_by = score, x, number + 1
        return cast(Tensor, found)

    def offered(self, domain: Domain | None) -> Offered:
        """Return the posterior, under the hypothesis that leads, at what may be played in a round."""
        return self._ahead(self._belief.leader).offered(domain)

    def _add(self, point: Tensor, times: int) -> None:
        """Note who chose the point: the hypothesis that just did, or did last if it is played again."""
        stage = stage_of(point, self.pending, self.stages) if self._chosen_by is None else self._chosen_by
        aheads = {number: shallow_copy(ahead) for number, ahead in self._aheads.items()}
        for ahead in aheads.values():
            ahead.add(point, times)
        self._aheads, self._chosen_by = aheads, None
        self.stages = torch.cat([self.stages, self.stages.new_full((times,), stage)])

    def pending_scores(self) -> Tensor:
        """Return the largest score of each pending point under a hypothesis that is not rejected, (k,)."""
        return torch.stack([ahead.pending_scores() for ahead in self._all_ahead()]).amax(0)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio under a hypothesis that is not rejected, 0-dim."""
        return torch.stack([ahead.variance_ratio() for ahead in self._all_ahead()]).max()

    def _all_ahead(self) -> list[FantasyPosterior]:
        return [self._ahead(number) for number in self._belief.trials.active.nonzero().flatten().tolist()]

    def _ahead(self, number: int) -> FantasyPosterior:
        """Return the belief under a hypothesis with all that is pending."""
        if number not in self._aheads:
            self._aheads[number] = self._belief.stage_beliefs[number].fantasized(self.pending)
        return self._aheads[number]

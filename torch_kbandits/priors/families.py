"""Families of hypotheses: kernels, means, noises and memories that take turns by a rule."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.prior import PriorMean, own_mean
from torch_kbandits.priors.runs import priors_of

__all__ = ["Balancing", "Elimination", "Family", "FamilyRule", "ModelSpec", "Prediction", "Sampling", "Trials"]
__all__ += ["of_length_scales", "shrinking_scales"]


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A hypothesis by what it assumes otherwise than the bandit, see ``Prior`` and ``Memory``; None is as there."""

    kernel: Kernel | None = None
    regularization: float | None = None
    memory: Memory | None = None
    mean: PriorMean | None = None

    def __post_init__(self) -> None:
        checks.keep(self, regularization=checks.optional(checks.positive))
        checks.absent_or("kernel", self.kernel, Kernel, "a GPyTorch kernel, or None")
        checks.absent_or("memory", self.memory, Memory, "a memory, or None")
        if self.mean is not None:
            object.__setattr__(self, "mean", own_mean(self.mean))


@dataclass(frozen=True, eq=False)
class Trials:
    """What each of K hypotheses u has shown, (K,) each. S_u are the rounds whose point it chose.

    Attributes:
        plays, rewards, widths: n_u = |S_u|, Σ_{S_u} y and Σ_{S_u} β σ_u(x), σ and μ being of before the reward.
        residuals: Σ_{S_u} (y − μ_u(x)).
        scores: Σ log p_u(y | what was told before) over all rewards, whoever chose the point, in nats; older ones count
            α^age where the rule forgets.
        active: which are not rejected.
        rates: by which the optimistic regret bounds grow: R_u(n) = rates √n; see ``Balancing``.
        number: t, how many rewards were learned.
    """

    plays: Tensor
    rewards: Tensor
    widths: Tensor
    residuals: Tensor
    scores: Tensor
    active: Tensor
    rates: Tensor
    number: int = 0

    @property
    def probabilities(self) -> Tensor:
        """Those of the hypotheses that are not rejected if all were as likely before any reward, (K,)."""
        scores = torch.where(self.active, self.scores, -torch.inf)
        return torch.softmax(scores - scores.max(), 0)

    @property
    def likeliest(self) -> int:
        """The hypothesis, of those not rejected, that predicted best; of equals the first."""
        return int(torch.where(self.active, self.scores, -torch.inf).argmax())


class FamilyRule(ABC):
    """How hypotheses take turns. A value: it holds settings and no state.

    All hypotheses learn from all rewards. So which of them chooses decides what is played, and never what is known.
    """

    #: The factor by which a score loses weight in a round, in (0, 1].
    score_discount: float = 1.0
    #: Whether the hypotheses that offer are drawn.
    draws: ClassVar[bool] = False

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which active hypotheses are not rejected after a round, given each λ (K,): by default all."""
        return trials.active

    @abstractmethod
    def weights(self, trials: Trials) -> Tensor:
        """Return the weight of each hypothesis, (K,), as the rule understands it; they sum to 1."""

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis whose posterior is shown and recommends; by default the one that predicted best."""
        return trials.likeliest

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the hypotheses that offer their next point, of which the highest score is played: the leader."""
        return (self.leader(trials),)


@dataclass(frozen=True, eq=False)
class Family:
    """Several hypotheses, one of which may be true, and the rule by which they take turns.

    A restart of the bandit forgets what they have shown. Cost: K times that of one hypothesis, in time and memory.

    Args:
        variants: the hypotheses, K >= 1. Of equals the first is preferred.
        rule: ``Balancing``, ``Elimination``, ``Sampling`` or ``Prediction``.
    """

    variants: tuple[ModelSpec, ...]
    rule: FamilyRule

    def __post_init__(self) -> None:
        if not isinstance(self.variants, (tuple, list)) or not self.variants:
            raise InputError(f"variants must be one or more hypotheses, got {checks.describe(self.variants)}.")
        for number, variant in enumerate(self.variants):
            checks.instance(f"variants[{number}]", variant, ModelSpec, "a ModelSpec(kernel=...)")
        checks.instance("rule", self.rule, FamilyRule, "a rule such as Sampling() or Balancing()")
        object.__setattr__(self, "variants", tuple(self.variants))

    @classmethod
    def from_runs(
        cls, runs: Sequence[Any], kernel: Kernel | None = None, *, rule: "FamilyRule | None" = None, seed: int = 0
    ) -> "Family":
        """Return three hypotheses: ``Prior.from_runs``; kernel and λ of the runs, with a constant mean; their units.

        The last has the kernel that a fit starts from. So a past that misleads is found out by the rewards. Arguments,
        errors and cost are those of ``Prior.from_runs``, but for the rule, ``Prediction()`` unless given, for which no
        regret bound is known; ``Balancing()`` has one, and learns later whom to believe.
        """
        priors = priors_of(runs, kernel, seed)
        variants = (ModelSpec(each.kernel, each.regularization, mean=each.mean) for each in priors)
        return cls(tuple(variants), Prediction() if rule is None else rule)


def shrinking_scales(number: int, dimension: int) -> tuple[float, ...]:
    """Return e^(−i/d) for i = 0 … number − 1: each bounds the regret at most about e times as high as the one before.

    Source: Ziomek, Adachi and Osborne, NeurIPS 2024, for Gaussian kernels.
    """
    number, dimension = checks.size("number", number), checks.positive_integer("dimension", dimension)
    return tuple(math.exp(-i / dimension) for i in range(number))


def of_length_scales(kernel: Kernel, scales: Sequence[float]) -> tuple[ModelSpec, ...]:
    """Return hypotheses whose kernels have the length scales of a kernel, all of them, times each number.

    A kernel without length scales, or one whose constraint forbids what results, is an ``InputError``.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    if not isinstance(scales, (tuple, list)) or not scales:
        raise InputError(f"scales must be one or more numbers above 0, got {checks.describe(scales)}.")
    if not any(part.has_lengthscale for part in kernel.modules() if isinstance(part, Kernel)):
        name = type(kernel).__name__
        raise InputError(f"This {name} has no length scale to multiply: give kernels=, one for each hypothesis.")
    factors = [checks.positive(f"scales[{place}]", scale) for place, scale in enumerate(scales)]
    return tuple(ModelSpec(kernel=_stretched(kernel, factor)) for factor in factors)


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """Return a kernel whose length scales are those of another times a factor."""
    other = deepcopy(kernel)
    for part in other.modules() if factor != 1.0 else ():  # which would change the last digits
        if not isinstance(part, Kernel) or not part.has_lengthscale:
            continue
        longer = cast(Tensor, part.lengthscale).detach() * factor
        constraint = cast(Interval, part.raw_lengthscale_constraint)
        if not constraint.check(longer):
            got = f"A length scale of the {type(part).__name__}, times {factor:g}, is {longer.flatten().tolist()}"
            raise InputError(f"{got}, and must be in {constraint}: give other scales, or another constraint.")
        with torch.no_grad():
            cast(Tensor, part.raw_lengthscale).copy_(constraint.inverse_transform(longer))
    return other


@dataclass(frozen=True)
class Balancing(FamilyRule):
    """Play the hypothesis of the smallest optimistic regret bound by its own rule, and reject what cannot keep it.

        u_t = argmin_u R_u(n_u + 1),  R_u(n) = 2 β_u √(c_u I_u n),  c_u = 2κ_u² / ln(1 + κ_u² / λ_u)

    where I_u is the information gain of what was learned. The bound is that of GP-UCB were u true. Hypothesis u is
    rejected, for good, once even its optimistic mean is below what another has earned:

        (Σ_{S_u} y + Σ_{S_u} β σ_u) / n_u + √(ξ_t / n_u) < max_v (Σ_{S_v} y) / n_v − √(ξ_t / n_v)

    with ξ_t = 2R² ln(K π² t² / 6δ). The v of the maximum is never rejected, so one hypothesis always stays. The leader
    is the one that plays next.

    Source: Ziomek, Adachi and Osborne, NeurIPS 2024, LB-GP-UCB. Differs: hypotheses are any, so the information gain in
    R_u is the realised one in place of a rate in the length scale; those that have not played take no part in the
    comparison, where the authors' code waits for all. With a memory or contexts there is no theorem.

    Args:
        failure_probability: δ in (0, 1).
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ.
        num_starting: how many hypotheses, the first, take part from the beginning; None for all.
        shrinkage: p >= 0: with ``num_starting`` hypothesis number i, counted from 0, joins once t^p >= e^(i step).
        step: by which the logarithm of the shrinking scale changes: 1/d for length scales θ e^(−i/d).
    """

    failure_probability: float = 0.1
    noise_scale: float | None = None
    num_starting: int | None = None
    shrinkage: float = 0.25
    step: float = 1.0

    def __post_init__(self) -> None:
        checks.keep(self, failure_probability=checks.open_unit_interval, noise_scale=checks.optional(checks.positive))
        checks.keep(self, num_starting=checks.optional(checks.positive_integer), shrinkage=checks.non_negative)
        checks.keep(self, step=checks.positive)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which hypotheses can have kept their bounds, (K,) bool."""
        upper, lower = self.bounds(trials, noise)
        return trials.active & ~(upper < torch.where(trials.active, lower, -torch.inf).max())

    def bounds(self, trials: Trials, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return between what the best mean reward lies were a hypothesis true, each (K,); ±∞ where it never played."""
        radius = _confidence(self, trials, noise)
        n, played = trials.plays.clamp_min(1.0), trials.plays > 0
        upper = (trials.rewards + trials.widths) / n + (radius / n).sqrt()
        lower = trials.rewards / n - (radius / n).sqrt()
        return torch.where(played, upper, torch.inf), torch.where(played, lower, -torch.inf)

    def weights(self, trials: Trials) -> Tensor:
        """Return the same weight for all that take part, (K,)."""
        playing = self.playing(trials)
        return playing.double() / playing.sum()

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis of the smallest bound after one more round."""
        bounds = trials.rates * (trials.plays + 1.0).sqrt()
        return int(torch.where(self.playing(trials), bounds, torch.inf).argmin())

    def playing(self, trials: Trials) -> Tensor:
        """Return which hypotheses take part and are not rejected, (K,) bool; if that leaves none, the next that may."""
        if self.num_starting is None:
            return trials.active
        number = torch.arange(len(trials.plays), dtype=torch.float64)
        joined = self.shrinkage * math.log(max(1, trials.number)) >= self.step * number
        playing = trials.active & (joined | (number < self.num_starting))
        return playing if bool(playing.any()) else trials.active & (trials.active.cumsum(0) == 1)


@dataclass(frozen=True)
class Elimination(FamilyRule):
    """Play the highest of the scores that the hypotheses give to their best points; drop a hypothesis that is refuted.

    By upper confidence bounds it is PE-GP-UCB, by draws PE-GP-TS. Hypothesis u is dropped, for good, once

        |Σ_{S_u} (y_s − μ_{u,s−1}(x_s))| > √(ξ_t n_u) + Σ_{S_u} β_s σ_{u,s−1}(x_s),  ξ_t = 2R² ln(K π² t² / 6δ)

    The true one is kept in all rounds with probability 1 − δ where its band β σ holds. If the last ones are refuted
    in one round none of the family is true: the one that is refuted by least stays, and goes on alone. The leader is
    the one, of those left, that predicted best.

    A hypothesis that explains more than the truth needs, such as too short a length scale, is never refuted, and its
    bounds are the highest: the family explores like the most careful of its members. Give few, near each other.

    Source: Ziomek, Adachi and Osborne, AISTATS 2025, PE-GP-UCB; Sandberg and Chehreghani, 2025, PE-GP-TS. Differs: one
    stays in any case; σ of rewards told together is that of before all of them. Arguments are as in ``Balancing``.
    """

    failure_probability: float = 0.1
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        checks.keep(self, failure_probability=checks.open_unit_interval, noise_scale=checks.optional(checks.positive))

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which hypotheses are not refuted, (K,) bool."""
        excess = torch.where(trials.active, self.excess(trials, noise), torch.inf)
        kept = trials.active & (excess <= 0.0)
        return kept if bool(kept.any()) else torch.arange(len(kept)) == excess.argmin()

    def excess(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return by how much the residuals of each hypothesis exceed what they may sum to, (K,), in reward units."""
        radius = _confidence(self, trials, noise)
        return trials.residuals.abs() - (radius * trials.plays).sqrt() - trials.widths

    def weights(self, trials: Trials) -> Tensor:
        """Return the same weight for all that are not dropped, (K,)."""
        return trials.active.double() / trials.active.sum()

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return all that are not dropped."""
        return tuple(trials.active.nonzero().flatten().tolist())


@dataclass(frozen=True)
class Sampling(FamilyRule):
    """Draw a hypothesis from P(u | data) ∝ P(u) p(data | u) for each point, which that one chooses.

    With Thompson sampling as the rule of acquisition it is HP-GP-TS: a draw of the hypothesis, and then of its
    function, is a draw of the posterior. The leader is the most probable hypothesis.

    log p(data | u) is the sum of what was predicted: of each reward, or of all that were told together, given those
    before. For exact posteriors of rewards that all count it is the log marginal likelihood; with a dictionary or a
    memory rewards told together are predicted each on its own, unless they are the first.

    Source: Sandberg and Chehreghani, 2025, HP-GP-TS, for functions drawn from the prior of a hypothesis that was drawn
    from P. Differs: any posterior, memory and rule of acquisition.

    Args:
        probabilities: P(u) > 0 for each hypothesis, in proportion; None for the same for all.
    """

    probabilities: tuple[float, ...] | None = None

    draws = True

    def __post_init__(self) -> None:
        if self.probabilities is not None:
            numbers = enumerate(checks.entries("probabilities", self.probabilities))
            kept = tuple(checks.positive(f"probabilities[{place}]", each) for place, each in numbers)
            object.__setattr__(self, "probabilities", kept)

    def weights(self, trials: Trials) -> Tensor:
        """Return P(u | data), (K,), or refuse another number of probabilities than hypotheses."""
        if self.probabilities is None:
            return trials.probabilities
        if len(self.probabilities) != len(trials.plays):
            hint = f"a number for each of {len(trials.plays)} hypotheses"
            raise InputError(f"probabilities must have {hint}: {self.probabilities}.")
        scores = trials.scores + torch.tensor(self.probabilities, dtype=torch.float64).log()
        return torch.softmax(scores - scores.max(), 0)

    def leader(self, trials: Trials) -> int:
        """Return the most probable hypothesis."""
        return int(self.weights(trials).argmax())

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the hypothesis that is drawn."""
        probabilities = self.weights(trials)
        uniform = torch.rand((), generator=generator_for(seed, 0, "hypothesis"), dtype=torch.float64, device="cpu")
        below = int((probabilities.cumsum(0) <= uniform).sum())
        return (min(below, int(probabilities.nonzero().max())),)


@dataclass(frozen=True)
class Prediction(FamilyRule):
    """Play by the hypothesis whose predictions were best, those of each earlier round counting α times as much.

        u_t = argmax_u Σ_s α^(t − s) log p_u(y_s | what was told before s)

    Every reward scores every hypothesis, whichever chose its point: none need play in order to be judged. It goes
    with kernels, means, λ and memories alike. Before any reward the first plays.

    Source: Raftery, Kárný and Ettler, Technometrics 2010, dynamic model selection with forgetting factor α in (0, 1].
    Differs: a round is what is told in one call. No regret bound is known.
    """

    score_discount: float = 1.0

    def __post_init__(self) -> None:
        checks.keep(self, score_discount=checks.discount)

    def weights(self, trials: Trials) -> Tensor:
        """Return the probabilities, (K,)."""
        return trials.probabilities


def _confidence(rule: Balancing | Elimination, trials: Trials, noise: Tensor) -> Tensor:
    """Return ξ_t = 2R² ln(K π² t² / 6δ) of hypotheses of noise variances (K,), (K,): with one R, or √λ of each."""
    odds = len(trials.plays) * (torch.pi * max(1, trials.number)) ** 2 / (6.0 * rule.failure_probability)
    scale = noise.sqrt() if rule.noise_scale is None else torch.full_like(noise, rule.noise_scale)
    return 2.0 * scale.square() * torch.tensor(odds, dtype=torch.float64).log()

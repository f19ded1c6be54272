"""The rules by which hypotheses take turns."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.families.base import FamilyRule, Trials


@dataclass(frozen=True)
class Balancing(FamilyRule):
    """Play the hypothesis of the smallest optimistic regret bound by its own rule, and reject what cannot keep it.

        u_t = argmin_u R_u(n_u + 1),  R_u(n) = 2 β_u √(c_u I_u n),  c_u = 2κ_u² / ln(1 + κ_u² / λ_u)

    where I_u is the information gain of what was learned. The bound is that of GP-UCB were u true. Hypothesis u is
    rejected, for good, once even its optimistic mean is below what another has earned:

        (Σ_{S_u} y + Σ_{S_u} β σ_u) / n_u + √(ξ_t / n_u) < max_v (Σ_{S_v} y) / n_v − √(ξ_t / n_v)

    with ξ_t = 2R² ln(K π² t² / 6δ). The v of the maximum is never rejected, so one hypothesis always stays. The leader
    is the one that plays next.

    Source: Ziomek, Adachi and Osborne, "Bayesian optimisation with unknown hyperparameters: regret bounds
    logarithmically closer to optimal", NeurIPS 2024, LB-GP-UCB. Differs: hypotheses are any, not length scales alone,
    so the information gain in R_u is the realised one in place of a rate in the length scale; those that have not
    played take no part in the comparison, where the authors' code waits for all; of equal bounds the first plays. All
    hypotheses learn from all rewards, as there. The bounds hold for a mean reward that stays, so with a memory, and
    with contexts, in which the rounds of two hypotheses differ in what could be earned, there is no theorem.

    Args:
        failure_probability: δ in (0, 1).
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ.
        num_starting: how many hypotheses, the first, take part from the beginning; None for all.
        shrinkage: p >= 0: with ``num_starting`` hypothesis number i, counted from 0, joins once t^p >= e^(i step).
        step: by which the logarithm of the shrinking scale changes from one hypothesis to the next: 1/d for length
            scales θ e^(−i/d).
    """

    failure_probability: float = 0.1
    noise_scale: float | None = None
    num_starting: int | None = None
    shrinkage: float = 0.25
    step: float = 1.0

    def __post_init__(self) -> None:
        checks.keep(
            self,
            failure_probability=checks.open_unit_interval,
            noise_scale=checks.optional(checks.positive),
            num_starting=checks.optional(checks.positive_integer),
            shrinkage=checks.non_negative,
            step=checks.positive,
        )

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
        return _shares(self.playing(trials))

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis of the smallest bound after one more round."""
        bounds = trials.rates * (trials.plays + 1.0).sqrt()
        return int(torch.where(self.playing(trials), bounds, torch.inf).argmin())

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the leader alone."""
        return (self.leader(trials),)

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

    Source: Ziomek, Adachi and Osborne, "Time-varying Gaussian process bandits with unknown prior", AISTATS 2025,
    PE-GP-UCB; Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson
    sampling", 2025, PE-GP-TS. Differs: one stays in any case; σ of rewards told together is that of before all of
    them; of equal scores the first hypothesis' is played.

    A hypothesis that explains more than the truth needs, such as too short a length scale, is never refuted, and its
    bounds are the highest: the family explores like the most careful of its members. Give few, near each other.

    Args:
        failure_probability: δ in (0, 1).
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ.
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
        return _shares(trials.active)

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis, of those left, that predicted best."""
        return trials.likeliest

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return all that are not dropped."""
        return tuple(trials.active.nonzero().flatten().tolist())


@dataclass(frozen=True)
class Sampling(FamilyRule):
    """Draw a hypothesis from P(u | data) ∝ P(u) p(data | u) for each point, which that one chooses.

    With Thompson sampling as the rule of acquisition it is HP-GP-TS: a draw of the hypothesis, and then of its
    function, is a draw of the posterior. The leader is the most probable hypothesis.

    log p(data | u) is the sum of what was predicted: of each reward, or of all that were told together, given those
    before. For exact posteriors of rewards that all count it is the log marginal likelihood. With a dictionary or a
    memory it is what that posterior predicted, and rewards told together are predicted each on its own, unless they
    are the first.

    Source: Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson sampling",
    2025, HP-GP-TS. Differs: any posterior, memory and rule of acquisition. The regret bound is for functions drawn from
    the prior of a hypothesis that was drawn from P; nothing is rejected, so a family without the truth in it still
    converges to what predicts best.

    Args:
        probabilities: P(u) > 0 for each hypothesis, in proportion; None for the same for all.
    """

    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.probabilities is not None:
            numbers = checks.entries("probabilities", self.probabilities)
            if not numbers:
                raise InputError("probabilities must be a number for each hypothesis, got none.")
            numbers = tuple(checks.positive(f"probabilities[{place}]", each) for place, each in enumerate(numbers))
            object.__setattr__(self, "probabilities", numbers)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return all, (K,) bool."""
        return trials.active

    def weights(self, trials: Trials) -> Tensor:
        """Return P(u | data), (K,).

        Raises:
            InputError: if there are not as many probabilities as hypotheses.
        """
        if self.probabilities is None:
            return trials.probabilities
        if len(self.probabilities) != len(trials.plays):
            raise InputError(
                f"probabilities must have a number for each of {len(trials.plays)} hypotheses: {self.probabilities}."
            )
        scores = trials.scores + torch.tensor(self.probabilities, dtype=torch.float64).log()
        return torch.softmax(scores - scores.max(), 0)

    def leader(self, trials: Trials) -> int:
        """Return the most probable hypothesis."""
        return int(self.weights(trials).argmax())

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the hypothesis that is drawn."""
        return (_drawn(self.weights(trials), seed),)


@dataclass(frozen=True)
class Prediction(FamilyRule):
    """Play by the hypothesis whose predictions were best, those of each earlier round counting α times as much.

        u_t = argmax_u Σ_s α^(t − s) log p_u(y_s | what was told before s)

    Every reward scores every hypothesis, whichever chose its point: none need play in order to be judged. It goes
    with kernels, means, λ and memories alike. Before any reward the first plays.

    Source: Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010: model probabilities with forgetting factor α, of which the largest is taken (dynamic model
    selection). Differs: a round is what is told in one call. No regret bound is known.

    Args:
        score_discount: α in (0, 1], the factor by which a score loses weight in a round; 1 where the function does not
            change.
    """

    score_discount: float = 1.0

    def __post_init__(self) -> None:
        checks.keep(self, score_discount=checks.discount)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return all, (K,) bool."""
        return trials.active

    def weights(self, trials: Trials) -> Tensor:
        """Return the probabilities, (K,)."""
        return trials.probabilities

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis that predicted best."""
        return trials.likeliest

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the leader alone."""
        return (self.leader(trials),)


def _confidence(rule: Balancing | Elimination, trials: Trials, noise: Tensor) -> Tensor:
    """Return ξ_t = 2R² ln(K π² t² / 6δ) of hypotheses of noise variances (K,), (K,): with one R, or √λ of each."""
    odds = len(trials.plays) * (torch.pi * max(1, trials.number)) ** 2 / (6.0 * rule.failure_probability)
    scale = noise.sqrt() if rule.noise_scale is None else torch.full_like(noise, rule.noise_scale)
    return 2.0 * scale.square() * torch.tensor(odds, dtype=torch.float64).log()


def _shares(active: Tensor) -> Tensor:
    """Return the same weight for each hypothesis that is not rejected, (K,)."""
    return active.double() / active.sum()


def _drawn(probabilities: Tensor, seed: int) -> int:
    """Return a hypothesis drawn with these probabilities (K,)."""
    uniform = torch.rand((), generator=generator_for(seed, 0, "hypothesis"), dtype=torch.float64, device="cpu")
    below = int((probabilities.cumsum(0) <= uniform).sum())
    return min(below, int(probabilities.nonzero().max()))

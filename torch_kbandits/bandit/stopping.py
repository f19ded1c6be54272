"""When to stop: how much better than what would be used now anything can still be."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain, ExpectedImprovementRule, ThompsonRule, UpperConfidenceRule
from torch_kbandits.bandit.choices import playable_of
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import Guarantee, Width, cumulative_regret_bound, dictionary_size_bound
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.selection import FantasyPosterior, Surrogate

#: Draws of the posterior from which a quantile of the regret is taken.
_DRAWS = 256


@dataclass(frozen=True)
class StopWhen:
    """Says of a bandit whether to stop, as ``Bandit.run(..., stop=)`` and loops of your own ask it: ``stop(bandit)``.

    Args:
        regret: stop once ``Bandit.regret_bound`` is at most this, in reward units: with the width in force, and so with
            the certainty of its theorem where that holds.
        beta: another multiplier of σ in that bound, as for algorithms without a width.
        confidence: with it the posterior probability, in (0, 1), that the regret is at most ``regret``, from draws.
        no_better_by: stop once no candidate is expected to be better than the one recommended by more than this: once
            the largest expected improvement, in reward units, is at most that.
        every: look only every so many rounds.

    With several of them it stops where all hold. It never stops before the prior is fitted and a reward counts.

    Source: for the bound Makarova et al., AutoML 2022; for the probability Wilson, NeurIPS 2024; for the expected
    improvement Nguyen et al., 2017. Differs: noise is in the bounds themselves, no cross-validation estimates it.
    """

    regret: float | None = None
    confidence: float | None = None
    no_better_by: float | None = None
    every: int = 1
    beta: float | None = None

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("regret", "no_better_by", "beta"), checks.optional(checks.non_negative))
        checks.keep(self, **sizes, confidence=checks.optional(checks.open_unit_interval), every=checks.positive_integer)
        if self.regret is None and (self.no_better_by is None or (self.confidence, self.beta) != (None, None)):
            raise InputError("Give regret, no_better_by or both; confidence and beta are those of regret.")

    def __call__(self, bandit: Any, **asked: Any) -> bool:
        """Say whether a ``Bandit`` is to stop now; ``context``, ``candidates`` and ``time`` are as in its ``ask``."""
        if bandit.round % self.every:
            return False
        return all(found <= getattr(self, name) for name, found in self.measured(bandit, **asked).items())

    def measured(self, bandit: Any, **asked: Any) -> dict[str, float]:
        """Return what is compared with ``regret`` and ``no_better_by``, by these names, of what was given."""
        found = {}
        if self.no_better_by is not None:
            found["no_better_by"] = bandit.largest_expected_improvement(**asked)
        if self.regret is not None:
            found["regret"] = bandit.regret_bound(beta=self.beta, confidence=self.confidence, **asked)
        return found


def regret_bound(
    config: BanditConfig, state: State, domain: Domain, x: Tensor, beta: float | None, confidence: float | None
) -> float:
    """Return how much better than a point (1, d) anything that may be played is at most; see ``Bandit``."""
    rule, seed = UpperConfidenceRule(), seed_for(config.seed, state.round, "regret")
    if (surrogate := _informed(config, state)) is None:
        return math.inf
    domain, ahead = playable_of(config, state, domain, rule).domain, _without_pending(surrogate)
    if confidence is not None:
        return _regret_quantile(ahead, domain, x, confidence, seed)
    width = cast(Width, config.width)(state.surrogate) if beta is None else torch.tensor(beta, dtype=torch.float64)
    if beta is None and width == 0.0:
        raise InputError("This bandit has no confidence width: give beta, the multiplier of σ, or confidence.")
    best = ahead.choose(rule, width, seed, domain)
    mean, variance = (float(each) for each in surrogate.moments(x))
    spread = float(width) * math.sqrt(max(variance, 0.0))
    return max(best.score(), mean + spread) - (mean - spread)


def largest_expected_improvement(config: BanditConfig, state: State, domain: Domain) -> float:
    """Return by how much a candidate is expected to be better at most than what would be used; see ``Bandit``."""
    if (surrogate := _informed(config, state)) is None:
        return math.inf
    rule = ExpectedImprovementRule()
    domain, ahead = playable_of(config, state, domain, rule).domain, _without_pending(surrogate)
    nothing, seed = torch.zeros((), dtype=torch.float64), seed_for(config.seed, state.round, "improvement")
    return math.exp(ahead.choose(rule, nothing, seed, domain).score())


def with_bounds(guarantee: Guarantee, config: BanditConfig, state: State, variation_budget: float | None) -> Guarantee:
    """Return a theorem's guarantee with its bounds on regret and dictionary, where nothing that it assumes fails."""
    width, surrogate, rounds = cast(Width, config.width), state.surrogate, state.ledger.num_observations
    if guarantee.holds is False or not rounds:
        return guarantee
    size, regret, drift = dictionary_size_bound(width, surrogate, config.dictionary, rounds=rounds), None, None
    memory, rule, source = config.memory, config.acquisition, getattr(untimed(config.candidates), "source", None)
    is_plain = not (
        config.fidelity or config.constraints or config.objective or config.family or config.memories or config.trigger
    )
    is_by_rounds = state.clock.kind in (None, "rounds") and state.round == rounds and not state.ledger.num_forgotten
    span = None if memory is None else memory.span or 0.0 if is_by_rounds else 0.0
    draws = isinstance(rule, ThompsonRule) and source is not None
    if is_plain and (draws or isinstance(rule, UpperConfidenceRule)):
        bound = partial(
            cumulative_regret_bound,
            width,
            surrogate,
            rounds=rounds,
            num_inducing=len(surrogate.inducing_points),
            memory_size=None if span is None else math.ceil(min(span, rounds)),
            num_arms=None if source is None or not draws else len(source),
        )
        regret, learning = bound(variation_budget=variation_budget), bound(variation_budget=0.0)
        drift = None if regret is None or learning is None else (regret - learning) or None
    return replace(guarantee, regret=regret, dictionary_size=size, drift=drift)


def _regret_quantile(ahead: FantasyPosterior, domain: Domain, x: Tensor, confidence: float, seed: int) -> float:
    """Return what the regret of a candidate (1, d) is at most in a share ``confidence`` of draws of the posterior."""
    if not domain.is_listed:
        raise InputError("confidence needs arms or actions, of which there are finitely many: leave it out on a box.")
    is_row = torch.cat([(part == x.to(part)).all(-1) for part in domain.parts()])
    if not bool(is_row.any()):
        raise InputError("With confidence x must be one of the candidates, with which it is drawn together.")
    offer, rows, row = ahead.offered(domain), domain.allowed, int(is_row.nonzero()[0])
    means, regrets = offer.mean, []
    for number in range(_DRAWS):
        values = means + offer.deviation(seed + number)
        regrets.append(float((values if rows is None else values[rows]).max() - values[row]))
    return max(float(torch.tensor(regrets).quantile(confidence)), 0.0)


def _informed(config: BanditConfig, state: State) -> Surrogate | None:
    """Return the posterior that recommends, once its prior is known or fitted and a reward counts."""
    surrogate = state.surrogate.leading or state.surrogate
    return surrogate if config.is_fitted(state.ledger.num_learned) and surrogate.num_observations else None


def _without_pending(surrogate: Surrogate) -> FantasyPosterior:
    return surrogate.fantasized(surrogate.inducing_points[:0])

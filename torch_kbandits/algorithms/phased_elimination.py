"""Phased elimination: in few batches, for pure exploration, and restarted where the function changes."""

import math
from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.acquisition.elimination import PhasedEliminationRule
from torch_kbandits.algorithms.arguments import Arguments, TheoremWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import FixedDesignWidth
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Restart


@described
class BPE(Bandit):
    """BPE, batched pure exploration: phased elimination in O(log log T) batches, for a regret of order √(T γ_T).

    All plays of a phase may be asked for at once: ``ask(bandit.rule.lengths[0])`` is the first batch.

    Source: Li and Scarlett, AISTATS 2022. Differs: see ``PhasedEliminationRule`` and ``FixedDesignWidth``.

    Args:
        bounds: refused, with a hint: the phases go through a finite set. So are contexts.
        memory: refused: the phases are for a function that stays.
        horizon: T, the planned number of rounds, which sets the lengths of the phases.

    Cost of a round on A arms: O(A N) for a phase of N plays, whose posterior is its own; memory O(A N).
    """

    def __init__(self, *, horizon: int, **words: Unpack[TheoremWords]) -> None:
        given, num_arms = _on_arms("BPE", words)
        rule = PhasedEliminationRule.of_horizon(horizon)
        theory = given.theorem(FixedDesignWidth, num_bounds=num_arms * rule.num_stages)
        super().__init__(**given.under(theory, acquisition=rule))


@described
class MVR(Bandit):
    """MVR, maximum variance reduction: N plays where the variance is largest, to recommend the best mean after them.

    For pure exploration: the regret of ``recommend`` falls as √(γ_N / N), that of the plays does not.

    Source: Vakili et al., NeurIPS 2021. Differs: a finite set; after N plays the highest upper bound is played.

    Args:
        bounds: refused, with a hint: give a grid. So are contexts.
        memory: refused: the function stays.
        horizon: N, the planned number of rounds.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u).
    """

    def __init__(self, *, horizon: int, **words: Unpack[TheoremWords]) -> None:
        given, num_arms = _on_arms("MVR", words)
        rule = PhasedEliminationRule((checks.positive_integer("horizon", horizon),))
        theory = given.theorem(FixedDesignWidth, num_bounds=num_arms)
        super().__init__(**given.under(theory, acquisition=rule))


@described
class RPERP(Bandit):
    """R-PERP, restarting phased elimination with random permutation: near-optimal where the function changes.

    The plays of a phase are chosen before the first and made in a random order, so that a change within it looks like
    noise to each of them. Everything is forgotten after a period.

    Source: Iwazaki and Takeno, AISTATS 2025. Differs: their text could not be had. The first phase has 8 plays and each
    other twice as many as the one before; the period of a horizon balances T √(γ/H), what learning costs, with P_T H,
    what drift does; the width is that of a function that stays within a period, without the paper's term for its drift.

    Args:
        bounds: refused, with a hint: the phases go through a finite set. So are contexts.
        memory: refused: the period says which rewards do.
        period: H, rounds between two restarts. None for γ^⅓ (T / P_T)^⅔, which needs the horizon.
        horizon: T, the planned number of rounds. With it the theorem's width holds in all periods at once.

    Cost of a round on A arms: O(A N) for a phase of N plays, and O(A N²) for the first of it; memory O(A N).
    """

    def __init__(
        self,
        *,
        period: int | None = None,
        horizon: int | None = None,
        variation_budget: float | None = None,
        **words: Unpack[TheoremWords],
    ) -> None:
        given, num_arms = _on_arms("RPERP", words, "period")
        given.horizon = checks.optional(checks.positive_integer)("horizon", horizon)
        checks.optional(checks.non_negative)("variation_budget", variation_budget)
        if period is None:
            period = given.rounds_to_remember("period", _period, variation_budget)
        period = checks.positive_integer("period", period)
        order = checks.whole_number("seed", given.words["seed"])
        rule = PhasedEliminationRule.of_horizon(period, doubling_from=_FIRST_PHASE, order=order)
        periods = 1 if given.horizon is None else math.ceil(given.horizon / period)
        theory = given.theorem(FixedDesignWidth, num_bounds=num_arms * rule.num_stages * periods)
        super().__init__(**given.under(theory, acquisition=rule, memory=Restart(period)))


#: Plays of R-PERP's first phase.
_FIRST_PHASE = 8


def _period(horizon: int, variation_budget: float | None = None, *, gain: float) -> int:
    """Return γ^⅓ (T / P_T)^⅔, from 1 to T, where P_T is 1 unless it is known."""
    budget = 1.0 if variation_budget is None else variation_budget
    if math.sqrt(gain) >= horizon**0.5 * budget:
        return horizon
    return min(horizon, max(1, round(gain ** (1.0 / 3.0) * (horizon / budget) ** (2.0 / 3.0))))


def _on_arms(name: str, words: TheoremWords, forgets_by: str | None = None) -> tuple[Arguments, int]:
    """Return what was given and the number of arms; refuse what has none that stay."""
    given = Arguments(TheoremWords, words, forgets_by=forgets_by)
    if given.words["memory"] is not None:
        raise InputError(f"{name}'s phases count rewards of a function that stays: leave out memory, or take RPERP.")
    if not isinstance(given.candidates, Arms):
        raise InputError(f"{name} goes through the same arms in each phase: give candidates (A, d), such as a grid.")
    return given, len(given.candidates.source)

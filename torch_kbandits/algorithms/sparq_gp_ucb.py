"""SparQ-GP-UCB and W-SparQ-GP-UCB, which ask an expert few questions."""

from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.advice import OfRound, Questions, SparQCutoff
from torch_kbandits.confidence import InformationGain, RealizedGain, SparQWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Growth, QuadraticGrowth, UncertaintyInjection
from torch_kbandits.observations.experts import Expert, GuardedExpert


@described
class SparQGPUCB(Bandit):
    """SparQ-GP-UCB: where the function changes, few recent rewards and the answers of an expert to few questions.

    In round t = 1, 2, … it drops the rewards whose noise, grown with their age, is above λ g(t); draws past inputs by a
    k-DPP, far apart yet at random; asks the expert for the current function there; and plays the point of the largest
    upper confidence bound given both.

    The expert is asked once a round, by the first ``ask``, ``acquisition`` or ``recommend``; with ``ask(time=)`` once
    for each time in it. If it fails or answers "not yet", the round goes on without it and a warning says so: see
    ``GuardedExpert``, which is ``expert``. Its answers are no rewards: ``history`` has none of them, the next round
    drops them, and a replayed bandit asks its own expert. With ``expert=None`` nobody is asked: whoever can look calls
    ``questions`` and ``answer`` before ``ask``, also over HTTP.

    Source: Mauduit, Berthier and Simonetto, 2025, Algorithm 1. Differs: questions and ages are of the round in which
    the point is played, so the latest reward has age 1, where the paper's has 0.

    Args:
        expert: a function (X, time) → (Y, variance) or None for "not yet"; see ``experts.Expert``. A variance below
            1e-6 λ counts as that. None where answers are given.
        questions: a number, for ⌈questions · ln t⌉ of them in round t, or a function of t; fewer where past inputs
            are fewer or span less.
        max_questions: how many points the expert may be asked about in all; None for any number.
        cutoff: g, a function of t or a number for a constant; None for ln t.
        growth: how noise grows with age, a ``Growth`` or the rate of λ (rate · age² + 1).
        num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.

    Cost of round t with Q questions and w rewards that count: O(t Q²) and the k-DPP's chain, O(num_swaps · Q²), for the
    questions; O((Q + w)³) for the posterior; O(A (Q + w)²) for A arms, on a box the search.
    """

    def __init__(
        self,
        *,
        expert: Expert | None,
        questions: OfRound = 6.0,
        max_questions: int | None = None,
        cutoff: OfRound | None = None,
        growth: Growth | float = 1.0,
        num_swaps: int | None = None,
        dictionary: DictionaryRule | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        gain: InformationGain | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words, forgets_by="growth")
        cutoff = cutoff if callable(cutoff) else checks.optional(checks.non_negative)("cutoff", cutoff)
        asked = _asked(expert, questions, max_questions, num_swaps, None)
        memory = SparQCutoff((_injection(growth),), cutoff, _level(given))
        theory = _theory(norm_bound, failure_probability, gain)
        super().__init__(**given.under(theory, "norm_bound", memories=memory, advice=asked, dictionary=dictionary))


@described
class WSparQGPUCB(Bandit):
    """W-SparQ-GP-UCB: SparQ-GP-UCB whose answers count for a window of rounds, and which asks when that is over.

    So it asks about ⌈6 ln t⌉ points every w rounds: a number a round that vanishes if w grows with t. Answers and
    rewards in the window count with noise that grows with their age. A window of 1 asks in every round, as
    ``SparQGPUCB`` does.

    Source: Mauduit, Berthier and Simonetto, "No-regret Gaussian process optimization of time-varying functions",
    arXiv 2512.00517, 2025, of which we had the abstract alone: answers that live for a window, fewer and fewer
    questions, injected uncertainty. Differs, as far as we know: how w is chosen, the rule for rewards, the width, which
    are ours, so none of its theorems is claimed. No regret can vanish with few questions unless the drift does.

    Args:
        expert: as in ``SparQGPUCB``.
        window: w in rounds, or units of time, a number or a function of t. Where the function moves by Δ a round, about
            √λ/Δ.
        questions: how many in a round in which it asks, as in ``SparQGPUCB``.
        max_questions: how many points the expert may be asked about in all; None for any number.
        growth: as in ``SparQGPUCB``; a rate of (Δ/√λ)² / 3 fits a drift of Δ a round in one direction.
        num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.

    Cost: as ``SparQGPUCB``, the questions every w rounds.
    """

    def __init__(
        self,
        *,
        expert: Expert | None,
        window: OfRound,
        questions: OfRound = 6.0,
        max_questions: int | None = None,
        growth: Growth | float = 1.0,
        num_swaps: int | None = None,
        dictionary: DictionaryRule | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        gain: InformationGain | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words, forgets_by="window")
        window = window if callable(window) else checks.positive("window", window)
        asked = _asked(expert, questions, max_questions, num_swaps, window)
        memory = SparQCutoff((_injection(growth),), None, _level(given), window)
        theory = _theory(norm_bound, failure_probability, gain)
        super().__init__(**given.under(theory, "norm_bound", memories=memory, advice=asked, dictionary=dictionary))


def _asked(
    expert: Expert | None, number: OfRound, most: int | None, num_swaps: int | None, window: OfRound | None
) -> Questions:
    """Return what an expert is asked, or whoever answers in place of one."""
    number = number if callable(number) else checks.positive("questions", number)
    num_swaps = checks.optional(checks.non_negative_integer)("num_swaps", num_swaps)
    if expert is None and most is not None:
        raise InputError("max_questions limits an expert that is asked: leave it out with expert=None.")
    guarded = None if expert is None else GuardedExpert(expert, most)
    return Questions(guarded, number, num_swaps, None if guarded is None else guarded.max_questions, window)


def _injection(growth: Growth | float) -> UncertaintyInjection:
    """Return the memory of a growth, or of the rate of a quadratic one."""
    return UncertaintyInjection(growth if isinstance(growth, Growth) else QuadraticGrowth(growth))


def _level(given: Arguments) -> float:
    """Return λ."""
    if given.prior.regularization is None:
        raise InputError("SparQ's cut-off is in units of λ, which is not known before: give LearnedPrior one.")
    return given.prior.regularization


def _theory(norm_bound: float | None, failure_probability: float, gain: InformationGain | None) -> SparQWidth | None:
    """Return the theorem's width, None without a bound on the norm."""
    norm_bound = checks.optional(checks.scale)("norm_bound", norm_bound)
    failure_probability = checks.open_unit_interval("failure_probability", failure_probability)
    checks.absent_or("gain", gain, InformationGain, "an information gain")
    gain = RealizedGain() if gain is None else gain
    return None if norm_bound is None else SparQWidth(norm_bound, failure_probability, gain)

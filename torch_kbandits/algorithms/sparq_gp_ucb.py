"""SparQ-GP-UCB and W-SparQ-GP-UCB, which ask an expert few questions."""

from typing import Any, Required, Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.advice import OfRound, Questions, SparQCutoff
from torch_kbandits.confidence import InformationGain, RealizedGain, SparQWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Growth, QuadraticGrowth, UncertaintyInjection
from torch_kbandits.observations.experts import Expert, GuardedExpert


class SparQWords(WidthWords, total=False):
    """The words of an algorithm with a width, and those that both algorithms share."""

    expert: Required[Expert | None]
    questions: OfRound
    max_questions: int | None
    growth: Growth | float
    num_swaps: int | None
    dictionary: DictionaryRule | None
    norm_bound: float | None
    failure_probability: float
    gain: InformationGain | None


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
        cutoff: g, a function of t or a number for a constant; None for ln t.

    Cost of round t with Q questions and w rewards that count: O(t Q²) and the k-DPP's chain, O(num_swaps · Q²), for the
    questions; O((Q + w)³) for the posterior; O(A (Q + w)²) for A arms, on a box the search.
    """

    def __init__(self, *, cutoff: OfRound | None = None, **words: Unpack[SparQWords]) -> None:
        given = Arguments(SparQWords, words, forgets_by="growth")
        cutoff = cutoff if callable(cutoff) else checks.optional(checks.non_negative)("cutoff", cutoff)
        super().__init__(**_pieces(given, cutoff, None))


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
        window: w in rounds, or units of time, a number or a function of t. Where the function moves by Δ a round, about
            √λ/Δ.
        growth: as in ``SparQGPUCB``; a rate of (Δ/√λ)² / 3 fits a drift of Δ a round in one direction.

    Cost: as ``SparQGPUCB``, the questions every w rounds.
    """

    def __init__(self, *, window: OfRound, **words: Unpack[SparQWords]) -> None:
        given = Arguments(SparQWords, words, forgets_by="window")
        window = window if callable(window) else checks.positive("window", window)
        super().__init__(**_pieces(given, None, window))


def _pieces(given: Arguments, cutoff: OfRound | None, window: OfRound | None) -> dict[str, Any]:
    """Return the pieces of both algorithms, which differ in the rewards and answers that count."""
    expert, growth = given.words["expert"], given.words["growth"]
    injection = UncertaintyInjection(growth if isinstance(growth, Growth) else QuadraticGrowth(growth))
    number, most = given.words["questions"], given.words["max_questions"]
    number: OfRound = number if callable(number) else checks.positive("questions", number)
    num_swaps = checks.optional(checks.non_negative_integer)("num_swaps", given.words["num_swaps"])
    if expert is None and most is not None:
        raise InputError("max_questions limits an expert that is asked: leave it out with expert=None.")
    guarded = None if expert is None else GuardedExpert(expert, most)
    asked = Questions(guarded, number, num_swaps, None if guarded is None else guarded.max_questions, window)
    if given.prior.regularization is None:
        raise InputError("SparQ's cut-off is in units of λ, which is not known before: give LearnedPrior one.")
    memory = SparQCutoff((injection,), cutoff, given.prior.regularization, window)
    checks.absent_or("gain", given.gain, InformationGain, "an information gain")
    gain, theory = RealizedGain() if given.gain is None else given.gain, None
    if given.norm_bound is not None:
        theory = SparQWidth(given.norm_bound, given.failure_probability, gain)
    return given.under(theory, "norm_bound", memories=memory, advice=asked)

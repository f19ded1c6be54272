"""What a theorem guarantees of a bandit: what it assumes, which of that holds, and how that is reported."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.dictionaries.online import guarantees_projection
from torch_kbandits.dictionaries.ridge_leverage import guarantees_accuracy
from torch_kbandits.models.quality import DictionaryQuality

if TYPE_CHECKING:
    from torch_kbandits.confidence.base import TheoremWidth

Status = Literal["holds", "fails", "unknown"]

#: The name of the assumption that is of numbers and not of a theorem; letters of a rule that are printed.
_PRECISION, _LONGEST = "λ above rounding", 160


@dataclass(frozen=True)
class Assumption:
    """One thing that a theorem assumes."""

    name: str
    status: Status  #: Whether it holds; "unknown" if only you can know, or if nothing promises it and nobody measured.
    sentence: str  #: What was expected and what is.

    def __str__(self) -> str:
        return f"{self.status:<8} {self.name}: {self.sentence}"


@dataclass(frozen=True)
class Guarantee:
    """What a theorem says of a bandit's confidence band, and which of its assumptions hold. It prints as a table."""

    width: str  #: The width in force, printed.
    theorem: str | None  #: Where the theorem is; None if none stands behind the width.
    assumptions: tuple[Assumption, ...]  #: Of the theorem, and those of the numbers that it is computed with.
    quality: DictionaryQuality | None = None  #: Of the dictionary, if that was measured.
    regret: float | None = (
        None  #: What the theorem bounds the regret of all rounds so far by, in reward units, if it does.
    )
    dictionary_size: float | None = None  #: What it bounds the points of the dictionary by, if it does.
    drift: float | None = None  #: What of ``regret`` a memory pays for changes of the function, if it does.

    @property
    def holds(self) -> bool | None:
        """Whether the theorem holds: False if there is none or an assumption fails, None if some are unknown."""
        if self.theorem is None or self.with_status("fails"):
            return False
        return None if self.with_status("unknown") else True

    def with_status(self, status: Status) -> tuple[Assumption, ...]:
        """Return the assumptions that hold, fail or are unknown."""
        return tuple(each for each in self.assumptions if each.status == status)

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does not hold", None: "holds if the unknown assumptions do"}[self.holds]
        first = f"{self.width}: no theorem." if self.theorem is None else f"{self.width}\n{self.theorem}: {verdict}."
        bounds = {"the regret of all rounds so far": self.regret, "of which for drift": self.drift}
        bounds["points of the dictionary"] = self.dictionary_size
        said = [f"{'bound':<8} {name}: at most {most:.4g}." for name, most in bounds.items() if most is not None]
        rows = [first, *self.assumptions, *([] if self.quality is None else [self.quality]), *said]
        return "\n".join(map(str, rows))

    @property
    def warning(self) -> str | None:
        """What a warning says of the assumptions that fail; None if none does, or if no theorem is claimed."""
        failing = [each for each in self.with_status("fails") if self.theorem or each.name == _PRECISION]
        void = "" if self.theorem is None else f"{self.theorem}, does not hold here. "
        sentences = " ".join(f"{each.name}: {each.sentence}" for each in failing)
        return f"{void}{sentences} See bandit.guarantee()." if failing else None


@dataclass(frozen=True)
class Circumstances:
    """What a bandit knows of itself that theorems ask about."""

    regularization: float  # λ
    num_rewards: int = 0  # how many were told
    learns_residual: bool = False  # whether the dictionary is full, and variances leave out what it does not span
    noise_scale: float | None = None  # R where it was given apart from the width
    dictionary: DictionaryRule | None = None  # None for the exact posterior
    forgets_by: str | None = None  # what makes observations stop counting, or count for less; None: all count for ever
    prior: Literal["given", "fitted", "one of several"] = "given"  # how kernel, λ and mean came about
    ratio: float = 1.0  # by how much variances may shrink before rewards are learned; infinite where nothing bounds it
    num_arms: float | None = None  # actions in a round; infinite on a box, None where it is not known
    is_staged: bool = False  # whether the choice goes through stages that learn from rewards of their own
    quality: DictionaryQuality | None = None  # of the dictionary; None where it was not measured
    theory: "TheoremWidth | None" = None  # the width of the theorem that a number is in place of, if that is known


#: Says of a bandit and a width what a theorem assumes; nothing where there is nothing to say.
Condition = Callable[[Circumstances, Any], tuple[Assumption, ...]]


def said(name: str, status: Status | bool, sentence: str) -> tuple[Assumption]:
    """Return an assumption, which holds or fails where its status is a truth value."""
    return (Assumption(name, status if isinstance(status, str) else "holds" if status else "fails", sentence),)


def precise(is_enough: bool, sentence: str) -> tuple[Assumption]:
    """λ is not lost in rounding: asked of all widths, as it is of numbers and not of a theorem."""
    return said(_PRECISION, is_enough, sentence)


# ---------------------------------------------------------------- of the function and the noise


def _given(name: str, what: str) -> Condition:
    """Return what only the user can know, who gave it as a number of the width or with the prior."""
    return lambda known, width: said(name, "unknown", f"given as an assumption, {what.format(width)}")


bounded_norm = _given("‖f − m‖ <= B", "B = {0.norm_bound:g}; m is the prior mean.")
bounded_noise = _given("R-sub-Gaussian noise", "R = {0.noise_scale:g}.")
drawn_from_the_prior = _given("f drawn from the prior, noise N(0, λ)", "with the prior.")


def small_noise(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """R <= √λ."""
    root, noise_scale, status = known.regularization**0.5, known.noise_scale, "unknown"
    given = "give noise_scale to compare"
    if noise_scale is not None:
        given, status = f"noise_scale is {noise_scale:g}", noise_scale <= root * (1.0 + 1e-6)  # λ = R² in any precision
    return said("R <= √λ", status, f"noise must be bounded by √λ = {root:g}; {given}.")


def few_arms(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """The union bound is over at least as many arms as there are."""
    number, status, given = known.num_arms, "unknown", "each round brings its own actions"
    if number is not None:
        status, given = number <= width.num_arms, f"there are {number:.0f}"
    return said("at most A arms", status, f"A is {width.num_arms}, and {given}.")


def enough_gain(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What stands for γ is at least the information gain."""
    status: Status = width.gain.is_bound
    why = {"holds": "which is", "fails": "which is a number", "unknown": "which is so up to a constant"}[status]
    return said("γ at least the information gain", status, f"γ is {width.gain!r}, {why}.")


# ---------------------------------------------------------------- of the prior, and of when rewards are learned


def fixed_prior(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Kernel, λ and mean are fixed before the first reward."""
    status, why = {
        "given": (True, "they were given"),
        "fitted": (False, "LearnedPrior fits them to these; give a Prior"),
        "one of several": ("unknown", "the band is that of one hypothesis, right if that is"),
    }[known.prior]
    return said("a prior fixed beforehand", status, f"kernel, λ and mean must not depend on the rewards; {why}.")


def large_regularization(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """λ >= 1."""
    level = known.regularization
    advice = "" if level >= 1.0 else "; SelfNormalizedWidth holds at any λ"
    return said("λ >= 1", level >= 1.0, f"the proof needs λ of at least 1, and it is {level:g}{advice}.")


def rewards_at_once(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """A batch, and points pending, make variances shrink before means follow; nothing to say without them."""
    if known.ratio == 1.0:
        return ()
    status, why = False, f"scale the width by √{known.ratio:.4g}, as BBKB does"
    if known.ratio == math.inf:
        status, why = "unknown", "by a factor that this batch rule does not say"
    sentence = f"rewards that are missing make variances smaller and means no better: {why}."
    return said("rewards learned at once", status, sentence)


def points_chosen_apart(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """No point was chosen in the light of the rewards it is conditioned on with."""
    sentence = "no point may be chosen in the light of another's reward, and only a rule with stages sees to that."
    return said("points chosen apart from rewards", known.is_staged or "unknown", sentence)


def nothing_forgotten(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """One bound for all rounds needs observations that only become more."""
    forgets = f"{known.forgets_by} lets some count no more; MemoryWidth is for those that count"
    why = "all count for ever" if known.forgets_by is None else forgets
    sentence = f"the bound is for all rounds of a function that stays; {why}."
    return said("observations only become more", known.forgets_by is None, sentence)


def little_change(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What old rewards say of a function that moved is covered by no width."""
    sentence = "the band does not cover by how much f changed while rewards counted; a short memory keeps that small."
    changes = said("a function that changes little within the memory", "unknown", sentence)
    return () if known.forgets_by is None else changes


def enough_bounds(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Each set of observations that loses some, or whose weights fall, starts a bound of its own."""
    is_one, number = known.forgets_by is None, getattr(width, "num_bounds", 1)
    sentence = f"with {known.forgets_by} each round or block has a bound of its own, and {number} hold at once."
    sentence = "observations only become more, so one bound is for all rounds." if is_one else sentence
    return said("as many bounds as sets of observations", is_one or number > known.num_rewards or "unknown", sentence)


# ---------------------------------------------------------------- of the dictionary


def exact_posterior(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """No dictionary, or one that spans all."""
    rule = known.dictionary
    if rule is None or rule.spans_all:
        return said("the exact posterior", True, "all that was told is conditioned on.")
    sentence = f"the theorem knows no dictionary, and there is {_named(rule)}; NystromWidth holds at any dictionary."
    return said("the exact posterior", False, sentence)


def whole_residual(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Variances are those of DTC; nothing to say while they are."""
    sentence = "the dictionary is full, and what it does not span is taken as learned; learns_residual=False keeps it."
    return said("DTC variances", False, sentence) if known.learns_residual else ()


def accurate_dictionary(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """BKB's: variances within α of the exact ones, and a projection error of at most λ/(1 − ε)."""
    accuracy, rule, quality = width.accuracy, known.dictionary, known.quality
    name, most = f"a dictionary of accuracy ε = {accuracy:g}", 1.0 / (1.0 - accuracy)
    alpha = (1.0 + accuracy) * most
    if rule is not None and quality is not None:
        sentence = (
            f"variances must be within {alpha:.3g} times the exact ones and the projection error at most {most:.3g} λ; "
            f"now, at {len(quality.ratios)} points, {quality.least:.3g} to {quality.largest:.3g} and "
            f"{quality.projection_error:.3g} λ."
        )
        return said(name, quality.is_within(alpha) and quality.projection_error <= most, sentence)
    return _by_rule(name, rule, *guarantees_accuracy(rule, accuracy, width.failure_probability, known.num_rewards))


def small_projection(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """EK-UCB's: a projection error of at most μ."""
    level, rule, quality = known.regularization, known.dictionary, known.quality
    most = level if width.projection is None else width.projection
    name = f"a projection error of at most μ = {most:g}"
    if rule is not None and quality is not None:
        error = quality.projection_error * level
        return said(name, error <= most, f"‖(I − P)F^½‖² is {error:.3g} now.")
    promise = guarantees_projection(rule, most, level, width.failure_probability, known.num_rewards)
    return _by_rule(name, rule, *promise)


def _by_rule(name: str, rule: DictionaryRule | None, holds: bool, expected: str) -> tuple[Assumption]:
    """Return an assumption that a dictionary rule promises to keep, or does not."""
    if rule is None:
        return said(name, True, "the posterior is exact.")
    advice = "" if holds else ": nothing is promised; guarantee(check=True) measures, and NystromWidth needs no promise"
    return said(name, holds or "unknown", f"the theorem needs {expected}, and there is {_named(rule)}{advice}.")


def _named(rule: DictionaryRule) -> str:
    """Return how a rule prints, in short."""
    return name if len(name := repr(rule)) <= _LONGEST else type(rule).__name__


#: What theorems have in common: those of functions of an RKHS, of exact posteriors in all rounds at once, of posteriors
#: of a dictionary, and of functions that change.
SUBGAUSSIAN = (bounded_norm, bounded_noise)
EXACT = (fixed_prior, rewards_at_once, exact_posterior, nothing_forgotten)
SKETCHED = (fixed_prior, rewards_at_once, whole_residual, nothing_forgotten)
CHANGING = (fixed_prior, rewards_at_once, exact_posterior, little_change, enough_bounds)

"""What theorems of widths assume: each function says of a bandit and a width whether one assumption holds."""

import math
from typing import Any

from torch_kbandits.confidence.guarantee import Assumption, Circumstances, Status, said, settled
from torch_kbandits.dictionaries.accuracy import guarantees_accuracy, guarantees_projection, named, spans_all


def bounded_norm(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """‖f‖ <= B."""
    return said("‖f − m‖ <= B", "unknown", f"given as an assumption, B = {width.norm_bound:g}; m is the prior mean.")


def bounded_noise(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """R-sub-Gaussian noise."""
    return said("R-sub-Gaussian noise", "unknown", f"given as an assumption, R = {width.noise_scale:g}.")


def enough_gain(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What stands for γ is at least the information gain."""
    status: Status = width.gain.is_bound
    why = {"holds": "which is", "fails": "which is a number", "unknown": "which is so up to a constant"}[status]
    return said("γ at least the information gain", status, f"γ is {width.gain!r}, {why}.")


def drawn_from_the_prior(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """The Bayesian assumption."""
    return said("f drawn from the prior, noise N(0, λ)", "unknown", "given as an assumption, with the prior.")


def fixed_prior(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Kernel, λ and mean are fixed before the first reward."""
    name, expected = "a prior fixed beforehand", "kernel, λ and mean must not depend on the rewards"
    if known.prior == "fitted":
        return said(name, "fails", f"{expected}, and LearnedPrior fits them to these; give a Prior.")
    if known.prior == "one of several":
        return said(name, "unknown", f"{expected}; the band is that of one hypothesis, right if that is.")
    return said(name, "holds", f"{expected}; they were given.")


def exact_posterior(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """No dictionary, or one that spans all."""
    name, rule = "the exact posterior", known.dictionary
    if rule is None or spans_all(rule):
        return said(name, "holds", "all that was told is conditioned on.")
    sentence = f"the theorem knows no dictionary, and there is {named(rule)}; NystromWidth holds at any dictionary."
    return said(name, "fails", sentence)


def nothing_forgotten(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """One bound for all rounds needs observations that only become more."""
    name, expected = "observations only become more", "the bound is for all rounds of a function that stays"
    if known.forgets_by is None:
        return said(name, "holds", f"{expected}; all count for ever.")
    sentence = f"{expected}, and {known.forgets_by} lets some count no more; MemoryWidth is for those that count."
    return said(name, "fails", sentence)


def whole_residual(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Variances are those of DTC; nothing to say while they are."""
    if not known.learns_residual:
        return ()
    sentence = "the dictionary is full, and what it does not span is taken as learned; learns_residual=False keeps it."
    return said("DTC variances", "fails", sentence)


def little_change(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What old rewards say of a function that moved is covered by no width."""
    if known.forgets_by is None:
        return ()
    sentence = "the band does not cover by how much f changed while rewards counted; a short memory keeps that small."
    return said("a function that changes little within the memory", "unknown", sentence)


def enough_bounds(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Each set of observations that loses some, or whose weights fall, starts a bound of its own."""
    name, number = "as many bounds as sets of observations", getattr(width, "num_bounds", 1)
    if known.forgets_by is None:
        return said(name, "holds", "observations only become more, so one bound is for all rounds.")
    sentence = f"with {known.forgets_by} each round or block has a bound of its own, and {number} hold at once."
    return said(name, "holds" if number > known.num_rewards else "unknown", sentence)


def rewards_at_once(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """A batch, and points pending, make variances shrink before means follow; nothing to say without them."""
    if known.ratio == 1.0:
        return ()
    name, expected = "rewards learned at once", "rewards that are missing make variances smaller and means no better"
    if known.ratio == math.inf:
        return said(name, "unknown", f"{expected}, by a factor that this batch rule does not say.")
    return said(name, "fails", f"{expected}: scale the width by √{known.ratio:.4g}, as BBKB does.")


def large_regularization(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """λ >= 1."""
    level = known.regularization
    advice = "" if level >= 1.0 else "; SelfNormalizedWidth holds at any λ"
    return settled("λ >= 1", level >= 1.0, f"the proof needs λ of at least 1, and it is {level:g}{advice}.")


def small_noise(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """R <= √λ."""
    root, name = known.regularization**0.5, "R <= √λ"
    if known.noise_scale is None:
        return said(name, "unknown", f"noise must be bounded by √λ = {root:g}; give noise_scale to compare.")
    sentence = f"noise must be bounded by √λ = {root:g}, and noise_scale is {known.noise_scale:g}."
    return settled(name, known.noise_scale <= root * (1.0 + 1e-6), sentence)  # λ = R² in whatever precision


def few_arms(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """The union bound is over at least as many arms as there are."""
    name, number = "at most A arms", known.num_arms
    if number is None:
        return said(name, "unknown", f"A is {width.num_arms}, and each round brings its own actions.")
    return settled(name, number <= width.num_arms, f"A is {width.num_arms}, and there are {number:.0f}.")


def points_chosen_apart(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """No point was chosen in the light of the rewards it is conditioned on with."""
    name, expected = "points chosen apart from rewards", "no point may be chosen in the light of another's reward"
    if known.is_staged:
        return said(name, "holds", f"{expected}; each stage learns from points that it did not rank.")
    return said(name, "unknown", f"{expected}, and only a rule with stages sees to that.")


def accurate_dictionary(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """BKB's: variances within α of the exact ones, and a projection error of at most λ/(1 − ε)."""
    accuracy, rule, quality = width.accuracy, known.dictionary, known.quality
    name, alpha, most = (
        f"a dictionary of accuracy ε = {accuracy:g}",
        (1 + accuracy) / (1 - accuracy),
        1 / (1 - accuracy),
    )
    if rule is None:
        return said(name, "holds", "the posterior is exact.")
    if quality is not None:
        sentence = (
            f"variances must be within {alpha:.3g} times the exact ones and the projection error at most {most:.3g} λ; "
            f"now, at {len(quality.ratios)} points, {quality.least:.3g} to {quality.largest:.3g} and "
            f"{quality.projection_error:.3g} λ."
        )
        return settled(name, quality.is_within(alpha) and quality.projection_error <= most, sentence)
    return _by_rule(name, *guarantees_accuracy(rule, accuracy, width.failure_probability, known.num_rewards))


def small_projection(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """EK-UCB's: a projection error of at most μ."""
    level, rule, quality = known.regularization, known.dictionary, known.quality
    most = level if width.projection is None else width.projection
    name = f"a projection error of at most μ = {most:g}"
    if rule is None:
        return said(name, "holds", "the posterior is exact.")
    if quality is not None:
        error = quality.projection_error * level
        return settled(name, error <= most, f"‖(I − P)F^½‖² is {error:.3g} now.")
    return _by_rule(name, *guarantees_projection(rule, most, level, width.failure_probability, known.num_rewards))


def _by_rule(name: str, holds: bool, sentence: str) -> tuple[Assumption]:
    if holds:
        return said(name, "holds", f"{sentence}.")
    advice = "nothing is promised; guarantee(check=True) measures, and NystromWidth needs no promise"
    return said(name, "unknown", f"{sentence}: {advice}.")


#: What theorems have in common: those of functions of an RKHS, of exact posteriors in all rounds at once, of posteriors
#: of a dictionary, and of functions that change.
SUBGAUSSIAN = (bounded_norm, bounded_noise)
EXACT = (fixed_prior, rewards_at_once, exact_posterior, nothing_forgotten)
SKETCHED = (fixed_prior, rewards_at_once, whole_residual, nothing_forgotten)
CHANGING = (fixed_prior, rewards_at_once, exact_posterior, little_change, enough_bounds)

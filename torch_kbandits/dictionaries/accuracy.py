"""What theorems say of the accuracy of dictionaries, by their rules alone."""

from torch_kbandits.dictionaries.base import DictionaryRule
from torch_kbandits.dictionaries.capped import CappedDictionary
from torch_kbandits.dictionaries.online import KORS, SpanningDictionary, theoretical_kors_oversampling
from torch_kbandits.dictionaries.ridge_leverage import RidgeLeverageSampling, theoretical_oversampling

#: Letters of a rule that are printed.
_LONGEST = 80


def spans_all(rule: DictionaryRule | None) -> bool:
    """Say whether the posterior is exact: without a rule, or with one that leaves nothing out."""
    return rule is None or isinstance(rule, SpanningDictionary)


def guarantees_accuracy(
    rule: DictionaryRule, accuracy: float, failure_probability: float, num_rounds: int
) -> tuple[bool, str]:
    """Say whether BKB's theorem guarantees an accuracy ε of so many rounds' dictionaries, and what it needs.

    Source: Calandriello et al., COLT 2019, Theorem 1.
    """
    needed = theoretical_oversampling(failure_probability, max(num_rounds, 1), accuracy)
    holds = isinstance(rule, RidgeLeverageSampling) and rule.resampling == "fresh" and rule.oversampling >= needed
    expected = f"ridge leverage sampling, drawn afresh, with q̄ of at least {needed:.4g} by now"
    return holds, f"the theorem needs {expected}, and there is {named(rule)}"


def guarantees_projection(
    rule: DictionaryRule, error: float, regularization: float, failure_probability: float, num_rounds: int
) -> tuple[bool, str]:
    """Say whether EK-UCB's theorem guarantees a projection error of at most μ, and what it needs.

    Source: Zenati et al., AISTATS 2022, Prop. 4.1.
    """
    needed = theoretical_kors_oversampling(failure_probability, max(num_rounds, 1))
    holds = isinstance(rule, KORS) and rule.oversampling >= needed and (rule.projection or regularization) <= error
    expected = f"KORS with γ of at least {needed:.4g} by now and its own μ of at most {error:g}"
    return holds, f"the theorem needs {expected}, and there is {named(rule)}"


def named(rule: DictionaryRule) -> str:
    """Return how a rule prints, in short."""
    if isinstance(rule, CappedDictionary):
        return f"{named(rule.rule)} cut to {rule.max_size} points"
    return name if len(name := repr(rule)) <= _LONGEST else type(rule).__name__

"""What theorems promise of dictionaries, by their rules alone."""

from typing import NamedTuple

from torch_kbandits.dictionaries.base import DictionaryRule
from torch_kbandits.dictionaries.capped import CappedDictionary
from torch_kbandits.dictionaries.kors import KORS, SpanningDictionary, theoretical_kors_oversampling
from torch_kbandits.dictionaries.ridge_leverage import RidgeLeverageSampling, theoretical_oversampling

#: Letters of a rule that are printed.
_LONGEST = 80


class Promise(NamedTuple):
    """Whether a theorem covers the dictionaries of a rule.

    Attributes:
        is_made: False where it promises nothing, which need not mean that they are bad.
        sentence: what the theorem needs, and what the rule is.
    """

    is_made: bool
    sentence: str


def spans_all(rule: DictionaryRule | None) -> bool:
    """Say whether the posterior is exact: without a rule, or with one that leaves nothing out."""
    return rule is None or isinstance(rule, SpanningDictionary)


def promised_accuracy(rule: DictionaryRule, accuracy: float, failure_probability: float, num_rounds: int) -> Promise:
    """Say whether BKB's theorem promises an accuracy ε of so many rounds' dictionaries.

    Source: Calandriello et al., COLT 2019, Theorem 1.
    """
    needed = theoretical_oversampling(failure_probability, max(num_rounds, 1), accuracy)
    expected = f"ridge leverage sampling, drawn afresh, with q̄ of at least {needed:.4g} by now"
    is_made = isinstance(rule, RidgeLeverageSampling) and rule.resampling == "fresh" and rule.oversampling >= needed
    return Promise(is_made, f"the theorem needs {expected}, and there is {named(rule)}")


def promised_projection(
    rule: DictionaryRule, error: float, regularization: float, failure_probability: float, num_rounds: int
) -> Promise:
    """Say whether EK-UCB's theorem promises that the projection error of so many rounds' dictionaries is at most μ.

    Source: Zenati et al., AISTATS 2022, Prop. 4.1.
    """
    needed = theoretical_kors_oversampling(failure_probability, max(num_rounds, 1))
    expected = f"KORS with γ of at least {needed:.4g} by now and its own μ of at most {error:g}"
    is_made = isinstance(rule, KORS) and rule.oversampling >= needed and (rule.projection or regularization) <= error
    return Promise(is_made, f"the theorem needs {expected}, and there is {named(rule)}")


def named(rule: DictionaryRule) -> str:
    """Return how a rule prints, in short."""
    if isinstance(rule, CappedDictionary):
        return f"{named(rule.rule)} cut to {rule.max_size} points"
    return name if len(name := repr(rule)) <= _LONGEST else type(rule).__name__

"""Which configurations of a space may be played."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Sums are compared up to this share of their terms, since decimal fractions are rounded.
_ROUNDING = 1e-12

#: Says of a configuration whether it may be played.
Constraint = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class LinearConstraint:
    """Σ weight · value <= bound, up to rounding. A parameter that is not there counts as 0.

    Args:
        weights: of numbers, by name, at least one; those of other parameters are 0.
        bound: what the sum may be at most; for a least one negate both.
    """

    weights: Mapping[str, float]
    bound: float

    def __post_init__(self) -> None:
        checks.instance("weights", self.weights, Mapping, "a mapping from names of parameters to numbers")
        if not self.weights:
            raise InputError("weights must have at least one entry, got none.")
        weights = {name: checks.finite_number(f"the weight of {name!r}", w) for name, w in self.weights.items()}
        object.__setattr__(self, "weights", weights)
        checks.keep(self, bound=checks.finite_number)

    def __call__(self, configuration: Mapping[str, Any]) -> bool:
        """Say whether a configuration may be played."""
        terms = [weight * configuration[name] for name, weight in self.weights.items() if name in configuration]
        size = math.fsum(map(abs, terms)) + abs(self.bound)
        return math.fsum(terms) <= self.bound + _ROUNDING * size


def checked(constraints: Any, parameters: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """Return constraints on parameters of these names as a tuple, or refuse what is none."""
    checks.instance("constraints", constraints, (list, tuple), "a list")
    for constraint in constraints:
        if not callable(constraint):
            hint = "LinearConstraint(weights, bound) or functions of a configuration that return True or False"
            raise InputError(f"constraints must be {hint}, got {checks.describe(constraint)}.")
        for name in constraint.weights if isinstance(constraint, LinearConstraint) else ():
            if not isinstance(getattr(parameters.get(name), "low", None), Real):
                raise InputError(f"a LinearConstraint has a weight of {name!r}, which is no Float or Integer.")
    return tuple(constraints)


def says(constraint: Constraint, configuration: Mapping[str, Any]) -> bool:
    """Return what a constraint says of a configuration, which must be True or False."""
    answer = constraint(configuration)
    if not isinstance(answer, (bool, np.bool_)):
        raise InputError(f"a constraint must return True or False, got {answer!r} of {dict(configuration)!r}.")
    return bool(answer)

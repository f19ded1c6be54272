"""What scikit-learn's searches take as distributions of parameters, as parameters of a search space."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

_WHAT_WORKS = (
    "Use a list of choices, uniform, loguniform or randint of scipy.stats, or Float, Integer or Categorical of "
    "torch_kbandits."
)


@dataclass(frozen=True)
class SearchSpace:
    """A space of parameters some of which are lists of numbers, searched by their places in order of size.

    Attributes:
        space: the parameters; of a list of numbers the place, from 0.
        numbers: the lists, sorted, by name.
    """

    space: ParameterSpace
    numbers: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, distributions: Any) -> "SearchSpace":
        """Return the space that a search is given as ``param_distributions``.

        Raises:
            InputError: if one of them is not known; the message names it and says what works.
        """
        if isinstance(distributions, Sequence) and not isinstance(distributions, (str, bytes)):
            raise InputError(
                f"param_distributions must be one dict, got a list of {len(distributions)}: parameters that exist only "
                "beside some values of others are not supported. Search each dict by itself."
            )
        if not isinstance(distributions, Mapping):
            raise InputError(
                f"param_distributions must be a dict from names to distributions, got {checks.describe(distributions)}."
            )
        parameters, numbers = {}, {}
        for name, given in distributions.items():
            parameters[name] = parameter = _parameter(name, given)
            if not isinstance(given, Parameter) and isinstance(parameter, Categorical):
                ordered = _in_order(parameter.choices)
                if ordered is not None:
                    numbers[name], parameters[name] = ordered, Integer(0, len(ordered) - 1)
        return cls(ParameterSpace(parameters), numbers)

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d) of the unit cube, values as they were given."""
        return [
            {name: self.numbers[name][value] if name in self.numbers else value for name, value in row.items()}
            for row in self.space.decode(points)
        ]


def _parameter(name: str, given: Any) -> Parameter:
    """Return what a distribution says about the values that a parameter may take."""
    if isinstance(given, Parameter):
        return given
    if hasattr(given, "rvs"):
        return _of_scipy(name, given)
    if isinstance(given, (str, bytes, Mapping)) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise InputError(f"parameter {name!r} is {checks.describe(given)}, which is no distribution. {_WHAT_WORKS}")
    if getattr(given, "ndim", 1) != 1 or len(given) == 0:
        raise InputError(
            f"parameter {name!r} must have a list of at least one value, one-dimensional; got {checks.describe(given)}."
        )
    return Categorical(list(given))


def _of_scipy(name: str, given: Any) -> Parameter:
    """Return the range of a uniform, log-uniform or discrete uniform distribution; only these are what a range is."""
    family = getattr(getattr(given, "dist", None), "name", type(given).__name__)
    if family in ("uniform", "loguniform", "reciprocal", "randint"):
        with np.errstate(invalid="ignore"):
            low, high = given.support()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"parameter {name!r} must have a range with finite ends, got {low} to {high}.")
        if family == "randint":
            return Integer(int(low), int(high))
        if family == "uniform":
            return Float(float(low), float(high))
        if low > 0.0 and math.isclose(given.median(), math.sqrt(low) * math.sqrt(high), rel_tol=1e-6):
            return Float(float(low), float(high), log=True)
        family = "shifted loguniform"
    raise InputError(
        f"parameter {name!r} has the distribution {family!r}, whose shape this search would ignore. {_WHAT_WORKS}"
    )


def _in_order(choices: Sequence[Any]) -> list[Any] | None:
    """Return a list of at least three different finite numbers by size; None if it is anything else."""
    if not all(isinstance(choice, (Integral, Real)) and not isinstance(choice, bool) for choice in choices):
        return None
    if not all(math.isfinite(choice) for choice in choices):
        return None
    ordered = sorted(dict.fromkeys(choices))
    return ordered if len(ordered) > 2 else None

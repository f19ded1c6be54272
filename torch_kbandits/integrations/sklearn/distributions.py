"""What scikit-learn's searches take as distributions of parameters, as parameters of a search space."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Rational, Real
from typing import Any, cast

import numpy as np
from scipy.stats import rv_continuous, rv_discrete
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

#: Where a distribution has no end its quantiles at this level, and at 1 less it, are the ends.
_TAIL = 0.001

#: Of a discrete distribution the values are searched that are quantiles at these levels; by them shapes are compared.
_LEVELS = (np.arange(64) + 0.5) / 64

_WHAT_WORKS = (
    "Use a list of choices, a frozen distribution of scipy.stats, or Float, Integer or Categorical of torch_kbandits."
)


@dataclass(frozen=True)
class Shape(Float):
    """A continuous distribution, searched by the probability below its values, of which some quantiles tell it."""

    quantiles: tuple[float, ...] = ()
    distribution: Any = field(default=None, repr=False, compare=False)

    def decode(self, numbers: Tensor) -> list[Any]:
        """Return the values of which the probabilities below are nearest to numbers (n,)."""
        return [float(self.distribution.ppf(level)) for level in super().decode(numbers)]


class SearchSpace:
    """A space of parameters as a search is given them; of several dicts a choice says which it is.

    What several dicts say alike is one parameter of ``space``. Lists of numbers are choices in order of size.
    """

    def __init__(self, distributions: Any) -> None:
        several: Any = [distributions] if isinstance(distributions, Mapping) else distributions
        if not (isinstance(several, (list, tuple)) and several and all(isinstance(each, Mapping) for each in several)):
            raise InputError(
                "param_distributions must be a dict from names to distributions, or a list of such, got "
                f"{checks.describe(distributions)}."
            )
        # By words: 1, 1.0 and True are equal, but not the same.
        found: dict[str, dict[str, tuple[Parameter, list[int]]]] = {}
        for number, one in enumerate[Any](several):
            for name, given in one.items():
                parameter = _read(name, given)
                found.setdefault(name, {}).setdefault(repr(parameter), (parameter, []))[1].append(number)
        branch = "dict"
        while branch in found:
            branch += " "
        parameters: dict[str, Any] = {branch: Categorical(range(len(several)))} if len(several) > 1 else {}
        self._names = dict[str, str]()
        for name, known in found.items():
            for parameter, numbers in known.values():
                own = name if len(known) == 1 else f"{name} of {branch} {numbers[0]}"
                when = () if len(numbers) == len(several) else ((branch, tuple(numbers)),)
                parameters[own] = replace(cast(Any, parameter), when=(*parameter.when, *when))
                self._names[own] = name
        self.space = ParameterSpace(parameters)

    def settings(self) -> dict[str, list[Any]]:
        """Return by name what tells the parameters from others."""
        return {
            name: [type(each), {word: value for word, value in vars(each).items() if word != "distribution"}]
            for name, each in self.space.parameters.items()
        }

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d) of the unit cube, values as they were given."""
        rows = self.space.decode(points)
        return [{name: row[own] for own, name in self._names.items() if own in row} for row in rows]


def _read(name: str, given: Any) -> Parameter:
    """Return a parameter as it is given.

    A list of numbers has an order, unless a whole number and a fraction in it are equal, as 1 and 1.0, which to
    scikit-learn may mean one feature and all features.
    """
    if isinstance(given, Parameter):
        return given
    if hasattr(given, "rvs"):
        try:
            with np.errstate(invalid="ignore"):
                return _of_scipy(given)
        except InputError as error:
            raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    is_list = (
        hasattr(given, "__len__") and hasattr(given, "__getitem__") and not isinstance(given, (str, bytes, Mapping))
    )
    if not is_list or getattr(given, "ndim", 1) != 1 or len(given) == 0:
        hint = "a distribution, or a one-dimensional list of at least one value"
        raise InputError(f"parameter {name!r} must be {hint}, got {checks.describe(given)}. {_WHAT_WORKS}")
    choices = list(given)
    is_ordered = all(map(_has_order, choices)) and 2 < len({*choices}) == len({(_is_whole(x), x) for x in choices})
    return Categorical(sorted({*choices}) if is_ordered else choices, is_ordered=is_ordered)


def _has_order(choice: Any) -> bool:
    return isinstance(choice, Real) and not isinstance(choice, bool) and (_is_whole(choice) or math.isfinite(choice))


def _is_whole(choice: Any) -> bool:
    return isinstance(choice, Rational)


def _of_scipy(given: Any) -> Parameter:
    """Return the range of a uniform, log-uniform or discrete uniform distribution, or any other by its quantiles."""
    if isinstance(given, (rv_continuous, rv_discrete)):
        try:
            given = given()
        except TypeError:
            raise InputError(f"the distribution {given.name!r} is not frozen: call it with its numbers.") from None
    if not (hasattr(given, "ppf") and hasattr(given, "dist")):
        raise InputError(f"it has no quantiles. {_WHAT_WORKS}")
    family = getattr(given.dist, "name", "")
    if family in ("uniform", "loguniform", "reciprocal", "randint"):
        low, high = map(float, given.support())
        if family == "randint" and math.isfinite(high - low):
            return Integer(int(low), int(high))
        is_log = low > 0.0 and math.isclose(given.median(), math.sqrt(low) * math.sqrt(high), rel_tol=1e-6)
        if family == "uniform" or is_log:
            return Float(low, high, log=family != "uniform")
    quantiles = np.asarray(given.ppf(_LEVELS), dtype=float)
    if not np.isfinite(quantiles).all():
        raise InputError(f"its quantiles must be finite, got {quantiles.tolist()} at {_LEVELS.tolist()}.")
    if hasattr(given, "pmf"):
        kind = float if np.asarray(given.rvs(size=1, random_state=0)).dtype.kind == "f" else int  # as scipy draws it
        return Categorical(sorted({kind(value) for value in quantiles}), is_ordered=True)
    low, high = (end if math.isfinite(given.ppf(end)) else tail for end, tail in ((0.0, _TAIL), (1.0, 1.0 - _TAIL)))
    return Shape(low, high, quantiles=tuple(quantiles.tolist()), distribution=given)

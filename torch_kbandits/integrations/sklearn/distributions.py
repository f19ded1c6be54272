"""What scikit-learn's searches take as distributions of parameters, as parameters of a search space."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
class SearchSpace:
    """A space of parameters as a search is given them: in one dict or, where some exist only beside others, in several.

    Lists of numbers are choices in order of size; distributions of other shapes than a range are searched by the
    probability below; of several dicts a choice says which it is.

    Attributes:
        space: the parameters; one of which dicts say different things is several here.
        names: what each is called in the dicts.
        shapes: the distributions of those that are searched by probabilities.
    """

    space: ParameterSpace
    names: Mapping[str, str]
    shapes: Mapping[str, Any]

    @classmethod
    def of(cls, distributions: Any) -> "SearchSpace":
        """Return the space that a search is given as ``param_distributions``."""
        several: Any = [distributions] if isinstance(distributions, Mapping) else distributions
        is_list = isinstance(several, Sequence) and not isinstance(several, (str, bytes)) and len(several) > 0
        if not (is_list and all(isinstance(each, Mapping) for each in several)):
            raise InputError(
                "param_distributions must be a dict from names to distributions, or a list of such, got "
                f"{checks.describe(distributions)}."
            )
        found: dict[str, list[tuple[Parameter, Any, list[int]]]] = {}
        for number, one in enumerate[Any](several):
            for name, given in one.items():
                parameter, shape = _read(name, given)
                known = found.setdefault(name, [])
                for other, other_shape, numbers in known:
                    # By words: 1, 1.0 and True are equal, but not the same.
                    if repr(_settings(parameter, shape)) == repr(_settings(other, other_shape)):
                        numbers.append(number)
                        break
                else:
                    known.append((parameter, shape, [number]))
        branch = "dict"
        while branch in found:
            branch += " "
        parameters: dict[str, Any] = {branch: Categorical(range(len(several)))} if len(several) > 1 else {}
        names, shapes = {}, {}
        for name, known in found.items():
            for parameter, shape, numbers in known:
                own = name if len(known) == 1 else f"{name} of {branch} {numbers[0]}"
                when = () if len(numbers) == len(several) else ((branch, tuple(numbers)),)
                parameters[own] = replace(cast(Any, parameter), when=(*parameter.when, *when))
                names[own], shapes[own] = name, shape
        return cls(ParameterSpace(parameters), names, shapes)

    def settings(self) -> dict[str, list[Any]]:
        """Return by name what tells the parameters from others."""
        return {name: _settings(each, self.shapes.get(name)) for name, each in self.space.parameters.items()}

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d) of the unit cube, values as they were given."""
        return [
            {
                name: row[own] if self.shapes[own] is None else float(self.shapes[own].ppf(row[own]))
                for own, name in self.names.items()
                if own in row
            }
            for row in self.space.decode(points)
        ]


def _settings(parameter: Parameter, shape: Any) -> list[Any]:
    """Return what tells a parameter from others."""
    return [type(parameter), vars(parameter), None if shape is None else shape.ppf(_LEVELS).tolist()]


def _read(name: str, given: Any) -> tuple[Parameter, Any]:
    """Return a parameter, and the distribution of which its values are the probability below; None where they are not.

    A list of numbers has an order, unless a whole number and a fraction in it are equal, as 1 and 1.0, which to
    scikit-learn may mean one feature and all features.
    """
    if isinstance(given, Parameter):
        return given, None
    if hasattr(given, "rvs"):
        try:
            return _of_scipy(given)
        except InputError as error:
            raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    if isinstance(given, (str, bytes, Mapping)) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise InputError(f"parameter {name!r} is {checks.describe(given)}, which is no distribution. {_WHAT_WORKS}")
    if getattr(given, "ndim", 1) != 1 or len(given) == 0:
        raise InputError(
            f"parameter {name!r} must have a list of at least one value, one-dimensional; got {checks.describe(given)}."
        )
    choices = list(given)
    is_ordered = all(map(_has_order, choices)) and 2 < len({*choices}) == len({(_is_whole(x), x) for x in choices})
    return Categorical(sorted({*choices}) if is_ordered else choices, is_ordered=is_ordered), None


def _has_order(choice: Any) -> bool:
    return isinstance(choice, Real) and not isinstance(choice, bool) and (_is_whole(choice) or math.isfinite(choice))


def _is_whole(choice: Any) -> bool:
    return isinstance(choice, Rational)


def _of_scipy(given: Any) -> tuple[Parameter, Any]:
    """Return the range of a uniform, log-uniform or discrete uniform distribution, or any other by its quantiles."""
    if isinstance(given, (rv_continuous, rv_discrete)):
        try:
            given = given()
        except TypeError:
            raise InputError(f"the distribution {given.name!r} is not frozen: call it with its numbers.") from None
    family = getattr(getattr(given, "dist", None), "name", type(given).__name__)
    if not (hasattr(given, "ppf") and hasattr(given, "dist")):
        raise InputError(f"the distribution {family!r} has no quantiles. {_WHAT_WORKS}")
    if family in ("uniform", "loguniform", "reciprocal", "randint"):
        with np.errstate(invalid="ignore"):
            low, high = given.support()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"a range must have finite ends, got {low} to {high}.")
        if family == "randint":
            return Integer(int(low), int(high)), None
        is_log = low > 0.0 and math.isclose(given.median(), math.sqrt(low) * math.sqrt(high), rel_tol=1e-6)
        if family == "uniform" or is_log:
            return Float(float(low), float(high), log=family != "uniform"), None
    if hasattr(given, "pmf"):
        kind = float if np.asarray(given.rvs(size=1, random_state=0)).dtype.kind == "f" else int  # as scipy draws it
        return Categorical(sorted(set(map(kind, _quantiles(given, _LEVELS)))), is_ordered=True), None
    ends = [end if math.isfinite(given.ppf(end)) else tail for end, tail in ((0.0, _TAIL), (1.0, 1.0 - _TAIL))]
    _quantiles(given, np.array(ends))
    return Float(ends[0], ends[1]), given


def _quantiles(given: Any, levels: np.ndarray) -> list[float]:
    """Return the quantiles of a distribution at some levels."""
    with np.errstate(invalid="ignore"):
        values = np.asarray(given.ppf(levels), dtype=float)
    if values.shape != levels.shape or not np.isfinite(values).all():
        raise InputError(f"its quantiles must be finite, got {values.tolist()} at {levels.tolist()}.")
    return values.tolist()

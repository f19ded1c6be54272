"""What scikit-learn's searches take as distributions of parameters, as parameters of a search space."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Rational, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rv_continuous, rv_discrete
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

#: Where a distribution has no end its quantiles at this level, and at 1 less it, are the ends.
_TAIL = 0.001

#: Of a discrete distribution the values are searched that are quantiles at these levels; by them shapes are compared.
LEVELS = (np.arange(64) + 0.5) / 64

_WHAT_WORKS = (
    "Use a list of choices, a frozen distribution of scipy.stats, or Float, Integer or Categorical of torch_kbandits."
)


@dataclass(frozen=True)
class SearchSpace:
    """A space of parameters as a search is given them: in one dict or, where some exist only beside others, in several.

    Attributes:
        space: the parameters. Lists of numbers are searched by their places in order of size, distributions of other
            shapes than a range by the probability below; of several dicts a choice says which it is. A list with a
            whole number and an equal fraction, such as 1 and 1.0, is one of choices: to scikit-learn they may mean one
            feature and all features.
        names: what the parameters are called; one that differs from dict to dict is several in the space.
        numbers: the lists, sorted, by name in the space.
        shapes: the distributions, by name in the space.
    """

    space: ParameterSpace
    names: Mapping[str, str]
    numbers: Mapping[str, Sequence[Any]]
    shapes: Mapping[str, Any]

    @classmethod
    def of(cls, distributions: Any) -> "SearchSpace":
        """Return the space that a search is given as ``param_distributions``.

        Raises:
            InputError: if one of them is not known; the message names it and says what works.
        """
        several = [distributions] if isinstance(distributions, Mapping) else distributions
        if (
            not isinstance(several, Sequence)
            or isinstance(several, (str, bytes))
            or not several
            or not all(isinstance(each, Mapping) for each in several)
        ):
            raise InputError(
                "param_distributions must be a dict from names to distributions, or a list of such, got "
                f"{checks.describe(distributions)}."
            )
        parents = {
            other
            for each in several
            for given in each.values()
            for other, _ in (given.when if isinstance(given, Parameter) else ())
        }
        found: dict[str, list[tuple[_Given, list[int]]]] = {}
        for number, each in enumerate(several):
            for name, given in each.items():
                read, known = _read(name, given, ordered=name not in parents), found.setdefault(name, [])
                for other, numbers in known:
                    if _same(other, read):
                        numbers.append(number)
                        break
                else:
                    known.append((read, [number]))
        branch = "dict"
        while branch in found:
            branch += " "
        parameters: dict[str, Parameter] = {}
        if len(several) > 1:
            parameters[branch] = Categorical(range(len(several)))
        names, lists, shapes = {}, {}, {}
        for name, known in found.items():
            for read, numbers in known:
                own = name if len(known) == 1 else f"{name} of {branch} {numbers[0]}"
                when = () if len(numbers) == len(several) else ((branch, tuple(numbers)),)
                names[own], parameters[own] = name, replace(read.parameter, when=(*read.parameter.when, *when))
                if read.numbers is not None:
                    lists[own] = read.numbers
                if read.shape is not None:
                    shapes[own] = read.shape
        return cls(ParameterSpace(parameters), names, lists, shapes)

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d) of the unit cube, values as they were given."""
        return [
            {self.names[own]: self._given(own, value) for own, value in row.items() if own in self.names}
            for row in self.space.decode(points)
        ]

    def _given(self, own: str, value: Any) -> Any:
        if own in self.numbers:
            return self.numbers[own][value]
        return float(self.shapes[own].ppf(value)) if own in self.shapes else value


class _Given(NamedTuple):
    """A parameter as it is searched, and what its values stand for.

    Attributes:
        parameter: of the space.
        numbers: a sorted list of which it is the place.
        shape: a distribution of which it is the probability below.
    """

    parameter: Any
    numbers: Sequence[Any] | None = None
    shape: Any = None


def _read(name: str, given: Any, *, ordered: bool) -> _Given:
    """Return what is given of a parameter, lists of numbers in their order unless others depend on it."""
    if isinstance(given, Parameter):
        return _Given(given)
    if hasattr(given, "rvs"):
        try:
            return _of_scipy(given)
        except InputError as error:
            raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    choices = _choices(name, given)
    numbers = _in_order(choices) if ordered else None
    return _Given(Categorical(choices)) if numbers is None else _Given(Integer(0, len(numbers) - 1), numbers)


def _same(one: _Given, other: _Given) -> bool:
    """Say whether two dicts say the same of a parameter; 1, 1.0 and True are equal, but not the same."""
    try:
        same = bool(one.parameter == other.parameter and one.numbers == other.numbers)
    except ValueError:  # of arrays among choices
        return False
    shapes = [shape.ppf(LEVELS) for shape in (one.shape, other.shape) if shape is not None]
    same &= repr((one.parameter, one.numbers)) == repr((other.parameter, other.numbers))
    return same and (not shapes or (len(shapes) == 2 and np.array_equal(*shapes)))


def _choices(name: str, given: Any) -> list[Any]:
    """Return a list of values that a parameter may take."""
    if isinstance(given, (str, bytes, Mapping)) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise InputError(f"parameter {name!r} is {checks.describe(given)}, which is no distribution. {_WHAT_WORKS}")
    if getattr(given, "ndim", 1) != 1 or len(given) == 0:
        raise InputError(
            f"parameter {name!r} must have a list of at least one value, one-dimensional; got {checks.describe(given)}."
        )
    return list(given)


def _of_scipy(given: Any) -> _Given:
    """Return the range of a uniform, log-uniform or discrete uniform distribution, or any other by its quantiles."""
    if isinstance(given, (rv_continuous, rv_discrete)):
        try:
            given = given()
        except TypeError:
            raise InputError(f"the distribution {given.name!r} is not frozen: call it with its numbers.") from None
    family = getattr(getattr(given, "dist", None), "name", type(given).__name__)
    if family in ("uniform", "loguniform", "reciprocal", "randint"):
        with np.errstate(invalid="ignore"):
            low, high = given.support()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"a range must have finite ends, got {low} to {high}.")
        if family == "randint":
            return _Given(Integer(int(low), int(high)))
        if family == "uniform":
            return _Given(Float(float(low), float(high)))
        if low > 0.0 and math.isclose(given.median(), math.sqrt(low) * math.sqrt(high), rel_tol=1e-6):
            return _Given(Float(float(low), float(high), log=True))
    if not (hasattr(given, "ppf") and hasattr(given, "dist")):
        raise InputError(f"the distribution {family!r} has no quantiles. {_WHAT_WORKS}")
    if hasattr(given, "pmf"):
        kind = float if np.asarray(given.rvs(size=1, random_state=0)).dtype.kind == "f" else int  # as scipy draws it
        values = sorted(set(map(kind, _quantiles(given, LEVELS))))
        return _Given(Integer(0, len(values) - 1), values)
    ends = [end if math.isfinite(given.ppf(end)) else tail for end, tail in ((0.0, _TAIL), (1.0, 1.0 - _TAIL))]
    _quantiles(given, np.array(ends))
    return _Given(Float(ends[0], ends[1]), shape=given)


def _quantiles(given: Any, levels: np.ndarray) -> list[float]:
    """Return the quantiles of a distribution at some levels."""
    with np.errstate(invalid="ignore"):
        values = np.asarray(given.ppf(levels), dtype=float)
    if values.shape != levels.shape or not np.isfinite(values).all():
        raise InputError(f"its quantiles must be finite, got {values.tolist()} at {levels.tolist()}.")
    return values.tolist()


def _in_order(choices: Sequence[Any]) -> list[Any] | None:
    """Return a list of at least three different finite numbers by size; None if it is anything else.

    It is something else where a whole number and a fraction are equal, which have no order.
    """
    if not all(isinstance(choice, Real) and not isinstance(choice, bool) for choice in choices):
        return None
    if not all(isinstance(choice, Rational) or math.isfinite(choice) for choice in choices):
        return None
    ordered = sorted(dict.fromkeys(choices))
    kinds = {(isinstance(choice, Rational), choice) for choice in choices}
    return ordered if 2 < len(ordered) == len(kinds) else None

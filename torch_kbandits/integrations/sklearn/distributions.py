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


class Given(NamedTuple):
    """A parameter as it is searched, and what its values stand for.

    Attributes:
        parameter: of the space.
        numbers: a sorted list of which its values are the places; None where they stand for themselves.
        shape: a distribution of which its values are the probability below.
    """

    parameter: Any
    numbers: Sequence[Any] | None = None
    shape: Any = None

    def meant(self, value: Any) -> Any:
        """Return what a value of the parameter stands for."""
        if self.numbers is not None:
            return self.numbers[value]
        return value if self.shape is None else float(self.shape.ppf(value))

    def is_said_by(self, other: "Given") -> bool:
        """Whether another dict says the same of the parameter; 1, 1.0 and True are equal, but not the same."""
        try:
            same = bool(self[:2] == other[:2])
        except ValueError:  # of arrays among choices
            return False
        shapes = [each.shape.ppf(LEVELS) for each in (self, other) if each.shape is not None]
        same &= repr(self[:2]) == repr(other[:2])
        return same and (not shapes or (len(shapes) == 2 and np.array_equal(*shapes)))


@dataclass(frozen=True)
class SearchSpace:
    """A space of parameters as a search is given them: in one dict or, where some exist only beside others, in several.

    Lists of numbers are searched by their places in order of size, distributions of other shapes than a range by the
    probability below; of several dicts a choice says which it is. A list with a whole number and an equal fraction,
    such as 1 and 1.0, is one of choices: to scikit-learn they may mean one feature and all features.

    Attributes:
        space: the parameters; one of which dicts say different things is several here.
        names: what each is called in the dicts.
        given: what its values stand for.
    """

    space: ParameterSpace
    names: Mapping[str, str]
    given: Mapping[str, Given]

    @classmethod
    def of(cls, distributions: Any) -> "SearchSpace":
        """Return the space that a search is given as ``param_distributions``.

        Raises:
            InputError: if one of them is not known; the message names it and says what works.
        """
        several: Any = [distributions] if isinstance(distributions, Mapping) else distributions
        is_list = isinstance(several, Sequence) and not isinstance(several, (str, bytes)) and len(several) > 0
        if not (is_list and all(isinstance(each, Mapping) for each in several)):
            raise InputError(
                "param_distributions must be a dict from names to distributions, or a list of such, got "
                f"{checks.describe(distributions)}."
            )
        given = [(number, *item) for number, each in enumerate[Any](several) for item in each.items()]
        parents = {other for _, _, each in given for other, _ in (each.when if isinstance(each, Parameter) else ())}
        found: dict[str, list[tuple[Given, list[int]]]] = {}
        for number, name, each in given:
            read, known = _read(name, each, ordered=name not in parents), found.setdefault(name, [])
            alike = next((numbers for other, numbers in known if other.is_said_by(read)), None)
            if alike is None:
                known.append((read, [number]))
            else:
                alike.append(number)
        branch = "dict"
        while branch in found:
            branch += " "
        parameters: dict[str, Parameter] = {branch: Categorical(range(len(several)))} if len(several) > 1 else {}
        names, meant = {}, {}
        for name, known in found.items():
            for read, numbers in known:
                own = name if len(known) == 1 else f"{name} of {branch} {numbers[0]}"
                when = () if len(numbers) == len(several) else ((branch, tuple(numbers)),)
                parameters[own] = replace(read.parameter, when=(*read.parameter.when, *when))
                names[own], meant[own] = name, read
        return cls(ParameterSpace(parameters), names, meant)

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d) of the unit cube, values as they were given."""
        return [
            {self.names[own]: self.given[own].meant(value) for own, value in row.items() if own in self.names}
            for row in self.space.decode(points)
        ]


def _read(name: str, given: Any, *, ordered: bool) -> Given:
    """Return what is given of a parameter, lists of numbers in their order unless others depend on it."""
    if isinstance(given, Parameter):
        return Given(given)
    if hasattr(given, "rvs"):
        try:
            return _of_scipy(given)
        except InputError as error:
            raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    choices = _choices(name, given)
    numbers = _in_order(choices) if ordered else None
    return Given(Categorical(choices)) if numbers is None else Given(Integer(0, len(numbers) - 1), numbers)


def _choices(name: str, given: Any) -> list[Any]:
    """Return a list of values that a parameter may take."""
    if isinstance(given, (str, bytes, Mapping)) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise InputError(f"parameter {name!r} is {checks.describe(given)}, which is no distribution. {_WHAT_WORKS}")
    if getattr(given, "ndim", 1) != 1 or len(given) == 0:
        raise InputError(
            f"parameter {name!r} must have a list of at least one value, one-dimensional; got {checks.describe(given)}."
        )
    return list(given)


def _of_scipy(given: Any) -> Given:
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
            return Given(Integer(int(low), int(high)))
        if family == "uniform":
            return Given(Float(float(low), float(high)))
        if low > 0.0 and math.isclose(given.median(), math.sqrt(low) * math.sqrt(high), rel_tol=1e-6):
            return Given(Float(float(low), float(high), log=True))
    if not (hasattr(given, "ppf") and hasattr(given, "dist")):
        raise InputError(f"the distribution {family!r} has no quantiles. {_WHAT_WORKS}")
    if hasattr(given, "pmf"):
        kind = float if np.asarray(given.rvs(size=1, random_state=0)).dtype.kind == "f" else int  # as scipy draws it
        values = sorted(set(map(kind, _quantiles(given, LEVELS))))
        return Given(Integer(0, len(values) - 1), values)
    ends = [end if math.isfinite(given.ppf(end)) else tail for end, tail in ((0.0, _TAIL), (1.0, 1.0 - _TAIL))]
    _quantiles(given, np.array(ends))
    return Given(Float(ends[0], ends[1]), shape=given)


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

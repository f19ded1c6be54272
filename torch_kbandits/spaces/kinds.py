"""Kinds of parameters, the values of one as numbers in [0, 1] and back without loss, and linear constraints on them."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Continuous numbers lie on a grid of 2^-40, so that what rounding does on the way there and back is undone.
_GRID_BITS = 40
#: A number in double precision tells so many cells apart; and on an arc, where numbers lie that are not always there.
_MOST_CELLS, _MOST_ROLLED = 2**50, 2**44
#: Of more numbers than this those 1, 2, 4, … steps away are tried in the place of one; of more choices so many, spread
#: evenly over all by multiples of the golden section.
_FEW, _MOST_CHOICES, _GOLDEN = 32, 256, (math.sqrt(5.0) - 1.0) / 2.0
#: A logarithm of a range whose ends differ by a smaller share is a line, to rounding.
_NARROW = 2.0**-26
#: The cells of larger integers are lost to rounding in the logarithm.
_LARGEST_LOG_INTEGER = 2**40
#: Sums are compared up to this share of their terms, since decimal fractions are rounded.
_ROUNDING = 1e-12

#: Of each parameter that another one depends on, by name, the values with which that one is there.
Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


class Parameter(ABC):
    """One parameter: the values it may take, and a number in [0, 1] for each; uniform numbers are uniform values.

    Values are numbered by the cells of [0, 1] that they have; of a continuous parameter the cell is the number itself.
    """

    #: When it is there; always, if there are no conditions.
    when: Any

    #: Whether values that are close are alike.
    is_ordered: Any = True

    @property
    @abstractmethod
    def count(self) -> float:
        """The number of values, infinite where it may be any of a range."""

    def encode(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the numbers (n,) of n values, in double precision; errors name the parameter."""
        return self._centres(torch.tensor([self._cell(name, value) for value in values], dtype=torch.float64))

    def decode(self, numbers: Tensor) -> list[Any]:
        """Return the values nearest to numbers (n,)."""
        return [self._value(cell) for cell in self._cells(numbers).tolist()]

    def snap(self, numbers: Tensor) -> Tensor:
        """Return the numbers (n,) of the values nearest to numbers (n,)."""
        return self._centres(self._cells(numbers))

    def others(self, number: Tensor) -> Tensor:
        """Return the numbers (k,) of other values that are to be tried in the place of one, (); none without steps."""
        if self.count == math.inf:
            return number.new_zeros(0)
        cell, count = int(self._cells(number.reshape(1))), int(self.count)
        if self.is_ordered and count > _FEW:
            cells = [cell + side * 2**power for power in range(count.bit_length()) for side in (-1, 1)]
        elif not self.is_ordered and count > _MOST_CHOICES:
            steps = torch.arange(1, _MOST_CHOICES, dtype=torch.float64) * _GOLDEN % 1.0
            cells = (cell + (steps * count).long()).remainder(count).unique().tolist()
        else:
            cells = range(count)
        found = [other for other in cells if other != cell and 0 <= other < count]
        return self._centres(torch.tensor(found, dtype=torch.float64))

    @abstractmethod
    def _cell(self, name: str, value: Any) -> float:
        """Return the cell of a value, which may be refused."""

    @abstractmethod
    def _value(self, cell: float) -> Any:
        """Return the value of a cell."""

    def _cells(self, numbers: Tensor) -> Tensor:
        """Return the cells (n,) in which numbers (n,) lie; of equal size, unless a kind says otherwise."""
        return (numbers * self.count).floor().clamp(0, self.count - 1)

    def _centres(self, cells: Tensor) -> Tensor:
        """Return the numbers (n,) in the middle of cells (n,)."""
        return (cells + 0.5) / self.count


@dataclass(frozen=True)
class Float(Parameter):
    """A real number in [low, high], one coordinate.

    Args:
        low, high: the smallest and the largest value.
        log: whether ratios matter rather than differences; the range must then be above 0.
        step: the distance between neighbouring values low, low + step, …, as decimal fractions; None for all between.
        when: when it is there: of other parameters, by name, the value or a list of the values that they must have;
            always unless given.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: Mapping[str, Any] | Conditions = ()

    def __post_init__(self) -> None:
        checks.keep(self, when=_conditions, low=checks.finite_number, high=checks.finite_number, log=checks.flag)
        checks.keep(self, step=checks.optional(checks.positive))
        if not (self.low <= self.high and math.isfinite(self.high - self.low)):
            raise InputError(
                f"a Float must have low <= high, not infinitely far apart; got {self.low!r} and {self.high!r}."
            )
        if self.log and self.low < sys.float_info.min:
            raise InputError(f"low must be at least {sys.float_info.min:g} where log=True, got {self.low!r}.")
        if self.step is None:
            object.__setattr__(self, "log", self.log and self.high - self.low > _NARROW * self.low)
            return
        number = int((Decimal(repr(self.high)) - Decimal(repr(self.low))) / Decimal(repr(self.step)))
        too_many = number >= (_MOST_ROLLED if self.when else _MOST_CELLS)
        if self.log or too_many or (number and self.step < 4.0 * math.ulp(max(abs(self.low), abs(self.high)))):
            why = "does not go with log=True" if self.log else f"is too small for {self.low!r} to {self.high!r}"
            raise InputError(f"step={self.step!r} {why}: leave it out.")
        object.__setattr__(self, "high", self._value(number))

    @property
    def count(self) -> float:
        """The number of values, infinite without a step."""
        if self.step is None:
            return math.inf if self.low < self.high else 1
        return round((self.high - self.low) / self.step) + 1

    def _cell(self, name: str, value: Any) -> float:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if self.low <= number <= self.high:
            if self.count == 1:
                return 0
            if self.step is None:
                start, stop = self._line
                return ((math.log(number) if self.log else number) - start) / (stop - start)
            cell = round((number - self.low) / self.step)
            slack = 1e-6 * self.step + math.ulp(max(abs(self.low), abs(self.high)))
            if abs(number - self._value(cell)) <= slack:
                return cell
        steps = "" if self.step is None else f", the least plus a multiple of {self.step!r}"
        words = f"a number from {self.low!r} to {self.high!r}{steps}"
        raise InputError(f"parameter {name!r} must be {words}, got {checks.describe(value)}.")

    def _value(self, cell: float) -> float:
        """Return a number: of steps the decimal fraction that a person would write, 0.3, not 0.30000000000000004."""
        if self.step is not None:
            return float(Decimal(repr(self.low)) + int(cell) * Decimal(repr(self.step)))
        if cell in (0.0, 1.0):  # the ends are exact
            return self.high if cell else self.low
        start, stop = self._line
        number = start * (1.0 - cell) + stop * cell
        return min(max(math.exp(number) if self.log else number, self.low), self.high)

    def _cells(self, numbers: Tensor) -> Tensor:
        return self._on_grid(numbers) if self.count == math.inf else super()._cells(numbers)

    def _centres(self, cells: Tensor) -> Tensor:
        return self._on_grid(cells) if self.count == math.inf else super()._centres(cells)

    @property
    def _line(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def _on_grid(self, places: Tensor) -> Tensor:
        """Return places rounded to a grid whose spacing is far above what rounding does to them."""
        start, stop = self._line
        rounding = 4.0 * math.ulp(max(abs(start), abs(stop), float(self.log))) / (stop - start)
        size = 2.0 ** max(0, min(_GRID_BITS, math.floor(-math.log2(8.0 * rounding))))
        return (places.clamp(0.0, 1.0) * size).round() / size


@dataclass(frozen=True)
class Integer(Parameter):
    """A whole number in [low, high], one coordinate: values are the centres of cells, of equal size unless logarithmic.

    Args:
        low, high, when: as in ``Float``.
        log: whether ratios matter rather than differences; the range must then begin at 1 or above.
        step: the distance between neighbouring values low, low + step, …; 1 where ``log`` is true.
    """

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Mapping[str, Any] | Conditions = ()

    def __post_init__(self) -> None:
        checks.keep(self, when=_conditions, low=checks.whole_number, high=checks.whole_number, log=checks.flag)
        checks.keep(self, step=checks.positive_integer)
        if self.low > self.high:
            raise InputError(f"an Integer must have low <= high, got {self.low} and {self.high}.")
        if self.log and not (self.step == 1 <= self.low and self.high <= _LARGEST_LOG_INTEGER):
            got = f"{self.low} to {self.high} and step {self.step}"
            raise InputError(f"an Integer with log=True must have step 1 and be from 1 to 2^40, got {got}.")
        object.__setattr__(self, "high", self.high - (self.high - self.low) % self.step)
        if self.count > (_MOST_ROLLED if self.when else _MOST_CELLS):
            most = "2^44 values where it has conditions" if self.when else "2^50 values"
            raise InputError(f"an Integer must have at most {most}, got {self.low} to {self.high}. Use a Float.")

    @property
    def count(self) -> int:
        """The number of values."""
        return (self.high - self.low) // self.step + 1

    def _cell(self, name: str, value: Any) -> int:
        number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else self.low - 1
        if not self.low <= number <= self.high or (number - self.low) % self.step:
            words = f"a whole number from {self.low} to {self.high} in steps of {self.step}"
            raise InputError(f"parameter {name!r} must be {words}, got {checks.describe(value)}.")
        return (number - self.low) // self.step

    def _value(self, cell: float) -> int:
        return self.low + int(cell) * self.step

    def _cells(self, numbers: Tensor) -> Tensor:
        if not self.log or self.count == 1:
            return super()._cells(numbers)
        start, stop = self._line
        return (start + numbers.clamp(0.0, 1.0) * (stop - start)).exp().round().clamp(self.low, self.high) - self.low

    def _centres(self, cells: Tensor) -> Tensor:
        if not self.log or self.count == 1:
            return super()._centres(cells)
        # By Python's logarithm: that of a tensor may differ in its last bit from one place in the tensor to another.
        start, stop = self._line
        values = [self.low + cell for cell in cells.tolist()]
        middles = [0.5 * (math.log(value - 0.5) + math.log(value + 0.5)) for value in values]
        return cells.new_tensor([(middle - start) / (stop - start) for middle in middles])

    @property
    def _line(self) -> tuple[float, float]:
        return math.log(self.low - 0.5), math.log(self.high + 0.5)


@dataclass(frozen=True)
class Categorical(Parameter):
    """One of several values. Without an order any two of them are at distance 1.

    Two values are the ends of one coordinate; more have a coordinate each, 1/√2 for the value taken and 0 otherwise.
    With an order they have one coordinate, at equal distances, as whole numbers have.

    Values are told apart by identity first, then by type and ``==``, then by ``==`` alone. So True and 1 may be two
    choices, and NaN or a function may be one.

    Args:
        choices: the values, of any kind, in an order that stays; at least one.
        when: when it is there, as in ``Float``.
        is_ordered: whether values that are close in the list are alike.
    """

    choices: Sequence[Any]
    when: Mapping[str, Any] | Conditions = ()
    is_ordered: bool = False

    def __post_init__(self) -> None:
        checks.keep(self, when=_conditions, choices=checks.entries, is_ordered=checks.flag)
        if not self.choices:
            raise InputError("choices must have at least one entry, got none.")

    @property
    def count(self) -> int:
        """The number of choices."""
        return len(self.choices)

    def _cell(self, name: str, value: Any) -> int:
        alike = [_likeness(choice, value) for choice in self.choices]
        if not any(alike):
            raise InputError(f"parameter {name!r} must be one of {self.choices!r}, got {checks.describe(value)}.")
        return alike.index(max(alike))

    def _value(self, cell: float) -> Any:
        return self.choices[int(cell)]


def _likeness(choice: Any, value: Any) -> int:
    """Return 3 for what is the same, 2 for what is equal and of one type, 1 for what is equal, else 0."""
    if choice is value:
        return 3
    try:
        is_equal = bool(choice == value) or bool(choice != choice and value != value)
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors of several numbers
        return 0
    return is_equal * (1 + (type(choice) is type(value)))


def _conditions(name: str, when: Any) -> Conditions:
    """Return conditions as names with values, from a mapping of names to a value or to several."""
    checks.instance(name, when, (Mapping, tuple), 'a mapping of names to values, such as {"model": "svm"}')
    several = (list, tuple, set, frozenset, range)
    pairs = when.items() if isinstance(when, Mapping) else when
    found = tuple((other, tuple(values) if isinstance(values, several) else (values,)) for other, values in pairs)
    for other, values in found:
        if not values:
            raise InputError(f"{name} must have at least one value for {other!r}, got none.")
    return found


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
        if not (isinstance(self.weights, Mapping) and self.weights):
            hint = "a mapping from names of parameters to numbers, at least one"
            raise InputError(f"weights must be {hint}, got {checks.describe(self.weights)}.")
        weights = {name: checks.finite_number(f"the weight of {name!r}", w) for name, w in self.weights.items()}
        object.__setattr__(self, "weights", weights)
        checks.keep(self, bound=checks.finite_number)

    def __call__(self, configuration: Mapping[str, Any]) -> bool:
        """Say whether a configuration may be played."""
        terms = [weight * configuration[name] for name, weight in self.weights.items() if name in configuration]
        return math.fsum(terms) <= self.bound + _ROUNDING * (math.fsum(map(abs, terms)) + abs(self.bound))

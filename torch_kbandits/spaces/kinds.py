"""Kinds of parameters: how the values of one become coordinates in [0, 1], and back without loss."""

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

#: Continuous coordinates lie on a grid of 2^-40, so that what rounding does on the way there and back is undone.
_GRID_BITS = 40

#: A coordinate in double precision tells so many cells apart.
_MOST_CELLS = 2**50

#: And so many on an arc, where numbers lie that are not always there.
_MOST_ROLLED = 2**44

#: Of more numbers than this those 1, 2, 4, … steps away are tried in the place of one.
_FEW = 32

#: Of more choices than this so many, spread evenly over all, are tried in the place of one.
_MOST_CHOICES = 256

#: The golden section: its multiples are spread evenly over a range, however many they are.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

#: A logarithm of a range whose ends differ by a smaller share is a line, to rounding.
_NARROW = 2.0**-26

#: The cells of larger integers are lost to rounding in the logarithm.
_LARGEST_LOG_INTEGER = 2**40


#: Of each parameter that another one depends on, by name, the values with which that one is there.
Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


class Parameter(ABC):
    """One parameter: the values it may take, and their encoding in coordinates."""

    #: When it is there; always, if there are no conditions.
    when: Any

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of coordinates; none where there is a single value."""

    @abstractmethod
    def encode(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the encodings (n, columns) of n values, in double precision; errors name the parameter."""

    @abstractmethod
    def decode(self, block: Tensor) -> list[Any]:
        """Return the values nearest to n points (n, columns)."""

    @abstractmethod
    def snap(self, block: Tensor) -> Tensor:
        """Return the encodings (n, columns) of the values nearest to n points (n, columns)."""

    @abstractmethod
    def spread(self, uniform: Tensor) -> Tensor:
        """Return encodings (n, columns) of values that are uniform where numbers (n,) in [0, 1) are; 1 is the last."""

    @abstractmethod
    def uniform(self, block: Tensor) -> Tensor:
        """Return numbers (n,) in [0, 1] from which ``spread`` makes these encodings (n, columns), columns >= 1."""

    def numbers(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return numbers (n,) by which n values are told apart, those of ``uniform``; none of a single value."""
        codes = self.encode(name, values)
        return self.uniform(codes) if self.columns else codes.flatten()

    @abstractmethod
    def others(self, code: Tensor) -> Tensor:
        """Return numbers (k,) from which ``spread`` makes other values than an encoding (columns,), columns >= 1.

        They are to be tried in its place: all others where they are few; of many numbers those 1, 2, 4, … steps away,
        of many choices some; none where there are no steps.
        """


@dataclass(frozen=True)
class Float(Parameter):
    """A real number in [low, high], one coordinate.

    Args:
        low: the smallest value.
        high: the largest value.
        log: whether ratios matter rather than differences; the range must then be above 0.
        step: the distance between neighbouring values low, low + step, …, as decimal fractions; None for all between.
        when: when it is there: of other parameters, by name, the value or a list of the values that they must have;
            always unless given.

    Raises:
        InputError: if the range is not finite or upside down, or the step does not fit.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: Mapping[str, Any] | Conditions = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", _conditions(self.when))
        low, high = (checks.finite_number(name, getattr(self, name)) for name in ("low", "high"))
        if not (low <= high and math.isfinite(high - low)):
            raise InputError(f"a Float must have low <= high, not infinitely far apart; got {low!r} and {high!r}.")
        checks.instance("log", self.log, bool, "True or False")
        if self.log and low < sys.float_info.min:
            raise InputError(f"low must be at least {sys.float_info.min:g} where log=True, got {low!r}.")
        if self.step is not None:
            high = self._last(low, high, checks.positive("step", self.step))
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def _last(self, low: float, high: float, step: float) -> float:
        """Check the step and return the largest value that it reaches."""
        if self.log:
            raise InputError("a Float takes log=True or a step, not both.")
        object.__setattr__(self, "step", step)
        number = int((Decimal(repr(high)) - Decimal(repr(low))) / Decimal(repr(step)))
        if number >= (_MOST_ROLLED if self.when else _MOST_CELLS) or (
            number and step < 4.0 * math.ulp(max(abs(low), abs(high)))
        ):
            raise InputError(
                f"step={step!r} is too small for a range from {low!r} to {high!r}: numbers in double precision do not "
                "tell the values apart. Leave it out."
            )
        return self._stepped(low, number)

    @property
    def columns(self) -> int:
        """One, or none where low = high."""
        return int(self.low < self.high)

    def encode(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the encodings (n, columns) of n numbers in the range."""
        numbers = [self._number(name, value) for value in values]
        if not self.columns:
            return _nothing(len(numbers))
        if self.step is not None:
            return _centres(torch.tensor(numbers, dtype=torch.float64), self._steps).unsqueeze(-1)
        start, stop = self._line
        scaled = [math.log(number) if self._is_bent else number for number in numbers]
        return self._on_grid((torch.tensor(scaled, dtype=torch.float64).unsqueeze(-1) - start) / (stop - start))

    def decode(self, block: Tensor) -> list[float]:
        """Return the numbers nearest to n points."""
        if not self.columns:
            return [self.low] * len(block)
        if self.step is not None:
            return [self._stepped(self.low, cell) for cell in _cells(block, self._steps).flatten().tolist()]
        return [self._at(place) for place in self._on_grid(block).flatten().tolist()]

    def snap(self, block: Tensor) -> Tensor:
        """Return the encodings of the numbers nearest to n points."""
        if not self.columns:
            return _nothing(len(block))
        return self._on_grid(block) if self.step is None else _centres(_cells(block, self._steps), self._steps)

    def spread(self, uniform: Tensor) -> Tensor:
        """Return encodings (n, columns) of numbers that are uniform where those (n,) in [0, 1) are."""
        return self.snap(uniform.unsqueeze(-1)) if self.columns else _nothing(len(uniform))

    def uniform(self, block: Tensor) -> Tensor:
        """Return the coordinates (n,)."""
        return block.squeeze(-1)

    def others(self, code: Tensor) -> Tensor:
        """Return the numbers (k,) of other values on steps to try; none without a step."""
        if self.step is None:
            return code.new_zeros(0)
        return _centres(_other_cells(int(_cells(code, self._steps)), self._steps), self._steps)

    def _number(self, name: str, value: Any) -> float:
        """Return a number of the range; with a step the number of its cell."""
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if not self.low <= number <= self.high:
            raise InputError(
                f"parameter {name!r} must be a number from {self.low!r} to {self.high!r}, got {checks.describe(value)}."
            )
        if self.step is None:
            return number
        cell = round((number - self.low) / self.step)
        slack = 1e-6 * self.step + math.ulp(max(abs(self.low), abs(self.high)))
        if abs(number - self._stepped(self.low, cell)) > slack:
            raise InputError(
                f"parameter {name!r} must be {self.low!r} plus a multiple of {self.step!r}, "
                f"got {checks.describe(value)}."
            )
        return cell

    def _stepped(self, low: float, cell: int) -> float:
        """Return low + cell · step as the decimal fraction that a person would write: 0.3, not 0.30000000000000004."""
        return float(Decimal(repr(low)) + int(cell) * Decimal(repr(self.step)))

    @property
    def _steps(self) -> int:
        return round((self.high - self.low) / (self.step or 1.0)) + 1

    @property
    def _is_bent(self) -> bool:
        """Whether coordinates are those of logarithms, which differ from those of numbers."""
        return self.log and self.high - self.low > _NARROW * self.low

    @property
    def _line(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self._is_bent else (self.low, self.high)

    def _at(self, place: float) -> float:
        """Return the number at a coordinate of the grid; the ends are exact."""
        if place in (0.0, 1.0):
            return self.high if place else self.low
        start, stop = self._line
        number = start * (1.0 - place) + stop * place
        return min(max(math.exp(number) if self._is_bent else number, self.low), self.high)

    def _on_grid(self, block: Tensor) -> Tensor:
        """Return coordinates rounded to a grid whose spacing is far above what rounding does to them."""
        start, stop = self._line
        rounding = 4.0 * math.ulp(max(abs(start), abs(stop), float(self._is_bent))) / (stop - start)
        size = 2.0 ** max(0, min(_GRID_BITS, math.floor(-math.log2(8.0 * rounding))))
        return (block.clamp(0.0, 1.0) * size).round() / size


@dataclass(frozen=True)
class Integer(Parameter):
    """A whole number in [low, high], one coordinate: values are the centres of cells, of equal size unless logarithmic.

    Args:
        low: the smallest value.
        high: the largest value.
        log: whether ratios matter rather than differences; the range must then begin at 1 or above.
        step: the distance between neighbouring values low, low + step, …; 1 where ``log`` is true.
        when: when it is there: of other parameters, by name, the value or a list of the values that they must have;
            always unless given.

    Raises:
        InputError: if the range is upside down or too large, or the step does not fit.
    """

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Mapping[str, Any] | Conditions = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", _conditions(self.when))
        checks.keep(self, low=checks.whole_number, high=checks.whole_number, step=checks.positive_integer)
        step = self.step
        if self.low > self.high:
            raise InputError(f"an Integer must have low <= high, got {self.low} and {self.high}.")
        checks.instance("log", self.log, bool, "True or False")
        if self.log and not (step == 1 <= self.low and self.high <= _LARGEST_LOG_INTEGER):
            raise InputError(
                f"an Integer with log=True must have step 1 and a range from 1 or above to at most 2^40, got "
                f"{self.low} to {self.high} and step {step}. Use a Float, and round it."
            )
        object.__setattr__(self, "high", self.high - (self.high - self.low) % step)
        if self._count > (_MOST_ROLLED if self.when else _MOST_CELLS):
            most = "2^44 values where it has conditions" if self.when else "2^50 values"
            raise InputError(f"an Integer must have at most {most}, got {self.low} to {self.high}. Use a Float.")

    @property
    def columns(self) -> int:
        """One, or none where there is a single value."""
        return int(self.low < self.high)

    def encode(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the encodings (n, columns) of n whole numbers in the range."""
        numbers = [self._number(name, value) for value in values]
        if not self.columns:
            return _nothing(len(values))
        if self.log:
            return self._log_centres(numbers)
        cells = torch.tensor([(number - self.low) // self.step for number in numbers], dtype=torch.float64)
        return _centres(cells, self._count).unsqueeze(-1)

    def decode(self, block: Tensor) -> list[int]:
        """Return the whole numbers in whose cells n points lie."""
        if not self.columns:
            return [self.low] * len(block)
        if self.log:
            return self._log_values(block)
        return [self.low + int(cell) * self.step for cell in _cells(block, self._count).flatten().tolist()]

    def snap(self, block: Tensor) -> Tensor:
        """Return the centres of the cells in which n points lie."""
        if not self.columns:
            return _nothing(len(block))
        if self.log:
            return self._log_centres(self._log_values(block))
        return _centres(_cells(block, self._count), self._count)

    def spread(self, uniform: Tensor) -> Tensor:
        """Return encodings (n, columns) of numbers that are uniform where those (n,) in [0, 1) are."""
        return self.snap(uniform.unsqueeze(-1)) if self.columns else _nothing(len(uniform))

    def uniform(self, block: Tensor) -> Tensor:
        """Return the coordinates (n,)."""
        return block.squeeze(-1)

    def others(self, code: Tensor) -> Tensor:
        """Return the numbers (k,) of other whole numbers to try."""
        if self.log:
            cells = _other_cells(self._log_values(code)[0] - self.low, self._count)
            return self._log_centres([self.low + int(cell) for cell in cells.tolist()]).squeeze(-1)
        return _centres(_other_cells(int(_cells(code, self._count)), self._count), self._count)

    def _number(self, name: str, value: Any) -> int:
        number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else self.low - 1
        if not self.low <= number <= self.high or (number - self.low) % self.step:
            steps = "" if self.step == 1 else f" in steps of {self.step}"
            raise InputError(
                f"parameter {name!r} must be a whole number from {self.low} to {self.high}{steps}, got "
                f"{checks.describe(value)}."
            )
        return number

    @property
    def _count(self) -> int:
        return (self.high - self.low) // self.step + 1

    @property
    def _line(self) -> tuple[float, float]:
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def _log_values(self, block: Tensor) -> list[int]:
        start, stop = self._line
        numbers = (start + block.clamp(0.0, 1.0) * (stop - start)).exp().round().clamp(self.low, self.high)
        return [int(number) for number in numbers.flatten().tolist()]

    def _log_centres(self, values: list[int]) -> Tensor:
        # By Python's logarithm: that of a tensor may differ in its last bit from one place in the tensor to another.
        start, stop = self._line
        centre_of = {
            value: (0.5 * (math.log(value - 0.5) + math.log(value + 0.5)) - start) / (stop - start)
            for value in set(values)
        }
        return torch.tensor([centre_of[value] for value in values], dtype=torch.float64).reshape(-1, 1)


@dataclass(frozen=True)
class Categorical(Parameter):
    """One of several values without order. Any two of them are at distance 1.

    Two values are the ends of one coordinate; more have a coordinate each, 1/√2 for the value taken and 0 otherwise.

    Values are told apart by identity first, then by type and ``==``, then by ``==`` alone. So True and 1 may be two
    choices, and NaN or a function may be one.

    Args:
        choices: the values, of any kind, in an order that stays.
        when: when it is there: of other parameters, by name, the value or a list of the values that they must have;
            always unless given.

    Raises:
        InputError: if there are none.
    """

    choices: Sequence[Any]
    when: Mapping[str, Any] | Conditions = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", _conditions(self.when))
        checks.keep(self, choices=checks.entries)
        if not self.choices:
            raise InputError("choices must have at least one entry, got none.")

    @property
    def columns(self) -> int:
        """A coordinate for each choice, but one for two and none for one."""
        return len(self.choices) if len(self.choices) > 2 else len(self.choices) - 1

    def encode(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the encodings (n, columns) of n values, all of them choices."""
        return self._codes(self._places(name, values))

    def numbers(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the numbers (n,) of n choices, whose encodings would have the square of so many."""
        return _centres(self._places(name, values).double(), len(self.choices))

    def decode(self, block: Tensor) -> list[Any]:
        """Return the choices nearest to n points."""
        return [self.choices[index] for index in self._nearest(block).tolist()]

    def snap(self, block: Tensor) -> Tensor:
        """Return the encodings of the choices nearest to n points."""
        return self._codes(self._nearest(block))

    def spread(self, uniform: Tensor) -> Tensor:
        """Return encodings (n, columns) of choices that are uniform where numbers (n,) in [0, 1) are."""
        return self._codes(_cells(uniform, len(self.choices)).long())

    def uniform(self, block: Tensor) -> Tensor:
        """Return the middle (n,) of the numbers from which ``spread`` makes each."""
        return _centres(self._nearest(block).double(), len(self.choices))

    def others(self, code: Tensor) -> Tensor:
        """Return the numbers (k,) of all other choices where they are few, else of some spread evenly over them."""
        number, index = len(self.choices), self._nearest(code.unsqueeze(0))
        if number > _MOST_CHOICES:
            steps = torch.arange(1, _MOST_CHOICES, dtype=torch.float64) * _GOLDEN % 1.0
            others = (index + (steps * number).long()).remainder(number).unique()
        else:
            others = torch.arange(number)
        return _centres(others[others != index].double(), number)

    def _codes(self, indices: Tensor) -> Tensor:
        """Return the encodings (n, columns) of choices (n,), by their places."""
        if len(self.choices) <= 2:
            return indices.double().unsqueeze(-1)[:, : self.columns]
        rows = torch.zeros(len(indices), self.columns, dtype=torch.float64)
        return rows.scatter_(1, indices.unsqueeze(-1), math.sqrt(0.5))

    def _nearest(self, block: Tensor) -> Tensor:
        if len(self.choices) == 1:
            return torch.zeros(len(block), dtype=torch.long)
        return (block[:, 0] >= 0.5).long() if len(self.choices) == 2 else block.max(-1).indices

    def _places(self, name: str, values: Sequence[Any]) -> Tensor:
        """Return the places (n,) of values among the choices."""
        known = {id(choice): index for index, choice in reversed([*enumerate(self.choices)])}
        found = [known[id(value)] if id(value) in known else self._index(name, value) for value in values]
        return torch.tensor(found, dtype=torch.long)

    def _index(self, name: str, value: Any) -> int:
        """Return the place of the choice that equals a value, which is none of them itself."""
        alike = (
            lambda choice: type(choice) is type(value) and _equal(choice, value),
            lambda choice: _equal(choice, value),
        )
        for test in alike:
            for index, choice in enumerate(self.choices):
                if test(choice):
                    return index
        raise InputError(f"parameter {name!r} must be one of {self.choices!r}, got {checks.describe(value)}.")


def _equal(choice: Any, value: Any) -> bool:
    try:
        return bool(choice == value) or bool(choice != choice and value != value)
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors of several numbers
        return False


def _conditions(when: Any) -> Conditions:
    """Return conditions as names with values, from a mapping of names to a value or to several."""
    if not isinstance(when, (Mapping, tuple)):
        raise InputError(
            f'when must map names of parameters to the values that they must have, such as {{"model": "svm"}}; got '
            f"{checks.describe(when)}."
        )
    several = (list, tuple, set, frozenset, range)
    pairs = when.items() if isinstance(when, Mapping) else when
    found = tuple((name, tuple(values) if isinstance(values, several) else (values,)) for name, values in pairs)
    for name, values in found:
        if not values:
            raise InputError(f"when must have at least one value for {name!r}, got none.")
    return found


def _nothing(n: int) -> Tensor:
    return torch.zeros(n, 0, dtype=torch.float64)


def _cells(block: Tensor, count: int) -> Tensor:
    """Return in which of ``count`` equal cells of [0, 1] coordinates lie, of their shape."""
    return (block * count).floor().clamp(0, count - 1)


def _other_cells(cell: int, count: int) -> Tensor:
    """Return the cells (k,) of ``count`` to try in the place of one: all others, or those 1, 2, 4, … away."""
    if count <= _FEW:
        near = range(count)
    else:
        near = [cell + side * 2**power for power in range(count.bit_length()) for side in (-1, 1)]
    others = [other for other in near if other != cell and 0 <= other < count]
    return torch.tensor(others, dtype=torch.float64)


def _centres(cells: Tensor, count: int) -> Tensor:
    """Return the centres of cells, of their shape."""
    return (cells + 0.5) / count

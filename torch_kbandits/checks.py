"""Checks for the edge of the package: constructors and ``tell``. The inside trusts them."""

import difflib
import math
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.errors import InputError


def instance(name: str, value: Any, kind: type, hint: str) -> None:
    """Refuse a value that is no instance of ``kind``; the hint says what would be."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {hint}, got {describe(value)}.")


def describe(value: Any) -> str:
    """Say what came in words that fit an error message: type, shape and dtype, or the value itself."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    if hasattr(value, "shape"):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    return f"{value!r} of type {type(value).__name__}"


def positive(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number above 0."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"{name} must be a finite number above 0, got {value!r}.")
    return number


def non_negative(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number of at least 0."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0.0):
        raise InputError(f"{name} must be a finite number of at least 0, got {value!r}.")
    return number


def finite_number(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number."""
    number = _number(name, value)
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {value!r}.")
    return number


def open_unit_interval(name: str, value: float) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1."""
    number = _number(name, value)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return number


def discount(name: str, value: float) -> float:
    """Return ``value`` as a float if it lies in (0, 1]."""
    number = _number(name, value)
    if not 0.0 < number <= 1.0:
        raise InputError(f"{name} must be above 0 and at most 1, where 1 forgets nothing; got {value!r}.")
    return number


def share(name: str, value: float) -> float:
    """Return ``value`` as a float if it lies in [0, 1)."""
    number = _number(name, value)
    if not 0.0 <= number < 1.0:
        raise InputError(f"{name} must be at least 0 and below 1, got {value!r}.")
    return number


def positive_integer(name: str, value: int) -> int:
    """Return ``value`` if it is a whole number of at least 1 (booleans are refused)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {describe(value)}.")
    return value


def one_of(name: str, value: Any, choices: Collection[str]) -> Any:
    """Return ``value`` if it is one of the words."""
    if value not in choices:
        words = " or ".join(f'"{word}"' for word in choices)
        raise InputError(f"{name} must be {words}, got {value!r}.")
    return value


def non_negative_integer(name: str, value: int) -> int:
    """Return ``value`` if it is a whole number of at least 0 (booleans are refused)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name} must be a whole number of at least 0, got {describe(value)}.")
    return value


def floating_tensor(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a tensor in double or single precision; factorisations need no less."""
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch tensor, got {describe(value)}; convert it with torch.as_tensor.")
    if value.dtype not in (torch.float64, torch.float32):
        raise InputError(
            f"{name} must have a floating dtype, float64 or float32, got {value.dtype}; "
            f"convert it with {name}.double()."
        )
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if no entry is NaN or infinite."""
    bad = ~torch.isfinite(value)
    if bool(bad.any()):
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"{name} must be finite: {int(bad.sum())} of {value.numel()} entries are NaN or infinite, "
            f"the first at index {first}."
        )
    return value


def points(name: str, value: Any, *, dimension: int | None = None, like: Tensor | None = None) -> Tensor:
    """Return ``value`` if it is a finite (..., n, d) tensor, of ``dimension`` columns and ``like``'s dtype if given."""
    floating_tensor(name, value)
    if value.dim() < 2:
        raise InputError(
            f"{name} must have a row for each point and a column for each input, shape (n, d); "
            f"got {describe(value)}. A single point is {name}.reshape(1, -1)."
        )
    if value.shape[-1] == 0:
        raise InputError(f"{name} must have at least one column, got {describe(value)}.")
    if dimension is not None and value.shape[-1] != dimension:
        raise InputError(f"{name} must have d = {dimension} columns, got {describe(value)}.")
    if like is not None:
        same_kind(name, value, like)
    return finite(name, value)


def nearest_name(name: object, known: Iterable[object], cutoff: float = 0.6) -> str | None:
    """Return the known name most like one that is not known, whatever its case, or None if none is like it."""
    folded = {str(word).lower(): str(word) for word in known}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def same_kind(name: str, value: Tensor, like: Tensor) -> Tensor:
    """Return ``value`` if it has the dtype and the device of ``like``."""
    if value.dtype != like.dtype or value.device != like.device:
        raise InputError(
            f"{name} must have dtype {like.dtype} on {like.device} like the rest of the data, "
            f"got {value.dtype} on {value.device}; convert it with {name}.to({like.dtype})."
        )
    return value


def bounds(value: Any) -> Tensor:
    """Return ``value`` if it is a (2, d) tensor of finite lower and upper bounds, lower below upper."""
    floating_tensor("bounds", value)
    if value.dim() != 2 or value.shape[0] != 2 or value.shape[1] == 0:
        raise InputError(f"bounds must have shape (2, d): lower bounds, then upper bounds; got {describe(value)}.")
    finite("bounds", value)
    upside_down = (value[0] >= value[1]).nonzero().flatten().tolist()
    if upside_down:
        raise InputError(
            f"every lower bound must be below its upper bound; not so in column(s) {upside_down}: "
            f"lower {value[0, upside_down].tolist()}, upper {value[1, upside_down].tolist()}."
        )
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool):
        raise InputError(f"{name} must be a number, got {value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {describe(value)}.") from None
    except OverflowError:
        raise InputError(f"{name} must be a number that a float holds, got a whole number beyond.") from None

"""Checks for the edge of the package: constructors and ``tell``. The inside trusts them."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from numbers import Real
from operator import index
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.errors import InputError

#: Signs of a value that a message shows.
_LONGEST_SHOWN = 200
#: Bits of a whole number: so many a float holds.
LARGEST_BITS = 1023
#: Whole numbers up to this are the same in double precision.
LARGEST_EXACT = 2**53


def instance(name: str, value: Any, kind: type | tuple[type, ...], hint: str) -> None:
    """Refuse a value that is no instance of ``kind``; the hint says what would be."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {hint}, got {describe(value)}.")


def describe(value: Any) -> str:
    """Say what came in words that fit an error message: type, shape and dtype, or the value itself."""
    if isinstance(value, Tensor):
        if value.is_nested:
            return f"a nested tensor of dtype {value.dtype}"
        kind = "meta " if value.is_meta else "" if value.layout == torch.strided else "sparse "
        return f"a {kind}tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    if hasattr(value, "shape"):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    return f"{shown(value)} of type {type(value).__name__}"


def shown(value: Any) -> str:
    """Return the value as code, shortened: what came may be of any length, and whole numbers of any size."""
    try:
        text = repr(value)
    except Exception:  # Python writes no whole number of thousands of digits; other classes may raise what they like
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def keep(record: Any, **kinds: Callable[[str, Any], Any]) -> None:
    """Check fields of a frozen dataclass, each by the function of its name, and keep what the checks return.

    Args:
        record: a value under construction.
        kinds: such as ``failure_probability=open_unit_interval``.

    Raises:
        InputError: if a field does not fit.
    """
    for name, kind in kinds.items():
        object.__setattr__(record, name, kind(name, getattr(record, name)))


def optional(kind: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a check that lets None pass, too."""
    return lambda name, value: None if value is None else kind(name, value)


def number(name: str, value: Any) -> float:
    """Return any real number as a float: of Python, a fraction, a decimal, of NumPy, or a 0-dim tensor.

    Texts and booleans are refused, also those that would convert.
    """
    plain = _scalar(value)
    if isinstance(plain, bool) or not isinstance(plain, (Real, Decimal)):
        raise InputError(f"{name} must be a number, got {describe(value)}.")
    try:
        return float(plain)
    except OverflowError:
        raise InputError(f"{name} must be a number that a float holds, got {shown(value)}.") from None
    except ValueError:
        raise InputError(f"{name} must be a number, got {describe(value)}.") from None


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number above 0."""
    checked = number(name, value)
    if not (math.isfinite(checked) and checked > 0.0):
        raise InputError(f"{name} must be a finite number above 0, got {shown(value)}.")
    return checked


def non_negative(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number of at least 0."""
    checked = number(name, value)
    if not (math.isfinite(checked) and checked >= 0.0):
        raise InputError(f"{name} must be a finite number of at least 0, got {shown(value)}.")
    return checked


def finite_number(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number."""
    checked = number(name, value)
    if not math.isfinite(checked):
        raise InputError(f"{name} must be a finite number, got {shown(value)}.")
    return checked


def open_unit_interval(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1."""
    checked = number(name, value)
    if not 0.0 < checked < 1.0:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {shown(value)}.")
    return checked


def discount(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies in (0, 1]."""
    checked = number(name, value)
    if not 0.0 < checked <= 1.0:
        raise InputError(f"{name} must be above 0 and at most 1, where 1 forgets nothing; got {shown(value)}.")
    return checked


def share(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies in [0, 1)."""
    checked = number(name, value)
    if not 0.0 <= checked < 1.0:
        raise InputError(f"{name} must be at least 0 and below 1, got {shown(value)}.")
    return checked


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number, of Python or NumPy or a 0-dim tensor, as an int if it is at least ``least``."""
    try:
        plain = _scalar(value)
        whole = None if isinstance(plain, (bool, Tensor)) else index(plain)
    except TypeError:
        whole = None
    if whole is None or (least is not None and whole < least) or whole.bit_length() > LARGEST_BITS:
        enough = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{enough}, got {describe(value)}.")
    return whole


def positive_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 1."""
    return whole_number(name, value, 1)


def one_of(name: str, value: Any, choices: Collection[str]) -> Any:
    """Return ``value`` if it is one of the words."""
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(f'"{word}"' for word in choices)
        raise InputError(f"{name} must be {words}, got {shown(value)}.")
    return value


def non_negative_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int if it is a whole number of at least 0."""
    return whole_number(name, value, 0)


def floating_tensor(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a tensor in double or single precision; factorisations need no less."""
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch tensor, got {describe(value)}; convert it with torch.as_tensor.")
    _in_memory(name, value)
    if value.dtype not in (torch.float64, torch.float32):
        raise InputError(
            f"{name} must have a floating dtype, float64 or float32, got {value.dtype}; "
            f"convert it with {name}.double()."
        )
    return value


def precise_times(times: Tensor) -> None:
    """Refuse times in single precision that are so large that it leaves out whole numbers, such as dates."""
    if times.dtype == torch.float32 and times.numel() and float(largest := times.detach().abs().max()) >= 2**24:
        step = float(largest.nextafter(largest.new_tensor(torch.inf)) - largest)
        raise InputError(
            f"Times up to {float(largest):.10g} are {step:g} apart in single precision: give points that know the time "
            "in double precision, X.double(), or count time from a later origin."
        )


def own_numbers(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a tensor with a place in memory for each of its numbers, not expanded from fewer."""
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch tensor, got {describe(value)}.")
    _in_memory(name, value)
    if value.nbytes > value.untyped_storage().nbytes():
        raise InputError(f"{name} must have its own numbers, got {describe(value)} expanded from fewer.")
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if no entry is NaN or infinite."""
    if not all_finite(value):
        bad = ~torch.isfinite(value)
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(
            f"{name} must be finite: {int(bad.sum())} of {value.numel()} entries are NaN or infinite, "
            f"the first at index {first}."
        )
    return value


def all_finite(values: Tensor) -> bool:
    """Say whether no entry is NaN or infinite."""
    if values.numel() == 1:
        return math.isfinite(values.item())
    # A sum is finite only if all of it is; where it overflows, the entries are looked at.
    return math.isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def points(name: str, value: Any, *, dimension: int | None = None, like: Tensor | None = None) -> Tensor:
    """Return ``value`` if it is a finite (..., n, d) tensor, of ``dimension`` columns and ``like``'s dtype if given."""
    return finite(name, rows_of_points(name, value, dimension=dimension, like=like))


def rows_of_points(name: str, value: Any, *, dimension: int | None = None, like: Tensor | None = None) -> Tensor:
    """Return the same, which may not be finite."""
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
    return value


def come_together(value: object, *names: str) -> bool:
    """Say whether methods of a value that go together come from one class, none of them made anew in a derived one."""
    owners = {next((kind for kind in type(value).__mro__ if name in vars(kind)), None) for name in names}
    return len(owners) == 1


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


def _in_memory(name: str, value: Tensor) -> None:
    """Refuse tensors without dense numbers: sparse, nested, meta and quantized ones."""
    if value.is_nested or value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise InputError(
            f"{name} must be a plain tensor of numbers in memory, got {describe(value)}: convert a sparse one with "
            f"{name}.to_dense(), and give rows of equal length."
        )


def _scalar(value: Any) -> Any:
    """Return what a single number of another library holds; anything else as it is."""
    if getattr(value, "shape", None) != () or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except (RuntimeError, NotImplementedError, ValueError):  # a tensor that has no numbers in memory
        return value

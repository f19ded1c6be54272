"""Checks for the edge of the package: constructors and ``tell``. The inside trusts them."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from numbers import Real
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.errors import InputError

#: Signs of a value that a message shows; bits of a whole number that a float holds.
_LONGEST_SHOWN, LARGEST_BITS = 200, 1023
#: Whole numbers up to this are the same in double precision.
LARGEST_EXACT = 2**53
#: The most columns, points or repetitions that a number asks for: of more, memory or time would find no end.
LARGEST_SIZE = 10**6
#: How far points may lie from 0: squares of what is further, in length scales, and products of them, overflow.
REACH = {torch.float64: 1e50, torch.float32: 1e12}
#: Of an array that repeats fewer numbers, so many entries are copied at most; and lists in lists go so deep, since one
#: that holds itself has no end.
_MOST_EXPANDED, _DEEPEST = 2**27, 32


def instance(name: str, value: Any, kind: Any, hint: str) -> None:
    """Refuse a value that is no instance of ``kind``, classes or ``Callable``; the hint says what would be."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {hint}, got {describe(value)}.")


def absent_or(name: str, value: Any, kind: Any, hint: str) -> None:
    """Refuse a value that is neither None nor an instance of ``kind``; the hint says what would be."""
    if value is not None:
        instance(name, value, kind, f"{hint} or None")


def describe(value: Any) -> str:
    """Say what came in words that fit an error message: type, shape and dtype, or the value itself."""
    if isinstance(value, Tensor):
        if value.is_nested:
            return f"a nested tensor of dtype {value.dtype}"
        kind = "meta " if value.is_meta else "" if value.layout == torch.strided else "sparse "
        return f"a {kind}tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    if hasattr(value, "shape") and not isinstance(value, type):
        return f"a {type(value).__name__} of shape {value.shape}"
    return f"{shown(value)} of type {type(value).__name__}"


def shown(value: Any) -> str:
    """Return the value as code, shortened: what came may be of any length, and whole numbers of any size."""
    try:
        text = repr(value)
    except Exception:  # Python writes no whole number of thousands of digits; other classes may raise what they like
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def keep(record: Any, **kinds: Callable[[str, Any], Any]) -> None:
    """Check fields of a frozen dataclass under construction, as by ``size=positive``; keep what the checks return."""
    for name, kind in kinds.items():
        object.__setattr__(record, name, kind(name, getattr(record, name)))


def optional(kind: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Return a check that lets None pass, too."""
    return lambda name, value: None if value is None else kind(name, value)


def flag(name: str, value: Any) -> bool:
    """Return ``value``, of Python or NumPy, if it is True or False."""
    if value is not True and value is not False:
        instance(name, value, np.bool_, "True or False")
    return bool(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> Any:
    """Return ``value`` if it is one of the words."""
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(f'"{word}"' for word in choices)
        raise InputError(f"{name} must be {words}, got {shown(value)}.")
    return value


def nearest_name(name: object, known: Iterable[object], cutoff: float = 0.6) -> str | None:
    """Return the known name most like one that is not known, whatever its case, or None if none is like it."""
    folded = {str(word).lower(): str(word) for word in known}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def scalar(value: Any) -> Any:
    """Return what a single number of another library holds; anything else as it is."""
    try:
        return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
    except (RuntimeError, NotImplementedError, ValueError):  # a tensor that has no numbers in memory
        return value


def number(name: str, value: Any) -> float:
    """Return any real number, also a fraction, a decimal or a 0-dim tensor, as a float; no text and no boolean."""
    plain = scalar(value)
    try:
        if isinstance(plain, (Real, Decimal)) and not isinstance(plain, bool):
            return float(plain)
    except OverflowError:
        raise InputError(f"{name} must be a number that a float holds, got {shown(value)}.") from None
    except ValueError:  # a signalling NaN
        pass
    raise InputError(f"{name} must be a number, got {describe(value)}.")


def _real(words: str, holds: Callable[[float], bool]) -> Callable[[str, Any], float]:
    """Return a check for real numbers of which something holds, which the words say."""

    def check(name: str, value: Any) -> float:
        checked = number(name, value)
        if not holds(checked):
            raise InputError(f"{name} must {words}, got {shown(value)}.")
        return checked

    return check


#: Each takes the name of an argument and its value, and returns it as a float. Squares of larger scales overflow.
finite_number = _real("be a finite number", math.isfinite)
positive = _real("be a finite number above 0", lambda value: 0.0 < value < math.inf)
non_negative = _real("be a finite number of at least 0", lambda value: 0.0 <= value < math.inf)
open_unit_interval = _real("lie strictly between 0 and 1", lambda value: 0.0 < value < 1.0)
unit_interval = _real("lie between 0 and 1", lambda value: 0.0 <= value <= 1.0)
discount = _real("be above 0 and at most 1, where 1 forgets nothing", lambda value: 0.0 < value <= 1.0)
share = _real("be at least 0 and below 1", lambda value: 0.0 <= value < 1.0)
scale = _real("be a finite number above 0 and at most 1e150, or in another unit", lambda value: 0.0 < value <= 1e150)


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number, of Python or NumPy or a 0-dim tensor, as an int if it is at least ``least``."""
    try:
        plain = scalar(value)
        whole = None if isinstance(plain, (bool, Tensor)) else index(plain)
    except TypeError:
        whole = None
    if whole is None or (least is not None and whole < least) or whole.bit_length() > LARGEST_BITS:
        enough = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{enough}, got {describe(value)}.")
    return whole


positive_integer = partial(whole_number, least=1)
non_negative_integer = partial(whole_number, least=0)


def size(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least`` of which so many fit into memory."""
    if type(value) is int and least <= value <= LARGEST_SIZE:
        return value
    if (whole := whole_number(name, value, least)) > LARGEST_SIZE:
        raise InputError(f"{name} must be at most {LARGEST_SIZE:,}, got {shown(value)}.")
    return whole


def listed(name: str, value: Any) -> Any:
    """Return an array, a series or a tensor as lists in lists; anything else as it is."""
    if not hasattr(value, "tolist") or isinstance(value, type):
        return value
    if isinstance(value, Tensor):
        in_memory(name, value)
    try:
        if math.prod(value.shape) <= LARGEST_SIZE:
            return value.tolist()
    except Exception:  # a tensor that has no numbers in memory; other classes may raise what they like
        pass
    raise InputError(f"{name} must have at most {LARGEST_SIZE:,} entries, in memory; got {describe(value)}.")


def entries(name: str, value: Any) -> tuple[Any, ...]:
    """Return the entries of a list, or of what else has an order, as a tuple; a text is no list of letters."""
    plain = listed(name, value)
    if isinstance(plain, Iterable) and not isinstance(plain, (str, bytes, set, frozenset)):
        given = tuple(islice(plain, LARGEST_SIZE + 1))
        if len(given) <= LARGEST_SIZE:
            return given
    raise InputError(f"{name} must be a list or another sequence, got {describe(value)}.")


def whole_numbers(name: str, value: Any) -> list[int]:
    """Return one whole number or several, in a list, an array, a series or a tensor of them, as a list."""
    try:
        plain = listed(name, value)
        given = entries(name, plain) if isinstance(plain, Iterable) else (plain,)
        return [whole_number(name, each) for each in given]
    except InputError:
        raise InputError(f"{name} must be one or more whole numbers, got {describe(value)}.") from None


def batch_shape(value: Any) -> torch.Size:
    """Return the batch shape of a kernel or a likelihood."""
    return torch.Size(size("batch_shape", each, least=0) for each in entries("batch_shape", value))


def precision(name: str, value: Any) -> torch.dtype:
    """Return ``value`` if it is the dtype of double or single precision."""
    if not isinstance(value, torch.dtype) or value not in REACH:
        raise InputError(f"{name} must be torch.float64 or torch.float32, got {shown(value)}.")
    return value


def real_numbers(name: str, value: Any) -> Tensor | np.ndarray:
    """Return real numbers in any form: dense tensors as they are, without gradients, all else as a NumPy array.

    Numbers are those of Python, NumPy, ``fractions`` and ``decimal``, one or in arrays, lists, series or data frames.
    Truth values are 0 and 1. What is in single precision stays so; all else is in double precision.
    """
    if isinstance(value, Tensor):
        in_memory(name, value)
        if value.is_complex():
            raise InputError(f"{name} must have a dtype of real numbers, got {describe(value)}.")
        return value.detach()
    if isinstance(value, float):
        return np.array(float(value))
    hint = f"{name} must be real numbers: one, or a list, array, series, data frame or tensor of them"
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{hint}; got a masked array: give what is not masked.")
    array = _array(name, value)
    if array is None or array.dtype.kind not in "biufO":
        raise InputError(f"{hint}; got {describe(value)}.")
    if array.dtype.kind == "O":
        plain = [int(each) if isinstance(each, bool) else each for each in map(scalar, array.flat)]
        if wrong := [each for each in plain if not isinstance(each, (Real, Decimal))]:
            raise InputError(f"{hint}; got {describe(wrong[0])}.")
        return np.array([number(name, each) for each in plain], dtype=float).reshape(array.shape)
    with np.errstate(over="ignore"):
        return array.astype(np.float32 if array.dtype.type is np.float32 else np.float64)


def _array(name: str, value: Any) -> np.ndarray | None:
    """Return what is no tensor as an array of anything; None if it is neither one value nor several in rows."""
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, list, tuple)):
        value = list(value) if len(value) <= LARGEST_SIZE else None
    several = isinstance(value, (list, tuple)) or hasattr(value, "shape")
    if (hasattr(value, "__len__") and not several) or _is_deep(value):
        return None
    for take in (np.asarray, lambda given: np.array(_plain(name, given))):
        try:
            array = take(value) if several else np.array(value, dtype=object)
        except InputError:
            raise
        except Exception:  # tensors with gradients, lists whose lengths differ; other classes may raise what they like
            continue
        return None if array.size > _MOST_EXPANDED and 0 in array.strides else array
    return None


def _is_deep(value: Any) -> bool:
    """Say whether lists, followed along their first entries, as arrays have them all of one depth, find no end."""
    for _ in range(_DEEPEST):
        if not isinstance(value, (list, tuple)) or not value:
            return False
        value = value[0]
    return True


def _plain(name: str, value: Any) -> Any:
    """Return what is in lists with tensors as lists."""
    if isinstance(value, Tensor):
        return real_numbers(name, value).tolist()
    return [_plain(name, each) for each in value] if isinstance(value, (list, tuple)) else value


def in_memory(name: str, value: Tensor) -> None:
    """Refuse tensors without dense numbers of their own: sparse, nested, meta, quantized and expanded ones."""
    if value.is_nested or value.is_meta or value.layout != torch.strided or value.is_quantized:
        hint = f"convert a sparse one with {name}.to_dense(), and give rows of equal length"
        raise InputError(f"{name} must be a plain tensor of numbers in memory, got {describe(value)}: {hint}.")
    if value.numel() > _MOST_EXPANDED and 0 in value.stride():
        raise InputError(f"{name} must have its own numbers, got {describe(value)} expanded from fewer.")


def floating_tensor(name: str, value: Any, like: Tensor | None = None) -> Tensor:
    """Return numbers as a tensor in double or single precision; factorisations need no less.

    A tensor must be that. All else is converted, see ``real_numbers``, to the dtype and the device of ``like``.
    """
    if not isinstance(value, Tensor):
        if value is None:
            raise InputError(f"{name} is missing: give numbers, as a tensor, an array or a list.")
        numbers = torch.tensor(real_numbers(name, value))
        return numbers if like is None else numbers.to(like)
    in_memory(name, value)
    if value.dtype not in REACH:
        hint = "a floating dtype, float64 or float32"
        raise InputError(f"{name} must have {hint}, got {value.dtype}; convert it with {name}.double().")
    return value


def rows(name: str, value: Any, *, dimension: int | None = None, like: Tensor | None = None) -> Tensor:
    """Return rows (..., n, d) of numbers, which may not be finite, of ``dimension`` columns and ``like``'s dtype."""
    value = floating_tensor(name, value, like)
    shape = value.shape
    if len(shape) < 2:
        hint = f"got {describe(value)}. A single point is {name}.reshape(1, -1)"
        raise InputError(f"{name} must have a row for each point and a column for each input, shape (n, d); {hint}.")
    if shape[-1] == 0:
        raise InputError(f"{name} must have at least one column, got {describe(value)}.")
    if dimension is not None and shape[-1] != dimension:
        raise InputError(f"{name} must have d = {dimension} columns, got {describe(value)}.")
    is_alike = like is None or (value.dtype == like.dtype and value.device == like.device)
    return value if is_alike else same_kind(name, value, like)  # pyright: ignore[reportArgumentType]


def points(name: str, value: Any, *, dimension: int | None = None, like: Tensor | None = None) -> Tensor:
    """Return points (..., n, d) within reach as a tensor, of ``dimension`` columns and ``like``'s dtype if given."""
    return within_reach(name, rows(name, value, dimension=dimension, like=like))


def listed_points(name: str, value: Any, *, least: int = 1, **fits: Any) -> Tensor:
    """Return points (n, d), at least so many, as a tensor; the rest as in ``points``."""
    found = points(name, value, **fits)
    if found.dim() != 2 or len(found) < least:
        raise InputError(f"{name} must be (n, d){f' with n >= {least}' if least else ''}, got {describe(found)}.")
    return found


def same_kind(name: str, value: Tensor, like: Tensor) -> Tensor:
    """Return ``value`` if it has the dtype and the device of ``like``."""
    if value.dtype != like.dtype or value.device != like.device:
        got = f"got {value.dtype} on {value.device}; convert it with {name}.to({like.dtype})"
        raise InputError(f"{name} must have dtype {like.dtype} on {like.device} like the rest of the data, {got}.")
    return value


def within_reach(name: str, value: Tensor) -> Tensor:
    """Return coordinates of points if they are finite, and not so large that a posterior would not be."""
    largest = value.detach().abs().amax().item() if value.numel() else 0.0
    if not largest <= (reach := REACH[value.dtype]):
        finite(name, value)
        hint = "kernels square inputs, which overflow. Give it in another unit."
        raise InputError(f"{name} must be within ±{reach:g}, got {largest:g}: {hint}")
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """Return ``value`` if no entry is NaN or infinite."""
    if not all_finite(value):
        bad = (~torch.isfinite(value)).nonzero()
        number, first = f"{len(bad)} of {value.numel()}", tuple(bad[0].tolist())
        raise InputError(f"{name} must be finite: {number} entries are NaN or infinite, the first at index {first}.")
    return value


def all_finite(values: Tensor) -> bool:
    """Say whether no entry is NaN or infinite."""
    if values.numel() == 1:
        return math.isfinite(values.item())
    # A sum is finite only if all of it is; where it overflows, the entries are checked.
    return math.isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def precise_times(times: Tensor) -> None:
    """Refuse times in single precision that are so large that it leaves out whole numbers, such as dates."""
    if times.dtype == torch.float32 and times.numel() and float(largest := times.detach().abs().max()) >= 2**24:
        step = float(largest.nextafter(largest.new_tensor(torch.inf)) - largest)
        advice = "give points that know the time in double precision, or count time from a later origin"
        raise InputError(f"Times up to {float(largest):.10g} are {step:g} apart in single precision: {advice}.")


def bounds(value: Any) -> Tensor:
    """Return finite lower and upper bounds as a tensor (2, d), lower below upper."""
    value = floating_tensor("bounds", value)
    if value.dim() != 2 or value.shape[0] != 2 or value.shape[1] == 0:
        raise InputError(f"bounds must have shape (2, d): lower bounds, then upper bounds; got {describe(value)}.")
    within_reach("bounds", value)
    if upside_down := (value[0] >= value[1]).nonzero().flatten().tolist():
        got = f"lower {value[0, upside_down].tolist()}, upper {value[1, upside_down].tolist()}"
        raise InputError(f"every lower bound must be below its upper bound; not so in column(s) {upside_down}: {got}.")
    return value

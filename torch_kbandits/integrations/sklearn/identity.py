"""What a search is given, in words that are the same in every process: so one that is resumed can be told from another.

Only what can be compared is described; nothing can be made again from it.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import joblib
import numpy as np
import torch

from torch_kbandits.bandit.settings import describe_value

#: Kinds of NumPy arrays whose bytes are their content.
_BYTES = "biufcSU"


def described(value: Any) -> str:
    """Return words for a setting: an estimator's parameters, a function's name, a digest of what is large."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {described(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(described, value)) + "]"
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return described_data(value)
    if hasattr(value, "__module__") and hasattr(value, "__qualname__"):  # a class or a function
        return f"{value.__module__}.{value.__qualname__}"
    name = type(value).__qualname__
    if hasattr(value, "get_params"):
        parts = (f"{word}={described(part)}" for word, part in value.get_params(deep=False).items())
        return f"{name}({', '.join(parts)})"
    if isinstance(value, torch.nn.Module) or dataclasses.is_dataclass(value):
        config: dict[str, Any] = {}
        describe_value(name, value, config)
        return repr(config)
    try:
        return f"{name} {joblib.hash(value)}"
    except Exception:  # pickling raises many kinds
        return name


def classes_in(value: Any) -> Any:
    """Return a setting with classes in place of estimators, of which ``get_params`` lists the parameters as well."""
    if isinstance(value, (list, tuple)):
        return [classes_in(part) for part in value]
    return type(value) if hasattr(value, "get_params") and not isinstance(value, type) else value


def described_data(value: Any) -> str:
    """Return the shape of data, and a digest where it is an array or a frame of numbers."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    shape = tuple(getattr(value, "shape", (len(value),) if hasattr(value, "__len__") else ()))
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.shape == shape and array.dtype.kind in _BYTES:
            return f"{shape} {array.dtype} {digest([array])}"
    return f"{type(value).__name__} of {shape}"


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a digest of the shapes, kinds and numbers of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype.str} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]

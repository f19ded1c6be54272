"""Calls that nothing disturbs: neither other threads nor the modes and the device that torch is in."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import wraps
from types import FunctionType
from typing import Any, Self

import torch

from torch_kbandits.numerics.random import Lock

_NOTHING = nullcontext()


class Undisturbed:
    """An object whose public methods and properties run one at a time, and always in torch's usual modes.

    So several threads see the calls in some order, and what a call computes is the same, and can be changed and
    differentiated later, under ``torch.no_grad``, ``torch.inference_mode`` or another default device. Subclasses get
    this for what they define or override; a call may make others. A copy, shallow or deep, is independent.
    """

    _lock: Lock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return an object with a lock of its own, before anything else is known of it."""
        self = super().__new__(cls)
        self._lock = Lock()
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, member in list(vars(cls).items()):
            if name.startswith("_") and name != "__init__":
                continue
            if isinstance(member, FunctionType):
                setattr(cls, name, _undisturbed(member))
            elif isinstance(member, property) and member.fget is not None:
                setattr(cls, name, member.getter(_undisturbed(member.fget)))
            elif isinstance(member, classmethod):
                setattr(cls, name, classmethod(_undisturbed(member.__func__)))

    def __copy__(self) -> Self:
        return deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._lock.held:
            other = memo[id(self)] = type(self).__new__(type(self))
            other.__dict__.update(deepcopy(vars(self), memo))
            return other


def _undisturbed(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Undisturbed | type[Undisturbed], *args: Any, **kwargs: Any) -> Any:
        with self._lock.held if isinstance(self, Undisturbed) else _NOTHING:
            if torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not _has_torch_modes():
                return method(self, *args, **kwargs)
            # What says no device is on the CPU; the context that sees to it slows every call of torch.
            device = _NOTHING if torch.get_default_device().type == "cpu" else torch.device("cpu")
            with torch.inference_mode(False), torch.enable_grad(), device:
                return method(self, *args, **kwargs)

    return call


def _has_torch_modes() -> bool:
    """Say whether anything may change what torch's functions do, as a default device does."""
    return torch._C._len_torch_function_stack() > 0

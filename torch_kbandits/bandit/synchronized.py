"""Calls that nothing disturbs: neither other threads nor the modes and the device that torch is in."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import torch

T = TypeVar("T")
_NOTHING = nullcontext()


def synchronized(kind: type[T]) -> type[T]:
    """Make the public methods and properties that a class defines run one at a time, always in torch's usual modes.

    So several threads see the calls in some order, and what a call computes is the same, and can be changed and
    differentiated later, under ``torch.no_grad``, ``torch.inference_mode`` or another default device. A call may make
    others. Objects have a ``Lock``, ``_lock``.
    """
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, FunctionType):
            setattr(kind, name, _synchronized(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, member.getter(_synchronized(member.fget)))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(_synchronized(member.__func__)))
    return kind


def _synchronized(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _NOTHING if isinstance(self, type) else self._lock.held:
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

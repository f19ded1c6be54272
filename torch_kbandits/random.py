"""What makes results depend on their inputs alone: draws with an address, and calls that nothing disturbs."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import wraps
from threading import RLock
from types import FunctionType
from typing import Any, Self

import torch


def seed_for(seed: int, round: int, purpose: str) -> int:
    """Return the 63-bit seed of the draw made by ``seed`` in ``round`` for ``purpose``."""
    address = f"{seed}/{round}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "big") >> 1


def generator_for(seed: int, round: int, purpose: str) -> torch.Generator:
    """Return a fresh CPU generator for the draw made by ``seed`` in ``round`` for ``purpose``.

    Two calls with equal arguments return generators in the same state; calls that differ in any argument return
    unrelated ones. So the randomness of a round depends on nothing that happened in other rounds.
    """
    return torch.Generator().manual_seed(seed_for(seed, round, purpose))


class Lock:
    """A reentrant lock. Copies, pickles and forked processes have one of their own, which nobody holds."""

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __reduce__(self) -> tuple[type["Lock"], tuple[()]]:
        return Lock, ()

    @property
    def held(self) -> Any:
        """What a ``with`` statement takes. The lock itself, whose release no interrupt can come before."""
        if self._process != os.getpid():  # of another thread that held it there is no trace here
            Lock.__init__(self)
        return self._lock


#: Held by the thread that has seeded torch's global generators.
_SEEDED = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators for what knows no others, in one thread at a time, and put them back after."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _SEEDED.held, torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield


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
            vars(other).update(deepcopy(vars(self), memo))
            return other


def _undisturbed(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Undisturbed | type[Undisturbed], *args: Any, **kwargs: Any) -> Any:
        lock = self._lock.held if isinstance(self, Undisturbed) else nullcontext()
        # What says no device is on the CPU; the context that sees to it slows every call of torch, so only if need be.
        device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
        with lock, torch.inference_mode(False), torch.enable_grad(), device:
            return method(self, *args, **kwargs)

    return call

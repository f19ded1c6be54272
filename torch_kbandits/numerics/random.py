"""What makes results depend on their inputs alone: draws with an address, ties broken, global generators on loan."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor

#: By which share of their scale scores may differ and be equal but for rounding.
ROUNDING_SHARE = {dtype: torch.finfo(dtype).eps ** (2 / 3) for dtype in (torch.float64, torch.float32)}


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


def tie_width(best: Tensor, beta: Tensor, kernel_bound: Tensor) -> Tensor:
    """Return by how much a score may lie below the best one and be its equal but for rounding, 0-dim.

    Args:
        best: the highest score, 0-dim.
        beta: the multiplier of σ, which sets the scale of rounding, 0-dim.
        kernel_bound: the largest prior variance, 0-dim.
    """
    return ROUNDING_SHARE[kernel_bound.dtype] * torch.maximum(best.abs(), beta * kernel_bound.sqrt())


def highest(scores: Tensor, ranks: Tensor, width: Tensor, best: Tensor | None = None) -> Tensor:
    """Return the position of the highest score (A,); of those within ``width`` of it, that of the largest rank (A,).

    Which score that is, 0-dim, may be known. Returned as (1,), for which nobody has waited.
    """
    least = (scores.max() if best is None else best) - width
    return ranks.masked_fill(scores < least, -1.0).argmax().reshape(1)


def tie_rank(num_arms: int, seed: int) -> Tensor:
    """Return the order in which a bandit of this seed breaks ties between its arms, (A,)."""
    return torch.rand(num_arms, generator=generator_for(seed, 0, "ties"), dtype=torch.float32, device="cpu")


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

"""How fast this process reads memory: what a pass over an embedding costs at least."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

#: Bytes of the tensor that no cache holds.
_BEYOND_CACHE = 2**30


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second that a streaming read reaches, with the threads in force.

    The sum of a tensor is taken as the read: of sum, dot product, product with a vector, norm and maximum it was the
    fastest at all sizes tried.

    Attributes:
        memory: of a tensor far larger than the last-level cache.
        num_bytes: size of the embedding at hand.
        at_hand: of a tensor of that size read again and again. It is larger where a cache holds the tensor.
        threads: torch's threads.
    """

    memory: float
    num_bytes: int
    at_hand: float
    threads: int

    def memory_ms(self, num_bytes: float) -> float:
        """Return the milliseconds of a read that comes from memory."""
        return 1e3 * num_bytes / self.memory

    def at_hand_ms(self, num_bytes: float) -> float:
        """Return the milliseconds of a read at the rate of the embedding at hand."""
        return 1e3 * num_bytes / self.at_hand

    def measurement(self) -> dict[str, Any]:
        """Return the numbers, JSON-able."""
        return {"what": "bandwidth", **asdict(self)}


def measure_bandwidth(num_bytes: int, *, beyond_cache: int = _BEYOND_CACHE, repeats: int = 9) -> Bandwidth:
    """Time sums of double tensors, one of ``num_bytes`` and one of ``beyond_cache`` bytes; the fastest of each counts.

    Cost: allocates both tensors, one at a time.
    """
    at_hand = _read_rate(num_bytes, 3 * repeats)
    return Bandwidth(_read_rate(beyond_cache, repeats), num_bytes, at_hand, torch.get_num_threads())


def _read_rate(num_bytes: int, repeats: int) -> float:
    values = torch.ones(max(1, num_bytes // 8), dtype=torch.float64)
    values.sum()
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        values.sum()
        fastest = min(fastest, time.perf_counter() - start)
    return 8 * len(values) / fastest

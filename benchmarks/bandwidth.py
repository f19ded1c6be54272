"""What a pass over an embedding costs at least: how fast this process reads memory, and multiplies a matrix."""

import statistics
import time
from collections.abc import Callable

import torch

#: Bytes of a tensor that no cache holds.
BEYOND_CACHE = 2**30


def read_rate(num_bytes: int = BEYOND_CACHE, repeats: int = 9) -> float:
    """Return the bytes a second of the fastest of some streaming reads, with torch's threads in force.

    The sum of a tensor of doubles is taken as the read: of sum, dot product, product with a vector, norm and maximum it
    was the fastest at all sizes tried.
    """
    values = torch.ones(max(1, num_bytes // 8), dtype=torch.float64)
    return 8 * len(values) / min(_seconds(values.sum, repeats))


def product_ms(rows: int, columns: int, dtype: torch.dtype = torch.float64, repeats: int = 51) -> float:
    """Return the median milliseconds of a matrix times a vector (gemv), again and again.

    The matrix lies row by row; where a cache holds it, it is read from there.
    """
    matrix, vector = torch.ones(rows, columns, dtype=dtype), torch.ones(columns, dtype=dtype)
    return 1e3 * statistics.median(_seconds(lambda: torch.mv(matrix, vector), repeats))


def _seconds(call: Callable[[], object], repeats: int) -> list[float]:
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds

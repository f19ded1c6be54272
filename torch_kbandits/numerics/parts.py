"""Loops over many rows in parts, by as many threads as PyTorch computes with."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import torch

#: Numbers that a loop reads below which another thread is woken up later than one is done.
_WORTHWHILE = 2**20


def in_parts(loop: Callable[..., Any], number: int, cost: int, *arguments: Any) -> None:
    """Call a loop with a first row, the one after the last, and arguments: on parts of all rows at once if that helps.

    Args:
        loop: what it does to a row does not depend on the others, so that the result is the same for any parts.
        number: of rows.
        cost: numbers that it reads in all.
        arguments: it writes into.
    """
    threads = torch.get_num_threads() if cost >= _WORTHWHILE else 1
    if threads == 1:
        loop(0, number, *arguments)
        return
    borders = [number * part // threads for part in range(threads + 1)]
    workers = _workers()
    futures = [workers.submit(loop, *pair, *arguments) for pair in pairwise(borders[1:])]
    try:
        loop(0, borders[1], *arguments)
    finally:
        wait(futures)  # so that after an interrupt nobody goes on writing
    for future in futures:
        future.result()


def _workers() -> ThreadPoolExecutor:
    """Return threads of this process, which a forked one has none of."""
    process = os.getpid()
    if process not in _pools:
        _pools[process] = ThreadPoolExecutor(max(os.cpu_count() or 1, 2), "torch_kbandits")
    return _pools[process]


_pools: dict[int, ThreadPoolExecutor] = {}

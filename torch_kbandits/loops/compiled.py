"""Loops as machine code, by Numba, in place of many small calls of PyTorch."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar, cast

import numba
import torch
from numba.core import event
from numba.extending import register_jitable
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

#: What compilers may do to sums, so that they use vector registers. NaN and infinities keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}

#: How loops are compiled.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _REORDERED, "no_cfunc_wrapper": True}

#: Of more values than this PyTorch computes what is done to each alone: it has threads.
_FEW = 2**14

#: Numbers that a loop reads below which another thread is woken up later than one is done.
_WORTHWHILE = 2**20


def on_cpu_without_grad(*tensors: Tensor) -> bool:
    """Say whether loops are to compute what concerns these tensors: on a CPU, without gradients."""
    for tensor in tensors:  # noqa: SIM110 as a generator it takes twice as long, and each round asks often
        if not tensor.is_cpu or tensor.requires_grad:
            return False
    return True


def loops_over_each(values: Tensor, *others: Tensor) -> bool:
    """Say whether loops go over values (n,), given whatever else enters: few, and in double precision."""
    return values.dtype == torch.float64 and values.shape[0] <= _FEW and on_cpu_without_grad(values, *others)


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of NumPy arrays and numbers as machine code, compiled when it is called first.

    Numba keeps the code beside the module, in the user's cache folder or in ``NUMBA_CACHE_DIR``; nowhere if none can be
    written to. Other threads run meanwhile. A module's code is compiled again when that module changes, so a loop calls
    loops of its own module alone.

    What takes long to compile: to assign an array to a part of another (a second each, for the errors that it may
    raise; a loop over numbers takes a tenth), and constants as arguments, each of which is compiled for on its own.
    """
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is no such folder
        dispatcher = numba.njit(**_OPTIONS)(function)
    return cast(Callable[P, T], dispatcher)


#: Makes a function a part of the loops that call it; nobody else does.
compiled_within = register_jitable(**_OPTIONS)


def in_parts(loop: Callable[..., Any], number: int, cost: int, *arguments: Any) -> None:
    """Call a loop with a first row, the one after the last, and what it writes into: on parts of all rows at once.

    What it does to a row does not depend on the others, so the result is the same for any parts. There is one part
    alone where ``cost``, how many numbers it reads in all, is low.
    """
    threads = torch.get_num_threads() if cost >= _WORTHWHILE else 1
    if threads == 1:
        loop(0, number, *arguments)
        return
    borders = [number * part // threads for part in range(threads + 1)]
    workers = _workers(os.getpid())
    futures = [workers.submit(loop, *pair, *arguments) for pair in pairwise(borders[1:])]
    try:
        loop(0, borders[1], *arguments)
    finally:
        wait(futures)  # so that after an interrupt nobody goes on writing
    for future in futures:
        future.result()


@cache
def _workers(process: int) -> ThreadPoolExecutor:
    """Return threads of a process, of which a forked one has none."""
    return ThreadPoolExecutor(max(os.cpu_count() or 1, 2), "torch_kbandits")


class _Announcement(event.Listener):
    """Says once, when a loop is compiled first, why this call takes longer."""

    was_made = False

    def on_start(self, event: Any) -> None:
        """Say it."""
        is_ours = event.data["dispatcher"].py_func.__module__.startswith("torch_kbandits.")
        if is_ours and not self.was_made and sys.stderr is not None and sys.stderr.isatty():
            self.was_made = True
            sys.stderr.write("torch_kbandits compiles its loops for this processor, once: some seconds.\n")

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", _Announcement())

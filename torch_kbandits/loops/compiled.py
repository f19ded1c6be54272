"""Loops as machine code, by Numba, in place of many small calls of PyTorch."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import torch
from numba.core import event
from numba.extending import register_jitable
from torch import Tensor

from torch_kbandits.version import __version__

P = ParamSpec("P")
T = TypeVar("T")

#: What compilers may do to sums, so that they use vector registers. NaN and infinities keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}

#: How loops are compiled.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": _REORDERED,
    "no_cfunc_wrapper": True,
}

#: Of more values than this PyTorch computes what is done to each alone: it has threads.
_FEW = 2**14

#: Numbers that a loop reads below which another thread is woken up later than one is done.
_WORTHWHILE = 2**20


def on_cpu_without_grad(*tensors: Tensor) -> bool:
    """Say whether what concerns these tensors is to be computed by loops: on a CPU, without gradients."""
    for tensor in tensors:  # noqa: SIM110 as a generator it takes twice as long, and each round asks often
        if not tensor.is_cpu or tensor.requires_grad:
            return False
    return True


def loops_over_each(values: Tensor, *others: Tensor) -> bool:
    """Say whether loops go over values (n,), given whatever else enters: few, and in double precision."""
    return values.dtype == torch.float64 and values.shape[0] <= _FEW and on_cpu_without_grad(values, *others)


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of NumPy arrays and numbers as machine code, compiled when it is called first.

    The code is kept in the user's cache folder (or in that of ``NUMBA_CACHE_DIR``), by processor and by the text of all
    loops; nowhere if it cannot be written to. Other threads run meanwhile. Modules of loops are named ``*loops.py``.

    What takes long to compile: to assign an array to a part of another (a second each, for the errors that it may
    raise; a loop over numbers takes a tenth), and constants as arguments, each of which is compiled for on its own.
    """
    config = cast(Any, numba).config
    before, config.CACHE_DIR = config.CACHE_DIR, str(_FOLDER or "")  # which Numba reads now, for this function
    try:
        dispatcher = numba.njit(cache=_FOLDER is not None, **_OPTIONS)(function)
    finally:
        config.CACHE_DIR = before
    _ours.add(id(dispatcher))
    return cast(Callable[P, T], dispatcher)


def compiled_within(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that becomes a part of the loops that call it, and is kept with them.

    It is left as it is, so that nothing is compiled that would read objects of Python.
    """
    return register_jitable(**_OPTIONS)(function)


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


def _cache_folder() -> Path | None:
    """Return where machine code of just these loops is kept; None where there is no such place."""
    given = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    given = cast(Any, numba).config.CACHE_DIR or given
    usual = {"win32": "~/AppData/Local", "darwin": "~/Library/Caches"}.get(sys.platform, "~/.cache")
    # Numba looks at the file of a function alone, and loops call loops of other files.
    spec = find_spec(__name__.partition(".")[0])
    package, digest = Path(cast(str, cast(Any, spec).origin)).parent, sha256()
    for path in sorted(package.rglob("*loops.py")):
        digest.update(path.read_bytes())
    try:
        root = Path(given) if given else Path(usual).expanduser()
        folder = root / "torch_kbandits" / f"{__version__}-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it cannot be written to, or nobody has a home
        return None
    return folder


class _Announcement(event.Listener):
    """Says once, when a loop is compiled first, why this call takes longer."""

    def __init__(self) -> None:
        self._was_made = False

    def on_start(self, event: Any) -> None:
        """Say it."""
        if self._was_made or id(event.data["dispatcher"]) not in _ours:
            return
        self._was_made = True
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write("torch_kbandits compiles its loops for this processor, once: some seconds.\n")

    def on_end(self, event: Any) -> None:
        """Do nothing."""


_FOLDER = _cache_folder()
_pools: dict[int, ThreadPoolExecutor] = {}
_ours: set[int] = set()
event.register("numba:compile", _Announcement())

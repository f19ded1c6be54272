"""What a thread of its own computes while the bandit goes on."""

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Background(Generic[T]):
    """What a thread computes of values that nobody changes. The interpreter waits for it where it ends.

    A copy, also one that was pickled, is None: whoever goes on with it begins again. ``left`` is how much there was to
    do, by which the next computation knows whether the last one was of use.
    """

    def __init__(self, compute: Callable[[], T], left: float) -> None:
        self.left, self._found = left, list[T | Exception]()
        words = compute, torch.get_num_threads()
        self._thread = Thread(target=self._run, args=words, name="torch_kbandits")
        try:
            self._thread.start()
        except RuntimeError:  # none can be started, as where the interpreter ends
            self._run(*words)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is computed."""
        return not self._thread.is_alive()

    def taken(self) -> T | Exception | None:
        """Return what was computed, or the error, once, since who goes on writes behind it; else, or forked, None."""
        return self._found.pop() if self._found else None

    def _run(self, compute: Callable[[], T], threads: int) -> None:
        torch.set_num_threads(1)  # of this thread: the other cores are for those that go on
        try:
            self._found.append(compute())
        except Exception as error:
            self._found.append(error)
        finally:
            torch.set_num_threads(threads)  # with which threads begin that are started later

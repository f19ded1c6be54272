"""Requests wait their turn: one thread computes, another waits for the disk, and the event loop stays free."""

import asyncio
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from torch_kbandits.serving.refusals import BusyError
from torch_kbandits.serving.service import Service

#: Requests that may wait or be carried out at a time.
MOST_WAITING = 128
#: Latest answers of an operation from which quantiles of its latency are taken.
_MEASURED = 1000


class Queue:
    """What stands between an event loop and a service.

    While the disk is waited for, the next request is carried out; what comes to wait meanwhile goes to the disk in one.

    Args:
        service: whose methods are called in the threads of the queue alone.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._worker = ThreadPoolExecutor(1, "kbandits-bandit")
        self._saver = ThreadPoolExecutor(1, "kbandits-disk")
        self._waiting = 0
        self._seconds: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}

    async def answer(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, once it is saved; see ``Service.perform``.

        Raises:
            BusyError: if too many wait.
        """
        if self._waiting >= MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} requests wait already: try again after a moment.")
        self._waiting += 1
        try:
            start, loop = perf_counter(), asyncio.get_running_loop()
            found, position = await loop.run_in_executor(self._worker, self.service.perform, operation, request)
            if not self.service.journal.is_durable:
                await loop.run_in_executor(self._saver, self.service.wait, position)
            self._counts[operation] = self._counts.get(operation, 0) + 1
            self._seconds.setdefault(operation, deque(maxlen=_MEASURED)).append(perf_counter() - start)
            return found
        finally:
            self._waiting -= 1

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return of each operation how many were answered, and the seconds that the latest took: p50 and p99."""
        found = {}
        for operation, seconds in self._seconds.items():
            ranked = sorted(seconds)
            quantiles = {f"p{share}": ranked[-(-len(ranked) * share // 100) - 1] for share in (50, 99)}
            found[operation] = {"count": self._counts[operation], **quantiles}
        return found

    def close(self) -> None:
        """Let all that waits be carried out, then save the bandit whole."""
        self._worker.shutdown()
        self._saver.shutdown()
        self.service.close()

"""Requests a second and latencies of ``kbandits serve``, beside the same bandit in this process."""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.runner import ROOT, Found, Measurement, Table, benchmark
from torch_kbandits import Bandit
from torch_kbandits.algorithms import BKB, IGPUCB


@benchmark(arms=50, clients=(1, 2), arm_rounds=8, box_rounds=4, warm_up=2)
def serving(
    arms: int = 1000,
    clients: tuple[int, ...] = (1, 4, 16),
    arm_rounds: int = 1600,
    box_rounds: int = 96,
    warm_up: int = 16,
) -> Found:
    """Play each bandit in this process, then with servers and clients, who share the rounds after the warm-up."""
    words: dict[str, Any] = {"regularization": REGULARIZATION, "beta": BETA, "seed": 0, "kernel": kernel(0.3)}
    box = torch.stack([torch.zeros(2), torch.ones(2)]).double()
    points = torch.rand(arms, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    served: dict[str, tuple[Callable[[], Bandit], int]] = {
        "BKB on arms": (lambda: BKB(candidates=points, **words), arm_rounds),
        "IGP-UCB on a box": (lambda: IGPUCB(bounds=box, **words), box_rounds),
    }
    found = list[Measurement]()
    with tempfile.TemporaryDirectory() as scratch:
        for name, number in tqdm([(name, number) for name in served for number in (0, *clients)], "serving"):
            make, rounds = served[name]
            path = Path(scratch) / f"{name}-{number}.kb"
            found.append({"bandit": name, "clients": number} | _served(make(), path, number, rounds, warm_up))
    return [_requests(found)], found


def reward(action: list[float]) -> float:
    """A wave, the same at the same point."""
    return sum((0.3 - x) * (x - 0.8) for x in action)


# ---------------------------------------------------------------- rounds


def _served(bandit: Bandit, path: Path, clients: int, rounds: int, warm_up: int) -> Measurement:
    """Return what rounds take: in this process for no clients, else of clients that share them, of a server."""
    if not clients:
        _play(bandit, warm_up)
        start = time.perf_counter()
        asks, tells = _play(bandit, rounds)
        return {"seconds": time.perf_counter() - start, "asks": asks, "tells": tells}
    bandit.save(path)
    with _server(path) as port:
        _clients(port, 1, warm_up)
        before, start = _health(port), time.perf_counter()
        asks, tells = _clients(port, clients, rounds)
        seconds, after = time.perf_counter() - start, _health(port)
    journal = {name: after["journal"][name] - before["journal"][name] for name in ("bytes", "syncs", "sync_seconds")}
    return {"seconds": seconds, "asks": asks, "tells": tells} | journal


def _play(bandit: Bandit, rounds: int) -> tuple[list[float], list[float]]:
    asks, tells = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        asked = bandit.ask(details=True)
        middle = time.perf_counter()
        y = reward(asked.x[0].tolist())
        again = time.perf_counter()
        bandit.tell(ids=asked.ids, y=y)
        asks.append(middle - start)
        tells.append(time.perf_counter() - again)
    return asks, tells


def _clients(port: int, number: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each ask and of each tell of clients that play so many rounds together."""
    asks: list[float] = []
    tells: list[float] = []

    def client(which: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for each in range(which, rounds, number):
            asked = _timed(connection, "/ask", {"key": f"{rounds}-{each}"}, asks)
            _timed(connection, "/tell", {"ids": asked["ids"], "y": reward(asked["actions"][0])}, tells)
        connection.close()

    threads = [threading.Thread(target=client, args=(which,)) for which in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return asks, tells


def _timed(connection: http.client.HTTPConnection, path: str, words: dict[str, Any], seconds: list[float]) -> Any:
    start = time.perf_counter()
    connection.request("POST", path, json.dumps(words), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.load(response)
    seconds.append(time.perf_counter() - start)
    if response.status != 200:
        raise RuntimeError(answer)
    return answer


def _health(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/health")
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


@contextmanager
def _server(path: Path) -> Iterator[int]:
    """Serve a file from another process, and yield the port."""
    command = [sys.executable, "-m", "torch_kbandits.cli", "serve", str(path), "--port", "0"]
    command += ["--compact-after", "1000000"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r":(\d+)$", process.stdout.readline()) if process.stdout is not None else None
            if found is None:
                raise RuntimeError("the server did not start")
            yield int(found[1])
        finally:
            process.terminate()


# ---------------------------------------------------------------- tables


def _requests(found: list[Measurement]) -> Table:
    rows = []
    for run in found:
        told, seconds, served = len(run["tells"]), run["seconds"], run["clients"] > 0
        quantiles = [f"{1e3 * _quantile(run[part], at):.2f}" for part in ("asks", "tells") for at in (0.5, 0.99)]
        disk = [""] * 3
        if served:
            disk = [
                f"{run['sync_seconds'] / seconds:.1%}",
                f"{2 * told / run['syncs']:.1f}",
                f"{run['bytes'] / told:.0f}",
            ]
        clients = str(run["clients"]) if served else "none, in process"
        rows.append([run["bandit"], clients, f"{2 * told / seconds:,.0f}", *quantiles, *disk])
    columns = ["bandit", "clients", "requests a second", "ask p50, ms", "ask p99", "tell p50, ms", "tell p99"]
    columns += ["waiting for the disk", "changes a wait", "bytes a round"]
    return Table("Rounds of an ask with a key and a tell by its id, each saved before it is answered", columns, rows)


def _quantile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))

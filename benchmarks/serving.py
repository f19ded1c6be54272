"""Requests a second and latencies of ``kbandits serve``, beside the same bandit in this process; what saving costs."""

import http.client
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.report import ROOT, Report, Table
from torch_kbandits import Bandit
from torch_kbandits.algorithms import BKB, IGPUCB
from torch_kbandits.candidates import Arms
from torch_kbandits.serving import Service
from torch_kbandits.serving.journal import Journal

_LENGTHSCALE = 0.3
_DIMENSION = 2


@dataclass(frozen=True)
class Sizes:
    """What is run: rounds of all clients together, after as many as warm the server up; rewards told before appends."""

    arms: int = 1000
    clients: tuple[int, ...] = (1, 4, 16)
    arm_rounds: int = 1600
    box_rounds: int = 96
    warm_up: int = 16
    told: tuple[int, ...] = (100, 10_000)
    appends: int = 200


QUICK = Sizes(arms=50, clients=(1, 2), arm_rounds=8, box_rounds=4, warm_up=2, told=(4, 8), appends=3)


def _arms(sizes: Sizes) -> Bandit:
    points = torch.rand(sizes.arms, _DIMENSION, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return BKB(candidates=points, kernel=kernel(_LENGTHSCALE), regularization=REGULARIZATION, beta=BETA, seed=0)


def _box(sizes: Sizes) -> Bandit:
    bounds = torch.stack([torch.zeros(_DIMENSION), torch.ones(_DIMENSION)]).double()
    return IGPUCB(bounds=bounds, kernel=kernel(_LENGTHSCALE), regularization=REGULARIZATION, beta=BETA, seed=0)


#: What is served, and how many rounds of it.
_SERVED: dict[str, tuple[Callable[[Sizes], Bandit], str]] = {
    "BKB on arms": (_arms, "arm_rounds"),
    "IGP-UCB on a box": (_box, "box_rounds"),
}


def run(quick: bool = False) -> Report:
    """Play each bandit in this process, then with servers and clients; then time what saving costs after histories."""
    sizes = QUICK if quick else Sizes()
    measurements: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        steps = [(name, clients) for name in _SERVED for clients in (0, *sizes.clients)]
        for name, clients in tqdm(steps, desc="serving", unit="run"):
            make, rounds = _SERVED[name]
            folder = Path(scratch) / f"{name}-{clients}"
            folder.mkdir()
            measured = _served(make(sizes), folder, clients, getattr(sizes, rounds), sizes.warm_up)
            measurements.append({"bandit": name, "clients": clients} | measured)
        appends = _appends(sizes, Path(scratch))
        saving = [
            _saving(sizes, told, Path(scratch)) | {"appends": each}
            for told, each in zip(sizes.told, appends, strict=True)
        ]
    return Report("serving", asdict(sizes), [_requests(measurements), _costs(saving)], measurements + saving)


def reward(action: list[float]) -> float:
    """A wave, the same at the same point."""
    return sum((0.3 - x) * (x - 0.8) for x in action)


# ---------------------------------------------------------------- rounds


def _served(bandit: Bandit, folder: Path, clients: int, rounds: int, warm_up: int) -> dict[str, Any]:
    """Return what rounds take: in this process for no clients, else of clients that share them, of a server."""
    if not clients:
        _play(bandit, warm_up)
        start = time.perf_counter()
        asks, tells = _play(bandit, rounds)
        return {"seconds": time.perf_counter() - start, "asks": asks, "tells": tells}
    bandit.save(folder / "bandit.kb")
    with _server(folder / "bandit.kb") as port:
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
        asked = bandit.ask(return_ids=True)
        middle = time.perf_counter()
        y = reward(asked.actions[0].tolist())
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


# ---------------------------------------------------------------- saving


def _saving(sizes: Sizes, told: int, scratch: Path) -> dict[str, Any]:
    """Return what appending, saving whole and starting again after a crash cost after so many rewards."""
    bandit, path, copy = _arms(sizes), scratch / f"told-{told}.kb", scratch / f"crashed-{told}.kb"
    rows = torch.randint(sizes.arms, (told,), generator=torch.Generator().manual_seed(1))
    X = cast(Arms, bandit.candidates).source.rows(rows)
    bandit.tell(X, [reward(x) for x in X.tolist()])
    bandit.save(path)
    service = Service.open(path, compact_after=10 * sizes.appends)
    before = service.journal.size
    for _ in range(sizes.appends):
        service.answer("tell", {"ids": service.answer("ask", {})["ids"], "y": 0.1})
    size = service.journal.size - before
    for ending in ("", ".journal"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    whole = _seconds(service.compact)
    service.close()
    start = _seconds(lambda: Service.open(copy).close())
    return {"told": told, "round": size / sizes.appends, "whole": whole, "start": start}


def _appends(sizes: Sizes, scratch: Path) -> list[list[float]]:
    """Return the seconds of bringing a change to the disk, behind so many; in turns, as others may use the disk."""
    journals = [Journal.open(_grown(scratch / f"journal-{told}", told))[0] for told in sizes.told]
    seconds: list[list[float]] = [[] for _ in journals]
    for number in range(sizes.appends):
        for journal, times in zip(journals, seconds, strict=True):
            times.append(_seconds(lambda: _saved(journal, number)))  # noqa: B023  (it is called at once)
    for journal in journals:
        journal.close()
    return seconds


def _saved(journal: Journal, number: int) -> None:
    journal.append({"op": "tell", "key": None, "request": {"ids": [number], "y": 0.1}})
    journal.commit(journal.position)


def _grown(path: Path, records: int) -> Path:
    """Return the file of a journal that has so many rewards already."""
    journal = Journal.create(path, {"op": "begin"})
    for number in range(records):
        journal.append({"op": "tell", "key": None, "request": {"ids": [number], "y": 0.1}})
    journal.commit(journal.position)
    journal.close()
    return path


def _seconds(what: Callable[[], Any]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


# ---------------------------------------------------------------- tables


def _requests(measurements: list[dict[str, Any]]) -> Table:
    rows = []
    for run in measurements:
        asks, tells, seconds = run["asks"], run["tells"], run["seconds"]
        told, served = len(tells), run["clients"] > 0
        rows.append(
            [
                run["bandit"],
                str(run["clients"]) if served else "none, in process",
                f"{2 * told / seconds:,.0f}",
                *(f"{1e3 * _quantile(part, share):.2f}" for part in (asks, tells) for share in (0.5, 0.99)),
                f"{run['sync_seconds'] / seconds:.1%}" if served else "",
                f"{2 * told / run['syncs']:.1f}" if served else "",
                f"{run['bytes'] / told:.0f}" if served else "",
            ]
        )
    columns = ["bandit", "clients", "requests a second", "ask p50, ms", "ask p99", "tell p50, ms", "tell p99"]
    columns += ["waiting for the disk", "changes a wait", "bytes a round"]
    return Table("Rounds of an ask with a key and a tell by its id, each saved before it is answered", columns, rows)


def _costs(saving: list[dict[str, Any]]) -> Table:
    rows = [
        [
            f"{each['told']:,}",
            f"{1e3 * _quantile(each['appends'], 0.5):.2f}",
            f"{1e3 * _quantile(each['appends'], 0.99):.2f}",
            f"{each['round']:.0f}",
            f"{1e3 * each['whole']:.1f}",
            f"{each['start']:.2f}",
        ]
        for each in saving
    ]
    columns = ["rewards told", "a change to the disk, p50, ms", "p99", "bytes a round", "saved whole, ms"]
    columns += ["start after a crash and stop, s"]
    return Table("What saving costs as the history grows: BKB on arms", columns, rows)


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]

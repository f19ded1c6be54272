"""A million arms on one and on two Ray workers beside one table in this process; what calls and bytes a round takes."""

import math
import pickle
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.report import Report, Table, spread
from torch_kbandits import Bandit
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import DictionaryRule, FixedDictionary, RidgeLeverageSampling
from torch_kbandits.extras import require
from torch_kbandits.integrations.ray import ShardedArms


@dataclass(frozen=True)
class Sizes:
    """What is run; shards are tried in each of these numbers."""

    arms: int = 1_000_000
    dimension: int = 6
    lengthscale: float = 0.5
    dictionary: int = 100
    rounds: int = 20
    counted: int = 5
    shards: tuple[int, ...] = (1, 2)
    called: tuple[int, ...] = (2, 16)
    called_arms: int = 2_000
    calls: int = 200


QUICK = Sizes(arms=2_000, dimension=2, dictionary=10, rounds=3, counted=2, called=(2,), called_arms=100, calls=3)

#: What happens to the dictionary in the rounds timed, and the rule by which it does.
STAYS, GROWS = "stays", "grows"


def run(quick: bool = False) -> Report:
    """Time rounds with one torch thread a process, first in this one and then on workers."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(0)
    arms = torch.rand(sizes.arms, sizes.dimension, generator=generator)
    measurements = []
    with _one_thread(), _ray(max(sizes.shards)):
        for dictionary in (STAYS, GROWS):
            measurements.append(_measure(Arms(arms), arms, dictionary, sizes))
            for number in sizes.shards:
                sharded = ShardedArms(arms, num_shards=number)
                measurements.append(_measure(sharded, arms, dictionary, sizes))
                sharded.close()
        calls = [_calls(arms[: sizes.called_arms], number, sizes) for number in sizes.called]
    tables = [_table(measurements, sizes), _table_of_calls(calls, sizes)]
    return Report("sharded_arms", asdict(sizes), tables, measurements + calls)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _ray(num_cpus: int) -> Iterator[None]:
    """Start a local Ray, unless there is one."""
    ray = require("ray", "ray")
    is_ours = not ray.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves files of its own open
        if is_ours:
            ray.init(
                "local", num_cpus=num_cpus, include_dashboard=False, object_store_memory=2**28, log_to_driver=False
            )
        try:
            yield
        finally:
            if is_ours:
                ray.shutdown()


def _rule(dictionary: str, arms: torch.Tensor, sizes: Sizes) -> DictionaryRule:
    if dictionary == STAYS:
        return FixedDictionary(arms[: sizes.dictionary])
    return RidgeLeverageSampling(3.0, "growth")


def _begun(candidates: Candidates, arms: torch.Tensor, dictionary: str, sizes: Sizes) -> tuple[Bandit, torch.Tensor]:
    """Return a bandit that was told of some arms, and what it asks for next."""
    bandit = Bandit(
        candidates=candidates,
        kernel=kernel(sizes.lengthscale, torch.float32),
        regularization=REGULARIZATION,
        dictionary=_rule(dictionary, arms, sizes),
        width=ConstantWidth(BETA),
        seed=0,
    )
    known = arms[: sizes.dictionary]
    bandit.tell(known, _rewards(known, 0))
    return bandit, bandit.ask()


def _calls(arms: torch.Tensor, number: int, sizes: Sizes) -> dict[str, Any]:
    """Time asks over few arms on so many workers."""
    cpus = max(sizes.shards) / number
    candidates = ShardedArms(arms, num_shards=number, num_cpus_per_shard=min(cpus, 1.0))
    bandit, x = _begun(candidates, arms, STAYS, sizes)
    result: dict[str, Any] = {"shards": number, "ask": [], "cpu": []}
    for turn in range(sizes.calls):
        bandit.tell(x, _rewards(x, turn))
        start, cpu = time.perf_counter(), time.process_time()
        x = bandit.ask()
        result["cpu"].append(time.process_time() - cpu)
        result["ask"].append(time.perf_counter() - start)
    candidates.close()
    return result


def _measure(candidates: Candidates, arms: torch.Tensor, dictionary: str, sizes: Sizes) -> dict[str, Any]:
    """Return the seconds of the rounds timed, and the bytes of those that come after."""
    start = time.perf_counter()
    bandit, x = _begun(candidates, arms, dictionary, sizes)
    set_up, seconds = time.perf_counter() - start, list[float]()
    before = _cpu_seconds(candidates)
    for number in range(sizes.rounds):
        y = _rewards(x, number)
        start = time.perf_counter()
        bandit.tell(x, y)
        x = bandit.ask()
        seconds.append(time.perf_counter() - start)
    cpu = [(after - earlier) / sizes.rounds for after, earlier in zip(_cpu_seconds(candidates), before, strict=True)]
    size = len(bandit.inducing_points)
    shards = len(candidates.workers.shards) if isinstance(candidates, ShardedArms) else 0
    counted = _counted(bandit, candidates, x, sizes.counted) if isinstance(candidates, ShardedArms) else {}
    return {
        "shards": shards,
        "dictionary": dictionary,
        "size": size,
        "set_up_seconds": set_up,
        "seconds": seconds,
        "cpu_seconds": cpu,
        **counted,
    }


def _cpu_seconds(candidates: Candidates) -> list[float]:
    """Return the processor time that this process and each worker have used so far."""
    seconds = [time.process_time()]
    if isinstance(candidates, ShardedArms):
        actors = candidates.workers.actors
        used = [actors[number].__ray_call__.remote(_processor_seconds) for number in sorted(actors)]
        seconds += require("ray", "ray").get(used)
    return seconds


def _processor_seconds(shard: Any) -> float:
    return time.process_time()


def _counted(bandit: Bandit, candidates: ShardedArms, x: torch.Tensor, rounds: int) -> dict[str, list[int]]:
    """Return the serialised bytes that each of some more rounds sends to a shard, and gets back from it."""
    workers = candidates.workers
    packed, receive = workers.packed, workers.receive
    there, back = list[int](), list[int]()

    def counting_packed(message: Any, question: Any) -> Any:
        data = packed(message, question)
        there.append(len(data))
        return data

    def counting_receive(ticket: Any) -> Any:
        reply = receive(ticket)
        back.append(len(pickle.dumps(reply)))
        return reply

    workers.packed, workers.receive = counting_packed, counting_receive
    for number in range(rounds):
        bandit.tell(x, _rewards(x, number))
        x = bandit.ask()
    workers.packed, workers.receive = packed, receive
    return {"bytes_sent": there, "bytes_back": back}


def _rewards(X: torch.Tensor, number: int) -> torch.Tensor:
    """Return noisy waves at X (q, d): an environment would take memory for the means of all arms."""
    noise = torch.randn(len(X), generator=torch.Generator().manual_seed(number))
    return torch.sin(math.pi * X).mean(-1) + 0.1 * noise


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = [
        [
            f"{measured['shards']} worker(s)" if measured["shards"] else "one table, no Ray",
            measured["dictionary"],
            str(measured["size"]),
            spread([1e3 * value for value in measured["seconds"]], 1),
            f"{1e3 * measured['cpu_seconds'][0]:.1f}",
            f"{1e3 * max(measured['cpu_seconds'][1:]):.1f}" if measured["shards"] else "",
            f"{measured['set_up_seconds']:.1f}",
            spread(measured["bytes_sent"], 0) if measured["shards"] else "",
            spread(measured["bytes_back"], 0) if measured["shards"] else "",
        ]
        for measured in measurements
    ]
    columns = [
        "arms are in",
        "dictionary",
        "its size",
        "ms a round",
        "CPU ms a round, this process",
        "busiest worker",
        "seconds until the first timed round",
        "bytes to each shard a round",
        "bytes back",
    ]
    title = f"{sizes.arms:,} arms, single precision, one thread a process, {sizes.rounds} rounds: median (min–max)"
    return Table(title, columns, rows)


def _table_of_calls(calls: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = [
        [
            str(call["shards"]),
            spread([1e3 * value for value in call["ask"]], 2),
            spread([1e3 * value for value in call["cpu"]], 2),
        ]
        for call in calls
    ]
    title = f"Asking workers about {sizes.called_arms:,} arms, {sizes.calls} times: median (min–max)"
    return Table(title, ["workers", "ms an ask", "CPU ms an ask, this process"], rows)

"""What a round asks of a GPU: counted on a device that is none, and measured where there is one.

``python -m benchmarks.device_rounds SIZES`` does so in a fresh interpreter and prints the result; SIZES is JSON.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.pretend_device import PretendDevice
from benchmarks.report import Report, Table, run_module, spread
from torch_kbandits import Bandit
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import FixedDictionary, RidgeLeverageSampling

#: What an H200 takes, by its data sheet the first and as commonly measured the others: bytes read a second, seconds
#: of a launch and of a wait of the host.
BYTES, LAUNCH, WAIT = 4.8e12, 5e-6, 20e-6

#: What happens in a round.
STAYS, JOINS = "the dictionary stays", "a point joins"


@dataclass(frozen=True)
class Sizes:
    """What is counted, and for how many arms and points it is estimated, or measured if there is a GPU."""

    arms: int = 20_000
    dictionary: int = 100
    dimension: int = 6
    lengthscale: float = 0.5
    rounds: int = 60
    arms_on_gpu: int = 10_000_000
    dictionary_on_gpu: int = 500


QUICK = Sizes(arms=2_000, dictionary=20, dimension=2, rounds=12)


def run(quick: bool = False) -> Report:
    """Count, or measure, in a process of its own, in which alone the pretended device is known."""
    sizes = QUICK if quick else Sizes()
    rounds = json.loads(run_module("benchmarks.device_rounds", json.dumps(asdict(sizes))))
    table = _timed(rounds, sizes) if "seconds" in rounds[0] else _counted(rounds, sizes)
    return Report("device_rounds", asdict(sizes), [table], rounds)


def measure(sizes: Sizes) -> list[dict[str, Any]]:
    """Return what each round asked for, or how many seconds it took."""
    if not torch.cuda.is_available():
        return count(sizes)
    device, number, m = torch.device("cuda"), sizes.arms_on_gpu, sizes.dictionary_on_gpu
    number = min(number, torch.cuda.mem_get_info()[0] // (8 * m))  # half of the memory for the embedding

    def timed(play: Callable[[], None], _: Bandit) -> dict[str, Any]:
        torch.cuda.synchronize()
        start = time.perf_counter()
        play()
        torch.cuda.synchronize()
        return {"arms": number, "dictionary": m, "seconds": time.perf_counter() - start}

    return [each for joins in (False, True) for each in _rounds(device, number, m, joins, sizes, timed)]


def count(sizes: Sizes) -> list[dict[str, Any]]:
    """Return what each round asks of a device."""
    there = PretendDevice(sizes.arms)

    def counted(play: Callable[[], None], bandit: Bandit) -> dict[str, Any]:
        before = _features(bandit)
        with there.counted() as counts:
            play()
        embedding = counts.read_of([before.memory, _features(bandit).memory])
        return {
            "launches": counts.launches,
            "waits": counts.syncs.total(),
            "sent": counts.sent,
            "reads": embedding / (4 * sizes.arms * before.columns),
            "other_bytes": (counts.bytes - embedding) / sizes.arms,
        }

    with there:
        made = (_rounds(there.device, sizes.arms, sizes.dictionary, joins, sizes, counted) for joins in (False, True))
        return [each for rounds in made for each in rounds]


def _rounds(
    device: torch.device,
    number: int,
    size: int,
    joins: bool,
    sizes: Sizes,
    around: Callable[[Callable[[], None], Bandit], dict[str, Any]],
) -> Iterable[dict[str, Any]]:
    """Yield what is found out about each round with a dictionary that stays, or that all points told join."""
    generator = torch.Generator().manual_seed(0)
    known = torch.rand(number, sizes.dimension, generator=generator)
    first = known[:size].clone()
    arms = Arms(known.to(device))
    del known
    bandit = Bandit(
        candidates=arms,
        kernel=kernel(sizes.lengthscale, torch.float32),
        regularization=REGULARIZATION,
        dictionary=RidgeLeverageSampling(1e9, "growth") if joins else FixedDictionary(first.to(device)),
        width=ConstantWidth(BETA),
        seed=0,
    )
    bandit.tell(first.to(device), _rewards(first, generator))
    x = bandit.ask()
    for _ in range(sizes.rounds // 4 if joins else sizes.rounds):
        y, told, before = _rewards(x.cpu(), generator), [], len(bandit.inducing_points)

        def play(x: Tensor = x, y: Tensor = y, told: list[Tensor] = told) -> None:
            bandit.tell(x, y)
            told.append(bandit.ask())

        found = around(play, bandit)
        x = told[0]
        yield {"what": STAYS if len(bandit.inducing_points) == before else JOINS, **found}


def _features(bandit: Bandit) -> Any:
    """Return the embedding of the arms."""
    belief: Any = bandit._state.belief
    return belief.posterior.arms.table.features


def _rewards(X: Tensor, generator: torch.Generator) -> Tensor:
    return torch.sin(3.0 * X).mean(-1) + 0.1 * torch.randn(len(X), generator=generator)


def _of_each(rounds: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, float], list[dict[str, Any]]]]:
    """Return for what happens in rounds the medians of what was counted in them, and these rounds."""
    found = []
    for what in (STAYS, JOINS):
        some = [each for each in rounds if each["what"] == what]
        names = [name for name in rounds[0] if name != "what"]
        if some:
            found.append((what, {name: statistics.median(each[name] for each in some) for name in names}, some))
    return found


def _counted(rounds: Sequence[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for what, each, some in _of_each(rounds):
        numbers = each["reads"] * sizes.dictionary_on_gpu * 4 + each["other_bytes"]
        parts = numbers * sizes.arms_on_gpu / BYTES, LAUNCH * each["launches"], WAIT * each["waits"]
        shown = (f"{each['launches']:.0f}", f"{each['waits']:.0f}", f"{each['sent']:.0f}")
        times = (f"{1e3 * part:.2f}" for part in (*parts, sum(parts)))
        rows.append([what, f"{len(some)}", *shown, f"{each['reads']:.2f}", f"{each['other_bytes']:.0f}", *times])
    columns = ["what happens", "rounds", "launches", "waits", "copies to the device", "reads of the embedding"]
    columns += ["other bytes an arm", "ms of reading", "ms of launches", "ms of waits", "ms in all"]
    title = (
        f"Counted on no GPU, medians; ms are estimates for {sizes.arms_on_gpu:,} arms, dictionary of "
        f"{sizes.dictionary_on_gpu}, on an H200"
    )
    return Table(title, columns, rows)


def _timed(rounds: Sequence[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for what, each, some in _of_each(rounds):
        limit = 4 * each["arms"] * each["dictionary"] / BYTES
        times = spread([1e3 * one["seconds"] for one in some])
        rows.append([what, f"{len(some)}", times, f"{1e3 * limit:.2f}"])
    size = f"{rounds[0]['arms']:,} arms, dictionary of {rounds[0]['dictionary']}"
    columns = ["what happens", "rounds", "ms a round", "ms of one read of the embedding by an H200"]
    return Table(f"Measured on {torch.cuda.get_device_name()}: {size}, single precision", columns, rows)


if __name__ == "__main__":
    print(json.dumps(measure(Sizes(**json.loads(sys.argv[1])))))

"""One round over many arms: ours against one read of the embedding, NumPy from scratch and BoTorch's models."""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import arm_memory
from benchmarks.arm_bandits import BANDITS, CHANGES, OVERSAMPLING, Case, Run, play, problem
from benchmarks.bandwidth import product_ms, read_rate
from benchmarks.botorch_rounds import BoTorchRound, exact_blocks, exact_search, observations, variational_blocks
from benchmarks.references import bkb_round
from benchmarks.report import Report, Table, spread
from torch_kbandits.candidates import Arms
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms

_SEARCH = "BoTorch exact GP, optimize_acqf_discrete"

_TABLE_ALONE = "BKB, growth only, no columns kept"

_ANY = "any of these, mean"


@dataclass(frozen=True)
class Sizes:
    """What is run; some rounds of each run are computed by NumPy as well, and ``exact`` lists BoTorch's n.

    The memory of the table alone is measured on ``more_arms`` too.
    """

    arms: int = 10_000
    dimension: int = 6
    cases: tuple[Case, ...] = (Case(0.5, 350, 400), Case(1.4, 45, 300))
    seeds: int = 3
    compared: int = 5
    exact: tuple[int, ...] = (500, 1_000, 2_000, 5_000)
    repeats: int = 3
    once_above: int = 2_000
    probes: tuple[str, ...] = tuple(arm_memory.PROBES)
    more_arms: tuple[int, ...] = (100_000,)
    beyond_cache: int = 2**30


QUICK = Sizes(
    arms=200,
    dimension=2,
    cases=(Case(0.3, 10, 30), Case(0.5, 5, 30)),
    seeds=1,
    compared=2,
    exact=(20,),
    repeats=2,
    probes=("BKB, growth only", "BoTorch SVGP"),
    more_arms=(400,),
    beyond_cache=2**20,
)


class Limits(NamedTuple):
    """What a pass over an embedding costs at least.

    Attributes:
        read_rate: bytes a second of a read from memory.
        product_ms: by number of points, the milliseconds of the embedding times a vector (gemv).
    """

    read_rate: float
    product_ms: dict[int, float]


def run(quick: bool = False) -> Report:
    """Time every bandit, NumPy at the same dictionaries and histories after it, and BoTorch; then probe memory."""
    sizes = QUICK if quick else Sizes()
    environment = gaussian_bumps(sizes.arms, sizes.dimension, seed=0)
    # The first calls of a process load libraries and start threads.
    for make in BANDITS.values():
        play(make(Arms(environment.arms), QUICK.cases[0], 0), environment, QUICK.cases[0])
    limits = Limits(
        read_rate(sizes.beyond_cache),
        {case.dictionary: product_ms(sizes.arms, case.dictionary) for case in sizes.cases},
    )
    measurements: list[dict[str, Any]] = [{"what": "limits", "threads": torch.get_num_threads(), **limits._asdict()}]
    # Bandits take turns, so that a busy spell of the machine touches them alike.
    runs = [(seed, case, name) for seed in range(sizes.seeds) for case in sizes.cases for name in BANDITS]
    for seed, case, name in tqdm(runs, desc="arm_rounds", unit="run"):
        bandit = BANDITS[name](Arms(environment.arms), case, seed)
        measurements += _rounds(name, play(bandit, environment, case), environment, case, sizes)
    measurements += _botorch_rounds(environment, sizes)
    measurements += [
        arm_memory.probe(arm_memory.Probe(name, sizes.arms, sizes.dimension, case, max(sizes.exact)))
        for case in sizes.cases
        for name in sizes.probes
        if name in arm_memory.TABLES or case == sizes.cases[0]
    ]
    measurements += [
        arm_memory.probe(arm_memory.Probe(_TABLE_ALONE, arms, sizes.dimension, sizes.cases[0], max(sizes.exact)))
        for arms in sizes.more_arms
    ]
    tables = [_ours(measurements, limits, sizes), _theirs(measurements, sizes), _memory(measurements)]
    return Report("arm_rounds", asdict(sizes), tables, measurements)


def _rounds(name: str, played: Run, environment: FiniteArms, case: Case, sizes: Sizes) -> list[dict[str, Any]]:
    """Return the rounds that count, some of them with NumPy's time, which is taken when the run is over."""
    counted = [each for each in played.rounds if case.counts(len(each.dictionary))]
    compared = {len(counted) * part // sizes.compared for part in range(sizes.compared)}
    measurements = []
    for index, each in enumerate(counted):
        measurement = {
            "what": "round",
            "name": name,
            "case": case.dictionary,
            "told": each.told,
            "ms": each.ms,
            "dictionary": len(each.dictionary),
            "change": each.change,
            "visited": each.visited,
        }
        if index in compared:
            reference, rng = problem(environment, case), np.random.default_rng(index)
            rows, rewards = played.played[: each.told], played.rewards[: each.told]
            start = time.perf_counter()
            choice, _ = bkb_round(reference, each.dictionary, rows, rewards, OVERSAMPLING, rng)
            measurement["numpy_ms"] = 1e3 * (time.perf_counter() - start)
            # A batch is chosen with rewards held back, so only the others must agree with NumPy.
            measurement["same_arm"] = None if name == "BBKB" else choice == each.choice
        measurements.append(measurement)
    return measurements


def _botorch_rounds(environment: FiniteArms, sizes: Sizes) -> list[dict[str, Any]]:
    arms, case = environment.arms, sizes.cases[0]
    rounds: list[tuple[str, int, BoTorchRound]] = []
    for n in sizes.exact:
        X, Y = observations(environment, n)
        rounds += [(_SEARCH, n, exact_search(arms, X, Y, case))]
        rounds += [("BoTorch exact GP, posterior in blocks", n, exact_blocks(arms, X, Y, case))]
    for each in sizes.cases:
        points = arms[: each.dictionary].clone()
        rounds += [("BoTorch SVGP, posterior in blocks", each.dictionary, variational_blocks(arms, points, each))]
    measurements = []
    for name, size, play_round in tqdm(rounds, desc="arm_rounds, BoTorch", unit="model"):
        milliseconds = []
        for _ in range(1 if size > sizes.once_above else sizes.repeats):
            start = time.perf_counter()
            play_round()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        measurements.append({"what": "botorch", "name": name, "size": size, "ms": milliseconds})
    return measurements


def _ours(measurements: list[dict[str, Any]], limits: Limits, sizes: Sizes) -> Table:
    rounds = [each for each in measurements if each["what"] == "round"]
    largest = max(sizes.exact)
    (exact,) = (each["ms"] for each in measurements if each["what"] == "botorch" and _is(each, _SEARCH, largest))
    rows: list[list[str]] = []
    for case in sizes.cases:
        product = limits.product_ms[case.dictionary] / case.dictionary
        for name in BANDITS:
            runs = [each for each in rounds if each["name"] == name and each["case"] == case.dictionary]
            numpy = [each["numpy_ms"] for each in runs if "numpy_ms" in each]
            for change in (*CHANGES, _ANY):
                group = [each for each in runs if change in (each["change"], _ANY)]
                if not group:
                    continue
                # Rounds that do different work have a mean time; their median would be that of the commonest kind.
                average = statistics.fmean if change == _ANY else statistics.median
                ms = average([each["ms"] for each in group])
                points = average([each["dictionary"] for each in group])
                read = 1e3 * 8 * sizes.arms * points / limits.read_rate
                rows.append(
                    [
                        name,
                        spread([each["dictionary"] for each in group], 0),
                        change,
                        str(len(group)),
                        f"{ms:.2f}" if change == _ANY else spread([each["ms"] for each in group]),
                        f"{read:.2f}",
                        f"{ms / read:.1f}",
                        f"{ms / (product * points):.1f}",
                        f"{average(numpy) / ms:.1f}",
                        f"{average(exact) / ms:,.0f}",
                        f"{statistics.fmean(each['visited'] for each in group):.2f}",
                    ]
                )
    columns = [
        "bandit",
        "dictionary",
        "which in a round",
        "rounds",
        "ms",
        "limit, ms",
        "ms / limit",
        "ms / gemv",
        "NumPy / this",
        f"BoTorch exact, n = {largest:,} / this",
        "arms visited",
    ]
    title = f"One round over {sizes.arms:,} arms, d = {sizes.dimension}, double: median (min–max) of rounds"
    return Table(title, columns, rows)


def _theirs(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for case in sizes.cases:
        compared = [each for each in measurements if each.get("case") == case.dictionary and "numpy_ms" in each]
        checked = [each["same_arm"] for each in compared if each["same_arm"] is not None]
        size = f"dictionary {spread([each['dictionary'] for each in compared], 0)}"
        same = f"{sum(checked)} of {len(checked)}"
        rows.append(["NumPy BKB from scratch", size, spread([each["numpy_ms"] for each in compared], 1), same])
    for each in measurements:
        if each["what"] == "botorch":
            size = f"{'inducing points' if 'SVGP' in each['name'] else 'n ='} {each['size']:,}"
            rows.append([each["name"], size, spread(each["ms"], 1), "–"])
    title = f"The same round by others over {sizes.arms:,} arms: median (min–max)"
    return Table(title, ["what", "size", "ms", "same arm as ours"], rows)


def _memory(measurements: list[dict[str, Any]]) -> Table:
    rows = []
    for each in measurements:
        if each["what"] == "memory":
            extra, embedding = each["extra_bytes"], 8 * each["arms"] * each["size"]
            beside = [f"{embedding / 1e6:.1f}", f"{extra / embedding:.2f}"]
            beside = beside if each["name"] in arm_memory.TABLES else ["–", "–"]
            rows.append([each["name"], f"{each['arms']:,}", f"{each['size']:,}", f"{extra / 1e6:.1f}", *beside])
    title = "Peak memory above what was resident before, each in a fresh process"
    columns = ["what", "arms", "points", "extra peak memory, MB", "embedding A·m·8, MB", "memory / embedding"]
    return Table(title, columns, rows)


def _is(measurement: dict[str, Any], name: str, size: int) -> bool:
    return measurement["name"] == name and measurement["size"] == size

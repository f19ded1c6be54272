"""Rounds that are short: few arms, windows, model selection, contexts; by loops, and by PyTorch alone."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.report import Report, Table, spread
from torch_kbandits import Bandit, ContextualActions, use_compiled
from torch_kbandits.algorithms import DMSGPUCB, DMSTVGPUCB, EKUCB, GPTS, IGPUCB, SWGPUCB

_WORDS: dict[str, Any] = {"kernel": kernel(0.3), "regularization": 0.01, "beta": 2.0, "seed": 0}


@dataclass(frozen=True)
class Sizes:
    """What is run: rounds before the timed ones, blocks of these, and rounds of a block."""

    arms: int = 100
    window: int = 100
    actions: int = 10
    lengthscales: tuple[float, ...] = (1.2, 0.7)
    first_rounds: int = 1_500
    blocks: int = 5
    rounds: int = 300
    pending: int = 300


QUICK = Sizes(10, 5, 3, (0.5,), 8, 2, 4, 5)


def run(quick: bool = False) -> Report:
    """Time rounds of each bandit with loops and without in turns, on one thread."""
    sizes, threads = QUICK if quick else Sizes(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cases = {**_on_arms(sizes), **_in_contexts(sizes)}
        measurements = [
            {"case": name, **_timed(make, sizes)}
            for name, make in tqdm(cases.items(), desc="small_rounds", unit="case")
        ]
        measurements.append({"case": "pending", **_pending(sizes)})
    finally:
        torch.set_num_threads(threads)
    return Report("small_rounds", asdict(sizes), _tables(measurements, sizes), measurements)


#: A bandit, and what a round brings.
Player = tuple[Bandit, Callable[[int], dict[str, Any]]]


def _on_arms(sizes: Sizes) -> dict[str, Callable[[], Player]]:
    arms = torch.rand(sizes.arms, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    words = {"candidates": arms, **_WORDS}
    made: dict[str, Callable[[], Bandit]] = {
        "IGP-UCB": lambda: IGPUCB(**words),
        "GP-TS": lambda: GPTS(**words),
        f"SW-GP-UCB, window {sizes.window}": lambda: SWGPUCB(window=sizes.window, **words),
        "DMS-GP-UCB": lambda: DMSGPUCB(**words),
        "DMS-TV-GP-UCB": lambda: DMSTVGPUCB(**words),
    }
    return {f"{name}, {sizes.arms} arms": lambda make=make: (make(), lambda t: {}) for name, make in made.items()}


def _in_contexts(sizes: Sizes) -> dict[str, Callable[[], Player]]:
    def make(lengthscale: float) -> Player:
        candidates = ContextualActions(context_dim=3, action_dim=3)
        words = {**_WORDS, "kernel": kernel(lengthscale), "regularization": 1.0, "beta": 0.1}
        drawn = torch.rand(4_096, 1 + sizes.actions, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return EKUCB(candidates=candidates, **words), lambda t: {
            "context": drawn[t % 4_096, 0],
            "candidates": drawn[t % 4_096, 1:],
        }

    return {
        f"EK-UCB, {sizes.actions} actions, l = {scale:g}": lambda scale=scale: make(scale)
        for scale in sizes.lengthscales
    }


def _timed(make: Callable[[], Player], sizes: Sizes) -> dict[str, Any]:
    """Return microseconds a round, of each block, with loops and without, and the size of the dictionary at the end."""
    players, seconds = {enabled: make() for enabled in (True, False)}, {True: list[float](), False: list[float]()}
    means = list[float]()
    done = dict.fromkeys(players, 0)
    for block in range(-1, sizes.blocks):
        for enabled, (bandit, brings) in players.items():
            with use_compiled(enabled):
                rounds = sizes.first_rounds if block < 0 else sizes.rounds
                spent = [_round(bandit, brings(t)) for t in range(done[enabled], done[enabled] + rounds)]
            done[enabled] += rounds
            if block >= 0:
                seconds[enabled].append(1e6 * float(np.median(spent)))
            if block >= 0 and enabled:
                means.append(1e6 * float(np.mean(spent)))
    same = torch.equal(players[True][0].history.X, players[False][0].history.X)
    bandit, brings = players[True]
    size = len(bandit.inducing_points)
    by_run = [_run(bandit, brings, sizes.rounds) for _ in range(sizes.blocks)]
    arms = None if bandit.candidates.is_contextual else torch.cat(list(bandit.candidates.domain.parts()))
    ahead = [] if arms is None else [_run_ahead(bandit, arms, sizes.rounds) for _ in range(sizes.blocks)]
    return {
        "loops_us": seconds[True],
        "loops_mean_us": means,
        "run_us": by_run,
        "ahead_us": ahead,
        "plain_us": seconds[False],
        "same_choices": same,
        "dictionary": size,
    }


def _round(bandit: Bandit, brings: dict[str, Any]) -> float:
    """Play a round and return the seconds of ask and tell."""
    told = {name: brings[name] for name in brings if name == "context"}
    started = time.perf_counter()
    x = bandit.ask(**brings)
    asked = time.perf_counter()
    y = _mean(x, told.get("context"))
    pulled = time.perf_counter()
    bandit.tell(x, y, **told)
    return asked - started + time.perf_counter() - pulled


def _run(bandit: Bandit, brings: Callable[[int], dict[str, Any]], rounds: int) -> float:
    """Return microseconds a round that ``run`` takes beside what the problem does, on average."""
    elsewhere, words = 0.0, dict[str, Any]()

    def offered(t: int) -> dict[str, Any]:
        nonlocal elsewhere, words
        started = time.perf_counter()
        words = brings(t)
        elsewhere += time.perf_counter() - started
        return words

    def pull(x: Tensor) -> Tensor:
        nonlocal elsewhere
        started = time.perf_counter()
        y = _mean(x, words.get("context"))
        elsewhere += time.perf_counter() - started
        return y

    started = time.perf_counter()
    bandit.run(pull, rounds, offered=offered)
    return 1e6 * (time.perf_counter() - started - elsewhere) / rounds


def _run_ahead(bandit: Bandit, arms: Tensor, rounds: int) -> float:
    """Return microseconds a round that ``run`` takes where the rewards of all arms are known, on average."""
    rewards = torch.sin(5.0 * arms).sum(-1).expand(rounds, -1).clone()
    started = time.perf_counter()
    bandit.run(rewards)
    return 1e6 * (time.perf_counter() - started) / rounds


def _mean(x: Tensor, context: Tensor | None) -> Tensor:
    return torch.sin(5.0 * x).sum() if context is None else torch.exp(-(context - x).square().sum())


def _pending(sizes: Sizes) -> dict[str, Any]:
    """Return milliseconds of an ``ask`` with many points pending, and with none."""
    bandit, brings = next(iter(_in_contexts(sizes).values()))()
    for t in range(sizes.first_rounds):
        _round(bandit, brings(t))
    milliseconds: dict[str, list[float]] = {"none": [], "many": []}
    for name in milliseconds:
        if name == "many":
            for t in range(sizes.pending):
                bandit.ask(**brings(t))
        for t in range(20):
            started = time.perf_counter()
            bandit.ask(**brings(t), remember=False)
            milliseconds[name].append(1e3 * (time.perf_counter() - started))
    return {"ask_ms": milliseconds, "dictionary": len(bandit.inducing_points)}


def _tables(measurements: list[dict[str, Any]], sizes: Sizes) -> list[Table]:
    *rounds, pending = measurements
    columns = [
        "round of",
        "dictionary",
        "loops, µs",
        "mean, µs",
        "run, µs",
        "rewards known, µs",
        "PyTorch, µs",
        "ratio",
        "rounds a second",
        "same choices",
    ]
    rows = []
    for each in rounds:
        loops, plain = np.array(each["loops_us"]), np.array(each["plain_us"])
        rows.append(
            [
                each["case"],
                str(each["dictionary"]),
                spread(loops.tolist(), 0),
                spread(each["loops_mean_us"], 0),
                spread(each["run_us"], 0),
                spread(each["ahead_us"], 0) if each["ahead_us"] else "",
                spread(plain.tolist(), 0),
                f"{np.median(plain) / np.median(loops):.1f}",
                f"{1e6 / np.median(loops):,.0f}",
                "yes" if each["same_choices"] else "no",
            ]
        )
    none, many = (np.median(pending["ask_ms"][name]) for name in ("none", "many"))
    title = f"Ask and tell, medians of {sizes.rounds} rounds, median (least–most) of {sizes.blocks} blocks, one thread"
    second = f"An ask of EK-UCB, m = {pending['dictionary']}, {sizes.actions} actions"
    return [
        Table(title, columns, rows),
        Table(
            second,
            ["pending", "ms", "ratio"],
            [["none", f"{none:.3f}", "1"], [f"{sizes.pending}", f"{many:.3f}", f"{many / none:.2f}"]],
        ),
    ]

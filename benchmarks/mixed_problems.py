"""Problems of mixed parameters for samplers of Optuna, on which nothing was chosen: functions, a table, and a box."""

import math
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from benchmarks.tuning_problems import Configuration, Objective, TuningProblem, network
from torch_kbandits import Categorical, Float, Integer, ParameterSpace
from torch_kbandits.environments import BoxFunction, synthetic_function

#: Standard deviation of the noise on counts.
_NOISE = 0.2


def _shares(given: Configuration, names: str, count: int) -> np.ndarray:
    return np.array([given[f"{names}{column}"] for column in range(count)])


def springs(seed: int) -> Objective:
    """Return five numbers in several wells that a choice of five moves, a logarithmic whole number and a step; least 0.

    The wells are those of a bowl with waves of two lengths. What one choice adds differs by 0.3.
    """
    draw = np.random.default_rng([seed, 1])
    centre, moves = draw.uniform(0.25, 0.75, 5), draw.uniform(-0.2, 0.2, (5, 5))
    added, loads = draw.permutation(0.3 * np.arange(5)), draw.integers(4, 200)
    size, waves = draw.integers(1, 10), draw.uniform(7.0, 11.0, 5)
    space: dict[str, Any] = {f"x{column}": Float(0.0, 1.0) for column in range(5)}
    space |= {"load": Integer(1, 1000, log=True), "kind": Categorical(list("abcde"))}
    space["share"] = Float(0.0, 1.0, step=0.1)

    def value(given: Configuration, number: int) -> float:
        kind = "abcde".index(given["kind"])
        x = _shares(given, "x", 5) - centre - moves[kind]
        found = 5.0 * (x**2).sum() + 0.25 * (1.0 - np.cos(waves * x)).sum() + added[kind]
        found += 0.1 * math.log(given["load"] / loads) ** 2
        return float(found + 2.0 * (given["share"] - size / 10.0) ** 2)

    return Objective(ParameterSpace(space), value, value)


def valves(seed: int) -> Objective:
    """Return four numbers in a bent valley that a choice of six turns, a log whole number, a step and a switch.

    Where the switch is on the best of the first number and of the step are elsewhere, and the bottom 0.4 higher.
    """
    draw = np.random.default_rng([seed, 2])
    turns = np.stack([np.linalg.qr(draw.normal(size=(4, 4)))[0] for _ in range(6)])
    turns = np.linalg.qr(2.0 * turns[0] + turns)[0]
    centre, added = draw.uniform(0.3, 0.7, 4), draw.permutation(0.25 * np.arange(6))
    depth, size, other = draw.integers(3, 60), *draw.integers(1, 10, 2)
    space: dict[str, Any] = {f"x{column}": Float(0.0, 1.0) for column in range(4)}
    space |= {"depth": Integer(1, 128, log=True), "kind": Categorical(list("uvwxyz"))}
    space |= {"share": Float(0.0, 1.0, step=0.1), "is_on": Categorical([False, True])}

    def value(given: Configuration, number: int) -> float:
        kind, is_on = "uvwxyz".index(given["kind"]), given["is_on"]
        x = _shares(given, "x", 4) - centre
        x[0] -= 0.2 * is_on
        z = 3.0 * turns[kind] @ x
        valley = ((z[1:] - z[:-1] ** 2) ** 2).sum() + 0.3 * (z**2).sum()
        found = math.sqrt(valley + 0.01) - 0.1 + added[kind] + 0.4 * is_on
        found += 0.12 * math.log(given["depth"] / depth) ** 2
        return float(found + 1.5 * (given["share"] - (other if is_on else size) / 10.0) ** 2)

    return Objective(ParameterSpace(space), value, value)


def branches(seed: int) -> Objective:
    """Return a rate and a width that all of three models have, with two or three parameters of their own; least 0."""
    draw = np.random.default_rng([seed, 3])
    best, added = draw.uniform(0.2, 0.8, 8), draw.permutation([0.0, 0.2, 0.4])
    extra = draw.permutation([0.0, 0.2, 0.4, 0.6])
    one, two, three = ({"model": name} for name in ("one", "two", "three"))
    space: dict[str, Any] = {
        "model": Categorical(["one", "two", "three"]),
        "rate": Float(1e-5, 1.0, log=True),
        "width": Integer(4, 512, log=True),
        "momentum": Float(0.0, 1.0, when=one),
        "layers": Integer(1, 10, when=one),
        "decay": Float(1e-6, 1e-1, log=True, when=two),
        "schedule": Categorical(["p", "q", "r", "s"], when=two),
        "power": Float(0.0, 2.0, step=0.1, when=three),
        "shift": Float(-1.0, 1.0, when=three),
        "is_nested": Categorical([False, True], when=three),
    }

    def value(given: Configuration, number: int) -> float:
        rate, width = math.log10(given["rate"]) / 5.0 + 1.0, math.log2(given["width"] / 4.0) / 7.0
        kind = ("one", "two", "three").index(given["model"])
        found = added[kind] + 4.0 * (rate - best[kind]) ** 2 + 2.0 * (width - best[3] * rate - 0.2) ** 2
        if kind == 0:
            found += 2.0 * (given["momentum"] - best[4]) ** 2 + 0.02 * (given["layers"] - round(1 + 9 * best[5])) ** 2
        elif kind == 1:
            found += 2.0 * (math.log10(given["decay"]) / 5.0 + 1.2 - best[6]) ** 2
            found += extra["pqrs".index(given["schedule"])]
        else:
            found += (given["power"] - round(20.0 * best[7]) / 10.0) ** 2 + (given["shift"] - rate) ** 2
            found += 0.3 * (given["is_nested"] != (seed % 2 == 0))
        return float(found)

    return Objective(ParameterSpace(space), value, value)


def counts(seed: int) -> Objective:
    """Return three whole numbers, a step, two choices, of four and of three, and a number, with noise of 0.2."""
    draw = np.random.default_rng([seed, 4])
    best, pairs = draw.integers(3, 28, 3), draw.uniform(0.0, 1.5, (4, 3))
    size, centre = draw.integers(2, 19), draw.uniform(0.2, 0.8)
    space: dict[str, Any] = {f"n{column}": Integer(0, 30) for column in range(3)}
    space |= {"share": Float(0.0, 1.0, step=0.05), "one": Categorical(list("abcd")), "two": Categorical(list("xyz"))}
    space["x"] = Float(0.0, 1.0)

    def value(given: Configuration, number: int) -> float:
        n = (_shares(given, "n", 3) - best) / 10.0
        found = (n**2).sum() + 0.3 * (1.0 - np.cos(2.0 * n)).sum() + 0.5 * n[0] * n[1]
        found += pairs["abcd".index(given["one"]), "xyz".index(given["two"])] - pairs.min()
        found += 2.0 * (given["share"] - size / 20.0) ** 2 + 4.0 * (given["x"] - centre) ** 2
        return float(found)

    def told(given: Configuration, number: int) -> float:
        return value(given, number) + float(np.random.default_rng([seed, 4, number]).normal(0.0, _NOISE))

    return Objective(ParameterSpace(space), told, value)


def _on_box(name: str, dimension: int, seed: int) -> Objective:
    """Return less a synthetic function of a box, whose columns are moved by the seed: of shares in [0, 1], turned over.

    Each column begins at a share that is drawn, and what is beyond its end comes back.
    """
    environment = cast(BoxFunction, synthetic_function(name, dimension, domain="box", seed=0))
    shift, (low, high) = np.random.default_rng([seed, 5]).uniform(0.0, 0.4, dimension), environment.bounds
    space = ParameterSpace({f"x{column}": Float(0.0, 1.0) for column in range(dimension)})

    def value(given: Configuration, number: int) -> float:
        share = 1.0 - np.abs(1.0 - (_shares(given, "x", dimension) + shift) % 2.0)
        return -float(environment.mean(low + torch.from_numpy(share)[None] * (high - low)))

    return Objective(space, value, value)


MIXED = {
    "springs": TuningProblem(springs, "value"),
    "valves": TuningProblem(valves, "value"),
    "ships": TuningProblem(partial(network, "naval_propulsion"), "log loss above the best (deviations)"),
    "branches": TuningProblem(branches, "value"),
    "counts": TuningProblem(counts, "value"),
    "hartmann": TuningProblem(partial(_on_box, "hartmann", 6), "value", is_box=True),
    "ackley": TuningProblem(partial(_on_box, "ackley", 5), "value", is_box=True),
}

"""Optimisers of functions that change beside those of their authors: wdbo-algo and uitvbo, on one moving peak.

wdbo-algo is played where it is installed: pip install --no-deps wdbo-algo==1.0.7 wdbo-criterion==2.2.1. AUTHORS_UITVBO
names a checkout of github.com/brunzema/uitvbo and AUTHORS_UITVBO_PYTHON a Python that has torch 1.11, gpytorch 1.6 and
botorch 0.6.2: with those of today its code does not import. Without them ours play alone.

W-DBO learns kernel, noise and rate; so do ours that are "learned". uitvbo is given kernel, noise and rate, and so are
ours beside it: its TV-GP-UCB is ours, and its UI-TVBO is ours with a Wiener process as the prior on time.

Claimed before the seeds were played, after trials on the seeds 1 and 2:

1. At the histories of uitvbo our upper bound, with its constants, is at the point that it plays within 0.01 of the
   largest on a grid, in at least 90% of the rounds, for both priors on time.
2. The intervals of the paired differences in regret, ours less theirs, contain 0 for both.
3. TV-GP-UCB, learned, has no more regret in the median than W-DBO. Both have less than random play.
"""

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.authors_code import Checkout
from benchmarks.runner import ROOT, Found, Measurement, Table, benchmark, chosen, kinds, seconds_of, values
from benchmarks.uitvbo_driver import CENTRE, INTERVAL, LENGTHSCALE, NOISE, swing
from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.experiments.summary import difference, summary_of

#: uitvbo's rate of forgetting and its multiplier of the standard deviation, ours as well.
RATE, BETA = 0.03, math.sqrt(2.0)
#: What a round is in W-DBO's unit of time. At 1 it kept two observations in a trial, and at 0.1 it had more regret.
ROUND = 0.04

CHECKOUT = Checkout("AUTHORS_UITVBO", "github.com/brunzema/uitvbo", "src/TVBO.py")
PYTHON = "AUTHORS_UITVBO_PYTHON"

#: Points of the interval at which means and upper bounds are compared.
GRID = torch.linspace(*INTERVAL, 4_001, dtype=torch.float64)[:, None]


class Wiener(Kernel):
    """1 + rate · min(t, t') on one column, times from 0: a function whose changes add up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the kernel of x1 (n, 1) and x2 (m, 1), or of its pairs."""
        if diag:
            return 1.0 + self.rate * torch.minimum(x1, x2).squeeze(-1)
        return 1.0 + self.rate * torch.minimum(x1, x2.transpose(-1, -2))


#: Ours: the algorithm, its words, and which of theirs it is compared with. Those beside W-DBO learn their prior.
OURS: dict[str, tuple[str, dict[str, Any], str]] = {
    "TV-GP-UCB, learned": ("tv-gp-ucb", {"prior": LearnedPrior(learn_memory=True)}, "W-DBO"),
    "DMS-TV-GP-UCB, learned": ("dms-tv-gp-ucb", {"prior": LearnedPrior()}, "W-DBO"),
    "TV-GP-UCB": ("tv-gp-ucb", {"forgetting": RATE}, "TV-GP-UCB"),
    "TV-GP-UCB, Wiener": ("tv-gp-ucb", {"time_kernel": Wiener(RATE)}, "UI-TVBO"),
    "UI-GP-UCB": ("ui-gp-ucb", {"growth": RATE}, "UI-TVBO"),
}

#: Of uitvbo: its words for what it forgets by, and the one of ours that has the same prior.
UITVBO = {"TV-GP-UCB": ("B2P_OU", "TV-GP-UCB"), "UI-TVBO": ("UI", "TV-GP-UCB, Wiener")}


@dataclass(frozen=True)
class Given:
    """What a seed brings: the points (m, 1) that all are told first, and the noise (T,) of all rounds."""

    seed: int
    first: Tensor
    noise: Tensor

    @classmethod
    def of(cls, seed: int, first: int, rounds: int) -> "Given":
        """Draw uniform points and the noise."""
        random, (lower, upper) = np.random.default_rng(seed), INTERVAL
        points = torch.from_numpy(lower + (upper - lower) * random.random((first, 1)))
        return cls(seed, points, torch.from_numpy(NOISE * random.standard_normal(rounds)))

    def played(self, ask: Callable[[int], Tensor], tell: Callable[[Tensor, int, float], Any]) -> dict[str, Any]:
        """Return the points (n, 1) that are asked for after the first ones, and the seconds; told are rounds, too."""
        points, seconds = list[Tensor](), 0.0
        for t in range(len(self.noise)):
            start = time.perf_counter()
            x = ask(t) if t >= len(self.first) else self.first[t, None]
            seconds += time.perf_counter() - start
            reward = float(swing(x, t)) - CENTRE + float(self.noise[t])
            seconds += seconds_of(lambda t=t, x=x, reward=reward: tell(x, t, reward))
            points.append(x)
        return {"points": torch.cat(points[len(self.first) :]), "seconds": seconds}


@benchmark(rounds=8, first=5, seeds=(0,))
def authors_moving(rounds: int = 60, first: int = 15, seeds: tuple[int, ...] = tuple(range(8200, 8206))) -> Found:
    """Play all; the first points and the noise of a round are the same for all players of a seed."""
    missing, found = {"wdbo-algo": _wdbo_missing(), "uitvbo": _uitvbo_missing()}, list[Measurement]()
    means = torch.stack([swing(GRID, t) for t in range(first, rounds)])
    for seed in tqdm(seeds, "authors_moving"):
        for player in _all(Given.of(seed, first, rounds), missing):
            points, seconds = player.pop("points"), player.pop("seconds")
            got = torch.cat([swing(x[None], t) for t, x in enumerate(points, first)])
            regret, ms = float((means.amax(1) - got).mean()), 1e3 * seconds / len(points)
            found.append({"seed": seed, **player, "regret": regret, "ms": ms, "points": points.flatten().tolist()})
    regrets = means.amax(1, keepdim=True) - means
    plain = {"points drawn uniformly, expected": regrets.mean(), "best point that stays": regrets.mean(0).min()}
    title = f"Average regret of the {rounds - first} rounds after the first {first}, a peak that swings"
    title += "".join(f"; {name} was {reason}" for name, reason in missing.items() if reason)
    return [_regrets(title, found, plain), _bounds(found)], found


def _all(given: Given, missing: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    if missing["wdbo-algo"] is None:
        yield {"player": "W-DBO", "whose": "theirs", "beside": "W-DBO", **_play_wdbo(given)}
    if missing["uitvbo"] is None:
        for name, (forgetting, same) in UITVBO.items():
            played = _play_uitvbo(given, forgetting)
            short = _shortfalls(given, _bandit(same, given.seed), played["points"])
            yield {"player": name, "whose": "theirs", "beside": name, **played, "short": short, "same": same}
    for name, (_, _, beside) in OURS.items():
        bandit = _bandit(name, given.seed)
        played = given.played(lambda _, bandit=bandit: bandit.ask(), lambda x, t, y, bandit=bandit: bandit.tell(x, y))
        if name in {same for _, same in UITVBO.values()}:
            played |= {"short": _shortfalls(given, _bandit(name, given.seed), played["points"]), "same": name}
        yield {"player": name, "whose": "ours", "beside": beside, **played}


def _bandit(name: str, seed: int) -> Bandit:
    """Return our bandit of a name in ``OURS``."""
    kind, words, _ = OURS[name]
    known = {} if "prior" in words else {"kernel": kernel(LENGTHSCALE), "regularization": NOISE**2}
    bounds = torch.tensor([INTERVAL], dtype=torch.float64).T
    return algorithms.build(kind, bounds=bounds, beta=BETA, seed=seed, **known, **words)


def _shortfalls(given: Given, bandit: Bandit, points: Tensor) -> list[float]:
    """Return by how much the upper bounds of what was played lie below the bandit's largest on a grid, by rounds."""
    short = list[float]()

    def ask(t: int) -> Tensor:
        x = points[t - len(given.first), None]
        with torch.no_grad():
            bounds = bandit.acquisition()(torch.cat([GRID, x])[:, None])
        short.append(float(bounds[:-1].max() - bounds[-1]))
        return x

    given.played(ask, lambda x, t, y: bandit.tell(x, y))
    return short


# ---------------------------------------------------------------- theirs


def _wdbo_missing() -> str | None:
    """Return what to do where wdbo-algo is not installed; None where it is."""
    if find_spec("wdbo_algo") and find_spec("wdbo_criterion"):
        return None
    return "not played: pip install --no-deps wdbo-algo==1.0.7 wdbo-criterion==2.2.1"


def _uitvbo_missing() -> str | None:
    """Return what to do where uitvbo or its Python is not named; None where both are."""
    if reason := CHECKOUT.missing():
        return reason
    if not os.environ.get(PYTHON):
        return f"not played: set {PYTHON} to a Python that has torch 1.11, gpytorch 1.6 and botorch 0.6.2"
    return None


@contextmanager
def _globals(seed: int) -> Iterator[None]:
    """Seed the global generators and compute in double precision, as W-DBO needs, and restore both."""
    # W-DBO draws from NumPy's global generator.
    dtype, numpy_state = torch.get_default_dtype(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            np.random.set_state(numpy_state)  # noqa: NPY002


def _play_wdbo(given: Given) -> dict[str, Any]:
    """Let W-DBO play with the kernels of its example, and return how many observations it kept, too."""
    matern, library = gpytorch.kernels.MaternKernel, import_module("wdbo_algo.optimizer")
    words = {"spatial_kernel_args": [2.5], "temporal_kernel_args": [2.5], "n_initial_observations": len(given.first)}
    with _globals(given.seed):
        player = library.WDBOOptimizer(np.array([INTERVAL]), matern, matern, **words)

        def tell(x: Tensor, t: int, reward: float) -> None:
            player.tell(x[0].numpy(), t * ROUND, reward)
            player.clean(t * ROUND)

        played = given.played(lambda t: torch.from_numpy(player.next_query(t * ROUND))[None], tell)
    return played | {"kept": player.dataset_size()}


def _play_uitvbo(given: Given, forgetting: str) -> dict[str, Any]:
    """Let uitvbo play in its own Python."""
    task = {"folder": str(CHECKOUT.folder()), "seed": given.seed, "forgetting": forgetting, "factor": RATE}
    task |= {"first": given.first.tolist(), "noise": given.noise.tolist()}
    words: dict[str, Any] = {"cwd": ROOT, "input": json.dumps(task), "capture_output": True, "text": True}
    words["env"] = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([os.environ[PYTHON], "-m", "benchmarks.uitvbo_driver"], check=False, **words)
    if done.returncode:
        raise RuntimeError(f"uitvbo stopped: {done.stderr[-2000:]}")
    played = json.loads(done.stdout)
    return played | {"points": torch.tensor(played["points"], dtype=torch.float64)}


# ---------------------------------------------------------------- tables


def _regrets(title: str, found: list[Measurement], plain: dict[str, Tensor]) -> Table:
    rows = []
    for name, whose in dict.fromkeys((each["player"], each["whose"]) for each in found):
        runs, less = chosen(found, player=name, whose=whose), ""
        if whose == "ours" and (theirs := chosen(found, player=runs[0]["beside"], whose="theirs")):
            pairs = zip(runs, theirs, strict=True)
            said = difference([own["regret"] - other["regret"] for own, other in pairs])
            less = f"{said}, to {runs[0]['beside']}"
        kept = f"{summary_of(values(runs, 'kept')).median:.0f}" if "kept" in runs[0] else ""
        regret, ms = summary_of(values(runs, "regret")), summary_of(values(runs, "ms")).median
        shown = f"{regret.median:.3f} [{regret.lower:.3f}, {regret.upper:.3f}]"
        rows.append([f"{name}, {whose}", shown, less, kept, f"{ms:.0f}"])
    rows += [[name, f"{float(value):.3f}", "", "", ""] for name, value in plain.items()]
    return Table(title, ["player", "regret a round", "less theirs", "observations kept", "ms a round"], rows)


def _bounds(found: list[Measurement]) -> Table:
    rows = []
    for whose in kinds(found, "whose"):
        judged = [each for each in chosen(found, whose=whose) if "short" in each]
        for name in kinds(judged, "player"):
            runs = chosen(judged, player=name)
            short = np.concatenate(values(runs, "short"))
            cells = [f"{np.median(short):.5f}", f"{100.0 * np.mean(short <= 0.01):.0f}%", f"{short.max():.3f}"]
            rows.append([f"{name}, {whose}", f"{runs[0]['same']}, ours", str(len(short)), *cells])
    columns = ["who played", "whose upper bound", "rounds", "median", "within 0.01", "largest"]
    return Table("How far the upper bound of what was played lies below the largest on a grid", columns, rows)

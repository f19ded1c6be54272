"""Optimisers of functions that change beside those of their authors: wdbo-algo and uitvbo, on one moving peak.

wdbo-algo is played where it is installed: pip install --no-deps wdbo-algo==1.0.7 wdbo-criterion==2.2.1. AUTHORS_UITVBO
names a checkout of github.com/brunzema/uitvbo and AUTHORS_UITVBO_PYTHON a Python that has torch 1.11, gpytorch 1.6 and
botorch 0.6.2: with those of today its code does not import. Without them ours play alone.

W-DBO learns kernel, noise and rate; so do ours that are "learned". uitvbo is given kernel, noise and rate, and so are
ours beside it: its TV-GP-UCB is ours, and its UI-TVBO is ours with a Wiener process as the prior on time.

Claimed before the seeds of ``Sizes`` were played, after trials on the seeds 1 and 2:

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
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.authors_code import Checkout
from benchmarks.moving_boxes import BOXES, MovingBox
from benchmarks.report import ROOT, Report, Table
from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.experiments.summary import difference, estimate

BOX = "a peak that swings"
#: uitvbo's rate of forgetting and its multiplier of the standard deviation, ours as well.
RATE, BETA = 0.03, math.sqrt(2.0)
#: What a round is in W-DBO's unit of time. At 1 it kept two observations in a trial, and at 0.1 it had more regret.
ROUND = 0.04
#: Points at which means and upper bounds are compared.
GRID = 4_001

CHECKOUT = Checkout("AUTHORS_UITVBO", "github.com/brunzema/uitvbo", "src/TVBO.py")
PYTHON = "AUTHORS_UITVBO_PYTHON"


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is other first points, told to all players, and another noise."""

    rounds: int = 60
    first: int = 15
    seeds: tuple[int, ...] = tuple(range(8200, 8206))


QUICK = Sizes(rounds=8, first=5, seeds=(0,))


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


@dataclass(frozen=True)
class Player:
    """One of ours: its algorithm, its words, whether the prior is learned, and what it is compared with."""

    kind: str
    words: Callable[[], dict[str, Any]]
    is_learned: bool
    beside: str


OURS = {
    "TV-GP-UCB, learned": Player("tv-gp-ucb", dict, True, "W-DBO"),
    "DMS-TV-GP-UCB, learned": Player("dms-tv-gp-ucb", dict, True, "W-DBO"),
    "TV-GP-UCB": Player("tv-gp-ucb", lambda: {"forgetting": RATE}, False, "TV-GP-UCB"),
    "TV-GP-UCB, Wiener": Player("tv-gp-ucb", lambda: {"time_kernel": Wiener(RATE)}, False, "UI-TVBO"),
    "UI-GP-UCB": Player("ui-gp-ucb", lambda: {"growth": RATE}, False, "UI-TVBO"),
}

#: Of uitvbo: its words for what it forgets by, and the one of ours that has the same prior.
UITVBO = {"TV-GP-UCB": ("B2P_OU", "TV-GP-UCB"), "UI-TVBO": ("UI", "TV-GP-UCB, Wiener")}


@dataclass(frozen=True)
class Round:
    """What a seed brings: the points (m, 1) that all are told first, and the noise (T,) of all rounds."""

    seed: int
    first: Tensor
    noise: Tensor

    def reward(self, box: MovingBox, x: Tensor, round: int) -> float:
        """Return the reward of a point (1, 1), less what is taken off."""
        return float(box.means(x, round)) - box.centre + float(self.noise[round])


def run(quick: bool = False) -> Report:
    """Play all; the first points and the noise of a round are the same for all players of a seed."""
    sizes, box = QUICK if quick else Sizes(), BOXES[BOX]
    missing = {"wdbo-algo": wdbo_missing(), "uitvbo": uitvbo_missing()}
    measurements: list[dict[str, Any]] = []
    grid = box.grid(GRID)
    means = torch.stack([box.means(grid, t) for t in range(sizes.first, sizes.rounds)])
    regrets = means.amax(1, keepdim=True) - means
    for seed in tqdm(sizes.seeds, desc="authors_moving", unit="seed"):
        given = draw(box, sizes, seed)
        for name, whose, beside, points, seconds, more in _play(box, given, sizes, missing):
            got = torch.cat([box.means(x[None], t) for t, x in enumerate(points, sizes.first)])
            measurements.append(
                {
                    "seed": seed,
                    "player": name,
                    "whose": whose,
                    "beside": beside,
                    "regret": float((means.amax(1) - got).mean()),
                    "ms": 1e3 * seconds / len(points),
                    "points": points.flatten().tolist(),
                    **more,
                }
            )
    plain = {"points drawn uniformly, expected": regrets.mean(), "best point that stays": regrets.mean(0).min()}
    tables = [_regrets(measurements, sizes, plain, missing)]
    if any("short" in each for each in measurements):
        tables.append(_bounds(measurements))
    return Report("authors_moving", asdict(sizes), tables, measurements)


def draw(box: MovingBox, sizes: Sizes, seed: int) -> Round:
    """Return the first points, uniform, and the noise of a seed."""
    random = np.random.default_rng(seed)
    ((lower, upper),) = box.bounds
    first = lower + (upper - lower) * random.random((sizes.first, 1))
    return Round(seed, torch.from_numpy(first), torch.from_numpy(box.noise * random.standard_normal(sizes.rounds)))


def _play(
    box: MovingBox, given: Round, sizes: Sizes, missing: dict[str, str | None]
) -> Iterator[tuple[str, str, str, Tensor, float, dict[str, Any]]]:
    if missing["wdbo-algo"] is None:
        points, seconds, kept = play_wdbo(box, given, sizes.rounds)
        yield "W-DBO", "theirs", "W-DBO", points, seconds, {"kept": kept}
    if missing["uitvbo"] is None:
        for name, (forgetting, same) in UITVBO.items():
            points, seconds = play_uitvbo(given, forgetting)
            short = shortfalls(box, given, make(same, box, given.seed), points)
            yield name, "theirs", name, points, seconds, {"short": short, "same": same}
    for name, player in OURS.items():
        points, seconds = play_ours(box, given, make(name, box, given.seed), sizes.rounds)
        more: dict[str, Any] = {}
        if name in {same for _, same in UITVBO.values()}:
            more = {"short": shortfalls(box, given, make(name, box, given.seed), points), "same": name}
        yield name, "ours", player.beside, points, seconds, more


def wdbo_missing() -> str | None:
    """Return what to do where wdbo-algo is not installed; None where it is."""
    if find_spec("wdbo_algo") and find_spec("wdbo_criterion"):
        return None
    return "not played: pip install --no-deps wdbo-algo==1.0.7 wdbo-criterion==2.2.1"


def uitvbo_missing() -> str | None:
    """Return what to do where uitvbo or its Python is not named; None where both are.

    Raises:
        FileNotFoundError: if the checkout is another folder.
    """
    if reason := CHECKOUT.missing():
        return reason
    if not os.environ.get(PYTHON):
        return f"not played: set {PYTHON} to a Python that has torch 1.11, gpytorch 1.6 and botorch 0.6.2"
    return None


def make(name: str, box: MovingBox, seed: int) -> Bandit:
    """Return our bandit of a name in ``OURS``."""
    player = OURS[name]
    if player.is_learned:
        prior = {"prior": LearnedPrior(learn_memory=name.startswith("TV"))}
    else:
        kernel = RBFKernel().double().initialize(lengthscale=torch.tensor(box.lengthscale, dtype=torch.float64))
        prior = {"kernel": kernel, "regularization": box.noise**2}
    bounds = torch.tensor(box.bounds, dtype=torch.float64).T
    return algorithms.build(player.kind, bounds=bounds, beta=BETA, seed=seed, **prior, **player.words())


def play_ours(box: MovingBox, given: Round, bandit: Bandit, rounds: int) -> tuple[Tensor, float]:
    """Let a bandit play; return its points (n, 1) after the first ones, and the seconds of choosing and learning."""
    points, seconds = [], 0.0
    for t in range(rounds):
        start = time.perf_counter()
        x = bandit.ask() if t >= len(given.first) else given.first[t, None]
        seconds += time.perf_counter() - start
        reward = given.reward(box, x, t)
        start = time.perf_counter()
        bandit.tell(x, reward)
        seconds += time.perf_counter() - start
        if t >= len(given.first):
            points.append(x)
    return torch.cat(points), seconds


def shortfalls(box: MovingBox, given: Round, bandit: Bandit, points: Tensor) -> list[float]:
    """Return by how much the bandit's upper bounds of the points played lie below its largest on a grid, by rounds.

    The bandit learns what was played and chooses nothing; an upper bound above all of the grid has a negative one.
    """
    grid, short = box.grid(GRID), []
    for t, x in enumerate(torch.cat([given.first, points])):
        if t >= len(given.first):
            with torch.no_grad():
                values = bandit.acquisition()(torch.cat([grid, x[None]])[:, None])
            short.append(float(values[:-1].max() - values[-1]))
        bandit.tell(x[None], given.reward(box, x[None], t))
    return short


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


def play_wdbo(box: MovingBox, given: Round, rounds: int) -> tuple[Tensor, float, int]:
    """Let W-DBO play with the kernels of its example; return as ``play_ours``, and how many observations it kept."""
    library, points, seconds = import_module("wdbo_algo.optimizer"), [], 0.0
    matern = gpytorch.kernels.MaternKernel
    with _globals(given.seed):
        player = library.WDBOOptimizer(
            np.array(box.bounds),
            matern,
            matern,
            spatial_kernel_args=[2.5],
            temporal_kernel_args=[2.5],
            n_initial_observations=len(given.first),
        )
        for t in range(rounds):
            start = time.perf_counter()
            x = player.next_query(t * ROUND) if t >= len(given.first) else given.first[t].numpy()
            seconds += time.perf_counter() - start
            reward = given.reward(box, torch.from_numpy(x)[None], t)
            start = time.perf_counter()
            player.tell(x, t * ROUND, reward)
            player.clean(t * ROUND)
            seconds += time.perf_counter() - start
            if t >= len(given.first):
                points.append(torch.from_numpy(x)[None])
    return torch.cat(points), seconds, player.dataset_size()


def play_uitvbo(given: Round, forgetting: str) -> tuple[Tensor, float]:
    """Let uitvbo play in its own Python; return as ``play_ours``."""
    task = {
        "folder": str(CHECKOUT.folder()),
        "box": BOX,
        "seed": given.seed,
        "forgetting": forgetting,
        "factor": RATE,
        "first": given.first.tolist(),
        "noise": given.noise.tolist(),
    }
    command = [os.environ[PYTHON], "-m", "benchmarks.uitvbo_driver"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=ROOT, env=clean, input=json.dumps(task), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"uitvbo stopped: {done.stderr[-2000:]}")
    played = json.loads(done.stdout)
    return torch.tensor(played["points"], dtype=torch.float64), played["seconds"]


def _regrets(
    measurements: list[dict[str, Any]], sizes: Sizes, plain: dict[str, Tensor], missing: dict[str, str | None]
) -> Table:
    rows = []
    for name, whose, beside in dict.fromkeys((each["player"], each["whose"], each["beside"]) for each in measurements):
        runs = _of(measurements, name, whose)
        theirs = _of(measurements, beside, "theirs") if whose == "ours" else []
        pairs = list(zip(runs, theirs, strict=True)) if theirs else []
        less = str(difference([own["regret"] - other["regret"] for own, other in pairs])) if pairs else ""
        kept = f"{estimate([each['kept'] for each in runs]).median:.0f}" if "kept" in runs[0] else ""
        ms = f"{estimate([each['ms'] for each in runs]).median:.0f}"
        regret = estimate([each["regret"] for each in runs])
        spread = f"{regret.median:.3f} [{regret.lower:.3f}, {regret.upper:.3f}]"
        rows.append([f"{name}, {whose}", spread, f"{less}, to {beside}" if less else "", kept, ms])
    rows += [[name, f"{float(value):.3f}", "", "", ""] for name, value in plain.items()]
    title = f"Average regret of the {sizes.rounds - sizes.first} rounds after the first {sizes.first}, {BOX}"
    title += "".join(f"; {name} was {reason}" for name, reason in missing.items() if reason)
    return Table(title, ["player", "regret a round", "less theirs", "observations kept", "ms a round"], rows)


def _bounds(measurements: list[dict[str, Any]]) -> Table:
    rows = []
    for name, whose in dict.fromkeys((each["player"], each["whose"]) for each in measurements if "short" in each):
        runs = _of(measurements, name, whose)
        short = np.array([value for each in runs for value in each["short"]])
        cells = [f"{np.median(short):.5f}", f"{100.0 * np.mean(short <= 0.01):.0f}%", f"{short.max():.3f}"]
        rows.append([f"{name}, {whose}", f"{runs[0]['same']}, ours", str(len(short)), *cells])
    columns = ["who played", "whose upper bound", "rounds", "median", "within 0.01", "largest"]
    return Table("How far the upper bound of what was played lies below the largest on a grid", columns, rows)


def _of(measurements: list[dict[str, Any]], name: str, whose: str) -> list[dict[str, Any]]:
    return [each for each in measurements if (each["player"], each["whose"]) == (name, whose)]

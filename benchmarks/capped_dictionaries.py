"""What a cap on the dictionary costs in regret and saves in time, and whether a window keeps a dictionary small."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from tqdm import tqdm

from benchmarks.references import Array
from benchmarks.report import Report, Table, mean_and_error, spread
from torch_kbandits.algorithms import BKB, EKUCB
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.memory import SlidingWindow

#: Caps as shares of the dictionary that there is without one.
SHARES = (0.3, 0.12)


@dataclass(frozen=True)
class Sizes:
    """What is run: problems, rounds of each run, and the seeds, which are of problem, noise and bandit."""

    rounds: int = 10_000
    seeds: tuple[int, ...] = (110, 111, 112, 113, 114)
    arms: int = 2_000
    window: int = 100
    problems: tuple[str, ...] = ("waves", "offers", "bumps, d = 3", "bumps, d = 6")


QUICK = Sizes(rounds=30, seeds=(0, 1), arms=50, window=10)


@dataclass(frozen=True)
class Course:
    """One run: the regret of each round, the dictionary and the milliseconds of processor time at each tenth of it."""

    regret: Array
    sizes: list[int]
    milliseconds: list[float]

    def thirds(self) -> list[float]:
        """Return the mean regret of a round in each third."""
        return [float(part.mean()) for part in np.array_split(self.regret, 3)]


def run(quick: bool = False) -> Report:
    """Play every problem without a cap and with two; then a moving optimum under a window."""
    sizes = QUICK if quick else Sizes()
    measurements: list[dict[str, Any]] = []
    for problem in sizes.problems:
        for seed in tqdm(sizes.seeds, desc=f"capped_dictionaries, {problem}", unit="seed"):
            measurements.append({"problem": problem, "seed": seed, "cap": "", **beside(problem, seed, sizes)})
            free = course(problem, seed, None, sizes)
            measurements.append(_measured(problem, seed, "none", free))
            for share in SHARES:
                cap = max(1, round(share * free.sizes[-1]))
                measurements.append(_measured(problem, seed, f"{share:g}", course(problem, seed, cap, sizes)))
    windows = [_measured("window", seed, "none", moving(seed, sizes)) for seed in sizes.seeds[:1]]
    tables = [_table(measurements, problem, sizes) for problem in sizes.problems]
    return Report(
        "capped_dictionaries", asdict(sizes), [*tables, _course_table(windows, sizes)], measurements + windows
    )


def course(problem: str, seed: int, cap: int | None, sizes: Sizes) -> Course:
    """Play one problem with at most so many points in the dictionary."""
    words = {"max_dictionary": cap, "when_full": "stop", "beta": 2.0, "seed": seed}
    if problem.startswith("bumps"):
        environment = gaussian_bumps(sizes.arms, int(problem[-1]), lengthscale=0.5, seed=seed)
        bandit = BKB(
            candidates=environment.arms, kernel=_kernel(0.5), regularization=0.01, resampling="coupled", **words
        )

        def play(t: int) -> float:
            x = bandit.ask()
            bandit.tell(x, environment.pull(x, t))
            return float(environment.regret(x))

        return _course(play, bandit, sizes.rounds)
    reward, actions, lengthscale = _waves() if problem == "waves" else _offers(seed)
    offers = EKUCB(
        candidates=torch.tensor(actions), context_dim=2, kernel=_kernel(lengthscale), regularization=0.04, **words
    )
    return _course(partial(_in_context, offers, reward, actions, np.random.default_rng(seed)), offers, sizes.rounds)


def beside(problem: str, seed: int, sizes: Sizes) -> dict[str, float]:
    """Return the mean regret of a round of who draws uniformly, and of who plays one choice, the best in hindsight."""
    if problem.startswith("bumps"):
        environment = gaussian_bumps(sizes.arms, int(problem[-1]), lengthscale=0.5, seed=seed)
        return {"uniform": float(environment.best_mean - environment.means.mean()), "fixed": 0.0}
    reward, actions, _ = _waves() if problem == "waves" else _offers(seed)
    contexts = np.random.default_rng(seed).random((sizes.rounds, 2))
    means = np.stack([reward(context, actions) for context in contexts])
    regret = means.max(1, keepdims=True) - means
    return {"uniform": float(regret.mean()), "fixed": float(regret.mean(0).min())}


def moving(seed: int, sizes: Sizes) -> Course:
    """Play EK-UCB under a window where the best of a hundred actions moves on a circle, and with the context."""
    rng = np.random.default_rng(seed)
    actions, round_ = rng.random((sizes.arms // 20, 2)), iter(range(sizes.rounds))
    kernel = RBFKernel(ard_num_dims=3).double()
    kernel.lengthscale = torch.tensor([[1.0, 0.3, 0.3]], dtype=torch.float64)
    bandit = EKUCB(
        candidates=torch.tensor(actions), context_dim=1, kernel=kernel, regularization=0.04, beta=2.0, seed=seed,
        memory=SlidingWindow(sizes.window),
    )  # fmt: skip

    def reward(context: Array, x: Array) -> Array:
        angle = 2.0 * np.pi * next(round_) / 1_000
        best = 0.5 + 0.35 * np.array([np.cos(angle), np.sin(angle)]) + [0.2 * (context[0] - 0.5), 0.0]
        return np.exp(-((x - best) ** 2).sum(1) / 0.08) - 0.3

    return _course(partial(_in_context, bandit, reward, actions, rng), bandit, sizes.rounds)


def _in_context(bandit: EKUCB, reward: Callable[[Array, Array], Array], actions: Array, rng: Any, _: int) -> float:
    """Play one round in a context that is drawn, and return its regret."""
    context = rng.random(bandit.candidates.context_dim)
    at = torch.tensor(context)
    x = bandit.ask(context=at)
    means = reward(context, actions)
    mean = means[int(np.abs(actions - x.numpy()).sum(1).argmin())]
    bandit.tell(x, mean + 0.2 * rng.standard_normal(), context=at)
    return float(means.max() - mean)


def _waves() -> tuple[Callable[[Array, Array], Array], Array, float]:
    """Return rewards of ten actions, waves of a number in a context of two."""

    def reward(context: Array, x: Array) -> Array:
        return np.sin(7.0 * context[0]) * np.cos(5.0 * x[:, 0]) + np.sin(6.0 * context[1] + 4.0 * x[:, 0])

    return reward, np.linspace(0.0, 1.0, 10)[:, None], 0.2


def _offers(seed: int) -> tuple[Callable[[Array, Array], Array], Array, float]:
    """Return rewards of thirty actions of two numbers in a context of two: thirty bumps of either sign."""
    rng = np.random.default_rng([seed, 1])
    centres, heights, actions = rng.random((30, 4)), rng.standard_normal(30), rng.random((30, 2))

    def reward(context: Array, x: Array) -> Array:
        joint = np.concatenate([np.tile(context, (len(x), 1)), x], 1)
        return np.exp(-((joint[:, None] - centres[None]) ** 2).sum(-1) / (2.0 * 0.3**2)) @ heights

    return reward, actions, 0.3


def _kernel(lengthscale: float) -> RBFKernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def _course(play: Callable[[int], float], bandit: BKB | EKUCB, rounds: int) -> Course:
    """Play rounds, each of which returns its regret."""
    regret, sizes, milliseconds = np.zeros(rounds), [], []
    for block in np.array_split(np.arange(rounds), 10):
        start = time.process_time()
        regret[block] = [play(int(t)) for t in block]
        milliseconds.append(1e3 * (time.process_time() - start) / len(block))
        sizes.append(len(bandit.inducing_points))
    return Course(regret, sizes, milliseconds)


def _measured(problem: str, seed: int, cap: str, course: Course) -> dict[str, Any]:
    tenths = [float(part.mean()) for part in np.array_split(course.regret, 10)]
    return {
        "problem": problem, "seed": seed, "cap": cap, "thirds": course.thirds(), "tenths": tenths,
        "sizes": course.sizes, "milliseconds": course.milliseconds,
    }  # fmt: skip


def _table(measurements: list[dict[str, Any]], problem: str, sizes: Sizes) -> Table:
    rows, free = [], 0.0
    for cap in ("none", *(f"{share:g}" for share in SHARES)):
        runs = [each for each in measurements if each["problem"] == problem and each["cap"] == cap]
        thirds = list(zip(*(each["thirds"] for each in runs), strict=True))
        last = statistics.fmean(thirds[2])
        free = last if cap == "none" else free
        rows.append(
            [
                "none" if cap == "none" else f"{cap} of that",
                spread([each["sizes"][-1] for each in runs], 0),
                *(mean_and_error(third, 4) for third in thirds),
                "1" if cap == "none" else f"{last / free:.2f}" if free else "–",
                spread([statistics.fmean(each["milliseconds"][-3:]) for each in runs]),
            ]
        )
    others = [each for each in measurements if each["problem"] == problem and each["cap"] == ""]
    for name, key in (("drawn uniformly, expected", "uniform"), ("the best single choice", "fixed")):
        values = [each[key] for each in others]
        every, over = mean_and_error(values, 4), f"{statistics.fmean(values) / free:.0f}" if free else "–"
        rows.append([name, "–", every, every, every, over, "–"])
    title = f"{problem}: {sizes.rounds:,} rounds, {len(sizes.seeds)} seeds, mean regret of a round ± standard error"
    columns = [
        "cap",
        "dictionary",
        "first third",
        "second",
        "last",
        "last, over that without a cap",
        "ms a round, last",
    ]
    return Table(title, columns, rows)


def _course_table(windows: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = [
        [
            f"{sizes.rounds * (tenth + 1) // 10:,}",
            str(run["sizes"][tenth]),
            f"{run['tenths'][tenth]:.3f}",
            f"{run['milliseconds'][tenth]:.2f}",
        ]
        for run in windows
        for tenth in range(10)
    ]
    title = f"EK-UCB with a window of {sizes.window} on a moving optimum"
    return Table(title, ["round", "dictionary", "mean regret of a round", "ms a round"], rows)

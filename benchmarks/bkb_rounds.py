"""How long BKB takes on many arms, and what the same round costs when it is computed afresh in NumPy."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.references import Problem, Rows, bkb_round
from benchmarks.report import Report, Table, spread
from torch_kbandits.algorithms import BKB
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms

LENGTHSCALE = 0.5
REGULARIZATION = 0.01
BETA = 2.0


@dataclass(frozen=True)
class Sizes:
    """What is run; ``seeds`` runs of each setting, each followed by rounds that NumPy computes too."""

    arms: int = 10_000
    dimension: int = 6
    rounds: int = 500
    last_rounds: int = 100
    seeds: int = 3
    compared_rounds: int = 10


QUICK = Sizes(arms=200, dimension=2, rounds=12, last_rounds=4, seeds=1, compared_rounds=2)


@dataclass(frozen=True)
class Setting:
    """One row of the table; a ``beta`` of None is the width of BKB's theorem at R = 0.1, B = 1, δ = 0.1."""

    oversampling: float
    beta: float | None = BETA

    @property
    def width(self) -> str:
        """The width in words."""
        return "theorem" if self.beta is None else f"{self.beta:g}"


SETTINGS = (Setting(1.0), Setting(3.0), Setting(5.0), Setting(3.0, beta=None))


def make_bandit(environment: FiniteArms, setting: Setting, seed: int) -> BKB:
    """Return BKB on the arms of an environment; the theorem's constants are given only where its width is used."""
    kernel = RBFKernel().double().initialize(lengthscale=LENGTHSCALE)
    theorem = setting.beta is None
    return BKB(
        candidates=environment.arms,
        kernel=kernel,
        regularization=REGULARIZATION,
        oversampling=setting.oversampling,
        noise_scale=environment.noise_scale if theorem else None,
        norm_bound=1.0 if theorem else None,
        failure_probability=0.1,
        beta=setting.beta,
        seed=seed,
    )


def run(quick: bool = False) -> Report:
    """Time whole runs and single rounds."""
    sizes = QUICK if quick else Sizes()
    environment = gaussian_bumps(sizes.arms, sizes.dimension, lengthscale=LENGTHSCALE, seed=0)
    # The first calls of a process load libraries and start threads.
    measure(environment, SETTINGS[0], 0, Sizes(rounds=10, last_rounds=5, compared_rounds=2))
    # Settings take turns, so that a busy spell of the machine touches them alike.
    runs = [(setting, seed) for seed in range(sizes.seeds) for setting in SETTINGS]
    measurements = [measure(environment, *each, sizes) for each in tqdm(runs, desc="bkb_rounds", unit="run")]
    return Report("bkb_rounds", asdict(sizes), [_totals(measurements, sizes), _comparison(measurements)], measurements)


def measure(environment: FiniteArms, setting: Setting, seed: int, sizes: Sizes) -> dict[str, Any]:
    """Run BKB once, then time further rounds against NumPy at the same dictionary and history."""
    bandit = make_bandit(environment, setting, seed)
    seconds = []
    for t in range(sizes.rounds):
        start = time.perf_counter()
        x = bandit.ask()
        asked = time.perf_counter()
        y = environment.pull(x, t)
        pulled = time.perf_counter()
        bandit.tell(x, y)
        seconds.append(asked - start + time.perf_counter() - pulled)
    last = seconds[-sizes.last_rounds :]
    return {
        "oversampling": setting.oversampling,
        "width": setting.width,
        "seed": seed,
        "seconds": sum(seconds),
        "last_ms_per_round": 1e3 * sum(last) / len(last),
        "dictionary": len(bandit.inducing_points),
        "arms_played": len(bandit.history.X.unique(dim=0)),
        "regret": float(environment.regret(bandit.history.X).sum()),
        **_side_by_side(environment, bandit, setting, seed, sizes),
    }


def _side_by_side(
    environment: FiniteArms, bandit: BKB, setting: Setting, seed: int, sizes: Sizes
) -> dict[str, list[float] | int]:
    """Time ``tell`` and the next ``ask`` against one NumPy round at the dictionary and history that they work with.

    NumPy computes when the rounds are over: the threads of two linear-algebra libraries would get in each other's way.
    """
    arms = environment.arms.numpy()
    rng = np.random.default_rng(seed)
    package_ms, numpy_ms, agreed, rounds = [], [], 0, []
    x = bandit.ask()
    for t in range(sizes.rounds, sizes.rounds + sizes.compared_rounds):
        y = environment.pull(x, t)
        start = time.perf_counter()
        bandit.tell(x, y)
        x = bandit.ask()
        package_ms.append(1e3 * (time.perf_counter() - start))
        rounds.append((bandit.inducing_points, bandit.history, float(bandit.beta), x))
    for inducing_points, history, beta, choice in rounds:
        dictionary, played = _rows(environment.arms, inducing_points), _rows(environment.arms, history.X)
        problem = Problem(arms, LENGTHSCALE, REGULARIZATION, beta)
        start = time.perf_counter()
        theirs, _ = bkb_round(problem, dictionary, played, history.Y.numpy(), setting.oversampling, rng)
        numpy_ms.append(1e3 * (time.perf_counter() - start))
        agreed += theirs == _rows(environment.arms, choice)[0]
    return {"package_ms": package_ms, "numpy_ms": numpy_ms, "same_arm": int(agreed)}


def _rows(arms: Tensor, X: Tensor) -> Rows:
    return torch.stack([(arms == x).all(-1).to(torch.uint8).argmax() for x in X]).numpy()


def _totals(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    def cells(setting: Setting) -> list[str]:
        runs = _of(measurements, setting)
        return [
            f"{setting.oversampling:g}",
            setting.width,
            spread([run["seconds"] for run in runs], 1),
            spread([run["last_ms_per_round"] for run in runs], 1),
            spread([run["dictionary"] for run in runs], 0),
            spread([run["arms_played"] for run in runs], 0),
            spread([run["regret"] for run in runs], 1),
        ]

    columns = [
        "q̄",
        "β",
        "seconds in all",
        f"ms a round, last {sizes.last_rounds}",
        "dictionary at the end",
        "different arms played",
        "cumulative regret",
    ]
    title = f"{sizes.rounds} rounds of BKB on {sizes.arms:,} arms, d = {sizes.dimension}: median (min–max) of runs"
    return Table(title, columns, [cells(setting) for setting in SETTINGS])


def _comparison(measurements: list[dict[str, Any]]) -> Table:
    def cells(setting: Setting) -> list[str]:
        runs = _of(measurements, setting)
        package = [value for run in runs for value in run["package_ms"]]
        numpy = [value for run in runs for value in run["numpy_ms"]]
        ratios = [theirs / ours for ours, theirs in zip(package, numpy, strict=True)]
        return [
            f"{setting.oversampling:g}",
            setting.width,
            spread([run["dictionary"] for run in runs], 0),
            spread(package, 1),
            spread(numpy, 1),
            f"{sum(numpy) / sum(package):.1f}",
            spread(ratios, 1),
            f"{sum(run['same_arm'] for run in runs)} of {len(package)}",
        ]

    columns = [
        "q̄",
        "β",
        "dictionary",
        "package, ms",
        "NumPy, ms",
        "NumPy / package, whole time",
        "NumPy / package, single rounds",
        "same arm chosen",
    ]
    title = "Rounds after these, the package against NumPy from scratch: median (min–max) of rounds"
    return Table(title, columns, [cells(setting) for setting in SETTINGS])


def _of(measurements: list[dict[str, Any]], setting: Setting) -> list[dict[str, Any]]:
    key = (setting.oversampling, setting.width)
    return [run for run in measurements if (run["oversampling"], run["width"]) == key]

"""One round of sliding-window BKB on many arms beside one of static BKB, and beside a table built anew."""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, OVERSAMPLING, REGULARIZATION, kernel
from benchmarks.report import Report, Table, spread
from torch_kbandits.algorithms import BKB
from torch_kbandits.candidates import Arms
from torch_kbandits.dictionaries import Resampling
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms
from torch_kbandits.memory import SlidingWindow


@dataclass(frozen=True)
class Sizes:
    """What is run: rounds until the window is full, then rounds that are timed; then some that are rebuilt too."""

    arms: int = 10_000
    dimension: int = 6
    window: int = 500
    first_rounds: int = 550
    rounds: int = 300
    seeds: int = 1
    rebuilt: int = 5


QUICK = Sizes(arms=200, dimension=2, window=10, first_rounds=12, rounds=4, rebuilt=2)


@dataclass(frozen=True)
class Setting:
    """One row of the table: the longer the length scale, the smaller the dictionary that suffices."""

    lengthscale: float
    resampling: Resampling


SETTINGS = tuple(Setting(scale, resampling) for scale in (0.5, 1.4) for resampling in ("fresh", "coupled"))


def make_bandit(arms: Arms, setting: Setting, window: int | None, seed: int) -> BKB:
    """Return BKB, with a sliding window if one is given."""
    return BKB(
        candidates=arms,
        kernel=kernel(setting.lengthscale),
        regularization=REGULARIZATION,
        oversampling=OVERSAMPLING,
        resampling=setting.resampling,
        memory=None if window is None else SlidingWindow(window),
        beta=BETA,
        seed=seed,
    )


def run(quick: bool = False) -> Report:
    """Time rounds of both bandits in turns."""
    sizes = QUICK if quick else Sizes()
    environment = gaussian_bumps(sizes.arms, sizes.dimension, seed=0)
    # The first calls of a process load libraries and start threads.
    measure(gaussian_bumps(QUICK.arms, QUICK.dimension, seed=0), SETTINGS[0], 0, QUICK)
    runs = [(setting, seed) for seed in range(sizes.seeds) for setting in SETTINGS]
    measurements = [measure(environment, *each, sizes) for each in tqdm(runs, desc="window_rounds", unit="run")]
    return Report("window_rounds", asdict(sizes), [_table(measurements, sizes)], measurements)


def measure(environment: FiniteArms, setting: Setting, seed: int, sizes: Sizes) -> dict[str, Any]:
    """Play both bandits, in turns so that a busy spell of the machine touches them alike, then rebuild the window."""
    arms = Arms(environment.arms)
    static, window = (make_bandit(arms, setting, size, seed) for size in (None, sizes.window))
    asked = {id(static): static.ask(), id(window): window.ask()}
    milliseconds: dict[int, list[float]] = {id(static): [], id(window): []}
    for t in range(sizes.first_rounds + sizes.rounds):
        for bandit in (static, window):
            seconds, asked[id(bandit)] = _round(bandit, asked[id(bandit)], environment, t)
            milliseconds[id(bandit)].append(1e3 * seconds)
    static_ms, window_ms = (milliseconds[id(each)][sizes.first_rounds :] for each in (static, window))
    return {
        "lengthscale": setting.lengthscale,
        "resampling": setting.resampling,
        "seed": seed,
        "static_ms": static_ms,
        "window_ms": window_ms,
        "static_dictionary": len(static.inducing_points),
        "window_dictionary": len(window.inducing_points),
        **_rebuilt(window, asked[id(window)], environment, setting, sizes),
    }


def _round(bandit: BKB, x: Tensor, environment: FiniteArms, t: int) -> tuple[float, Tensor]:
    """Return the seconds of a ``tell`` and the next ``ask``, and what was asked."""
    y = environment.pull(x, t)
    start = time.perf_counter()
    bandit.tell(x, y)
    x = bandit.ask()
    return time.perf_counter() - start, x


def _rebuilt(
    window: BKB, x: Tensor, environment: FiniteArms, setting: Setting, sizes: Sizes
) -> dict[str, list[float] | int]:
    """Play some more rounds of the window, and each by one whose table is built from what counts."""
    milliseconds, same = [], 0
    for t in range(sizes.first_rounds + sizes.rounds, sizes.first_rounds + sizes.rounds + sizes.rebuilt):
        other, state = make_bandit(Arms(environment.arms), setting, sizes.window, window.seed), window.state_dict()
        start = time.perf_counter()
        other.load_state_dict(state)
        building = time.perf_counter() - start
        seconds, theirs = _round(other, x, environment, t)
        milliseconds.append(1e3 * (building + seconds))
        _, x = _round(window, x, environment, t)
        same += int(torch.equal(x, theirs))
    return {"rebuilt_ms": milliseconds, "same_arm": same}


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    def cells(setting: Setting) -> list[str]:
        key = (setting.lengthscale, setting.resampling)
        runs = [run for run in measurements if (run["lengthscale"], run["resampling"]) == key]
        static, window, rebuilt = ([ms for run in runs for ms in run[name]] for name in _TIMES)
        return [
            f"{setting.lengthscale:g}",
            setting.resampling,
            spread([run["static_dictionary"] for run in runs], 0),
            spread([run["window_dictionary"] for run in runs], 0),
            spread(static, 1),
            spread(window, 1),
            f"{statistics.median(window) / statistics.median(static):.2f}",
            f"{statistics.fmean(window) / statistics.fmean(static):.2f}",
            spread(rebuilt, 0),
            f"{sum(run['same_arm'] for run in runs)} of {len(rebuilt)}",
        ]

    columns = [
        "length scale",
        "resampling",
        "static dictionary",
        "window's dictionary",
        "static, ms",
        "window, ms",
        "window / static, medians",
        "window / static, means",
        "window built anew, ms",
        "same arm",
    ]
    title = (
        f"A round of BKB on {sizes.arms:,} arms, d = {sizes.dimension}, static and with a window of {sizes.window}: "
        "median (min–max) of rounds"
    )
    return Table(title, columns, [cells(setting) for setting in SETTINGS])


_TIMES = ("static_ms", "window_ms", "rebuilt_ms")

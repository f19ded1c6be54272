"""Milliseconds for one more observation of an exact model: ``OnlineGP.tell`` beside BoTorch's conditioning."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import OnlineGP
from torch_kbandits.environments import gaussian_bumps


@dataclass(frozen=True)
class Sizes:
    """What is run: plays of so many distinct arms, and how many more are timed."""

    cases: tuple[tuple[int, int], ...] = ((500, 500), (2_000, 2_000), (2_000, 50), (10_000, 50))
    dimension: int = 2
    timed: int = 30
    largest_for_botorch: int = 2_000


QUICK = Sizes(cases=((20, 20), (40, 5)), timed=2, largest_for_botorch=40)


def run(quick: bool = False) -> Report:
    """Time both models in every case."""
    sizes = QUICK if quick else Sizes()
    cases = [
        (name, plays, distinct)
        for plays, distinct in sizes.cases
        for name in _STEPS
        if name == "OnlineGP" or plays <= sizes.largest_for_botorch
    ]
    measurements = [measure(*case, sizes) for case in tqdm(cases, desc="online_tells", unit="case")]
    return Report("online_tells", asdict(sizes), [_table(measurements)], measurements)


def measure(name: str, plays: int, distinct: int, sizes: Sizes) -> dict[str, Any]:
    """Time single observations, each with the posterior at ten points after it."""
    environment = gaussian_bumps(distinct + 10, sizes.dimension, seed=0)
    arms, test = environment.arms[:distinct], environment.arms[distinct:]
    rows = torch.arange(plays + sizes.timed) % distinct
    X = arms[rows]
    noise = torch.randn(len(rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = (environment.means[:distinct][rows] + environment.noise_scale * noise).unsqueeze(-1)
    step = _STEPS[name](X[:plays], Y[:plays], test)
    seconds = []
    for row in range(plays, plays + sizes.timed):
        start = time.perf_counter()
        step(X[row, None], Y[row, None])
        seconds.append(time.perf_counter() - start)
    return {"model": name, "plays": plays, "distinct": distinct, "seconds": seconds}


def _online(X: Tensor, Y: Tensor, test: Tensor) -> Callable[[Tensor, Tensor], None]:
    model = OnlineGP(X, Y, covar_module=MaternKernel(nu=2.5).to(X), regularization=0.01)
    model.posterior(test)

    def step(x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model.tell(x, y)
            _ = model.posterior(test).variance

    return step


def _botorch(X: Tensor, Y: Tensor, test: Tensor) -> Callable[[Tensor, Tensor], None]:
    model = SingleTaskGP(
        X, Y, torch.full_like(Y, 0.01), covar_module=MaternKernel(nu=2.5).to(X), outcome_transform=None
    )
    model.posterior(test)
    current: list[Any] = [model]

    def step(x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            current[0] = current[0].condition_on_observations(x, y, noise=torch.full_like(y, 0.01))
            _ = current[0].posterior(test).variance

    return step


_STEPS = {"OnlineGP": _online, "SingleTaskGP": _botorch}


def _table(measurements: list[dict[str, Any]]) -> Table:
    theirs = {
        (run["plays"], run["distinct"]): statistics.median(run["seconds"])
        for run in measurements
        if run["model"] == "SingleTaskGP"
    }
    rows = []
    for run in measurements:
        beside = theirs.get((run["plays"], run["distinct"]))
        ratio = "–" if beside is None else f"{beside / statistics.median(run['seconds']):.1f}"
        plays, distinct = f"{run['plays']:,}", f"{run['distinct']:,}"
        rows.append([plays, distinct, run["model"], spread([1e3 * value for value in run["seconds"]]), ratio])
    title = "One more observation and the posterior at ten points: median (min–max)"
    return Table(title, ["plays", "distinct arms", "model", "ms", "SingleTaskGP / this"], rows)

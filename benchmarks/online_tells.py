"""Milliseconds for one more observation of an exact model: ``OnlineGP.tell`` beside BoTorch's conditioning.

And for a round of kernel UCB where all points are distinct: beside a dense computation of the same numbers.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from linear_operator.operators import to_dense
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import OnlineGP
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.posteriors.posterior import CHECK

#: The noise variance of the models.
_LAMBDA = 0.01


@dataclass(frozen=True)
class Sizes:
    """What is run: plays of so many distinct arms, rounds after so many points, and how many more are timed."""

    cases: tuple[tuple[int, int], ...] = ((500, 500), (2_000, 2_000), (2_000, 50), (10_000, 50))
    dimension: int = 2
    timed: int = 30
    largest_for_botorch: int = 2_000
    points: tuple[int, ...] = (500, 1_000, 2_000, 4_000)


QUICK = Sizes(cases=((20, 20), (40, 5)), timed=2, largest_for_botorch=40, points=(20, 30))


def run(quick: bool = False) -> Report:
    """Time both models in every case."""
    sizes = QUICK if quick else Sizes()
    cases = [
        (name, plays, distinct)
        for plays, distinct in sizes.cases
        for name in _STEPS
        if name == "OnlineGP" or plays <= sizes.largest_for_botorch
    ]
    tells = [measure(*case, sizes) for case in tqdm(cases, desc="online_tells", unit="case")]
    rounds = [measure_rounds(points, sizes) for points in tqdm(sizes.points, desc="rounds", unit="case")]
    return Report("online_tells", asdict(sizes), [_table(tells), _table_of_rounds(rounds)], tells + rounds)


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


def measure_rounds(points: int, sizes: Sizes) -> dict[str, Any]:
    """Time rounds on a model of so many distinct points, each followed by a dense computation of the same numbers."""
    environment = gaussian_bumps(points + sizes.timed + 11, sizes.dimension, seed=0)
    X, Y, test = environment.arms[:-10], environment.means[:-10, None], environment.arms[-10:]
    kernel = MaternKernel(nu=2.5).to(X)
    start = time.perf_counter()
    model = OnlineGP(X[:points], Y[:points], covar_module=kernel, regularization=_LAMBDA)
    _ask(model, test)
    fresh = time.perf_counter() - start
    seconds: dict[str, list[float]] = {"OnlineGP": [], "dense": []}
    for row in range(points, points + sizes.timed + 1):
        start = time.perf_counter()
        with torch.no_grad():
            model.tell(X[row, None], Y[row, None])
        ours = _ask(model, test)
        middle = time.perf_counter()
        theirs = _dense_round(X[: row + 1], Y[: row + 1], test, kernel)
        if row > points:  # the first append copies the factor that was computed at once
            seconds["OnlineGP"].append(middle - start)
            seconds["dense"].append(time.perf_counter() - middle)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    return {"points": points, "fresh": fresh, **seconds}


def _ask(model: OnlineGP, test: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a round asks for: effective dimension, posterior means and variances."""
    with torch.no_grad():
        posterior = model.posterior(test.unsqueeze(-2))
        return model.effective_dimension(), posterior.mean.flatten(), posterior.variance.flatten()


def _dense_round(X: Tensor, Y: Tensor, test: Tensor, kernel: MaternKernel) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        K, cross = to_dense(kernel(X)), to_dense(kernel(X, test))
        factor = torch.linalg.cholesky(K + _LAMBDA * torch.eye(len(X), dtype=X.dtype))
        solved = torch.linalg.solve_triangular(factor, torch.cat([cross, Y], dim=-1), upper=False)
        embedding, whitened = solved[:, :-1], solved[:, -1]
        dimension = len(X) - _LAMBDA * torch.cholesky_inverse(factor).trace()
        return dimension, whitened @ embedding, 1.0 - embedding.square().sum(0)


def _table_of_rounds(measurements: list[dict[str, Any]]) -> Table:
    rows = []
    for run in measurements:
        refresh = run["fresh"] / CHECK
        ratio = statistics.median(run["dense"]) / (statistics.median(run["OnlineGP"]) + refresh)
        ours, theirs = (spread([1e3 * value for value in run[name]]) for name in ("OnlineGP", "dense"))
        rows.append([f"{run['points']:,}", ours, f"{1e3 * refresh:.2f}", theirs, f"{ratio:.1f}"])
    title = "One new point, the effective dimension and the posterior at ten points: ms, median (min–max)"
    columns = ["distinct points", "OnlineGP", f"and 1/{CHECK} of a fresh posterior", "dense", "dense / this"]
    return Table(title, columns, rows)


def _online(X: Tensor, Y: Tensor, test: Tensor) -> Callable[[Tensor, Tensor], None]:
    model = OnlineGP(X, Y, covar_module=MaternKernel(nu=2.5).to(X), regularization=_LAMBDA)
    model.posterior(test)

    def step(x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model.tell(x, y)
            _ = model.posterior(test).variance

    return step


def _botorch(X: Tensor, Y: Tensor, test: Tensor) -> Callable[[Tensor, Tensor], None]:
    model = SingleTaskGP(
        X, Y, torch.full_like(Y, _LAMBDA), covar_module=MaternKernel(nu=2.5).to(X), outcome_transform=None
    )
    model.posterior(test)
    current: list[Any] = [model]

    def step(x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            current[0] = current[0].condition_on_observations(x, y, noise=torch.full_like(y, _LAMBDA))
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

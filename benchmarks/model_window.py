"""Milliseconds for one round of a sliding window on ``NystromGP``: told and made to forget in place, or built again."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import NystromGP
from torch_kbandits.environments import gaussian_bumps

#: The noise variance of the models.
_LAMBDA = 0.01

#: A round: a point and its reward come, the oldest goes, and the posterior at the test points is asked for.
Round = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Sizes:
    """What is run: windows of so many observations with dictionaries of so many points, and timed rounds of each."""

    windows: tuple[int, ...] = (500, 2_000, 5_000)
    dictionaries: tuple[int, ...] = (100, 300)
    dimension: int = 6
    rounds: int = 30


QUICK = Sizes(windows=(20,), dictionaries=(5, 8), dimension=2, rounds=3)


def run(quick: bool = False) -> Report:
    """Time every way in every case."""
    sizes = QUICK if quick else Sizes()
    cases = [(window, m) for window in sizes.windows for m in sizes.dictionaries]
    measurements = [run for case in tqdm(cases, desc="model_window", unit="case") for run in measure(*case, sizes)]
    return Report("model_window", asdict(sizes), [_table(measurements)], measurements)


def measure(window: int, m: int, sizes: Sizes) -> list[dict[str, Any]]:
    """Time rounds on windows of one size, each way on the same points; where dictionaries agree so must posteriors."""
    environment = gaussian_bumps(window + sizes.rounds + 11, sizes.dimension, seed=0)
    noise = torch.randn(len(environment.arms), 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X, test = environment.arms[:-10], environment.arms[-10:]
    Y = (environment.means.unsqueeze(-1) + environment.noise_scale * noise)[:-10]
    runs, means = [], {}
    for name, make in _WAYS.items():
        step = make(X[:window], Y[:window], m, test)
        seconds = []
        for row in range(window, len(X)):
            start = time.perf_counter()
            means[name] = step(X[row, None], Y[row, None])
            seconds.append(time.perf_counter() - start)
        # The first round after a model was built touches memory for the first time.
        runs.append({"way": name, "window": window, "dictionary": m, "seconds": seconds[1:]})
    torch.testing.assert_close(means[_IN_PLACE], means[_BUILT], rtol=1e-6, atol=1e-6)
    return runs


def _made(X: Tensor, Y: Tensor, dictionary: Tensor) -> NystromGP:
    kernel = MaternKernel(nu=2.5).to(X)
    return NystromGP(X, Y, inducing_points=dictionary, covar_module=kernel, regularization=_LAMBDA)


def _asked(model: NystromGP, test: Tensor) -> Tensor:
    posterior = model.posterior(test.unsqueeze(-2))
    return torch.cat([posterior.mean.flatten(), posterior.variance.flatten()])


def _in_place(X: Tensor, Y: Tensor, m: int, test: Tensor) -> Round:
    model = _made(X, Y, X[:m])
    _asked(model, test)

    @torch.no_grad()
    def step(x: Tensor, y: Tensor) -> Tensor:
        model.tell(x, y)
        model.remove([0])
        return _asked(model, test)

    return step


def _joining(X: Tensor, Y: Tensor, m: int, test: Tensor) -> Round:
    model = _made(X, Y, X[:m])
    _asked(model, test)

    @torch.no_grad()
    def step(x: Tensor, y: Tensor) -> Tensor:
        model.tell(x, y, add_to_dictionary=True)
        model.remove([0])
        return _asked(model, test)

    return step


def _built(X: Tensor, Y: Tensor, m: int, test: Tensor) -> Round:
    dictionary, kept = X[:m], [X, Y]

    @torch.no_grad()
    def step(x: Tensor, y: Tensor) -> Tensor:
        kept[:] = torch.cat([kept[0][1:], x]), torch.cat([kept[1][1:], y])
        return _asked(_made(kept[0], kept[1], dictionary), test)

    return step


_IN_PLACE, _BUILT = "told and made to forget", "built again"
_WAYS = {_IN_PLACE: _in_place, "the same, and the point joins the dictionary": _joining, _BUILT: _built}


def _table(measurements: list[dict[str, Any]]) -> Table:
    built = {(run["window"], run["dictionary"]): run["seconds"] for run in measurements if run["way"] == _BUILT}
    rows = []
    for run in measurements:
        ratio = statistics.median(built[run["window"], run["dictionary"]]) / statistics.median(run["seconds"])
        times = spread([1e3 * value for value in run["seconds"]])
        rows.append([f"{run['window']:,}", f"{run['dictionary']:,}", run["way"], times, f"{ratio:.1f}"])
    title = "One observation comes, the oldest goes, and the posterior at ten points: ms, median (min–max)"
    return Table(title, ["window", "dictionary", "way", "ms", "built again / this"], rows)

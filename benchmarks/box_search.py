"""Time of BoTorch's ``optimize_acqf`` with ``NystromGP`` and an exact model, and what warm starts are worth."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import RBFKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import KernelUCB, NystromGP
from torch_kbandits.acquisition import Domain, UpperConfidenceRule
from torch_kbandits.environments import BoxFunction, synthetic_function

_NOISE = 0.1
_REGULARIZATION = 0.01


@dataclass(frozen=True)
class Sizes:
    """What is run; ``searches`` are random restarts, raw samples and whether the search also starts warm."""

    dimension: int = 6
    observations: int = 10_000
    dictionary: int = 200
    num_restarts: int = 8
    raw_samples: int = 128
    repeats: int = 15
    evaluations: int = 50
    rounds: int = 40
    starting: tuple[int, ...] = (200, 10_000)
    searches: tuple[tuple[int, int, bool], ...] = (
        (8, 128, False),
        (8, 128, True),
        (4, 64, True),
        (2, 32, False),
        (2, 32, True),
        (1, 16, True),
    )
    thorough: tuple[int, int] = (64, 1024)


QUICK = Sizes(
    dimension=3, observations=40, dictionary=10, num_restarts=2, raw_samples=8, repeats=2, evaluations=2, rounds=2,
    starting=(20,), searches=((2, 8, False), (1, 4, True)), thorough=(4, 16),
)  # fmt: skip


def run(quick: bool = False) -> Report:
    """Time the models and their evaluations in turns; then search every round of a run in several ways."""
    sizes = QUICK if quick else Sizes()
    times = _times(sizes)
    rounds = [
        measurement
        for n in sizes.starting
        for measurement in _rounds(n, sizes, tqdm(range(sizes.rounds), desc=f"box_search, n = {n:,}", unit="round"))
    ]
    return Report("box_search", asdict(sizes), [_time_table(times, sizes), _warm_table(rounds, sizes)], times + rounds)


# -------------------------------------------------------------------- seconds a search


def _times(sizes: Sizes) -> list[dict[str, Any]]:
    environment = _environment(sizes)
    X, Y = _data(environment, sizes.observations)
    acquisitions = {name: build(X, Y, sizes) for name, build in _ACQUISITIONS.items()}
    start = torch.rand(sizes.num_restarts, 1, X.shape[1], generator=_generator(), dtype=X.dtype).requires_grad_()
    measurements = {
        name: {"acquisition": name, "seconds": [], "milliseconds": [], "evaluations": _count(acquisition, sizes)}
        for name, acquisition in acquisitions.items()
    }
    for _ in tqdm(range(sizes.repeats), desc="box_search", unit="repeat"):
        for name, acquisition in acquisitions.items():
            begin = time.perf_counter()
            _search(acquisition, sizes)
            measurements[name]["seconds"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            for _ in range(sizes.evaluations):
                torch.autograd.grad(acquisition(start).sum(), start)
            measurements[name]["milliseconds"].append(1e3 * (time.perf_counter() - begin) / sizes.evaluations)
    return list(measurements.values())


def _search(acquisition: AcquisitionFunction, sizes: Sizes) -> None:
    bounds = torch.stack([torch.zeros(sizes.dimension), torch.ones(sizes.dimension)]).double()
    with manual_seed(0):
        optimize_acqf(acquisition, bounds, q=1, num_restarts=sizes.num_restarts, raw_samples=sizes.raw_samples)


def _count(acquisition: AcquisitionFunction, sizes: Sizes) -> int:
    """Return how often a search calls the acquisition function; it also fills the caches of the model."""
    calls = []
    hook = acquisition.register_forward_hook(lambda *_: calls.append(1))
    _search(acquisition, sizes)
    hook.remove()
    return len(calls)


def _nystrom(X: Tensor, Y: Tensor, Z: Tensor) -> NystromGP:
    return NystromGP(X, Y, inducing_points=Z, covar_module=_kernel(), regularization=_REGULARIZATION)


def _exact(X: Tensor, Y: Tensor, sizes: Sizes) -> SingleTaskGP:
    X, Y = X[: sizes.dictionary], Y[: sizes.dictionary]
    noise = torch.full_like(Y, _REGULARIZATION)
    model = SingleTaskGP(X, Y, noise, covar_module=_kernel(), outcome_transform=None)
    return cast(SingleTaskGP, model.eval())


_EXACT = "SingleTaskGP, UpperConfidenceBound(beta=4.0)"
_ACQUISITIONS: dict[str, Callable[[Tensor, Tensor, Sizes], AcquisitionFunction]] = {
    "NystromGP, KernelUCB(beta=2.0)": lambda X, Y, sizes: KernelUCB(_nystrom(X, Y, X[: sizes.dictionary]), beta=2.0),
    "NystromGP, UpperConfidenceBound(beta=4.0)": lambda X, Y, sizes: UpperConfidenceBound(
        _nystrom(X, Y, X[: sizes.dictionary]), beta=4.0
    ),
    _EXACT: lambda *data: UpperConfidenceBound(_exact(*data), beta=4.0),
}


def _time_table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    (exact,) = (statistics.median(run["seconds"]) for run in measurements if run["acquisition"] == _EXACT)
    rows = []
    for run in measurements:
        n = sizes.dictionary if run["acquisition"] == _EXACT else sizes.observations
        rows.append(
            [
                run["acquisition"],
                f"{n:,}",
                spread(run["seconds"], 3),
                f"{statistics.median(run['seconds']) / exact:.2f}",
                f"{run['evaluations']}",
                spread(run["milliseconds"]),
            ]
        )
    title = (
        f"One search with {sizes.num_restarts} restarts from {sizes.raw_samples} samples, d = {sizes.dimension}, "
        f"dictionary of {sizes.dictionary}: median (min–max) of {sizes.repeats}"
    )
    columns = ["model and acquisition", "n", "seconds", "this / SingleTaskGP", "evaluations", "ms each, with gradient"]
    return Table(title, columns, rows)


# -------------------------------------------------------------------- warm starts


def _rounds(n: int, sizes: Sizes, rounds: Any) -> list[dict[str, Any]]:
    """Play GP-UCB from n random observations on; search every round in all ways, and once thoroughly."""
    environment = _environment(sizes)
    X, Y = _data(environment, n)
    bounds, rule, beta = environment.bounds, UpperConfidenceRule(), torch.tensor(2.0, dtype=X.dtype)
    dictionary = X[: sizes.dictionary]
    found: list[dict[str, Any]] = [
        {"n": n, "restarts": restarts, "raw_samples": raw, "warm": warm, "seconds": [], "shortfall": []}
        for restarts, raw, warm in sizes.searches
    ]
    for number in rounds:
        model = _nystrom(X, Y, dictionary)
        acquisition = KernelUCB(model, beta)
        with torch.no_grad():
            starts = torch.cat([X[-1:], X[model.posterior(X).mean.argmax(), None]])

        def search(
            restarts: int,
            raw_samples: int,
            starts: Tensor | None,
            acquisition: KernelUCB = acquisition,
            number: int = number,
        ) -> tuple[Tensor, float, float]:
            domain = Domain(None, bounds, restarts, raw_samples, starts)
            begin = time.perf_counter()
            x = rule.on_box(acquisition.model, beta, None, domain, seed=number)
            seconds = time.perf_counter() - begin
            with torch.no_grad():
                return x, float(acquisition(x.unsqueeze(0))), seconds

        x, highest, _ = search(*sizes.thorough, starts)
        values = []
        for run in found:
            _, value, seconds = search(run["restarts"], run["raw_samples"], starts if run["warm"] else None)
            run["seconds"].append(seconds)
            values.append(value)
        highest = max(highest, *values)
        for run, value in zip(found, values, strict=True):
            run["shortfall"].append(highest - value)
        noise = _NOISE * torch.randn(1, generator=_generator(number), dtype=X.dtype)
        X, Y = torch.cat([X, x]), torch.cat([Y, (environment.mean(x) + noise).unsqueeze(-1)])
        dictionary = torch.cat([dictionary, x])
    return found


def _warm_table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = [
        [
            f"{run['n']:,}",
            f"{run['restarts']}",
            f"{run['raw_samples']}",
            "yes" if run["warm"] else "no",
            spread(run["seconds"], 3),
            f"{sum(value < 1e-3 for value in run['shortfall'])} of {len(run['shortfall'])}",
            f"{statistics.fmean(run['shortfall']):.3f}",
            f"{max(run['shortfall']):.3f}",
        ]
        for run in measurements
    ]
    title = (
        f"{sizes.rounds} rounds of GP-UCB after n random observations, d = {sizes.dimension}: searches of every round, "
        "beside the best value that any found"
    )
    columns = ["n", "restarts", "raw samples", "warm", "seconds", "best found", "mean shortfall", "largest shortfall"]
    return Table(title, columns, rows)


# -------------------------------------------------------------------- the problem


def _environment(sizes: Sizes) -> BoxFunction:
    return cast(BoxFunction, synthetic_function("hartmann", sizes.dimension, domain="box", seed=0))


def _data(environment: BoxFunction, n: int) -> tuple[Tensor, Tensor]:
    """Return points (n, d), uniform in the cube, and rewards (n, 1)."""
    generator = _generator()
    X = torch.rand(n, environment.bounds.shape[1], generator=generator, dtype=torch.float64)
    return X, (environment.mean(X) + _NOISE * torch.randn(n, generator=generator, dtype=X.dtype)).unsqueeze(-1)


def _kernel() -> RBFKernel:
    return RBFKernel().double().initialize(lengthscale=0.5).requires_grad_(False)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)

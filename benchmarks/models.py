"""Models in BoTorch loops of one's own, beside BoTorch's: searches, rounds, and one observation more."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.transforms import Standardize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.runner import (
    Found,
    Measurement,
    Parts,
    Table,
    apart,
    benchmark,
    chosen,
    in_turns,
    mean_and_error,
    peak_bytes,
    resident_bytes,
    seconds_of,
    spread,
    values,
)
from torch_kbandits import KernelUCB, NystromGP, OnlineGP
from torch_kbandits.environments import BoxFunction, gaussian_bumps, synthetic_function

_LAMBDA = 0.01
_NYSTROM, _EXACT = "NystromGP", "SingleTaskGP"


def _bumps(number: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Return points (n, d), uniform in the cube, and rewards (n, 1)."""
    environment = gaussian_bumps(number, dimension, seed=0)
    noise = torch.randn(number, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return environment.arms, (environment.means + environment.noise_scale * noise).unsqueeze(-1)


def _nystrom(X: Tensor, Y: Tensor, dictionary: Tensor, covar_module: Kernel | None = None) -> NystromGP:
    words = {"inducing_points": dictionary, "regularization": _LAMBDA}
    return NystromGP(X, Y, covar_module=covar_module or kernel(), **words)


def _exact(X: Tensor, Y: Tensor, covar_module: Kernel | None = None) -> SingleTaskGP:
    noise = torch.full_like(Y, _LAMBDA)
    return SingleTaskGP(X, Y, noise, covar_module=covar_module or kernel(), outcome_transform=None)


def _ms(seconds: list[float], digits: int = 2) -> str:
    return spread([1e3 * value for value in seconds], digits)


def _over(seconds: list[float], base: list[float]) -> str:
    return f"{statistics.median(seconds) / statistics.median(base):.1f}"


# ---------------------------------------------------------------- searches


def _ucb(name: str, X: Tensor, Y: Tensor, dictionary: int) -> AcquisitionFunction:
    """Return the same acquisition function of both models, whose caches a search over ten points has filled."""
    if name == _NYSTROM:
        found = KernelUCB(_nystrom(X, Y, X[:dictionary]), beta=2.0)
    else:
        found = UpperConfidenceBound(_exact(X, Y).eval(), beta=4.0)
    optimize_acqf_discrete(found, q=1, choices=X[:10])
    return found


def extra_memory(name: str, batch: int, candidates: int, observations: int, dictionary: int, dimension: int) -> float:
    """Return by how much a search, or building the model, raises the memory of this process, in MB."""
    X, Y = _bumps(candidates + observations, dimension)
    acquisition = _ucb(name, X[candidates:], Y[candidates:], dictionary)
    resident = resident_bytes()
    optimize_acqf_discrete(acquisition, q=1, choices=X[:candidates], max_batch_size=batch)
    return (peak_bytes() - resident) / 1e6


@benchmark(candidates=300, dimension=2, observations=40, dictionary=10, repeats=2, batches=(100,))
def discrete_acquisition(
    candidates: int = 20_000,
    dimension: int = 6,
    observations: int = 2_000,
    dictionary: int = 200,
    repeats: int = 5,
    batches: tuple[int, ...] = (2_048, 20_000),
) -> Found:
    """Time ``optimize_acqf_discrete`` in this process, and measure its memory in processes of its own.

    ``batches`` are values of ``max_batch_size``, the first one being BoTorch's default; with all candidates in one the
    exact model would take gigabytes.
    """
    X, Y = _bumps(candidates + observations, dimension)
    models = {name: _ucb(name, X[candidates:], Y[candidates:], dictionary) for name in (_NYSTROM, _EXACT)}
    settings = [*((_NYSTROM, batch) for batch in batches), (_EXACT, batches[0])]
    search = partial(optimize_acqf_discrete, q=1, choices=X[:candidates])
    calls = {f"{name} {batch}": partial(search, models[name], max_batch_size=batch) for name, batch in settings}
    seconds, found = in_turns(calls, repeats), list[Measurement]()
    for name, batch in settings:
        memory = apart(extra_memory, name, batch, candidates, observations, dictionary, dimension)
        words = {"model": name, "max_batch_size": batch, "extra_memory_mb": memory}
        found.append(words | {"seconds": seconds[f"{name} {batch}"]})
    rows = [
        [
            each["model"],
            f"{each['max_batch_size']:,}",
            spread(each["seconds"], 3),
            _over(found[-1]["seconds"], each["seconds"]),
            f"{each['extra_memory_mb']:.0f}",
        ]
        for each in found
    ]
    title = (
        f"{candidates:,} candidates, n = {observations:,}, dictionary of {dictionary}: median (min–max) of {repeats}"
    )
    columns = ["model", "max_batch_size", "seconds", "SingleTaskGP / this", "extra peak memory, MB"]
    return [Table(f"{title} searches", columns, rows)], found


@benchmark(dimension=3, observations=40, dictionary=10, num_restarts=2, raw_samples=8, repeats=2, evaluations=2)
def box_search(
    dimension: int = 6,
    observations: int = 10_000,
    dictionary: int = 200,
    num_restarts: int = 8,
    raw_samples: int = 128,
    repeats: int = 15,
    evaluations: int = 50,
) -> Found:
    """Time searches of a box, and evaluations at all restarts with their gradient, in turns."""
    environment = cast(BoxFunction, synthetic_function("hartmann", dimension, domain="box", seed=0))
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(observations, dimension, generator=generator, dtype=torch.float64)
    Y = (environment.mean(X) + 0.1 * torch.randn(observations, generator=generator, dtype=X.dtype)).unsqueeze(-1)
    model = _nystrom(X, Y, X[:dictionary])
    functions = {
        "NystromGP, KernelUCB(beta=2.0)": KernelUCB(model, beta=2.0),
        "NystromGP, UpperConfidenceBound(beta=4.0)": UpperConfidenceBound(model, beta=4.0),
        "SingleTaskGP, UpperConfidenceBound(beta=4.0)": _ucb(_EXACT, X[:dictionary], Y[:dictionary], dictionary),
    }
    start = torch.rand(num_restarts, 1, dimension, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    start.requires_grad_()
    bounds = torch.stack([torch.zeros(dimension), torch.ones(dimension)]).double()

    def search(function: AcquisitionFunction) -> None:
        with manual_seed(0):
            optimize_acqf(function, bounds, q=1, num_restarts=num_restarts, raw_samples=raw_samples)

    def evaluate(function: AcquisitionFunction) -> None:
        for _ in range(evaluations):
            torch.autograd.grad(function(start).sum(), start)

    def called(function: AcquisitionFunction) -> int:
        calls = list[int]()
        hook = function.register_forward_hook(lambda *_: calls.append(1))
        search(function)
        hook.remove()
        return len(calls)

    counts = {name: called(function) for name, function in functions.items()}
    calls = {
        f"{name} {what.__name__}": partial(what, functions[name]) for name in counts for what in (search, evaluate)
    }
    seconds, found, rows = in_turns(calls, repeats), list[Measurement](), list[list[str]]()
    exact = seconds[f"{[*functions][-1]} search"]
    for name, number in counts.items():
        searches, ms = seconds[f"{name} search"], [1e3 * each / evaluations for each in seconds[f"{name} evaluate"]]
        found.append({"acquisition": name, "seconds": searches, "milliseconds": ms, "evaluations": number})
        ratio = f"{statistics.median(searches) / statistics.median(exact):.2f}"
        n = observations if name.startswith(_NYSTROM) else dictionary
        rows.append([name, f"{n:,}", spread(searches, 3), ratio, f"{number}", spread(ms)])
    title = (
        f"One search with {num_restarts} restarts from {raw_samples} samples, d = {dimension}, dictionary of "
        f"{dictionary}: median (min–max) of {repeats}"
    )
    columns = ["model and acquisition", "n", "seconds", "this / SingleTaskGP", "evaluations", "ms each, with gradient"]
    return [Table(title, columns, rows)], found


# ---------------------------------------------------------------- rounds

_VARIATIONAL = "SingleTaskVariationalGP"


def _default(smoothness: str, dimension: int) -> Kernel:
    """Return BoTorch's default kernel, or a Matérn kernel with the same prior of its length scales."""
    kernel = get_covar_module_with_dim_scaled_prior(dimension, use_rbf_kernel=smoothness == "RBF").double()
    if smoothness == "Matérn 3/2":
        kernel.nu = 1.5  # pyright: ignore[reportArgumentType]
    return kernel


def one_round(
    model: str, smoothness: str, dimension: int, observations: int, seed: int, candidates: int
) -> Measurement:
    """Fit a model to a wave in a direction of its own at each seed, choose a candidate, and see what it knows."""
    generator = torch.Generator().manual_seed(seed)
    X, choices, test = (
        torch.rand(number, dimension, generator=generator, dtype=torch.float64)
        for number in (observations, candidates, 2_000)
    )
    direction = 3.0 * (8.0 / dimension) ** 0.5 * torch.randn(dimension, generator=generator, dtype=torch.float64)

    def truth(points: Tensor) -> Tensor:
        return torch.sin(points @ direction) + 0.5 * torch.cos(4.0 * points[:, 0])

    Y = (truth(X) + 0.1 * torch.randn(observations, generator=generator, dtype=torch.float64)).unsqueeze(-1)
    words: dict[str, Any] = {"covar_module": _default(smoothness, dimension)}
    with manual_seed(seed):
        started = time.process_time()
        kind = {_NYSTROM: NystromGP, _EXACT: SingleTaskGP, _VARIATIONAL: SingleTaskVariationalGP}[model]
        words |= {"outcome_transform": Standardize(1)} if model == _VARIATIONAL else {}
        fitted = kind(X, Y, **words)
        if model == _VARIATIONAL:
            fit_gpytorch_mll(VariationalELBO(fitted.likelihood, fitted.model, num_data=observations))
        else:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
        at_fitted = time.process_time()
        bound = KernelUCB(fitted, beta=2.0) if model == _NYSTROM else UpperConfidenceBound(fitted, beta=4.0)
        optimize_acqf_discrete(bound, q=1, choices=choices)
        chosen = time.process_time()
    with torch.no_grad():
        posterior = fitted.posterior(test.unsqueeze(-2))
        error, variance = truth(test) - posterior.mean.flatten(), posterior.variance.flatten()
        means = torch.cat([fitted.posterior(part.unsqueeze(-2)).mean.flatten() for part in choices.split(2_048)])
    values = truth(choices)
    return {
        "fit": at_fitted - started,
        "choice": chosen - at_fitted,
        "dictionary": len(getattr(fitted, "inducing_points", X)),
        "error": float(error.square().mean().sqrt()),
        "z": float((error.square() / variance).mean().sqrt()),
        "regret": float(values.max() - values[means.argmax()]),
    }


@benchmark(cases=((2, 30),), smoothnesses=("RBF",), candidates=50, seeds=1, largest=(30, 20))
def model_rounds(
    parts: Parts,
    cases: tuple[tuple[int, int], ...] = tuple(product((2, 6, 8, 20), (300, 1_000, 3_000))),
    smoothnesses: tuple[str, ...] = ("RBF", "Matérn 5/2", "Matérn 3/2"),
    candidates: int = 20_000,
    seeds: int = 8,
    largest: tuple[int, int] = (3_000, 300),
) -> Found:
    """Time a fit and a choice, as BoTorch has them, in processor seconds, and see what the fitted model knows.

    ``largest`` are the most observations of ``SingleTaskGP`` and of ``SingleTaskVariationalGP``.
    """
    most = {_NYSTROM: math.inf, _EXACT: largest[0], _VARIATIONAL: largest[1]}
    keys = [
        {"model": model, "smoothness": each, "dimension": d, "observations": n, "seed": seed}
        for (d, n), each, seed, model in product(cases, smoothnesses, range(seeds), most)
        if n <= most[model]
    ]
    for model in (_NYSTROM, _EXACT):  # the first calls of a process load libraries and compile loops
        one_round(model, smoothnesses[0], 2, 20, 0, 50)
    found = [
        parts.measured(key, partial(one_round, **key, candidates=candidates)) for key in tqdm(keys, "model_rounds")
    ]
    rows = []
    for (d, n), each, model in product(cases, smoothnesses, most):
        here = chosen(found, model=model, smoothness=each, dimension=d, observations=n)
        exact = chosen(found, model=_EXACT, smoothness=each, dimension=d, observations=n)
        if here:
            cost, of_exact = ([part["fit"] + part["choice"] for part in parts_] for parts_ in (here, exact))
            cells = [f"{statistics.median(values(here, name)):.2f}" for name in ("fit", "choice")]
            cells += [f"{statistics.median(cost) / statistics.median(of_exact):.2f}" if exact else "–"]
            cells += [f"{statistics.median(values(here, 'dictionary')):.0f}"]
            cells += [
                mean_and_error(values(here, name), digits) for name, digits in (("error", 3), ("z", 2), ("regret", 3))
            ]
            rows.append([f"{d}", f"{n:,}", each, model, *cells])
    title = (
        f"A fit and a choice among {candidates:,}: medians of {seeds} seeds, and means ± standard errors of the root "
        "mean square error, of errors over claimed deviations, and of the regret of the largest posterior mean"
    )
    columns = ["d", "n", "kernel", "model", "fit, s", "choice, s", "this / SingleTaskGP", "m", "error", "z", "regret"]
    return [Table(title, columns, rows)], found


# ---------------------------------------------------------------- one observation more

#: Learns a point and its reward.
Step = Callable[[Tensor, Tensor], Any]


def _told(model: OnlineGP, test: Tensor) -> Step:
    """Tell a model in place, and ask for the posterior at the test points."""
    _ = model.posterior(test).variance

    def step(x: Tensor, y: Tensor) -> Tensor:
        model.tell(x, y)
        return model.posterior(test).variance

    return step


def _conditioned(model: Any, test: Tensor) -> Step:
    """Condition as BoTorch does, by a new model, and ask for the same."""
    current = [model]
    _ = model.posterior(test).variance

    def step(x: Tensor, y: Tensor) -> Tensor:
        current[0] = current[0].condition_on_observations(x, y, noise=torch.full_like(y, _LAMBDA))
        return current[0].posterior(test).variance

    return step


@benchmark(cases=((20, 20), (40, 5)), timed=2, largest_for_botorch=40)
def online_tells(
    cases: tuple[tuple[int, int], ...] = ((500, 500), (2_000, 2_000), (2_000, 50), (10_000, 50)),
    dimension: int = 2,
    timed: int = 30,
    largest_for_botorch: int = 2_000,
) -> Found:
    """Time single observations of exact models after so many plays of so many distinct arms, round after round."""
    found, rows = list[Measurement](), list[list[str]]()
    for plays, distinct in tqdm(cases, "online_tells"):
        environment, of_rows = gaussian_bumps(distinct + 10, dimension, seed=0), torch.arange(plays + timed) % distinct
        arms, test = environment.arms[:distinct], environment.arms[distinct:]
        noise = torch.randn(len(of_rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        Y = (environment.means[of_rows] + environment.noise_scale * noise).unsqueeze(-1)
        X, matern = arms[of_rows], MaternKernel(nu=2.5).to(arms)
        known = X[:plays], Y[:plays]
        steps = {"OnlineGP": _told(OnlineGP(*known, covar_module=matern, regularization=_LAMBDA), test)}
        if plays <= largest_for_botorch:
            steps[_EXACT] = _conditioned(_exact(*known, matern), test)
        with torch.no_grad():
            new = list(zip(X[plays:, None], Y[plays:, None], strict=True))
            here = {name: [seconds_of(partial(step, *each)) for each in new] for name, step in steps.items()}
        for name, seconds in here.items():
            found.append({"model": name, "plays": plays, "distinct": distinct, "seconds": seconds})
            ratio = _over(here[_EXACT], seconds) if _EXACT in here else "–"
            rows.append([f"{plays:,}", f"{distinct:,}", name, _ms(seconds), ratio])
    title = "One more observation and the posterior at ten points: median (min–max)"
    return [Table(title, ["plays", "distinct arms", "model", "ms", "SingleTaskGP / this"], rows)], found

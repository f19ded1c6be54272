"""Models in BoTorch loops of one's own, beside BoTorch's: searches, rounds, and one observation more."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.transforms import Standardize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf_discrete
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
from torch_kbandits.environments import gaussian_bumps

_LAMBDA = 0.01
_NYSTROM, _EXACT, _VARIATIONAL = "NystromGP", "SingleTaskGP", "SingleTaskVariationalGP"


def _bumps(number: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Return points (n, d), uniform in the cube, and rewards (n, 1)."""
    environment = gaussian_bumps(number, dimension, seed=0)
    noise = torch.randn(number, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return environment.arms, (environment.means + environment.noise_scale * noise).unsqueeze(-1)


def _exact(X: Tensor, Y: Tensor, covar_module: Kernel) -> SingleTaskGP:
    return SingleTaskGP(X, Y, torch.full_like(Y, _LAMBDA), covar_module=covar_module, outcome_transform=None)


def _over(seconds: list[float], base: list[float], digits: int = 1) -> str:
    return f"{statistics.median(seconds) / statistics.median(base):.{digits}f}"


# ---------------------------------------------------------------- searches


def _ucb(name: str, X: Tensor, Y: Tensor, dictionary: int) -> AcquisitionFunction:
    """Return the same acquisition function of both models, whose caches a search over ten points has filled."""
    if name == _NYSTROM:
        words = {"inducing_points": X[:dictionary], "regularization": _LAMBDA}
        found = KernelUCB(NystromGP(X, Y, covar_module=kernel(), **words), beta=2.0)
    else:
        found = UpperConfidenceBound(_exact(X, Y, kernel()).eval(), beta=4.0)
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
    seconds = in_turns({each: partial(search, models[each[0]], max_batch_size=each[1]) for each in settings}, repeats)
    found, rows = list[Measurement](), list[list[str]]()
    for name, batch in settings:
        memory, taken = apart(extra_memory, name, batch, candidates, observations, dictionary, dimension), (name, batch)
        words = {"model": name, "max_batch_size": batch, "extra_memory_mb": memory}
        found.append(words | {"seconds": seconds[taken]})
        ratio = _over(seconds[settings[-1]], seconds[taken])
        rows.append([name, f"{batch:,}", spread(seconds[taken], 3), ratio, f"{memory:.0f}"])
    title = f"{candidates:,} candidates, n = {observations:,}, dictionary of {dictionary}"
    columns = ["model", "max_batch_size", "seconds", "SingleTaskGP / this", "extra peak memory, MB"]
    return [Table(f"{title}: median (min–max) of {repeats} searches", columns, rows)], found


# ---------------------------------------------------------------- rounds


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
        if model == _VARIATIONAL:
            fitted = SingleTaskVariationalGP(X, Y, outcome_transform=Standardize(1), **words)
            fit_gpytorch_mll(VariationalELBO(fitted.likelihood, fitted.model, num_data=observations))
        else:
            fitted = (NystromGP if model == _NYSTROM else SingleTaskGP)(X, Y, **words)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
        at_fitted = time.process_time()
        bound = KernelUCB(fitted, beta=2.0) if model == _NYSTROM else UpperConfidenceBound(fitted, beta=4.0)
        optimize_acqf_discrete(bound, q=1, choices=choices)
        at_chosen = time.process_time()
    with torch.no_grad():
        posterior = fitted.posterior(test.unsqueeze(-2))
        error, variance = truth(test) - posterior.mean.flatten(), posterior.variance.flatten()
        means = torch.cat([fitted.posterior(part.unsqueeze(-2)).mean.flatten() for part in choices.split(2_048)])
    return {
        "fit": at_fitted - started,
        "choice": at_chosen - at_fitted,
        "cost": at_chosen - started,
        "dictionary": len(getattr(fitted, "inducing_points", X)),
        "error": float(error.square().mean().sqrt()),
        "z": float((error.square() / variance).mean().sqrt()),
        "regret": float(truth(choices).max() - truth(choices)[means.argmax()]),
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
    found = parts.all("model_rounds", keys, partial(one_round, candidates=candidates))
    rows = []
    for (d, n), each, model in product(cases, smoothnesses, most):
        same = chosen(found, smoothness=each, dimension=d, observations=n)
        here, exact = chosen(same, model=model), values(same, "cost", model=_EXACT)
        if here:
            cells = [f"{statistics.median(values(here, name)):.2f}" for name in ("fit", "choice")]
            cells += [_over(values(here, "cost"), exact, 2) if exact else "–"]
            cells += [f"{statistics.median(values(here, 'dictionary')):.0f}"]
            cells += [
                mean_and_error(values(here, of), digits) for of, digits in {"error": 3, "z": 2, "regret": 3}.items()
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
    _ = model.posterior(test).variance

    def step(x: Tensor, y: Tensor) -> Tensor:
        nonlocal model
        model = model.condition_on_observations(x, y, noise=torch.full_like(y, _LAMBDA))
        return model.posterior(test).variance

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
            rows.append([f"{plays:,}", f"{distinct:,}", name, spread([1e3 * each for each in seconds]), ratio])
    title = "One more observation and the posterior at ten points: median (min–max)"
    return [Table(title, ["plays", "distinct arms", "model", "ms", "SingleTaskGP / this"], rows)], found

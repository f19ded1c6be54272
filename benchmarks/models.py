"""Models in BoTorch loops of one's own, beside BoTorch's: searches, fits, and one observation more."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils.sampling import manual_seed
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.runner import (
    Found,
    Measurement,
    Table,
    apart,
    benchmark,
    in_turns,
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


# ---------------------------------------------------------------- fits


class _Timed(ExactMarginalLogLikelihood):
    """The marginal likelihood, with a clock that is read whenever it is evaluated."""

    starts: list[float]

    def forward(self, function_dist: MultivariateNormal, target: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        """Return the log marginal likelihood per observation."""
        self.starts.append(time.perf_counter())
        return super().forward(function_dist, target, *params, **kwargs)


@benchmark(observations=(20, 40), dimension=2, dictionary=5, maxiter=3)
def nystrom_fit(
    observations: tuple[int, ...] = (500, 1000, 2000), dimension: int = 6, dictionary: int = 100, maxiter: int = 30
) -> Found:
    """Fit both models at every n; an evaluation lasts from one reading of the likelihood's clock to the next."""

    def fitted(name: str, n: int, most: int = maxiter) -> Measurement:
        X, Y = _bumps(n, dimension)
        scales = RBFKernel(ard_num_dims=dimension).to(X)
        if name == _NYSTROM:
            model = NystromGP(X, Y, inducing_points=X[:dictionary], covar_module=scales)
        else:
            model = SingleTaskGP(X, Y, covar_module=scales, outcome_transform=None)
        likelihood = _Timed(model.likelihood, model)
        likelihood.starts = []
        words: dict[str, Any] = {"optimizer_kwargs": {"options": {"maxiter": most}}}
        seconds = seconds_of(lambda: fit_gpytorch_mll(likelihood, **words))
        evaluations = [later - earlier for earlier, later in pairwise(likelihood.starts)]
        return {"model": name, "observations": n, "seconds": seconds, "evaluation_seconds": evaluations}

    fitted(_NYSTROM, observations[0], 2)  # the first calls of a process load libraries and start threads
    found = [fitted(name, n) for n in tqdm(observations, "nystrom_fit") for name in (_NYSTROM, _EXACT)]
    rows = []
    for each in found:
        seconds = each["evaluation_seconds"]
        (exact,) = values(found, "evaluation_seconds", model=_EXACT, observations=each["observations"])
        cells = [f"{len(seconds) + 1}", f"{each['seconds']:.2f}", _ms(seconds, 1), _over(exact, seconds)]
        rows.append([f"{each['observations']:,}", each["model"], *cells])
    title = f"One fit, m = {dictionary}, at most {maxiter} iterations: median (min–max) of its evaluations"
    columns = ["n", "model", "evaluations", "seconds in all", "ms an evaluation", "SingleTaskGP / this"]
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

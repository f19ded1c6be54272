"""Seconds for one evaluation of the likelihood when ``fit_gpytorch_mll`` learns hyperparameters."""

import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import NystromGP
from torch_kbandits.environments import gaussian_bumps


@dataclass(frozen=True)
class Sizes:
    """What is run: one fit of each model at each n."""

    observations: tuple[int, ...] = (500, 1000, 2000)
    dimension: int = 6
    dictionary: int = 100
    maxiter: int = 30


QUICK = Sizes(observations=(20, 40), dimension=2, dictionary=5, maxiter=3)


class TimedLikelihood(ExactMarginalLogLikelihood):
    """The marginal likelihood, with a clock that is read whenever it is evaluated."""

    starts: list[float]

    def forward(self, function_dist: MultivariateNormal, target: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        """Return the log marginal likelihood per observation."""
        self.starts.append(time.perf_counter())
        return super().forward(function_dist, target, *params, **kwargs)


def run(quick: bool = False) -> Report:
    """Fit both models at every n."""
    sizes = QUICK if quick else Sizes()
    # The first calls of a process load libraries and start threads.
    measure("NystromGP", sizes.observations[0], replace(sizes, maxiter=2))
    cases = [(name, n) for n in sizes.observations for name in _MODELS]
    measurements = [measure(*case, sizes) for case in tqdm(cases, desc="nystrom_fit", unit="fit")]
    return Report("nystrom_fit", asdict(sizes), [_table(measurements, sizes)], measurements)


def measure(name: str, n: int, sizes: Sizes) -> dict[str, Any]:
    """Fit one model; an evaluation lasts from one reading of the likelihood's clock to the next."""
    environment = gaussian_bumps(n, sizes.dimension, seed=0)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = (environment.means + environment.noise_scale * noise).unsqueeze(-1)
    model = _MODELS[name](environment.arms, Y, sizes)
    mll = TimedLikelihood(model.likelihood, model)
    mll.starts = []
    start = time.perf_counter()
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": sizes.maxiter}})
    seconds = time.perf_counter() - start
    evaluations = [later - earlier for earlier, later in pairwise(mll.starts)]
    return {"model": name, "observations": n, "seconds": seconds, "evaluation_seconds": evaluations}


def _nystrom(X: Tensor, Y: Tensor, sizes: Sizes) -> SingleTaskGP:
    return NystromGP(
        X, Y, inducing_points=X[: sizes.dictionary], covar_module=RBFKernel(ard_num_dims=X.shape[-1]).to(X)
    )


def _exact(X: Tensor, Y: Tensor, sizes: Sizes) -> SingleTaskGP:
    return SingleTaskGP(X, Y, covar_module=RBFKernel(ard_num_dims=X.shape[-1]).to(X), outcome_transform=None)


_MODELS = {"NystromGP": _nystrom, "SingleTaskGP": _exact}


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    exact = {run["observations"]: run["evaluation_seconds"] for run in measurements if run["model"] == "SingleTaskGP"}
    rows = []
    for run in measurements:
        ratio = statistics.median(exact[run["observations"]]) / statistics.median(run["evaluation_seconds"])
        rows.append(
            [
                f"{run['observations']:,}",
                run["model"],
                str(len(run["evaluation_seconds"]) + 1),
                f"{run['seconds']:.2f}",
                spread([1e3 * value for value in run["evaluation_seconds"]], 1),
                f"{ratio:.1f}",
            ]
        )
    title = f"One fit, m = {sizes.dictionary}, at most {sizes.maxiter} iterations: median (min–max) of its evaluations"
    columns = ["n", "model", "evaluations", "seconds in all", "ms an evaluation", "SingleTaskGP / this"]
    return Table(title, columns, rows)

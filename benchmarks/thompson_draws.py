"""Seconds of a Thompson draw on many arms, by this package's routes and by BoTorch's."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from botorch.generation import MaxPosteriorSampling
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits import Arms, Bandit, ConstantWidth, FixedDictionary, NystromGP
from torch_kbandits.acquisition import DiscretizedThompsonSampling, ThompsonRule
from torch_kbandits.environments import gaussian_bumps

_REGULARIZATION = 0.01

#: Points that a BoTorch path is evaluated at, at a time; all at once would take gigabytes.
_BLOCK = 2048


@dataclass(frozen=True)
class Sizes:
    """What is run; ``joint`` arms are drawn at by BoTorch's joint posterior, which all would not fit."""

    arms: int = 100_000
    joint: int = 2_000
    dimension: int = 6
    observations: int = 2_000
    dictionary: int = 200
    repeats: int = 7


QUICK = Sizes(arms=2_500, joint=50, dimension=2, observations=40, dictionary=10, repeats=2)


def run(quick: bool = False) -> Report:
    """Time the set-up and the draws of every route for two kernels, draws of the routes in turn."""
    sizes = QUICK if quick else Sizes()
    environment = gaussian_bumps(sizes.arms, sizes.dimension, seed=0)
    arms = environment.arms
    noise = torch.randn(sizes.observations, generator=torch.Generator().manual_seed(0), dtype=arms.dtype)
    Y = environment.means[: sizes.observations] + environment.noise_scale * noise
    measurements = []
    for name, make_kernel in _KERNELS.items():
        routes = {}
        for route, set_up in _ROUTES.items():
            start = time.perf_counter()
            routes[route] = set_up(arms, Y, make_kernel(), sizes)
            measurements.append(
                {"kernel": name, "route": route, "set_up": time.perf_counter() - start, "seconds": [], "load": []}
            )
        runs = measurements[-len(routes) :]
        for number in tqdm(range(sizes.repeats), desc=f"thompson_draws {name}", unit="repeat"):
            for measurement, draw in zip(runs, routes.values(), strict=True):
                start = time.perf_counter()
                draw(number)
                measurement["seconds"].append(time.perf_counter() - start)
                measurement["load"].append(os.getloadavg()[0])
    return Report("thompson_draws", asdict(sizes), [_table(measurements, sizes)], measurements)


def _model(arms: Tensor, Y: Tensor, kernel: Kernel, sizes: Sizes) -> NystromGP:
    return NystromGP(
        arms[: len(Y)],
        Y.unsqueeze(-1),
        inducing_points=arms[: sizes.dictionary],
        covar_module=kernel,
        regularization=_REGULARIZATION,
    )


def _function(arms: Tensor, Y: Tensor, kernel: Kernel, sizes: Sizes) -> Callable[[int], Any]:
    acquisition = DiscretizedThompsonSampling(_model(arms, Y, kernel, sizes), arms, seed=0)
    return lambda number: acquisition.maximizers(number + 1)  # the earlier draws are kept


def _bandit(arms: Tensor, Y: Tensor, kernel: Kernel, sizes: Sizes) -> Callable[[int], Any]:
    bandit = Bandit(
        candidates=Arms(arms),
        kernel=kernel,
        regularization=_REGULARIZATION,
        dictionary=FixedDictionary(arms[: sizes.dictionary]),
        acquisition=ThompsonRule(),
        width=ConstantWidth(1.0),
        seed=0,
    )
    bandit.tell(arms[: len(Y)], Y)
    bandit.ask()  # sets up the prior draws
    return lambda _: bandit.ask()  # each with a draw of its own


def _paths(arms: Tensor, Y: Tensor, kernel: Kernel, sizes: Sizes) -> Callable[[int], Any]:
    model = _model(arms, Y, kernel, sizes).eval()

    @torch.no_grad()
    def draw(number: int) -> Tensor:
        paths = draw_matheron_paths(model, sample_shape=torch.Size())
        return torch.cat([paths(block) for block in arms.split(_BLOCK)])

    draw(0)  # fills the model's caches
    return draw


def _joint(arms: Tensor, Y: Tensor, kernel: Kernel, sizes: Sizes) -> Callable[[int], Any]:
    sampling = MaxPosteriorSampling(_model(arms, Y, kernel, sizes).eval(), replacement=False)

    @torch.no_grad()
    def draw(number: int) -> Tensor:
        return sampling(arms[: sizes.joint], num_samples=1)

    draw(0)
    return draw


_KERNELS: dict[str, Callable[[], Kernel]] = {
    "RBF": lambda: RBFKernel().double().initialize(lengthscale=0.5).requires_grad_(False),
    "Matérn-2.5": lambda: MaternKernel(nu=2.5).double().initialize(lengthscale=0.5).requires_grad_(False),
}

_ROUTES = {
    "DiscretizedThompsonSampling": _function,
    "a bandit's ask": _bandit,
    "BoTorch paths": _paths,
    "BoTorch MaxPosteriorSampling": _joint,
}


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = [
        [
            run["kernel"],
            run["route"],
            f"{sizes.joint if run['route'] == 'BoTorch MaxPosteriorSampling' else sizes.arms:,}",
            f"{run['set_up']:.2f}",
            spread(run["seconds"], 3),
            f"{statistics.median(run['load']):.1f}",
        ]
        for run in measurements
    ]
    title = (
        f"NystromGP, d = {sizes.dimension}, n = {sizes.observations:,}, dictionary of {sizes.dictionary}: seconds, "
        f"median (min–max) of {sizes.repeats} draws"
    )
    return Table(title, ["kernel", "route", "arms", "set-up", "a draw", "load of the machine"], rows)

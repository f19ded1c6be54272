"""Time and memory of BoTorch's ``optimize_acqf_discrete`` with ``NystromGP`` and with an exact model.

``python -m benchmarks.discrete_acquisition MODEL BATCH SIZES`` is the memory probe, run in a fresh interpreter: it
prints the extra peak memory as JSON.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.kernels import RBFKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.memory import peak_bytes, resident_bytes
from benchmarks.report import Report, Table, run_module, spread
from torch_kbandits import KernelUCB, NystromGP
from torch_kbandits.environments import gaussian_bumps


@dataclass(frozen=True)
class Sizes:
    """What is run; ``batches`` are values of ``max_batch_size``, the first one being BoTorch's default."""

    candidates: int = 20_000
    dimension: int = 6
    observations: int = 2_000
    dictionary: int = 200
    repeats: int = 5
    batches: tuple[int, ...] = (2_048, 20_000)


QUICK = Sizes(candidates=300, dimension=2, observations=40, dictionary=10, repeats=2, batches=(100,))


def run(quick: bool = False) -> Report:
    """Time both models in this process and measure the memory of each in a process of its own."""
    sizes = QUICK if quick else Sizes()
    candidates, X, Y = _data(sizes)
    acquisitions = {name: build(X, Y, sizes) for name, build in _ACQUISITIONS.items()}
    # The exact model takes gigabytes where all candidates go in one batch.
    settings = [*(("NystromGP", batch) for batch in sizes.batches), ("SingleTaskGP", sizes.batches[0])]
    for acquisition in acquisitions.values():
        optimize_acqf_discrete(acquisition, q=1, choices=candidates[:10])
    seconds: dict[tuple[str, int], list[float]] = {setting: [] for setting in settings}
    for _ in tqdm(range(sizes.repeats), desc="discrete_acquisition", unit="repeat"):
        for name, batch in settings:
            start = time.perf_counter()
            optimize_acqf_discrete(acquisitions[name], q=1, choices=candidates, max_batch_size=batch)
            seconds[name, batch].append(time.perf_counter() - start)
    measurements = [
        {
            "model": name,
            "max_batch_size": batch,
            "seconds": seconds[name, batch],
            "extra_memory_mb": _probe(name, batch, quick),
        }
        for name, batch in settings
    ]
    return Report("discrete_acquisition", asdict(sizes), [_table(measurements, sizes)], measurements)


def extra_memory(name: str, batch: int, sizes: Sizes) -> float:
    """Return by how much a search raises the memory of this process above what was resident before it, in MB.

    The model's caches are filled by a search over ten candidates first. If building the model took more than the
    search does, its peak counts, so the number never understates.
    """
    candidates, X, Y = _data(sizes)
    acquisition = _ACQUISITIONS[name](X, Y, sizes)
    optimize_acqf_discrete(acquisition, q=1, choices=candidates[:10])
    resident = resident_bytes()
    optimize_acqf_discrete(acquisition, q=1, choices=candidates, max_batch_size=batch)
    return (peak_bytes() - resident) / 1e6


def _nystrom(X: Tensor, Y: Tensor, sizes: Sizes) -> AcquisitionFunction:
    model = NystromGP(X, Y, inducing_points=X[: sizes.dictionary], covar_module=_kernel(), regularization=0.01)
    return KernelUCB(model, beta=2.0)


def _exact(X: Tensor, Y: Tensor, sizes: Sizes) -> AcquisitionFunction:
    model = SingleTaskGP(X, Y, torch.full_like(Y, 0.01), covar_module=_kernel(), outcome_transform=None)
    return UpperConfidenceBound(model.eval(), beta=4.0)


_ACQUISITIONS = {"NystromGP": _nystrom, "SingleTaskGP": _exact}


def _kernel() -> RBFKernel:
    return RBFKernel().double().initialize(lengthscale=0.5).requires_grad_(False)


def _data(sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Return candidates (N, d) and observations X (n, d), Y (n, 1), all uniform in the unit cube."""
    environment = gaussian_bumps(sizes.candidates + sizes.observations, sizes.dimension, seed=0)
    X = environment.arms[sizes.candidates :]
    noise = torch.randn(len(X), generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    Y = environment.means[sizes.candidates :] + environment.noise_scale * noise
    return environment.arms[: sizes.candidates], X, Y.unsqueeze(-1)


def _probe(name: str, batch: int, quick: bool) -> float:
    arguments = [name, str(batch), "quick" if quick else "full"]
    return json.loads(run_module("benchmarks.discrete_acquisition", *arguments))


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    (exact,) = (run["seconds"] for run in measurements if run["model"] == "SingleTaskGP")
    rows = []
    for run in measurements:
        ratio = statistics.median(exact) / statistics.median(run["seconds"])
        rows.append(
            [
                run["model"],
                f"{run['max_batch_size']:,}",
                spread(run["seconds"], 3),
                f"{ratio:.1f}",
                f"{run['extra_memory_mb']:.0f}",
            ]
        )
    title = (
        f"{sizes.candidates:,} candidates, n = {sizes.observations:,}, dictionary of {sizes.dictionary}: "
        f"median (min–max) of {sizes.repeats} searches"
    )
    columns = ["model", "max_batch_size", "seconds", "SingleTaskGP / this", "extra peak memory, MB"]
    return Table(title, columns, rows)


if __name__ == "__main__":
    model_name, batch_size, which = sys.argv[1:]
    print(json.dumps(extra_memory(model_name, int(batch_size), QUICK if which == "quick" else Sizes())))

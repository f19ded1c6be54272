"""Variance starvation: figure 2 of Calandriello et al., "Gaussian process optimization with adaptive sketching".

A function is drawn from a Gaussian process on [0, 1] and observed at t = 6, 63 and 215 points, uniform in [0, 0.5]. All
three posteriors see the same points. BKB's (DTC) keeps the exact prior term k(x, x) in its variance: its band follows
the exact one, narrow where there are data, wide where there are none. The subset of regressors has z(x)ᵀz(x) instead,
which vanishes away from the dictionary: its band is narrowest where nothing is known.

Both sparse posteriors have the dictionary that ``RidgeLeverageSampling`` draws from all t points at once.

The paper says "Gaussian kernel with bandwidth σ² = 100" and no more. It is read here as exp(−100 ‖x − x'‖²), a length
scale of 0.071; read as exp(−‖x − x'‖² / 200) every function on [0, 1] would be a constant and there would be nothing to
see. The noise, which the paper does not give, has standard deviation 0.1, and λ is its variance.

    python examples/variance_starvation.py

Prints mean band widths and writes ``record.json`` and ``figure.png`` to ``runs/variance_starvation``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import Kernel, RBFKernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from records import make_folder, versions, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor

from torch_kbandits import NystromGP, RidgeLeverageSampling
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.plotting.style import write_figure

TIMES = (6, 63, 215)
LENGTHSCALE = 200.0**-0.5
NOISE_SCALE = 0.1
REGULARIZATION = NOISE_SCALE**2
OVERSAMPLING = 3.0

#: The bands reach this many standard deviations to either side.
BAND = 3.0


@dataclass(frozen=True)
class Posterior:
    """Mean and standard deviation on the grid, both (G,)."""

    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Stage:
    """What is believed after t observations."""

    X: Tensor
    Y: Tensor
    dictionary: Tensor
    posteriors: dict[str, Posterior]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the posteriors, print how wide they are, write record and figure."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the function, its noise and the dictionaries")
    parser.add_argument("--output", type=Path, default=Path("runs/variance_starvation"), help="folder to write to")
    options = parser.parse_args(arguments)
    make_folder(parser, options.output)

    torch.set_num_threads(1)  # small matrices: on a busy machine a second thread costs more than it brings
    grid = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).unsqueeze(-1)
    X, Y, truth = simulate(grid, options.seed)
    stages = [believe(X[:t], Y[:t], grid, options.seed) for t in TIMES]
    widths = [band_widths(stage, grid) for stage in stages]
    record = {
        "settings": {
            "seed": options.seed,
            "lengthscale": LENGTHSCALE,
            "noise_scale": NOISE_SCALE,
            "regularization": REGULARIZATION,
            "oversampling": OVERSAMPLING,
        },
        "versions": versions(),
        "stages": [
            {"t": len(stage.X), "dictionary_size": len(stage.dictionary), "mean_band_widths": width}
            for stage, width in zip(stages, widths, strict=True)
        ],
    }
    write_record(options.output / "record.json", record)
    write_figure(options.output / "figure.png", draw(stages, grid, truth))
    report(record)
    print(f"Wrote {options.output / 'record.json'} and {options.output / 'figure.png'}.")


def kernel() -> Kernel:
    """Return the Gaussian kernel, of prior variance 1."""
    return RBFKernel().double().initialize(lengthscale=torch.tensor(LENGTHSCALE, dtype=torch.float64))


def simulate(grid: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the function at all points at once; return points (n, 1), rewards (n, 1) and the function on the grid."""
    n = max(TIMES)
    generator = generator_for(seed, 0, "variance starvation")
    X = 0.5 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    everywhere = torch.cat([X, grid])
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(kernel()(everywhere).to_dense())
    normal = torch.randn(len(everywhere), generator=generator, dtype=torch.float64)
    f = vectors @ (values.clamp_min(0.0).sqrt() * normal)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return X, (f[:n] + NOISE_SCALE * noise).unsqueeze(-1), f[n:]


def believe(X: Tensor, Y: Tensor, grid: Tensor, seed: int) -> Stage:
    """Return the three posteriors given rewards Y at X."""
    sparse = condition(X, Y, dictionary=RidgeLeverageSampling(OVERSAMPLING), seed=seed)
    exact = condition(X, Y, inducing_points=X)
    posteriors = {"exact": moments(exact, grid), "DTC": moments(sparse, grid)}
    posteriors["SoR"] = starve(posteriors["DTC"], X, sparse.inducing_points, grid)
    return Stage(X, Y, sparse.inducing_points, posteriors)


def condition(X: Tensor, Y: Tensor, seed: int = 0, **dictionary: Any) -> NystromGP:
    """Return the Nyström posterior; with all points as dictionary it is the exact one."""
    generator = generator_for(seed, len(X), "dictionary")
    return NystromGP(X, Y, covar_module=kernel(), regularization=REGULARIZATION, generator=generator, **dictionary)


@torch.no_grad()
def moments(model: NystromGP, grid: Tensor) -> Posterior:
    """Return mean and standard deviation on the grid."""
    posterior = model.posterior(grid.unsqueeze(-2))
    return Posterior(posterior.mean.flatten(), posterior.variance.flatten().sqrt())


@torch.no_grad()
def starve(dtc: Posterior, X: Tensor, dictionary: Tensor, grid: Tensor) -> Posterior:
    """Return the subset of regressors: the mean of DTC, and of its variance only the term λ z(x)ᵀ V⁻¹ z(x)."""
    k = kernel()
    factor = jittered_cholesky(k(dictionary).to_dense())
    seen, z = (torch.linalg.solve_triangular(factor, k(dictionary, x).to_dense(), upper=False) for x in (X, grid))
    V = seen @ seen.mT + REGULARIZATION * torch.eye(len(dictionary), dtype=torch.float64)
    variance = REGULARIZATION * (z * torch.linalg.solve(V, z)).sum(0)
    return Posterior(dtc.mean, variance.sqrt())


def band_widths(stage: Stage, grid: Tensor) -> dict[str, dict[str, float]]:
    """Return each posterior's mean width of the band where there are data and where there are none."""
    seen = grid.squeeze(-1) <= 0.5
    return {
        name: {
            "with data": float(2.0 * BAND * posterior.deviation[seen].mean()),
            "without data": float(2.0 * BAND * posterior.deviation[~seen].mean()),
        }
        for name, posterior in stage.posteriors.items()
    }


def report(record: dict[str, Any]) -> None:
    """Print the mean widths of the bands."""
    table = Table(title=f"Mean width of the ± {BAND:g} σ band (prior: {2 * BAND:g})", box=SIMPLE_HEAD)
    for column in ("t", "dictionary", "on", "exact", "DTC (BKB)", "SoR"):
        table.add_column(column, justify="left" if column == "on" else "right")
    for stage in record["stages"]:
        for half, where in (("with data", "[0, 0.5]"), ("without data", "(0.5, 1]")):
            widths = [f"{stage['mean_band_widths'][name][half]:.2f}" for name in ("exact", "DTC", "SoR")]
            table.add_row(str(stage["t"]), str(stage["dictionary_size"]), where, *widths)
    Console().print(table)


def draw(stages: Sequence[Stage], grid: Tensor, truth: Tensor) -> Figure:
    """Return the figure: a column for each t, BKB's band above, the starved one below, the exact one behind both."""
    figure, axes = plt.subplots(2, len(stages), figsize=(12.0, 6.2), sharex=True, sharey=True, layout="constrained")
    titles = {"DTC": "BKB (DTC)", "SoR": "subset of regressors"}
    colours = {"DTC": "tab:blue", "SoR": "tab:red"}
    for row, name in enumerate(titles):
        for column, stage in enumerate(stages):
            draw_panel(axes[row, column], stage, name, titles[name], colours[name], grid.squeeze(-1), truth)
            if row == 0:
                axes[row, column].set_title(
                    f"t = {len(stage.X)} observations, {len(stage.dictionary)} in the dictionary"
                )
        axes[row, 0].set_ylabel("reward")
        axes[row, 0].legend(loc="upper left", ncols=2, fontsize=8, framealpha=0.9)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    axes[0, 0].set_ylim(-5.2, 6.6)
    figure.suptitle(f"Mean ± {BAND:g} σ of two sparse posteriors of the same data and dictionary")
    return figure


def draw_panel(axis: Axes, stage: Stage, name: str, title: str, colour: str, x: Tensor, truth: Tensor) -> None:
    """Draw one posterior over the exact one."""
    exact, posterior = stage.posteriors["exact"], stage.posteriors[name]
    axis.axvspan(0.5, 1.0, color="0.96", zorder=0)
    low, high = exact.mean - BAND * exact.deviation, exact.mean + BAND * exact.deviation
    axis.fill_between(x, low, high, color="0.82", linewidth=0, label="exact")
    low, high = posterior.mean - BAND * posterior.deviation, posterior.mean + BAND * posterior.deviation
    axis.fill_between(x, low, high, color=colour, alpha=0.3, linewidth=0, label=title)
    axis.plot(x, posterior.mean, color=colour, linewidth=1.4)
    axis.plot(x, truth, color="black", linewidth=1.0, linestyle="--", label="f")
    axis.plot(stage.X.squeeze(-1), stage.Y.squeeze(-1), ".", color="black", markersize=3, label="observed")
    dictionary = stage.dictionary.squeeze(-1)
    axis.plot(dictionary, torch.full_like(dictionary, -4.9), "|", color=colour, markersize=9, label="dictionary")
    axis.set_xlim(0.0, 1.0)


if __name__ == "__main__":
    main()

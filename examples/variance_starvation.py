"""Variance starvation: figure 2 of Calandriello et al., "Gaussian process optimization with adaptive sketching".

A function is observed at t = 6, 63 and 215 points, uniform in [0, 0.5]. BKB's posterior (DTC) keeps the exact prior
term k(x, x) in its variance and is wide where there are no data. The subset of regressors has z(x)ᵀz(x) instead, which
vanishes away from the dictionary: its band is narrowest where nothing is known.

The paper says "Gaussian kernel with bandwidth σ² = 100" and no more. It is read here as exp(−100 ‖x − x'‖²); read as
exp(−‖x − x'‖² / 200) every function on [0, 1] would be a constant. The paper gives no noise: here it has a standard
deviation of 0.1, and λ is its variance.

    python examples/variance_starvation.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import common
import numpy as np
import torch
from common import Record
from gpytorch.kernels import RBFKernel
from matplotlib.figure import Figure
from torch import Tensor

from torch_kbandits import NystromGP, RidgeLeverageSampling
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

TIMES, NOISE_SCALE, REGULARIZATION = (6, 63, 215), 0.1, 0.1**2
KERNEL = RBFKernel().double().initialize(lengthscale=torch.tensor(200.0**-0.5, dtype=torch.float64))
KERNEL.requires_grad_(False)

BAND = 3.0  # standard deviations to either side
GRID = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).unsqueeze(-1)


@dataclass(frozen=True)
class Stage:
    """What is believed after t observations: points, rewards, dictionary, and means and deviations on the grid."""

    X: Tensor
    Y: Tensor
    dictionary: Tensor
    posteriors: dict[str, tuple[Tensor, Tensor]]


def simulate(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the function at all points at once; return points (n, 1), rewards (n, 1) and the function on the grid."""
    n, generator = max(TIMES), generator_for(seed, 0, "variance starvation")
    X = 0.5 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(KERNEL(torch.cat([X, GRID])).to_dense())
    f = vectors @ (values.clamp_min(0.0).sqrt() * torch.randn(len(values), generator=generator, dtype=torch.float64))
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return X, (f[:n] + NOISE_SCALE * noise).unsqueeze(-1), f[n:]


def believe(X: Tensor, Y: Tensor, seed: int) -> Stage:
    """Return the three posteriors given rewards Y at X; with all points as dictionary it is the exact one."""
    words: dict[str, Any] = {"covar_module": KERNEL, "regularization": REGULARIZATION}
    generator = generator_for(seed, len(X), "dictionary")
    sparse = NystromGP(X, Y, dictionary=RidgeLeverageSampling(3.0), generator=generator, **words)
    models, posteriors = {"exact": NystromGP(X, Y, inducing_points=X, **words), "DTC": sparse}, {}
    for name, model in models.items():
        with torch.no_grad():
            posterior = model.posterior(GRID.unsqueeze(-2))
        posteriors[name] = posterior.mean.flatten(), posterior.variance.flatten().sqrt()
    starved = starved_variance(X, sparse.inducing_points)
    return Stage(X, Y, sparse.inducing_points, posteriors | {"SoR": (posteriors["DTC"][0], starved.sqrt())})


def starved_variance(X: Tensor, dictionary: Tensor) -> Tensor:
    """Return the variance of the subset of regressors: of DTC's only the term λ z(x)ᵀ V⁻¹ z(x)."""
    factor = jittered_cholesky(KERNEL(dictionary).to_dense())
    seen, z = (torch.linalg.solve_triangular(factor, KERNEL(dictionary, x).to_dense(), upper=False) for x in (X, GRID))
    V = seen @ seen.mT + REGULARIZATION * torch.eye(len(dictionary), dtype=torch.float64)
    return REGULARIZATION * (z * torch.linalg.solve(V, z)).sum(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the posteriors, print how wide they are, write record and figure."""
    options = common.options_of("variance_starvation", __doc__, arguments)
    torch.set_num_threads(1)  # small matrices: on a busy machine a second thread costs more than it brings
    X, Y, truth = simulate(options.seed)
    stages, rows, found = [believe(X[:t], Y[:t], options.seed) for t in TIMES], [], []
    halves = {"with data": GRID.squeeze(-1) <= 0.5, "without data": GRID.squeeze(-1) > 0.5}
    for stage in stages:
        t, size, widths = len(stage.X), len(stage.dictionary), {}
        for name, (_, deviation) in stage.posteriors.items():
            widths[name] = {half: float(2.0 * BAND * deviation[where].mean()) for half, where in halves.items()}
        found.append({"t": t, "dictionary_size": size, "mean_band_widths": widths})
        for half, where in (("with data", "[0, 0.5]"), ("without data", "(0.5, 1]")):
            rows.append([f"{t}", f"{size}", where, *(f"{widths[name][half]:.2f}" for name in stage.posteriors)])
    record: Record = {"settings": {"seed": options.seed, "regularization": REGULARIZATION}, "stages": found}
    title = f"Mean width of the ± {BAND:g} σ band (prior: {2 * BAND:g})"
    table = common.table(title, ["t", "dictionary", "on", "exact", "DTC (BKB)", "SoR"], rows)
    common.finish(options, record, lambda _: [table], figure=lambda _: draw(stages, truth))


def draw(stages: Sequence[Stage], truth: Tensor) -> Figure:
    """Return the figure: a column for each t, BKB's band above, the starved one below, the exact one behind both."""
    figure = Figure(figsize=(12.0, 6.2), layout="constrained")
    axes, x = figure.subplots(2, len(stages), sharex=True, sharey=True), GRID.squeeze(-1)
    looks = ("DTC", "BKB (DTC)", "tab:blue"), ("SoR", "subset of regressors", "tab:red")
    for row, column in np.ndindex(axes.shape):
        (name, title, colour), stage, panel = looks[row], stages[column], axes[row, column]
        panel.axvspan(0.5, 1.0, color="0.96", zorder=0)
        for each, label, shade, alpha in (("exact", "exact", "0.82", 1.0), (name, title, colour, 0.3)):
            mean, reach = stage.posteriors[each][0], BAND * stage.posteriors[each][1]
            panel.fill_between(x, mean - reach, mean + reach, linewidth=0, alpha=alpha, color=shade, label=label)
        panel.plot(x, stage.posteriors[name][0], color=colour, linewidth=1.4)
        panel.plot(x, truth, color="black", linewidth=1.0, linestyle="--", label="f")
        panel.plot(stage.X.squeeze(-1), stage.Y.squeeze(-1), ".", color="black", markersize=3, label="observed")
        at = stage.dictionary.squeeze(-1)
        panel.plot(at, torch.full_like(at, -4.9), "|", color=colour, markersize=9, label="dictionary")
        panel.set(xlim=(0.0, 1.0), xlabel="x" * row, ylabel="" if column else "reward")
        if not row:
            panel.set_title(f"t = {len(stage.X)} observations, {len(stage.dictionary)} in the dictionary")
    for panel in axes[:, 0]:
        panel.legend(loc="upper left", ncols=2, fontsize=8, framealpha=0.9)
    axes[0, 0].set_ylim(-5.2, 6.6)
    figure.suptitle(f"Mean ± {BAND:g} σ of two sparse posteriors of the same data and dictionary")
    return figure


if __name__ == "__main__":
    main()

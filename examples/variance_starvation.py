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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import common
import torch
from common import Record
from gpytorch.kernels import RBFKernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torch_kbandits import NystromGP, RidgeLeverageSampling
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

TIMES = (6, 63, 215)
NOISE_SCALE = 0.1
REGULARIZATION = NOISE_SCALE**2
KERNEL = RBFKernel().double().initialize(lengthscale=torch.tensor(200.0**-0.5, dtype=torch.float64))
KERNEL.requires_grad_(False)

#: The bands reach this many standard deviations to either side.
BAND = 3.0
GRID = torch.linspace(0.0, 1.0, 401, dtype=torch.float64).unsqueeze(-1)


@dataclass(frozen=True)
class Stage:
    """What is believed after t observations: points, rewards, dictionary, and means and deviations on the grid."""

    X: Tensor
    Y: Tensor
    dictionary: Tensor
    posteriors: dict[str, tuple[Tensor, Tensor]]

    def band_widths(self) -> dict[str, dict[str, float]]:
        """Return each posterior's mean width of the band where there are data and where there are none."""
        seen = GRID.squeeze(-1) <= 0.5
        halves = {"with data": seen, "without data": ~seen}
        return {
            name: {half: float(2.0 * BAND * deviation[where].mean()) for half, where in halves.items()}
            for name, (_, deviation) in self.posteriors.items()
        }


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
    options = common.parse(common.options_of("variance_starvation", __doc__), arguments)
    torch.set_num_threads(1)  # small matrices: on a busy machine a second thread costs more than it brings
    X, Y, truth = simulate(options.seed)
    stages, rows, found = [believe(X[:t], Y[:t], options.seed) for t in TIMES], [], []
    for stage in stages:
        t, size, widths = len(stage.X), len(stage.dictionary), stage.band_widths()
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
    axes = figure.subplots(2, len(stages), sharex=True, sharey=True)
    looks = {"DTC": ("BKB (DTC)", "tab:blue"), "SoR": ("subset of regressors", "tab:red")}
    for row, (name, look) in enumerate(looks.items()):
        for panel, stage in zip(axes[row], stages, strict=True):
            draw_panel(panel, stage, name, look, truth)
        axes[row, 0].set_ylabel("reward")
        axes[row, 0].legend(loc="upper left", ncols=2, fontsize=8, framealpha=0.9)
    for panel, stage in zip(axes[0], stages, strict=True):
        panel.set_title(f"t = {len(stage.X)} observations, {len(stage.dictionary)} in the dictionary")
    for panel in axes[-1]:
        panel.set_xlabel("x")
    axes[0, 0].set_ylim(-5.2, 6.6)
    figure.suptitle(f"Mean ± {BAND:g} σ of two sparse posteriors of the same data and dictionary")
    return figure


def draw_panel(axes: Axes, stage: Stage, name: str, look: tuple[str, str], truth: Tensor) -> None:
    """Draw one posterior over the exact one."""
    x, (title, colour) = GRID.squeeze(-1), look
    axes.axvspan(0.5, 1.0, color="0.96", zorder=0)
    for each, label, shade, alpha in (("exact", "exact", "0.82", 1.0), (name, title, colour, 0.3)):
        mean, deviation = stage.posteriors[each]
        low, high = mean - BAND * deviation, mean + BAND * deviation
        axes.fill_between(x, low, high, linewidth=0, alpha=alpha, color=shade, label=label)
    axes.plot(x, stage.posteriors[name][0], color=colour, linewidth=1.4)
    axes.plot(x, truth, color="black", linewidth=1.0, linestyle="--", label="f")
    axes.plot(stage.X.squeeze(-1), stage.Y.squeeze(-1), ".", color="black", markersize=3, label="observed")
    dictionary = stage.dictionary.squeeze(-1)
    axes.plot(dictionary, torch.full_like(dictionary, -4.9), "|", color=colour, markersize=9, label="dictionary")
    axes.set_xlim(0.0, 1.0)


if __name__ == "__main__":
    main()

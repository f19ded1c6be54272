"""Run a batch reactor below 80 °C, while yields are known weeks later and the catalyst grows old.

Before each batch the feed and the temperature of the jacket are set, knowing how warm the feed water is. The peak
temperature is measured at once, the yield 5 to 40 batches later, in a laboratory that loses some samples. Better yields
are near the limit of 80 °C, and a batch above it is an incident. As the catalyst ages the same set-points give less
and grow hotter; after three fifths of the batches there is a new one.

A bandit that plays only what surely keeps the limit is compared with one that forgets nothing, with one that plays what
may keep it, with one that knows no limit, and with two ways to be careful that learn nothing. The plant is simulated
(``run_a_reactor_plant.py``); what bandits assume of it is an engineer's guess, not its formulas.

    python examples/run_a_reactor.py              # about three minutes on two cores
    python examples/run_a_reactor.py --quick      # several seconds

Writes ``record.json`` and ``figure.png`` to ``runs/run_a_reactor``.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import common
import numpy as np
import torch
from common import BLACK, BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, SKY, Record, below, runs_of, spread
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from run_a_reactor_plant import DELAYS, FEEDS, JACKETS, LIMIT, SET_POINTS, Course, course, product, temperature
from torch import Tensor

from torch_kbandits import AtMost, ContextualActions, Outcome, Prior, algorithms
from torch_kbandits.memory import LinearGrowth, Memory, Stationary, UncertaintyInjection
from torch_kbandits.outcomes.limits import Mode

# ---------------------------------------------------------------- what was chosen, on the seeds 0 to 2

#: Multipliers of σ: of the yield, and of the temperature where it is to be surely, or possibly, within the limit.
BETA, SURELY, POSSIBLY = 2.0, 3.0, 2.0

#: Over which differences of water (°C), feed (kg/h) and jacket (°C) batches are nearly alike: what an engineer guesses.
LENGTHSCALES = (20.0, 30.0, 20.0)

#: How far temperatures, in °C, and yields, in kg, are from what is expected before any batch: standard deviations.
DEVIATIONS = {"temperature": 10.0, "yield": 10.0}

#: λ, the variance of the noise: of temperatures in °C², of yields in kg².
NOISE = {"temperature": 1.0, "yield": 4.0}

#: The variance that the noise of an observation gains with each batch, in the same units.
GROWTH = {"temperature": 0.2, "yield": 0.2}

#: What a yield is before anything is known, in kg.
USUAL_YIELD = 15.0

#: What the operator knows to be safe at any time, in all weathers.
OPERATORS = SET_POINTS[(SET_POINTS <= 40.0).all(-1)]

#: What the operator plays.
FIXED = torch.tensor([[40.0, 40.0]], dtype=torch.float64)

# ---------------------------------------------------------------- ways to run it


class Careful:
    """What was always done, or with a seed any of the set-points that the operator knows to be safe, by lot."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)

    def set_point(self, batch: int, water: float) -> Tensor:
        """Return feed and jacket temperature, (1, 2), for a batch with feed water of a temperature."""
        if self._generator is None:
            return FIXED
        return OPERATORS[int(torch.randint(len(OPERATORS), (), generator=self._generator)), None]

    def warmed(self, temperature: float) -> None:
        """Learn the peak temperature of the batch that was just run, in °C: careful ones do nothing."""

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Learn the yields of earlier batches, in kg."""

    def change_catalyst(self) -> None:
        """Learn that the next batch has a new catalyst."""


class Learning(Careful):
    """GP-UCB on water and set-points, with a limit on the temperature or without, and a memory of yields."""

    def __init__(self, seed: int, limit: AtMost | None, memory: Memory) -> None:
        self.bandit = algorithms.GPUCB(
            candidates=ContextualActions(SET_POINTS, context_dim=1),
            prior=Prior(kernel("yield"), NOISE["yield"], mean=USUAL_YIELD),
            constraints=[] if limit is None else [limit],
            memory=memory,
            beta=BETA,
            expire_after=DELAYS[1] + 5,
            seed=seed,
        )
        self._ids: dict[int, int] = {}

    def set_point(self, batch: int, water: float) -> Tensor:
        """Ask, in the context of the water; the number of the play is kept until its yield is known."""
        context = torch.tensor([water], dtype=torch.float64)
        x, (self._latest,) = self.bandit.ask(context=context, time=batch, return_ids=True)
        self._ids[batch] = self._latest
        return x

    def warmed(self, temperature: float) -> None:
        """Tell the temperature; the play stays pending for its yield."""
        if self.bandit.outcomes:
            self.bandit.tell(ids=self._latest, outcomes={"temperature": temperature})

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Tell yields by the ids of their plays: each counts as one of the time at which its batch was run."""
        known = {
            self._ids.pop(batch): value for batch, value in zip(batches, yields, strict=True) if batch in self._ids
        }
        if known:
            self.bandit.tell(ids=[*known], y=[*known.values()])

    def bounds(self, water: float) -> Tensor:
        """Return for each set-point (A,) the temperature, in °C, that it surely stays below in a context."""
        points = torch.cat([torch.full((len(SET_POINTS), 1), water, dtype=torch.float64), SET_POINTS], dim=-1)
        with torch.no_grad():
            posterior = self.bandit.outcome_model("temperature").posterior(points.unsqueeze(-2))  # marginals, (A, 1, 1)
        return posterior.mean.flatten() + SURELY * posterior.variance.flatten().sqrt()

    def change_catalyst(self) -> None:
        """Start anew: samples of the old catalyst that are still in the laboratory say nothing about the new one."""
        self.bandit.forget()
        self._ids.clear()
        self.bandit.restart()


def kernel(name: str) -> Kernel:
    """Return the prior covariance of temperatures, in °C², or of yields, in kg²."""
    base = MaternKernel(nu=2.5, ard_num_dims=3).double()
    base.lengthscale = torch.tensor([LENGTHSCALES], dtype=torch.float64)
    variance = torch.tensor(DEVIATIONS[name] ** 2, dtype=torch.float64)
    return ScaleKernel(base).double().initialize(outputscale=variance)


def rule_of_thumb(X: Tensor) -> Tensor:
    """Return what an engineer expects of the peak temperatures, (n,), in °C, of water, feed and jacket, (n, 3)."""
    _, feed, jacket = X.unbind(-1)
    return jacket + feed / 3.0


def fading(name: str) -> Memory:
    """Return a memory in which what is old counts less and less."""
    return UncertaintyInjection(LinearGrowth(GROWTH[name]))


def limit(mode: Mode, memory: Memory) -> AtMost:
    """Return the limit on the temperature, which is "safe", surely kept, or "optimistic", possibly kept."""
    prior = Prior(kernel("temperature"), NOISE["temperature"], mean=rule_of_thumb)
    heat = Outcome("temperature", prior, memory)
    if mode == "safe":
        return AtMost(heat, LIMIT, mode, beta=SURELY, safe_seed=OPERATORS)
    return AtMost(heat, LIMIT, mode, beta=POSSIBLY)


SAFE, STATIC = "safe limit", "safe limit, forgets nothing"

POLICIES: dict[str, Callable[[int], Careful]] = {
    SAFE: lambda seed: Learning(seed, limit("safe", fading("temperature")), fading("yield")),
    STATIC: lambda seed: Learning(seed, limit("safe", Stationary()), Stationary()),
    "optimistic limit": lambda seed: Learning(seed, limit("optimistic", fading("temperature")), fading("yield")),
    "no limit": lambda seed: Learning(seed, None, fading("yield")),
    "operator's set-point": lambda seed: Careful(),
    "by lot, of what is known to be safe": Careful,
}

# ---------------------------------------------------------------- runs

#: The temperature of the feed water, in °C, for which the figure shows what is believed to be safe, and the shares of
#: the first catalyst's life after which it does.
WATER, SHOWN = 14.0, (0.005, 1.0)


def operate(policy: Careful, around: Course, shown: Sequence[int] = ()) -> Record:
    """Run the reactor; temperatures are told after each batch, and yields when the laboratory knows them.

    Peaks and yields are expected ones, and seconds those of the policy itself, of the processor. At some batches what
    is believed of temperatures is noted.
    """
    set_points, peaks, yields, posteriors, seconds = [], [], [], [], 0.0
    for batch, (water, age) in enumerate(zip(around.water.tolist(), around.ages.tolist(), strict=True)):
        started = time.process_time()
        if batch == around.changed:
            policy.change_catalyst()
        if len(known := np.flatnonzero(around.known == batch)):
            policy.yielded(known.tolist(), [yields[one] + around.yield_noise[one] for one in known])
        x = policy.set_point(batch, water)
        seconds += time.process_time() - started
        set_points.append(x.flatten().tolist())
        peaks.append(float(temperature(x, water, age)))
        yields.append(float(product(x, water, age)))
        if batch in shown and isinstance(policy, Learning):
            truth = temperature(SET_POINTS, WATER, age).tolist()
            posteriors.append({"batch": batch, "bounds": policy.bounds(WATER).tolist(), "peaks": truth})
        started = time.process_time()
        policy.warmed(peaks[-1] + around.temperature_noise[batch])
        seconds += time.process_time() - started
    return {"set_points": set_points, "peaks": peaks, "yields": yields, "seconds": seconds, "posteriors": posteriors}


def run(seed: int, batches: int) -> Record:
    """Let every policy run the same reactor, and return the record of it."""
    torch.set_num_threads(1)
    around = course(batches, seed)
    shown = [round(share * (around.changed - 1)) for share in SHOWN]
    policies = {name: operate(make(seed), around, shown if name == SAFE else ()) for name, make in POLICIES.items()}
    posteriors, *_ = [played.pop("posteriors") for played in policies.values()]
    best = [around.best(batch) for batch in range(batches)]
    return {"seed": seed, "changed": around.changed, "best": best, "policies": policies, "posteriors": posteriors}


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies run the reactor in every run, and write record and figure."""
    parser = common.options_of("run_a_reactor", __doc__, seed=10)
    common.sized(parser, "batches", 400, 40, "batches in a run, at least 10", runs=3, least=10)
    options = common.parse(parser, arguments)
    settings = {"batches": options.size, "seed": options.seed, "limit": LIMIT, "growth": GROWTH, "beta": BETA}
    record = {"settings": settings, "runs": common.play(run, options)}
    common.finish(options, record, report, figure=draw)


def report(record: Record) -> list[Any]:
    """Say how hot each policy let the reactor become, and what it lost."""
    runs, batches, rows = record["runs"], record["settings"]["batches"], []
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        peaks = np.array([one["peaks"] for one in played])
        above = peaks[peaks > LIMIT] - LIMIT
        lost = [np.mean(np.subtract(one["best"], one["policies"][name]["yields"])) for one in runs]
        milliseconds = np.mean([1e3 * one["seconds"] / batches for one in played])
        cells = [f"{above.mean():.2f}" if len(above) else "", f"{peaks.max():.1f}", spread(lost, ".2f")]
        rows.append([name, spread((peaks > LIMIT).sum(-1), ".1f"), *cells, f"{milliseconds:.0f}"])
    columns = ["", "incidents", "by how much, °C,\nin the mean", "hottest, °C", "lost, kg\na batch", "ms a batch"]
    return [
        common.table(f"{batches:,} batches, mean ± sd of {runs_of(runs)}", columns, rows),
        "Temperatures and yields are expected ones. Lost: the yield of the best set-point that keeps the limit less "
        "that of the one played, which is negative where the limit is broken for more.",
    ]


# ---------------------------------------------------------------- figure

SOLID: Any = "-"
#: Of the policies, in their order.
COLOURS = (BLUE, SKY, PURPLE, ORANGE, GREEN, GREY)
#: In °C: hotter batches are drawn at the rim, so that those near the limit can be told apart.
HOTTEST = 125.0
#: Batches over which yields are averaged.
SMOOTH = 20


def draw(record: Record) -> Figure:
    """Return three panels: temperatures, yields, and what is believed to be safe early and late."""
    figure = Figure(figsize=(12.5, 11.0), layout="constrained")
    panels = figure.subplot_mosaic("tt;ys", height_ratios=[1.15, 1.0])
    draw_temperatures(panels["t"], record)
    draw_yields(panels["y"], record)
    draw_safe(panels["s"], record)
    common.tidy([*panels.values()], "abc")
    return figure


def draw_temperatures(axes: Axes, record: Record) -> None:
    """Draw the peak temperature of every batch of run 1 under each policy; the hottest at the upper rim."""
    first, handles = record["runs"][0], []
    for (name, played), colour in zip(first["policies"].items(), COLOURS, strict=True):
        peaks = np.array(played["peaks"])
        hotter = peaks > HOTTEST
        look: dict[str, Any] = {"color": colour, "alpha": 0.8, "markeredgewidth": 0.0, "linestyle": "none"}
        axes.plot(np.flatnonzero(~hotter), peaks[~hotter], marker="o", markersize=3.2, **look)
        axes.plot(np.flatnonzero(hotter), np.full(hotter.sum(), HOTTEST), marker="^", markersize=6.0, **look)
        handles.append(Line2D([], [], color=colour, marker="o", linestyle="none", markersize=5, label=name))
    handles.append(axes.axhline(LIMIT, color=BLACK, linewidth=1.4, linestyle=DASHED, label=f"limit, {LIMIT:g} °C"))
    hottest = f"hotter than {HOTTEST:g} °C"
    handles.append(Line2D([], [], color=GREY, marker="^", linestyle="none", markersize=6, label=hottest))
    new_catalyst(axes, first["changed"], 1.0)
    axes.set(title=f"Peak temperature of every batch, seed {first['seed']}", xlabel="batch", ylim=(20.0, HOTTEST + 2.0))
    axes.set(ylabel="peak temperature (°C)", xlim=(-2, len(first["best"]) + 1))
    below(axes, handles, 4, -0.1)


def draw_yields(axes: Axes, record: Record) -> None:
    """Draw yields as moving means over batches and runs, beside the best that the limit allows."""
    runs, handles = record["runs"], []
    width = min(SMOOTH, len(runs[0]["best"]))
    lines = {name: [run["policies"][name]["yields"] for run in runs] for name in POLICIES}
    lines["best that keeps the limit"] = [run["best"] for run in runs]
    for (name, yields), colour in zip(lines.items(), (*COLOURS, BLACK), strict=True):
        smooth = np.convolve(np.mean(yields, axis=0), np.ones(width) / width, mode="valid")
        words: dict[str, Any] = {"linestyle": DASHED if colour == BLACK else "-", "linewidth": 1.8, "label": name}
        handles += axes.plot(np.arange(len(smooth)) + width - 1, smooth, color=colour, **words)
    new_catalyst(axes, runs[0]["changed"], 0.01)
    axes.set(title=f"Yield, mean of {width} batches and {runs_of(runs)}", xlabel="batch", ylabel="yield (kg a batch)")
    axes.set(xlim=(0, len(runs[0]["best"])), ylim=(0.0, None))
    below(axes, handles, 2, -0.13)


def draw_safe(axes: Axes, record: Record) -> None:
    """Draw what is surely below the limit for all that the bandit knows, early and late, and the true limit."""
    first, handles = record["runs"][0], []
    for posterior, colour in zip(first["posteriors"], (BLUE, ORANGE), strict=True):
        surely, truly = (
            np.reshape(posterior[name], (len(FEEDS), len(JACKETS))).T - LIMIT for name in ("bounds", "peaks")
        )
        lowest = min(surely.min(), 0.0) - 1.0
        axes.contourf(FEEDS, JACKETS, surely, levels=[lowest, 0.0], colors=[colour], alpha=0.15)
        for excess, style, what in (
            (surely, SOLID, "believed to be safe below, before batch"),
            (truly, DASHED, "truly safe below, in batch"),
        ):
            if excess.min() < 0.0 < excess.max():
                words: dict[str, Any] = {"colors": [colour], "linewidths": 2.0, "linestyles": [style]}
                axes.contour(FEEDS, JACKETS, excess, levels=[0.0], **words)
            label = f"{what} {posterior['batch']}"
            handles.append(Line2D([], [], color=colour, linewidth=2.0, linestyle=style, label=label))
    corner, size = OPERATORS.amin(0), OPERATORS.amax(0) - OPERATORS.amin(0)
    known: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0.8, "hatch": "//"}
    axes.add_patch(Rectangle((float(corner[0]), float(corner[1])), float(size[0]), float(size[1]), **known))
    handles.append(Patch(label="known to the operator", **known))
    axes.set(title=f"Safe set-points when the water has {WATER:g} °C, seed {first['seed']}", xlabel="feed (kg/h)")
    axes.set(ylabel="jacket temperature (°C)", xlim=(FEEDS[0], FEEDS[-1]), ylim=(JACKETS[0], JACKETS[-1]))
    below(axes, handles, 2, -0.13)


def new_catalyst(axes: Axes, batch: int, height: float) -> None:
    """Mark the first batch with a new catalyst; its name is at a share of the height of the axes."""
    axes.axvline(batch, color=GREY, linewidth=1.0)
    where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (4, 2), "textcoords": "offset points"}
    axes.annotate("new catalyst", (batch, height), fontsize=9, color=GREY, **where)


if __name__ == "__main__":
    main()

"""Run a batch reactor below 80 °C, while yields are known weeks later and the catalyst grows old.

Before each batch feed and jacket temperature are set, knowing how warm the feed water is. The peak temperature is
measured at once, and a batch above 80 °C is an incident; the yield is known 5 to 40 batches later, or never. Six ways
to run it are compared, careful and careless, that forget and that do not. The plant is simulated, and guessed at.

    python examples/run_a_reactor.py      # about three minutes on two cores; with --quick several seconds
"""

from collections.abc import Callable, Sequence
from typing import Any

import common
import numpy as np
import torch
from common import BLACK, BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, SKY, Record, below, line, runs_of, spread
from gpytorch.kernels import MaternKernel, ScaleKernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from torch_kbandits import AtMost, ContextualActions, Outcome, Prior, algorithms
from torch_kbandits.memory import LinearGrowth, Memory, Stationary, UncertaintyInjection
from torch_kbandits.outcomes.limits import Mode

LIMIT = 80.0  # above this peak temperature, in °C, a batch is an incident
TEMPERATURE_NOISE, YIELD_NOISE = 0.8, 1.5  # by which those measured are off, standard deviations in °C and kg
DELAYS = (5, 40)  # the laboratory tells a yield at least and at most so many batches later
LOST = 0.05  # the share of samples that the laboratory loses

#: Feed in kg/h, and jacket temperature in °C, that may be set, and all set-points, (A, 2).
FEEDS, JACKETS = np.arange(20.0, 61.0, 2.5).tolist(), np.arange(20.0, 71.0, 2.5).tolist()
SET_POINTS = torch.tensor([[feed, jacket] for feed in FEEDS for jacket in JACKETS], dtype=torch.float64)


def temperature(set_points: Tensor, water: float, age: float) -> Tensor:
    """Return peak temperatures (q,) at set-points (q, 2), in °C, for feed water in °C and a catalyst's age, 0 to 1."""
    mixture, converted, spoilt = _reaction(set_points, water, age)
    return mixture + 0.6 * set_points[:, 0] * converted * (1.0 + 3.0 * spoilt)


def product(set_points: Tensor, water: float, age: float) -> Tensor:
    """Return the yields of batches, (q,), in kg: of what is fed the part that is not recovered costs a fifth of it."""
    _, converted, spoilt = _reaction(set_points, water, age)
    return set_points[:, 0] * (converted * (1.0 - spoilt) - 0.2 * (1.0 - converted)) * (1.0 - 0.1 * age)


def _reaction(set_points: Tensor, water: float, age: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the temperature of the mixture, how much of the feed reacts, and how much of that into something else.

    An old catalyst lets more of the side reaction happen, which gives off more heat than the one that is wanted.
    """
    feed, jacket = set_points.unbind(-1)
    mixture = jacket + 0.4 * (water - 14.0)
    converted = 1.0 - (-((mixture - 45.0) / 18.0).exp() * 40.0 / feed).exp()
    spoilt = ((0.04 + 0.10 * age) * ((mixture - 50.0) / 8.0).exp()).clamp_max(0.6)
    return mixture, converted, spoilt


class Course:
    """What comes of itself in a run, in each batch, the same for every way to run the reactor."""

    def __init__(self, batches: int, seed: int) -> None:
        random, numbers, weather = np.random.default_rng(seed), np.arange(batches), np.zeros(batches)
        for batch in range(1, batches):
            weather[batch] = 0.9 * weather[batch - 1] + 0.6 * random.standard_normal()
        self.water = 14.0 - 6.0 * np.cos(2.0 * np.pi * numbers / batches) + weather  # in °C, with the seasons
        self.changed = changed = round(0.6 * batches)  # the first batch with a new catalyst
        self.ages = np.where(numbers < changed, numbers, numbers - changed) / changed  # of the catalyst, 0 to 1
        known = numbers + random.integers(DELAYS[0], DELAYS[1] + 1, batches)
        self.temperature_noise = TEMPERATURE_NOISE * random.standard_normal(batches)
        self.yield_noise = YIELD_NOISE * random.standard_normal(batches)
        self.known = np.where(random.random(batches) < LOST, -1, known)  # before which batch the yield is; −1: lost

    def best(self, batch: int) -> float:
        """Return the yield of the best set-point that keeps the limit in a batch, in kg."""
        water, age = float(self.water[batch]), float(self.ages[batch])
        allowed = temperature(SET_POINTS, water, age) <= LIMIT
        return float(product(SET_POINTS, water, age)[allowed].max())


#: Chosen, as all of these were, on the seeds 0 to 2. Multipliers of σ: of the yield, and of the temperature where it is
#: to be surely, or possibly, within the limit.
BETA, SURELY, POSSIBLY = 2.0, 3.0, 2.0

# What an engineer guesses, of temperatures in °C and yields in kg alike.
LENGTHSCALES = (20.0, 30.0, 20.0)  # differences of water, feed and jacket over which batches are nearly alike
DEVIATION = 10.0  # from what is expected before any batch, which is a rule of thumb, or the usual yield
USUAL_YIELD = 15.0
NOISE = {"temperature": 1.0, "yield": 4.0}  # λ, its variance
GROWTH = 0.2  # what the variance of the noise of an observation gains with each batch

#: What the operator plays, and what the operator knows to be safe at any time, in all weathers.
FIXED, OPERATORS = torch.tensor([[40.0, 40.0]]).double(), SET_POINTS[(SET_POINTS <= 40.0).all(-1)]


class Careful:
    """What was always done, or with a seed any of the set-points that the operator knows to be safe, at random."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)

    def set_point(self, batch: int, water: float) -> Tensor:
        """Return feed and jacket temperature, (1, 2), for a batch with feed water of a temperature."""
        if self._generator is None:
            return FIXED
        return OPERATORS[int(torch.randint(len(OPERATORS), (), generator=self._generator)), None]


class Learning(Careful):
    """GP-UCB on water and set-points, with a limit on the temperature or without, and a memory of yields."""

    def __init__(self, seed: int, limit: AtMost | None, memory: Memory) -> None:
        actions, constraints = ContextualActions(SET_POINTS, context_dim=1), [] if limit is None else [limit]
        words: dict[str, Any] = {"memory": memory, "beta": BETA, "expire_after": DELAYS[1] + 5, "seed": seed}
        known = {"prior": prior("yield", USUAL_YIELD), "constraints": constraints}
        self.bandit = algorithms.GPUCB(candidates=actions, **known, **words)
        self._ids: dict[int, int] = {}

    def set_point(self, batch: int, water: float) -> Tensor:
        """Ask, in the context of the water; the number of the play is kept until its yield is known."""
        context = torch.tensor([water], dtype=torch.float64)
        asked = self.bandit.ask(context=context, time=batch, details=True)
        self._ids[batch] = self._latest = asked.ids[0]
        return asked.x

    def warmed(self, temperature: float) -> None:
        """Tell the peak temperature of the latest batch, in °C; the play stays pending for its yield."""
        if self.bandit.outcomes:
            self.bandit.tell(ids=self._latest, outcomes={"temperature": temperature})

    def yielded(self, batches: Sequence[int], yields: Sequence[float]) -> None:
        """Tell yields, in kg, by the ids of their plays: each counts as one of the time at which its batch was run."""
        known = {self._ids.pop(each): value for each, value in zip(batches, yields, strict=True) if each in self._ids}
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


def prior(name: str, mean: float | Callable[[Tensor], Tensor]) -> Prior:
    """Return what is assumed of temperatures, in °C, or of yields, in kg."""
    base = MaternKernel(nu=2.5, ard_num_dims=3).double()
    base.lengthscale = torch.tensor([LENGTHSCALES], dtype=torch.float64)
    kernel = ScaleKernel(base).double().initialize(outputscale=torch.tensor(DEVIATION**2, dtype=torch.float64))
    return Prior(kernel, NOISE[name], mean=mean)


def rule_of_thumb(X: Tensor) -> Tensor:
    """Return what an engineer expects of the peak temperatures, (n,), in °C, of water, feed and jacket, (n, 3)."""
    return X[..., 2] + X[..., 1] / 3.0


def limit(mode: Mode, memory: Memory) -> AtMost:
    """Return the limit on the temperature, which is "safe", surely kept, or "optimistic", possibly kept."""
    heat = Outcome("temperature", prior("temperature", rule_of_thumb), memory)
    if mode == "safe":
        return AtMost(heat, LIMIT, mode, beta=SURELY, safe_seed=OPERATORS)
    return AtMost(heat, LIMIT, mode, beta=POSSIBLY)


SAFE, FADING = "safe limit", UncertaintyInjection(LinearGrowth(GROWTH))

POLICIES: dict[str, Callable[[int], Careful]] = {
    SAFE: lambda seed: Learning(seed, limit("safe", FADING), FADING),
    "safe limit, forgets nothing": lambda seed: Learning(seed, limit("safe", Stationary()), Stationary()),
    "optimistic limit": lambda seed: Learning(seed, limit("optimistic", FADING), FADING),
    "no limit": lambda seed: Learning(seed, None, FADING),
    "operator's set-point": lambda seed: Careful(),
    "at random, of what is known to be safe": Careful,
}

#: For which feed water, in °C, the figure shows what is believed to be safe, and after which shares of the first life.
WATER, SHOWN = 14.0, (0.005, 1.0)


def operate(policy: Careful, around: Course, shown: Sequence[int] = ()) -> Record:
    """Run the reactor, and note at some batches what is believed of temperatures; peaks and yields are expected."""
    set_points, peaks, yields, posteriors = [], [], [], []
    learning = policy if isinstance(policy, Learning) else None
    for batch, (water, age) in enumerate(zip(around.water.tolist(), around.ages.tolist(), strict=True)):
        if learning and batch == around.changed:
            learning.change_catalyst()
        if learning and len(known := np.flatnonzero(around.known == batch)):
            learning.yielded(known.tolist(), [yields[one] + around.yield_noise[one] for one in known])
        x = policy.set_point(batch, water)
        set_points.append(x.flatten().tolist())
        peaks.append(float(temperature(x, water, age)))
        yields.append(float(product(x, water, age)))
        if learning and batch in shown:
            truth = temperature(SET_POINTS, WATER, age).tolist()
            posteriors.append({"batch": batch, "bounds": learning.bounds(WATER).tolist(), "peaks": truth})
        if learning:
            learning.warmed(peaks[-1] + around.temperature_noise[batch])
    return {"set_points": set_points, "peaks": peaks, "yields": yields, "posteriors": posteriors}


def run(seed: int, batches: int) -> Record:
    """Let every policy run the same reactor, and return the record of it."""
    torch.set_num_threads(1)
    around = Course(batches, seed)
    shown = [round(share * (around.changed - 1)) for share in SHOWN]
    policies = {name: operate(make(seed), around, shown if name == SAFE else ()) for name, make in POLICIES.items()}
    posteriors, *_ = [played.pop("posteriors") for played in policies.values()]
    best = [around.best(batch) for batch in range(batches)]
    return {"seed": seed, "changed": around.changed, "best": best, "policies": policies, "posteriors": posteriors}


def report(record: Record) -> list[Any]:
    """Say how hot each policy let the reactor become, and what it lost."""
    runs, batches, rows = record["runs"], record["settings"]["batches"], []
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        peaks = np.array([one["peaks"] for one in played])
        above = peaks[peaks > LIMIT] - LIMIT
        lost = [np.mean(np.subtract(one["best"], one["policies"][name]["yields"])) for one in runs]
        cells = [f"{above.mean():.2f}" if len(above) else "", f"{peaks.max():.1f}", spread(lost, ".2f")]
        rows.append([name, spread((peaks > LIMIT).sum(-1), ".1f"), *cells])
    columns = ["", "incidents", "by how much, °C,\nin the mean", "hottest, °C", "lost, kg\na batch"]
    return [
        common.table(f"{batches:,} batches, mean ± sd of {runs_of(runs)}", columns, rows),
        "Temperatures and yields are expected ones. Lost: the yield of the best set-point that keeps the limit less "
        "that of the one played, which is negative where the limit is broken for more.",
    ]


COLOURS = (BLUE, SKY, PURPLE, ORANGE, GREEN, GREY)  # of the policies, in their order, as are the marks
MARKS = ("o", "s", "D", "v", "P", "X")
HOTTEST = 125.0  # in °C: hotter batches are drawn at the rim, so that those near the limit can be told apart
SMOOTH = 20  # batches over which yields are averaged


def draw(record: Record) -> Figure:
    """Return three panels: temperatures, yields as moving means, and what is believed to be safe early and late."""
    figure, runs = Figure(figsize=(12.5, 11.0), layout="constrained"), record["runs"]
    panels = figure.subplot_mosaic("tt;ys", height_ratios=[1.15, 1.0])
    draw_temperatures(panels["t"], runs[0])
    axes, handles, width = panels["y"], [], min(SMOOTH, len(runs[0]["best"]))
    lines = {name: [run["policies"][name]["yields"] for run in runs] for name in POLICIES}
    lines["best that keeps the limit"] = [run["best"] for run in runs]
    looks = zip(lines.items(), (*COLOURS, BLACK), (*MARKS, None), strict=True)
    for place, ((name, yields), colour, mark) in enumerate(looks):
        smooth = np.convolve(np.mean(yields, axis=0), np.ones(width) / width, mode="valid")
        words: dict[str, Any] = {"linestyle": "-" if mark else DASHED, "linewidth": 1.8, "label": name}
        words |= {"marker": mark, "markevery": (7 * place, 48), "markersize": 6.5, "markeredgecolor": "white"}
        handles += axes.plot(np.arange(len(smooth)) + width - 1, smooth, color=colour, **words)
    axes.set(title=f"Yield, mean of {width} batches and {runs_of(runs)}", xlabel="batch", ylabel="yield (kg a batch)")
    axes.set(xlim=(0, len(runs[0]["best"])), ylim=(0.0, None))
    below(axes, handles, 2, -0.13)
    draw_safe(panels["s"], runs[0])
    for name, height in (("t", 1.0), ("y", 0.01)):
        panels[name].axvline(changed := runs[0]["changed"], color=GREY, linewidth=1.0)
        words = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "color": GREY, "fontsize": 9}
        panels[name].annotate("new catalyst", (changed, height), xytext=(4, 2), **words)
    common.tidy([*panels.values()], "abc")
    return figure


def draw_temperatures(axes: Axes, first: Record) -> None:
    """Draw the peak temperature of every batch of run 1 under each policy; the hottest at the upper rim."""
    handles = []
    for (name, played), colour, mark in zip(first["policies"].items(), COLOURS, MARKS, strict=True):
        peaks = np.array(played["peaks"])
        for where, marker, size in ((peaks <= HOTTEST, mark, 4.0), (peaks > HOTTEST, "^", 6.0)):
            look: dict[str, Any] = {"color": colour, "alpha": 0.8, "markeredgewidth": 0.0, "linestyle": "none"}
            axes.plot(np.flatnonzero(where), np.minimum(peaks[where], HOTTEST), marker=marker, markersize=size, **look)
        handles.append(line(name, color=colour, marker=mark, linestyle="none", markersize=6))
    handles.append(axes.axhline(LIMIT, color=BLACK, linewidth=1.4, linestyle=DASHED, label=f"limit, {LIMIT:g} °C"))
    handles.append(line(f"hotter than {HOTTEST:g} °C", marker="^", linestyle="none", markersize=6))
    axes.set(title=f"Peak temperature of every batch, seed {first['seed']}", xlabel="batch", ylim=(20.0, HOTTEST + 2.0))
    axes.set(ylabel="peak temperature (°C)", xlim=(-2, len(first["best"]) + 1))
    below(axes, handles, 4, -0.1)


def draw_safe(axes: Axes, first: Record) -> None:
    """Draw what is surely below the limit for all that the bandit knows, early and late, and the true limit."""
    handles = []
    for posterior, colour in zip(first["posteriors"], (BLUE, ORANGE), strict=True):
        shown = ("bounds", "-", "believed to be safe below, before"), ("peaks", DASHED, "truly safe below, in")
        for name, style, what in shown:
            excess = np.reshape(posterior[name], (len(FEEDS), len(JACKETS))).T - LIMIT
            if name == "bounds":
                lowest = min(excess.min(), 0.0) - 1.0
                axes.contourf(FEEDS, JACKETS, excess, levels=[lowest, 0.0], colors=[colour], alpha=0.15)
            if excess.min() < 0.0 < excess.max():
                words: dict[str, Any] = {"colors": [colour], "linewidths": 2.0, "linestyles": [style]}
                axes.contour(FEEDS, JACKETS, excess, levels=[0.0], **words)
            handles.append(line(f"{what} batch {posterior['batch']}", color=colour, linestyle=style))
    (left, bottom), (right, top) = OPERATORS.amin(0).tolist(), OPERATORS.amax(0).tolist()
    known: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0.8, "hatch": "//"}
    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, **known))
    handles.append(Patch(label="known to the operator", **known))
    axes.set(title=f"Safe set-points when the water has {WATER:g} °C, seed {first['seed']}", xlabel="feed (kg/h)")
    axes.set(ylabel="jacket temperature (°C)", xlim=(FEEDS[0], FEEDS[-1]), ylim=(JACKETS[0], JACKETS[-1]))
    below(axes, handles, 2, -0.13)


size = "batches", 400, 40, "batches in a run, at least 10", 3
settings = {"limit": LIMIT, "growth": GROWTH, "beta": BETA}
main = common.script("run_a_reactor", __doc__, run, report, draw, settings, size=size, seed=10, least=10)

if __name__ == "__main__":
    main()

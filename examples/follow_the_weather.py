"""Follow what people want through the seasons, knowing each day only how well one did.

A café decides every morning for what temperature to prepare, from hot soup for −5 °C to ice cream for 40 °C. In the
evening the takings, which are noisy, show how well that suited the day. Temperatures are those measured in Seattle from
2013 to 2015; only the takings are computed from them. A bandit that forgets nothing is compared with two memories, with
one that needs no rate of change and with one that is told yesterday's maximum as a context.

    python examples/follow_the_weather.py              # about a minute; with --quick a few seconds
    python examples/follow_the_weather.py --choose     # how the settings were chosen, on 2012
"""

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from itertools import product
from typing import Any

import common
import numpy as np
import torch
from common import BLACK, BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, Record, below, curves_of, runs_of, spread
from gpytorch.kernels import RBFKernel
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from torch_kbandits import Bandit, ContextualActions, History, algorithms
from torch_kbandits.environments import SeattleWeather
from torch_kbandits.plotting import plot_line

FIRST = 366  # the first day that counts, 2013-01-01; the year before is for choosing settings
BETA = 2.0  # the multiplier of σ of all bandits


def bandit(name: str, seed: int, problem: SeattleWeather, **words: Any) -> Bandit:
    """Return a bandit on the temperatures that may be prepared for, told takings alone."""
    known = {"kernel": problem.kernel, "regularization": problem.regularization}
    return algorithms.build(name, candidates=problem.arms, beta=BETA, seed=seed, **known, **words)


def with_context(seed: int, problem: SeattleWeather, lengthscale: float = 12.0, noise: float = 0.01) -> Bandit:
    """Return BKB on yesterday's maximum and what is prepared for: it forgets nothing and sees what moves."""
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[lengthscale, 5.0]], dtype=torch.float64)
    actions = ContextualActions(problem.arms, context_dim=1)
    return algorithms.CBKB(candidates=actions, kernel=kernel, regularization=noise, beta=BETA, seed=seed)


Make = Callable[[int, SeattleWeather], Bandit]

#: What was tried on 2012 for those that have a setting.
TRIED: dict[str, Make] = {
    **{f"window {size}": partial(bandit, "sw-gp-ucb", window=size) for size in (10, 20, 40, 80, 160)},
    **{f"growth {each:g}": partial(bandit, "ui-gp-ucb", growth=each) for each in (5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)},
    **{
        f"context {length:g} °C, λ {noise:g}": partial(with_context, lengthscale=length, noise=noise)
        for length, noise in product((8.0, 12.0, 18.0), (0.003, 0.01, 0.03))
    },
}

STATIC, FADING = "IGP-UCB, forgets nothing", "UI-GP-UCB, memory that fades"

POLICIES: dict[str, Make] = {
    STATIC: partial(bandit, "igp-ucb"),
    "SW-GP-UCB, last 80 days": TRIED["window 80"],
    FADING: TRIED["growth 0.001"],
    # It starts anew when a reward surprises it.
    "ET-GP-UCB, rate unknown": lambda seed, at: bandit("et-gp-ucb", seed, at, noise_scale=at.noise_scale),
    "BKB told yesterday's maximum": with_context,
}


def live(policy: Bandit, problem: SeattleWeather, days: range) -> dict[str, list[float]]:
    """Prepare for a temperature on each day and learn the takings of the evening; return what was done and lost."""
    played: dict[str, list[float]] = {"prepared": [], "rewards": [], "regret": []}
    for day in days:
        told: dict[str, Any] = {}
        if policy.candidates.is_contextual:
            told = {"context": torch.tensor([problem.temperatures[day - 1]], dtype=torch.float64)}
        x = policy.ask(**told)
        takings = problem.pull(x, day)
        policy.tell(x, takings, **told)
        for what, value in zip(played, (x, takings, problem.regret(x, day)), strict=True):
            played[what].append(float(value))
    return played


def run(seed: int, days: int) -> Record:
    """Let every policy live through the same days, and return the record of it."""
    torch.set_num_threads(1)
    problem, period = SeattleWeather(seed=seed), range(FIRST, FIRST + days)
    policies = {name: live(make(seed, problem), problem, period) for name, make in POLICIES.items()}
    return {"seed": seed, "policies": policies}


def without_learning(days: int) -> dict[str, float]:
    """Return what would be lost in a day, in the mean, by some who do not learn, or know more than takings."""
    problem, period = SeattleWeather(seed=0), range(FIRST, FIRST + days)
    losses = torch.stack([problem.regret(problem.arms, day) for day in period])
    known = [problem.arms[(problem.arms - problem.temperatures[day - 1]).abs().argmin(), None] for day in period]
    yesterday = [float(problem.regret(x, day)) for x, day in zip(known, period, strict=True)]
    return {
        "always the same, had one known which": float(losses.mean(0).min()),
        "any, at random": float(losses.mean()),
        "yesterday's maximum, as it was": float(np.mean(yesterday)),
    }


def choose(seeds: Sequence[int] = (100, 101, 102)) -> None:
    """Print what the settings that were tried lose on 2012, with other seeds than the runs have."""
    for name, make in TRIED.items():
        problems = [SeattleWeather(seed=seed) for seed in seeds]
        years = [live(make(seed, each), each, range(1, FIRST)) for seed, each in zip(seeds, problems, strict=True)]
        print(f"{name:24} {spread([np.mean(year['regret']) for year in years])}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies live through the days in every run, and write record and figures."""
    problem = SeattleWeather(seed=0)
    longest = problem.rounds - FIRST  # pyright: ignore[reportOptionalOperand]
    size = "days", longest, 60, "days from the first of January 2013", 4
    more = {"--choose": {"action": "store_true", "help": "print how settings do on 2012, and do nothing else"}}
    options = common.options_of("follow_the_weather", __doc__, arguments, size, more=more, most=longest)
    if options.choose:
        choose()
        return
    runs, period = common.play(run, options), slice(FIRST, FIRST + options.size)
    record: Record = {"dates": problem.dates[period], "temperatures": problem.temperatures[period]}
    record["settings"] = {"days": options.size, "seed": options.seed, "beta": BETA, "shown": FADING}
    record |= {"without_learning": without_learning(options.size), "runs": runs}
    common.finish(options, record, report, seasons=draw_seasons, figure=draw)


def report(record: Record) -> list[Any]:
    """Say what each policy lost."""
    runs, days = record["runs"], record["settings"]["days"]
    rows: list[list[str] | None] = []
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        losses, latest = ([np.mean(one["regret"][-last:]) for one in played] for last in (days, 365))
        rows.append([name, spread(losses), spread(latest)])
    rows += [None, *([name, f"{loss:.3f}", ""] for name, loss in record["without_learning"].items())]
    title = f"{days:,} days from {record['dates'][0]}, mean ± sd of {runs_of(runs)}"
    return [
        common.table(title, ["", "lost in a day", "in the last year"], rows),
        "Lost: the best takings of the day less the expected ones of what was prepared for; the best are 1. Runs "
        "differ in the noise of the takings, not in the weather.",
    ]


#: Of the policies, so that they differ in print, too.
LOOKS = ((ORANGE, DASHED), (PURPLE, (0, (6, 1.5, 1, 1.5))), (BLUE, "solid"), (BLACK, (0, (2, 1))), (GREEN, (0, (8, 2))))
SMOOTH = 14  # days over which what was prepared for is averaged, as are the temperatures
APART = 160  # how many days before the last one the first posterior is shown: from December to July


def draw_seasons(record: Record) -> Figure:
    """Return one panel: measured maxima and what two policies prepared for in run 1, as means of two weeks."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    axes = figure.subplots()
    days: list[Any] = [date.fromisoformat(day) for day in record["dates"]]
    width, policies = min(SMOOTH, len(days)), record["runs"][0]["policies"]
    lines = [
        ("the daily maximum, which no bandit is told", record["temperatures"], "0.6", "solid", 5.0),
        ("IGP-UCB, which forgets nothing", policies[STATIC]["prepared"], ORANGE, DASHED, 2.0),
        ("UI-GP-UCB, in whose memory the old fades", policies[FADING]["prepared"], BLUE, "solid", 2.0),
    ]
    for name, values, colour, style, thickness in lines:
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(days[width - 1 :], smooth, color=colour, linestyle=style, linewidth=thickness, label=name)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set(ylabel="temperature (°C), mean of two weeks", xlim=(days[0], days[-1]))
    axes.set_title("Told only each evening's noisy takings, a bandit that forgets follows the seasons", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw(record: Record) -> Figure:
    """Return three panels: regret, what the memory that fades believes on two mornings of run 1, and what was true."""
    figure, runs, days = Figure(figsize=(12.5, 10.0), layout="constrained"), record["runs"], record["settings"]["days"]
    (regret, *beliefs), handles = figure.subplot_mosaic("aa;bc").values(), []
    numbers = np.arange(1, days + 1)
    for name, (colour, style) in zip(POLICIES, LOOKS, strict=True):
        curves = np.cumsum([run["policies"][name]["regret"] for run in runs], axis=1)
        handles += curves_of(regret, numbers, curves, colour, linestyle=style, label=name)
    for (name, loss), style in zip(record["without_learning"].items(), (DASHED, None, (0, (1, 1.5))), strict=True):
        if style is not None:  # chance would leave the others no room
            handles += regret.plot(numbers, loss * numbers, color=GREY, linewidth=1.6, linestyle=style, label=name)
    regret.set(xlabel=f"days since {record['dates'][0]}", ylabel="regret (days of best takings)")
    regret.set(title=f"Cumulative regret, mean of {runs_of(runs)}", xlim=(0, days), ylim=(0, None))
    below(regret, handles)
    X, Y = (torch.tensor(runs[0]["policies"][FADING][name], dtype=torch.float64) for name in ("prepared", "rewards"))
    for axes, day in zip(beliefs, (max(days - APART, days // 2), days - 1), strict=True):
        policy, rounds = POLICIES[FADING](runs[0]["seed"], SeattleWeather(seed=0)), torch.arange(day)
        policy.replay(History(X[:day, None], Y[:day], rounds, None, rounds.double()))
        plot_line(policy, ax=axes)
        axes.set(xlabel="prepared for (°C)", ylabel="takings (share of the best)")
        legend: Any = axes.get_legend()
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            handle.set_label(text.get_text())
        x = np.linspace(-5.0, 40.0, 200)
        truth = np.exp(-((x - record["temperatures"][day]) ** 2) / 50.0)
        drawn = axes.plot(x, truth, color=GREY, linewidth=1.6, linestyle=DASHED, label="true of that day")
        axes.set_title("", loc="left")
        axes.set(title=f"Believed on the morning of {record['dates'][day]}", ylim=(-1.1, 1.5))
        below(axes, [*legend.legend_handles, *drawn])
    common.tidy([regret, *beliefs], "abc", plain=beliefs)
    return figure


if __name__ == "__main__":
    main()

"""Set the price of a lounge pass for each traveller, while the outcomes of earlier offers are still open.

Travellers at an airport are offered a lounge pass in an app, on a website, at a kiosk or by a partner. What is known is
how long they will wait, what their flight cost and where they are asked; the price is chosen. That a pass was bought is
known when it is bought, that it was not only when the gate closes. So about fifty offers are always open, and outcomes
come out of order. They are collected and told by the ids of their offers, ten offers apart.

EK-UCB on traveller and price together is compared with GP-UCB on the prices alone, with a rule by segments and with
random prices. Demand is simulated (``personalise_prices_market.py``): the same
travellers meet each policy, and regret is counted in expected margins, which are known.

    python examples/personalise_prices.py              # under a minute
    python examples/personalise_prices.py --quick      # a few seconds

Writes ``record.json`` and ``figure.png`` to ``runs/personalise_prices``.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, Record, below, runs_of, spread
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from personalise_prices_market import CHANNELS, COST, OFFER, PRICES, TRAVELLER, Traveller, travellers

from torch_kbandits import Bandit, ColumnSpec, ContextualActions, algorithms

#: The prior mean is zero, so this guess of the mean margin, in euros, is taken off before a bandit is told.
CENTRE = 8.0

#: λ, in euros squared: a margin of 30 that comes with probability 0.3 has a standard deviation of 14, one of 8 with 0.6
#: has one of 4. One number must do for all.
REGULARIZATION = 64.0

#: How far expected margins are from ``CENTRE``, as a standard deviation in euros.
PRIOR_DEVIATION = 6.0

#: A tenth of the range of prices is nearly one price, half of it is not.
PRICE_LENGTHSCALE = 0.25

#: Multiplier of the standard deviation; BoTorch would call it 4.
BETA = 2.0

#: KORS's γ. The default, 3, keeps two and a half times as many points here and regrets no less.
OVERSAMPLING = 1.0

#: A rule explores with this probability.
EXPLORATION = 0.05

# ---------------------------------------------------------------- ways to set prices


class Learning:
    """A bandit; told by id, so that neither traveller nor price need be kept."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit = bandit

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Return a price, and the name under which its margin will be told; a row goes in as it is."""
        context = traveller.row if self.bandit.candidates.is_contextual else None
        actions, ids = self.bandit.ask(context=context, return_ids=True)
        return float(round(OFFER.decode(actions)[0]["price"])), ids[0]  # decoding is exact up to rounding

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Learn margins, in euros, of offers made before, in whatever order."""
        self.bandit.tell(ids=names, y=torch.tensor(margins, dtype=torch.float64) - CENTRE)


def contextual(seed: int) -> Learning:
    """Return EK-UCB on the joint points of traveller and price."""
    joint = ColumnSpec([*TRAVELLER.columns, *OFFER.columns])
    # In the order of the columns: hours, fare, then the levels of channel, two of which are √2 apart. Margins are
    # alike where travellers are alike and prices are close.
    of_traveller = rbf([0.7, 0.7, 1.0, 1.0, 1.0], range(TRAVELLER.width))
    kernel = scaled(of_traveller * rbf([PRICE_LENGTHSCALE], joint.columns_of("price")))
    prices = [{"price": price} for price in PRICES]
    candidates = ContextualActions(prices, context_columns=TRAVELLER, action_columns=OFFER)
    words = {"regularization": REGULARIZATION, "oversampling": OVERSAMPLING, "beta": BETA, "seed": seed}
    return Learning(algorithms.EKUCB(candidates=candidates, kernel=kernel, **words))


def context_free(seed: int) -> Learning:
    """Return GP-UCB on the prices alone, whoever the traveller is."""
    prices, kernel = OFFER.encode([{"price": price} for price in PRICES]), scaled(rbf([PRICE_LENGTHSCALE], [0]))
    words = {"regularization": REGULARIZATION, "beta": BETA, "seed": seed}
    return Learning(algorithms.GPUCB(candidates=prices, kernel=kernel, **words))


def rbf(lengthscales: Sequence[float], columns: Sequence[int]) -> Kernel:
    """Return a Gaussian kernel on some columns, with a lengthscale for each."""
    kernel = RBFKernel(active_dims=tuple(columns), ard_num_dims=len(lengthscales)).double()
    return kernel.initialize(lengthscale=torch.tensor([list(lengthscales)], dtype=torch.float64))


def scaled(kernel: Kernel) -> Kernel:
    """Return a kernel in euros squared."""
    variance = torch.tensor(PRIOR_DEVIATION**2, dtype=torch.float64)
    return ScaleKernel(kernel).double().initialize(outputscale=variance)


class SegmentRule:
    """In each segment the price of the best average margin so far, now and then any price.

    Untried prices come first. Segments are channels, by cheap or dear ticket. Of five rules that were tried on other
    seeds no other did clearly better; finer segments took longer to learn than they were worth.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._totals: dict[Any, list[float]] = {}
        self._counts: dict[Any, list[int]] = {}

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Look the best price of the segment up, or any."""
        segment = (traveller.channel if traveller.channel in CHANNELS else "partner", traveller.fare > 224.0)
        totals = self._totals.setdefault(segment, [0.0] * len(PRICES))
        counts = self._counts.setdefault(segment, [0] * len(PRICES))
        if self._random.random() < EXPLORATION:
            best = self._random.randrange(len(PRICES))
        else:
            averages = [total / count if count else float("inf") for total, count in zip(totals, counts, strict=True)]
            best = max(range(len(PRICES)), key=lambda i: (averages[i], self._random.random()))
        return PRICES[best], (segment, best)

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Add to the averages."""
        for (segment, price), margin in zip(names, margins, strict=True):
            self._totals[segment][price] += margin
            self._counts[segment][price] += 1


class AnyPrice(SegmentRule):
    """A price by lot."""

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Draw."""
        return self._random.choice(PRICES), None

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Do nothing."""


Policy = Learning | SegmentRule

POLICIES: dict[str, Callable[[int], Policy]] = {
    "EK-UCB, traveller and price": contextual,
    "GP-UCB, price only": context_free,
    "rule by segment": SegmentRule,
    "random prices": AnyPrice,
}

# ---------------------------------------------------------------- offers

#: Outcomes are told after so many offers, those that are known by then.
OFFERS_PER_TELL = 10

#: The two travellers of whom the figure shows what was learned.
EXAMPLES = ({"hours": 6.0, "fare": 80.0, "channel": "website"}, {"hours": 1.25, "fare": 600.0, "channel": "app"})


def sell(policy: Policy, stream: Sequence[Traveller]) -> Record:
    """Make an offer to each traveller, and tell what is known of earlier offers every now and then.

    Regret, cumulative, and margins are expected ones, in euros; seconds are those of the policy itself.
    """
    open_offers: list[tuple[int, int, Any, float]] = []  # known at, number, name, margin
    margins, best, most_open, seconds = [], [], 0, 0.0
    for number, traveller in enumerate(stream):
        started = time.perf_counter()
        if number % OFFERS_PER_TELL == 0:
            known = []
            while open_offers and open_offers[0][0] <= number:
                known.append(heapq.heappop(open_offers))
            if known:
                policy.learn([name for _, _, name, _ in known], [margin for *_, margin in known])
        price, name = policy.offer(traveller)
        seconds += time.perf_counter() - started
        margin = (price - COST) * traveller.buys_at(price)
        heapq.heappush(open_offers, (number + traveller.known_after(price), number, name, margin))
        most_open = max(most_open, len(open_offers))
        expected = traveller.margins()
        margins.append(float(expected[PRICES.index(price)]))
        best.append(float(expected.max()))
    regret = np.cumsum(np.subtract(best, margins)).tolist()
    last_quarter = float(np.mean(margins[-max(1, len(margins) // 4) :]))
    return {"regret": regret, "last_quarter": last_quarter, "most_open": most_open, "seconds": seconds}


def run(seed: int, offers: int) -> Record:
    """Let every policy meet the same travellers, and return the record of it."""
    torch.set_num_threads(1)
    stream, last = travellers(offers, seed), slice(-max(1, offers // 4), None)
    expected = torch.stack([traveller.margins() for traveller in stream])
    best, one_price = expected.max(-1).values, expected[:, expected.mean(0).argmax()]
    policies = {name: make(seed) for name, make in POLICIES.items()}
    played = {name: sell(policy, stream) for name, policy in policies.items()}
    learned: Any = policies["EK-UCB, traveller and price"]
    fixed = {"regret": (best - one_price).cumsum(0).tolist(), "last_quarter": float(one_price[last].mean())}
    return {
        "seed": seed,
        "best_margin": float(best[last].mean()),
        "one_price": fixed,
        "policies": played,
        "dictionary_size": len(learned.bandit.inducing_points),
        "posterior": believed(learned.bandit),
    }


def believed(bandit: Bandit, resolution: int = 25) -> Record:
    """Return what a bandit learned: margins of two travellers, and prices for all who come by the website."""
    curves, offers = [], OFFER.encode([{"price": price} for price in PRICES])
    for row in EXAMPLES:
        joint = torch.cat([TRAVELLER.encode(row).expand(len(PRICES), -1), offers], dim=-1)
        with torch.no_grad():
            posterior = bandit.model.posterior(joint.unsqueeze(-2))  # marginals, (A, 1, 1)
        mean, deviation = posterior.mean.flatten() + CENTRE, posterior.variance.flatten().sqrt()
        truth = Traveller(**row, luck=0.0, patience=0.0).margins().tolist()
        curves.append({"traveller": row, "mean": mean.tolist(), "deviation": deviation.tolist(), "truth": truth})
    hours, fares = np.geomspace(1.0, 8.0, resolution).tolist(), np.geomspace(50.0, 1_000.0, resolution).tolist()
    learned, best = np.zeros((2, resolution, resolution))
    for i, j in np.ndindex(resolution, resolution):
        row = {"hours": hours[i], "fare": fares[j], "channel": "website"}
        (offer,) = OFFER.decode(bandit.recommend(context=row))
        learned[i, j] = round(offer["price"])
        best[i, j] = PRICES[int(Traveller(**row, luck=0.0, patience=0.0).margins().argmax())]
    return {"curves": curves, "hours": hours, "fares": fares, "learned": learned.tolist(), "best": best.tolist()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies sell in every run, and write record and figure."""
    parser = common.options_of("personalise_prices", __doc__)
    common.sized(parser, "offers", 3_000, 300, "travellers in a run, at least 50", runs=4, least=50)
    options = common.parse(parser, arguments)
    settings = {"offers": options.size, "seed": options.seed, "prices": PRICES, "beta": BETA, "centre": CENTRE}
    record = {"settings": settings, "runs": common.play(run, options)}
    common.finish(options, record, report, figure=draw)


def report(record: Record) -> list[Any]:
    """Say what each policy lost and earns."""
    runs, offers = record["runs"], record["settings"]["offers"]
    found = {name: [one["policies"][name] for one in runs] for name in POLICIES}
    found["best single price, had one known it"] = [one["one_price"] for one in runs]
    rows = []
    for name, played in found.items():
        regrets, margins = (
            spread([one["regret"][-1] for one in played], ",.0f"),
            [one["last_quarter"] for one in played],
        )
        spent = f"{np.mean([1e3 * one['seconds'] / offers for one in played]):.2f}" if name in POLICIES else ""
        rows.append([name, regrets, spread(margins, ".2f"), spent])
    rows.append(["best price for each traveller", "0", spread([one["best_margin"] for one in runs], ".2f"), ""])
    rows.insert(len(POLICIES), None)
    most_open = max(played["most_open"] for one in runs for played in one["policies"].values())
    sizes = sorted(one["dictionary_size"] for one in runs)
    columns = ["", "regret, €", "margin per offer,\nlast quarter, €", "ms per offer"]
    return [
        common.table(f"{offers:,} offers, mean ± sd of {runs_of(runs)}", columns, rows),
        f"Margins are expected ones. Up to {most_open} offers were open at once. EK-UCB's dictionaries have {sizes[0]} "
        f"to {sizes[-1]} points.",
    ]


# ---------------------------------------------------------------- figure


def draw(record: Record) -> Figure:
    """Return four panels: regret, the margins of two travellers, and the prices learned beside the best ones."""
    figure = Figure(figsize=(12.5, 10.0), layout="constrained")
    (regret, curves), (learned, best) = figure.subplots(2, 2)
    posterior = record["runs"][0]["posterior"]
    draw_regret(regret, record["runs"])
    draw_curves(curves, posterior["curves"])
    draw_prices(learned, posterior, "learned", "Price learned in run 1, website")
    draw_prices(best, posterior, "best", "Best price, website")
    common.tidy([regret, curves, learned, best], "abcd", plain=[learned, best])
    return figure


def draw_regret(axes: Axes, runs: list[Record]) -> None:
    """Draw the mean cumulative regret of each policy, each run thinly, and that of the best single price."""
    handles, highest = [], 0.0
    for name, colour in zip(POLICIES, (BLUE, GREEN, ORANGE, PURPLE), strict=True):
        curves = np.array([run["policies"][name]["regret"] for run in runs])
        axes.plot(curves.T, color=colour, linewidth=0.6, alpha=0.4)
        handles += axes.plot(curves.mean(0), color=colour, linewidth=2.2, label=name)
        highest = highest if name == "random prices" else max(highest, curves.max())  # which would leave no room
    fixed = np.mean([run["one_price"]["regret"] for run in runs], axis=0)
    handles += axes.plot(fixed, color=GREY, linewidth=1.6, linestyle=DASHED, label="best single price, if known")
    axes.set(title=f"Cumulative regret, mean of {runs_of(runs)}", xlabel="offers made", xlim=(0, len(fixed)))
    axes.set(ylabel="regret in expected margin (€)", ylim=(0, 1.15 * highest))
    below(axes, handles)


def draw_curves(axes: Axes, curves: list[Record]) -> None:
    """Draw the posterior of two travellers' margins over the prices, and the truth."""
    handles = []
    for curve, colour in zip(curves, (BLUE, ORANGE), strict=True):
        mean, deviation, row = np.array(curve["mean"]), np.array(curve["deviation"]), curve["traveller"]
        label = f"{row['channel']}, {row['hours']:g} h to wait, ticket {row['fare']:g} €"
        axes.fill_between(PRICES, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.18, linewidth=0)
        handles += axes.plot(PRICES, mean, color=colour, linewidth=2.0, label=label)
        axes.plot(PRICES, curve["truth"], color=colour, linewidth=1.6, linestyle=DASHED)
        top = int(np.argmax(mean))
        axes.plot(PRICES[top], mean[top], "*", color=colour, markersize=14, markeredgecolor="black", zorder=3)
    handles += [
        Line2D([], [], color=GREY, linewidth=2.0, label="posterior mean, band ± 2 σ"),
        Line2D([], [], color=GREY, linewidth=1.6, linestyle=DASHED, label="true expected margin"),
        Line2D([], [], color=GREY, linewidth=0, marker="*", markersize=11, label="price recommended"),
    ]
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    axes.set(title="What EK-UCB believes of two travellers after run 1", xlabel="price (€)")
    axes.set(ylabel="expected margin of an offer (€)")
    below(axes, handles)


def draw_prices(axes: Axes, posterior: Record, which: str, title: str) -> None:
    """Draw a price for each traveller who comes by the website."""
    step = PRICES[1] - PRICES[0]
    shown = [p for p in PRICES if np.min(posterior["best"]) - 2 * step <= p <= np.max(posterior["best"]) + 2 * step]
    norm = BoundaryNorm([*(p - step / 2 for p in shown), shown[-1] + step / 2], 256)
    words: dict[str, Any] = {"cmap": "viridis", "norm": norm, "shading": "nearest"}
    mesh = axes.pcolormesh(posterior["fares"], posterior["hours"], np.array(posterior[which]), **words)
    axes.figure.colorbar(mesh, ax=axes, label="price (€)", ticks=shown, spacing="proportional")
    axes.set(xscale="log", yscale="log", xlabel="price of the ticket (€)", ylabel="hours until the gate closes")
    for axis, ticks in ((axes.xaxis, (50, 100, 200, 400, 800)), (axes.yaxis, (1, 2, 4, 8))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    axes.set_title(title)


if __name__ == "__main__":
    main()

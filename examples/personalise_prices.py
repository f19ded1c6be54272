"""Set the price of a lounge pass for each traveller, while the outcomes of earlier offers are still open.

Known of a traveller are the hours to wait, what the flight cost and the channel; the price is chosen. That a pass was
bought is known when it is, that it was not only when the gate closes: about fifty offers are always open, and outcomes
are told out of order, by the ids of their offers. EK-UCB on traveller and price is compared with GP-UCB on the prices
alone, with a rule by segments and with random prices. Demand is simulated, so that expected margins are known.

    python examples/personalise_prices.py      # under a minute; with --quick a few seconds
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, DASHED, GREEN, GREY, ORANGE, PURPLE, Record, below, curves_of, line, runs_of, spread, ticks
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from torch import Tensor

from torch_kbandits import Bandit, Category, ColumnSpec, ContextualActions, Number, algorithms
from torch_kbandits.numerics.random import generator_for

COST = 12.0  # of a visit to the lounge, for its operator, in euros
PRICES = tuple(float(price) for price in range(16, 73, 4))  # that may be asked, in euros
INTEREST = 0.7  # the share of the travellers who would come at all, were it cheap enough
SPREAD = 4.0  # by which the prices that travellers of the same context would pay differ, in euros
MINUTES_PER_OFFER = 3.0
CHANNELS = ("app", "website", "kiosk")  # those that are known beforehand; partners come and go

#: What is known of a traveller. Partners' names are no levels: a bandit must cope with those that it never saw.
TRAVELLER = ColumnSpec(
    [Number("hours", 1, 8, log=True), Number("fare", 50, 1_000, log=True), Category("channel", CHANNELS, other=True)]
)
OFFER = ColumnSpec([Number("price", PRICES[0], PRICES[-1])])

_SHARES = {"app": 0.35, "website": 0.35, "kiosk": 0.22, "Skyward miles": 0.05, "Bluefin cards": 0.03}
_CHANNELS, _PARTNER = {"app": 4.0, "website": 0.0, "kiosk": -6.0}, 9.0


@dataclass(frozen=True)
class Traveller:
    """A traveller who is made an offer."""

    hours: float  # until the gate closes, when the offer ends
    fare: float  # what the flight cost, in euros
    channel: str  # where the offer is shown
    luck: float = 0.0  # in [0, 1): the offer is taken if its probability is above it, so a lower price is taken as well
    patience: float = 0.0  # in [0, 1): the share of the time until the gate closes that passes before a pass is bought

    @property
    def row(self) -> dict[str, Any]:
        """What the operator knows: a row of ``TRAVELLER``."""
        return {"hours": self.hours, "fare": self.fare, "channel": self.channel}

    def buys_at(self, price: float) -> bool:
        """Whether this traveller takes a price."""
        return self.luck < float(self.probabilities()[PRICES.index(price)])

    def probabilities(self) -> Tensor:
        """Return the probability that a traveller of this context takes each price, (A,)."""
        wealth = math.log(self.fare / 50.0) / math.log(20.0)
        waiting = math.log(self.hours) / math.log(8.0)
        # Those who fly cheaply buy a place for a long wait, those on dear tickets a desk for the last hour.
        worth = 20.0 + 20.0 * wealth + 16.0 * (1.0 - wealth) * waiting + 20.0 * wealth * (1.0 - waiting)
        worth += _CHANNELS.get(self.channel, _PARTNER)
        return INTEREST * torch.sigmoid((worth - torch.tensor(PRICES, dtype=torch.float64)) / SPREAD)

    def margins(self) -> Tensor:
        """Return the expected margin of each price, (A,), in euros."""
        return (torch.tensor(PRICES, dtype=torch.float64) - COST) * self.probabilities()

    def known_after(self, price: float) -> int:
        """Return how many offers later it is known whether a price was taken: at once if bought, else at the gate."""
        share = self.patience if self.buys_at(price) else 1.0
        return math.ceil(share * self.hours * 60.0 / MINUTES_PER_OFFER)


def travellers(number: int, seed: int) -> list[Traveller]:
    """Return a stream of travellers."""
    draws = torch.rand(number, 5, generator=generator_for(seed, 0, "travellers"), dtype=torch.float64).tolist()
    edges, names = np.cumsum(list(_SHARES.values()))[:-1], list(_SHARES)
    return [
        Traveller(8.0**hours, 50.0 * 20.0**fare, names[int(np.searchsorted(edges, channel, "right"))], luck, patience)
        for hours, fare, channel, luck, patience in draws
    ]


CENTRE = 8.0  # a guess of the mean margin, in euros, which is taken off before a bandit is told: its prior mean is zero

REGULARIZATION = 64.0  # λ; a margin of 30 € of probability 0.3 has a deviation of 14, one of 8 € of 0.6 has one of 4
PRIOR_DEVIATION = 6.0  # of expected margins from ``CENTRE``, in euros
PRICE_LENGTHSCALE = 0.25  # a tenth of the range of prices is nearly one price, half of it is not
BETA = 2.0  # the multiplier of the standard deviation; BoTorch would call it 4
OVERSAMPLING = 1.0  # KORS's γ; the default, 3, keeps two and a half times as many points here and regrets no less
EXPLORATION = 0.05  # the probability with which a rule explores

OFFERS_PER_TELL = 10  # outcomes are told after so many offers, those that are known by then

OFFERED = OFFER.encode([{"price": price} for price in PRICES])

#: The two travellers of whom the figure shows what was learned.
EXAMPLES = ({"hours": 6.0, "fare": 80.0, "channel": "website"}, {"hours": 1.25, "fare": 600.0, "channel": "app"})


class Learning:
    """A bandit; told by id, so that neither traveller nor price need be kept."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit = bandit

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Return a price, and the name under which its margin will be told; a row goes in as it is."""
        context = traveller.row if self.bandit.candidates.is_contextual else None
        asked = self.bandit.ask(context=context, details=True)
        return float(round(OFFER.decode(asked.x)[0]["price"])), asked.ids[0]  # decoding is exact up to rounding

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Learn margins, in euros, of offers made before, in whatever order."""
        self.bandit.tell(ids=names, y=torch.tensor(margins, dtype=torch.float64) - CENTRE)


def contextual(seed: int) -> Learning:
    """Return EK-UCB on the joint points of traveller and price."""
    joint = ColumnSpec([*TRAVELLER.columns, *OFFER.columns])
    # In the order of the columns: hours, fare, then the levels of channel, two of which are √2 apart.
    of_traveller = rbf([0.7, 0.7, 1.0, 1.0, 1.0], range(TRAVELLER.width))
    kernel = scaled(of_traveller * rbf([PRICE_LENGTHSCALE], joint.columns_of("price")))
    candidates = ContextualActions(OFFERED, context_columns=TRAVELLER, action_columns=OFFER)
    words = {"regularization": REGULARIZATION, "oversampling": OVERSAMPLING, "beta": BETA, "seed": seed}
    return Learning(algorithms.EKUCB(candidates=candidates, kernel=kernel, **words))


def context_free(seed: int) -> Learning:
    """Return GP-UCB on the prices alone, whoever the traveller is."""
    words = {"regularization": REGULARIZATION, "beta": BETA, "seed": seed}
    return Learning(algorithms.GPUCB(candidates=OFFERED, kernel=scaled(rbf([PRICE_LENGTHSCALE], [0])), **words))


def rbf(lengthscales: Sequence[float], columns: Sequence[int]) -> Kernel:
    """Return a Gaussian kernel on some columns, with a lengthscale for each."""
    kernel = RBFKernel(active_dims=tuple(columns), ard_num_dims=len(lengthscales)).double()
    return kernel.initialize(lengthscale=torch.tensor([list(lengthscales)], dtype=torch.float64))


def scaled(kernel: Kernel) -> Kernel:
    """Return a kernel in euros squared."""
    return ScaleKernel(kernel).double().initialize(outputscale=torch.tensor(PRIOR_DEVIATION**2, dtype=torch.float64))


class SegmentRule:
    """In each segment the price of the best average margin so far, now and then any price.

    Untried prices come first. Segments are channels, by cheap or dear ticket. Of five rules that were tried on other
    seeds no other did clearly better; finer segments took longer to learn than they were worth.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._margins: defaultdict[Any, list[list[float]]] = defaultdict(lambda: [[] for _ in PRICES])

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Look the best price of the segment up, or any."""
        segment = (traveller.channel if traveller.channel in CHANNELS else "partner", traveller.fare > 224.0)
        if self._random.random() < EXPLORATION:
            best = self._random.randrange(len(PRICES))
        else:
            averages = [fmean(margins) if margins else float("inf") for margins in self._margins[segment]]
            best = max(range(len(PRICES)), key=lambda i: (averages[i], self._random.random()))
        return PRICES[best], (segment, best)

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Add to the averages."""
        for (segment, price), margin in zip(names, margins, strict=True):
            self._margins[segment][price].append(margin)


class AnyPrice(SegmentRule):
    """A price at random."""

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Draw."""
        return self._random.choice(PRICES), (None, 0)  # for nothing


POLICIES: dict[str, Callable[[int], Learning | SegmentRule]] = {
    "EK-UCB, traveller and price": contextual,
    "GP-UCB, price only": context_free,
    "rule by segment": SegmentRule,
    "random prices": AnyPrice,
}


def sell(policy: Learning | SegmentRule, stream: Sequence[Traveller]) -> Record:
    """Make an offer to each traveller, and tell now and then what is known; regret and margins are expected ones."""
    open_offers: list[tuple[int, int, Any, float]] = []  # known at, number, name, margin
    margins, regret, most_open = [], [], 0
    for number, traveller in enumerate(stream):
        if number % OFFERS_PER_TELL == 0:
            known = []
            while open_offers and open_offers[0][0] <= number:
                known.append(heapq.heappop(open_offers))
            if known:
                policy.learn([name for _, _, name, _ in known], [margin for *_, margin in known])
        price, name = policy.offer(traveller)
        margin = (price - COST) * traveller.buys_at(price)
        heapq.heappush(open_offers, (number + traveller.known_after(price), number, name, margin))
        most_open = max(most_open, len(open_offers))
        expected = traveller.margins()
        margins.append(float(expected[PRICES.index(price)]))
        regret.append(float(expected.max()) - margins[-1])
    last_quarter = float(np.mean(margins[-max(1, len(margins) // 4) :]))
    return {"regret": np.cumsum(regret).tolist(), "last_quarter": last_quarter, "most_open": most_open}


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
    found = {"dictionary_size": len(learned.bandit.inducing_points), "posterior": believed(learned.bandit)}
    return {"seed": seed, "best_margin": float(best[last].mean()), "one_price": fixed, "policies": played} | found


def believed(bandit: Bandit, resolution: int = 25) -> Record:
    """Return what a bandit learned: margins of two travellers, and prices for all who come by the website."""
    curves = []
    for row in EXAMPLES:
        joint = torch.cat([TRAVELLER.encode(row).expand(len(PRICES), -1), OFFERED], dim=-1)
        with torch.no_grad():
            posterior = bandit.model.posterior(joint.unsqueeze(-2))  # marginals, (A, 1, 1)
        mean, deviation = posterior.mean.flatten() + CENTRE, posterior.variance.flatten().sqrt()
        truth = Traveller(**row).margins().tolist()
        curves.append({"traveller": row, "mean": mean.tolist(), "deviation": deviation.tolist(), "truth": truth})
    hours, fares = np.geomspace(1.0, 8.0, resolution).tolist(), np.geomspace(50.0, 1_000.0, resolution).tolist()
    rows = [[{"hours": each, "fare": fare, "channel": "website"} for fare in fares] for each in hours]
    learned = [[OFFER.decode(bandit.recommend(context=row))[0]["price"] for row in line] for line in rows]
    best = [[PRICES[int(Traveller(**row).margins().argmax())] for row in line] for line in rows]
    return {"curves": curves, "hours": hours, "fares": fares, "learned": np.round(learned).tolist(), "best": best}


def report(record: Record) -> list[Any]:
    """Say what each policy lost and earns."""
    runs, offers = record["runs"], record["settings"]["offers"]
    found = {name: [one["policies"][name] for one in runs] for name in POLICIES}
    found["best single price, had one known it"] = [one["one_price"] for one in runs]
    rows = []
    for name, played in found.items():
        regret = spread([one["regret"][-1] for one in played], ",.0f")
        rows.append([name, regret, spread([one["last_quarter"] for one in played], ".2f")])
    rows.append(["best price for each traveller", "0", spread([one["best_margin"] for one in runs], ".2f")])
    rows.insert(len(POLICIES), None)
    most_open = max(played["most_open"] for one in runs for played in one["policies"].values())
    sizes = sorted(one["dictionary_size"] for one in runs)
    columns = ["", "regret, €", "margin per offer,\nlast quarter, €"]
    return [
        common.table(f"{offers:,} offers, mean ± sd of {runs_of(runs)}", columns, rows),
        f"Margins are expected ones. Up to {most_open} offers were open at once. EK-UCB's dictionaries have {sizes[0]} "
        f"to {sizes[-1]} points.",
    ]


def draw(record: Record) -> Figure:
    """Return four panels: regret, the margins of two travellers, and the prices learned beside the best ones."""
    figure, runs = Figure(figsize=(12.5, 10.0), layout="constrained"), record["runs"]
    (regret, curves), (learned, best) = figure.subplots(2, 2)
    handles, highest, numbers = [], 0.0, range(record["settings"]["offers"])
    for name, colour, style in zip(POLICIES, (BLUE, GREEN, ORANGE, PURPLE), common.STYLES, strict=False):
        lost = np.array([run["policies"][name]["regret"] for run in runs])
        handles += curves_of(regret, numbers, lost, colour, linestyle=style, label=name)
        highest = highest if name == "random prices" else max(highest, lost.max())  # which would leave no room
    fixed = np.mean([run["one_price"]["regret"] for run in runs], axis=0)
    handles += regret.plot(fixed, color=GREY, linewidth=1.6, linestyle=DASHED, label="best single price, if known")
    regret.set(title=f"Cumulative regret, mean of {runs_of(runs)}", xlabel="offers made", xlim=(0, len(fixed)))
    regret.set(ylabel="regret in expected margin (€)", ylim=(0, 1.15 * highest))
    below(regret, handles)
    posterior = runs[0]["posterior"]
    draw_curves(curves, posterior["curves"])
    draw_prices(learned, posterior, "learned", "Price learned in run 1, website")
    draw_prices(best, posterior, "best", "Best price, website")
    common.tidy([regret, curves, learned, best], "abcd", plain=[learned, best])
    return figure


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
    handles += [line("posterior mean, band ± 2 σ"), line("true expected margin", linewidth=1.6, linestyle=DASHED)]
    handles += [line("price recommended", linewidth=0, marker="*", markersize=11)]
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
    ticks(axes.xaxis, (50, 100, 200, 400, 800))
    ticks(axes.yaxis, (1, 2, 4, 8))
    axes.set_title(title)


size = "offers", 3_000, 300, "travellers in a run, at least 50", 4
settings = {"prices": PRICES, "beta": BETA, "centre": CENTRE}
main = common.script("personalise_prices", __doc__, run, report, draw, settings, size=size, least=50)

if __name__ == "__main__":
    main()

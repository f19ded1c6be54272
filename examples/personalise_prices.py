"""Set the price of a lounge pass for each traveller, while the outcomes of earlier offers are still open.

Travellers at an airport are offered a lounge pass in an app, on a website, at a kiosk or by a partner. What is known is
how long they will wait, what their flight cost and where they are asked; the price is chosen. That a pass was bought is
known when it is bought, that it was not only when the gate closes. So about fifty offers are always open, and outcomes
come out of order. They are collected and told by the ids of their offers, ten offers apart.

EK-UCB on traveller and price together (``personalise_prices_policies.py``) is compared with GP-UCB on the prices alone,
with a rule by segments and with random prices. Demand is simulated (``personalise_prices_market.py``): the same
travellers meet each policy, and regret is counted in expected margins, which are known.

    python examples/personalise_prices.py              # under a minute
    python examples/personalise_prices.py --quick      # a few seconds

Writes ``record.json`` and ``figure.png`` to ``runs/personalise_prices``.
"""

import argparse
import heapq
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from personalise_prices_figure import draw
from personalise_prices_market import COST, OFFER, PRICES, TRAVELLER, Traveller, settings, travellers
from personalise_prices_policies import (
    BETA,
    CENTRE,
    OVERSAMPLING,
    POLICIES,
    PRIOR_DEVIATION,
    REGULARIZATION,
    Contextual,
    Policy,
)
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torch_kbandits.plotting.style import write_figure

#: Outcomes are told after so many offers, those that are known by then.
OFFERS_PER_TELL = 10

#: The two travellers of whom the figure shows what was learned.
EXAMPLES = (
    {"hours": 6.0, "fare": 80.0, "channel": "website"},
    {"hours": 1.25, "fare": 600.0, "channel": "app"},
)


@dataclass(frozen=True)
class Played:
    """What a policy did with a stream of travellers.

    Attributes:
        regret: cumulative, in euros, after each offer.
        margins: expected margin of each offer, in euros.
        most_open: the most offers that were open at once.
        seconds: spent by the policy itself.
    """

    regret: np.ndarray
    margins: np.ndarray
    most_open: int
    seconds: float


def play(policy: Policy, stream: Sequence[Traveller]) -> Played:
    """Make an offer to each traveller, and tell what is known of earlier offers every now and then."""
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
    return Played(np.cumsum(np.subtract(best, margins)), np.array(margins), most_open, seconds)


def run(seed: int, offers: int) -> dict[str, Any]:
    """Let every policy meet the same travellers, and return the record of it."""
    torch.set_num_threads(1)
    stream = travellers(offers, seed)
    expected = torch.stack([traveller.margins() for traveller in stream])
    one_price = int(expected.mean(0).argmax())
    last = slice(offers - max(1, offers // 4), offers)
    record: dict[str, Any] = {
        "seed": seed,
        "best_margin": float(expected.max(-1).values[last].mean()),
        "one_price": {
            "price": PRICES[one_price],
            "regret": (expected.max(-1).values - expected[:, one_price]).cumsum(0).tolist(),
            "last_quarter": float(expected[last, one_price].mean()),
        },
        "policies": {},
    }
    for name, policy_of in POLICIES.items():
        policy = policy_of(seed)
        played = play(policy, stream)
        record["policies"][name] = {
            "regret": played.regret.tolist(),
            "last_quarter": float(played.margins[last].mean()),
            "most_open": played.most_open,
            "seconds": played.seconds,
        }
        if isinstance(policy, Contextual):
            record["dictionary_size"] = len(policy.bandit.inducing_points)
            record["belief"] = believed(policy)
    return record


def believed(policy: Contextual, resolution: int = 25) -> dict[str, Any]:
    """Return what a bandit learned: margins of two travellers, and prices for all who come by the website."""
    curves = []
    for row in EXAMPLES:
        joint = torch.cat([TRAVELLER.encode(row).expand(len(PRICES), -1), offers_of(PRICES)], dim=-1)
        with torch.no_grad():
            posterior = policy.bandit.model.posterior(joint.unsqueeze(-2))  # marginals, (A, 1, 1)
        curves.append(
            {
                "traveller": row,
                "mean": (posterior.mean.flatten() + CENTRE).tolist(),
                "deviation": posterior.variance.flatten().sqrt().tolist(),
                "truth": Traveller(**row, luck=0.0, patience=0.0).margins().tolist(),
            }
        )
    hours, fares = np.geomspace(1.0, 8.0, resolution).tolist(), np.geomspace(50.0, 1_000.0, resolution).tolist()
    learned, best = np.zeros((2, resolution, resolution))
    for i, j in np.ndindex(resolution, resolution):
        row = {"hours": hours[i], "fare": fares[j], "channel": "website"}
        (offer,) = OFFER.decode(policy.bandit.recommend(context=row))
        learned[i, j] = round(offer["price"])
        best[i, j] = PRICES[int(Traveller(**row, luck=0.0, patience=0.0).margins().argmax())]
    return {"curves": curves, "hours": hours, "fares": fares, "learned": learned.tolist(), "best": best.tolist()}


def offers_of(prices: Sequence[float]) -> torch.Tensor:
    """Return prices as actions (A, 1)."""
    return OFFER.encode([{"price": price} for price in prices])


def report(record: dict[str, Any], output: Path) -> None:
    """Print what each policy lost and earns."""
    runs, offers = record["runs"], record["settings"]["offers"]
    table = Table(
        title=f"{offers:,} offers, mean ± sd of {len(runs)} run{'s' * (len(runs) > 1)}", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in ("", "regret, €", "margin per offer,\nlast quarter, €", "ms per offer"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        milliseconds = np.mean([1e3 * one["seconds"] / offers for one in played])
        regrets, margins = [one["regret"][-1] for one in played], [one["last_quarter"] for one in played]
        table.add_row(name, spread(regrets, ",.0f"), spread(margins, ".2f"), f"{milliseconds:.2f}")
    table.add_section()
    fixed = [one["one_price"] for one in runs]
    table.add_row(
        "best single price, had one known it",
        spread([one["regret"][-1] for one in fixed], ",.0f"),
        spread([one["last_quarter"] for one in fixed], ".2f"),
        "",
    )
    table.add_row("best price for each traveller", "0", spread([one["best_margin"] for one in runs], ".2f"), "")
    console = Console(width=max(Console().width, 100))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    most_open = max(played["most_open"] for one in runs for played in one["policies"].values())
    sizes = sorted(one["dictionary_size"] for one in runs)
    console.print(
        f"Margins are expected ones. Up to {most_open} offers were open at once. EK-UCB's dictionaries have "
        f"{sizes[0]} to {sizes[-1]} points. {record['seconds']:.0f} seconds in all.",
        highlight=False,
    )
    console.print(f"Wrote {output / 'record.json'} and {output / 'figure.png'}.", highlight=False, soft_wrap=True)


def spread(values: Sequence[float], form: str) -> str:
    """Return mean ± standard deviation."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):{form}}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies sell in every run, and write record and figure."""
    options = parse_arguments(arguments)
    started = time.perf_counter()
    seeds = range(options.seed, options.seed + options.runs)
    if options.runs == 1:
        runs = [run(options.seed, options.offers)]
    else:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            runs = list(pool.map(run, seeds, repeat(options.offers)))
    record = {
        "settings": {"offers": options.offers, "seed": options.seed, "offers_per_tell": OFFERS_PER_TELL}
        | settings()
        | {
            "centre": CENTRE,
            "regularization": REGULARIZATION,
            "prior_deviation": PRIOR_DEVIATION,
            "oversampling": OVERSAMPLING,
            "beta": BETA,
        },
        "versions": versions(),
        "seconds": time.perf_counter() - started,
        "runs": runs,
    }
    write_record(options.output / "record.json", record)
    write_figure(options.output / "figure.png", draw(record))
    report(record, options.output)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, and make the folder to write to."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--offers", type=whole_number(50), default=3_000, help="travellers in a run, at least 50")
    parser.add_argument(
        "--runs", type=whole_number(), default=4, help="how often all policies start anew, two runs at a time"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the next has the next")
    parser.add_argument("--quick", action="store_true", help="one run of 300 offers")
    parser.add_argument("--output", type=Path, default=Path("runs/personalise_prices"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.offers, options.runs = 300, 1
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()

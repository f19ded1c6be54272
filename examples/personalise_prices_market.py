"""The market of ``personalise_prices.py``: travellers at an airport who may buy a lounge pass.

All of it is simulated, so that the expected margin of every price is known and regret can be measured without luck.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import Category, ColumnSpec, Number
from torch_kbandits.numerics.random import generator_for

#: What a visit to the lounge costs its operator, in euros.
COST = 12.0

#: The prices that may be asked, in euros.
PRICES = tuple(float(price) for price in range(16, 73, 4))

#: Share of the travellers who would come at all, were it cheap enough.
INTEREST = 0.7

#: How much the prices that travellers would pay differ among travellers of the same context, in euros.
SPREAD = 4.0

#: One offer goes out every so many minutes.
MINUTES_PER_OFFER = 3.0

#: The channels that are known beforehand. Partners come and go.
CHANNELS = ("app", "website", "kiosk")

#: What is known of a traveller. Partners' names are no levels: a bandit must cope with those that it never saw.
TRAVELLER = ColumnSpec(
    [Number("hours", 1, 8, log=True), Number("fare", 50, 1_000, log=True), Category("channel", CHANNELS, other=True)]
)

#: What may be chosen.
OFFER = ColumnSpec([Number("price", PRICES[0], PRICES[-1])])

_SHARES = {"app": 0.35, "website": 0.35, "kiosk": 0.22, "Skyward miles": 0.05, "Bluefin cards": 0.03}
_CHANNELS = {"app": 4.0, "website": 0.0, "kiosk": -6.0}
_PARTNER = 9.0


@dataclass(frozen=True)
class Traveller:
    """A traveller who is made an offer.

    Attributes:
        hours: until the gate closes, when the offer ends.
        fare: what the flight cost, in euros.
        channel: where the offer is shown.
        luck: in [0, 1): the offer is taken if its probability is above it, so a lower price is taken as well.
        patience: in [0, 1): the share of the time until the gate closes that passes before the pass is bought.
    """

    hours: float
    fare: float
    channel: str
    luck: float
    patience: float

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
    edges = np.cumsum(list(_SHARES.values()))
    names = list(_SHARES)
    return [
        Traveller(
            hours=8.0**hours,
            fare=50.0 * 20.0**fare,
            channel=names[min(int(np.searchsorted(edges, channel, side="right")), len(names) - 1)],
            luck=luck,
            patience=patience,
        )
        for hours, fare, channel, luck, patience in draws
    ]

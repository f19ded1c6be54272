"""The ways to set prices that ``personalise_prices.py`` compares: each makes offers and learns margins later."""

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from personalise_prices_market import CHANNELS, OFFER, PRICES, TRAVELLER, Traveller

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


class Policy(Protocol):
    """Sets prices; learns what came of them when it is known, in whatever order."""

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Return a price, and the name under which its margin will be told."""
        ...

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Learn margins, in euros, of offers made before."""
        ...


class Contextual:
    """EK-UCB on the joint points of traveller and price."""

    def __init__(self, seed: int) -> None:
        self.bandit = algorithms.EKUCB(
            candidates=ContextualActions(
                [{"price": price} for price in PRICES], context_columns=TRAVELLER, action_columns=OFFER
            ),
            kernel=joint_kernel(),
            regularization=REGULARIZATION,
            oversampling=OVERSAMPLING,
            beta=BETA,
            seed=seed,
        )

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Ask in the traveller's context; a row goes in as it is."""
        actions, ids = self.bandit.ask(context=traveller.row, return_ids=True)
        return price_of(actions), ids[0]

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Tell by id: the context need not be kept."""
        tell(self.bandit, names, margins)


class ContextFree:
    """GP-UCB on the prices alone."""

    def __init__(self, seed: int) -> None:
        self.bandit = algorithms.GPUCB(
            candidates=OFFER.encode([{"price": price} for price in PRICES]),
            kernel=scaled(rbf([PRICE_LENGTHSCALE])),
            regularization=REGULARIZATION,
            beta=BETA,
            seed=seed,
        )

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Ask, whoever it is."""
        actions, ids = self.bandit.ask(return_ids=True)
        return price_of(actions), ids[0]

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Tell by id."""
        tell(self.bandit, names, margins)


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
        """Look the best price of the segment up."""
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


class AnyPrice:
    """A price by lot."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def offer(self, traveller: Traveller) -> tuple[float, Any]:
        """Draw."""
        return self._random.choice(PRICES), None

    def learn(self, names: Sequence[Any], margins: Sequence[float]) -> None:
        """Do nothing."""


POLICIES = {
    "EK-UCB, traveller and price": Contextual,
    "GP-UCB, price only": ContextFree,
    "rule by segment": SegmentRule,
    "random prices": AnyPrice,
}


def joint_kernel() -> Kernel:
    """Return a product kernel: margins are alike where travellers are alike and prices are close."""
    joint = ColumnSpec([*TRAVELLER.columns, *OFFER.columns])
    # In the order of the columns: hours, fare, then the levels of channel, two of which are √2 apart.
    of_traveller = rbf([0.7, 0.7, 1.0, 1.0, 1.0], active_dims=range(TRAVELLER.width))
    of_price = rbf([PRICE_LENGTHSCALE], active_dims=joint.columns_of("price"))
    return scaled(of_traveller * of_price)


def rbf(lengthscales: Sequence[float], active_dims: Sequence[int] | None = None) -> Kernel:
    """Return a Gaussian kernel with a lengthscale for each column."""
    dims = None if active_dims is None else tuple(active_dims)
    kernel = RBFKernel(active_dims=dims, ard_num_dims=len(lengthscales)).double()
    return kernel.initialize(lengthscale=torch.tensor([list(lengthscales)], dtype=torch.float64))


def scaled(kernel: Kernel) -> Kernel:
    """Return a kernel in euros squared."""
    variance = torch.tensor(PRIOR_DEVIATION**2, dtype=torch.float64)
    return ScaleKernel(kernel).double().initialize(outputscale=variance)


def price_of(actions: torch.Tensor) -> float:
    """Return the price in euros of an action (1, 1); decoding is exact up to rounding."""
    return float(round(OFFER.decode(actions)[0]["price"]))


def tell(bandit: Bandit, ids: Sequence[Any], margins: Sequence[float]) -> None:
    """Tell a bandit the margins of several offers at once."""
    bandit.tell(ids=ids, y=torch.tensor(margins, dtype=torch.float64) - CENTRE)

"""A batch reactor, simulated: what set-points do to its peak temperature and its yield. Nothing here is learned."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

#: Above this peak temperature, in °C, a batch is an incident.
LIMIT = 80.0

#: How far measured peak temperatures, in °C, and yields, in kg, are off, as standard deviations.
TEMPERATURE_NOISE, YIELD_NOISE = 0.8, 1.5

#: The laboratory tells a yield so many batches after the batch, from the first to the last of these.
DELAYS = (5, 40)

#: The share of samples that the laboratory loses.
LOST = 0.05

#: Feed in kg/h, and jacket temperature in °C, that may be set.
FEEDS, JACKETS = np.arange(20.0, 61.0, 2.5).tolist(), np.arange(20.0, 71.0, 2.5).tolist()

#: All set-points, (A, 2).
SET_POINTS = torch.tensor([[feed, jacket] for feed in FEEDS for jacket in JACKETS], dtype=torch.float64)


def temperature(set_points: Tensor, water: float, age: float) -> Tensor:
    """Return the peak temperatures of batches at set-points (q, 2), (q,), in °C.

    The feed water has a temperature, in °C, and the catalyst an age, 0 when it is new and 1 at the end of its life.
    """
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


@dataclass(frozen=True)
class Course:
    """What comes of itself in a run, the same for every way to run the reactor.

    Attributes:
        water: the temperature of the feed water in each batch, in °C: the seasons, and the weather.
        ages: of the catalyst in each batch, 0 to 1.
        changed: the first batch with a new catalyst.
        temperature_noise: of each batch, in °C.
        yield_noise: of each batch, in kg.
        known: the batch before which each yield is known; −1 where the sample is lost.
    """

    water: np.ndarray
    ages: np.ndarray
    changed: int
    temperature_noise: np.ndarray
    yield_noise: np.ndarray
    known: np.ndarray

    def best(self, batch: int) -> float:
        """Return the yield of the best set-point that keeps the limit in a batch, in kg."""
        water, age = float(self.water[batch]), float(self.ages[batch])
        allowed = temperature(SET_POINTS, water, age) <= LIMIT
        return float(product(SET_POINTS, water, age)[allowed].max())


def course(batches: int, seed: int) -> Course:
    """Return what comes of itself in so many batches; the catalyst is changed once, after three fifths of them."""
    random = np.random.default_rng(seed)
    weather = np.zeros(batches)
    for batch in range(1, batches):
        weather[batch] = 0.9 * weather[batch - 1] + 0.6 * random.standard_normal()
    numbers, changed = np.arange(batches), round(0.6 * batches)
    known = numbers + random.integers(DELAYS[0], DELAYS[1] + 1, batches)
    return Course(
        water=14.0 - 6.0 * np.cos(2.0 * np.pi * numbers / batches) + weather,
        ages=np.where(numbers < changed, numbers, numbers - changed) / changed,
        changed=changed,
        temperature_noise=TEMPERATURE_NOISE * random.standard_normal(batches),
        yield_noise=YIELD_NOISE * random.standard_normal(batches),
        known=np.where(random.random(batches) < LOST, -1, known),
    )

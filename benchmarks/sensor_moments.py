"""Readings of a moment as a function on sensors, whose kernel is their empirical covariance: own code of a spec.

Source: Chowdhury & Gopalan, ICML 2017, §6, their Figure 4, on other records: the replays of ``replay_data``.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.replay_data import REPLAYS, Replay
from torch_kbandits.environments import FiniteArms
from torch_kbandits.environments.options import norm_of_values
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.numerics.random import generator_for

_made = cache(lambda name, stretch, choosing: REPLAYS[name].make(stretch, choosing))


def moment(replay: str, *, choosing: bool = False, norm: str = "rkhs", seed: int) -> FiniteArms:
    """What all sensors read in one row of a replay, the same in all rounds; R² is 5% of their average variance.

    Args:
        replay: its known part says covariance, centre and noise.
        choosing: whether the row is of those that settings are chosen on.
        norm: of B, "rkhs" or "printed"; see ``norm_of_values``.
        seed: the stretch, in turns, the row of it, at random, and the noise.
    """
    source = REPLAYS[replay]
    found: Replay = _made(replay, seed % (source.choosing if choosing else source.stretches), choosing)
    known, played = found.train.rewards, found.play.rewards
    values = played[int(torch.randint(len(played), (), generator=generator_for(seed, 0, "moment")))]
    covariance, center = known.mT.cov(), float(known.mean())
    variance = 0.05 * float(covariance.diagonal().mean())
    words: dict[str, Any] = {"kernel": PrecomputedKernel(covariance), "regularization": variance, "center": center}
    words["norm_bound"] = norm_of_values(covariance, values - center, norm)
    problem = FiniteArms(found.arms, values, math.sqrt(variance), seed, **words)
    problem.records = torch.stack([known.mean(0), played.mean(0)], dim=1)
    return problem


class Staying:
    """Plays the sensor with the largest mean of the known part, or, in ``hindsight``, of the rows that are played."""

    def __init__(self, *, environment: FiniteArms, hindsight: bool = False) -> None:
        self.sensor = environment.arms[environment.records[:, int(hindsight)].argmax(), None]

    def ask(self) -> Tensor:
        """Return the sensor, (1, 1)."""
        return self.sensor

    def tell(self, x: Tensor, y: Tensor) -> None:
        """Learn nothing."""

    recommend = ask

"""Functions on boxes that change from round to round; PyTorch alone, as old as 1.11, since other programs import it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class MovingBox(NamedTuple):
    """A function that changes.

    Attributes:
        bounds: lower and upper ends of each column.
        lengthscale: of its peaks, exp(−‖x − c‖² / (2ℓ²)).
        noise: standard deviation of the rewards.
        centre: taken off rewards before a model of prior mean zero learns them.
        means: returns the means (n,) of points (n, d) in a round, from 0.
    """

    bounds: tuple
    lengthscale: float
    noise: float
    centre: float
    means: Callable[[Tensor, int], Tensor]

    def grid(self, number: int) -> Tensor:
        """Return points (number, 1) at equal distances on a line."""
        ((lower, upper),) = self.bounds
        return torch.linspace(lower, upper, number, dtype=torch.float64)[:, None]


def swing(points: Tensor, round: int) -> Tensor:
    """Return exp(−0.05 (x − 5 sin(0.1 t))²) + 0.5 cos(0.2 x) + 1.5: Mauduit et al., 2025, §4.1."""
    x = points[:, 0]
    return torch.exp(-0.05 * (x - 5.0 * math.sin(0.1 * round)) ** 2) + 0.5 * torch.cos(0.2 * x) + 1.5


BOXES = {
    "a peak that swings": MovingBox(((-50.0, 50.0),), math.sqrt(10.0), 0.1, 1.5, swing),
}

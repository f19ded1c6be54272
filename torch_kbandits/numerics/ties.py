"""Which of the highest scores is chosen where several are equal but for rounding."""

import torch
from torch import Tensor

from torch_kbandits.numerics.random import generator_for


def tie_width(best: Tensor, beta: Tensor, kernel_bound: Tensor) -> Tensor:
    """Return by how much a score may lie below the best one and be its equal but for rounding, 0-dim.

    Args:
        best: the highest score, 0-dim.
        beta: the multiplier of σ, which sets the scale of rounding, 0-dim.
        kernel_bound: the largest prior variance, 0-dim.
    """
    return torch.finfo(kernel_bound.dtype).eps ** (2 / 3) * torch.maximum(best.abs(), beta * kernel_bound.sqrt())


def highest(scores: Tensor, ranks: Tensor, width: Tensor) -> int:
    """Return the position of the highest score (A,); of those within ``width`` of it, that of the largest rank (A,)."""
    return int(torch.where(scores >= scores.max() - width, ranks, -1.0).argmax())


def tie_rank(num_arms: int, seed: int) -> Tensor:
    """Return the order in which a bandit of this seed breaks ties between its arms, (A,)."""
    return torch.rand(num_arms, generator=generator_for(seed, 0, "ties"), dtype=torch.float32, device="cpu")

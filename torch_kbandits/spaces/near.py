"""Points near one."""

from collections.abc import Sequence

import torch
from torch import Tensor


def near(numbers: Tensor, ordered: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
    """Return numbers (3 size r, P) in [0, 1] near some, (1, P): all moved a little, a few, and a few drawn anew.

    Numbers without an order are drawn anew where a few others move. NaN stands for a number that is not there, and is
    drawn, in case it will be.

    Args:
        numbers: (1, P).
        ordered: which of them have an order, (P,).
        radii: the deviations of moves, (r,).
        size: how many points of each of the three kinds for each of the radii.
        generator: the only source of randomness.
    """
    shape = 3 * size * len(radii), numbers.shape[-1]
    kind = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    radius = torch.tensor(radii, dtype=torch.float64).repeat_interleave(3 * size).unsqueeze(-1)
    moved = torch.where(ordered, numbers + radius * torch.randn(shape, **kind), numbers)  # pyright: ignore
    drawn = torch.rand(shape, **kind)  # pyright: ignore
    few = torch.rand(shape, **kind) < max(0.2, 1.0 / max(1, shape[1]))  # pyright: ignore
    part = (torch.arange(shape[0]) // size % 3).unsqueeze(-1)
    found = torch.where((part == 0) | ((part == 1) & few), moved, numbers)
    found = torch.where((part > 0) & few & ((part == 2) | ~ordered), drawn, found)
    return torch.where(found.isnan(), drawn, found).clamp(0.0, 1.0)

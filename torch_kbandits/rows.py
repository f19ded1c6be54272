"""Which rows of a tensor are the same point: those whose numbers are all equal, 0 and -0 being one number."""

import torch
from torch import Tensor


def row_keys(points: Tensor) -> list[bytes]:
    """Return a hashable key for each row of points (n, d); equal points have equal keys. Cost: O(n d)."""
    return [row.tobytes() for row in (points.detach() + 0.0).cpu().numpy()]


def distinct(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows (U, d) of points (N, d) and for each row which of them it is, (N,)."""
    return torch.unique(points + 0.0, dim=0, return_inverse=True)

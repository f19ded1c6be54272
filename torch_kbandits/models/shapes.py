"""Batch dimensions: candidates merged into points, and tensors joined across them."""

from collections.abc import Callable

import torch
from torch import Tensor


def flatten_t_batch(X: Tensor, batch_dims: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge the t-batch dimensions of X (*t, *b, q, d) into its points: (*b, t q, d), and how to undo it.

    Candidates come as b x 1 x d; broadcasting the factors over that layout would repeat them for every candidate.

    Returns:
        The flat points, and a function that takes (*b, ..., t q) to (*t, *b, ..., q).
    """
    t_dims = max(X.dim() - 2 - batch_dims, 0)
    t_shape, q = X.shape[:t_dims], X.shape[-2]
    front, back = tuple(range(t_dims)), tuple(range(-2 - t_dims, -2))
    flat = X.movedim(front, back).flatten(-2 - t_dims, -2)

    def unflatten(values: Tensor) -> Tensor:
        return values.unflatten(-1, (*t_shape, q)).movedim(tuple(range(-1 - t_dims, -1)), front)

    return flat, unflatten


def concatenate(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """Concatenate along ``dim`` after broadcasting the batch dimensions before it."""
    batch_shape = torch.broadcast_shapes(old.shape[:dim], new.shape[:dim])
    return torch.cat([part.expand(*batch_shape, *part.shape[dim:]) for part in (old, new)], dim=dim)


def with_column(X: Tensor) -> Tensor:
    """Return points of one input, (n,), as (n, 1), as GPyTorch takes them; others as they are."""
    return X.unsqueeze(-1) if X.dim() == 1 else X


def unrepeated(X: Tensor, least_dim: int) -> Tensor:
    """Return points (..., n, d) without leading batch dimensions that are only expanded, down to ``least_dim``."""
    while X.dim() > least_dim and X.stride(0) == 0:
        X = X[0]
    return X

"""What a model keeps of its posterior: the factors, and what they were computed for."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class PosteriorFactors(Protocol):
    """A posterior as algebra on the embeddings of points: ``DTCFactors`` or ``ExactFactors``."""

    def embed(self, cross_gram: Tensor) -> Tensor:
        """Return z(x) (..., m, N) from the basis against points, (..., m, N)."""
        ...

    def mean(self, embedding: Tensor) -> Tensor:
        """Return the posterior mean less the prior mean, (..., N)."""
        ...

    def variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior variances, (..., N)."""
        ...

    def reducible(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return what more observations at points could take away of their variances, (..., N)."""
        ...

    def covariance(self, prior_covariance: Tensor, embedding: Tensor) -> Tensor:
        """Return the posterior covariance, (..., q, q)."""
        ...

    def explained(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the prior less the posterior covariance (..., k, l), from embeddings (..., m, k) and (..., m, l)."""
        ...

    def coefficients(self) -> Tensor:
        """Return α (..., m) such that α k_B(x) is the posterior mean less the prior mean, for the basis B."""
        ...

    def information_gain(self) -> Tensor:
        """Return the information gain of the observations, (...,), in nats."""
        ...

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior mean, (...,)."""
        ...

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return the weights (m,) that make a prior draw with values ``prior`` (m,) at the basis a posterior one."""
        ...


@dataclass(frozen=True, eq=False)
class Source:
    """What factors follow from, by value: tensors may be written to without a trace.

    Attributes:
        tensors: parameters, buffers and data, copied if they are to be kept.
        settings: what else modules are made of: their types, and their numbers.
    """

    tensors: list[Tensor]
    settings: list[Any]

    def kept(self) -> "Source":
        """Return a copy that stays as it is."""
        return Source([tensor.detach().clone() for tensor in self.tensors], self.settings)

    def equals(self, other: "Source") -> bool:
        """Say whether another has the same values. Cost: O(n d)."""
        if self.settings != other.settings or len(self.tensors) != len(other.tensors):
            return False
        return all(map(same_values, self.tensors, other.tensors))


def same_values(left: Tensor, right: Tensor) -> bool:
    """Say whether tensors have the same kind and the same values; NaN, for what is not known, is itself."""
    if left.dtype != right.dtype or left.device != right.device or left.shape != right.shape:
        return False
    if torch.equal(left, right):
        return True
    return (
        left.is_floating_point()
        and torch.equal(left.isnan(), right.isnan())
        and torch.equal(left.nan_to_num(), right.nan_to_num())
    )


@dataclass(frozen=True, eq=False)
class Cache:
    """Factors kept where GPyTorch clears them; like its own prediction strategies, never deep-copied.

    Attributes:
        factors: of the posterior.
        basis: the points (..., m, d) that they stand on.
        has_graph: whether gradients reach through them.
        source: what they follow from.
    """

    factors: Any
    basis: Tensor
    has_graph: bool
    source: Source

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

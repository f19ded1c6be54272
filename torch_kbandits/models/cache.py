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
class Cache:
    """Factors kept where GPyTorch clears them; like its own prediction strategies, never deep-copied.

    Attributes:
        factors: of the posterior.
        basis: the points (..., m, d) that they stand on.
        has_graph: whether gradients reach through them.
        now: the time for which they were computed and its version, where observations age.
    """

    factors: Any
    basis: Tensor
    has_graph: bool
    now: tuple[Tensor, int] | None

    def is_of(self, now: tuple[Tensor, int] | None) -> bool:
        """Say whether they were computed for this time."""
        if now is None or self.now is None:
            return now is self.now
        return now[0] is self.now[0] and now[1] == self.now[1]

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

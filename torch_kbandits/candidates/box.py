"""Boxes, searched by gradients."""

from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import LastingCandidates, within


class Box(LastingCandidates):
    """A box of points, searched by BoTorch's ``optimize_acqf``.

    The search also starts where the last one may have ended; see ``BoxSearch.domain``.

    Args:
        bounds: (2, d), finite lower bounds, then upper bounds above them: a tensor, a list, an array or a data frame.
        num_restarts: random starting points of the gradient search, beside the warm ones.
        raw_samples: random points from which they are chosen.
    """

    is_finite = False

    def __init__(self, bounds: Any, num_restarts: int = 8, raw_samples: int = 128) -> None:
        given = checks.bounds(bounds)
        self.bounds, self.device = given.detach().cpu().clone(), given.device
        self.num_restarts = checks.size("num_restarts", num_restarts)
        self.raw_samples = checks.size("raw_samples", raw_samples)

    @property
    def example(self) -> Tensor:
        """The lower corner, (1, d)."""
        return self.bounds[:1]

    @property
    def ranges(self) -> Tensor:
        """The bounds."""
        return self.bounds.double()

    @property
    def domain(self) -> Domain:
        """The bounds and the effort of the search."""
        return Domain(bounds=self.bounds, num_restarts=self.num_restarts, raw_samples=self.raw_samples)

    def offers(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which lie within the bounds, (n,) bool."""
        return within(points, self.bounds)

    def describe(self) -> dict[str, object]:
        """Return the bounds and the search's settings."""
        return {
            "bounds": str(self.bounds.tolist()),
            "dtype": str(self.bounds.dtype),
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
        }

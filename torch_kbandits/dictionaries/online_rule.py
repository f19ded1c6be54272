"""What a rule is that decides about each point once."""

from typing import Protocol

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries.online_sample import OnlineSample


class OnlineRule(Protocol):
    """A ``DictionaryRule`` whose ``is_online`` is true: it decides about each point once, when it is played."""

    def online_sample(self, kernel: Kernel, noise: float, points: Tensor, weights: Tensor) -> OnlineSample:
        """Return the dictionary of points (m, d) and weights (m,) in the form in which more points are offered to it.

        Args:
            kernel: the prior covariance.
            noise: λ, in reward units squared.
            points: (m, d), m >= 0.
            weights: (m,).
        """
        ...

    def offered(
        self, sample: OnlineSample, points: Tensor, uniforms: Tensor, cross: Tensor | None, prior: Tensor | None
    ) -> OnlineSample:
        """Return the dictionary once points (k, d) were offered to it; arguments as for ``OnlineSample.offered``."""
        ...

"""Dictionaries that lose nothing."""

import sys
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import GreedyDictionary
from torch_kbandits.dictionaries.online_sample import OnlineSample

#: A point is spanned if what the dictionary leaves of its prior variance is at most this fraction of it.
SPANNED = {torch.float64: 1e-10, torch.float32: 1e-4}


@dataclass(frozen=True)
class SpanningDictionary(DictionaryRule):
    """Take each played point that the dictionary does not span: then the Nyström posterior is the exact one.

    For kernels of F features the dictionary has at most F points however many were played, so that the exact posterior
    costs O(F²) a round. For other kernels it has every distinct point.
    """

    is_online = True

    def online_sample(self, kernel: Kernel, noise: float, points: Tensor, weights: Tensor) -> OnlineSample:
        """Return the dictionary to which plays are offered; see ``OnlineRule``."""
        # With the least μ there is nothing between spanned and not; ε and γ play no part.
        least, tolerance = sys.float_info.min, SPANNED[points.dtype]
        return OnlineSample.from_points(points, weights, kernel, least, 0.5, 1.0, tolerance=tolerance)

    def offered(
        self, sample: OnlineSample, points: Tensor, uniforms: Tensor, cross: Tensor | None, prior: Tensor | None
    ) -> OnlineSample:
        """Return the dictionary once points (k, d) were offered to it one after another; see ``OnlineRule``."""
        return sample.offered(points, uniforms, cross, prior).sample

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Take the points that those played before them do not span; see ``DictionaryRule.select``."""
        played.require_some()
        empty = torch.zeros(0, dtype=torch.float64, device=played.points.device)
        sample = self.online_sample(played.kernel, float(played.noise.min()), played.points[..., :0, :], empty)
        offer = sample.offered(played.points, torch.zeros(played.size, dtype=torch.float64))
        return Selection.rows(played, offer.joined.nonzero().squeeze(-1))

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Take ``size`` points, each time the one that those taken before span least; see ``GreedyDictionary``."""
        return GreedyDictionary(size).select_sized(played, size, generator)

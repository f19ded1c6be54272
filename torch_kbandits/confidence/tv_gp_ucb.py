"""TV-GP-UCB's width."""

import math
from dataclasses import dataclass

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, Width


@dataclass(frozen=True)
class TVGPUCBWidth(Width):
    """The width of TV-GP-UCB's experiments, with no theorem behind it.

        β_t = √(c₁ ln(c₂ t)),  t = ``num_observations`` + 1

    and 0 where c₂ t is at most 1: with c₂ = 0.4 in the first two rounds, which are greedy. A c₂ above 1 has none.

    The theorem for a function drawn from a prior on space and time is, on A arms, ``BayesianGPUCBWidth``: its union
    bound over arms and rounds does not ask whether the function moves. Only the prior must know of time, such as a
    kernel on space times ``ForgettingKernel``.

    Our value b corresponds to ``UpperConfidenceBound(beta=b²)`` of BoTorch, which is the paper's own β_t.

    Source: Bogunovic, Scarlett & Cevher, AISTATS 2016, experiments. Differs: the value 0 at small t, where the
    formula has none.

    Args:
        scale: c₁ > 0.
        rate: c₂ > 0.
    """

    scale: float = 0.8
    rate: float = 0.4

    def __post_init__(self) -> None:
        checks.keep(self, scale=checks.positive, rate=checks.positive)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: O(1)."""
        logarithm = math.log(self.rate) + math.log(evidence.num_observations + 1)
        return evidence.regularization.new_tensor(math.sqrt(self.scale * max(logarithm, 0.0)))

"""The largest of several acquisition functions, each on a model of its own."""

from collections.abc import Sequence
from typing import cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor


class LargestOf(AcquisitionFunction):
    """The pointwise maximum of acquisition functions.

    Args:
        functions: at least one; ``model`` is that of the first.
    """

    def __init__(self, functions: Sequence[AcquisitionFunction]) -> None:
        super().__init__(model=cast(Model, functions[0].model))
        self.functions = torch.nn.ModuleList(functions)

    def forward(self, X: Tensor) -> Tensor:
        """Return the largest of the values at X (b, q, d), (b,)."""
        return torch.stack([function(X) for function in self.functions]).amax(0)

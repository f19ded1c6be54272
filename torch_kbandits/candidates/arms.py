"""Finite sets of arms."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import LastingCandidates
from torch_kbandits.candidates.sources import ArmSource, as_source


class Arms(LastingCandidates):
    """A finite set of arms. Duplicate rows are allowed.

    Args:
        arms: (A, d), A >= 1, finite: a tensor in double or single precision, a list, an array or a data frame; or a
            source of arms that need not fit into memory, ``MappedArms`` or ``ArmBlocks``.

    Raises:
        InputError: if there is no arm, or the tensor does not fit.
    """

    def __init__(self, arms: Any) -> None:
        self.source = as_source(arms)
        self.is_stored, self.device = self.source.tensor is None, self.source.device
        self._example = self.source.block(0, 1).cpu().clone()
        self._domain = Domain(self.source.tensor, blocks=partial(_blocks, self.source) if self.is_stored else None)

    @property
    def example(self) -> Tensor:
        """The first arm, (1, d)."""
        return self._example

    @property
    def ranges(self) -> Tensor:
        """Those of the arms. Cost: a pass through them, once."""
        return self.source.ranges()

    @property
    def domain(self) -> Domain:
        """The arms, to maximise BoTorch acquisition functions over; only their blocks if they are not in memory."""
        return self._domain

    @property
    def on_host(self) -> "Arms":
        """These arms on the CPU; asked for and told they are where they were."""
        if self.source.tensor is None or self.source.tensor.is_cpu:
            return self
        arms = Arms(self.source.tensor.cpu())
        arms.device = self.device
        return arms

    def offers(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are arms, (n,) bool."""
        return self.source.has(points)

    def describe(self) -> dict[str, object]:
        """Return the shape, dtype and a digest of the arms, the same wherever the arms come from."""
        source = self.source
        return {"arms": f"{(len(source), source.dimension)} {source.dtype} {source.fingerprint()}"}


def _blocks(source: ArmSource) -> Iterator[Tensor]:
    return (block for _, block in source.blocks())

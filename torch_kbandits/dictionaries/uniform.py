"""Dictionaries drawn uniformly."""

from dataclasses import dataclass

import torch

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection


@dataclass(frozen=True)
class UniformDictionary(DictionaryRule):
    """Keep ``size`` of the played points, drawn uniformly without replacement: the baseline of the other rules.

    Args:
        size: number of points, fewer only while fewer were played.
    """

    size: int

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Draw the dictionary; see ``DictionaryRule.select``. Cost: O(u)."""
        return self.select_sized(played, self.size, generator)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points."""
        played.require_some()
        m = min(size, played.size)
        chosen = torch.randperm(played.size, generator=generator, device="cpu")[:m]
        return Selection.rows(played, chosen, played.points.new_full((m,), m / played.size))

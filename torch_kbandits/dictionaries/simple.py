"""Dictionaries drawn uniformly, and those given beforehand."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.errors import InputError


@dataclass(frozen=True)
class UniformDictionary(DictionaryRule):
    """Keep ``size`` of the played points, fewer while fewer were played, drawn uniformly: the others' baseline."""

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


@dataclass(frozen=True, eq=False)
class FixedDictionary(DictionaryRule):
    """Use the given points always; they need not have been played.

    Args:
        points: (m, d), m >= 1, as the kernel sees them: a time that they know and a context come first.
    """

    points: Tensor

    def __post_init__(self) -> None:
        checks.keep(self, points=lambda name, given: checks.points(name, given).cpu())
        if self.points.dim() != 2 or len(self.points) == 0:
            raise InputError(f"points must be (m, d) with m >= 1, got {checks.describe(self.points)}.")

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Return the given points; the generator is not used."""
        points, like = self.points.to(played.points.device), played.points
        points = checks.rows("the fixed dictionary", points, dimension=like.shape[-1], like=like)
        points = points.expand(*like.shape[:-2], *points.shape)
        return Selection(points, points.new_ones(len(self.points)), None)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Return the given points, of which there must be ``size``."""
        if size != len(self.points):
            raise InputError(f"The fixed dictionary has {len(self.points)} points and {size} were asked for.")
        return self.select(played, generator)

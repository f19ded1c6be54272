"""What a theorem guarantees of a bandit, which of its assumptions hold, and how that is reported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.models.quality import DictionaryQuality

if TYPE_CHECKING:
    from torch_kbandits.confidence.base import TheoremWidth

Status = Literal["holds", "fails", "unknown"]

#: The name of the assumption that is of numbers and not of a theorem.
_PRECISION = "λ above rounding"


@dataclass(frozen=True)
class Assumption:
    """One thing that a theorem assumes: its name, whether it holds, and a sentence of what was expected and what is.

    It is "unknown" if only you can know, or if nothing promises it and nobody measured.
    """

    name: str
    status: Status
    sentence: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.status:<8} {self.name}: {self.sentence}"


@dataclass(frozen=True)
class Guarantee:
    """What a theorem says of a bandit's confidence band, and which of its assumptions hold.

    Attributes:
        width: the width in force, printed.
        theorem: where the theorem is; None if none stands behind the width.
        assumptions: of the theorem, and those of the numbers that it is computed with.
        quality: of the dictionary, if that was measured.
    """

    width: str
    theorem: str | None
    assumptions: tuple[Assumption, ...]
    quality: DictionaryQuality | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the theorem holds: False if there is none or an assumption fails, None if some are unknown."""
        if self.theorem is None or self.with_status("fails"):
            return False
        return None if self.with_status("unknown") else True

    def with_status(self, status: Status) -> tuple[Assumption, ...]:
        """Return the assumptions that hold, fail or are unknown."""
        return tuple(each for each in self.assumptions if each.status == status)

    def __str__(self) -> str:
        """Return the theorem and a line for each assumption."""
        verdict = {True: "holds", False: "does not hold", None: "holds if the unknown assumptions do"}[self.holds]
        lines = [f"{self.width}: no theorem." if self.theorem is None else f"{self.width}\n{self.theorem}: {verdict}."]
        lines += map(str, self.assumptions)
        return "\n".join(lines + ([] if self.quality is None else [str(self.quality)]))


@dataclass(frozen=True)
class Circumstances:
    """What a bandit knows of itself that theorems ask about.

    Attributes:
        regularization: λ.
        num_rewards: how many were told.
        learns_residual: whether the dictionary is full, and variances leave out what it does not span.
        noise_scale: R where it was given apart from the width; None where it was not.
        dictionary: the rule; None for the exact posterior.
        forgets_by: what makes observations stop counting, or count for less; None where all count for ever.
        prior: how kernel, λ and mean came about.
        ratio: by how much variances shrink before rewards are learned: in a batch, at most, or for the points that are
            pending; infinite where nothing bounds it.
        num_arms: how many actions there are in a round; infinite on a box, None where it is not known.
        is_staged: whether the choice goes through stages that learn from rewards of their own.
        quality: of the dictionary; None where it was not measured.
        theory: the width of the theorem that a number is in place of; None where that is none, or not known.
    """

    regularization: float
    num_rewards: int = 0
    learns_residual: bool = False
    noise_scale: float | None = None
    dictionary: DictionaryRule | None = None
    forgets_by: str | None = None
    prior: Literal["given", "fitted", "one of several"] = "given"
    ratio: float = 1.0
    num_arms: float | None = None
    is_staged: bool = False
    quality: DictionaryQuality | None = None
    theory: "TheoremWidth | None" = None


#: Says of a bandit and a width what a theorem assumes; nothing where there is nothing to say.
Condition = Callable[[Circumstances, Any], tuple[Assumption, ...]]


def said(name: str, status: Status, sentence: str) -> tuple[Assumption]:
    """Return an assumption."""
    return (Assumption(name, status, sentence),)


def settled(name: str, holds: bool, sentence: str) -> tuple[Assumption]:
    """Return an assumption that holds or fails."""
    return said(name, "holds" if holds else "fails", sentence)


def precise(is_enough: bool, sentence: str) -> tuple[Assumption]:
    """λ is not lost in rounding: asked of all widths, as it is of numbers and not of a theorem."""
    return settled(_PRECISION, is_enough, sentence)


def complaint(guarantee: Guarantee) -> str | None:
    """Return what a warning says of the assumptions that fail; None if none does, or if no theorem is claimed."""
    failing = guarantee.with_status("fails")
    if guarantee.theorem is None:
        failing = tuple(each for each in failing if each.name == _PRECISION)
    if not failing:
        return None
    void = "" if guarantee.theorem is None else f"{guarantee.theorem}, does not hold here. "
    sentences = " ".join(f"{each.name}: {each.sentence}" for each in failing)
    return f"{void}{sentences} See bandit.guarantee()."

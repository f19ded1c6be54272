"""An outcome of a play, and which outcomes are declared."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior

if TYPE_CHECKING:
    from torch_kbandits.outcomes.limits import Limit


@dataclass(frozen=True, eq=False)
class Outcome:
    """Something measured of a play beside its reward, such as a temperature. It has a posterior of its own.

    Args:
        name: by which ``tell`` is given it.
        prior: what is assumed of it, in its own units; unless given, fitted as it is told, and nothing clipped: what is
            far below the others may be what is sought.
        memory: which of it counts at a time; None for the memory of the bandit.

    Raises:
        InputError: if an argument does not fit.
    """

    name: str
    prior: Prior | LearnedPrior = field(default_factory=lambda: LearnedPrior(clip=False))
    memory: Memory | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"the name of an outcome must be a non-empty string, got {checks.shown(self.name)}.")
        checks.instance(f"prior of outcome {self.name!r}", self.prior, (Prior, LearnedPrior), "a Prior or LearnedPrior")
        if self.memory is not None:
            checks.instance(f"memory of outcome {self.name!r}", self.memory, Memory, "a memory or None")


def declared(
    outcomes: Sequence[str | Outcome], limits: "Sequence[Limit]", objectives: Sequence[str] = ()
) -> tuple[Outcome, ...]:
    """Return the outcomes that are named, in the order given, and then those that only limits or objectives name.

    Raises:
        InputError: if something is no outcome or no limit, or an outcome is declared twice.
    """
    named = [Outcome(each) if isinstance(each, str) else each for each in outcomes]
    for number, each in enumerate(named):
        checks.instance(f"outcomes[{number}]", each, Outcome, "a name or an Outcome")
    named += [each.outcome for each in limits if isinstance(each.outcome, Outcome)]
    found = {each.name: each for each in named}
    if len(found) < len(named):
        again = sorted({each.name for each in named if found[each.name] is not each})
        if again:
            raise InputError(f"Outcomes are declared once; say prior and memory of {again} in one place.")
    for name in (*(each.outcome for each in limits), *objectives):
        if isinstance(name, str) and name not in found:
            found[name] = Outcome(name)
    return tuple(found.values())

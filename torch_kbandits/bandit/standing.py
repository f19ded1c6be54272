"""All that a bandit knows at a moment, as one value that is swapped for the next."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

from torch_kbandits.bandit.advice import Advised
from torch_kbandits.beliefs import Belief
from torch_kbandits.memory import Memory
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Standing:
    """What a bandit was told and what follows from it.

    Attributes:
        ledger: what was asked and told.
        clock: what time it is.
        told: the posterior of the rewards that count.
        memory: which of them do; None where all do.
        round: the number of the present round, counted from 0.
        summaries: of the blocks that the choice of a memory rests on.
        answers: what an expert said in this round, by the time of its question.
    """

    ledger: Ledger
    clock: Clock
    told: Belief
    memory: Memory | None
    round: int = 0
    summaries: tuple[Any, ...] = ()
    answers: tuple[tuple[float, Answers], ...] = ()

    def at(self, clock: Clock) -> Self:
        """Return the same at a time, which is not before the present one."""
        told = self.told.at(clock.now)
        return self if clock is self.clock and told is self.told else replace(self, clock=clock, told=told)

    @cached_property
    def belief(self) -> Belief:
        """The posterior of what counts now: of rewards, and of what an expert said at this time."""
        answers = self.answers_now
        return self.told if answers is None else cast(Belief, cast(Advised, self.told).advised(answers))

    @property
    def answers_now(self) -> Answers | None:
        """What an expert said at this time; None if nobody was asked."""
        return dict(self.answers).get(self.clock.now)

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart."""
        return self.ledger.num_told - self.ledger.num_forgotten

"""All that a bandit knows at a moment, as one value."""

from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits.bandit.background import Background
from torch_kbandits.bandit.config import SurrogateSpec
from torch_kbandits.bandit.residuals import NONE_YET, Predictions
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger
from torch_kbandits.priors import Prior
from torch_kbandits.priors.learned import NEVER, LastFit
from torch_kbandits.selection import FeasibilityModel, Surrogate


class ComparedPosterior(NamedTuple):
    """The posterior of a part of the history, which it learned, under a prior and one of several memories at a time."""

    prior: Prior
    memory: Memory | None
    now: float
    told: History
    surrogate: Surrogate

    def goes_on_to(self, prior: Prior, memory: Memory | None, told: History, now: float) -> bool:
        """Say whether a posterior at a time is had from this one if that learns the rest."""
        if prior is not self.prior or memory != self.memory or not self.now <= now:
            return False
        number = len(self.told.X)
        pairs = zip(self.told, told.rows(slice(number)), strict=True)
        return all(
            one is other or (one is not None and other is not None and torch.equal(one, other)) for one, other in pairs
        )


@dataclass(frozen=True, eq=False)
class State:
    """What a bandit was told and what follows from it."""

    ledger: Ledger  # what was asked and told
    clock: Clock
    told: Surrogate  # the posterior of the rewards that count
    spec: SurrogateSpec  # what is taken for true: it says which of them do
    round: int = 0  # the number of the current one, counted from 0
    summaries: tuple[Any, ...] = ()  # of the blocks that the choice of a memory rests on
    answers: tuple[tuple[float, Answers], ...] = ()  # what an expert said in this round, by the time of its question
    last_fit: LastFit = NEVER  # when the prior was fitted last, if it is learned
    diagnostics: tuple[str, ...] = ()  # what is odd about that fit
    outcomes: tuple["State", ...] = ()  # what is known of each that is declared, told as if it were the reward
    predictions: Predictions = NONE_YET  # what they were worth one step ahead since the last restart or fit
    failures: FeasibilityModel | None = None  # what plays that failed say; None while none that counts did
    compared: tuple[ComparedPosterior, ...] = ()  # to choose a memory: later ones go on from these, which follow
    underway: "Background[State] | None" = None  # what will be known of rewards under a prior that a thread fits

    def at(self, clock: Clock) -> Self:
        """Return the same at a time, which is not before the current one."""
        told = self.told.at(clock.now)
        if clock is self.clock and told is self.told and not self.outcomes and self.failures is None:
            return self
        outcomes = tuple(each.at(clock) if each.clock.matters else each for each in self.outcomes)
        failures = None if self.failures is None else self.failures.at(clock.now)
        same = clock is self.clock and told is self.told and all(map(is_, outcomes, self.outcomes))
        if same and failures is self.failures:
            return self
        return changed(self, clock=clock, told=told, outcomes=outcomes, failures=failures)

    @property
    def now(self) -> float:
        """The current time, minus infinity before the first; the round where there is no clock."""
        return self.clock.now if self.clock.matters else float(self.round)

    @property
    def surrogate(self) -> Surrogate:
        """The posterior now: of the rewards that count, and of what an expert said at this time; remembered."""
        if not self.answers:
            return self.told
        known = vars(self).get("_advised")
        if known is None or known[0] is not self.told or known[1] is not self.answers or known[2] != self.clock.now:
            answers = self.answers_now
            found = self.told if answers is None else cast(Any, self.told).advised(answers)
            known = vars(self)["_advised"] = self.told, self.answers, self.clock.now, found
        return cast(Surrogate, known[3])

    @property
    def answers_now(self) -> Answers | None:
        """What an expert said that counts now, with noise that grows with its age as far as that of rewards does.

        None if nothing was said, not even that nothing is known.
        """
        now, level = self.clock.now, self.told.regularization
        counting = [(at, said) for at, said in self.answers if at == now or at < now < said.until]
        if not counting:
            return None
        growth, variances = getattr(self.spec.memory, "growth", None), list[Tensor]()
        for at, said in counting:
            age = said.variance.new_tensor(now - at)
            drift = 0.0 if growth is None else growth.noise(age, level) - level.to(age)
            variances.append(said.variance + drift)
        X, Y, *_ = (torch.cat(parts) for parts in zip(*(said[:2] for _, said in counting), strict=True))
        return Answers(X, Y, torch.cat(variances))

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart."""
        return self.ledger.num_observations - self.ledger.num_forgotten

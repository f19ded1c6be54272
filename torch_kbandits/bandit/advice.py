"""Experts who are asked about the function as it is now before a choice."""

from abc import ABC, abstractmethod
from typing import Any, Protocol, Self, runtime_checkable

from gpytorch.kernels import Kernel

from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History


@runtime_checkable
class Advised(Protocol):
    """A belief that takes noisy values of the current function which are no rewards."""

    def advised(self, answers: Answers) -> Self:
        """Return the belief conditioned on answers as well; this one stays as it is."""
        ...


class Advice(ABC):
    """Who is asked about the current function once a round, or once for each time that ``ask`` is given.

    Answers are no rewards: no history has them, and the next round drops them. Those of the current round are saved
    with the state, as is what was counted.
    """

    @abstractmethod
    def answers(self, told: History, kernel: Kernel, round: int, clock: Clock, seed: int) -> Answers:
        """Ask, and return what was said.

        Args:
            told: the rewards so far.
            kernel: the prior covariance.
            round: the current one, counted from 0.
            clock: what time it is.
            seed: that of the bandit, which addresses what is drawn.
        """

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return what was counted, by name, for saved states."""

    @abstractmethod
    def restore(self, counts: dict[str, int]) -> None:
        """Go on from what ``counts`` returned."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return what must agree between a saved state and the bandit that loads it, by name."""

"""A posterior in the course of plain rounds: each asks for one point and is told its reward before the next."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.base import Belief
from torch_kbandits.confidence import Width


class Choice(NamedTuple):
    """A point that is asked for.

    Attributes:
        point: (1, d), not to be written to.
        place: by which the course that chose it knows it.
        mean: of the function at it, in reward units.
        variance: of the function at it, at least 0, in reward units squared.
        seen: what else the course knows of it.
        share: of the candidates, which was looked at to choose it.
    """

    point: Tensor
    place: int
    mean: float
    variance: float
    seen: object = None
    share: float = 1.0


class Record:
    """The rewards of what was chosen, in the order told. A value, whose successors share its lists.

    The first to follow writes behind what was told; so what an interrupted call wrote is written over.
    """

    __slots__ = ("_choices", "_rewards", "number")

    def __init__(self) -> None:
        self._choices, self._rewards, self.number = list[Choice](), list[float](), 0

    def followed(self, choice: Choice, y: float) -> "Record":
        """Return these and one more."""
        return self.extended((choice,), (y,))

    def extended(self, choices: Sequence[Choice], rewards: Sequence[float]) -> "Record":
        """Return these and more."""
        after, number = object.__new__(Record), self.number
        del self._choices[number:], self._rewards[number:]
        self._choices.extend(choices)
        self._rewards.extend(rewards)
        after._choices, after._rewards, after.number = self._choices, self._rewards, number + len(rewards)
        return after

    def choices(self, first: int = 0) -> list[Choice]:
        """Return what was chosen, without the first so many."""
        return self._choices[first : self.number]

    def rewards(self, first: int = 0) -> list[float]:
        """Return the rewards, without the first so many."""
        return self._rewards[first : self.number]

    def points(self, first: int = 0) -> Tensor:
        """Return the points (k, d), of at least one, without the first so many."""
        return torch.cat([choice.point for choice in self.choices(first)])

    def columns(self, first: int = 0) -> tuple[Tensor, Tensor]:
        """Return points (k, d) and rewards (k,), of at least one, without the first so many."""
        return self.points(first), torch.tensor(self.rewards(first), dtype=torch.float64)


class Course(ABC):
    """What decides the next choices of a belief while rounds are plain; the belief itself is made when asked for.

    A value, as the belief is: telling returns another, which writes behind what this one shows. It is also the
    ``Evidence`` that confidence widths read. What it chooses, and the belief that it makes, are those of a belief that
    learned one reward after the other.

    Attributes:
        record: what was told since the course began.
    """

    record: Record

    @property
    @abstractmethod
    def belief(self) -> Belief:
        """The belief that learned all rewards told; remembered. Cost: that of the rewards since it was asked for."""

    @property
    @abstractmethod
    def begun_anew(self) -> Self:
        """The course that begins with ``belief``."""

    @property
    @abstractmethod
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""

    @property
    @abstractmethod
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""

    @abstractmethod
    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""

    @abstractmethod
    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice | None:
        """Return what a rule chooses; None if that is to be left to the belief. See ``Lookahead.choose``."""

    @abstractmethod
    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after the reward of what was chosen; None if more changes than a course follows."""

    def played(
        self, rule: AcquisitionRule, width: Width, seed: Callable[[int], int], rewards: np.ndarray
    ) -> "Course | None":
        """Return the course after rounds of which the rewards of all arms are known, (r, A), of as many as it can.

        None of none; then it has no such way, or more changes than it follows.

        Args:
            rule: by which arms are chosen.
            width: read before each choice.
            seed: that of a round, of so many after the present one.
            rewards: one row a round; where that of the one chosen is not finite rounds end before.
        """
        return None

    @abstractmethod
    def remember(self, choice: Choice) -> None:
        """Let the belief know what was chosen as if it had chosen it."""

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim."""
        return self.belief.effective_dimension()

    def projection_error(self) -> Tensor:
        """Return what the dictionary does not span of the points played, 0-dim, in units of λ."""
        return self.belief.projection_error()

    def kernel_bound(self) -> Tensor:
        """Return the largest k(x, x) known of, 0-dim."""
        return self.belief.kernel_bound()

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in reward units."""
        return self.belief.mean_norm()

"""What every kind of candidates offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.device import to_device, to_host


class Candidates(ABC):
    """What may be played. Points are what the kernel sees: (time, context, action), as far as they have each.

    What is asked for and told is the action.
    """

    #: Whether a round brings a context, actions of its own or a time; whether points know that; whether the same may be
    #: played in every round.
    is_contextual = is_timed = is_lasting = False

    #: Whether what may be played in a round is a finite set, and whether that is not in memory, so that it is read part
    #: by part, or in no process as a whole.
    is_finite, is_stored, is_split = True, False, False

    #: Of each column of points without the time the number of its parameter, (d,), where one takes several, and its
    #: name, an empty one where it is not known; None where all are.
    groups: Sequence[int] | None = None
    names: Sequence[str] | None = None

    #: Number of columns before the action: of the time and of the context.
    context_dim: int = 0

    #: Where arms in memory lie, and what is asked for and told. All else is on the CPU, points as well.
    device: torch.device = torch.device("cpu")

    #: One point (1, d) that has the dtype and dimension of all, on the CPU like them; and of each column without the
    #: time the least and the largest value, (2, d), in double precision, ∞ and −∞ of what rounds bring.
    example: Tensor
    ranges: Tensor

    @abstractmethod
    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return what may be played in a round, given its context and actions, if it brings them, and the time."""

    @abstractmethod
    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the points (q, d) that were played, from what was asked for, the context and the time."""

    @abstractmethod
    def actions(self, X: Tensor) -> Any:
        """Return what is asked for, given the points (q, d) that the kernel sees."""

    @abstractmethod
    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which may be used in the end, in whatever round, (n,) bool. Cost: one pass on arms."""

    def offers(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which may be played in every round, (n,) bool."""
        return self.recommends(points) & self.is_lasting

    def brought(self, name: str, value: Any) -> Any:
        """Return what somebody gives on the CPU, if it is no tensor of another device than that of the candidates."""
        if not isinstance(value, Tensor):
            return value
        if value.device == self.device:
            return to_host(value)
        checks.in_memory(name, value)
        got = f"{checks.describe(value)} on {value.device}"
        raise InputError(f'{name} must be on {self.device} like the candidates, got {got}: {name}.to("{self.device}").')


class LastingCandidates(Candidates):
    """Candidates that are the same in every round, with no context."""

    is_lasting = True

    #: Where acquisition functions are maximised.
    domain: Domain

    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return the domain; a context, or actions of the round, are refused."""
        if context is not None or candidates is not None:
            self._refuse_context()
        return self.domain

    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the points (q, d) that were played; a context is refused."""
        if context is not None:
            self._refuse_context()
        width = self.example.shape[-1]
        return checks.listed_points("x", self.brought("x", x), dimension=width, like=self.example)

    def actions(self, X: Tensor) -> Tensor:
        """Return points (q, d), which are asked for as they are, on the device of the candidates."""
        return to_device(X, self.device)

    def _refuse_context(self) -> None:
        hint = "leave out context and candidates, or give the bandit candidates=ContextualActions(...)"
        raise InputError(f"{type(self).__name__} have neither contexts nor actions that differ by round: {hint}.")


def unknown_ranges(width: int) -> Tensor:
    """Return the ranges of so many columns of which nothing is known, (2, width), as in ``Candidates.ranges``."""
    return torch.tensor([[torch.inf], [-torch.inf]], dtype=torch.float64).expand(2, width)


def within(points: Tensor, bounds: Tensor) -> Tensor:
    """Say of points (n, d) which lie within bounds (2, d), or on them, (n,) bool."""
    return ((points >= bounds[0]) & (points <= bounds[1])).all(-1)

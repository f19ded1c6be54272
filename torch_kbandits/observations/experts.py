"""Experts: who knows what a function that changes is now, and what becomes of their mistakes."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import ExpertWarning, InputError

#: A function (X, time) → (Y, variance) or None. X (Q, d) are the questions, the time is the round, or what ``ask`` was
#: given, a number; dates are seconds since 1970. Y (Q,) are noisy values of the current function at X, in the units of
#: the rewards, and the variance is that of their noise, one for all or (Q,). None is "not yet".
Expert = Callable[[Tensor, float], tuple[Any, Any] | None]


class Answers(NamedTuple):
    """What an expert said about the current function.

    Attributes:
        X: the points asked about, (Q, d).
        Y: noisy values of the current function there, (Q,), in reward units.
        variance: of their noise, (Q,), in reward units squared.
    """

    X: Tensor
    Y: Tensor
    variance: Tensor

    @classmethod
    def none(cls, example: Tensor) -> Self:
        """Return no answers, about points of the kind of the example (1, d)."""
        nothing = example.new_zeros(0)
        return cls(example[:0], nothing, nothing.double())

    def copied(self) -> "Answers":
        """Return a copy that shares no memory."""
        return Answers(*(part.clone() for part in self))


class GuardedExpert:
    """An expert whose mistakes cost a round its answers and nothing else.

    A failure is an exception, or answers of a wrong kind or shape, that are not finite, or of a negative variance. Each
    kind of failure draws one ``ExpertWarning``; ``num_failures`` counts all.

    Args:
        expert: see ``Expert``.
        max_questions: how many points it may be asked about in all, answered or not; None for any number.

    Attributes:
        num_questions: points that it was asked about, answered or not.
        num_failures: calls that failed.
        num_late: calls that were answered by None, "not yet".

    Raises:
        InputError: if the expert cannot be called, or the largest number of questions is no whole number of at least 0.
    """

    def __init__(self, expert: Expert, max_questions: int | None = None) -> None:
        if not callable(expert):
            raise InputError(f"expert must be a function (X, time) → (Y, variance), got {checks.describe(expert)}.")
        self._expert = expert
        self.max_questions = checks.optional(checks.non_negative_integer)("max_questions", max_questions)
        self.num_questions = self.num_failures = self.num_late = 0
        self._said: set[str] = set()

    def allowed(self, wanted: int) -> int:
        """Return how many of so many questions may be asked; the first time that these are fewer, say so."""
        left = math.inf if self.max_questions is None else self.max_questions - self.num_questions
        if left < wanted:
            self._say("limit", f"All {self.max_questions} questions to the expert (max_questions) are asked")
        return int(min(wanted, left))

    def answers(self, X: Tensor, time: float) -> Answers:
        """Return what the expert says about points X (Q, d), Q >= 1, now; no answers if it fails or says "not yet"."""
        fault = answers = None
        try:
            given = self._expert(X.clone(), time)
        except Exception as error:
            fault = _FaultError("exception", f"The expert raised {type(error).__name__}: {error}")
        else:
            try:
                answers = None if given is None else _checked(given, X)
            except _FaultError as found:
                fault = found
        self.num_questions += len(X)
        if fault is not None:
            self.num_failures += 1
            self._say(fault.kind, str(fault))
        elif answers is None:
            self.num_late += 1
        return Answers.none(X) if answers is None else answers

    def counts(self) -> dict[str, int]:
        """Return what was counted, by name."""
        names = ("num_questions", "num_failures", "num_late")
        return {name: getattr(self, name) for name in names}

    def restore(self, counts: dict[str, int]) -> None:
        """Go on from what ``counts`` returned."""
        vars(self).update(counts)

    def _say(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            message = f"{text}. The rounds go on without its answers; this is said once for each kind of failure."
            warnings.warn(message, ExpertWarning, stacklevel=7)


class _FaultError(Exception):
    """What is wrong with the answers of an expert, and which kind of failure that is."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _checked(given: Any, X: Tensor) -> Answers:
    """Return what an expert said about points X (Q, d) as answers, or raise what is wrong with it."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise _FaultError("kind", f"The expert must return (Y, variance) or None, got {checks.describe(given)}")
    parts = []
    for name, value in zip(("values", "variances"), given, strict=True):
        try:
            part = torch.as_tensor(value, dtype=torch.float64, device=X.device).detach()
        except (TypeError, ValueError, RuntimeError):
            raise _FaultError("kind", f"The expert's {name} must be numbers, got {checks.describe(value)}") from None
        parts.append(part)
    Y, variance = parts
    if variance.dim() == 0:
        variance = variance.expand(len(X))
    for name, part in (("values", Y), ("variances", variance)):
        if tuple(part.shape) not in ((len(X),), (len(X), 1)):
            raise _FaultError(
                "shape", f"The expert's {name} must be one for each of the {len(X)} points, got {checks.describe(part)}"
            )
        if not bool(torch.isfinite(part.to(X.dtype)).all()):
            raise _FaultError("finite", f"The expert's {name} must be finite numbers of {X.dtype}, got {part.tolist()}")
    if bool((variance < 0.0).any()):
        raise _FaultError("negative", f"The expert's variances must be at least 0, got {float(variance.min())}")
    return Answers(X, Y.reshape(-1).to(X, copy=True), variance.reshape(-1).clone())

"""Experts: who knows what a function that changes is now, and what becomes of their mistakes."""

import math
import re
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
    """What an expert said: noisy values Y (Q,) of the function at points X (Q, d), and noise variances (Q,).

    They count at the time at which they are said, and at later ones before ``until``.
    """

    X: Tensor
    Y: Tensor
    variance: Tensor
    until: float = -math.inf

    @classmethod
    def none(cls, example: Tensor) -> Self:
        """Return no answers, about points of the kind of the example (1, d)."""
        return cls(example[:0], example.new_zeros(0), example.new_zeros(0, dtype=torch.float64))


class GuardedExpert:
    """An expert whose mistakes cost a round its answers and nothing else, and one ``ExpertWarning`` for each kind.

    Args:
        expert: see ``Expert``. ``num_failures`` counts calls that failed, ``num_late`` those answered by None.
        max_questions: how many points it may be asked about in all (``num_questions``); None for any number.
    """

    def __init__(self, expert: Expert, max_questions: int | None = None) -> None:
        if not callable(expert):
            raise InputError(f"expert must be a function (X, time) → (Y, variance), got {checks.describe(expert)}.")
        self._expert = expert
        self.max_questions = checks.optional(checks.non_negative_integer)("max_questions", max_questions)
        self.num_questions = self.num_failures = self.num_late = 0
        self._warned: set[str] = set()

    def allowed(self, wanted: int) -> int:
        """Return how many of so many questions may be asked; the first time that these are fewer, warn."""
        left = math.inf if self.max_questions is None else self.max_questions - self.num_questions
        if left < wanted:
            self._warn(f"All {self.max_questions} questions to the expert (max_questions) are asked")
        return int(min(wanted, left))

    def answers(self, X: Tensor, time: float) -> Answers:
        """Return what the expert says about points X (Q, d), Q >= 1, now; no answers if it fails or says "not yet"."""
        fault, given = "", None
        try:
            given = self._expert(X.clone(), time)
        except Exception as error:
            fault = f"The expert raised {type(error).__name__}: {error}"
        self.num_questions += len(X)
        try:
            if given is not None:
                return checked_answers(given, X)
        except InputError as error:
            fault = str(error).removesuffix(".")
        if fault:
            self.num_failures += 1
            self._warn(fault)
        else:
            self.num_late += 1
        return Answers.none(X)

    def counts(self) -> dict[str, int]:
        """Return what was counted, by name."""
        return {name: getattr(self, name) for name in ("num_questions", "num_failures", "num_late")}

    def restore(self, counts: dict[str, int]) -> None:
        """Go on from what ``counts`` returned."""
        vars(self).update(counts)

    def _warn(self, text: str) -> None:
        kind = re.split("[:,]", text)[0]
        if kind not in self._warned:
            self._warned.add(kind)
            message = f"{text}. The rounds go on without its answers; this is reported once for each kind of failure."
            warnings.warn(message, ExpertWarning, stacklevel=7)


def checked_answers(given: Any, X: Tensor) -> Answers:
    """Return what an expert said about points X (Q, d) as answers, or refuse it."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"The expert must return (Y, variance) or None, got {checks.describe(given)}")
    columns = list[Tensor]()
    for name, value in zip(("The expert's values", "The expert's variances"), given, strict=True):
        column = torch.as_tensor(checks.real_numbers(name, value)).to(X.device, torch.float64)
        if columns and column.dim() == 0:
            column = column.repeat(len(X))  # numbers of its own, which are saved
        if tuple(column.shape) not in ((len(X),), (len(X), 1)):
            raise InputError(f"{name} must be one for each of the {len(X)} points, got {checks.describe(column)}")
        checks.finite(name, column.to(X.dtype))
        columns.append(column.reshape(-1))
    Y, variance = columns
    if bool((variance < 0.0).any()):
        raise InputError(f"The expert's variances must be at least 0, got {float(variance.min())}")
    return Answers(X, Y.to(X, copy=True), variance.clone())

"""A stretch of plain rounds: what was told of them is written up when somebody looks."""

import math
from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.bandit.pieces import FIRST_REWARDS, Pieces
from torch_kbandits.bandit.residuals import residual
from torch_kbandits.bandit.standing import Standing
from torch_kbandits.beliefs import Choice, Course, course_of
from torch_kbandits.confidence import Width
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.ledger import History

#: So many rounds in a row are plain before a stretch begins: it costs as much as a round to begin one.
PATIENCE = 8

#: After so many rounds it is written up, though nobody looks.
_LONGEST = 4096


class Stretch:
    """What a bandit knows in the course of plain rounds: of each one point is asked for and its reward told next.

    A value, as ``Standing`` is, and another form of one: which of the two a bandit holds changes nothing but the time
    that a round takes.

    Args:
        before: what was known when it began, with nothing pending.
        course: the posterior since.
        residuals: of each reward told since, in a list that longer stretches share.
        asked: what is pending; None for nothing.
        idle: the same with nothing pending, if something is.
    """

    __slots__ = ("_idle", "_standing", "asked", "before", "course", "residuals")

    def __init__(
        self,
        before: Standing,
        course: Course,
        residuals: list[list[float]],
        asked: Choice | None = None,
        idle: "Stretch | None" = None,
    ) -> None:
        self.before, self.course, self.residuals, self.asked, self._idle = before, course, residuals, asked, idle
        self._standing: Standing | None = None

    @classmethod
    def of(cls, pieces: Pieces, standing: Standing) -> Self | None:
        """Return the stretch that begins now; None where rounds are not plain, or have no course."""
        ledger = standing.ledger
        is_plain = pieces.is_plain and standing.failures is None and not ledger.pending.ids
        if standing.clock.matters and standing.clock != Clock(float(standing.round), "rounds"):
            return None
        if not is_plain or ledger.num_told < FIRST_REWARDS:
            return None
        randomness = pieces.dictionary_generator, pieces.dictionary_uniform
        course = course_of(standing.told, pieces.dictionary, *randomness)
        return None if course is None else cls(standing, course, [])

    @property
    def round(self) -> int:
        """The number of the present round."""
        return self.before.round + self.course.record.number

    @property
    def asked_id(self) -> int:
        """The number of the point that is asked for next, or pending."""
        return self.before.ledger.num_asked + self.course.record.number

    def asking(self, choice: Choice) -> "Stretch":
        """Return the stretch in which this is pending."""
        return Stretch(self.before, self.course, self.residuals, choice, self)

    def told(self, y: Any) -> "Stretch | None":
        """Return what is known after the reward of what is asked for, as ``tell`` takes it.

        None if it is not plainly a number, or more changes than a course follows.
        """
        choice, number, reward = cast(Choice, self.asked), self.course.record.number, plain_reward(y)
        course = None if reward is None else self.course.told(choice, reward)
        if reward is None or course is None:
            return None
        del self.residuals[number:]  # what an interrupted call left
        z = residual(reward, choice.mean, choice.variance, self.course.regularization.item())
        self.residuals.append([] if z is None else [z])
        after = Stretch(self.before, course, self.residuals)
        return after if number + 1 < _LONGEST else after.begun_anew

    def played(
        self, rule: AcquisitionRule, width: Width, seed: Callable[[int], int], rewards: np.ndarray
    ) -> "tuple[Stretch, list[Choice]] | None":
        """Return what is known after rounds of which the rewards of all arms are known, (r, A), and what was chosen.

        Of as many rounds as it can; None of none. See ``Course.played``.
        """
        number = self.course.record.number
        course = self.course.played(rule, width, seed, rewards[: _LONGEST - number])
        if course is None:
            return None
        del self.residuals[number:]
        noise, record = self.course.regularization.item(), course.record
        choices = record.choices(number)
        for choice, y in zip(choices, record.rewards(number), strict=True):
            z = residual(y, choice.mean, choice.variance, noise)
            self.residuals.append([] if z is None else [z])
        after = Stretch(self.before, course, self.residuals)
        return after if record.number < _LONGEST else after.begun_anew, choices

    @property
    def begun_anew(self) -> "Stretch":
        """The same as a stretch that begins with what is written up. Cost: that of ``standing``."""
        if not self.course.record.number:
            return self
        idle = self if self._idle is None else self._idle
        after = Stretch(idle.standing, idle.course.begun_anew, [])
        return after if self.asked is None else after.asking(self.asked)

    @property
    def standing(self) -> Standing:
        """The same, written up; remembered. Cost: that of the rewards told since the stretch began."""
        if self._standing is None:
            self._standing = self._written_up()
        return self._standing

    def _written_up(self) -> Standing:
        before, course = self.before, self.course
        if self._idle is not None and self.asked is not None:
            course.remember(self.asked)
            known = self._idle.standing
            return changed(known, ledger=known.ledger.with_asked(self.asked.point, known.now))
        number, ledger = course.record.number, before.ledger
        if not number:
            return before
        (X, Y), rounds = course.record.columns(), torch.arange(before.round, before.round + number)
        times = rounds.double() if before.clock.matters else None
        told = History(X, Y, rounds, None, times, None, times)
        return changed(
            before,
            ledger=changed(ledger.with_told(told, (), ledger.pending), num_asked=ledger.num_asked + number),
            clock=before.clock.after_reward(before.round + number),
            told=course.belief,
            round=before.round + number,
            predictions=before.predictions.told_each(self.residuals[:number], before.round),
        )


def plain_reward(y: Any) -> float | None:
    """Return a reward that is one real number as such; None for what is to be checked first."""
    if isinstance(y, float):
        number = float(y)
    elif isinstance(y, Tensor) and y.dtype in (torch.float64, torch.float32) and y.dim() <= 1 and y.numel() == 1:
        if y.is_meta or y.layout != torch.strided:
            return None
        number = y.item()
    elif type(y) is int and -checks.LARGEST_EXACT <= y <= checks.LARGEST_EXACT:
        number = float(y)
    else:
        return None
    return number if math.isfinite(number) else None

"""What was asked and what was told: points pending with their numbers, rewards in order and those kept aside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from operator import index
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What was told is put into one tensor after so many rounds: small tensors take more memory than their numbers.
_SEPARATE_TELLS = 1000


class History(NamedTuple):
    """What was told, in order.

    Attributes:
        X: played points (n, d).
        Y: rewards (n,).
        rounds: (n,) the round of each, counted from 0; rewards told in one call share a round.
    """

    X: Tensor
    Y: Tensor
    rounds: Tensor

    @property
    def next_round(self) -> int:
        """The round after the last one told."""
        return int(self.rounds[-1]) + 1 if len(self.rounds) else 0


def empty_history(example: Tensor) -> History:
    """Return a history without observations, of the kind of the example point (1, d)."""
    rounds = torch.zeros(0, dtype=torch.long, device=example.device)
    return History(example[:0], example.new_zeros(0), rounds)


def joined(parts: Sequence[History]) -> History:
    """Return one history from its parts, in order."""
    return History(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def rewards(y: Tensor | float, X: Tensor) -> Tensor:
    """Return rewards as (q,), checked against the points they are for."""
    if not isinstance(y, Tensor):
        if len(X) != 1 or isinstance(y, bool) or not isinstance(y, Real):
            raise InputError(
                f"y must be a tensor of {len(X)} reward(s), or a number for one; got {checks.describe(y)}."
            )
        y = X.new_tensor([float(y)])
    checks.same_kind("y", checks.floating_tensor("y", y), X)
    if len(X) == 1 and y.dim() == 0:
        y = y.unsqueeze(0)
    if tuple(y.shape) not in ((len(X),), (len(X), 1)):
        raise InputError(f"y must have a reward for each of the {len(X)} point(s), got {checks.describe(y)}.")
    return checks.finite("y", y.reshape(-1))


def check_rounds(history: History) -> None:
    """Refuse a history whose parts do not belong together."""
    if not len(history.X) == len(history.Y) == len(history.rounds):
        raise InputError("The history must have as many points as rewards and rounds.")
    if bool((history.rounds.diff() < 0).any()):
        raise InputError("The rounds of a history must not decrease.")


class Pending(NamedTuple):
    """Points asked for and not yet told, in the order asked.

    Attributes:
        points: (k, d).
        ids: of each, ascending.
    """

    points: Tensor
    ids: tuple[int, ...]

    def without(self, told: Tensor) -> "Pending":
        """Return the points without one row for each row of ``told`` (q, d) that is among them: the one asked first."""
        if torch.equal(self.points, told):
            return self._at([])
        left = list(range(len(self.ids)))
        for row in told:
            matches = (self.points[left] == row).all(-1).nonzero().flatten()
            if len(matches):
                del left[int(matches[0])]
        return self if len(left) == len(self.ids) else self._at(left)

    def without_ids(self, ids: Sequence[int]) -> "Pending":
        """Return the points without those of the ids, all of which are pending."""
        gone = set(ids)
        return self._at([row for row, number in enumerate(self.ids) if number not in gone])

    def at_ids(self, ids: Sequence[int]) -> Tensor:
        """Return the points (q, d) of ids, all of which are pending, in the order given."""
        row_of = {number: row for row, number in enumerate(self.ids)}
        return self.points[[row_of[number] for number in ids]]

    def _at(self, rows: list[int]) -> "Pending":
        return Pending(self.points[rows], tuple(self.ids[row] for row in rows))


def as_ids(ids: Any) -> list[int]:
    """Return one id or several as a list; numbers of NumPy, pandas and PyTorch are taken like Python's."""
    plain = ids.tolist() if hasattr(ids, "tolist") else ids
    try:
        given = list(plain) if isinstance(plain, Iterable) else [plain]
        if not given or isinstance(plain, (str, bytes)) or any(isinstance(each, bool) for each in given):
            raise TypeError
        return [index(each) for each in given]
    except TypeError:
        raise InputError(
            f"ids must be one or more whole numbers, as ask(return_ids=True) returns; got {ids!r}."
        ) from None


@dataclass(frozen=True, eq=False)
class Ledger:
    """What was asked and what was told. A value: asking and telling return another.

    Attributes:
        told: what was told, in order, in parts.
        held: told, and kept aside by the batch rule.
        pending: points asked for and not yet told.
        num_asked: how many points were ever asked for.
    """

    told: tuple[History, ...]
    held: tuple[History, ...]
    pending: Pending
    num_asked: int

    @classmethod
    def empty(cls, example: Tensor) -> Self:
        """Return the ledger in which nothing was asked or told, of the kind of the example point (1, d)."""
        return cls((empty_history(example),), (), Pending(example[:0], ()), 0)

    @classmethod
    def restored(cls, history: History, pending: Pending, num_asked: int, num_learned: int) -> Self:
        """Return the ledger of a saved bandit, whose posterior knew the first ``num_learned`` rewards."""
        held = History(*(part[num_learned:] for part in history))
        return cls((history,), (held,) if len(held.X) else (), pending, num_asked)

    @property
    def in_one_part(self) -> Self:
        """This ledger with all that was told in one part."""
        return self if len(self.told) == 1 else replace(self, told=(joined(self.told),))

    @property
    def outstanding(self) -> Tensor:
        """The points of the batch so far: told and not yet learned, then pending, (k, d)."""
        return torch.cat([*(held.X for held in self.held), self.pending.points])

    def with_asked(self, X: Tensor) -> Self:
        """Return the ledger with points (q, d) pending under the next numbers."""
        ids = tuple(range(self.num_asked, self.num_asked + len(X)))
        pending = Pending(torch.cat([self.pending.points, X]), self.pending.ids + ids)
        return replace(self, pending=pending, num_asked=self.num_asked + len(X))

    def with_told(self, told: History, held: tuple[History, ...], pending: Pending) -> Self:
        """Return the ledger with one more round told, of which these rewards are kept aside and these points remain."""
        parts = (*self.told, told)
        parts = parts if len(parts) <= _SEPARATE_TELLS else (joined(parts),)
        return replace(self, told=parts, held=held, pending=pending)

    def pending_ids(self, ids: Any) -> list[int]:
        """Return ids as a list, all of which are pending.

        Raises:
            InputError: if one is not.
        """
        numbers = as_ids(ids)
        if len(set(numbers)) != len(numbers):
            raise InputError(f"ids must differ, got {numbers}.")
        pending = set(self.pending.ids)
        for number in numbers:
            if not 0 <= number < self.num_asked:
                raise InputError(f"id {number} is unknown: {self.num_asked} point(s) were asked for, numbered from 0.")
            if number not in pending:
                raise InputError(f"id {number} is not pending: it was told or forgotten already.")
        return numbers

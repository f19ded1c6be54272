"""Rows and names of a finite set of actions, that of a round or one that stays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.observations.columns import is_pandas


def checked_names(names: Any, size: int) -> tuple[str, ...]:
    """Return names of so many arms as texts, if they are that many and differ."""
    found = tuple(map(str, checks.entries("names", names)))
    if len(found) != size:
        raise InputError(f"names must be one for each of the {size} arm(s), got {len(found)}.")
    if len({*found}) < size:
        twice = next(name for name in found if found.count(name) > 1)
        raise InputError(f"names must differ, got {twice!r} {found.count(twice)} times.")
    return found


def names_of(table: Any) -> tuple[str, ...] | None:
    """Return the index of a data frame as texts, if it is more than a numbering and tells rows apart; else None."""
    if not is_pandas(table):
        return None
    labels = list(table.index)
    names = tuple(map(str, labels))
    return names if labels != list(range(len(labels))) and len({*names}) == len(names) else None


@dataclass(frozen=True, eq=False)
class Listing:
    """A finite set of actions.

    Attributes:
        size: A, how many.
        names: of each, (A,); None where they have none.
        actions: returns those of rows, (k, a).
        find: returns the first row of an action (a,) that stays.
    """

    size: int
    names: tuple[str, ...] | None
    actions: Callable[[list[int]], Tensor]
    find: Callable[[Tensor], int | None] | None = None

    def rows(self, word: str, given: Any, *, masks: bool = False) -> list[int]:
        """Return the rows that an argument says: numbers or names, one or several, or where it may be a mask (A,)."""
        plain = checks.listed(word, given)
        several = list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str) else [plain]
        if masks and len(several) == self.size and all(isinstance(each, (bool, np.bool_)) for each in several):
            return [row for row, is_one in enumerate(several) if is_one]
        if any(isinstance(each, str) for each in several):
            return [self._row_of(word, each) for each in several]
        found = checks.whole_numbers(word, several)
        if wrong := [row for row in found if not 0 <= row < self.size]:
            raise InputError(f"{word} must be rows from 0 to {self.size - 1}, of {self.size}; got {wrong[0]}.")
        return found

    def _row_of(self, word: str, name: Any) -> int:
        if self.names is None:
            hint = "give rows, or names: Arms(table, names=...) or a data frame with an index of its own"
            raise InputError(f"{word}: {checks.shown(name)} is a name, and these actions have none: {hint}.")
        if name not in self.names:
            near = checks.nearest_name(name, self.names)
            hint = f"did you mean {near!r}?" if near else f"there are {self.size} actions, such as {self.names[0]!r}."
            raise InputError(f"{word}: no action is named {checks.shown(name)}; {hint}")
        return self.names.index(name)

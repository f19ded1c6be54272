"""Rewards of all arms that are known before a round is played: of a simulation, or of a log that missed nothing."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError


class KnownRewards:
    """A table of rewards with a row for each round and a column for each arm. Of equal arms the first one's count.

    Args:
        candidates: what may be played.
        table: (r, A).
        rounds: how many are played; None for r.

    Raises:
        InputError: if the candidates are no arms in memory, the table does not fit, or has fewer rows.
    """

    def __init__(self, candidates: Candidates, table: Any, rounds: int | None) -> None:
        arms = untimed(candidates)
        if not isinstance(arms, Arms) or arms.source.tensor is None:
            raise InputError(
                f"A table of rewards has a column for each arm, and {type(arms).__name__} has no such list in memory: "
                "give run a function that returns the reward of what is asked for."
            )
        number = len(arms.source)
        if not isinstance(table, (list, tuple, Tensor)) and not getattr(table, "shape", ()):
            raise InputError(
                f"run takes a function that returns rewards, or a table of them (r, {number}); "
                f"got {checks.describe(table)}."
            )
        self._table = torch.as_tensor(checks.real_numbers(f"the table of rewards, which must be (r, {number}),", table))
        if self._table.dim() != 2 or self._table.shape[1] != number:
            raise InputError(f"The table of rewards must be (r, {number}), got {checks.describe(table)}.")
        self.rounds = self._table.shape[0] if rounds is None else checks.positive_integer("rounds", rounds)
        if not 0 < self.rounds <= self._table.shape[0]:
            raise InputError(f"There are rewards of {self._table.shape[0]} rounds, and {self.rounds} are to be played.")
        self._table = self._table[: self.rounds].to("cpu", arms.source.dtype)
        self._row: dict[tuple[float, ...], int] = {}
        first = [self._row.setdefault(tuple(arm), row) for row, arm in enumerate(arms.source.tensor.tolist())]
        if len(self._row) < number:
            self._table = self._table[:, first]

    def of(self, number: int, x: Tensor) -> float:
        """Return the reward of an arm (1, d) after so many rounds."""
        return self._table[number, self._row[tuple(x[0].tolist())]].item()

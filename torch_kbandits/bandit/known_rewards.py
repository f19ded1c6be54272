"""Rewards that are known before a round is played: of a simulation, or of a log that missed nothing."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.rows import row_keys


class KnownRewards:
    """A table of rewards (r, A): a row for each round, a column for each arm. Of equal arms the first one's count.

    Raises:
        InputError: if the candidates are no arms in memory, the table does not fit, or has fewer rows than rounds.
    """

    def __init__(self, candidates: Candidates, table: Any, rounds: int | None) -> None:
        arms = untimed(candidates)
        if not isinstance(arms, Arms) or arms.source.tensor is None:
            raise InputError(
                f"A table of rewards has a column for each arm, and {type(arms).__name__} has no such list in memory: "
                "give run a function that returns the reward of what is asked for."
            )
        shape = f"(r, {len(arms.source)})"
        if not isinstance(table, (list, tuple, Tensor)) and not getattr(table, "shape", ()):
            got = checks.describe(table)
            raise InputError(f"run takes a function that returns rewards, or a table of them {shape}; got {got}.")
        self._table = torch.as_tensor(checks.real_numbers(f"the table of rewards, which must be {shape},", table))
        if self._table.dim() != 2 or self._table.shape[1] != len(arms.source):
            raise InputError(f"The table of rewards must be {shape}, got {checks.describe(table)}.")
        known = self._table.shape[0]
        self.rounds = known if rounds is None else checks.positive_integer("rounds", rounds)
        if not 0 < self.rounds <= known:
            raise InputError(f"There are rewards of {known} rounds, and {self.rounds} are to be played.")
        self._table = self._table[: self.rounds].to("cpu", arms.source.dtype)
        self._column = dict[bytes, int]()
        for column, key in enumerate(row_keys(arms.source.tensor)):
            self._column.setdefault(key, column)

    def of(self, number: int, x: Tensor) -> float:
        """Return the reward of an arm (1, d) after so many rounds."""
        return self._table[number, self._column[row_keys(x)[0]]].item()

"""Recorded rewards of fixed arms."""

from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arm_index import ArmIndex, rows_of
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.problem import Known
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


class ReplayedArms(Environment):
    """Arms whose rewards were recorded: a pull returns one of an arm's records, so the noise is real.

    The mean of an arm is the mean of its records. Which record a round returns is addressed by (seed, round).

    Args:
        arms: (A, d).
        records: (A, S) rewards.
        seed: addresses the records.
        simultaneous: whether the S columns were recorded together, as readings of many sensors at a time. Then all rows
            of a pull come from one column; otherwise each row of a pull draws a record of its own.
        noise_scale: R for an algorithm; the root of the variance within arms, averaged over arms, unless given. Either
            way it is no bound: records of one arm may spread wider than those of another.
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
    """

    arms: Tensor

    def __init__(
        self,
        arms: Tensor,
        records: Tensor,
        seed: int,
        *,
        simultaneous: bool,
        noise_scale: float | None = None,
        **known: Unpack[Known],
    ) -> None:
        records = checks.finite("records", checks.rows("records", records))
        if records.dim() != 2:
            raise InputError(f"records must be (A, S), got {checks.describe(records)}.")
        means = records.mean(1)
        if noise_scale is None:
            noise_scale = float(records.var(1, correction=0).mean().sqrt())
        super().__init__(noise_scale, seed, noise=self._recorded, **known)
        self._index = ArmIndex(arms)
        self._index.checked_means(means)
        self.arms, self.means, self.best_mean = self._index.arms, means, means.max()
        self.records, self.simultaneous = records, simultaneous

    def indices(self, X: Tensor) -> list[int]:
        """Return the positions among the arms of the rows of X (q, d); of equal arms, the first.

        Raises:
            InputError: if a row is no arm.
        """
        return self._index.find(X)

    def mean(self, X: Tensor) -> Tensor:
        """Return the mean records (q,) of arms X (q, d).

        Raises:
            InputError: if a row is no arm.
        """
        return rows_of(self.means, self.indices(X))

    def _recorded(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        """Return records (q,) of arms X (q, d)."""
        rows = torch.tensor(self.indices(X), dtype=torch.long, device=self.records.device)
        number, draws = self.records.shape[1], 1 if self.simultaneous else len(rows)
        chosen = torch.randint(number, (draws,), generator=generator_for(self.seed, round, "record"), device="cpu")
        return self.records[rows, chosen.to(rows.device)]

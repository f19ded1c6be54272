import hashlib

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.candidates.base import Candidates, Lookahead
from torch_kbandits.candidates.table import ArmTable
from torch_kbandits.errors import InputError
from torch_kbandits.random import generator_for


class Arms(Candidates):
    """A finite set of arms.

    Args:
        arms: (A, d), A >= 1, finite, of a floating dtype. Duplicate rows are allowed.
        column_memory: bytes that kernel columns of played arms may occupy; beyond, they are computed again when the
            dictionary changes.

    Raises:
        InputError: if there is no arm or the tensor does not fit.
    """

    def __init__(self, arms: Tensor, column_memory: int = 2**29) -> None:
        checks.points("candidates", arms)
        if arms.dim() != 2 or len(arms) == 0:
            raise InputError(f"candidates must be (A, d) with at least one arm, got {checks.describe(arms)}.")
        self.arms = arms.detach().clone()
        self.column_memory = checks.positive_integer("column_memory", column_memory)

    @property
    def example(self) -> Tensor:
        """The first arm, (1, d)."""
        return self.arms[:1]

    @property
    def domain(self) -> Domain:
        """The arms, to maximise BoTorch acquisition functions over."""
        return Domain(arms=self.arms)

    def belief(self, kernel: Kernel, regularization: float, seed: int, *, exact: bool) -> "ArmBelief":
        """Return the table before any observation."""
        return ArmBelief(self.arms, kernel, regularization, seed, self.column_memory, exact=exact)

    def describe(self) -> dict[str, object]:
        """Return the shape, dtype and a digest of the arms."""
        return {"arms": f"{tuple(self.arms.shape)} {self.arms.dtype} {digest(self.arms)}"}


class ArmBelief(ArmTable):
    """An ``ArmTable`` from which arms are chosen."""

    def __init__(
        self, arms: Tensor, kernel: Kernel, regularization: float, seed: int, column_memory: int, *, exact: bool
    ) -> None:
        super().__init__(arms, kernel, regularization, column_memory, exact=exact)
        self.tie_rank = torch.rand(len(arms), generator=generator_for(seed, 0, "ties")).to(arms.device)

    def lookahead(self, pending: Tensor) -> "ArmLookahead":
        """Return the table with points (k, d) pending."""
        return ArmLookahead(self, pending)


class ArmLookahead(Lookahead):
    """The posterior over the arms with points pending: their variance shrinks, the means stay.

    Pending points are hallucinated when a variance is asked for, so that rules which draw do not pay for them.
    Cost: O(A m) for a choice and for a pending point.
    """

    def __init__(self, table: ArmBelief, pending: Tensor) -> None:
        super().__init__(pending)
        self._table = table
        self._rows = table.rows_of(pending).tolist()
        self._hallucinated: ArmTable = table
        self._waiting = [(row, 1) for row in self._rows]

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._table.mean

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), with pending points hallucinated."""
        for row, times in self._waiting:
            self._hallucinated = self._hallucinated.hallucinated(row, times)
        self._waiting = []
        return self._hallucinated.variance

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a played point, 0-dim."""
        return self._table.incumbent

    def deviation(self, seed: int) -> Tensor:
        """A draw of f − mean, (A,)."""
        return self._table.deviation(seed)

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> Tensor:
        """Return the arm (1, d) of the highest score.

        Scores that differ by rounding only are ties, broken by an order of the arms that is drawn once from the
        bandit's seed; so equal posteriors choose equal arms however they were computed.
        """
        scores = rule.on_arms(self, beta, seed)
        best = scores.max()
        scale = torch.maximum(best.abs(), beta * self._table.kernel_bound().sqrt())
        tolerance = torch.finfo(scores.dtype).eps ** (2 / 3) * scale
        row = int(torch.where(scores >= best - tolerance, self._table.tie_rank, -1.0).argmax())
        return self._table.arm(row)

    def add(self, point: Tensor, times: int = 1) -> None:
        """Make a point (1, d) pending, as often as is said."""
        super().add(point, times)
        row = int(self._table.rows_of(point))
        self._rows = [*self._rows, *[row] * times]
        self._waiting = [*self._waiting, (row, times)]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._table.leverage_scores(self._rows)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        least = torch.finfo(self.variance.dtype).eps * self._table.kernel_bound()
        return ((self._table.variance + least) / (self.variance + least)).max()


def digest(values: Tensor) -> str:
    """Return a short fingerprint of the exact bytes of a tensor."""
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]

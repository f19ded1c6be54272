"""Few arms with all their covariances."""

from collections.abc import Callable
from typing import Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.beliefs import covariance_loops
from torch_kbandits.beliefs.base import require_finite
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.dictionaries import Selection
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import Located


class CovarianceTable(TableBelief):
    """The exact posterior over few arms, kept as their means and their whole covariance.

    In double precision: draws multiply the covariance by c/λ for c plays of an arm, and rounding with it.

    A reward changes both by a rank-one term. These changes only ever shrink, so rounding does not build up, and it
    stays as small as λ allows, also where a smooth kernel makes the Gram matrix of the arms singular.

    Cost of a round: O(A²) time and memory.

    Args:
        arms: (A, d), or a source of them; they are read at once.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        mean: the prior mean; None for zero.
    """

    def __init__(
        self, arms: Tensor | ArmSource, kernel: Kernel, regularization: float, seed: int, mean: Mean | None = None
    ) -> None:
        super().__init__(arms, kernel, regularization, seed, exact=True, mean=mean)
        with torch.no_grad():
            self._covariance = gram(self.kernel, self._points.block(0, len(self._points)))
        self._mean = torch.zeros_like(self._prior_variance) if self._expected is None else self._expected
        self._log_det, self._noise = self._mean.new_zeros(()), float(self.regularization)

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._mean[: self._num_arms]

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return self._covariance.diagonal()[: self._num_arms].clamp_min(0.0)

    @property
    def _played_mean(self) -> Tensor:
        return self._mean[self._played_rows]

    @property
    def _played_variance(self) -> Tensor:
        return self._variance_at(self._played_rows)

    def _variance_at(self, rows: Tensor) -> Tensor:
        return self._covariance.diagonal()[rows]

    def _mean_at(self, rows: Tensor) -> Tensor:
        return self._mean[rows]

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats. Cost: O(1)."""
        return 0.5 * self._log_det

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim. Cost: O(u)."""
        return (self._log.counts * self._played_variance.clamp_min(0.0)).sum() / self.regularization

    def projection_error(self) -> Tensor:
        """Return 0, 0-dim: the posterior is exact."""
        return torch.zeros_like(self._log_det)

    @property
    def inducing_points(self) -> Tensor:
        """All played points, (u, d)."""
        return self._log.points

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of what is learned of the mean, μ − m, 0-dim: √(αᵀ(μ − m)) with α = D⁻¹(ȳ − μ)."""
        means = self._mean[self._played_rows]
        weights = (self._log.sums - self._log.counts * means) / self.regularization
        return (weights @ (means - self._expected_at(self._played_rows))).clamp_min(0.0).sqrt()

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty table conditioned on a whole history. Cost: O(u A²)."""
        return self.updated(told.X, told.Y, None)

    def contenders(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> tuple[Tensor | None, Tensor]:
        """Return None, for all arms, and their scores (A,)."""
        return None, rule.on_arms(self, beta, seed)

    def hallucinated(self, row: int, times: int = 1) -> Self:
        """Return the table conditioned so many times on the posterior mean at a row. Cost: O(A²)."""
        ahead = shallow_copy(self)  # shallow is enough: observing replaces tensors
        ahead._observe(row, times, times * ahead._mean[row])
        return ahead

    def _conditioned(
        self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played_rows: Tensor
    ) -> Self:
        after, told = shallow_copy(self), located.plays(Y)
        for row, count, total in zip(played_rows[told.places].tolist(), told.counts.tolist(), told.sums, strict=True):
            after._observe(row, count, total)
        require_finite(after._mean, after._covariance.diagonal())
        return after

    def _observe(self, row: int, count: float, total: Tensor) -> None:
        """Condition on ``count`` rewards of one row, given their sum. Cost: O(A²)."""
        if runs_compiled(self._covariance):
            now = self._covariance.numpy(), self._mean.numpy()
            covariance, mean, more = covariance_loops.observed(*now, row, count, float(total), self._noise)
            self._covariance, self._mean = torch.from_numpy(covariance), torch.from_numpy(mean)
            self._log_det = self._log_det + more
            return
        column = self._covariance[row]
        noise = self.regularization / count
        spread = noise + column[row]
        self._mean = self._mean + column * ((total / count - self._mean[row]) / spread)
        self._covariance = torch.addr(self._covariance, column, column / spread, alpha=-1.0)
        self._log_det = self._log_det + torch.log1p(column[row] / noise)

    @property
    def _basis_rows(self) -> Tensor:
        return self._played_rows

    def _draw_correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        """Return −C D⁻¹ (g + ε) with the covariance C of all rows and the played ones, which is −K A⁻¹ (g + ε)."""
        counts = self._log.counts
        prior = prior_at(self._played_rows)
        normals = torch.randn(len(counts), generator=generator, dtype=torch.float64, device="cpu").to(prior)
        noise = self.regularization / counts
        return -self._covariance[:, self._played_rows] @ ((prior + noise.sqrt() * normals) / noise)

    def _extend_rows(self, points: Tensor) -> None:
        """Add rows of the covariance: k − K_U A⁻¹ k_U, where A⁻¹K_U = D⁻¹C_U for the rows that are there."""
        rows, old = self._played_rows, len(self._covariance)
        with torch.no_grad():
            prior = gram(self.kernel, points, self._points.block(0, len(self._points)))
        precision = self._log.counts / self.regularization
        solved = precision.unsqueeze(-1) * self._covariance[rows]  # A⁻¹ K_U at the old rows, (u, N)
        cross = prior[:, :old] - prior[:, rows] @ solved
        inverse = torch.diag(precision) - precision.unsqueeze(-1) * self._covariance[rows][:, rows] * precision
        corner = prior[:, old:] - prior[:, rows] @ inverse @ prior[:, rows].mT
        upper = torch.cat([self._covariance, cross.mT], dim=1)
        self._covariance = torch.cat([upper, torch.cat([cross, corner], dim=1)])
        means = (self._log.sums - self._log.counts * self._mean[rows]) / self.regularization
        new = torch.arange(old, old + len(points), device=rows.device)
        self._mean = torch.cat([self._mean, prior[:, rows] @ means + self._expected_at(new)])

"""Few arms with all their covariances."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.beliefs import covariance_loops
from torch_kbandits.beliefs.base import require_finite
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.dictionaries import Selection
from torch_kbandits.numerics.bordered import BorderedFactor
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import schur_factor
from torch_kbandits.numerics.prior_draws import JointDraws
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import Located, PlayedLog, Plays, merged

#: By so much errors that rounding left may have grown while rewards were taken back; then all is computed afresh.
MOST_WEAR = 1e5

#: So many rows may be of points that are no arms and count no more.
_MOST_STRANGERS = 16


class Gaussian(NamedTuple):
    """What is believed of A arms together.

    Attributes:
        covariance: (A, A), in reward units squared.
        variance: (A,), at least 0.
        mean: (A,), in reward units.
        log_det: of V.
        wear: by how much errors that rounding left may have grown.
    """

    covariance: np.ndarray
    variance: np.ndarray
    mean: np.ndarray
    log_det: float
    wear: float

    def observed(self, row: int, count: float, total: float, regularization: float) -> "Gaussian":
        """Return the same after so many rewards of a row, with this sum; its wear is NaN if something is not finite."""
        covariance, mean = self.covariance, self.mean
        told = covariance_loops.observed_one(covariance, mean, row, count, total, regularization)
        covariance, variance, mean, gain, growth = told
        return Gaussian(covariance, variance, mean, self.log_det + gain, worn(self.wear, growth))


def correction(
    covariance: Tensor,
    rows: Tensor,
    counts: Tensor,
    noise: float,
    prior_at: Callable[[Tensor], Tensor],
    generator: torch.Generator,
) -> Tensor:
    """Return −C D⁻¹ (g + ε) with the covariance C of all rows and the played ones, which is −K A⁻¹ (g + ε).

    Args:
        covariance: of all rows, (A, A).
        rows: those played, (u,).
        counts: how often each, (u,).
        noise: variance of that of one reward.
        prior_at: gives a draw g of the prior at rows.
        generator: of ε.
    """
    prior = prior_at(rows)
    normals = torch.randn(rows.shape[0], generator=generator, dtype=torch.float64, device="cpu").to(prior)
    if runs_compiled(covariance):
        of_rows = rows.numpy(), prior.numpy(), normals.numpy(), counts.numpy()
        return torch.from_numpy(covariance_loops.correction(covariance.numpy(), *of_rows, noise))
    level = noise / counts
    return -covariance[:, rows] @ ((prior + level.sqrt() * normals) / level)


def worn(wear: float, growth: float) -> float:
    """Return by how much errors may have grown in all, after they grew by a factor once more."""
    return wear if growth == 1.0 else (1.0 + wear) * growth


class CovarianceTable(TableBelief):
    """The exact posterior over few arms, kept as their means and their whole covariance.

    In double precision: draws multiply the covariance by c/λ for c plays of an arm, and rounding with it.

    A reward changes both by a rank-one term. These changes only ever shrink, so rounding does not build up, and it
    stays as small as λ allows, also where a smooth kernel makes the Gram matrix of the arms singular. A reward that is
    taken back changes both by such a term, too, and amplifies rounding: all is computed afresh before that matters.

    Cost of a round: O(A²) time and memory; O(u A²) for u played points where observations age. Points that are no arms
    get rows when they are first seen, at O(u³), or O(u²) each while arms are not played again.

    Args:
        arms: (A, d), or a source of them; they are read at once.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        mean: the prior mean; None for zero.
    """

    branches = has_course = True

    def __init__(
        self, arms: Tensor | ArmSource, kernel: Kernel, regularization: float, seed: int, mean: Mean | None = None
    ) -> None:
        super().__init__(arms, kernel, regularization, seed, exact=True, mean=mean)
        with torch.no_grad():
            self._covariance = gram(self.kernel, self._points.block(0, len(self._points))).contiguous()
        self._mean = torch.zeros_like(self._prior_variance) if self._expected is None else self._expected
        self._variance = self._covariance.diagonal().clamp_min(0.0)
        self._log_det, self._wear, self._noise = 0.0, 0.0, float(self.regularization)
        self._prior = self._covariance, self._mean  # from which all may be computed afresh
        self._known_factor = self._no_factor

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._mean if len(self._mean) == self._num_arms else self._mean[: self._num_arms]

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return self._variance if len(self._mean) == self._num_arms else self._variance[: self._num_arms]

    @property
    def _played_mean(self) -> Tensor:
        return self._mean[self._played_rows]

    @property
    def _played_variance(self) -> Tensor:
        return self._variance_at(self._played_rows)

    def _variance_at(self, rows: Tensor) -> Tensor:
        return self._variance.index_select(0, rows)

    def _mean_at(self, rows: Tensor) -> Tensor:
        return self._mean.index_select(0, rows)

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats. Cost: O(1)."""
        return self.regularization.new_tensor(0.5 * self._log_det)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim. Cost: O(u)."""
        return (self._log.counts * self._played_variance.clamp_min(0.0)).sum() / self.regularization

    def projection_error(self) -> Tensor:
        """Return 0, 0-dim: the posterior is exact."""
        return torch.zeros_like(self.regularization)

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

    def _hallucinated(self, rows: Tensor, times: Tensor) -> Self:
        """Return the table conditioned on the posterior means at rows (k,), so many times (k,) at each.

        Cost: O(k A²).
        """
        ahead = shallow_copy(self)  # shallow is enough: observing replaces tensors
        counts = times.to(self._mean)
        ahead._observe(*(each.cpu().numpy() for each in (rows, counts, counts * self._mean[rows])))
        return ahead

    def _conditioned(self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows) -> Self:
        after = shallow_copy(self)
        after._observe(*merged(np.array(self.row_list(X), dtype=np.int64), Y.cpu().numpy()))
        after._require_finite()
        return after

    @property
    def gaussian(self) -> Gaussian | None:
        """What is believed of the arms, in arrays; None where loops do not run, or other points have rows, too."""
        if not runs_compiled(self._covariance) or len(self._mean) > self._num_arms:
            return None
        arrays = self._covariance.numpy(), self._variance.numpy(), self._mean.numpy()
        return Gaussian(*arrays, self._log_det, self._wear)

    @property
    def prior_gaussian(self) -> Gaussian:
        """What is believed before any reward, in arrays."""
        covariance, mean = self._prior[0].numpy(), self._prior[1].numpy()
        return Gaussian(covariance, np.maximum(np.diagonal(covariance), 0.0), mean, 0.0, 0.0)

    @property
    def counts(self) -> dict[int, float]:
        """How often each row that was played was, in the order of first play."""
        return dict(zip(self._played_rows.tolist(), self._log.counts.tolist(), strict=True))

    def draws(self, seeds: Sequence[int], number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what ``corrected`` draws by each seed, for so many played rows.

        Returns:
            The draws of the prior at all rows, (k, n); normals, (k, number); and for each row the first that is its
            equal, (n,).
        """
        prior, generator = cast(JointDraws, self._draws_of_prior()), torch.Generator()
        of_prior, normals = (
            torch.empty(len(seeds), size, dtype=torch.float64, device="cpu")
            for size in (len(self._distinct_points), number)
        )
        for seed, *parts in zip(seeds, of_prior, normals, strict=True):
            generator.manual_seed(seed)
            for part in parts:
                part.normal_(generator=generator)
        draws = prior.of_normals(of_prior)[:, self._distinct_rows]
        return draws.numpy(), normals.numpy(), self._twins.numpy()

    def followed(self, X: Tensor, Y: Tensor, believed: Gaussian) -> Self:
        """Return the table after rewards Y (q,) of arms X (q, d), told one after another, which made this of it."""
        after = self._believing(believed)
        after._note(self._log, X, Y, None, *self._located(X))
        return after

    def _believing(self, believed: Gaussian) -> Self:
        """Return a copy with another posterior, of what was told here."""
        after = shallow_copy(self)
        after._covariance, after._variance, after._mean = map(torch.from_numpy, believed[:3])
        after._log_det, after._wear = believed.log_det, believed.wear
        return after

    def windowed(self, X: Tensor, Y: Tensor, believed: Gaussian) -> Self:
        """Return the table of rewards Y (q,) of arms X (q, d) alone, which made this of it."""
        after = self._believing(believed)
        log = PlayedLog(self.no_points, self.books)
        located = log.locate(self._points.keys(X))
        after._rows_played, after._num_observations = Rows(self.rows_of(located.first_plays(X))), X.shape[0]
        after._log, after._last_located = log.with_rewards(X, Y, located), None
        return after

    def _require_finite(self) -> None:
        """Refuse a posterior that has values which are not finite."""
        if math.isnan(self._wear):
            require_finite(self._mean.new_full((), math.nan))

    def forgotten(self, left: Plays, gone: Plays) -> Self:
        """Return the table without rewards told before.

        Args:
            left: what is left, by the old places of the played points, in the order in which they stand from now on.
            gone: what is taken back, by these places.

        Cost: O(A²) for each point taken back; O(u A²) where rounding would be left of what explains too much.
        """
        rows = self._played_rows[gone.places].cpu().numpy()
        after = self._recounted(left)
        if len(left.places) > len(rows):
            after._observe(rows, -gone.counts.cpu().numpy(), -gone.sums.cpu().numpy())
        if len(left.places) <= len(rows) or not after._wear <= MOST_WEAR:
            after._recount()
        return after._without_strangers()

    def reweighted(self, plays: Plays) -> Self:
        """Return the table with other counts and sums of the played points. Cost: O(u A²).

        Args:
            plays: by the old places of the played points, in the order in which they stand from now on. Counts need not
                be whole: an observation of noise λ_s counts λ/λ_s, and its reward so many times.
        """
        after = self._recounted(plays)
        after._recount()
        return after._without_strangers()

    def _recounted(self, plays: Plays) -> Self:
        """Return the table that knows other counts and sums; its posterior is still the old one."""
        after = shallow_copy(self)
        after._rows_played, after._log = Rows(self._played_rows[plays.places]), self._log.recounted(*plays)
        after._last_located, after._num_observations = None, int(plays.counts.sum())
        return after

    def _recount(self) -> None:
        """Compute the posterior afresh from the prior and what counts."""
        (self._covariance, self._mean), self._log_det, self._wear, log = self._prior, 0.0, 0.0, self._log
        self._observe(self._played_rows.cpu().numpy(), log.counts.cpu().numpy(), log.sums.cpu().numpy())
        self._require_finite()

    def _without_strangers(self) -> Self:
        """Return the table without rows of points that are no arms and count no more, once these are many."""
        if (number := len(self._points) - self._num_arms) <= _MOST_STRANGERS:
            return self
        strangers = self._played_rows[self._played_rows >= self._num_arms].sort().values
        if number - len(strangers) <= _MOST_STRANGERS:
            return self
        rows = torch.cat([torch.arange(self._num_arms, device=strangers.device), strangers])
        after = shallow_copy(self)
        after._points = self._points.with_others_at(strangers - self._num_arms)
        after._prior_variances, after._prior_draws = Rows(self._prior_variance[rows]), None
        after._prior_means = None if self._expected is None else Rows(self._expected[rows])
        after._covariance, after._variance, after._mean = (
            self._covariance[rows][:, rows],
            self._variance[rows],
            self._mean[rows],
        )
        after._prior, after._known_factor = (self._prior[0][rows][:, rows], self._prior[1][rows]), self._no_factor
        after._rows_played = Rows(torch.searchsorted(rows, self._played_rows))
        return after

    def _observe(self, rows: np.ndarray, counts: np.ndarray, totals: np.ndarray) -> None:
        """Condition on rewards of rows (k,), so many of each, (k,), with these sums, (k,), all in double precision.

        Negative numbers take back what was told before. Cost: O(k A²).
        """
        if runs_compiled(self._covariance):
            now = self._covariance.numpy(), self._mean.numpy()
            *arrays, gain, growth = covariance_loops.observed(*now, rows, counts, totals, self._noise)
            self._covariance, self._variance, self._mean = map(torch.from_numpy, arrays)
        else:
            gain, growth = 0.0, 1.0
            for row, count, total in zip(rows.tolist(), counts.tolist(), totals.tolist(), strict=True):
                column, noise = self._covariance[row], self._noise / count
                share = 1.0 + float(column[row]) / noise
                spread = noise + column[row]
                self._mean = self._mean + column * ((total / count - self._mean[row]) / spread)
                self._covariance = torch.addr(self._covariance, column, column / spread, alpha=-1.0)
                gain += math.log(share) if share > 0.0 else -math.inf
                growth = growth if share >= 1.0 else growth / share**2 if share > 0.0 else math.inf
            self._variance = self._covariance.diagonal().clamp_min(0.0)
            if not (checks.all_finite(self._mean) and checks.all_finite(self._variance)):
                growth = math.nan
        self._log_det += gain
        self._wear = worn(self._wear, growth)

    @property
    def _basis_rows(self) -> Tensor:
        return self._played_rows

    def _draw_correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        return correction(self._covariance, self._played_rows, self._log.counts, self._noise, prior_at, generator)

    def _row_at(self, place: Tensor) -> int:
        return int(place)

    @property
    def _no_factor(self) -> tuple[Tensor, Tensor, BorderedFactor]:
        return self._played_rows[:0], self._mean[:0], BorderedFactor.of(self._covariance[:0, :0])

    def _factor_of_played(self) -> BorderedFactor:
        """Return the factor of A at the played rows. Cost: O(u²) for each that is new since the last call, or O(u³)."""
        rows, levels = self._played_rows, self.regularization / self._log.counts
        known, before, factor = self._known_factor
        if not (torch.equal(rows[: len(known)], known) and torch.equal(levels[: len(known)], before)):
            known, _, factor = self._no_factor
        if len(new := rows[len(known) :]):
            columns = self._prior[0][:, new]
            across = factor.solve(columns[known])
            factor = factor.appended(across, schur_factor(columns[new] + torch.diag(levels[len(known) :]), across))
        self._known_factor = rows, levels, factor
        return factor

    def _extend_rows(self, points: Tensor) -> None:
        """Add rows of the covariance, k − k_U A⁻¹ K_U with A = K_UU + D, and of the mean. Cost: O(u³ + q u N).

        From a factor of A: that A⁻¹ is D⁻¹ − D⁻¹ C_UU D⁻¹, too, would multiply rounding by the square of D⁻¹.
        """
        rows, old = self._played_rows, len(self._covariance)
        with torch.no_grad():
            prior = gram(self.kernel, points, self._points.block(0, len(self._points)))
        known, expected = self._prior
        factor = self._factor_of_played()
        solved = factor.solve_transposed(factor.solve(prior[:, rows].mT)).mT
        cross, corner = prior[:, :old] - solved @ known[rows], prior[:, old:] - solved @ prior[:, rows].mT
        upper = torch.cat([self._covariance, cross.mT], dim=1)
        self._covariance = torch.cat([upper, torch.cat([cross, corner], dim=1)])
        learned = solved @ (self._log.sums / self._log.counts - expected[rows])
        new = torch.arange(old, old + len(points), device=rows.device)
        wider = torch.cat([torch.cat([known, prior[:, :old].mT], dim=1), prior])
        self._prior = wider, torch.cat([expected, expected.new_zeros(len(points)) + self._expected_at(new)])
        self._variance = self._covariance.diagonal().clamp_min(0.0)
        self._mean = torch.cat([self._mean, learned + self._expected_at(new)])

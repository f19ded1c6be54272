"""Thompson sampling as a BoTorch acquisition function, on finitely many points."""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.pending import PendingPoints, inputs_of
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import multiplier
from torch_kbandits.models import FactoredGP, PosteriorDraws
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError, covariance_root, jittered_cholesky
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.rows import distinct, row_keys

#: Points whose means are computed, and distances to nearest neighbours, at a time.
_BLOCK, _DISTANCES = 2048, 2**23


class DiscretizedThompsonSampling(PendingPoints):
    """Draws of the posterior on a finite set, N(μ, β² cov); the value of any other point is that of its nearest.

    Maximise it with ``optimize_acqf_discrete`` over the set, or take ``maximizers``: there is no gradient. The
    points of a batch, and points chosen after pending ones, have a draw each. Equal points have equal values.

    Up to 2,000 distinct points the draws come from the joint covariance. Beyond, for a model of this package with one
    output and without transforms of outcomes, a prior draw (random Fourier features, or low rank plus independent
    residuals where the kernel has none, which correlate close points less) is corrected by the posterior.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2 (GP-TS, where β is v_t); Wilson et al., ICML 2020.

    Args:
        model: a BoTorch model with one output, or several and a ``posterior_transform``; no batch dimensions.
        discretization: the finite set D_t, (N, d), N >= 1, in the space of the model's inputs.
        beta: multiplies the deviation of a draw from the posterior mean: a number, or a ``Width`` that is evaluated on
            the model now. Plain Thompson sampling is 1.
        posterior_transform: as in BoTorch.
        X_pending: points asked for but not yet told, (k, d): the first k draws were theirs.
        seed: addresses the draws; one is taken from torch's global generator unless given.
        maximize: False where small outcomes are sought: the values are those of the draws with the other sign.

    Raises:
        UnsupportedError: if the posterior is not one Gaussian of one output, or cannot be drawn from at more than 2,000
            points. When evaluated: if a gradient is asked for.

    Cost: O(N³) once for N <= 2,000; else O(N m²) once and O(N (m + F d)) a draw.
    """

    def __init__(
        self,
        model: Model,
        discretization: Tensor,
        beta: float | Tensor | Width = 1.0,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        seed: int | None = None,
        maximize: bool = True,
    ) -> None:
        super().__init__(model, posterior_transform)
        discretization = checks.listed_points("discretization", discretization, **inputs_of(model))
        self.register_buffer("beta", multiplier(beta, model))
        self.beta: Tensor
        self.maximize = checks.flag("maximize", maximize)
        self.register_buffer("discretization", discretization, persistent=False)
        self.discretization: Tensor
        self._seed = int(torch.randint(2**31, (), device="cpu")) if seed is None else checks.whole_number("seed", seed)
        self._follow()
        self.X_pending = X_pending

    def draws(self, count: int) -> Tensor:
        """Return the first draws at the discretization, (count, N)."""
        count = checks.positive_integer("count", count)
        self._follow()
        return torch.stack([self._draw(index) for index in range(count)])[:, self._rows]

    def maximizers(self, count: int = 1) -> Tensor:
        """Return the maximisers of the next draws, one each, (count, d); draws of pending points are passed over."""
        count, skip = checks.positive_integer("count", count), self._num_pending
        self._follow()
        best = torch.stack([self._draw(index).argmax() for index in range(skip, skip + count)])
        return self._distinct[best]

    @t_batch_mode_transform()  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the sum over q of the draws' values at X (b, q, d), (b,): draw i for the i-th point of a batch."""
        checks.points("X", X, dimension=self.discretization.shape[-1])
        if X.requires_grad and torch.is_grad_enabled():
            raise UnsupportedError(
                "A draw on a finite set has no gradient, which optimize_acqf follows: take optimize_acqf_discrete over "
                "acquisition.discretization, or acquisition.maximizers()."
            )
        self._follow()
        rows = self._nearest(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-1])
        draws = [self._draw(self._num_pending + i).to(X)[rows[..., i]] for i in range(X.shape[-2])]
        return torch.stack(draws).sum(0)

    @property
    def _num_pending(self) -> int:
        return 0 if self.X_pending is None else len(self.X_pending)

    def _posterior(self, X: Tensor) -> GPyTorchPosterior:
        return cast(GPyTorchPosterior, self.model.posterior(X, posterior_transform=self.posterior_transform))

    def _follow(self) -> None:
        """Make draws again if what they are made of is not what it was."""
        with torch.no_grad():
            posterior = self._posterior(self.discretization[:1])
        if not isinstance(posterior, GPyTorchPosterior) or posterior.mean.shape != (1, 1):
            raise UnsupportedError(
                f"The posterior of this {type(self.model).__name__} at a point is not one Gaussian: take a model "
                "without batch dimensions whose outcome_transform, if any, is affine, such as Standardize."
            )
        self._current(self.discretization, self.posterior_transform)

    @override
    def _make(self) -> None:
        """Take the set, and the posterior means on it and what draws deviations from them, as they are now."""
        model, (points, self._rows) = self.model, distinct(self.discretization)
        self._row_of = {key: index for index, key in enumerate(row_keys(points))}
        self._distinct, self._deviations = points, list[Tensor]()
        self._sampler: Callable[[torch.Generator], Tensor]
        if len(points) <= JOINT_LIMIT:
            posterior = self._posterior(points)
            self._mean = posterior.mean.squeeze(-1)
            self._sampler = partial(_joint_draw, triangular_root(posterior.distribution.covariance_matrix))
            return
        is_plain = not hasattr(model, "outcome_transform") and self.posterior_transform is None
        if not (isinstance(model, FactoredGP) and is_plain and not model.batch_shape):
            raise UnsupportedError(
                f"Draws at more than {JOINT_LIMIT} distinct points, here {len(points)}, are for a NystromGP or an "
                "OnlineGP without transforms of outcomes: give fewer, or take BoTorch's PathwiseThompsonSampling."
            )
        means = [self._posterior(block.unsqueeze(-2)).mean.flatten() for block in points.split(_BLOCK)]
        self._mean, self._sampler = torch.cat(means), PosteriorDraws(model, points).draw

    def _draw(self, index: int) -> Tensor:
        """Return draw ``index`` at the distinct points, (U,)."""
        with torch.no_grad():
            while len(self._deviations) <= index:
                generator = generator_for(self._seed, len(self._deviations), "thompson")
                self._deviations.append(self._sampler(generator))
            draw = self._mean + self.beta.to(self._mean) * self._deviations[index]
        return draw if self.maximize else -draw

    def _nearest(self, X: Tensor) -> Tensor:
        """Return the nearest distinct point of each row of X (n, d), (n,); points of the set cost O(1)."""
        X, points = X.detach().to(self._distinct), self._distinct
        rows = torch.tensor([self._row_of.get(key, -1) for key in row_keys(X)], device=points.device)
        for block in (rows < 0).nonzero().flatten().split(max(1, _DISTANCES // len(points))):
            # Not by matrix products, whose cancellation would confuse neighbours far from the origin.
            distances = torch.cdist(X[block], points, compute_mode="donot_use_mm_for_euclid_dist")
            rows[block] = distances.argmin(-1)
        return rows


def _joint_draw(root: Tensor, generator: torch.Generator) -> Tensor:
    """Return a draw of covariance R Rᵀ, given R (U, U)."""
    normals = torch.randn(len(root), generator=generator, dtype=torch.float64, device="cpu")
    return root @ normals.to(root)


def triangular_root(covariance: Tensor) -> Tensor:
    """Return R with R Rᵀ = covariance (U, U): triangular, as the symmetric root costs several times more.

    A covariance of which nothing but rounding is left has its symmetric root.
    """
    try:
        return jittered_cholesky(covariance)
    except NotPositiveDefiniteError:
        return covariance_root(covariance)

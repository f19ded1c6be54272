"""Thompson sampling as a BoTorch acquisition function, on finitely many points."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.models import GP
from torch import Tensor
from typing_extensions import override

from torch_kbandits import checks
from torch_kbandits.acquisition.pending import PendingPoints, has_changed, inputs_of, kept_posteriors
from torch_kbandits.confidence import Width
from torch_kbandits.confidence.base import multiplier
from torch_kbandits.errors import InputError
from torch_kbandits.models import FactoredGP, PosteriorDraws
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError, covariance_root, jittered_cholesky
from torch_kbandits.numerics.prior_draws import JOINT_LIMIT
from torch_kbandits.numerics.random import generator_for, seeded
from torch_kbandits.numerics.rows import distinct, row_keys

#: Points that a path is evaluated at, at a time.
_BLOCK = 2048

#: Distances that are computed at a time where nearest neighbours are sought.
_DISTANCES = 2**23


class DiscretizedThompsonSampling(PendingPoints):
    """Draws of the posterior on a finite set, N(μ, β² cov); the value of any other point is that of its nearest.

    Maximise it with ``optimize_acqf_discrete`` over the set, or take ``maximizers``: there is no gradient. Draws are
    made when first needed and kept while model and set stay as they are: a point evaluated twice has one value. The
    points of a batch, and points chosen after pending ones, have a draw each. Equal points have equal values.

    Up to 2,000 distinct points the draws come from the joint covariance. Beyond, for a model of this package with one
    output and without an outcome transform, a prior draw (random Fourier features, or low rank plus independent
    residuals where the kernel has none) is corrected by the posterior; for other models BoTorch's paths are evaluated.
    Mean and covariance over draws are the posterior's on every route but low rank, where close points may be less
    correlated; see ``FourierDraws`` and ``LowRankDraws`` for what is approximate about a single draw.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2 (GP-TS, where β is v_t); Wilson et al., ICML 2020.

    Args:
        model: a BoTorch model with one output, or several and a ``posterior_transform``; no batch dimensions.
        discretization: the finite set D_t, (N, d), N >= 1, in the space of the model's inputs.
        beta: multiplies the deviation of a draw from the posterior mean: a number, or a ``Width`` that is evaluated on
            the model now. Plain Thompson sampling is 1.
        posterior_transform: as in BoTorch; then at most 2,000 distinct points.
        X_pending: points asked for but not yet told, (k, d): the first k draws were theirs.
        seed: addresses the draws; one is taken from torch's global generator unless given.
        maximize: False where small outcomes are sought: the values are those of the draws with the other sign.

    Raises:
        InputError: if an argument does not fit.
        UnsupportedError: if the model has several outputs, without a transform or on more than 2,000 points; if its
            posterior is not one Gaussian; if there are more than 2,000 points and BoTorch has no paths for the model.
            When evaluated: if a gradient is asked for, as ``optimize_acqf`` does.

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
        checks.instance("model", model, Model, "a BoTorch model")
        checks.absent_or("posterior_transform", posterior_transform, PosteriorTransform, "a BoTorch transform")
        super().__init__(model=model)
        discretization = checks.points("discretization", discretization, **inputs_of(model))
        if discretization.dim() != 2 or len(discretization) == 0:
            raise InputError(f"discretization must be (N, d) with N >= 1, got {checks.describe(discretization)}.")
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"Thompson sampling maximises one output and the model has {model.num_outputs}: "
                "give a posterior_transform."
            )
        self.register_buffer("beta", multiplier(beta, model))
        self.beta: Tensor
        self.posterior_transform = posterior_transform
        self.maximize = checks.flag("maximize", maximize)
        self.register_buffer("discretization", discretization, persistent=False)
        self.discretization: Tensor
        self._seed = int(torch.randint(2**31, (), device="cpu")) if seed is None else checks.whole_number("seed", seed)
        self._look()
        self.set_X_pending(X_pending)

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
                "A draw on a finite set has no gradient, which optimize_acqf follows. Maximise it over the set: "
                "optimize_acqf_discrete(acquisition, q=1, choices=acquisition.discretization), or take "
                "acquisition.maximizers()."
            )
        self._follow()
        skip = self._num_pending
        values = [
            self._draw(skip + i).to(X)[self._nearest(X[..., i, :].reshape(-1, X.shape[-1]))] for i in range(X.shape[-2])
        ]
        return torch.stack(values).sum(0).reshape(X.shape[:-2])

    @override
    def _forget_pending(self) -> None:
        self._num_pending = 0 if self.X_pending is None else len(self.X_pending)

    def _follow(self) -> None:
        """Look again if what draws are made of is not what it was."""
        self._check_posterior()
        is_same = self._seen[0] is self.discretization and self._seen[1] is self.posterior_transform
        if not is_same or has_changed(self.model, self._seen[2]):
            self._look()

    def _look(self) -> None:
        """Take the set, and the posterior of the model on it, as they are now, and no draw yet."""
        self._distinct, self._rows = distinct(self.discretization)
        self._row_of = {key: index for index, key in enumerate(row_keys(self._distinct))}
        with torch.no_grad():
            self._mean, self._sampler = self._make_sampler()
        self._seen = self.discretization, self.posterior_transform, kept_posteriors(self.model)
        self._deviations: list[Tensor] = []

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
        keys = row_keys(X.to(self._distinct))
        rows = torch.tensor([self._row_of.get(key, -1) for key in keys], device=self._distinct.device)
        unknown = (rows < 0).nonzero().flatten()
        for block in unknown.split(max(1, _DISTANCES // len(self._distinct))):
            # Not by matrix products, whose cancellation would confuse neighbours far from the origin.
            distances = torch.cdist(
                X.detach()[block].to(self._distinct),
                self._distinct,
                compute_mode="donot_use_mm_for_euclid_dist",
            )
            rows[block] = distances.argmin(-1)
        return rows

    def _make_sampler(self) -> tuple[Tensor, Callable[[torch.Generator], Tensor]]:
        """Return the posterior means at the distinct points, (U,), and draws of the deviation from them."""
        self._check_posterior()
        points, model = self._distinct, self.model
        if len(points) <= JOINT_LIMIT:
            posterior = self._posterior(points)
            return posterior.mean.squeeze(-1), partial(_joint_draw, _root(posterior.distribution.covariance_matrix))
        if self.posterior_transform is not None:
            raise UnsupportedError(
                f"Draws at {len(points)} distinct points are made for single outputs; with a "
                f"posterior_transform the discretization must have at most {JOINT_LIMIT}."
            )
        mean = torch.cat([self._posterior(block.unsqueeze(-2)).mean.flatten() for block in points.split(_BLOCK)])
        if isinstance(model, FactoredGP) and not hasattr(model, "outcome_transform") and not model.batch_shape:
            return mean, PosteriorDraws(model, points).draw
        self._check_paths()
        return mean, partial(_path_draw, model, points, mean)

    def _check_posterior(self) -> None:
        with torch.no_grad():
            posterior = self._posterior(self.discretization[:1])
        if not isinstance(posterior, GPyTorchPosterior) or posterior.mean.shape != (1, 1):
            raise UnsupportedError(
                "Thompson sampling on a discretization draws from one Gaussian, and the posterior of this "
                f"{type(self.model).__name__} at a point is a {type(posterior).__name__} or has batch dimensions: use "
                "a model without them whose outcome_transform, if any, is affine, such as Standardize."
            )

    def _check_paths(self) -> None:
        try:
            _path(self.model, torch.Generator().manual_seed(0))
        except NotImplementedError as error:
            raise UnsupportedError(
                f"BoTorch has no sample paths of this {type(self.model).__name__}, which more than {JOINT_LIMIT} "
                "distinct points need: use fewer, a kernel with random features (RBF, Matérn, scaled), or OnlineGP or "
                "NystromGP without an outcome_transform."
            ) from error

    def _posterior(self, X: Tensor) -> GPyTorchPosterior:
        return cast(GPyTorchPosterior, self.model.posterior(X, posterior_transform=self.posterior_transform))


def _joint_draw(root: Tensor, generator: torch.Generator) -> Tensor:
    """Return a draw of covariance R Rᵀ, given R (U, U)."""
    normals = torch.randn(len(root), generator=generator, dtype=torch.float64, device="cpu")
    return root @ normals.to(root)


def _path_draw(model: Model, points: Tensor, mean: Tensor, generator: torch.Generator) -> Tensor:
    """Return one of BoTorch's sample paths of a model at points (U, d), less posterior means (U,)."""
    path = _path(model, generator)
    return torch.cat([path(block) for block in points.split(_BLOCK)]) - mean


def _root(covariance: Tensor) -> Tensor:
    """Return R with R Rᵀ = covariance (U, U): triangular, as the symmetric root costs several times more.

    So draws on a box amplify rounding, where those at the actions of a round do not. A covariance of which nothing but
    rounding is left has its symmetric root.
    """
    try:
        return jittered_cholesky(covariance)
    except NotPositiveDefiniteError:
        return covariance_root(covariance)


def _path(model: Model, generator: torch.Generator) -> Any:
    """Return one of BoTorch's sample paths of a model."""
    with seeded(int(torch.randint(2**31, (), generator=generator, device="cpu"))):
        return draw_matheron_paths(cast(GP, model), sample_shape=torch.Size())


def theoretical_discretization_size(
    norm_bound: float, lipschitz: float, side: float, dimension: int, round: int
) -> int:
    """Return the size |D_t| = (B L r d t²)^d of a grid on which GP-TS loses at most 1/t² in round t, rounded up.

    Every f of norm at most B changes by at most 1/t² from a point to the nearest of D_t. It is of use for d = 1 only:
    with B = L = r = 1 it is 10,000 points in round 100 for d = 1, but 4 · 10⁸ for d = 2 and 3 · 10²³ for d = 5. A
    Sobol set of fixed size, ``ThompsonRule``, is what can be computed.

    Source: Chowdhury and Gopalan, ICML 2017, §4.

    Args:
        norm_bound: B > 0, bound on the RKHS norm of f, in reward units.
        lipschitz: L = sup_x max_j (∂²k(p, q)/∂p_j∂q_j at p = q = x)^½ > 0: s/ℓ for a Gaussian kernel of prior standard
            deviation s and lengthscale ℓ.
        side: r > 0; the domain lies in [0, r]^d.
        dimension: d.
        round: t >= 1.

    Raises:
        InputError: if an argument is out of range, or the size too large for a float.
    """
    norm_bound = checks.positive("norm_bound", norm_bound)
    lipschitz = checks.positive("lipschitz", lipschitz)
    side = checks.positive("side", side)
    dimension = checks.positive_integer("dimension", dimension)
    round = checks.positive_integer("round", round)
    try:
        return math.ceil((norm_bound * lipschitz * side * dimension * round**2) ** dimension)
    except OverflowError:
        raise InputError(
            f"The discretization of dimension = {dimension} in round = {round} has more points than a float can count: "
            "use a Sobol set of fixed size."
        ) from None

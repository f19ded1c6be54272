"""A posterior's arrays as PyTorch evaluates them: at points in any batches, with gradients, on any device."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_kbandits.loops.kernel_loops import HEAD
from torch_kbandits.numerics.formulas import Array, known_slope
from torch_kbandits.numerics.gram import formula_values, gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky, magnitude, non_negative_variance
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.posterior import Posterior
from torch_kbandits.posteriors.residual import learned_residual, residual_share


class Located(NamedTuple):
    """N points in the coordinates of a posterior."""

    X: Tensor  #: (..., N, d).
    z: Tensor  #: (..., m, N).
    own: Tensor  #: z − cov z, (..., m, N).
    inside: Tensor  #: z projected on what the dictionary spans, (..., m, N).
    prior: Tensor  #: k(x, x), (..., N).
    roots: Tensor | None  #: Of the share of residual variances that is left, (..., N); None where all of them is.
    taken: Tensor | None = None  #: F of the l points pending, (..., l, N); None for none. See ``posteriors.pending``.

    def laid_out(self, X: Tensor, layout: Callable[[Tensor], Tensor]) -> "Located":
        """Return the same points as X (..., d) has them, to which a layout takes the rest."""
        rest = {name: layout(part) for name, part in self._asdict().items() if name != "X" and part is not None}
        return self._replace(X=X.double(), **rest)


@dataclass(frozen=True, eq=False)
class PredictionStrategy:
    """f(x) = m(x) + z(x)ᵀw + r(x), w ~ N(mean, cov) given the rewards, z(x) = W k(Z, x), r independent of them.

    What ``Posterior`` is, for GPyTorch's models, with fits of its own for batches and gradients, in double precision.
    Coordinates z of N points are (..., m, N); leading dimensions are batch dimensions and broadcast.

    Attributes:
        basis: Z, (..., m, d).
        white: W, (..., m, m). It whitens K_ZZ, or K_ZZ and the noise of the exact posterior.
        mean: of w, (..., m).
        cov: of w, (..., m, m); None for 0.
        log_det: twice the information gain in nats, (...,).
        noise: of the exact posterior the noise variances of the mean rewards at Z, (..., m), 0 where there are none;
            None for that at a dictionary.
        targets: of the exact posterior the mean rewards less prior means, (..., m).
        void: orthonormal directions that the dictionary does not span, (r, m); None for none.
        learns_residual: whether variances are those of ``learned_residual``.
        pending: points P observed at their means, and C, (..., l, l), with C Cᵀ = cov(P, P) + diag λ_p; None for none.
    """

    kernel: Kernel
    basis: Tensor
    white: Tensor
    mean: Tensor
    cov: Tensor | None
    log_det: Tensor
    noise: Tensor | None = None
    targets: Tensor | None = None
    void: Tensor | None = None
    learns_residual: bool = False
    pending: tuple[Located, Tensor] | None = None

    # ---------------------------------------------------------------- from a posterior, or from observations

    @classmethod
    def of(cls, posterior: Posterior, *, learns_residual: bool = False) -> Self:
        """Return the arrays of a posterior, which they share: of several numbers told of each play a batch."""
        columns = slice(None) if len(posterior.prior.means) > 1 else 0
        mean, cov, log_det = posterior.gaussian
        white, cov, void = map(torch.from_numpy, (posterior.white, cov, getattr(posterior, "void", cov)))
        words: dict[str, Any] = {"void": void if len(void) else None, "learns_residual": learns_residual}
        if isinstance(posterior, ExactPosterior):
            live = posterior.place_in_basis >= 0
            at, counts = torch.from_numpy(posterior.place_in_basis[live]), posterior.told.counts[live]
            none, cov = white.new_zeros(len(white)), cov if bool(cov.diagonal().any()) else None  # a covariance
            noise = none.index_put((at,), torch.from_numpy(posterior.prior.noise / counts))
            targets = torch.zeros_like(torch.from_numpy(mean[columns]))
            targets[..., at] = torch.from_numpy(posterior.told.sums[columns, live] / counts)
            words = {"noise": noise, "targets": targets}
        points, mean = posterior.points.double(), torch.from_numpy(mean[columns])
        gain = white.new_tensor(log_det).expand(mean.shape[:-1])
        return cls(posterior.prior.kernel, points, white, mean, cov, gain, **words)

    @classmethod
    def exact(cls, kernel: Kernel, X: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Return the exact posterior of rewards less prior means (..., n) at X (..., n, d), of noise variances. O(n³).

        Raises:
            NotPositiveDefiniteError: if the kernel is no covariance.
        """
        kernel, X, targets, noise = in_double(kernel), X.double(), targets.double(), noise.double()
        factor = jittered_cholesky(gram(kernel, X) + torch.diag_embed(noise))
        white = _inverse(factor)
        log_det = _log_det(factor) - noise.log().sum(-1)
        return cls(kernel, X, white, _times(white, targets), None, log_det, noise, targets)

    @classmethod
    def nystrom(
        cls, kernel: Kernel, Z: Tensor, X: Tensor, targets: Tensor, noise: Tensor, *, learns_residual: bool = False
    ) -> tuple[Self, Tensor]:
        """Return the Nyström–DTC posterior at a dictionary Z (..., m, d), and z of points X (..., n, d), (..., m, n).

        With V = I + Σ_s z_s z_sᵀ / λ_s: cov = V⁻¹, mean = V⁻¹ Σ_s z_s y_s / λ_s.

        Source: Calandriello et al., COLT 2019, between (3) and (4); Zenati et al., AISTATS 2022, Prop. 4.2. Differs:
        their V is λ times this one.

        Cost: O(m³ + n m²).
        """
        kernel, Z = in_double(kernel), Z.double()
        white = _inverse(jittered_cholesky(gram(kernel, Z), for_solving=True))
        z = white @ gram(kernel, Z, X.double())
        weighted = z / noise.double().unsqueeze(-2)
        factor = jittered_cholesky(torch.eye(z.shape[-2], dtype=z.dtype, device=z.device) + weighted @ z.mT)
        root = _inverse(factor)
        cov = root.mT @ root
        mean = _times(cov, _times(weighted, targets.double()))
        return cls(kernel, Z, white, mean, cov, _log_det(factor), learns_residual=learns_residual), z

    def conditioned(self, X: Tensor, targets: Tensor, noise: Tensor) -> Self:
        """Return the exact posterior with k more observations as ``exact`` takes them. Cost: O(k m² + k² m + k³)."""
        at, k, targets, noise = self.at(X), X.shape[-2], targets.double(), noise.double()
        factor = jittered_cholesky(self._between(at, at) + torch.diag_embed(noise))
        inverse = _inverse(factor)
        rows = torch.cat([-inverse @ at.own.mT @ self.white, inverse], -1)
        white = joined(torch.nn.functional.pad(self.white, (0, k)), rows, -2)
        mean = joined(self.mean, _times(inverse, targets - self.mean_at(at)), -1)
        cov = None if self.cov is None else torch.nn.functional.pad(self.cov, (0, k, 0, k))
        log_det = self.log_det + _log_det(factor) - noise.log().sum(-1)
        noise, targets = joined(cast(Tensor, self.noise), noise, -1), joined(cast(Tensor, self.targets), targets, -1)
        return type(self)(self.kernel, joined(self.basis, at.X, -2), white, mean, cov, log_det, noise, targets)

    def with_pending(self, X: Tensor, noise: Tensor) -> Self:
        """Return it with points (..., l, d) alone observed at their means, of noise variances (..., l)."""
        plain = replace(self, pending=None)
        at = plain.at(X)
        noise = noise.double().expand(*noise.shape[:-1], X.shape[-2])
        return replace(self, pending=(at, jittered_cholesky(plain._between(at, at) + torch.diag_embed(noise))))

    # ---------------------------------------------------------------- at points

    @property
    def is_exact(self) -> bool:
        """Whether this is the exact posterior."""
        return self.noise is not None

    @property
    def batch_dims(self) -> int:
        """Number of batch dimensions."""
        return self.mean.dim() - 1

    def features(self, X: Tensor) -> Tensor:
        """Return z of points (..., N, d), (..., m, N). Cost: O(N m²)."""
        return self.white @ gram(self.kernel, self.basis, X.double())

    def at(self, X: Tensor, z: Tensor | None = None) -> Located:
        """Return points (..., N, d) in coordinates, which are computed unless given. Cost: O(N m²)."""
        X, z = X.double(), self.features(X) if z is None else z
        inside = z if self.void is None else z - self.void.mT @ (self.void @ z)
        at = Located(X, z, self._own(z), inside, prior_variance(self.kernel, X), None)
        if self.learns_residual:
            spanned = inside.square().sum(-2)
            at = at._replace(roots=residual_share(at.prior, spanned, self.own_variance(at)).sqrt())
        if self.pending is None:
            return at
        points, factor = self.pending
        return at._replace(taken=torch.linalg.solve_triangular(factor, self._between(points, at), upper=False))

    def mean_at(self, at: Located) -> Tensor:
        """Return posterior means less prior means, (..., N)."""
        return _times(at.z.mT, self.mean)

    def own_variance(self, at: Located) -> Tensor:
        """Return k(x, x) − zᵀz + zᵀ cov z, (..., N), without a learned residual or anything pending."""
        return non_negative_variance(at.prior - (at.z * at.own).sum(-2), at.prior)

    def variance(self, at: Located) -> Tensor:
        """Return posterior variances, (..., N)."""
        variance = self.own_variance(at)
        if self.learns_residual:
            variance = learned_residual(at.prior, at.inside.square().sum(-2), variance)
        return variance if at.taken is None else (variance - at.taken.square().sum(-2)).clamp_min(0.0)

    def marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return means less prior means and variances of points (N, d), (N,) each, with gradients in closed form."""
        is_plain = X.requires_grad and X.is_cpu and not (self.batch_dims or self.learns_residual or self.pending)
        slope = known_slope(self.kernel, X.shape[1]) if is_plain and X.dtype == torch.float64 else None
        if slope is not None:
            return cast(tuple[Tensor, Tensor], _Marginals.apply(X, self, slope))
        at = self.at(X)
        return self.mean_at(at), self.variance(at)

    def covariance(self, at: Located) -> Tensor:
        """Return posterior covariances, (..., N, N)."""
        covariance = self._between(at, at)
        return covariance if at.taken is None else covariance - at.taken.mT @ at.taken

    def _between(self, left: Located, right: Located) -> Tensor:
        """Return the covariances of points with others, (..., N, N'), without anything pending.

        What is not spanned of two points stays correlated as it was where it is learned.
        """
        values = gram(self.kernel, left.X, None if right is left else right.X)
        covariance = values - left.own.mT @ right.z
        if left.roots is None or right.roots is None:
            return covariance
        shares = left.roots.unsqueeze(-1) * right.roots.unsqueeze(-2)
        return covariance - (1.0 - shares) * (values - left.inside.mT @ right.inside)

    def _own(self, z: Tensor) -> Tensor:
        """Return z − cov z, (..., m, N)."""
        return z if self.cov is None else z - self.cov @ z

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior mean, (...,): ‖w‖, or exactly √α(y − Sα)."""
        scale = magnitude(self.mean if self.targets is None else self.targets)
        if self.noise is None:
            return (self.mean / scale).norm(dim=-1) * scale.squeeze(-1)
        alpha, targets = _times(self.white.mT, self.mean) / scale, cast(Tensor, self.targets) / scale
        return (alpha * (targets - self.noise * alpha)).sum(-1).clamp_min(0.0).sqrt() * scale.squeeze(-1)

    def effective_dimension(self) -> Tensor:
        """Return Tr K(K + S)⁻¹ of the exact posterior, (...,): a point less S_ii (K + S)⁻¹_ii each. Cost: O(m³)."""
        inverse = (self.white * self._own(self.white)).sum(-2)
        noise = cast(Tensor, self.noise)
        return ((noise > 0.0).to(noise) - noise * inverse).sum(-1).clamp_min(0.0).expand(self.mean.shape[:-1])

    def root(self) -> Tensor:
        """Return R with R Rᵀ = cov, (..., m, m). Cost: O(m³)."""
        return torch.zeros_like(self.white) if self.cov is None else jittered_cholesky(self.cov)

    def draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return weights c (m,) so that a prior draw of values (m,) at Z and cᵀz are a draw of f − mean.

        Source: Matheron's rule, Wilson et al., ICML 2020. Cost: O(m²), O(m³) at a dictionary.
        """
        normals = torch.randn(len(prior), generator=generator, dtype=torch.float64, device="cpu").to(self.mean)
        if self.noise is None:
            return self.root() @ normals - self.white @ prior.to(normals)
        return -self._own((self.white @ (prior.to(normals) + self.noise.sqrt() * normals)).unsqueeze(-1)).squeeze(-1)

    def is_finite(self) -> bool:
        """Say whether neither a kernel value nor a sum of rewards has made them NaN."""
        return bool(torch.isfinite(self.log_det).all() and torch.isfinite(self.mean).all())


class _Marginals(torch.autograd.Function):
    """Posterior means less prior means, and variances; along the kernel they rise by Wᵀ mean and −2 Wᵀ(z − cov z)."""

    @staticmethod
    def forward(context: Any, X: Tensor, strategy: PredictionStrategy, slope: Array) -> tuple[Tensor, Tensor]:
        at = strategy.at(X.detach())
        context.strategy, context.at, context.slope = strategy, at, slope
        return strategy.mean_at(at), strategy.variance(at)

    @staticmethod
    @once_differentiable
    def backward(context: Any, along_mean: Tensor, along_variance: Tensor) -> tuple[Tensor, None, None]:
        strategy, at, slope = context.strategy, context.at, context.slope
        along = strategy.mean.unsqueeze(-1) * along_mean - 2.0 * at.own * along_variance
        moved = (strategy.white.mT @ along) * formula_values(slope, strategy.basis, at.X)
        away = moved.mT @ strategy.basis - moved.sum(0).unsqueeze(-1) * at.X
        return torch.from_numpy(slope[0, HEAD:] ** 2) * away, None, None


def joined(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """Concatenate along ``dim`` after broadcasting the batch dimensions before it."""
    batch_shape = torch.broadcast_shapes(old.shape[:dim], new.shape[:dim])
    return torch.cat([part.expand(*batch_shape, *part.shape[dim:]) for part in (old, new)], dim=dim)


def in_double(kernel: Kernel) -> Kernel:
    """Return a kernel in double precision: itself, or a copy through which gradients reach its parameters."""
    places = [place for part in kernel.modules() for place in (part._parameters, part._buffers, vars(part))]
    tensors = [each for place in places for each in place.values() if isinstance(each, Tensor)]
    tensors = [each for each in tensors if each.is_floating_point()]
    if all(each.dtype == torch.float64 for each in tensors):
        return kernel
    return deepcopy(kernel, {id(each): each.double() for each in tensors})


def _inverse(factor: Tensor) -> Tensor:
    """Return the inverse of a lower triangular matrix (..., m, m)."""
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, identity, upper=False)


def _log_det(factor: Tensor) -> Tensor:
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)

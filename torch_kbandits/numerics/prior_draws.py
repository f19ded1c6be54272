"""Draws from the prior at fixed points: the expensive half of Matheron's rule, set up once."""

from abc import ABC, abstractmethod
from math import pi
from typing import Any, cast

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import seeded

#: Up to this many distinct points a prior draw comes from the joint covariance, beyond it from an approximation.
JOINT_LIMIT = 2000

#: Random Fourier features of a draw, two a frequency.
_FEATURES = 1024

#: Phases beyond this many radians are computed in double precision: below it single precision errs by 1e-3 at most.
_LARGEST_SINGLE_PHASE = 1e4

#: Rank of the low-rank part where the kernel has no random features, beside the points it must be exact at.
_RANK = 256

#: Points evaluated at a time, so that temporaries stay in cache.
_BLOCK = 2048


class PriorDraws(ABC):
    """Draws of a function with prior N(0, k) at fixed points; equal points get equal values.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        self._kernel = kernel
        self._points = points

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""


class JointDraws(PriorDraws):
    """Draws from the joint covariance. Cost: O(N³) once, O(N²) a draw."""

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(kernel, points)
        with torch.no_grad():
            self._factor = jittered_cholesky(gram(kernel, points))

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        return self._factor @ _normals(len(self._points), generator, self._points)


class FourierDraws(PriorDraws):
    """Draws by random Fourier features, fresh ones for each draw: Σ_j r_j cos(ω_jᵀx + φ_j) over F/2 frequencies.

    Over draws the mean is 0 and the covariance the prior's. Given its frequencies a draw is Gaussian with a covariance
    that is off by at most 1/√F, three per cent, of the prior variance in root mean square. So a draw that is
    conditioned on data has the posterior's mean and covariance too, but heavier tails than a normal distribution where
    the data leave a small part of the prior variance.

    Source: Rahimi and Recht, NeurIPS 2007; Sutherland and Schneider, UAI 2015 (the error); BoTorch's frequencies.
    Differs: the sine and the cosine of a frequency, with independent normal weights, are one cosine with a random
    amplitude and phase, which halves the cost; cosines are in single precision, whose rounding is far below the error
    of the features. Cost: O(N F d) time a draw, O(N) memory.

    Raises:
        UnsupportedError: if the kernel is not RBF or Matérn, scaled or not.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(kernel, points)
        base = kernel
        while type(base) is ScaleKernel:
            base = base.base_kernel
        # Subclasses may be other functions than their parents, whose features BoTorch would take for them.
        if type(base) not in (RBFKernel, MaternKernel):
            raise UnsupportedError(f"There are no random Fourier features of {type(base).__name__}.")
        with torch.no_grad():
            self._centred = points - points.mean(0)
            self._deviation = prior_variance(kernel, points[:1]).sqrt()

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        weights = _normals(_FEATURES, generator, self._points).reshape(2, -1)
        amplitudes = weights.norm(dim=0) * self._deviation * (2.0 / _FEATURES) ** 0.5
        phases = torch.atan2(weights[0], weights[1])
        with torch.no_grad():
            return _waves(self._centred, self._frequencies(generator), phases, amplitudes)

    def _frequencies(self, generator: torch.Generator) -> Tensor:
        """Return frequencies ω of the kernel's spectral density, (d, F/2)."""
        dimension = self._points.shape[-1]
        with seeded(int(torch.randint(2**31, (), generator=generator, device="cpu"))):
            features = gen_kernel_features(self._kernel, num_inputs=dimension, num_outputs=_FEATURES)
        to_inputs = cast(Any, features.input_transform)  # linear: selects active dimensions, divides by lengthscales
        directions = torch.eye(dimension, dtype=self._points.dtype, device=self._points.device)
        return to_inputs(directions) @ features.weight.mT


class LowRankDraws(PriorDraws):
    """Draws by pivoted Cholesky; what the low rank leaves is drawn independently for each point.

    The marginals are exact, and so is the covariance with the points ``first``. If the rank is not enough, other points
    close to each other are less correlated than under the prior. Cost: O(N r²) once, O(N r) a draw; O(N r) memory, for
    a rank r of at most 256 beside the number of points ``first``.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
        first: rows of the points that draws are to be conditioned at. Matheron's rule needs it: there independent
            residuals of neighbours would be taken for a steep slope and extrapolated.
    """

    def __init__(self, kernel: Kernel, points: Tensor, first: Tensor | None = None) -> None:
        super().__init__(kernel, points)
        with torch.no_grad():
            variance = prior_variance(kernel, points)
            least = 10.0 * torch.finfo(variance.dtype).eps * variance.max()
            exact = _embedding(kernel, points, first)
            root = variance.new_empty(min(len(exact) + _RANK, len(points)), len(points))
            rank = len(exact)
            root[:rank] = exact
            residual = (variance - exact.square().sum(0)).clamp_min(0.0)
            while rank < len(root) and bool(residual.max() > least):
                pivot = residual.argmax()
                column = gram(kernel, points[pivot, None], points).squeeze(0) - root[:rank, pivot] @ root[:rank]
                root[rank] = column / residual[pivot].sqrt()
                residual = (residual - root[rank].square()).clamp_min(0.0)
                residual[pivot] = 0.0
                rank += 1
            self._root = root[:rank].clone()
            self._residual_deviation = residual.sqrt()

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        explained = _normals(len(self._root), generator, self._points) @ self._root
        return explained + self._residual_deviation * _normals(len(self._points), generator, self._points)


def prior_draws(kernel: Kernel, points: Tensor, first: Tensor | None = None) -> PriorDraws:
    """Return the most exact draws that distinct points allow: joint, by Fourier features, by low rank.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
        first: rows of the points that draws are to be conditioned at, see ``LowRankDraws``.
    """
    if len(points) <= JOINT_LIMIT:
        return JointDraws(kernel, points)
    try:
        return FourierDraws(kernel, points)
    except UnsupportedError:
        return LowRankDraws(kernel, points, first)


def _normals(size: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64, device="cpu").to(like)


def _embedding(kernel: Kernel, points: Tensor, rows: Tensor | None) -> Tensor:
    """Return L⁻¹ k(Z, X) (m, N) for points X and the m of them in ``rows``, Z, with k(Z, Z) = L Lᵀ."""
    if rows is None or len(rows) == 0:
        return points.new_empty(0, len(points))
    rows = rows.unique()
    factor = jittered_cholesky(gram(kernel, points[rows]))
    embedding = torch.linalg.solve_triangular(factor, gram(kernel, points[rows], points), upper=False)
    embedding[:, rows] = factor.mT  # but for jitter the same: so the coordinates L⁻¹ g(Z) of a draw are what made it
    return embedding


def _waves(points: Tensor, frequencies: Tensor, phases: Tensor, amplitudes: Tensor) -> Tensor:
    """Return Σ_j r_j cos(ω_jᵀx + φ_j) at points (N, d) for ω (d, J), φ (J,) and r (J,), (N,)."""
    single = amplitudes.float()
    far = bool((points.abs().amax(0) @ frequencies.abs()).max() > _LARGEST_SINGLE_PHASE)
    if not far:
        points, frequencies, phases = points.float(), frequencies.float(), phases.float()
    values = single.new_empty(len(points))
    for block, out in zip(points.split(_BLOCK), values.split(_BLOCK), strict=True):
        angles = torch.addmm(phases, block, frequencies)
        angles = angles.remainder_(2.0 * pi).float() if far else angles
        torch.mv(angles.cos_(), single, out=out)
    return values.to(amplitudes)

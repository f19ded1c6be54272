"""Draws from the prior: as functions, by random Fourier features, and at fixed points, the half of Matheron's rule."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor
from torch.distributions import Gamma

from torch_kbandits.errors import InputError
from torch_kbandits.loops.kernel_loops import EXPONENTIAL, MATERN, SMOOTH, SQUARED
from torch_kbandits.numerics.formulas import Array, terms_of
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import seeded

#: Up to this many distinct points a prior draw comes from the joint covariance, beyond it from an approximation.
JOINT_LIMIT = 2000

#: Of that the rank where the kernel has no random features, and else their number, two a wave, a power of two.
_RANK, _FEATURES = 256, 1024

#: Points evaluated at a time in single and in double precision, so that temporaries stay in cache.
_BLOCK, _TILE = 512, 128

#: Smoothness of the factors that have a spectral density.
_NU = {SQUARED: math.inf, EXPONENTIAL: 0.5, MATERN: 1.5, SMOOTH: 2.5}

#: A prior variance, and the factors whose spectral densities are convolved; see ``formulas``.
Spectrum = tuple[float, list[Array]]

#: Of the odd polynomial in v that is −sin(2πv) within 3e-11 for |v| <= 1/4: it has these values at the zeros there of
#: the Chebyshev polynomial of degree 12.
_WAVE = (
    -6.283185307072263,
    41.341702116743804,
    -81.60522617401242,
    76.70427987543255,
    -42.00977929423924,
    14.39396624934298,
)


def spectrum_of(kernel: Kernel, dimension: int) -> Spectrum | None:
    """Return the spectrum of a kernel on points of d columns; None but for products of RBF and Matérn kernels."""
    try:
        with torch.no_grad():
            terms = terms_of(kernel, np.eye(dimension))
    except ValueError:
        return None
    is_known = len(terms) == 1 and all(row[0] in _NU for row in terms[0][1])
    return terms[0] if is_known else None


def drawn_function(kernel: Kernel, dimension: int, generator: torch.Generator) -> "RandomFourierFeatures":
    """Return a draw of the prior that is a function of the point (d,) alone.

    Raises:
        InputError: if the kernel has no random Fourier features.
    """
    spectrum = spectrum_of(kernel, dimension)
    if spectrum is None:
        while type(kernel) is ScaleKernel:
            kernel = kernel.base_kernel
        raise InputError(
            "Thompson sampling on arms in files, blocks or shards draws a sum of random waves, one function of all "
            f"points. There are no random Fourier features of {type(kernel).__name__}. Take RBFKernel or MaternKernel, "
            "scaled or not; or give Arms a tensor; or take UpperConfidenceRule, ExpectedImprovementRule or "
            "ProbabilityOfImprovementRule."
        )
    return RandomFourierFeatures.drawn(spectrum, generator)


def slope_of(kernel: Kernel, dimension: int) -> float:
    """Return L, the root of ∂²k/∂p∂q at p = q in the last of d columns: functions of norm B are B L-Lipschitz in it."""
    variance, factors = spectrum_of(kernel, dimension) or (0.0, [])
    if not factors or any(_NU[kind] < 1.0 for kind, *_ in factors):
        why = f'discretization_size="theory" needs the steepest slope of functions of {type(kernel).__name__}'
        raise InputError(f"{why}: take RBFKernel, or MaternKernel with nu of 1.5 or 2.5; or give a number of points.")
    squares = (scales[-1] ** 2 * (1.0 if kind == SQUARED else 0.5 / (_NU[kind] - 1.0)) for kind, _, *scales in factors)
    return math.sqrt(variance * sum(squares))


@dataclass(frozen=True, eq=False)
class RandomFourierFeatures:
    """A draw of a prior as a function, Σ_j r_j cos(2π(ω_jᵀx + φ_j)), in double precision.

    Over draws, with fresh frequencies for each, the mean is 0 and the covariance the prior's. Given its frequencies a
    draw is Gaussian with a covariance that is off by 1/√F, three per cent, of the prior variance in root mean square.
    So a draw that is conditioned on data has the posterior's mean and covariance, but heavier tails than a normal
    distribution where the data leave a small part of the prior variance.

    Source: Rahimi and Recht, NeurIPS 2007; Sutherland and Schneider, UAI 2015 (the error). Differs: frequencies are
    BoTorch's; a sine and a cosine with normal weights are one cosine with a random amplitude and phase.

    Attributes:
        frequencies: ω, in turns for each unit of x, (d, J); J is a power of two.
        phases: φ, in turns, (J,).
        amplitudes: r, (J,).
    """

    frequencies: Tensor
    phases: Tensor
    amplitudes: Tensor

    @classmethod
    def drawn(cls, spectrum: Spectrum, generator: torch.Generator) -> Self:
        """Return a draw of a prior with such a spectrum."""
        (variance, factors), number = spectrum, _FEATURES // 2
        weights = torch.randn(2, number, generator=generator, dtype=torch.float64, device="cpu")
        frequencies = weights.new_zeros(len(factors[0]) - 2, number)
        for kind, _, *scales in factors:
            columns = np.flatnonzero(scales)
            with seeded(int(torch.randint(2**31, (), generator=generator, device="cpu"))):
                drawn = draw_sobol_normal_samples(len(columns), number, weights.device, weights.dtype)
                if kind != SQUARED:
                    nu = drawn.new_tensor(_NU[kind])
                    drawn = drawn * (2.0 * nu * Gamma(nu, nu).rsample(torch.Size([number, 1]))).rsqrt()
            frequencies[columns] += drawn.mT * drawn.new_tensor(scales)[columns, None]
        turns = frequencies / (2.0 * math.pi), torch.atan2(weights[0], weights[1]) / (2.0 * math.pi)
        return cls(*turns, math.sqrt(variance / number) * weights.norm(dim=0))

    def at(self, points: Tensor) -> Tensor:
        """Return the values at points (N, d), (N,), in double precision. Cost: O(N J d), O(J) memory beside the result.

        The same point has the same bits in whatever blocks and order, on however many threads: every step is one
        product, sum or rounding of each element, which IEEE 754 says to the last bit, and waves are added pair by pair.
        """
        frequencies, phases, amplitudes = self._on(points.device)
        values = points.new_empty(len(points), dtype=torch.float64)
        for tile, out in zip(points.double().split(_TILE), values.split(_TILE), strict=True):
            turns = phases.unsqueeze(-1).repeat(1, len(tile))
            for frequency, column in zip(frequencies, tile.mT.contiguous(), strict=True):
                turns += frequency.unsqueeze(-1) * column
            turns -= turns.round()
            turns.abs_().sub_(0.25)  # of which the wave is the odd function that ``_WAVE`` knows
            square = turns * turns
            wave = square * _WAVE[-1]
            for coefficient in _WAVE[-2:0:-1]:
                wave.add_(coefficient).mul_(square)
            wave.add_(_WAVE[0]).mul_(turns).mul_(amplitudes.unsqueeze(-1))
            while len(wave) > 1:
                wave = wave[: len(wave) // 2] + wave[len(wave) // 2 :]
            out.copy_(wave[0])
        return values

    def quickly_at(self, points: Tensor) -> Tensor:
        """Return the values at points (N, d), (N,), with cosines in single precision: far below the error of a draw."""
        frequencies, phases, amplitudes = self._on(points.device)
        values = points.new_empty(len(points))
        for block, out in zip(points.split(_BLOCK), values.split(_BLOCK), strict=True):
            turns = torch.addmm(phases, block.double(), frequencies)
            turns -= turns.round()
            out.copy_(turns.float().mul_(2.0 * math.pi).cos_() @ amplitudes.float())
        return values

    def _on(self, device: torch.device) -> list[Tensor]:
        return [part.to(device) for part in (self.frequencies, self.phases, self.amplitudes)]


class PriorDraws:
    """Draws of a function with prior N(0, k) at fixed points; equal points get equal values.

    They are joint for up to ``JOINT_LIMIT`` points: O(N³) once, O(N²) a draw. For more they are made of random Fourier
    features, O(N F d) a draw, if the kernel has any; else by pivoted Cholesky of rank r, 256 beside ``first``, where
    what that leaves is drawn independently for each point: O(N r²) once, O(N r) a draw and memory. Then marginals are
    exact, and the covariance with the points ``first``, and others close to each other may be too little correlated.

    Args:
        kernel: the prior covariance.
        points: distinct, (N, d).
        first: rows of the points that draws are to be conditioned at, where independent residuals of neighbours would
            be taken for a steep slope. If ``is_for_first``, other rows need other draws.
    """

    def __init__(self, kernel: Kernel, points: Tensor, first: Tensor | None = None) -> None:
        is_joint = len(points) <= JOINT_LIMIT
        self.points, self._spectrum = points, None if is_joint else spectrum_of(kernel, points.shape[-1])
        self.is_for_first = not is_joint and self._spectrum is None
        with torch.no_grad():
            self._root = jittered_cholesky(gram(kernel, points)).mT if is_joint else points[:0]
            if self.is_for_first:
                self._root, self._deviation = _low_rank(kernel, points, first)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        if self._spectrum is not None:
            return RandomFourierFeatures.drawn(self._spectrum, generator).quickly_at(self.points)
        sizes = len(self._root), len(self.points) if self.is_for_first else 0
        parts = (torch.randn(size, generator=generator, dtype=torch.float64, device="cpu") for size in sizes)
        joint, own = (part.to(self.points) for part in parts)
        return joint @ self._root + self._deviation * own if self.is_for_first else joint @ self._root


def _low_rank(kernel: Kernel, points: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return R (r, N) and deviations (N,) so that k is nearly RᵀR, exactly in some rows, and their squares."""
    rows = torch.arange(0, device=points.device) if first is None else first.unique()
    factor = jittered_cholesky(gram(kernel, points[rows]))
    exact = torch.linalg.solve_triangular(factor, gram(kernel, points[rows], points), upper=False)
    exact[:, rows] = factor.mT  # but for jitter the same: so the coordinates L⁻¹ g(Z) of a draw are what made it
    variance, rank = prior_variance(kernel, points), len(rows)
    least = 10.0 * torch.finfo(variance.dtype).eps * variance.max()
    root = variance.new_empty(min(rank + _RANK, len(points)), len(points))
    root[:rank] = exact
    residual = (variance - exact.square().sum(0)).clamp_min(0.0)
    while rank < len(root) and bool(residual.max() > least):
        pivot = residual.argmax()
        column = gram(kernel, points[pivot, None], points).squeeze(0) - root[:rank, pivot] @ root[:rank]
        root[rank] = column / residual[pivot].sqrt()
        residual = (residual - root[rank].square()).clamp_min(0.0)
        residual[pivot] = 0.0
        rank += 1
    return root[:rank].clone(), residual.sqrt()

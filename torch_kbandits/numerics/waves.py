"""Draws from the prior as functions: sums of random waves, whose value at a point depends on nothing else."""

from copy import deepcopy
from dataclasses import dataclass
from functools import singledispatch
from math import pi
from typing import Any, cast

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.numerics.random import seeded

#: Random Fourier features of a draw, two a wave; a power of two.
_FEATURES = 1024

#: Points evaluated at a time in single and in double precision, so that temporaries stay in cache.
_BLOCK, _TILE = 2048, 128

#: Phases beyond this many radians are computed in double precision: below it single precision errs by 1e-3 at most.
_LARGEST_SINGLE_PHASE = 1e4

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


@dataclass(frozen=True, eq=False)
class Waves:
    """A function Σ_j r_j cos(2π(ω_jᵀx + φ_j)), in double precision.

    Attributes:
        frequencies: ω, in turns for each unit of x, (d, J); J is a power of two.
        phases: φ, in turns, (J,).
        amplitudes: r, (J,).
    """

    frequencies: Tensor
    phases: Tensor
    amplitudes: Tensor

    def at(self, points: Tensor) -> Tensor:
        """Return the values at points (N, d), (N,), in double precision.

        The same point has the same bits whatever others it is evaluated with, in whatever blocks and order, on however
        many threads: every step is one product, sum or rounding of each element, which IEEE 754 says to the last bit,
        and waves are added pair by pair in an order of their own. Matrix products promise that for one shape at most.

        Cost: O(N J d) time, O(J) memory beside the result; twice the time of a cosine in double precision.
        """
        frequencies, phases, amplitudes = (
            part.to(points.device) for part in (self.frequencies, self.phases, self.amplitudes)
        )
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

    def quickly_at(self, points: Tensor, centre: Tensor) -> Tensor:
        """Return the values at points (N, d) less a centre (d,), to single precision, (N,), in the dtype of the points.

        Its rounding is far below the error of the waves, and near the centre cosines take half the time.
        """
        kind: dict[str, Any] = {"device": points.device, "dtype": points.dtype}
        phases = (self.phases + centre.to(self.frequencies) @ self.frequencies).frac()
        frequencies, phases = (2.0 * pi * self.frequencies).to(**kind), (2.0 * pi * phases).to(**kind)
        amplitudes = self.amplitudes.to(points.device, torch.float32)
        far = bool((points.abs().amax(0) @ frequencies.abs()).max() > _LARGEST_SINGLE_PHASE)
        if not far:
            points, frequencies, phases = points.float(), frequencies.float(), phases.float()
        values = amplitudes.new_empty(len(points))
        for block, out in zip(points.split(_BLOCK), values.split(_BLOCK), strict=True):
            angles = torch.addmm(phases, block, frequencies)
            angles = angles.remainder_(2.0 * pi).float() if far else angles
            torch.mv(angles.cos_(), amplitudes, out=out)
        return values.to(**kind)


@singledispatch
def wave_frequencies(kernel: Kernel, dimension: int, number: int, generator: torch.Generator) -> Tensor:
    """Draw frequencies from the spectral density of a kernel, in radians for each unit of x, (d, J).

    ``wave_frequencies.register`` takes those of kernels of your own.

    Args:
        kernel: in double precision on the CPU.
        dimension: d.
        number: J.
        generator: all randomness.

    Raises:
        UnsupportedError: if the kernel is not RBF or Matérn, scaled or not, nor a product of such, nor registered.
    """
    if type(kernel) is ProductKernel and kernel.active_dims is None:
        return sum(
            (wave_frequencies(cast(Kernel, each), dimension, number, generator) for each in kernel.kernels),
            start=torch.zeros(dimension, number, dtype=torch.float64, device="cpu"),
        )
    if type(kernel) is ScaleKernel and kernel.active_dims is None:  # a factor leaves the shape of the density
        return wave_frequencies(kernel.base_kernel, dimension, number, generator)
    base = kernel
    while type(base) is ScaleKernel:
        base = base.base_kernel
    # Subclasses may be other functions than their parents, whose features BoTorch would take for them.
    if type(base) not in (RBFKernel, MaternKernel):
        raise UnsupportedError(f"There are no random Fourier features of {type(base).__name__}.")
    with torch.no_grad(), seeded(int(torch.randint(2**31, (), generator=generator, device="cpu"))):
        features = gen_kernel_features(kernel, num_inputs=dimension, num_outputs=2 * number)
        # It is linear: it selects active dimensions and divides by lengthscales.
        to_inputs = cast(Any, features.input_transform)
        return to_inputs(torch.eye(dimension, dtype=torch.float64, device="cpu")) @ features.weight.mT


def has_waves(kernel: Kernel, dimension: int) -> bool:
    """Say whether there are random Fourier features of a kernel on points of a dimension."""
    try:
        wave_frequencies(kernel, dimension, 2, torch.Generator())
    except UnsupportedError:
        return False
    return True


class WavePrior:
    """A prior N(0, k) of which draws are made of waves, fresh ones for each: random Fourier features.

    Over draws the mean is 0 and the covariance the prior's. Given its frequencies a draw is Gaussian with a covariance
    that is off by at most 1/√F, three per cent, of the prior variance in root mean square. So a draw that is
    conditioned on data has the posterior's mean and covariance too, but heavier tails than a normal distribution where
    the data leave a small part of the prior variance.

    Source: Rahimi and Recht, NeurIPS 2007; Sutherland and Schneider, UAI 2015 (the error); BoTorch's frequencies.
    Differs: the sine and the cosine of a frequency, with independent normal weights, are one cosine with a random
    amplitude and phase, which halves the cost.

    Args:
        kernel: the prior covariance; a copy is kept.
        dimension: d.

    Raises:
        UnsupportedError: if there are no waves of the kernel; see ``wave_frequencies``.
    """

    def __init__(self, kernel: Kernel, dimension: int) -> None:
        # In double precision on the CPU, whatever the points are: so a draw depends on kernel and generator alone.
        self._kernel, self._dimension = deepcopy(kernel).to("cpu", torch.float64), dimension
        self.draw(torch.Generator())

    def draw(self, generator: torch.Generator) -> Waves:
        """Return a fresh draw."""
        weights = torch.randn(2, _FEATURES // 2, generator=generator, dtype=torch.float64, device="cpu")
        phases = torch.atan2(weights[0], weights[1])
        with torch.no_grad():
            somewhere = torch.zeros(1, self._dimension, dtype=torch.float64, device="cpu")
            amplitudes = weights.norm(dim=0) * (2.0 / _FEATURES * prior_variance(self._kernel, somewhere)).sqrt()
            frequencies = wave_frequencies(self._kernel, self._dimension, _FEATURES // 2, generator)
        return Waves(frequencies / (2.0 * pi), phases / (2.0 * pi), amplitudes)

"""Draws from the prior at fixed points: the expensive half of Matheron's rule, set up once."""

from abc import ABC, abstractmethod
from copy import deepcopy

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.gram import gram, prior_variance
from torch_kbandits.linalg import jittered_cholesky

#: Up to this many distinct points a prior draw comes from the joint covariance, beyond it from an approximation.
JOINT_LIMIT = 2000

#: Random Fourier features of a draw: the covariance is off by about 1/√F, one per cent, of the prior variance.
_FEATURES = 1024

#: Rank of the low-rank part where the kernel has no random features.
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
    """Draws by random Fourier features, fresh ones for each draw, so that their error averages out over draws.

    Source: Rahimi and Recht, NeurIPS 2007; BoTorch's features. Differs: the features are evaluated in single precision,
    whose rounding is far below the error of the features. Cost: O(N F d) time a draw, O(N) memory.

    Raises:
        UnsupportedError: if BoTorch has no features for the kernel.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(deepcopy(kernel).float(), points.float())
        self._like = points[:0, 0]
        try:
            with torch.no_grad(), manual_seed(0):
                gen_kernel_features(self._kernel, num_inputs=points.shape[-1], num_outputs=2)
        except NotImplementedError as error:
            raise UnsupportedError(f"There are no random features of {type(kernel).__name__}.") from error

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        weights = _normals(_FEATURES, generator, self._points)
        seed = int(torch.randint(2**31, (), generator=generator))
        with torch.no_grad(), manual_seed(seed):
            features = gen_kernel_features(self._kernel, num_inputs=self._points.shape[-1], num_outputs=_FEATURES)
            return torch.cat([features(block) @ weights for block in self._points.split(_BLOCK)]).to(self._like)


class LowRankDraws(PriorDraws):
    """Draws by pivoted Cholesky; what the low rank leaves is drawn independently for each point.

    The marginals are exact. If the rank is not enough, points close to each other are less correlated than under the
    prior. Cost: O(N r²) once, O(N r) a draw; O(N r) memory.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(kernel, points)
        with torch.no_grad():
            residual = prior_variance(kernel, points).clone()
            least = torch.finfo(residual.dtype).eps * residual.max()
            root = residual.new_empty(min(_RANK, len(points)), len(points))
            rank = 0
            while rank < len(root) and bool(residual.max() > least):
                pivot = residual.argmax()
                column = gram(kernel, points[pivot, None], points).squeeze(0) - root[:rank, pivot] @ root[:rank]
                root[rank] = column / residual[pivot].sqrt()
                residual = (residual - root[rank].square()).clamp_min(0.0)
                rank += 1
            self._root = root[:rank].clone()
            self._residual_deviation = residual.sqrt()

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        explained = _normals(len(self._root), generator, self._points) @ self._root
        return explained + self._residual_deviation * _normals(len(self._points), generator, self._points)


def prior_draws(kernel: Kernel, points: Tensor) -> PriorDraws:
    """Return the most exact draws that distinct points (N, d) allow: joint, by Fourier features, by low rank."""
    if len(points) <= JOINT_LIMIT:
        return JointDraws(kernel, points)
    try:
        return FourierDraws(kernel, points)
    except UnsupportedError:
        return LowRankDraws(kernel, points)


def distinct(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows (U, d) of points (N, d) and for each row which of them it is, (N,)."""
    return torch.unique(points + 0.0, dim=0, return_inverse=True)


def _normals(size: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64).to(like)

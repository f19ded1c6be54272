import hashlib

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import Candidates
from torch_kbandits.candidates.covariances import CovarianceTable
from torch_kbandits.candidates.features import FeatureTable
from torch_kbandits.candidates.table import TableBelief
from torch_kbandits.errors import InputError

#: Up to this many arms an exact posterior is kept as the covariance of all of them.
COVARIANCE_LIMIT = 512


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

    def belief(self, kernel: Kernel, regularization: float, seed: int, *, exact: bool) -> TableBelief:
        """Return the table before any observation: of covariances if that is exact and small, else of features."""
        if exact and len(self.arms) <= COVARIANCE_LIMIT and self.arms.dtype == torch.float64:
            return CovarianceTable(self.arms, kernel, regularization, seed)
        return FeatureTable(self.arms, kernel, regularization, seed, self.column_memory, exact=exact)

    def describe(self) -> dict[str, object]:
        """Return the shape, dtype and a digest of the arms."""
        return {"arms": f"{tuple(self.arms.shape)} {self.arms.dtype} {digest(self.arms)}"}


def digest(values: Tensor) -> str:
    """Return a short fingerprint of the exact bytes of a tensor."""
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]

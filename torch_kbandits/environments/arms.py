"""Problems on fixed arms."""

from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arm_index import ArmIndex, rows_of
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.options import check_size
from torch_kbandits.environments.problem import Known
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


class FiniteArms(Environment):
    """Arms with known means and Gaussian noise; regret is measured against the means.

    Args:
        arms: (A, d); an arm that stands twice must have one mean.
        means: expected rewards (A,), in reward units.
        noise_scale: standard deviation of the noise, at least 0.
        seed: addresses the noise.
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.

    Cost: O(A d) time and memory once; then O(d) a row of any call, whatever A.
    """

    arms: Tensor

    def __init__(
        self,
        arms: Tensor,
        means: Tensor,
        noise_scale: float,
        seed: int,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, **known)
        self._index = ArmIndex(arms)
        means = self._index.checked_means(means)
        self.arms, self.means, self.best_mean = self._index.arms, means, means.max()

    def indices(self, X: Tensor) -> list[int]:
        """Return the positions among the arms of the rows of X (q, d); of equal arms, the first.

        Raises:
            InputError: if a row is no arm.
        """
        return self._index.find(X)

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of arms X (q, d).

        Raises:
            InputError: if a row is no arm.
        """
        return rows_of(self.means, self.indices(X))

    def rewards_of_arms(self, rounds: range) -> Tensor | None:
        """Return the reward that each arm would have if it were the one that is played in a round, (r, A).

        None where that is not known beforehand: where the noise is of another kind, and in a class that has its own
        ``pull``, ``mean`` or ``rewards``.
        """
        return self._with_noise(self.means, rounds) if self._has_methods_of(FiniteArms) else None


def gaussian_bumps(
    num_arms: int = 1000,
    dimension: int = 2,
    *,
    num_bumps: int = 30,
    lengthscale: float = 0.5,
    noise_scale: float = 0.1,
    seed: int,
    dtype: torch.dtype = torch.float64,
) -> FiniteArms:
    """Sum of Gaussian bumps on arms uniform in [0, 1]^d, its means scaled to [0, 1].

    Args:
        num_arms: A.
        dimension: d.
        num_bumps: how many, with normal heights and uniform centres.
        lengthscale: of every bump, exp(−‖x − c‖² / (2 lengthscale²)).
        noise_scale: standard deviation of the noise.
        seed: addresses arms, bumps and noise.
        dtype: of the arms and the means.
    """
    if (num_arms := checks.positive_integer("num_arms", num_arms)) < 2:
        raise InputError("num_arms must be at least 2: the means of one arm cannot be scaled to [0, 1].")
    dimension = checks.positive_integer("dimension", dimension)
    num_bumps = checks.positive_integer("num_bumps", num_bumps)
    lengthscale = checks.positive("lengthscale", lengthscale)
    check_size("num_arms × dimension", num_arms, dimension)
    check_size("num_bumps × dimension", num_bumps, dimension)
    check_size("num_arms × num_bumps", num_arms, num_bumps)
    generator = generator_for(seed, 0, "gaussian bumps")
    arms = torch.rand(num_arms, dimension, generator=generator, dtype=torch.float64, device="cpu")
    centres = torch.rand(num_bumps, dimension, generator=generator, dtype=torch.float64, device="cpu")
    heights = torch.randn(num_bumps, generator=generator, dtype=torch.float64, device="cpu")
    means = torch.exp(-torch.cdist(arms, centres).square() / (2.0 * lengthscale**2)) @ heights
    means = (means - means.min()) / (means.max() - means.min())
    return FiniteArms(arms.to(dtype), means.to(dtype), noise_scale, seed)

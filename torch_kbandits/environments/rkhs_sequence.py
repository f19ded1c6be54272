"""Functions of a kernel's RKHS that change from round to round."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.covariances import stationary_kernel
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.options import check_size
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

#: s², in the posterior mean that a random function is.
_POSTERIOR_NOISE = 0.01


class RKHSSequence(DynamicEnvironment, ABC):
    """Functions f_t = Σ_j w_tj k(·, z_j) of one norm ρ, on random arms; a subclass says what the weights do.

    Arms (A, d) and centres z (m, d) are uniform in [0, 1]^d. A random function is made as in ``rkhs_function``: the
    posterior mean of a Gaussian process given a draw of it at the centres, then scaled to the norm ρ. Norms and inner
    products come from the weights and the Gram matrix of the centres, so they are exact: ⟨f, g⟩ = wᵀKv.

    Args:
        num_arms: A.
        dimension: d.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", with k(x, x) = 1.
        lengthscale: of the kernel.
        num_centres: m.
        norm: ρ, the RKHS norm of every f_t, in reward units.
        noise_scale: standard deviation of the noise; λ is its square, and None without noise.
        seed: addresses arms, centres, functions and noise.

    Cost: O(m³ + A m) once, O(A m) a round.
    """

    def __init__(
        self,
        num_arms: int,
        dimension: int,
        kernel: str,
        lengthscale: float,
        num_centres: int,
        norm: float,
        noise_scale: float,
        seed: int,
    ) -> None:
        prior = stationary_kernel(kernel, lengthscale)
        generator = generator_for(checks.whole_number("seed", seed), 0, "rkhs sequence")
        shape = checks.positive_integer("num_arms", num_arms), checks.positive_integer("dimension", dimension)
        number = checks.positive_integer("num_centres", num_centres)
        check_size("num_arms × dimension", *shape)
        check_size("num_centres × dimension", number, shape[1])
        check_size("num_arms × num_centres", shape[0], number)
        check_size("num_centres × num_centres", number, number)
        arms = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
        super().__init__(
            arms,
            noise_scale,
            seed,
            kernel=prior,
            regularization=checks.non_negative("noise_scale", noise_scale) ** 2 or None,
            norm_bound=checks.positive("norm", norm),
        )
        self.norm = float(norm)
        self.centres = torch.rand(number, dimension, generator=generator, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            self._gram = gram(prior, self.centres)
            self._columns = gram(prior, arms, self.centres)
        self._factor = jittered_cholesky(self._gram)
        self._noisy_factor = jittered_cholesky(self._gram + _POSTERIOR_NOISE * torch.eye(number, dtype=arms.dtype))

    @abstractmethod
    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round."""
        return self._columns @ self.weights(round)

    def variation_budget(self, rounds: int) -> float:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ in the RKHS, over the first T = ``rounds``. Cost: O(T m²)."""
        weights = torch.stack([self.weights(round) for round in range(checks.positive_integer("rounds", rounds))])
        changes = weights.diff(dim=0)
        # Rounding may turn the form of a change of nothing negative.
        return float(((changes @ self._gram) * changes).sum(1).clamp_min(0.0).sqrt().sum())

    def random_weights(self, number: int, *orthogonal_to: Tensor) -> Tensor:
        """Return the weights (m,) of the random function of some number, of norm ρ.

        Args:
            number: addresses the draw, with the seed.
            orthogonal_to: weights (m,) of functions of norm ρ that are orthogonal to each other; the function is
                orthogonal to all of them.
        """
        generator = generator_for(self.seed, number, "function of a sequence")
        normals = torch.randn(len(self.centres), 1, generator=generator, dtype=torch.float64, device="cpu")
        weights = torch.cholesky_solve(self._factor @ normals, self._noisy_factor).squeeze(-1)
        for other in orthogonal_to:
            weights = weights - other * (other @ self._gram @ weights) / self.norm**2
        return self.scaled(weights)

    def scaled(self, weights: Tensor) -> Tensor:
        """Return the weights (m,) of a multiple of a function that has the norm ρ."""
        return weights * (self.norm / (weights @ self._gram @ weights).sqrt())

"""Random functions of a kernel's RKHS on random arms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.covariances import stationary_kernel
from torch_kbandits.environments.options import check_size
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

#: s², in the posterior mean that a random function is.
_POSTERIOR_NOISE = 0.01


class RKHSFunctions:
    """Functions f = Σ_j w_j k(·, z_j) of one norm ρ, on random arms.

    Arms (A, d) and centres z (m, d) are uniform in [0, 1]^d. A random function is made as in ``rkhs_function``: the
    posterior mean of a Gaussian process given a draw of it at the centres, then scaled to the norm ρ. Norms and inner
    products come from the weights and the Gram matrix of the centres, so they are exact: ⟨f, g⟩ = wᵀKv.

    Args:
        num_arms: A.
        dimension: d.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", with k(x, x) = 1.
        lengthscale: of the kernel.
        num_centres: m.
        norm: ρ, the RKHS norm of every function, in reward units.
        seed: addresses arms, centres and functions.

    Cost: O(m³ + A m) once.
    """

    def __init__(
        self,
        num_arms: int,
        dimension: int,
        kernel: str,
        lengthscale: float,
        num_centres: int,
        norm: float,
        seed: int,
    ) -> None:
        self.kernel = stationary_kernel(kernel, lengthscale)
        self.seed = checks.whole_number("seed", seed)
        generator = generator_for(self.seed, 0, "rkhs sequence")
        shape = checks.positive_integer("num_arms", num_arms), checks.positive_integer("dimension", dimension)
        number = checks.positive_integer("num_centres", num_centres)
        check_size("num_arms × dimension", *shape)
        check_size("num_centres × dimension", number, shape[1])
        check_size("num_arms × num_centres", shape[0], number)
        check_size("num_centres × num_centres", number, number)
        self.norm = checks.positive("norm", norm)
        self.arms = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
        self.centres = torch.rand(number, dimension, generator=generator, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            self._gram = gram(self.kernel, self.centres)
            self._columns = gram(self.kernel, self.arms, self.centres)
        self._factor = jittered_cholesky(self._gram)
        self._noisy_factor = jittered_cholesky(self._gram + _POSTERIOR_NOISE * torch.eye(number, dtype=torch.float64))

    def on_arms(self, weights: Tensor) -> Tensor:
        """Return the values (A,) of the function with weights (m,) at the arms. Cost: O(A m)."""
        return self._columns @ weights

    def words(self, weights: Callable[[int], Tensor], noise_scale: float) -> dict[str, Any]:
        """Return the words by which a ``DynamicEnvironment`` is told of functions whose weights change.

        Args:
            weights: returns those of a round, (m,).
            noise_scale: standard deviation of the noise; λ is its square, and None without noise.
        """
        return {
            "arms": self.arms,
            "noise_scale": noise_scale,
            "seed": self.seed,
            "kernel": self.kernel,
            "regularization": checks.non_negative("noise_scale", noise_scale) ** 2 or None,
            "norm_bound": self.norm,
            "variation_budget": partial(self._variation_budget, weights),
        }

    def random(self, number: int, *orthogonal_to: Tensor) -> Tensor:
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

    def _variation_budget(self, weights: Callable[[int], Tensor], rounds: int) -> float:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the first T = ``rounds``, given the weights (m,) of each round."""
        changes = torch.stack([weights(round) for round in range(rounds)]).diff(dim=0)
        # Rounding may turn the form of a change of nothing negative.
        return float(((changes @ self._gram) * changes).sum(1).clamp_min(0.0).sqrt().sum())

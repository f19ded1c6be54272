"""Functions drawn from a kernel on random arms: paper 002's synthetic problems."""

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arms import FiniteArms
from torch_kbandits.environments.covariances import norm_of_values, norm_of_weights, stationary_kernel
from torch_kbandits.environments.options import check_size, choice
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for


def rkhs_function(
    num_arms: int = 100,
    dimension: int = 1,
    *,
    kernel: str = "rbf",
    lengthscale: float = 0.2,
    posterior_noise: float = 0.01,
    noise_fraction: float = 0.01,
    norm: str = "rkhs",
    seed: int,
) -> FiniteArms:
    """Function in a kernel's RKHS on random arms: the posterior mean of a GP given a draw of it.

    Arms are uniform in [0, 1]^d, y ~ N(0, K) and f = Kα with α = (K + s²I)⁻¹y. So f lies in the RKHS and its norm
    ‖f‖² = αᵀKα is exact, without inverting K.

    Source: Chowdhury & Gopalan, ICML 2017, §6. Differs: s², on which the paper is silent, is ``posterior_noise``; the
    bound B is the RKHS norm √(fᵀK⁻¹f), where the paper prints B² = fᵀKf (``norm="printed"``).

    Args:
        num_arms: A, at least 2.
        dimension: d.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", with k(x, x) = 1.
        lengthscale: of the kernel.
        posterior_noise: s² > 0, reward units squared.
        noise_fraction: R² as a fraction of the range of f; the paper's 1% mixes units and is taken as printed.
        norm: "rkhs" or "printed": what ``norm_bound`` is.
        seed: addresses arms, function and noise.

    Returns:
        The problem; regularization λ = R², center 0.

    Cost: O(A³).
    """
    choice("norm", norm, ("rkhs", "printed"))
    noise = checks.positive("posterior_noise", posterior_noise)
    arms, prior, covariance, draw = _prior_draw("rkhs function", num_arms, dimension, kernel, lengthscale, seed)
    factor = jittered_cholesky(covariance + noise * torch.eye(len(arms), dtype=arms.dtype))
    weights = torch.cholesky_solve(draw.unsqueeze(-1), factor).squeeze(-1)
    return _problem(arms, covariance @ weights, prior, noise_fraction, norm_of_weights(covariance, weights, norm), seed)


def gp_sample(
    num_arms: int = 100,
    dimension: int = 1,
    *,
    kernel: str = "rbf",
    lengthscale: float = 0.2,
    noise_fraction: float = 0.01,
    norm: str = "rkhs",
    seed: int,
) -> FiniteArms:
    """Sample of a Gaussian process on random arms: f ~ N(0, K).

    A sample is almost surely not in the RKHS of its kernel. On A arms √(fᵀK⁻¹f) is the norm of the smoothest function
    through it: √χ²_A, about √A, so it grows without bound with A. K is used with the least jitter that lets it be
    factorised, both for the sample and for its norm.

    Source: Chowdhury & Gopalan, ICML 2017, §6. Differs: B as in ``rkhs_function``.

    Args:
        num_arms: A, at least 2, uniform in [0, 1]^d.
        dimension: d.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", with k(x, x) = 1.
        lengthscale: of the kernel.
        noise_fraction: R² as a fraction of the range of f, as printed.
        norm: "rkhs" or "printed": what ``norm_bound`` is.
        seed: addresses arms, function and noise.

    Returns:
        The problem; regularization λ = R², center 0.

    Cost: O(A³).
    """
    choice("norm", norm, ("rkhs", "printed"))
    arms, prior, covariance, draw = _prior_draw("gp sample", num_arms, dimension, kernel, lengthscale, seed)
    return _problem(arms, draw, prior, noise_fraction, norm_of_values(covariance, draw, norm), seed)


def _prior_draw(
    purpose: str, num_arms: int, dimension: int, kernel: str, lengthscale: float, seed: int
) -> tuple[Tensor, Kernel, Tensor, Tensor]:
    """Return uniform arms (A, d), the kernel, its Gram matrix (A, A) and a draw of N(0, K), (A,)."""
    if (num_arms := checks.positive_integer("num_arms", num_arms)) < 2:
        raise InputError("num_arms must be at least 2: the noise is a fraction of the range of the means.")
    dimension = checks.positive_integer("dimension", dimension)
    check_size("num_arms × num_arms", num_arms, num_arms)
    check_size("num_arms × dimension", num_arms, dimension)
    prior = stationary_kernel(kernel, lengthscale)
    generator = generator_for(checks.whole_number("seed", seed), 0, purpose)
    arms = torch.rand(num_arms, dimension, generator=generator, dtype=torch.float64, device="cpu")
    normals = torch.randn(num_arms, generator=generator, dtype=torch.float64, device="cpu")
    with torch.no_grad():
        covariance = gram(prior, arms)
    return arms, prior, covariance, jittered_cholesky(covariance) @ normals


def _problem(
    arms: Tensor, means: Tensor, kernel: Kernel, noise_fraction: float, norm_bound: float | None, seed: int
) -> FiniteArms:
    noise_variance = checks.positive("noise_fraction", noise_fraction) * float(means.max() - means.min())
    return FiniteArms(
        arms,
        means,
        math.sqrt(noise_variance),
        seed,
        kernel=kernel,
        regularization=noise_variance,
        norm_bound=norm_bound,
    )

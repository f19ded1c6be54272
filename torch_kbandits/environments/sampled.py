"""Functions drawn at random on random arms: sums of bumps, and paper 002's draws from a kernel."""

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arms import FiniteArms
from torch_kbandits.environments.options import NORMS, check_size, choice, norm_of_values, root_of, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for


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
        num_arms: A, at least 2.
        dimension: d.
        num_bumps: how many, with normal heights and uniform centres.
        lengthscale: of every bump, exp(−‖x − c‖² / (2 lengthscale²)).
        noise_scale: standard deviation of the noise.
        seed: addresses arms, bumps and noise.
        dtype: of the arms and the means.
    """
    num_bumps, dtype = checks.positive_integer("num_bumps", num_bumps), checks.precision("dtype", dtype)
    lengthscale = checks.scale("lengthscale", lengthscale)
    arms, generator = _uniform_arms("gaussian bumps", num_arms, dimension, seed)
    check_size("num_bumps × dimension", num_bumps, arms.shape[1])
    check_size("num_arms × num_bumps", len(arms), num_bumps)
    centres = torch.rand(num_bumps, arms.shape[1], generator=generator, dtype=torch.float64, device="cpu")
    heights = torch.randn(num_bumps, generator=generator, dtype=torch.float64, device="cpu")
    means = torch.exp(-torch.cdist(arms, centres).square() / (2.0 * lengthscale**2)) @ heights
    spread = means.max() - means.min()
    if not float(spread) > 0.0:
        raise InputError(f"With a lengthscale of {lengthscale:g} the bumps are constant over the arms: give another.")
    return FiniteArms(arms.to(dtype), ((means - means.min()) / spread).to(dtype), noise_scale, seed)


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
    noise = checks.positive("posterior_noise", posterior_noise)
    choice("norm", norm, NORMS)
    arms, prior, covariance, draw = _prior_draw("rkhs function", num_arms, dimension, kernel, lengthscale, seed)
    factor = jittered_cholesky(covariance + noise * torch.eye(len(arms), dtype=arms.dtype))
    weights = torch.cholesky_solve(draw.unsqueeze(-1), factor).squeeze(-1)
    means = covariance @ weights
    bound = root_of(weights @ covariance @ weights) if norm == "rkhs" else norm_of_values(covariance, means, norm)
    return _problem(arms, means, prior, noise_fraction, bound, seed)


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

    Arguments, result and cost are those of ``rkhs_function``.
    """
    choice("norm", norm, NORMS)
    arms, prior, covariance, draw = _prior_draw("gp sample", num_arms, dimension, kernel, lengthscale, seed)
    return _problem(arms, draw, prior, noise_fraction, norm_of_values(covariance, draw, norm), seed)


def _uniform_arms(purpose: str, num_arms: int, dimension: int, seed: int) -> tuple[Tensor, torch.Generator]:
    """Return arms uniform in [0, 1]^d, (A, d), and the generator that drew them."""
    if (num_arms := checks.positive_integer("num_arms", num_arms)) < 2:
        raise InputError("num_arms must be at least 2: means are scaled, or noise is measured, by their range.")
    dimension = checks.positive_integer("dimension", dimension)
    check_size("num_arms × dimension", num_arms, dimension)
    generator = generator_for(checks.whole_number("seed", seed), 0, purpose)
    return torch.rand(num_arms, dimension, generator=generator, dtype=torch.float64, device="cpu"), generator


def _prior_draw(
    purpose: str, num_arms: int, dimension: int, kernel: str, lengthscale: float, seed: int
) -> tuple[Tensor, Kernel, Tensor, Tensor]:
    """Return uniform arms (A, d), the kernel, its Gram matrix (A, A) and a draw of N(0, K), (A,)."""
    prior = stationary_kernel(kernel, lengthscale)
    number = checks.positive_integer("num_arms", num_arms)
    check_size("num_arms × num_arms", number, number)
    arms, generator = _uniform_arms(purpose, number, dimension, seed)
    normals = torch.randn(number, generator=generator, dtype=torch.float64, device="cpu")
    with torch.no_grad():
        covariance = gram(prior, arms)
    return arms, prior, covariance, jittered_cholesky(covariance) @ normals


def _problem(
    arms: Tensor, means: Tensor, kernel: Kernel, noise_fraction: float, norm_bound: float | None, seed: int
) -> FiniteArms:
    variance = checks.positive("noise_fraction", noise_fraction) * float(means.max() - means.min())
    known = {"kernel": kernel, "regularization": variance, "norm_bound": norm_bound}
    return FiniteArms(arms, means, math.sqrt(variance), seed, **known)

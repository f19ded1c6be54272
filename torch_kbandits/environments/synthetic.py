"""Problems that are made up: sums of bumps, draws from a kernel, BoTorch's test functions."""

import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from botorch.generation import gen_candidates_scipy
from botorch.test_functions import synthetic
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.options import NORMS, check_size, norm_of_values, pick, root_of, stationary_kernel
from torch_kbandits.environments.problems import BoxFunction, FiniteArms
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

_NUM_BUMPS = 30
#: s², in the posterior mean that a random function of an RKHS is.
POSTERIOR_NOISE = 0.01
#: Points that stand for a box when the range, mean and variance of a function over it are measured.
_SAMPLE_SIZE = 8192
_NAMES = """Ackley Beale Branin Bukin Cosine8 DixonPrice DropWave EggHolder Griewank Hartmann HolderTable Levy
Michalewicz Powell Rastrigin Rosenbrock Shekel SixHumpCamel StyblinskiTang ThreeHumpCamel"""
_FUNCTIONS: dict[str, type[SyntheticTestFunction]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): getattr(synthetic, name) for name in _NAMES.split()
}


def gaussian_bumps(
    num_arms: int = 1000,
    dimension: int = 2,
    *,
    lengthscale: float = 0.5,
    noise_scale: float = 0.1,
    seed: int,
    dtype: torch.dtype = torch.float64,
) -> FiniteArms:
    """Sum of Gaussian bumps on arms uniform in [0, 1]^d, its means scaled to [0, 1].

    There are 30 bumps exp(−‖x − c‖² / (2 lengthscale²)), with normal heights and uniform centres c. ``noise_scale`` is
    the standard deviation of the noise, ``dtype`` that of the A arms (A, d) and their means; the seed addresses all.
    """
    dtype, lengthscale = checks.precision("dtype", dtype), checks.scale("lengthscale", lengthscale)
    arms, generator = uniform_arms("gaussian bumps", num_arms, dimension, seed, columns=_NUM_BUMPS)
    centres = torch.rand(_NUM_BUMPS, arms.shape[1], generator=generator, dtype=torch.float64, device="cpu")
    heights = torch.randn(_NUM_BUMPS, generator=generator, dtype=torch.float64, device="cpu")
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
    noise_fraction: float = 0.01,
    norm: str = "rkhs",
    seed: int,
) -> FiniteArms:
    """Function in a kernel's RKHS on random arms: the posterior mean of a GP given a draw of it. Cost: O(A³).

    Arms are uniform in [0, 1]^d, y ~ N(0, K) and f = Kα with α = (K + s²I)⁻¹y. So f lies in the RKHS and its norm
    ‖f‖² = αᵀKα is exact, without inverting K. Regularization λ = R², center 0.

    Source: Chowdhury & Gopalan, ICML 2017, §6. Differs: s², on which the paper is silent, is 0.01; the bound B is the
    RKHS norm √(fᵀK⁻¹f), where the paper prints B² = fᵀKf (``norm="printed"``).

    A ``kernel``, "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", has k(x, x) = 1. ``noise_fraction`` is R² as a
    fraction of the range of f; the paper's 1% mixes units and is taken as printed. The seed addresses all.
    """
    pick("norm", "norm", norm, NORMS)
    arms, prior, covariance, draw = _prior_draw("rkhs function", num_arms, dimension, kernel, lengthscale, seed)
    factor = jittered_cholesky(covariance + POSTERIOR_NOISE * torch.eye(len(arms), dtype=arms.dtype))
    weights = torch.cholesky_solve(draw.unsqueeze(-1), factor).squeeze(-1)
    means = covariance @ weights
    bound = root_of(weights @ means) if norm == "rkhs" else norm_of_values(covariance, means, norm)
    return _on_arms(arms, means, noise_fraction, seed, kernel=prior, norm_bound=bound)


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

    A sample is almost surely not in the RKHS of its kernel: √(fᵀK⁻¹f), the norm of the smoothest function through it,
    is about √A and grows without bound. K is used with the least jitter that lets it be factorised. Source, arguments
    and cost are those of ``rkhs_function``.
    """
    arms, prior, covariance, draw = _prior_draw("gp sample", num_arms, dimension, kernel, lengthscale, seed)
    bound = norm_of_values(covariance, draw, norm)
    return _on_arms(arms, draw, noise_fraction, seed, kernel=prior, norm_bound=bound)


def synthetic_function(
    function: str = "rosenbrock",
    dimension: int | None = None,
    *,
    domain: str = "arms",
    num_arms: int | None = None,
    kernel: str = "rbf",
    lengthscale: float = 0.2,
    noise_fraction: float = 0.01,
    norm: str | None = None,
    seed: int,
) -> Environment:
    """One of BoTorch's test functions, to maximise, on random arms or on a box.

    Inputs are scaled to the unit cube. Functions to minimise are negated. Rewards are shifted and scaled to zero mean
    and unit variance over the arms or, on a box, over its first 8,192 Sobol points; the noise has its range from them.

    ``function`` is "ackley", "branin", "hartmann", "rosenbrock" or another that the error for an unknown name lists,
    and ``dimension`` d, where it leaves a choice (Hartmann: 3, 4 or 6). On the domain "arms" ``num_arms`` points are
    uniform in the cube, 100 d unless given; on "box", the cube itself, the best mean is the value at BoTorch's
    optimisers after a local search, ``InputError`` if it knows none. On arms a ``norm`` of "rkhs" or "printed", O(A³),
    makes ``norm_bound`` √(fᵀK⁻¹f) or √(fᵀKf) of the means. These functions are in no known RKHS: the first is a lower
    bound that grows with the arms. Other arguments are those of ``rkhs_function``; the seed addresses arms and noise.

    Source: Chowdhury & Gopalan, ICML 2017, §6 (Rosenbrock and Hartmann3, 100 d arms, squared exponential ℓ = 0.2,
    R² = 1% of the range, λ = R²). Differs: rewards are standardised (the paper does not say, nor the units of its ℓ).
    """
    on_box = pick("domain", "domain", domain, ("arms", "box")) == "box"
    problem = _test_function(function, dimension)
    d = problem.dim
    for name, value in (("num_arms", num_arms), ("norm", norm)):
        if on_box and value is not None:
            raise InputError(f"{name} is for domain='arms' only, got {value!r} with domain='box'.")
    if on_box:
        points = SobolEngine(d, scramble=False).draw(_SAMPLE_SIZE, dtype=torch.float64)
    else:
        number = 100 * d if num_arms is None else checks.positive_integer("num_arms", num_arms)
        points, _ = uniform_arms("test function arms", number, d, seed, columns=1 if norm is None else number)
    means = _reward(problem, points)
    if float(means.max()) == float(means.min()):
        raise InputError(f"{function} in {d} dimension(s) is constant over {len(means)} arm(s): there is no best one.")
    shift, scale = float(means.mean()), float(means.std(correction=0))
    reward, means = partial(_reward, problem, shift=shift, scale=scale), (means - shift) / scale
    prior = stationary_kernel(kernel, checks.positive("lengthscale", lengthscale))
    if not on_box:
        with torch.no_grad():
            bound = None if norm is None else norm_of_values(gram(prior, points), means, norm)
        return _on_arms(points, means, noise_fraction, seed, kernel=prior, norm_bound=bound)
    best = _best_mean(problem, reward, function)
    spread = max(best, float(means.max())) - float(means.min())
    variance = checks.positive("noise_fraction", noise_fraction) * spread
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, d)
    return BoxFunction(reward, bounds, best, math.sqrt(variance), seed, kernel=prior, regularization=variance)


# ---------------------------------------------------------------- inside


def _reward(problem: SyntheticTestFunction, X: Tensor, shift: float = 0.0, scale: float = 1.0) -> Tensor:
    """Return a test function as rewards on the unit cube: its sign turned to maximise, then shifted and scaled."""
    lower, upper = cast(Tensor, problem.bounds)
    inputs = (lower + X * (upper - lower)).clamp(lower, upper)  # rounding may step outside, which BoTorch refuses
    values = problem.evaluate_true(inputs)
    return ((-values if problem.is_minimization_problem else values) - shift) / scale


def uniform_arms(
    purpose: str, num_arms: int, dimension: int, seed: int, columns: int = 1
) -> tuple[Tensor, torch.Generator]:
    """Return arms uniform in [0, 1]^d, (A, d), if so many numbers of each fit into memory; and what drew them."""
    shape = checks.positive_integer("num_arms", num_arms), checks.positive_integer("dimension", dimension)
    if shape[0] < 2:
        raise InputError("num_arms must be at least 2: means are scaled, or noise is measured, by their range.")
    check_size(f"num_arms × {'num_arms' if columns == shape[0] else columns}", shape[0], columns)
    check_size("num_arms × dimension", *shape)
    generator = generator_for(checks.whole_number("seed", seed), 0, purpose)
    return torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu"), generator


def _prior_draw(
    purpose: str, num_arms: int, dimension: int, kernel: str, lengthscale: float, seed: int
) -> tuple[Tensor, Kernel, Tensor, Tensor]:
    """Return uniform arms (A, d), the kernel, its Gram matrix (A, A) and a draw of N(0, K), (A,)."""
    prior = stationary_kernel(kernel, checks.positive("lengthscale", lengthscale))
    number = checks.positive_integer("num_arms", num_arms)
    arms, generator = uniform_arms(purpose, number, dimension, seed, columns=number)
    normals = torch.randn(number, generator=generator, dtype=torch.float64, device="cpu")
    with torch.no_grad():
        covariance = gram(prior, arms)
    return arms, prior, covariance, jittered_cholesky(covariance) @ normals


def _on_arms(arms: Tensor, means: Tensor, noise_fraction: float, seed: int, **known: Any) -> FiniteArms:
    """Return the problem of known means, whose noise is a fraction of their range."""
    variance = checks.positive("noise_fraction", noise_fraction) * float(means.max() - means.min())
    return FiniteArms(arms, means, math.sqrt(variance), seed, regularization=variance, **known)


def _test_function(function: str, dimension: int | None) -> SyntheticTestFunction:
    kind = _FUNCTIONS[pick("function", "test function", function, _FUNCTIONS)]
    if dimension is None:
        return kind()
    dimension = checks.positive_integer("dimension", dimension)
    check_size("100 × dimension × dimension", 100, dimension, dimension)
    if "dim" not in inspect.signature(kind).parameters:
        if (problem := kind()).dim != dimension:
            raise InputError(f"{function} has {problem.dim} dimensions and no others, got dimension={dimension}.")
        return problem
    try:
        return kind(dim=dimension)  # pyright: ignore[reportCallIssue]
    except ValueError as error:
        raise InputError(f"{function} does not exist in {dimension} dimension(s): {error}") from None


def _best_mean(problem: SyntheticTestFunction, reward: Callable[[Tensor], Tensor], function: str) -> float:
    """Return the largest reward at BoTorch's optimisers, some of which are rounded, and local searches from them."""
    optimizers = getattr(problem, "optimizers", None)
    if optimizers is None:
        name = f"{function} in {problem.dim} dimension(s)"
        raise InputError(f"BoTorch does not know the optimum of {name}: use domain='arms' or another dimension.")
    lower, upper = cast(Tensor, problem.bounds)
    optimizers = ((optimizers - lower) / (upper - lower)).clamp(0.0, 1.0)
    # Beside them, since the root in Ackley has no derivative at its optimum.
    starts = (optimizers + 1e-6).clamp(max=1.0 - 1e-6).unsqueeze(-2)
    _, found = gen_candidates_scipy(
        starts, cast(Any, lambda X: reward(X.squeeze(-2))), 0.0, 1.0, options={"ftol": 0.0, "gtol": 1e-10}
    )
    return max(float(reward(optimizers).max()), float(found.max()))

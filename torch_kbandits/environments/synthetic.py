"""BoTorch's synthetic test functions on random arms or on the unit cube."""

import inspect
import math
import re
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from botorch.test_functions import synthetic
from botorch.test_functions.synthetic import SyntheticTestFunction
from scipy.optimize import minimize
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.environments.arms import FiniteArms
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.functions import BoxFunction
from torch_kbandits.environments.options import NORMS, check_size, choice, norm_of_values, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.random import generator_for

_FUNCTIONS: dict[str, type[SyntheticTestFunction]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): getattr(synthetic, name)
    for name in (
        *("Ackley", "Beale", "Branin", "Bukin", "Cosine8", "DixonPrice", "DropWave", "EggHolder", "Griewank"),
        *("Hartmann", "HolderTable", "Levy", "Michalewicz", "Powell", "Rastrigin", "Rosenbrock", "Shekel"),
        *("SixHumpCamel", "StyblinskiTang", "ThreeHumpCamel"),
    )
}

#: Points that stand for a box when the range, mean and variance of a function over it are measured.
_SAMPLE_SIZE = 8192


@dataclass(frozen=True)
class _Reward:
    """A test function as a reward on the unit cube: its sign turned to maximise, then shifted and scaled."""

    problem: SyntheticTestFunction
    shift: float = 0.0
    scale: float = 1.0

    def __call__(self, X: Tensor) -> Tensor:
        lower, upper = cast(Tensor, self.problem.bounds)
        inputs = (lower + X * (upper - lower)).clamp(lower, upper)  # rounding may step outside, which BoTorch refuses
        values = self.problem.evaluate_true(inputs)
        if self.problem.is_minimization_problem:
            values = -values
        return (values - self.shift) / self.scale


def synthetic_function(
    function: str = "rosenbrock",
    dimension: int | None = None,
    *,
    domain: str = "arms",
    num_arms: int | None = None,
    kernel: str = "rbf",
    lengthscale: float = 0.2,
    standardize: bool = True,
    noise_fraction: float = 0.01,
    norm: str | None = None,
    seed: int,
) -> Environment:
    """One of BoTorch's test functions, to maximise, on random arms or on a box.

    Inputs are scaled to the unit cube, where the length scale lives. Functions to minimise are negated. Raw values can
    be enormous (Rosenbrock reaches 10⁶), so by default rewards are shifted and scaled to zero mean and unit variance
    over the arms or, on a box, over its first 8,192 Sobol points; the range of the noise is that of the same points.

    Source: Chowdhury & Gopalan, ICML 2017, §6 (Rosenbrock and Hartmann3, 100 d arms, squared exponential ℓ = 0.2,
    R² = 1% of the range, λ = R²). Differs: rewards are standardised and the kernel's variance is that of the means (the
    paper says neither, nor in which units its ℓ is); λ is in the units of the rewards as played.

    Args:
        function: "ackley", "branin", "hartmann", "rosenbrock" and others; the error for an unknown name lists all.
        dimension: d, where the function leaves a choice (Hartmann: 3, 4 or 6); BoTorch's default otherwise.
        domain: "arms" (points uniform in the cube) or "box" (the cube itself).
        num_arms: A, at least 2; 100 d unless given. Only for arms.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5".
        lengthscale: of the kernel, in units of the cube.
        standardize: whether rewards are shifted and scaled; otherwise ``center`` is their mean over the same points.
        noise_fraction: R² as a fraction of the range of the means, as printed.
        norm: "rkhs" or "printed" makes ``norm_bound`` √(fᵀK⁻¹f) or √(fᵀKf) of the centred means on the arms; None
            leaves it unknown. These functions are in no known RKHS: the first is the norm of the smoothest interpolant,
            a lower bound that grows with the arms and is often huge. Only for arms.
        seed: addresses arms and noise; the function and its scaling on a box are the same for every seed.

    Returns:
        A ``FiniteArms`` or a ``BoxFunction``. On a box the best mean is the value at BoTorch's optimisers after a
        local search, since published optima are rounded and some are below what the function attains.

    Raises:
        InputError: on an unknown name, a dimension that the function does not have, or a box whose optimum BoTorch does
            not know.

    Cost: O(A d), and O(A³) with a norm.
    """
    choice("domain", domain, ("arms", "box"))
    choice("norm", norm, (*NORMS, None))
    is_standard = checks.flag("standardize", standardize)
    fraction = checks.positive("noise_fraction", noise_fraction)
    reward = _Reward(_test_function(function, dimension))
    d = reward.problem.dim
    if domain == "box":
        for name, value in (("num_arms", num_arms), ("norm", norm)):
            if value is not None:
                raise InputError(f"{name} is for domain='arms' only, got {value!r} with domain='box'.")
        points = SobolEngine(d, scramble=False).draw(_SAMPLE_SIZE, dtype=torch.float64)
    else:
        number = 100 * d if num_arms is None else checks.positive_integer("num_arms", num_arms)
        check_size("num_arms × dimension", number, d)
        if norm is not None:
            check_size("num_arms × num_arms", number, number)
        generator = generator_for(checks.whole_number("seed", seed), 0, "test function arms")
        points = torch.rand(number, d, generator=generator, dtype=torch.float64, device="cpu")
    means = reward(points)
    if float(means.max()) == float(means.min()):
        raise InputError(f"{function} in {d} dimension(s) is constant over {len(means)} arm(s): there is no best one.")
    if is_standard:
        shift, scale = float(means.mean()), float(means.std(correction=0))
        reward, means = replace(reward, shift=shift, scale=scale), (means - shift) / scale
    prior = stationary_kernel(kernel, lengthscale, float(means.var(correction=0)))
    known: dict[str, Any] = {"kernel": prior, "center": 0.0 if is_standard else float(means.mean())}
    best = _best_mean(reward, function) if domain == "box" else -math.inf
    variance = fraction * (max(best, float(means.max())) - float(means.min()))
    known["regularization"] = variance
    if domain == "box":
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, d)
        return BoxFunction(reward, bounds, best, math.sqrt(variance), seed, **known)
    if norm is not None:
        with torch.no_grad():
            known["norm_bound"] = norm_of_values(gram(prior, points), means - known["center"], norm)
    return FiniteArms(points, means, math.sqrt(variance), seed, **known)


def _test_function(function: str, dimension: int | None) -> SyntheticTestFunction:
    kind = _FUNCTIONS[choice("function", function, _FUNCTIONS)]
    if dimension is None:
        return kind()
    dimension = checks.positive_integer("dimension", dimension)
    check_size("100 × dimension × dimension", 100, dimension, dimension)
    if "dim" not in inspect.signature(kind).parameters:
        problem = kind()
        if problem.dim != dimension:
            raise InputError(f"{function} has {problem.dim} dimensions and no others, got dimension={dimension}.")
        return problem
    try:
        return kind(dim=dimension)  # pyright: ignore[reportCallIssue]
    except ValueError as error:
        raise InputError(f"{function} does not exist in {dimension} dimension(s): {error}") from None


def _best_mean(reward: _Reward, function: str) -> float:
    """Return the largest reward at BoTorch's optimisers and where local searches from them end."""
    lower, upper = cast(Tensor, reward.problem.bounds)
    starts = getattr(reward.problem, "optimizers", None)
    if starts is None:
        raise InputError(
            f"BoTorch does not know the optimum of {function} in {reward.problem.dim} dimension(s), and regret on a "
            "box needs it: use domain='arms' or another dimension."
        )
    starts = ((starts - lower) / (upper - lower)).clamp(0.0, 1.0)
    best = float(reward(starts).max())

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(x).requires_grad_()
        value = -reward(point.unsqueeze(0)).squeeze(0)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    options = {"ftol": 0.0, "gtol": 1e-10}
    for start in starts.numpy():
        if np.isfinite(loss(start)[1]).all():  # the root in Ackley has no derivative at its optimum
            found = minimize(
                loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(start), options=options
            )
            best = max(best, -float(found.fun))
    return best

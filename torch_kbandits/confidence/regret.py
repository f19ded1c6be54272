"""What theorems say of a run in numbers: a bound on the cumulative regret, and one on the size of a dictionary.

For all of them R_T <= Σ_t 2 β_t σ_{t−1}(x_t) <= 2 β_T √(T V_T), where V_T bounds the sum of the variances at the points
when they were played. They differ in V_T, by what a dictionary or a memory loses.
"""

import math
from types import SimpleNamespace
from typing import Any

import torch

from torch_kbandits.confidence import theorems
from torch_kbandits.confidence.base import Evidence, ScaledWidth, Width
from torch_kbandits.confidence.bayesian import BayesianGPUCBWidth
from torch_kbandits.confidence.gain import RealizedGain
from torch_kbandits.confidence.mixture import MartingaleMixtureWidth
from torch_kbandits.confidence.theorems import BKBWidth, EKUCBWidth, GPTSWidth, SelfNormalizedWidth
from torch_kbandits.dictionaries.online import guarantees_projection
from torch_kbandits.dictionaries.ridge_leverage import guarantees_accuracy

_EXACT = (BayesianGPUCBWidth, theorems.GPUCBWidth, theorems.IGPUCBWidth, theorems.KUCBWidth, SelfNormalizedWidth)
#: SparQ's variances are within √(3η) of those at all points, at the largest divergence η that its Proposition 3 allows.
_PRETENDED = 1.0 + math.sqrt(3.0 / 5.0)
#: How likely a draw of GP-TS is at least to lie above the function: 1/(4e√π).
_OPTIMISTIC = 1.0 / (4.0 * math.e * math.sqrt(math.pi))


def cumulative_regret_bound(
    width: Width,
    evidence: Evidence,
    *,
    rounds: int,
    num_inducing: int = 0,
    memory_size: int | None = None,
    variation_budget: float | None = None,
    num_arms: int | None = None,
) -> float | None:
    """Return R_T of a width's theorem, in reward units; None where it says nothing.

        R_T <= 2 β_T √(T V_T),  V_T = 2 C I_T,  C = κ² / ln(1 + κ²/λ)

    - of BKB V_T is α times that, of EK-UCB 4 C I_T + 2 m μ; β_T is at the largest d_eff there can have been;
    - of a memory 2 ⌈T/H⌉ β √(H V_H) + 2 (κ²/λ) √(H V_H) H P_T, for learning and for drift, with V_H = 2 C γ_H;
    - of SparQ V_T is 1 + √(3/5) times 2 C γ_T, with C at the largest noise that counts, λ ln T;
    - of GP-TS on A arms, with c_T = v_T (1 + √(2 ln(A T²))) and p = 1/(4e√π),
      11 c_T/p √(T V_T) + (8 + π²/3) B κ + (4B + 11 c_T/p) κ √(2 T ln(2/δ)).

    I_T is that of what was played, at most γ_T. A memory and SparQ need γ: a ``gain`` such as ``GreedyGain``, and not
    the realised one. Widths that may fall, those of Bayesian regret and of stages have no bound here.

    Args:
        width: with the theorem's constants, or ``ScaledWidth`` of one by at least 1.
        evidence: the posterior after T rounds.
        rounds: T.
        num_inducing: m, of EK-UCB.
        memory_size: H; None where all observations count, 0 where a memory is of another kind.
        variation_budget: P_T >= Σ_t ‖f_{t+1} − f_t‖ of a function that changes, in the units of B.
        num_arms: A, if points are chosen by draws that are ``width`` times as wide as the posterior.

    Source: Calandriello et al., COLT 2019, Theorem 2; Zenati et al., AISTATS 2022, Theorems 3.1 and 4.1; Chowdhury and
    Gopalan, ICML 2017, Theorems 3 and 4; Mauduit et al., 2025, Theorem 3.1; Zhou and Shroff, CISS 2021, Theorems 1 and
    2; Srinivas et al., ICML 2010, Theorems 1 and 3. Differs: any κ and λ, and more: see the page of proofs.
    """
    theorem = width.width if isinstance(width, ScaledWidth) else width
    level, kernel_bound = float(evidence.regularization), float(evidence.kernel_bound())
    gain = float(evidence.information_gain() + 0.5 * evidence.projection_error())
    variances, largest = 2.0 * _share(kernel_bound, level) * gain, evidence
    if num_arms is not None:
        radius = float(width(evidence)) * (1.0 + math.sqrt(2.0 * math.log(num_arms * rounds**2)))
        return _of_draws(theorem, radius, variances, kernel_bound, rounds)
    if isinstance(theorem, theorems.MemoryWidth):
        size = rounds if memory_size is None else min(memory_size, rounds)
        if not size or variation_budget is None or (most := _largest_gain(theorem.gain, size, level)) is None:
            return None
        deviations = math.sqrt(2.0 * size * _share(kernel_bound, level) * most)
        beta = float(width(_known(evidence, num_observations=size, information_gain=most)))
        drift = kernel_bound / level * deviations * size * variation_budget
        return 2.0 * (math.ceil(rounds / size) * beta * deviations + drift)
    if isinstance(theorem, theorems.SparQWidth):
        if (most := _largest_gain(theorem.gain, rounds, level)) is None:
            return None
        variances = _PRETENDED * 2.0 * _share(kernel_bound, level * max(1.0, math.log(rounds))) * most
    elif isinstance(theorem, BKBWidth | EKUCBWidth):
        ratio = _ratio(theorem, level)
        largest = _known(evidence, effective_dimension=ratio**2 * float(evidence.effective_dimension()))
        if isinstance(theorem, BKBWidth):
            variances *= ratio
        else:
            variances = 2.0 * (variances + num_inducing * (theorem.projection or level))
    elif not isinstance(theorem, (*_EXACT, MartingaleMixtureWidth)) or getattr(theorem, "mixture", None) is not None:
        return None
    return 2.0 * float(width(largest)) * math.sqrt(rounds * variances)


def _of_draws(theorem: Width, radius: float, variances: float, kernel_bound: float, rounds: int) -> float | None:
    """Return R_T of GP-TS, given c_T and V_T; None for a width that is not its own."""
    if not isinstance(theorem, GPTSWidth | SelfNormalizedWidth | MartingaleMixtureWidth):
        return None
    delta = theorem.failure_probability * (1.0 if isinstance(theorem, GPTSWidth) else 2.0)  # the other is at δ/2
    B, slope = theorem.norm_bound, 11.0 * radius / _OPTIMISTIC
    luck = (4.0 * B + slope) * math.sqrt(2.0 * kernel_bound * rounds * math.log(2.0 / delta))
    return slope * math.sqrt(rounds * variances) + (8.0 + math.pi**2 / 3.0) * B * math.sqrt(kernel_bound) + luck


def dictionary_size_bound(width: Width, evidence: Evidence, rule: Any, *, rounds: int) -> float | None:
    """Return how many points a theorem lets the dictionary of a rule have after T rounds; None where it has no promise.

    BKB: 3 (1 + κ²/λ) α q̄ d_eff, with q̄ of the rule. EK-UCB: 9 d_eff(μ) ln²(2T/δ), with d_eff(μ) at most max(1, λ/μ)
    times that at λ. The exact d_eff of these is at most α, or max(2, 1 + 2μ/λ), times that of the posterior.

    Source: Calandriello et al., COLT 2019, Theorem 1; Zenati et al., AISTATS 2022, Proposition 4.1.
    """
    theorem, level = width.width if isinstance(width, ScaledWidth) else width, float(evidence.regularization)
    dimension = float(evidence.effective_dimension())
    if not isinstance(theorem, BKBWidth | EKUCBWidth) or rule is None:
        return None
    ratio, delta = _ratio(theorem, level), theorem.failure_probability
    if isinstance(theorem, BKBWidth):
        bound = 3.0 * (1.0 + float(evidence.kernel_bound()) / level) * ratio * ratio * dimension
        is_promised, _ = guarantees_accuracy(rule, theorem.accuracy, delta, rounds)
        return bound * rule.oversampling if is_promised else None
    is_promised, _ = guarantees_projection(rule, theorem.projection or level, level, delta, rounds)
    bound = 9.0 * ratio * dimension * math.log(2.0 * rounds / delta) ** 2
    return bound * max(1.0, level / (rule.projection or level)) if is_promised else None


def _share(kernel_bound: float, noise: float) -> float:
    """Return C: σ² <= C ln(1 + σ²/λ) for all variances σ² up to κ², and the logarithms add up to twice the gain."""
    return kernel_bound / math.log1p(kernel_bound / noise)


def _ratio(width: BKBWidth | EKUCBWidth, level: float) -> float:
    """Return by which factor variances of a dictionary are at most off, above or below the exact ones."""
    if isinstance(width, BKBWidth):
        return (1.0 + width.accuracy) / (1.0 - width.accuracy)
    return max(2.0, 1.0 + 2.0 * (width.projection or level) / level)


def _largest_gain(gain: Any, number: int, level: float) -> float | None:
    """Return γ of so many observations; None if what stands for it knows only those that were made."""
    if isinstance(gain, RealizedGain) or number > getattr(gain, "horizon", number):
        return None
    noise = torch.tensor(level, dtype=torch.float64)
    return float(gain(SimpleNamespace(num_observations=number, regularization=noise)))


def _known(evidence: Evidence, num_observations: int | None = None, **numbers: float) -> Any:
    """Return the evidence as a width reads it, with other numbers."""
    known = {name: (lambda value=value: torch.tensor(value, dtype=torch.float64)) for name, value in numbers.items()}
    known = {"kernel_bound": evidence.kernel_bound, **known}
    count = evidence.num_observations if num_observations is None else num_observations
    return SimpleNamespace(num_observations=count, regularization=evidence.regularization, **known)

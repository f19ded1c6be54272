"""What theorems say of a run in numbers: a bound on the cumulative regret, and one on the size of a dictionary.

For all of them R_T <= Σ_t 2 β_t σ_{t−1}(x_t) <= 2 β_T √(T V_T), where V_T bounds the sum of the variances at the points
when they were played. They differ in V_T, by what a dictionary or a memory loses.
"""

import math
from types import SimpleNamespace
from typing import Any

import torch

from torch_kbandits.confidence.base import Evidence, ScaledWidth, Width
from torch_kbandits.confidence.bayesian import BayesianGPUCBWidth
from torch_kbandits.confidence.gain import RealizedGain
from torch_kbandits.confidence.theorems import (
    BKBWidth,
    EKUCBWidth,
    GPTSWidth,
    GPUCBWidth,
    IGPUCBWidth,
    KUCBWidth,
    MemoryWidth,
    SelfNormalizedWidth,
    SparQWidth,
)
from torch_kbandits.dictionaries import KORS, DictionaryRule, RidgeLeverageSampling
from torch_kbandits.dictionaries.online import guarantees_projection
from torch_kbandits.dictionaries.ridge_leverage import guarantees_accuracy

_EXACT = (BayesianGPUCBWidth, GPUCBWidth, IGPUCBWidth, KUCBWidth, SelfNormalizedWidth)
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
) -> float | None:
    """Return R_T of a width's theorem for T rounds of upper confidence bounds, in reward units; None if it has none.

        R_T <= 2 β_T √(T V_T),  V_T = 2 C I_T,  C = κ² / ln(1 + κ²/λ)

    - a dictionary of BKB: V_T is α times that; of EK-UCB with m points and projection error μ: 4 C I_T + 2 m μ. β_T is
      at the largest effective dimension that a dictionary of an earlier round can have shown;
    - a memory of H rounds, of functions with Σ_t ‖f_{t+1} − f_t‖ <= P_T: 2 ⌈T/H⌉ β √(H V_H) for learning, and for drift
      2 (κ²/λ) √(H V_H) H P_T, with V_H = 2 C γ_H;
    - SparQ: V_T is 1 + √(3/5) times 2 C γ_T, with C at the largest noise that counts, λ ln T.

    I_T is that of what was played, which is at most γ_T. A memory has forgotten what it knew of earlier blocks, so it
    needs ``gain``, such as ``GreedyGain``, as SparQ does; with ``RealizedGain`` the answer is None. So it is for widths
    that may fall, and for those of Bayesian regret or of stages.

    Args:
        width: with the theorem's constants; times a factor of at least 1, ``ScaledWidth``, it holds, too.
        evidence: the posterior after T rounds.
        rounds: T.
        num_inducing: m, of EK-UCB.
        memory_size: H; None where all observations count.
        variation_budget: P_T, in the units of B, of a function that changes.

    Source: Calandriello et al., COLT 2019, Theorem 2; Zenati et al., AISTATS 2022, Theorems 3.1 and 4.1; Chowdhury and
    Gopalan, ICML 2017, Theorem 3; Mauduit et al., 2025, Theorem 3.1; Zhou and Shroff, CISS 2021, Theorems 1 and 2;
    Srinivas et al., ICML 2010, Theorems 1 and 3. Differs: any κ and λ; the gain in place of what bounds it; the factors
    that printed proofs lose, see the page on widths. Cost: that of what is read.
    """
    theorem = width.width if isinstance(width, ScaledWidth) else width
    level, kernel_bound = float(evidence.regularization), float(evidence.kernel_bound())
    gain = float(evidence.information_gain() + 0.5 * evidence.projection_error())
    variances, largest = 2.0 * _share(kernel_bound, level) * gain, evidence
    if isinstance(theorem, MemoryWidth):
        size = rounds if memory_size is None else min(memory_size, rounds)
        if variation_budget is None or (most := _largest_gain(theorem.gain, size, level)) is None:
            return None
        deviations = math.sqrt(2.0 * size * _share(kernel_bound, level) * most)
        beta = float(width(_known(evidence, num_observations=size, information_gain=most)))
        drift = kernel_bound / level * deviations * size * variation_budget
        return 2.0 * (math.ceil(rounds / size) * beta * deviations + drift)
    if isinstance(theorem, SparQWidth):
        if (most := _largest_gain(theorem.gain, rounds, level)) is None:
            return None
        noisiest = level * max(1.0, math.log(rounds))
        variances = _PRETENDED * 2.0 * _share(kernel_bound, noisiest) * most
    elif isinstance(theorem, BKBWidth):
        variances *= (factor := _ratio(theorem, level))
        largest = _known(evidence, effective_dimension=factor**2 * float(evidence.effective_dimension()))
    elif isinstance(theorem, EKUCBWidth):
        variances = 2.0 * variances + 2.0 * num_inducing * _projection(theorem, level)
        dimension = _ratio(theorem, level) ** 2 * float(evidence.effective_dimension())
        largest = _known(evidence, effective_dimension=dimension)
    elif not isinstance(theorem, _EXACT):
        return None
    return 2.0 * float(width(largest)) * math.sqrt(rounds * variances)


def cumulative_regret_of_draws(width: Width, evidence: Evidence, *, rounds: int, num_arms: int) -> float | None:
    """Return R_T of GP-TS on A arms, whose draws are ``width`` times as wide as the posterior; None for other widths.

        R_T <= 11 c_T/p √(T V_T) + (8 + π²/3) B κ + (4B + 11 c_T/p) κ √(2 T ln(2/δ)),  c_T = v_T (1 + √(2 ln(A T²)))

    with p = 1/(4e√π) and V_T as of ``cumulative_regret_bound``; δ is that of the regret, twice that of a
    ``SelfNormalizedWidth``.

    Source: Chowdhury and Gopalan, ICML 2017, Lemma 13 and Theorem 4. Differs: any κ; arms need no grid, so its term is
    left out, and c_T is that of Lemma 5; 8 B κ is for the first four rounds, of which Lemma 10 says nothing.
    """
    theorem: Any = width.width if isinstance(width, ScaledWidth) else width
    if not isinstance(theorem, GPTSWidth | SelfNormalizedWidth):
        return None
    delta = theorem.failure_probability * (1.0 if isinstance(theorem, GPTSWidth) else 2.0)
    kernel_bound, B = float(evidence.kernel_bound()), theorem.norm_bound
    level, gain = float(evidence.regularization), float(evidence.information_gain())
    radius = float(width(evidence)) * (1.0 + math.sqrt(2.0 * math.log(num_arms * rounds**2))) / _OPTIMISTIC
    learning = 11.0 * radius * math.sqrt(rounds * 2.0 * _share(kernel_bound, level) * gain)
    luck = (4.0 * B + 11.0 * radius) * math.sqrt(kernel_bound * 2.0 * rounds * math.log(2.0 / delta))
    return learning + (8.0 + math.pi**2 / 3.0) * B * math.sqrt(kernel_bound) + luck


def dictionary_size_bound(
    width: Width, evidence: Evidence, rule: DictionaryRule | None, *, rounds: int
) -> float | None:
    """Return how many points the theorem behind a width lets its dictionary have after T rounds; None without one.

    BKB, with q̄ of the rule: 3 (1 + κ²/λ) α q̄ d_eff. EK-UCB: 9 d_eff(μ) ln²(2T/δ). The exact d_eff of these is at most α
    or max(2, 1 + 2μ/λ) times that of the posterior; that at μ at most max(1, λ/μ) times that at λ.

    Source: Calandriello et al., COLT 2019, Theorem 1; Zenati et al., AISTATS 2022, Proposition 4.1.
    """
    theorem = width.width if isinstance(width, ScaledWidth) else width
    level, dimension = float(evidence.regularization), float(evidence.effective_dimension())
    if isinstance(theorem, BKBWidth) and isinstance(rule, RidgeLeverageSampling):
        alpha = _ratio(theorem, level)
        leverage = 3.0 * (1.0 + float(evidence.kernel_bound()) / level) * alpha * rule.oversampling
        holds, _ = guarantees_accuracy(rule, theorem.accuracy, theorem.failure_probability, rounds)
        return leverage * alpha * dimension if holds else None
    if isinstance(theorem, EKUCBWidth) and isinstance(rule, KORS):
        own, delta = rule.projection or level, theorem.failure_probability
        holds, _ = guarantees_projection(rule, _projection(theorem, level), level, delta, rounds)
        at_own = max(1.0, level / own) * max(2.0, 1.0 + 2.0 * own / level) * dimension
        return 9.0 * at_own * math.log(2.0 * rounds / delta) ** 2 if holds else None
    return None


def _share(kernel_bound: float, noise: float) -> float:
    """Return C: σ² <= C ln(1 + σ²/λ) for all variances σ² up to κ², and the logarithms add up to twice the gain."""
    return kernel_bound / math.log1p(kernel_bound / noise)


def _projection(width: EKUCBWidth, level: float) -> float:
    return level if width.projection is None else width.projection


def _ratio(width: BKBWidth | EKUCBWidth, level: float) -> float:
    """Return by which factor variances of a dictionary are at most off, above or below the exact ones."""
    if isinstance(width, BKBWidth):
        return (1.0 + width.accuracy) / (1.0 - width.accuracy)
    return max(2.0, 1.0 + 2.0 * _projection(width, level) / level)


def _largest_gain(gain: Any, number: int, level: float) -> float | None:
    """Return γ of so many observations; None if that is not known beforehand."""
    if isinstance(gain, RealizedGain) or number > getattr(gain, "horizon", number):
        return None
    noise = torch.tensor(level, dtype=torch.float64)
    return float(gain(SimpleNamespace(num_observations=number, regularization=noise)))


def _known(evidence: Evidence, **numbers: float) -> Any:
    """Return the evidence with other numbers."""
    known = {name: (lambda value=value: torch.tensor(value, dtype=torch.float64)) for name, value in numbers.items()}
    names = ("effective_dimension", "information_gain", "projection_error", "kernel_bound", "mean_norm")
    others = {name: known.get(name, getattr(evidence, name)) for name in names}
    count = int(numbers.get("num_observations", evidence.num_observations))
    return SimpleNamespace(num_observations=count, regularization=evidence.regularization, **others)

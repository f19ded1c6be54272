"""Information gain γ and effective dimension: how much points teach of the function, and what widths make of it."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, InformationGain
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky


@torch.no_grad()
def information_gain(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    """Return the realised information gain ½ log det(I + K/λ) of observing at X (n, d), in nats, 0-dim.

    ``kernel`` is the prior covariance and ``regularization`` λ > 0, in reward units squared.
    Cost: O(n³) time, O(n²) memory.
    """
    regularization = checks.positive("regularization", regularization)
    factor = jittered_cholesky(_regularized_gram(kernel, X, regularization) / regularization)
    return factor.diagonal().log().sum()


@torch.no_grad()
def effective_dimension(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    """Return the effective dimension Tr K(K + λI)⁻¹ of X (n, d), 0-dim, between 0 and n; see ``information_gain``."""
    regularization = checks.positive("regularization", regularization)
    factor = jittered_cholesky(_regularized_gram(kernel, X, regularization))
    return len(X) - regularization * torch.cholesky_inverse(factor).diagonal().sum()


@torch.no_grad()
def greedy_information_gain(kernel: Kernel, candidates: Tensor, n: int, regularization: float) -> Tensor:
    """Return the information gain of the n plays, with repetition, that greedily maximise it over a finite set.

    Information gain is submodular, so the maximum γ_n lies between the value returned and that value over 1 − 1/e.

    Source: Srinivas et al., ICML 2010, §4 (greedy rule and its guarantee).

    Args:
        kernel: the prior covariance, in reward units squared.
        candidates: (A, d), A >= 1.
        n: number of plays.
        regularization: λ > 0.

    Returns:
        (n,), the gain after 1, …, n plays; cumulative. Cost: O(A n²) time, O(A n) memory.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    candidates = _listed("candidates", candidates)
    n = checks.size("n", n)
    noise = checks.positive("regularization", regularization)
    variance = prior_variance(kernel, candidates).clone()
    explained = variance.new_empty(n, len(candidates))
    gains = variance.new_empty(n)
    for k in range(n):
        best = variance.argmax()
        gains[k] = 0.5 * torch.log1p(variance[best] / noise)
        column = gram(kernel, candidates[best, None], candidates).squeeze(0) - explained[:k, best] @ explained[:k]
        explained[k] = column / (variance[best] + noise).sqrt()
        variance = (variance - explained[k].square()).clamp_min(0.0)
    return gains.cumsum(0)


def _regularized_gram(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    X = _listed("X", X)
    return gram(kernel, X) + regularization * torch.eye(len(X), dtype=X.dtype, device=X.device)


def _listed(name: str, points: Any) -> Tensor:
    """Return points (n, d), n >= 1, as a tensor."""
    points = checks.points(name, points)
    if points.dim() != 2 or len(points) == 0:
        raise InputError(f"{name} must be (n, d) with n >= 1, got {checks.describe(points)}.")
    return points


@dataclass(frozen=True)
class RealizedGain(InformationGain):
    """The information gain I_t = ½ log det(I + K_t/λ) of the points that were played, not the largest possible one.

    Never above γ_t, so the narrowest. Self-normalised bounds hold for it: they turn to γ_t only for the regret bound.
    """

    is_bound = "holds"

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return I_t. Cost: that of the evidence's information gain."""
        return evidence.information_gain()


@dataclass(frozen=True)
class NystromGain(InformationGain):
    """At least the information gain of the points that were played, as a Nyström posterior knows it.

        Ĩ_t + ρ_t / 2 >= I_t,  Ĩ_t = ½ log det(I + K̃_t/λ),  ρ_t = Tr(K_t − K̃_t)/λ

    K̃_t is the Gram matrix that the dictionary spans, so that Ĩ_t alone, which is ``RealizedGain`` of such a posterior,
    is at most I_t. It holds for any dictionary, however it was chosen: log det is concave, so log det(A + D) is at most
    log det A + Tr(A⁻¹D), with A = I + K̃_t/λ >= I and D = (K_t − K̃_t)/λ >= 0. With noise variances λ_s all matrices are
    scaled by them. Equal to I_t if the posterior is exact. In single precision ρ_t is off by 1e-7 Σ_s k(x_s, x_s)/λ_s.

    Source: ours, by the proof above; ρ_t is the trace term of Titsias, AISTATS 2009.
    """

    is_bound = "holds"

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the bound. Cost: that of the evidence's information gain and projection error."""
        return evidence.information_gain() + 0.5 * evidence.projection_error()


@dataclass(frozen=True, eq=False)
class GreedyGain(InformationGain):
    """The gain of the plays that greedily maximise it over a finite candidate set; see ``greedy_information_gain``.

    Args:
        kernel: the prior covariance; its hyperparameters are read once, at the first call.
        candidates: (A, d), A >= 1, all points that can be played.
        horizon: the number of observations up to which the gain is known.
        regularization: λ > 0, that of the posterior.
        certified: whether to return g_t / (1 − 1/e), which is at least γ_t; otherwise g_t, which is at most γ_t.

    Cost: O(A horizon²) time and O(A horizon) memory at the first call, O(1) after it.
    """

    kernel: Kernel = field(repr=False)
    candidates: Tensor = field(repr=False)
    horizon: int
    regularization: float
    certified: bool = False

    def __post_init__(self) -> None:
        checks.instance("kernel", self.kernel, Kernel, "a GPyTorch kernel")
        checks.keep(self, candidates=_listed, horizon=checks.positive_integer, regularization=checks.positive)
        checks.instance("certified", self.certified, bool, "True or False")
        object.__setattr__(self, "is_bound", "holds" if self.certified else "unknown")

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the gain after t observations; an ``InputError`` beyond ``horizon``, or at another λ."""
        n = evidence.num_observations
        if n > self.horizon:
            raise InputError(f"The greedy gain is known up to horizon={self.horizon} observations and there are {n}.")
        if not math.isclose(float(evidence.regularization), self.regularization, rel_tol=1e-6):
            raise InputError(
                f"The greedy gain is that at regularization={self.regularization:g} and the posterior has "
                f"{float(evidence.regularization):g}: give both the same."
            )
        return self._gains[n].to(evidence.regularization) if n else evidence.regularization.new_zeros(())

    @cached_property
    def _gains(self) -> Tensor:
        greedy = greedy_information_gain(self.kernel, self.candidates, self.horizon, self.regularization)
        gains = torch.cat([greedy.new_zeros(1), greedy])
        return gains / -math.expm1(-1.0) if self.certified else gains


@dataclass(frozen=True)
class RateGain(InformationGain):
    """The analytic rate at which γ_n grows on a compact set in ℝᵈ, times a constant.

        rbf: (ln n)^{d+1}      matern: n^{d(d+1)/(2ν+d(d+1))} ln n      linear: d ln n

    with n at least e. Rates are known up to a constant that depends on the kernel, the set and λ: no theorem survives a
    constant that is not known to be large enough.

    Source: Srinivas et al., ICML 2010, Theorem 5 (Matérn for ν > 1). Not the newest: Vakili et al., AISTATS 2021, lower
    Matérn's exponent to d/(2ν+d).

    Args:
        kernel: "rbf", "matern" or "linear".
        dimension: d.
        nu: ν > 0, the smoothness of the Matérn kernel; None for the others.
        constant: factor on the rate, above 0.
    """

    kernel: Literal["rbf", "matern", "linear"]
    dimension: int
    nu: float | None = None
    constant: float = 1.0

    def __post_init__(self) -> None:
        checks.one_of("kernel", self.kernel, ("rbf", "matern", "linear"))
        checks.keep(self, dimension=checks.positive_integer, constant=checks.positive)
        if self.kernel != "matern" and self.nu is not None:
            raise InputError(f"nu belongs to the Matérn kernel alone, got nu={self.nu!r} with kernel={self.kernel!r}.")
        if self.kernel == "matern":
            checks.keep(self, nu=checks.positive)  # None is refused by name

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the rate at n = ``evidence.num_observations``."""
        return evidence.regularization.new_tensor(self.at(evidence.num_observations))

    def at(self, num_observations: int) -> float:
        """Return the rate at n = ``num_observations``, such as γ_T for ``restart_period``."""
        n = max(float(num_observations), math.e)
        d = self.dimension
        if self.kernel == "rbf":
            return self.constant * math.log(n) ** (d + 1)
        if self.nu is None:
            return self.constant * d * math.log(n)
        return self.constant * n ** (d * (d + 1) / (2.0 * self.nu + d * (d + 1))) * math.log(n)


@dataclass(frozen=True)
class SumGain(InformationGain):
    """The gain of a sum of kernels from the gains of its terms: γ(k₁ + k₂) <= γ(k₁) + γ(k₂) + 2 ln n.

    More terms are bounded one after the other, at 2 ln n each.

    Source: Krause & Ong, NeurIPS 2011, the theorem on additive combinations of kernels. Its 2 ln n could be left out,
    as det(I + A + B) <= det(I + A) det(I + B) for positive semi-definite A and B; it is kept as the paper has it.

    Args:
        parts: the gains of the terms, each at least the γ of its kernel alone; at least one. ``RealizedGain`` is the
            gain of the sum itself and no part of it.
    """

    parts: tuple[InformationGain, ...]

    def __post_init__(self) -> None:
        checks.keep(self, parts=checks.entries)
        for part in self.parts or (None,):
            if not isinstance(part, InformationGain) or isinstance(part, RealizedGain):
                given = checks.describe(part)
                raise InputError(f"parts must be one or more gains of single kernels such as RateGain, got {given}.")

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the bound after n observations. Cost: that of the parts."""
        logarithms = 2.0 * (len(self.parts) - 1) * math.log(max(evidence.num_observations, 1))
        return sum((part(evidence) for part in self.parts), evidence.regularization.new_tensor(logarithms))


@dataclass(frozen=True)
class ConstantGain(InformationGain):
    """The same γ in every round, with no theorem behind it.

    Source: Chowdhury & Gopalan, ICML 2017, §6: γ_t = 1 in the experiments on sensor data, found by cross-validation.

    Args:
        value: γ >= 0, in nats.
    """

    is_bound = "fails"

    value: float

    def __post_init__(self) -> None:
        checks.keep(self, value=checks.non_negative)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return ``value``."""
        return evidence.regularization.new_tensor(self.value)

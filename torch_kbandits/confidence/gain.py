"""What stands for the information gain γ in a width, and what theorems make of numbers of rounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, InformationGain
from torch_kbandits.dictionaries.greedy import ConditionalVariances
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import check_kernel, gram


@dataclass(frozen=True)
class RealizedGain(InformationGain):
    """The information gain I_t = ½ log det(I + K_t/λ) of the points that were played, which is never above γ_t.

    Self-normalised bounds hold for it: they turn to γ_t only for the regret bound.
    """

    is_bound = "holds"

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return I_t."""
        return evidence.information_gain()


#: What theorems have unless another is given.
REALIZED = RealizedGain()


@dataclass(frozen=True)
class ConstantGain(InformationGain):
    """The same γ >= 0 in every round, in nats, with no theorem behind it.

    Source: Chowdhury & Gopalan, ICML 2017, §6: γ_t = 1 in the experiments on sensor data, found by cross-validation.
    """

    is_bound = "fails"

    value: float

    def __post_init__(self) -> None:
        checks.keep(self, value=checks.non_negative)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return ``value``."""
        return evidence.regularization.new_tensor(self.value)


@dataclass(frozen=True)
class RateGain(InformationGain):
    """The analytic rate at which γ_n grows on a compact set in ℝᵈ, times a constant.

        rbf: (ln n)^{d+1}      matern: n^{d(d+1)/(2ν+d(d+1))} ln n      linear: d ln n

    with n at least e. No theorem survives a constant that is not known to be large enough.

    Source: Srinivas et al., ICML 2010, Theorem 5 (Matérn for ν > 1). Not the newest: Vakili et al., AISTATS 2021, lower
    Matérn's exponent to d/(2ν+d).
    """

    kernel: Literal["rbf", "matern", "linear"]
    dimension: int  #: d.
    nu: float | None = None  #: ν > 0, the smoothness of the Matérn kernel; None for the others.
    constant: float = 1.0  #: Factor on the rate, above 0.

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
        n, d = max(float(num_observations), math.e), self.dimension
        if self.kernel == "rbf":
            return self.constant * math.log(n) ** (d + 1)
        if self.nu is None:
            return self.constant * d * math.log(n)
        return self.constant * n ** (d * (d + 1) / (2.0 * self.nu + d * (d + 1))) * math.log(n)


@dataclass(frozen=True, eq=False)
class GreedyGain(InformationGain):
    """The gain of the plays that greedily maximise it over a finite candidate set; see ``greedy_information_gain``.

    Cost: O(A horizon²) time and O(A horizon) memory at the first call, O(1) after it.
    """

    kernel: Kernel = field(repr=False)  #: The prior covariance; its hyperparameters are read once, at the first call.
    candidates: Tensor = field(repr=False)  #: (A, d), A >= 1, all points that can be played.
    horizon: int  #: The number of observations up to which the gain is known; beyond it a call is an ``InputError``.
    regularization: float  #: λ > 0, that of the posterior.
    certified: bool = False  #: Whether to return g_t / (1 − 1/e), at least γ_t; otherwise g_t, at most γ_t.

    def __post_init__(self) -> None:
        checks.instance("kernel", self.kernel, Kernel, "a GPyTorch kernel")
        checks.keep(
            self, candidates=checks.listed_points, horizon=checks.positive_integer, regularization=checks.positive
        )
        checks.instance("certified", self.certified, bool, "True or False")
        object.__setattr__(self, "is_bound", "holds" if self.certified else "unknown")

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the gain after t observations."""
        n, level = evidence.num_observations, evidence.regularization
        if n > self.horizon:
            raise InputError(f"The greedy gain is known up to horizon={self.horizon} observations and there are {n}.")
        if not math.isclose(float(level), self.regularization, rel_tol=1e-6):
            given = f"regularization={self.regularization:g} and the posterior has {float(level):g}"
            raise InputError(f"The greedy gain is that at {given}: give both the same.")
        return self._gains[n].to(level) if n else level.new_zeros(())

    @cached_property
    def _gains(self) -> Tensor:
        greedy = greedy_information_gain(self.kernel, self.candidates, self.horizon, self.regularization)
        gains = torch.cat([greedy.new_zeros(1), greedy])
        return gains / -math.expm1(-1.0) if self.certified else gains


@torch.no_grad()
def greedy_information_gain(kernel: Kernel, candidates: Tensor, n: int, regularization: float) -> Tensor:
    """Return the gains of 1, …, n plays, with repetition, that greedily maximise it over candidates (A, d), (n,).

    The gain is ½ log det(I + K/λ), in nats, with ``kernel`` the prior covariance and ``regularization`` λ > 0, both in
    reward units squared. It is submodular, so the maximum γ_n lies between the value returned and that over 1 − 1/e.

    Source: Srinivas et al., ICML 2010, §4 (greedy rule and its guarantee). Cost: O(A n²) time, O(A n) memory.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    candidates, n = checks.listed_points("candidates", candidates), checks.size("n", n)
    check_kernel(kernel, candidates[:1])
    noise, gains = checks.positive("regularization", regularization), list[float]()
    left = ConditionalVariances.of(candidates, kernel)
    for _ in range(n):
        best = int(left.variance.argmax())
        gains.append(0.5 * math.log1p(left.variance[best] / noise))
        left.observe(best, noise)
    return torch.tensor(gains, dtype=torch.float64).cumsum(0).to(candidates)


@torch.no_grad()
def valko_dimension(kernel: Kernel, X: Tensor, regularization: float, horizon: int) -> int:
    """Return the effective dimension d̃ of Valko et al. of points X (n, d): from where on eigenvalues no longer matter.

        d̃ = min {j >= 0: j λ ln T >= Σ_{i>j} λ_i(K)}

    with λ_1 >= … >= λ_n the eigenvalues of the kernel matrix, to rounding, ``regularization`` λ > 0, both in reward
    units squared, and ``horizon`` T. With the effective dimension d_eff = Tr K (K + λI)⁻¹ and I_n = ½ log det(I + K/λ),
    for T >= 3,

        d̃ <= 1 + 2 d_eff,  d_eff <= 2 I_n <= d̃ (ln T + ln(1 + λ_1/λ)),  d_eff <= d̃ (1 + ln T).

    Source: Valko et al., UAI 2013, for SupKernelUCB; Zenati et al., AISTATS 2022, §3.3 and Appendix D. Differs: the
    inequalities have all constants; Appendix D's d_eff <= I_n fails without the 2.
    Cost: O(n³) time, O(n²) memory.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    X, rounds = checks.listed_points("X", X), checks.positive_integer("horizon", horizon)
    check_kernel(kernel, X[:1])
    step = checks.positive("regularization", regularization) * math.log(rounds)
    values = gram(kernel, X)
    ascending = torch.linalg.eigvalsh(values.double()).clamp_min(0.0)
    left_out = torch.cat([ascending.new_zeros(1), ascending.cumsum(0)]).flip(0)
    rounding = len(X) * torch.finfo(values.dtype).eps * left_out[0]
    enough = torch.arange(len(left_out), device=X.device) * step + rounding >= left_out
    return int(enough.int().argmax())


# ---------------------------------------------------------------- λ, how long to remember, and what to ask


def regularization_for(horizon: int, capacity: float = 1.0, *, dictionary_size: int | None = None) -> float:
    """Return the λ that balances the two terms of K-UCB's and EK-UCB's regret, in units of the noise variance R².

        λ = T^{α/(1+α)};  for a dictionary of m <= T^{α/(1+α)} points λ = μ = T m^{−1/α}

    where the effective dimension is at most (T/λ)^α. The capacity α in [0, 1] is 1/p where eigenvalues of the kernel
    fall as k^{−p}: d/(2ν+d) of a Matérn kernel. It is 0, so that λ is 1, where they fall exponentially, as those of an
    RBF kernel; and 1, so that λ is √T, where nothing is known. Regret is then of order T^{(1+3α)/(2+2α)}, or T
    m^{(α−1)/(2α)} with so small a dictionary; a larger one gains nothing. μ is the ``projection`` of EK-UCB, which is λ
    unless given. A start for tuning, since constants and logarithms are left out.

    Source: Zenati et al., AISTATS 2022, Corollaries 3.1 and 4.1, and √T in §5. Differs: R is 1 there.
    """
    horizon, capacity = checks.positive_integer("horizon", horizon), checks.unit_interval("capacity", capacity)
    size = checks.optional(checks.positive_integer)("dictionary_size", dictionary_size)
    enough = horizon ** (capacity / (1.0 + capacity))
    return enough if size is None or size >= enough else horizon * size ** (-1.0 / capacity)


def restart_period(horizon: int, variation_budget: float | None = None, *, gain: float) -> int:
    """Return after how many rounds R-GP-UCB forgets everything: the H that balances drift against learning anew.

        H = γ_T^¼ (T / P_T)^½;  with an unknown budget γ_T^¼ T^½, as if P_T were 1

    rounded to the nearest whole number from 1 to T: a start for tuning, since a constant that holds B, R and λ is left
    out. The budget P_T >= 0 bounds Σ_t ‖f_{t+1} − f_t‖_k: J Δ for J jumps by Δ. γ_T > 0 is the largest information gain
    of T observations: ``RateGain(...).at(T)``, or the last, as a float, of ``greedy_information_gain(...)``.

    Source: Zhou & Shroff, CISS 2021, remarks to Theorems 1 and 2.
    """
    horizon, complexity = checks.positive_integer("horizon", horizon), checks.positive("gain", gain)
    budget = 1.0 if variation_budget is None else checks.non_negative("variation_budget", variation_budget)
    # Compared before dividing: a budget near 0 would overflow.
    if complexity**0.5 >= horizon * budget:
        return horizon
    return max(1, math.floor(complexity**0.25 * math.sqrt(horizon / budget) + 0.5))


def window_size(horizon: int, variation_budget: float | None = None, *, gain: float) -> int:
    """Return how many observations SW-GP-UCB lets count, as ``restart_period``; Algorithm 2 keeps one more."""
    return restart_period(horizon, variation_budget, gain=gain)


def sparq_questions(round: int, factor: float = 6.0, dimension: int = 1) -> int:
    """Return how many questions SparQ-GP-UCB asks its expert in a round t >= 1: factor · (ln t)^d, rounded up.

    Source: Mauduit et al., 2025: 6 ln t in the experiments, where d = 1; O((ln t)^d) in Theorem 3.1.
    """
    round, dimension = checks.positive_integer("round", round), checks.positive_integer("dimension", dimension)
    factor, logarithm = checks.positive("factor", factor), math.log(math.log(round)) if round > 1 else -math.inf
    if math.log(factor) + dimension * logarithm > math.log(checks.LARGEST_EXACT):
        raise InputError(f"factor and dimension must give at most {checks.LARGEST_EXACT:,} questions.")
    return math.ceil(factor * math.log(round) ** dimension)


def sparq_cutoff(round: int, regularization: float, g: Callable[[int], float] = math.log) -> float:
    """Return the noise variance λ g(t) above which SparQ-GP-UCB drops an observation in round t >= 1.

    It is in reward units squared, and where it exceeds λ the ``max_variance`` of ``UncertaintyInjectionLikelihood``.
    With g = ln and the noise λ (a² + 1) at age a this drops all but the youngest, and all before round 3.

    Source: Mauduit et al., 2025, Algorithm 1 and §3; the theorem allows any g(t) = o(t^¼).
    """
    round, noise = checks.positive_integer("round", round), checks.positive("regularization", regularization)
    if not callable(g):
        raise InputError(f"g must be a function of the round such as math.log, got {checks.describe(g)}.")
    return noise * checks.non_negative(f"g({round})", g(round))

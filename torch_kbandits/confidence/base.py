"""What a confidence width is, and what it may know."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.guarantee import Assumption, Circumstances, Condition, Guarantee, Status, said
from torch_kbandits.errors import InputError

#: Which edge of a confidence band says whether a limit is kept, the worse one or the better, and β unless it is given:
#: a safe play is to be wrong about once in a thousand, a hopeful one may be.
Mode = Literal["safe", "optimistic"]
DEFAULT_BETA: dict[str, float] = {"safe": 3.0, "optimistic": 2.0}


@runtime_checkable
class Evidence(Protocol):
    """What a width may know of a posterior, all of it 0-dim. Models and surrogates provide it."""

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        ...

    @property
    def regularization(self) -> Tensor:
        """λ, in reward units squared."""
        ...

    def effective_dimension(self) -> Tensor:
        """d_eff = Σ_s τ(x_s)."""
        ...

    def information_gain(self) -> Tensor:
        """I_t = ½ log det(I + K/λ), in nats."""
        ...

    def projection_error(self) -> Tensor:
        """Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s: what the dictionary leaves out of the points played; 0 if exact."""
        ...

    def kernel_bound(self) -> Tensor:
        """κ², the largest k(x, x), in reward units squared."""
        ...

    def mean_norm(self) -> Tensor:
        """‖μ_t‖_k, the RKHS norm of the posterior mean, in reward units."""
        ...


class Width(ABC):
    """How wide the confidence band is: β_t, the multiplier of the posterior standard deviation.

    A value without state. BoTorch's ``UpperConfidenceBound(beta=b)`` multiplies by √b, so our constant 2 is its 4.
    Papers whose variance is divided by λ give a radius √λ times larger, divided out here.
    """

    theorem: ClassVar[str | None] = None  #: Where the theorem behind the width is; None if there is none.
    assumes: ClassVar[tuple[Condition, ...]] = ()  #: What it assumes: each says of a bandit whether that holds.

    @abstractmethod
    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t >= 0, 0-dim, after t observations. Cost: that of what it reads of the evidence."""

    def assumptions(self, known: Circumstances) -> tuple[Assumption, ...]:
        """Return what the theorem assumes, and which of it holds in a bandit; nothing without a theorem."""
        return tuple(each for condition in self.assumes for each in condition(known, self))

    def guarantee(self, known: Circumstances) -> Guarantee:
        """Return what the theorem says of a bandit."""
        theorem = self.theorem if known.theory is None else known.theory.theorem
        return Guarantee(repr(self), theorem, self.assumptions(known), known.quality)


class InformationGain(ABC):
    """What a theorem's width puts in place of γ, the maximum information gain of its observations, in nats.

    A value without state. A paper's γ_{t−1} is that of the ``num_observations`` of the evidence, made before round t.
    """

    #: Whether it is at least the information gain of what was played, as theorems need it: that is not known of rates.
    is_bound: Status = "unknown"

    @abstractmethod
    def __call__(self, evidence: Evidence) -> Tensor:
        """Return γ >= 0, 0-dim, after ``evidence.num_observations`` observations."""


def _gain(name: str, value: Any) -> InformationGain:
    checks.instance(name, value, InformationGain, "an information gain such as RealizedGain()")
    return value


#: The constants that theorems have in common, with the check of each.
_CONSTANTS: dict[str, Callable[[str, Any], Any]] = {
    "noise_scale": checks.scale,
    "norm_bound": checks.scale,
    "failure_probability": checks.open_unit_interval,
    "accuracy": checks.open_unit_interval,
    "num_arms": checks.positive_integer,
    "num_bounds": checks.positive_integer,
    "projection": checks.optional(checks.positive),
    "gain": _gain,
}


class TheoremWidth(Width):
    """A width with a theorem behind it: a frozen dataclass of the theorem's constants, and ``assumes`` what it assumes.

    Papers write β_t for the width that chooses the t-th point; ``num_observations`` is t − 1. These constants mean the
    same everywhere, and are checked here:

    - ``noise_scale``: R > 0, the noise is conditionally R-sub-Gaussian, in reward units;
    - ``norm_bound``: B > 0, at least the RKHS norm of the reward function, of each where it changes;
    - ``failure_probability``: δ in (0, 1), that the band is left at any point in any round;
    - ``num_arms``: A, at least the number of arms, which are fixed before the run;
    - ``num_bounds``: n, how many bounds hold at once;
    - ``gain``: what stands for the information gain; the realised one is the narrowest for which the proofs hold.
    """

    def __post_init__(self) -> None:
        checks.keep(self, **{name: check for name, check in _CONSTANTS.items() if hasattr(self, name)})

    def smallest(self, regularization: float) -> float:
        """Return the width before any observation, the least at λ: a constant below it has lost the theorem."""
        zero = torch.zeros((), dtype=torch.float64)
        numbers = ("effective_dimension", "information_gain", "projection_error", "kernel_bound", "mean_norm")
        evidence: Any = SimpleNamespace(**dict.fromkeys(numbers, lambda: zero))
        evidence.regularization, evidence.num_observations = zero + regularization, 0
        return float(self(evidence))


@dataclass(frozen=True)
class SubGaussian:
    """The constants R, B and δ of theorems on functions of bounded norm; see ``TheoremWidth``."""

    noise_scale: float
    norm_bound: float
    failure_probability: float


def _at_least_the_theorems(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """Compare a number with the theorem that it is in place of, if the constants of one were given."""
    theory = known.theory
    if theory is None:
        return ()
    name, least = f"β at least that of {type(theory).__name__}", theory.smallest(known.regularization)
    sentence = f"beta={width.value:g} is at least its least width, {least:.3g}, which grows."
    if is_below := width.value < least:
        sentence = (
            f"beta={width.value:g} is below the theorem's width (at least {least:.3g}): the run is valid, its regret "
            "bound is not. That is what works in practice; leave out the theorem's constants to say so."
        )
    own = said(name, "fails" if is_below else "unknown", sentence)
    return (*theory.assumptions(replace(known, theory=None)), *own)


@dataclass(frozen=True)
class ConstantWidth(Width):
    """The same multiplier β >= 0 in every round: what practitioners use, with no theorem behind it."""

    assumes = (_at_least_the_theorems,)

    value: float

    def __post_init__(self) -> None:
        checks.keep(self, value=checks.non_negative)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        return evidence.regularization.new_full((), self.value)


def _scaled(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """With a factor of √C a theorem covers batches, too, and below 1 it says nothing."""
    enough = width.factor >= known.ratio**0.5 * (1.0 - 1e-12)
    of_width = width.width.assumptions(replace(known, ratio=1.0) if enough else known)
    if width.width.theorem is None:
        return of_width
    sentence = f"the theorem's width is times {width.factor:g}."
    return (*of_width, *said("a factor of at least 1", width.factor >= 1.0, sentence))


@dataclass(frozen=True)
class ScaledWidth(Width):
    """A theorem's width times a factor: the widths of the theorems over-explore by about an order of magnitude."""

    assumes = (_scaled,)

    width: Width
    factor: float  #: At least 0; below 1 the theorem no longer holds.

    def __post_init__(self) -> None:
        checks.instance("width", self.width, Width, "a confidence width such as ConstantWidth(2.0)")
        checks.keep(self, factor=checks.non_negative)
        object.__setattr__(self, "theorem", self.width.theorem if self.factor >= 1.0 else None)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        return self.factor * self.width(evidence)


def multiplier(beta: float | Tensor | Width, model: object) -> Tensor:
    """Return the multiplier of σ that ``beta`` stands for on a model."""
    if isinstance(beta, Width):
        if not isinstance(model, Evidence):
            name = type(model).__name__
            raise InputError(f"A width reads evidence, which NystromGP has and {name} has not: give a number.")
        of_theorem = beta.width if isinstance(beta, ScaledWidth) else beta
        if isinstance(of_theorem, TheoremWidth) and getattr(model, "outcome_transform", None) is not None:
            raise InputError(
                f"The constants of {type(of_theorem).__name__} are in the units of the rewards, which the model "
                "transforms: make it with outcome_transform=None, which it is where a regularization is given."
            )
        beta = beta(model)
    entry = beta if isinstance(beta, Tensor) and not beta.is_nested and beta.numel() == 1 else None
    number = checks.non_negative("beta", beta if entry is None else entry.reshape(()))
    return torch.tensor(number, dtype=torch.float64, device="cpu" if entry is None else entry.device)

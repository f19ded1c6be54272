"""What is measured of a play beside its reward, the limits that it must keep, and what is known to be safe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates import Candidates, Configurations
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import DEFAULT_BETA, Mode
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean

_KNOWN = 1e-30  # the prior variance of what is known


@dataclass(frozen=True, eq=False)
class Outcome:
    """Something measured of a play beside its reward, such as a temperature. It has a posterior of its own.

    Args:
        name: by which ``tell`` is given it.
        prior: what is assumed of it, in its own units; unless given, fitted as it is told, with nothing clipped.
        memory: which of it counts at a time; None for the memory of the bandit.

    Raises:
        InputError: if an argument does not fit.
    """

    name: str
    prior: Prior | LearnedPrior = field(default_factory=lambda: LearnedPrior(clip=False))
    memory: Memory | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"the name of an outcome must be a non-empty string, got {checks.shown(self.name)}.")
        checks.instance(f"prior of outcome {self.name!r}", self.prior, (Prior, LearnedPrior), "a Prior or LearnedPrior")
        checks.absent_or(f"memory of outcome {self.name!r}", self.memory, Memory, "a memory")

    @classmethod
    def known(cls, name: str, function: PriorMean) -> Self:
        """Return an outcome that is a known function of the points, given as the ``mean`` of a ``Prior`` is."""
        kernel = ScaleKernel(RBFKernel())
        kernel.outputscale = _KNOWN
        return cls(name, Prior(kernel, 1.0, function))


@dataclass(frozen=True, eq=False)
class Limit:
    """A limit on an outcome c with posterior mean μ_c and deviation σ_c; give ``AtMost`` or ``AtLeast``.

    "safe" plays only points of which c is surely within the limit, μ_c + β σ_c <= h where c is to be at most h, or that
    ``safe_seed`` names. While a point that may be safe promises the most reward, safe points are played that are
    expected to show that it is. A learned prior is trusted once it was fitted; before that only the seed is played.

    "optimistic" plays points of which c may be within the limit, μ_c − β σ_c <= h. Some plays break it; by how much
    altogether grows more slowly than the rounds under the assumptions of the source.

    Where nothing may be played ``ask`` raises an ``InfeasibleError``. Points pending do not count as seen here.

    Source: safe: Sui et al., "Safe exploration for optimization with Gaussian processes", ICML 2015, and "Stagewise
    safe Bayesian optimization with Gaussian processes", ICML 2018; what is worth expanding to: Turchetta et al., "Safe
    exploration for interactive machine learning", NeurIPS 2019. Optimistic: Xu et al., "Constrained efficient global
    optimization of expensive black-box functions", ICML 2023. Differs: points are safe by the posterior alone, without
    a Lipschitz constant; a play expands the safe set by the outcome expected of it; on a box a spread set stands for
    all points.

    Args:
        outcome: its name, or an ``Outcome`` with prior and memory.
        value: h, in the units of the outcome.
        mode: "safe" or "optimistic".
        beta: the multiplier of the outcome's standard deviation, or a ``Width`` of the outcome. Unless given 3 for
            "safe", 2 for "optimistic", which no theorem is behind.
        safe_seed: what is known to be safe at any time, only for "safe": points (k, d), with contexts actions (k, a)
            that are safe in every context, configurations of a parameter space, or a function that says of points
            (k, d), with contexts (context, action), whether they are, (k,) bool.

    Raises:
        InputError: if an argument does not fit.
    """

    #: 1 where the outcome is to be at most the value, −1 where at least.
    sign: ClassVar[float] = 1.0

    outcome: str | Outcome
    value: float
    mode: Mode = "safe"
    beta: float | Width | None = None
    safe_seed: Tensor | Sequence[Any] | Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, (str, Outcome)) or not self.name:
            raise InputError(f"outcome must be a name or an Outcome, got {checks.describe(self.outcome)}.")
        checks.keep(self, value=checks.finite_number)
        checks.one_of("mode", self.mode, DEFAULT_BETA)
        beta = DEFAULT_BETA[self.mode] if self.beta is None else self.beta
        object.__setattr__(self, "beta", beta if isinstance(beta, Width) else ConstantWidth(beta))
        if self.safe_seed is not None and self.mode != "safe":
            raise InputError('safe_seed is what "safe" starts from: leave it out with mode="optimistic".')

    @property
    def name(self) -> str:
        """The name of the outcome."""
        return self.outcome.name if isinstance(self.outcome, Outcome) else self.outcome

    @property
    def width(self) -> Width:
        """What the outcome's standard deviation is multiplied by."""
        return cast(Width, self.beta)

    @property
    def is_safe(self) -> bool:
        """Whether only what is surely within the limit is played."""
        return self.mode == "safe"

    def excess(self, mean: Tensor, variance: Tensor, beta: Tensor, *, surely: bool) -> Tensor:
        """Return by how much the worse bound of an outcome, or the better, is beyond the limit, of the means' shape."""
        width = beta * variance.clamp_min(0.0).sqrt()
        return self.sign * (mean - self.value) + (width if surely else -width)


@dataclass(frozen=True, eq=False)
class AtMost(Limit):
    """The outcome is to be at most a value; see ``Limit``."""


@dataclass(frozen=True, eq=False)
class AtLeast(Limit):
    """The outcome is to be at least a value; see ``Limit``."""

    sign = -1.0


def declared(
    outcomes: Sequence[str | Outcome], limits: Sequence[Limit], objectives: Sequence[str] = ()
) -> tuple[Outcome, ...]:
    """Return the outcomes that are named, in the order given, and then those that only limits or objectives do."""
    named = [Outcome(each) if isinstance(each, str) else each for each in outcomes]
    for number, each in enumerate(named):
        checks.instance(f"outcomes[{number}]", each, Outcome, "a name or an Outcome")
    named += [each.outcome for each in limits if isinstance(each.outcome, Outcome)]
    found = dict[str, Outcome]()
    for each in (*named, *(limit.outcome for limit in limits), *objectives):
        if isinstance(each, str):
            found.setdefault(each, Outcome(each))
        elif found.setdefault(each.name, each) is not each:
            raise InputError(f"Outcomes are declared once; say prior and memory of {each.name!r} in one place.")
    return tuple(found.values())


@dataclass(frozen=True, eq=False)
class KnownSafe:
    """What is safe at any time and in any context: actions (k, a), or points of which a rule says so."""

    actions: Tensor  # none of a rule
    rule: Callable[[Tensor], Tensor] | None  # of points (n, d), with contexts (context, action)
    context_dim: int  # columns of points before the action: of the time and of the context
    time_dim: int  # columns before what the rule sees, of the time

    @classmethod
    def of(cls, given: Any, candidates: Candidates) -> Self:
        """Return what was given as ``safe_seed`` for points of candidates; ``InputError`` if it does not fit them."""
        own = untimed(candidates)
        actions, rule = own.example[:0, own.context_dim :], cast(Any, given) if callable(given) else None
        if given is not None and rule is None:
            if isinstance(own, Configurations) and not isinstance(given, Tensor):
                given = own.space.encode([given] if isinstance(given, dict) else cast(Any, given)).to(own.example)
            given, number = own.brought("safe_seed", given), actions.shape[-1]
            actions = checks.points("safe_seed", given, dimension=number, like=own.example).detach().clone()
            if actions.dim() != 2 or not len(actions):
                raise InputError(f"safe_seed must be (k, {number}) with k >= 1, got {checks.describe(given)}.")
        return cls(actions, rule, candidates.context_dim, int(candidates.is_timed))

    def contains(self, X: Tensor) -> Tensor:
        """Say of points (n, d) whether they are known to be safe, (n,)."""
        if self.rule is None:
            return (X[:, self.context_dim :].unsqueeze(-2) == self.actions.to(X.device)).all(-1).any(-1)
        found = self.rule(X[:, self.time_dim :].to(self.actions.dtype))
        if not isinstance(found, Tensor) or found.shape != X.shape[:1] or found.dtype != torch.bool:
            raise InputError(f"safe_seed must return ({len(X)},) bool, got {checks.describe(found)}.")
        return found.to(X.device)

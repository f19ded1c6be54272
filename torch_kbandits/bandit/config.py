"""What a bandit is made of, and the surrogates that its pieces begin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, Self, cast, get_type_hints

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import (
    AcquisitionRule,
    EpsilonGreedy,
    SoftmaxRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.advice import Questions
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.compatibility import check_candidates, check_pieces
from torch_kbandits.bandit.fidelities import Levels
from torch_kbandits.candidates import Candidates, ContextualActions
from torch_kbandits.candidates.base import unknown_ranges
from torch_kbandits.candidates.timed import timed, untimed
from torch_kbandits.confidence import ConstantWidth, TheoremWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.memory.base import LastObservations
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Expiry
from torch_kbandits.outcomes import Fidelity, KnownSafe, Limit, Objective, Outcome, declared
from torch_kbandits.priors import Family, LearnedPrior, Prior
from torch_kbandits.priors.learned import LastFit
from torch_kbandits.priors.prior import depends_on_time, mean_over
from torch_kbandits.priors.units import column_spans
from torch_kbandits.selection import (
    EnsembleSurrogate,
    PosteriorConfig,
    StagedSurrogate,
    Surrogate,
    surrogate_over,
)


@dataclass(frozen=True, eq=False)
class SurrogateSpec:
    """What is taken for true of the function and its noise; the mean is that of all points, None for zero."""

    prior: Prior
    memory: Memory | None
    mean: Mean | None = None

    def expected(self, X: Tensor) -> Tensor:
        """Return the prior means of points (n, d), (n,)."""
        return X.new_zeros(len(X)) if self.mean is None else prior_mean(self.mean, X)

    def counted(self, told: History) -> History:
        """Return the plays that have rewards, with these as they count."""
        told, floor = told.rewarded, self.prior.floor
        return told if floor == -math.inf else told._replace(Y=told.Y.clamp_min(floor))


@dataclass(frozen=True, eq=False)
class BanditConfig:
    """What a bandit is made of, checked when put together: the arguments of ``Bandit``, with a prior and a width of 0.

    Under a memory or mean that depends on time the points of the candidates get a column of it.
    """

    candidates: Candidates
    prior: Prior | LearnedPrior
    dictionary: DictionaryRule | None
    width: Width | None
    acquisition: AcquisitionRule | EpsilonGreedy
    batches: BatchRule | None
    memory: Memory | None
    seed: int
    trigger: RestartTrigger | None = None
    memories: MemoryChoice | None = None
    advice: Questions | None = None
    family: Family | None = None
    theory: TheoremWidth | None = None
    noise_scale: float | None = None
    outcomes: Sequence[str | Outcome] = ()
    constraints: Sequence[Limit] = ()
    expire_after: Expiry | None = None
    objective: Objective | None = None
    fidelity: Fidelity | None = None

    def __post_init__(self) -> None:
        checks.keep(self, seed=checks.whole_number, noise_scale=checks.optional(checks.positive))
        checks.keep(self, outcomes=checks.entries, constraints=checks.entries)
        for name, kinds in _kinds().items():
            hint = " or ".join(kind.__name__ for kind in kinds).replace("NoneType", "None")
            checks.instance(name, getattr(self, name), kinds, hint)
        check_pieces(self)
        if self.hidden_columns:
            object.__setattr__(self, "candidates", timed(self.candidates))
        if self.width is None:
            object.__setattr__(self, "width", ConstantWidth(0.0))
        check_candidates(self)
        _ = self.spec, self.specs, self.of_outcomes, self.known_safe, self.levels

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of ``Bandit`` that make it again, without choosing its pieces anew."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: piece for name, piece in given.items() if piece not in (None, ())}

    # ---------------------------------------------------------------- choices

    @cached_property
    def rule(self) -> AcquisitionRule:
        """How the next point is chosen from the posterior, where it is not chosen uniformly."""
        return self.acquisition.rule if isinstance(self.acquisition, EpsilonGreedy) else self.acquisition

    @cached_property
    def states_propensities(self) -> bool:
        """Whether the probability of every choice is recorded, as of rules that are there for the sake of it."""
        is_random = isinstance(self.acquisition, (EpsilonGreedy, SoftmaxRule))
        return is_random and untimed(self.candidates).is_finite and not untimed(self.candidates).is_split

    @cached_property
    def levels(self) -> Levels | None:
        """The fidelity as points have it; None where no column is one."""
        return None if self.fidelity is None else Levels(self.fidelity, self.candidates)

    # ---------------------------------------------------------------- time

    @cached_property
    def all_memories(self) -> tuple[Memory, ...]:
        """The memories that may be in force."""
        if self.memories is not None:
            return self.memories.memories
        return _known(self.memory, *(each.memory for each in self._variants))

    @cached_property
    def has_clock(self) -> bool:
        """Whether it matters when something is asked or told: for rewards or an outcome."""
        return self.candidates.is_timed or bool(self.all_memories or _known(*(each.memory for each in self.declared)))

    @property
    def clock(self) -> Clock:
        """The clock before anything is asked or told."""
        counts_rounds = self.memories is not None and self.memories.counts_rounds
        return Clock(kind="rounds" if counts_rounds else None, matters=self.has_clock)

    @cached_property
    def hidden_columns(self) -> int:
        """How many columns of points, the first, the kernel given does not see: a time that a memory or mean needs."""
        memories = [*self.all_memories, *_known(*(each.memory for each in self.declared))]
        means = [each.mean for each in (self.prior, *self._variants, *(each.prior for each in self.declared))]
        return int(any(each.needs_time_column for each in memories) or any(map(depends_on_time, means)))

    @cached_property
    def own_columns(self) -> int:
        """The first column by which a point is known again: it may be told at another time than it was asked for."""
        return int(self.candidates.is_timed)

    # ---------------------------------------------------------------- priors

    @cached_property
    def learning(self) -> LearnedPrior | None:
        """How the prior is learned; None where it is given."""
        return self.prior if isinstance(self.prior, LearnedPrior) else None

    @property
    def in_foreground(self) -> Self:
        """The same with all fits made where they are due."""
        learning = None if self.learning is None else replace(self.learning, background=False)
        return changed(self, learning=learning, of_outcomes=tuple(each.in_foreground for each in self.of_outcomes))

    @property
    def fits_to_all(self) -> bool:
        """Whether a prior is fitted to all rewards, not to what the memory in force keeps."""
        learns = self.learning is not None and self.learning.learn_memory
        return learns or (self.memories is not None and self.memories.fits_to_all)

    @cached_property
    def learns_units(self) -> bool:
        """Whether nothing is known of the units of rewards before the prior was fitted."""
        return self.learning is not None and not self.learning.is_known

    def is_fitted(self, num_learned: int) -> bool:
        """Whether the prior says where to play after so many rewards: it is given, or was fitted to enough."""
        learning = self.learning
        return learning is None or learning.says_where or num_learned >= learning.num_initial

    def is_prior_known(self, last_fit: LastFit, since: int = 0) -> bool:
        """Whether the prior is given, or was fitted when more rewards than so many, the first, had been learned."""
        return not self.learns_units or last_fit.number > since

    @cached_property
    def start(self) -> Prior:
        """The prior before any reward."""
        if isinstance(self.prior, Prior):
            return self.prior
        return self.prior.started(self.spans(self.candidates.example), self.length_scales, self.context_columns)

    @cached_property
    def spec(self) -> SurrogateSpec:
        """What is taken for true then."""
        return self.spec_of(self.start, self.memory)

    @cached_property
    def specs(self) -> tuple[SurrogateSpec, ...]:
        """Those of the family, what one leaves out as the bandit has it; none without."""
        # With a clock all have a memory, since points may know the time for the sake of one.
        memory = self.memory or (Stationary() if self.all_memories else None)
        found = []
        for each in self._variants:
            words = {name: getattr(each, name) for name in ("kernel", "regularization", "mean")}
            prior = replace(self.start, **{name: word for name, word in words.items() if word is not None})
            found.append(self.spec_of(prior, each.memory or memory))
        return tuple(found)

    @property
    def _variants(self) -> Sequence[Any]:
        return () if self.family is None else self.family.variants

    @property
    def num_stages(self) -> int:
        """How many there are of what may have chosen a point: the stages of a rule, or hypotheses; 0 for neither."""
        return self.rule.num_stages or len(self.specs)

    def spec_of(self, prior: Prior, memory: Memory | None) -> SurrogateSpec:
        """Return what is taken for true under a prior and a memory."""
        is_zero = isinstance(prior.mean, float) and prior.mean == 0.0
        return SurrogateSpec(prior, memory, None if is_zero else mean_over(self.candidates, prior.mean))

    def spans(self, X: Tensor) -> Tensor:
        """Return what each column that the kernel of the prior sees is divided by, (d,), of points (n, d) as well."""
        times = unknown_ranges(self.candidates.is_timed - self.hidden_columns)
        return column_spans(X[:, self.hidden_columns :], torch.cat([times, self.candidates.ranges], -1), self.groups)

    @property
    def groups(self) -> Sequence[int] | None:
        """Of each column that the kernel of the prior sees the number of its parameter; None: each is one."""
        return None if self.candidates.is_timed > self.hidden_columns else untimed(self.candidates).groups

    @property
    def context_columns(self) -> int:
        """How many of these columns, the first, are of the context; 0 where the time is one of them."""
        return 0 if self.candidates.is_timed > self.hidden_columns else untimed(self.candidates).context_dim

    @property
    def length_scales(self) -> Sequence[int] | None:
        """Of each of these columns the number of its length scale: those of a context without names have one."""
        number, groups = self.context_columns, self.groups
        if not number or self.names is not None:
            return groups
        of_actions = range(number, self.candidates.example.shape[-1] - self.hidden_columns)
        return [0] * number + [1 + (each if groups is None else groups[each]) for each in of_actions]

    @property
    def names(self) -> Sequence[str] | None:
        """Of each of these columns the name, empty where it is not known; None: none is."""
        return None if self.candidates.is_timed > self.hidden_columns else untimed(self.candidates).names

    # ---------------------------------------------------------------- outcomes

    @cached_property
    def declared(self) -> tuple[Outcome, ...]:
        """The outcomes, those that only limits or the objective name included."""
        return declared(self.outcomes, self.constraints, () if self.objective is None else self.objective.outcomes)

    @cached_property
    def of_outcomes(self) -> "tuple[BanditConfig, ...]":
        """For each outcome the configuration of its posterior, as if it were the reward."""
        own = untimed(self.candidates) if self.hidden_columns else self.candidates
        rule, width = UpperConfidenceRule(), ConstantWidth(0.0)
        return tuple(
            BanditConfig(own, each.prior, self.dictionary, width, rule, None, each.memory or self.memory, self.seed)
            for each in self.declared
        )

    @cached_property
    def known_safe(self) -> tuple[KnownSafe, ...]:
        """What each limit knows to be safe."""
        return tuple(KnownSafe.of(each.safe_seed, self.candidates) for each in self.constraints)

    # ---------------------------------------------------------------- surrogates

    def plain_surrogate(self, spec: SurrogateSpec) -> Surrogate:
        """Return a surrogate of one posterior before anything is learned; of arms on many machines of those told."""
        candidates, example = self.candidates, self.candidates.example
        if candidates.is_split:
            candidates = ContextualActions(action_dim=example.shape[-1], context_dim=0, dtype=example.dtype)
        return surrogate_over(candidates, self._posterior_config(spec))

    def surrogate(self, spec: SurrogateSpec) -> Surrogate:
        """Return the surrogate before any reward, under the spec that is in force."""
        if self.family is not None:
            parts = tuple(surrogate_over(self.candidates, self._posterior_config(each)) for each in self.specs)
            return EnsembleSurrogate(parts, self.family.rule, cast(Width, self.width), keeps_all=not self.all_memories)
        num_stages, memory = self.rule.num_stages, spec.memory
        num_latest = memory.num_latest if memory is not None and num_stages else None
        under = spec if num_latest is None else replace(spec, memory=LastObservations())
        config = self._posterior_config(under)
        surrogate, *stages = (surrogate_over(self.candidates, config) for _ in range(1 + num_stages))
        return StagedSurrogate((surrogate, *stages), num_latest) if stages else surrogate

    def _posterior_config(self, spec: SurrogateSpec) -> PosteriorConfig:
        kernel, level = self.kernel_under(spec.memory, spec.prior.kernel), spec.prior.regularization
        return PosteriorConfig(kernel, level, self.seed, self.dictionary, spec.memory, spec.mean)

    def kernel_under(self, memory: Memory | None, kernel: Kernel) -> Kernel:
        """Return the prior covariance of points under a memory, given that of the function at one time."""
        prior = kernel if memory is None else memory.prior(kernel)
        # Where points know the time for the sake of another memory or of a mean, the function stays under this one.
        stays = self.hidden_columns and not (memory is not None and memory.needs_time_column)
        is_static = stays and not isinstance(prior, SpaceTimeKernel)
        return SpaceTimeKernel(prior, ForgettingKernel(0.0)) if is_static else prior

    def dictionary_generator(self, num_learned: int) -> torch.Generator | None:
        """Return the randomness of the dictionary rule after so many rewards learned; None without a rule."""
        if self.dictionary is None:
            return None
        # Not by round: rewards told one by one or at once must lead to the same dictionary after a batch.
        return generator_for(self.seed, 0 if self.dictionary.is_coupled else num_learned, "dictionary")

    def learned_in_passes(self, surrogate: Surrogate, told: History, num_learned: int) -> Surrogate:
        """Return a surrogate conditioned on more observations at once, of which the last is that of a number.

        A dictionary is chosen in passes over twice as many observations each time: the posterior knows half of them.
        """
        number = len(told.X)
        start, stop = 0, number if self.dictionary is None else 1
        while start < number:
            generator = self.dictionary_generator(num_learned - number + start)
            surrogate = surrogate.learned(told.rows(slice(start, stop)), generator)
            start, stop = stop, 2 * stop
        return surrogate


@cache
def _kinds() -> dict[str, tuple[type, ...]]:
    """Return of each piece which classes it may have."""
    checked = ("seed", "noise_scale", "outcomes", "constraints")
    hints = {name: hint for name, hint in get_type_hints(BanditConfig).items() if name not in checked}
    return {name: getattr(hint, "__args__", (hint,)) for name, hint in hints.items()}


def _known(*words: Any) -> tuple[Any, ...]:
    """Return the words that are not None."""
    return tuple(word for word in words if word is not None)

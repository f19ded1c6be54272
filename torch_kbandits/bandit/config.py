"""What a bandit is made of: which pieces go together, what tells them from others, and the beliefs that they begin."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.advice import Advice, Advised
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.compatibility import check_adaptation, check_candidates, check_kinds, check_outcomes
from torch_kbandits.bandit.settings import describe_module, describe_value
from torch_kbandits.bandit.sharing import differs_in_numbers_alone
from torch_kbandits.beliefs import Belief, EnsembleBelief, PosteriorConfig, StagedBelief, belief_over
from torch_kbandits.candidates import Candidates, ContextualActions
from torch_kbandits.candidates.base import unknown_ranges
from torch_kbandits.candidates.timed import timed, untimed
from torch_kbandits.confidence import ConstantWidth, TheoremWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.memory.base import LastObservations
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Expiry
from torch_kbandits.outcomes import KnownSafe, Limit, Outcome, Scalarization, declared
from torch_kbandits.priors import Family, LearnedPrior, Prior
from torch_kbandits.priors.learned import LastFit
from torch_kbandits.priors.prior import depends_on_time, mean_over
from torch_kbandits.priors.units import column_spans


@dataclass(frozen=True, eq=False)
class SurrogateSpec:
    """What is taken for true of the function and of its rewards. A run may go on under another: see ``relearned``.

    Attributes:
        prior: of the function at one time, and of its noise.
        memory: which observations count at a time; None where all do. A bandit that starts without one has no clock, so
            one that may get one starts with ``Stationary()``; a prior on time needs points that know the time.
        mean: the prior mean of points as the candidates have them; None for zero.
    """

    prior: Prior
    memory: Memory | None
    mean: Mean | None = None

    @property
    def kernel(self) -> Kernel:
        """The prior covariance of the function at one time."""
        return self.prior.kernel

    @property
    def regularization(self) -> float:
        """λ > 0, in reward units squared."""
        return self.prior.regularization

    def expected(self, X: Tensor) -> Tensor:
        """Return the prior means of points (n, d), (n,)."""
        return X.new_zeros(len(X)) if self.mean is None else prior_mean(self.mean, X)

    def counted(self, told: History) -> History:
        """Return the plays that have rewards, with these as they count."""
        told, floor = told.rewarded, self.prior.floor
        return told if floor == -math.inf else told._replace(Y=told.Y.clamp_min(floor))


@dataclass(frozen=True, eq=False)
class BanditConfig:
    """What a bandit is made of, checked when put together. A value: what is learned is elsewhere.

    The arguments are those of ``Bandit``, with kernel, λ and mean as one prior, given or to be learned. Under a memory
    or mean that depends on time the points of the candidates get a column of it. Without a width it is 0.

    Raises:
        InputError: if a piece does not fit, or two of them do not go together.
    """

    candidates: Candidates
    prior: Prior | LearnedPrior
    dictionary: DictionaryRule | None
    width: Width | None
    acquisition: AcquisitionRule
    batches: BatchRule | None
    memory: Memory | None
    seed: int
    trigger: RestartTrigger | None = None
    memories: MemoryChoice | None = None
    advice: Advice | None = None
    family: Family | None = None
    theory: TheoremWidth | None = None
    noise_scale: float | None = None
    outcomes: Sequence[str | Outcome] = ()
    constraints: Sequence[Limit] = ()
    expire_after: Expiry | None = None
    objective: Scalarization | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        checks.keep(self, seed=checks.whole_number, noise_scale=checks.optional(checks.positive))
        checks.keep(self, outcomes=checks.entries, constraints=checks.entries)
        for number, limit in enumerate(self.constraints):
            checks.instance(f"constraints[{number}]", limit, Limit, 'a limit such as AtMost("temperature", 80.0)')
        check_adaptation(self)
        check_outcomes(self)
        if self._adds_time:
            object.__setattr__(self, "candidates", timed(self.candidates))
        if self.width is None:
            object.__setattr__(self, "width", ConstantWidth(0.0))
        check_candidates(self)
        _ = self.spec, self.specs, self.of_outcomes, self.known_safe

    # ---------------------------------------------------------------- what follows from the pieces

    @cached_property
    def start(self) -> Prior:
        """The prior before any reward."""
        if isinstance(self.prior, Prior):
            return self.prior
        example = self.candidates.example[:, self.hidden_columns :]
        return self.prior.started(column_spans(example, self.ranges, self.groups), self.groups)

    @cached_property
    def spec(self) -> SurrogateSpec:
        """What is taken for true then."""
        return self.spec_of(self.start, self.memory)

    @cached_property
    def specs(self) -> tuple[SurrogateSpec, ...]:
        """Those of the family, what one leaves out as the bandit has it; none without."""
        return tuple(self._all_specs())

    def _all_specs(self) -> Iterator[SurrogateSpec]:
        memory = self.memory
        # With a clock all have a memory, since points may know the time for the sake of one.
        memory = Stationary() if memory is None and self.all_memories and self.memories is None else memory
        for each in () if self.family is None else self.family.variants:
            words = {name: getattr(each, name) for name in ("kernel", "regularization", "mean")}
            prior = replace(self.start, **{name: word for name, word in words.items() if word is not None})
            yield self.spec_of(prior, memory if each.memory is None else each.memory)

    @cached_property
    def declared(self) -> tuple[Outcome, ...]:
        """The outcomes, those that only limits or the objective name included."""
        return declared(self.outcomes, self.constraints, () if self.objective is None else self.objective.outcomes)

    @cached_property
    def of_outcomes(self) -> "tuple[BanditConfig, ...]":
        """For each outcome the configuration of its posterior, as if it were the reward."""
        width, rule, candidates = ConstantWidth(0.0), UpperConfidenceRule(), self.candidates
        own = untimed(candidates) if self.hidden_columns else candidates
        memories = (self.memory if each.memory is None else each.memory for each in self.declared)
        return tuple(
            BanditConfig(own, each.prior, self.dictionary, width, rule, None, memory, self.seed)
            for each, memory in zip(self.declared, memories, strict=True)
        )

    @cached_property
    def known_safe(self) -> tuple[KnownSafe, ...]:
        """What each limit knows to be safe."""
        return tuple(KnownSafe.of(each.safe_seed, self.candidates) for each in self.constraints)

    def as_in(self, own: "BanditConfig", X: Tensor) -> Tensor:
        """Return points (n, d) as the configuration of an outcome has them: without a time that it does not know."""
        return X[:, self.hidden_columns - own.hidden_columns :].to(own.candidates.example.dtype)

    @property
    def has_clock(self) -> bool:
        """Whether it matters when something is asked or told."""
        return bool(self._dating) or self.candidates.is_timed

    @property
    def clock(self) -> Clock:
        """The clock before anything is asked or told."""
        return Clock(matters=self.has_clock)

    @property
    def _dating(self) -> tuple[Memory, ...]:
        """The memories for which it matters: of rewards and of outcomes."""
        return *self.all_memories, *(each.memory for each in self.declared if each.memory is not None)

    @property
    def all_memories(self) -> tuple[Memory, ...]:
        """The memories that may be in force."""
        if self.memories is not None:
            return self.memories.memories
        own = [] if self.family is None else [each.memory for each in self.family.variants]
        return tuple(memory for memory in (self.memory, *own) if memory is not None)

    @property
    def forgetting(self) -> list[str]:
        """What makes observations stop counting, or count for less."""
        names = [] if self.trigger is None else [repr(self.trigger)]
        return list(dict.fromkeys([*names, *(repr(memory) for memory in self.all_memories if memory.forgets)]))

    @cached_property
    def _adds_time(self) -> bool:
        """Whether points know the time since a memory that may be in force, or a mean, depends on it."""
        means = [self.prior.mean, *([] if self.family is None else [each.mean for each in self.family.variants])]
        means += [each.prior.mean for each in self.declared]
        return any(memory.needs_time_column for memory in self._dating) or any(map(depends_on_time, means))

    @property
    def hidden_columns(self) -> int:
        """How many columns of points, the first, the kernel given does not see: a time that something else needs."""
        return int(self._adds_time)

    @property
    def own_columns(self) -> int:
        """The first column by which a point is known again: it may be told at another time than it was asked for."""
        return int(self.candidates.is_timed)

    @property
    def num_stages(self) -> int:
        """How many there are of what may have chosen a point: the stages of a rule, or hypotheses; 0 for neither."""
        return self.acquisition.num_stages or len(self.specs)

    # ---------------------------------------------------------------- priors

    @property
    def learning(self) -> LearnedPrior | None:
        """How the prior is learned; None where it is given."""
        return self.prior if isinstance(self.prior, LearnedPrior) else None

    @property
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

    def spec_of(self, prior: Prior, memory: Memory | None) -> SurrogateSpec:
        """Return what is taken for true under a prior and a memory."""
        return SurrogateSpec(prior, memory, None if _is_nothing(prior.mean) else mean_over(self.candidates, prior.mean))

    def in_force(self, spec: SurrogateSpec, belief: Belief) -> SurrogateSpec:
        """Return the spec that a belief is under: of a family that of the hypothesis that leads."""
        return self.specs[belief.leader] if isinstance(belief, EnsembleBelief) else spec

    @property
    def groups(self) -> Sequence[int] | None:
        """Of each column that the kernel of the prior sees the number of its parameter; None: each is one."""
        return None if self.candidates.is_timed > self.hidden_columns else untimed(self.candidates).groups

    @property
    def names(self) -> Sequence[str] | None:
        """Of each of these columns the name, empty where it is not known; None: none is."""
        return None if self.candidates.is_timed > self.hidden_columns else untimed(self.candidates).names

    @property
    def ranges(self) -> Tensor:
        """The ranges (2, d) of the columns that the kernel of the prior sees; see ``Candidates.ranges``."""
        seen = self.candidates.is_timed - self.hidden_columns
        return torch.cat([unknown_ranges(seen), self.candidates.ranges], -1)

    def seen_by_kernel(self, points: Tensor) -> Tensor:
        """Return points (n, d) as the kernel given sees them: without a time that a memory adds."""
        is_spatial = self._adds_time and not isinstance(self.start.kernel, SpaceTimeKernel)
        return points[:, 1:] if is_spatial else points

    # ---------------------------------------------------------------- beliefs

    def plain_belief(self, spec: SurrogateSpec) -> Belief:
        """Return a belief of one posterior before anything is learned, whatever chooses by that of rewards.

        Of arms that no process has all of it knows those that are told.
        """
        candidates, example = self.candidates, self.candidates.example
        if candidates.is_split:
            candidates = ContextualActions(action_dim=example.shape[-1], context_dim=0, dtype=example.dtype)
        return belief_over(candidates, self._terms(spec))

    def belief(self, spec: SurrogateSpec) -> Belief:
        """Return the belief before any reward, under the spec that is in force."""
        if self.family is not None:
            parts = tuple(belief_over(self.candidates, self._terms(each)) for each in self.specs)
            return EnsembleBelief(parts, self.family.rule, cast(Width, self.width), keeps_all=not self.all_memories)
        num_stages, memory = self.acquisition.num_stages, spec.memory
        num_latest = memory.num_latest if memory is not None and num_stages else None
        under = spec if num_latest is None else replace(spec, memory=LastObservations())
        each = enumerate(self.of_outcomes)
        beside = tuple((number, own.spec.mean) for number, own in each if differs_in_numbers_alone(self, own))
        terms = self._terms(under, beside)
        belief, *stages = (belief_over(self.candidates, terms) for _ in range(1 + num_stages))
        if stages:
            belief = StagedBelief(belief, tuple(stages), num_latest=num_latest)
        if self.advice is not None and (memory is None or not isinstance(belief, Advised)):
            raise InputError(
                "An expert's answers count at one time only, so they need a memory, and a rule that does not choose "
                "through stages: give memory=UncertaintyInjection(...) or another, or leave out advice."
            )
        return belief

    def _terms(self, spec: SurrogateSpec, outcomes: tuple[tuple[int, Mean | None], ...] = ()) -> PosteriorConfig:
        """Return what a belief is made of; of outcomes beside the reward their numbers and prior means."""
        return PosteriorConfig(
            self.kernel_under(spec.memory, spec.kernel),
            spec.regularization,
            self.seed,
            exact=self.dictionary is None,
            online=self.dictionary is not None and self.dictionary.is_online,
            memory=spec.memory,
            mean=spec.mean,
            full_at=None if self.dictionary is None else self.dictionary.full_at,
            outcomes=outcomes,
        )

    def kernel_under(self, memory: Memory | None, kernel: Kernel) -> Kernel:
        """Return the prior covariance of points under a memory, given that of the function at one time."""
        prior = kernel if memory is None else memory.prior(kernel)
        # Where points know the time for the sake of another memory or of a mean, this one takes the function for one
        # that stays.
        stays = self._adds_time and not (memory is not None and memory.needs_time_column)
        if not stays or isinstance(prior, SpaceTimeKernel):
            return prior
        return SpaceTimeKernel(prior, ForgettingKernel(0.0))

    def dictionary_generator(self, num_learned: int) -> torch.Generator | None:
        """Return the randomness of the dictionary rule after so many rewards learned; None without a rule."""
        if self.dictionary is None:
            return None
        # Not by round: rewards told one by one or at once must lead to the same dictionary after a batch.
        return generator_for(self.seed, 0 if self.dictionary.is_coupled else num_learned, "dictionary")

    def learned_in_passes(self, belief: Belief, told: History, num_learned: int) -> Belief:
        """Return a belief conditioned on more observations at once, of which the last is that of a number.

        A dictionary is chosen in passes over twice as many observations each time, so that every pass has the scores of
        a posterior that knows about half of them.
        """
        number = len(told.X)
        start, stop = 0, number if self.dictionary is None else 1
        while start < number:
            generator = self.dictionary_generator(num_learned - number + start)
            belief = belief.learned(told.rows(slice(start, stop)), self.dictionary, generator)
            start, stop = stop, 2 * stop
        return belief

    # ---------------------------------------------------------------- saved

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of ``Bandit`` that make it again, without choosing its pieces anew."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: piece for name, piece in given.items() if not _is_nothing(piece)}

    def settings(self) -> dict[str, Any]:
        """Return all that must agree between a saved state and the bandit that loads it, by name."""
        settings: dict[str, Any] = {f"candidates.{key}": value for key, value in self.candidates.describe().items()}
        if isinstance(self.prior, Prior):
            settings |= describe_module(self.prior.kernel, "kernel") | {"regularization": self.prior.regularization}
            describe_value("mean", self.prior.mean, settings)
            describe_value("floor", self.prior.floor, settings)
        else:
            describe_value("prior", self.prior, settings)
            own = () if self.prior.kernel is None else self.prior.kernel.named_parameters()
            fixed = sorted(name for name, part in own if not part.requires_grad)
            settings["prior.kernel.fixed"] = ", ".join(fixed) or "nothing"
        names = ("seed", "acquisition", "batches", "dictionary", "width", "memory", "memories", "trigger", "family")
        for name in (*names, "expire_after"):
            describe_value(name, getattr(self, name), settings)
        describe_value("outcomes", self.declared, settings)
        for number, (limit, safe) in enumerate(zip(self.constraints, self.known_safe, strict=True)):
            words = {"name": limit.name, "value": limit.value, "mode": limit.mode, "beta": limit.beta, "safe": safe}
            settings[f"constraints.{number}"] = type(limit).__name__
            for name, word in words.items():
                describe_value(f"constraints.{number}.{name}", word, settings)
        describe_value("objective", self.objective, settings)
        return settings | ({} if self.advice is None else self.advice.config())


def _is_nothing(word: Any) -> bool:
    """Say whether a word says what holds without it."""
    return word is None or (isinstance(word, tuple) and not word) or (isinstance(word, float) and word == 0.0)

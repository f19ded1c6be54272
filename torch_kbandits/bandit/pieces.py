"""The pieces that a bandit is made of: which go together, what tells them from others, and how batches fill."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, BlindRule, OptimisticRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.advice import Advice, Advised
from torch_kbandits.bandit.batches import BatchPosterior, BatchRule, RepeatingRule
from torch_kbandits.bandit.sharing import differs_in_numbers_alone
from torch_kbandits.bandit.state import describe_kernel, describe_value
from torch_kbandits.beliefs import Belief, EnsembleBelief, Lookahead, StagedBelief, Terms, belief_over
from torch_kbandits.beliefs.posterior_belief import wave_prior
from torch_kbandits.candidates import ArmSource, Candidates, ContextualActions
from torch_kbandits.candidates.base import unknown_ranges
from torch_kbandits.candidates.timed import timed, untimed
from torch_kbandits.confidence import ConstantWidth, Guarantee, TheoremWidth, Width
from torch_kbandits.confidence.guarantee import Assumption, Circumstances, complaint, precise
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError, KernelBanditWarning, TheoryWarning
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.memory.windows import LastObservations
from torch_kbandits.models import DictionaryQuality
from torch_kbandits.numerics.gram import check_kernel, prior_mean, prior_variance
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.expiry import Expiry, expiry_of
from torch_kbandits.observations.ledger import History
from torch_kbandits.outcomes import REWARD, KnownSafe, Limit, Outcome, Scalarization, declared
from torch_kbandits.outcomes.streaks import among
from torch_kbandits.priors import Family, LearnedPrior, Prior, given_prior
from torch_kbandits.priors.fitting import column_spans
from torch_kbandits.priors.learned import LastFit
from torch_kbandits.priors.prior import depends_on_time, mean_over

#: In single precision a regularization below this fraction of the prior variance drowns in rounding.
_FLOAT32_REGULARIZATION = 1e-4

#: So many rewards say whether a prior mean is far off: by more standard deviations than ``_FAR`` all of them.
FIRST_REWARDS, _FAR = 3, 10.0

#: Words that files have only where they say something: those of version 0.1.0 have them so.
_ADDED_LAST = (
    *("trigger", "memories", "advice", "mean", "family", "theory", "noise_scale", "outcomes", "constraints"),
    *("expire_after", "objective"),
)


class Batches(NamedTuple):
    """The batches of a bandit.

    Attributes:
        rule: None where there are none, and every reward is learned at once.
        candidates: what may be played. Logged data and other workers may bring other points: none is played again.
        waiting: points (d,) that failed and are not played again at once.
    """

    rule: BatchRule | None
    candidates: Candidates
    waiting: Sequence[Tensor] = ()

    def repeats(self, posterior: BatchPosterior) -> int:
        """Return how often the batch's first point is to be played again before anything else."""
        if self.rule is None or not self.rule.repeats_points or not self._may_play_first(posterior):
            return 0
        return cast(RepeatingRule, self.rule).repeats(posterior)

    def is_complete(self, posterior: BatchPosterior) -> bool:
        """Say whether a batch is complete, also because it would wait for repeats of what may not be played."""
        if self.rule is None or (self.rule.repeats_points and not self._may_play_first(posterior)):
            return True
        return self.rule.is_complete(posterior)

    def fill(self, ahead: Lookahead, size: int, choose: Callable[[int], Tensor], *, until_complete: bool) -> None:
        """Make points pending until there are so many, or until the rule says that the batch is complete.

        Args:
            ahead: the posterior with the points so far pending; it changes.
            size: how many are to be pending.
            choose: returns the point (1, d) to add when so many are pending.
            until_complete: whether the rule may end it before.
        """
        while (number := ahead.num_pending) < size:
            if again := self.repeats(ahead):
                ahead.add(ahead.pending[:1], min(again, size - number))
            else:
                ahead.add(choose(number))
            if until_complete and self.is_complete(ahead):
                return

    def require_open(self, ahead: Lookahead, num_pending: int) -> None:
        """Refuse to fill a batch without a rule, or one that is complete.

        Args:
            ahead: the posterior with the batch so far pending.
            num_pending: how many of its points are not told.

        Raises:
            InputError: if there is no rule, or the batch is complete.
        """
        if self.rule is None:
            raise InputError("ask(q=None) lets a batch rule decide, and this bandit has none: give q.")
        # What is kept aside may be a complete batch by now, where variances grow as time passes: one more point then.
        if num_pending and self.is_complete(ahead):
            raise InputError(
                f"The batch of {len(ahead.pending)} point(s) is complete: tell the {num_pending} pending one(s), or "
                "give q to go on without their rewards."
            )

    def _may_play_first(self, posterior: BatchPosterior) -> bool:
        first = posterior.pending[:1]
        may = len(first) == 1 and bool(self.candidates.offers(first))
        return may and not bool(among(first, self.waiting).any())


@dataclass(frozen=True, eq=False)
class Hypothesis:
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

    def counted(self, told: History) -> History:
        """Return the plays that have rewards, with these as they count."""
        told, floor = told.rewarded, self.prior.floor
        return told if floor == -math.inf else told._replace(Y=told.Y.clamp_min(floor))


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a bandit is made of, checked when put together. A value: what is learned is elsewhere.

    Args:
        candidates: what may be played; under a memory or mean that depends on time their points get a column of it.
        prior: what is assumed of rewards, given or to be learned.
        dictionary: which played points span the approximation; None for the exact posterior.
        width: the confidence width; None, which becomes 0, only for acquisitions that use none.
        acquisition: how the next point is chosen from the posterior.
        batches: when rewards are learned; None: at once.
        memory: which observations count at a time; None where all do.
        seed: addresses all randomness.
        trigger: when to restart; None for never.
        memories: which memory is in force, block by block; None for the same in all rounds.
        advice: who is asked about the present before a choice; None for nobody.
        family: the hypotheses that take turns; None for one, the prior and the memory given here.
        theory: the width of the theorem that a constant width stands in for; None where its constants are not known.
        noise_scale: R, where it is known and not part of the width.
        outcomes: what is measured beside rewards, by names or as ``Outcome``s.
        constraints: limits on outcomes.
        expire_after: at which age points that are pending are given up, as an ``Expiry`` or a number; None for never.
        objective: what is sought in place of the reward alone; None for that.

    Attributes:
        start: the prior before any reward.
        hypothesis: what is taken for true then.
        hypotheses: those of the family; none without.
        declared: the outcomes, those that only limits or the objective name included.
        of_outcomes: for each the pieces of what is believed of it, as if it were the reward.
        known_safe: what each limit knows to be safe.

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
    start: Prior = field(init=False)
    hypothesis: Hypothesis = field(init=False)
    hypotheses: tuple[Hypothesis, ...] = field(init=False)
    declared: tuple[Outcome, ...] = field(init=False)
    of_outcomes: "tuple[Pieces, ...]" = field(init=False)
    known_safe: tuple[KnownSafe, ...] = field(init=False)

    def __post_init__(self) -> None:
        checks.instance("candidates", self.candidates, Candidates, "Arms or a Box")
        checks.keep(self, seed=checks.whole_number)
        if self.memory is not None:
            checks.instance("memory", self.memory, Memory, "a memory such as SlidingWindow(500)")
        if self.trigger is not None:
            checks.instance("trigger", self.trigger, RestartTrigger, "a trigger such as ResidualTrigger()")
        if self.memories is not None:
            checks.instance("memories", self.memories, MemoryChoice, "a BanditOverBandit or a DynamicModelSelection")
            self._check_choice(self.memories)
        if self.family is not None:
            checks.instance("family", self.family, Family, "a Family of hypotheses")
            self._check_family()
        if self.learning is not None and self.learning.learn_memory and self.memory is None:
            raise InputError(
                "learn_memory=True learns the number of a bandit's one memory, and this one has none, or several to "
                "choose from: give memory=, such as TemporalPrior(0.01), or leave out learn_memory."
            )
        self._declare()
        own = self.candidates
        if self._adds_time:
            object.__setattr__(self, "candidates", timed(own))
            own = untimed(self.candidates)
        start = self.prior
        if isinstance(start, LearnedPrior):
            example = self.candidates.example[:, self.hidden_columns :]
            start = start.started(column_spans(example, self.ranges, self.groups), self.groups)
        for memory in self._all_memories:
            self._check_memory(memory, start.regularization)
        if self.dictionary is not None:
            checks.instance("dictionary", self.dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        checks.instance("acquisition", self.acquisition, AcquisitionRule, "a rule such as UpperConfidenceRule()")
        if self.width is not None or self.acquisition.uses_width:
            checks.instance("width", self.width, Width, "a confidence width such as ConstantWidth(2.0)")
        if self.theory is not None:
            checks.instance("theory", self.theory, TheoremWidth, "a theorem's width such as SelfNormalizedWidth")
        checks.keep(self, noise_scale=checks.optional(checks.positive))
        object.__setattr__(self, "expire_after", expiry_of(self.expire_after))
        if self.batches is not None:
            checks.instance("batches", self.batches, BatchRule, "a rule such as GlobalBatchRule(2.0)")
            if self.batches.repeats_points and not self.candidates.is_lasting:
                raise InputError(
                    f"{type(self.batches).__name__} plays a point again and again, and each round brings another "
                    "context, other actions or a time that the points know: use GlobalBatchRule or LocalBatchRule, or "
                    "candidates that stay under a memory that is no prior on time."
                )
        for memory in self._all_memories or (None,):
            for kernel in self._all_kernels(start.kernel):
                check_kernel(self._kernel_under(memory, kernel), self.candidates.example)
        self._check_rule(start.kernel)
        object.__setattr__(self, "width", ConstantWidth(0.0) if self.width is None else self.width)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "hypothesis", self.hypothesis_of(start, self.memory))
        object.__setattr__(self, "hypotheses", tuple(self._all_hypotheses()))
        object.__setattr__(self, "of_outcomes", tuple(self._of_outcome(each, own) for each in self.declared))
        safe = tuple(KnownSafe.of(each.safe_seed, self.candidates) for each in self.constraints)
        object.__setattr__(self, "known_safe", safe)

    def _declare(self) -> None:
        """Keep the outcomes and limits as given, and the outcomes that they declare."""
        for name in ("outcomes", "constraints"):
            object.__setattr__(self, name, checks.entries(name, getattr(self, name)))
        for number, each in enumerate(self.constraints):
            checks.instance(f"constraints[{number}]", each, Limit, 'a limit such as AtMost("temperature", 80.0)')
        objectives = () if self.objective is None else self._checked_objective(self.objective).outcomes
        object.__setattr__(self, "declared", declared(self.outcomes, self.constraints, objectives))
        if self.objective is not None and REWARD in (each.name for each in self.declared):
            raise InputError(f"{REWARD!r} is what objectives call the reward: give the outcome another name.")
        if self.memories is not None and (open_ := [each.name for each in self.declared if each.memory is None]):
            raise InputError(
                f"{type(self.memories).__name__} puts one memory after the other in force, by the rewards: say which "
                f"one the outcome {open_[0]!r} has, Outcome({open_[0]!r}, memory=...)."
            )

    def _checked_objective(self, objective: Scalarization) -> Scalarization:
        """Return an objective if the other pieces can seek it."""
        hint = 'a Scalarization such as Scalarization({"reward": "maximize", "cost": "minimize"})'
        checks.instance("objective", objective, Scalarization, hint)
        if self.family is not None:
            raise InputError(
                "A family judges its hypotheses by the reward, so several objectives have no meaning for it: leave out "
                "family or objective."
            )
        if not isinstance(self.acquisition, (OptimisticRule, BlindRule)):
            raise InputError(
                f"{type(self.acquisition).__name__} scores by no value that an objective may have, so several have no "
                "meaning for it: use UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do."
            )
        return objective

    def _of_outcome(self, outcome: Outcome, candidates: Candidates) -> "Pieces":
        """Return the pieces of what is believed of an outcome, among candidates without a time that is added here."""
        memory = self.memory if outcome.memory is None else outcome.memory
        width, rule = ConstantWidth(0.0), UpperConfidenceRule()
        return Pieces(candidates, outcome.prior, self.dictionary, width, rule, None, memory, self.seed)

    def as_in(self, own: "Pieces", X: Tensor) -> Tensor:
        """Return points (n, d) as the pieces of an outcome have them: without a time that those do not know."""
        return X[:, self.hidden_columns - own.hidden_columns :].to(own.candidates.example.dtype)

    @property
    def has_clock(self) -> bool:
        """Whether it matters when something is asked or told."""
        return bool(self._dating) or self.candidates.is_timed

    @property
    def _dating(self) -> tuple[Memory, ...]:
        """The memories for which it matters: of rewards and of outcomes."""
        return *self._all_memories, *(each.memory for each in self.declared if each.memory is not None)

    @property
    def _all_memories(self) -> tuple[Memory, ...]:
        """The memories that may be in force."""
        if self.memories is not None:
            return self.memories.memories
        own = [] if self.family is None else [each.memory for each in self.family.variants]
        return tuple(memory for memory in (self.memory, *own) if memory is not None)

    def _all_kernels(self, own: Kernel) -> tuple[Kernel, ...]:
        """Return the prior covariances of the function that may be taken for true, the bandit's own first."""
        others = [] if self.family is None else [each.kernel for each in self.family.variants]
        return own, *(kernel for kernel in others if kernel is not None)

    def _all_hypotheses(self) -> Iterator[Hypothesis]:
        """Yield those of the family; what one leaves out is as the bandit has it."""
        base, memory = self.start, self.memory
        # With a clock all have a memory, since points may know the time for the sake of one.
        memory = Stationary() if memory is None and self._all_memories and self.memories is None else memory
        for each in () if self.family is None else self.family.variants:
            own = {
                name: word for name in ("kernel", "regularization", "mean") if (word := getattr(each, name)) is not None
            }
            yield self.hypothesis_of(replace(base, **own), memory if each.memory is None else each.memory)

    @property
    def _adds_time(self) -> bool:
        """Whether points know the time since a memory that may be in force, or a mean, depends on it."""
        means = [self.prior.mean, *([] if self.family is None else [each.mean for each in self.family.variants])]
        means += [each.prior.mean for each in self.declared]
        return any(memory.needs_time_column for memory in self._dating) or any(map(depends_on_time, means))

    @property
    def clock(self) -> Clock:
        """The clock before anything is asked or told."""
        return Clock(matters=self.has_clock)

    @property
    def words(self) -> dict[str, Any]:
        """The arguments of ``Bandit`` that make it again, without choosing its pieces anew."""
        words = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        if isinstance(self.prior, Prior) and self.prior.floor == -math.inf:
            prior = words.pop("prior")
            words |= {"kernel": prior.kernel, "regularization": prior.regularization, "mean": prior.mean}
        return {name: word for name, word in words.items() if name not in _ADDED_LAST or not _is_nothing(word)}

    @property
    def filled(self) -> Batches:
        """The batches that are filled with the candidates."""
        return Batches(self.batches, self.candidates)

    @property
    def learning(self) -> LearnedPrior | None:
        """How the prior is learned; None where it is given."""
        return self.prior if isinstance(self.prior, LearnedPrior) else None

    def is_fitted(self, num_learned: int) -> bool:
        """Whether the prior says where to play after so many rewards: it is given, or was fitted to enough."""
        learning = self.learning
        return learning is None or learning.says_where or num_learned >= learning.num_initial

    def is_prior_known(self, last_fit: LastFit, since: int = 0) -> bool:
        """Whether the prior is given, or was fitted when more rewards than so many, the first, had been learned."""
        return not self._learns_units or last_fit.number > since

    @property
    def _learns_units(self) -> bool:
        return self.learning is not None and not self.learning.is_known

    def hypothesis_of(self, prior: Prior, memory: Memory | None) -> Hypothesis:
        """Return what is taken for true under a prior and a memory."""
        return Hypothesis(prior, memory, None if _is_nothing(prior.mean) else mean_over(self.candidates, prior.mean))

    @property
    def hidden_columns(self) -> int:
        """How many columns of points, the first, the kernel given does not see: a time that something else needs."""
        return int(self._adds_time)

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

    @property
    def num_stages(self) -> int:
        """How many there are of what may have chosen a point: the stages of a rule, or hypotheses; 0 for neither."""
        return self.acquisition.num_stages or len(self.hypotheses)

    def in_force(self, hypothesis: Hypothesis, belief: Belief) -> Hypothesis:
        """Return the hypothesis that a belief is under: of a family the one that leads."""
        return self.hypotheses[belief.leader] if isinstance(belief, EnsembleBelief) else hypothesis

    @property
    def own_columns(self) -> int:
        """The first column by which a point is known again: it may be told at another time than it was asked for."""
        return int(self.candidates.is_timed)

    def seen_by_kernel(self, points: Tensor) -> Tensor:
        """Return points (n, d) as the kernel given sees them: without a time that a memory adds."""
        is_spatial = self._adds_time and not isinstance(self.start.kernel, SpaceTimeKernel)
        return points[:, 1:] if is_spatial else points

    def plain_belief(self, hypothesis: Hypothesis) -> Belief:
        """Return a belief of one posterior before anything is learned, whatever chooses by that of rewards.

        Of arms that no process has all of it knows those that are told.
        """
        if not self.candidates.is_split:
            return self._belief_under(hypothesis)
        example = self.candidates.example
        actions = ContextualActions(action_dim=example.shape[-1], context_dim=0, dtype=example.dtype)
        return belief_over(actions, self._terms(hypothesis))

    def belief(self, hypothesis: Hypothesis) -> Belief:
        """Return the belief before any reward, under the hypothesis that is in force."""
        if self.family is not None:
            parts, width = tuple(map(self._belief_under, self.hypotheses)), cast(Width, self.width)
            return EnsembleBelief(parts, self.family.rule, width, keeps_all=not self._all_memories)
        num_stages, memory = self.acquisition.num_stages, hypothesis.memory
        num_latest = memory.num_latest if memory is not None and num_stages else None
        under = hypothesis if num_latest is None else replace(hypothesis, memory=LastObservations())
        terms = self._terms(under, self._beside)
        belief, *stages = (belief_over(self.candidates, terms) for _ in range(1 + num_stages))
        if stages:
            belief = StagedBelief(belief, tuple(stages), num_latest=num_latest)
        if self.advice is not None and (memory is None or not isinstance(belief, Advised)):
            raise InputError(
                "An expert's answers count at one time only, so they need a memory, and a rule that does not choose "
                "through stages: give memory=UncertaintyInjection(...) or another, or leave out advice."
            )
        return belief

    def _belief_under(self, hypothesis: Hypothesis) -> Belief:
        """Return the belief of one posterior before any reward."""
        return belief_over(self.candidates, self._terms(hypothesis))

    @property
    def _beside(self) -> tuple[tuple[int, Mean | None], ...]:
        """Of outcomes whose posterior differs from that of rewards in its means alone the number and the prior mean."""
        each = enumerate(self.of_outcomes)
        return tuple((number, own.hypothesis.mean) for number, own in each if differs_in_numbers_alone(self, own))

    def _terms(self, hypothesis: Hypothesis, outcomes: tuple[tuple[int, Mean | None], ...] = ()) -> Terms:
        return Terms(
            self._kernel_under(hypothesis.memory, hypothesis.kernel),
            hypothesis.regularization,
            self.seed,
            exact=self.dictionary is None,
            online=self.dictionary is not None and self.dictionary.is_online,
            memory=hypothesis.memory,
            mean=hypothesis.mean,
            full_at=None if self.dictionary is None else self.dictionary.full_at,
            outcomes=outcomes,
        )

    def _kernel_under(self, memory: Memory | None, kernel: Kernel) -> Kernel:
        """Return the prior covariance of points under a memory, given that of the function at one time."""
        prior = kernel if memory is None else memory.prior(kernel)
        # Where points know the time for the sake of another memory or of a mean, this one takes the function for one
        # that stays.
        stays = self._adds_time and not (memory is not None and memory.needs_time_column)
        if not stays or isinstance(prior, SpaceTimeKernel):
            return prior
        return SpaceTimeKernel(prior, ForgettingKernel(0.0))

    def _check_choice(self, memories: MemoryChoice) -> None:
        """Refuse memories to choose from that do not go together or with the other pieces."""
        if self.memory is not None:
            raise InputError("Give either memory or memories: one of memories is in force at any time.")
        if self.trigger is not None and not memories.allows_restarts:
            raise InputError(
                f"{type(memories).__name__} compares memories on the whole history, which does not say when a "
                "trigger restarted: give one of the two, or BanditOverBandit."
            )

    def _check_family(self) -> None:
        """Refuse a family with what it has no meaning for."""
        given_prior(self.prior)
        given = {"memories": self.memories, "advice": self.advice}
        if others := [name for name, piece in given.items() if piece is not None]:
            raise InputError(
                f"Leave out {others[0]} with a family: give a hypothesis its own memory, ModelSpec(memory=...)."
            )
        if self.acquisition.num_stages or not self.acquisition.needs_observations:
            raise InputError(
                f"{type(self.acquisition).__name__} does not choose by one posterior, so a family has no meaning for "
                "it: leave out family, or use UpperConfidenceRule or ThompsonRule."
            )

    def _check_rule(self, kernel: Kernel) -> None:
        """Refuse a rule that cannot choose among such candidates under such a kernel.

        Raises:
            InputError: if it cannot.
        """
        candidates = untimed(self.candidates)
        if self.acquisition.num_stages and not candidates.is_finite:
            raise InputError("A choice through stages needs a finite set of actions: give actions instead of bounds.")
        if self.constraints and candidates.is_split:
            raise InputError("Limits on outcomes need all arms in one process: give Arms, or leave out constraints.")
        if self.acquisition.draws_functions and candidates.is_stored:
            for memory in self._all_memories or (None,):
                for each in self._all_kernels(kernel):
                    wave_prior(self._kernel_under(memory, each), self.candidates.example.shape[-1])

    def _check_memory(self, memory: Memory, level: float) -> None:
        """Refuse a memory in which nothing ever counts at a noise variance.

        Raises:
            InputError: if it does not fit.
        """
        now = torch.zeros(1, dtype=torch.float64)
        if not bool(memory.noise(now, 0.0, level).isfinite()):
            raise InputError(
                f"{memory!r} drops an observation of noise variance {level:g} as soon as it is made: let the largest "
                "variance be above the regularization."
            )

    def dictionary_generator(self, num_learned: int) -> torch.Generator | None:
        """Return the randomness of the dictionary rule after so many rewards learned; None without a rule."""
        if self.dictionary is None:
            return None
        return generator_for(*self._dictionary_address(self.dictionary, num_learned))

    def _dictionary_address(self, rule: DictionaryRule, num_learned: int) -> tuple[int, int, str]:
        """Return what addresses the randomness of a dictionary rule."""
        # Not by round: rewards told one by one or at once must lead to the same dictionary after a batch.
        return self.seed, 0 if rule.is_coupled else num_learned, "dictionary"

    def learned_in_passes(self, belief: Belief, told: History, num_learned: int) -> Belief:
        """Return a belief conditioned on more observations at once.

        A dictionary is chosen in passes over twice as many observations each time, so that every pass has the scores of
        a posterior that knows about half of them.

        Args:
            belief: before them.
            told: they.
            num_learned: how many were learned in the end of it, counted from the first ever.
        """
        number = len(told.X)
        start, stop = 0, number if self.dictionary is None else 1
        while start < number:
            generator = self.dictionary_generator(num_learned - number + start)
            belief = belief.learned(told.rows(slice(start, stop)), self.dictionary, generator)
            start, stop = stop, 2 * stop
        return belief

    def config(self) -> dict[str, Any]:
        """Return all that must agree between a saved state and the bandit that loads it, by name."""
        config: dict[str, Any] = {"seed": self.seed}
        config |= {f"candidates.{key}": value for key, value in self.candidates.describe().items()}
        if isinstance(self.prior, LearnedPrior):
            describe_value("prior", self.prior, config)
            own = () if self.prior.kernel is None else self.prior.kernel.named_parameters()
            if fixed := [name for name, parameter in own if not parameter.requires_grad]:
                config["prior.kernel.fixed"] = ", ".join(sorted(fixed))
        else:
            config |= describe_kernel(self.prior.kernel) | {"regularization": self.prior.regularization}
            if not _is_nothing(self.prior.mean):
                describe_value("mean", self.prior.mean, config)
            if self.prior.floor != -math.inf:
                config["floor"] = self.prior.floor
        if self.family is not None:
            describe_value("family", self.family, config)
        names = ["acquisition", "batches", "dictionary", "width"]
        names += ["memory"] if self.memories is None else []  # which one is in force is state
        names += [] if self.expire_after is None else ["expire_after"]
        names += ["memories", "trigger"] if self.memories is not None or self.trigger is not None else []
        for name in names:
            describe_value(name, getattr(self, name), config)
        for number, each in enumerate(self.declared):
            describe_value(f"outcomes.{number}", each, config)
        for number, (limit, safe) in enumerate(zip(self.constraints, self.known_safe, strict=True)):
            words = {"name": limit.name, "value": limit.value, "mode": limit.mode, "beta": limit.beta, "safe": safe}
            config[f"constraints.{number}"] = type(limit).__name__
            for name, word in words.items():
                describe_value(f"constraints.{number}.{name}", word, config)
        if self.objective is not None:
            describe_value("objective", self.objective, config)
            weights = self.objective.weights
            pairs = {"objectives": self.objective.objectives, "weights": weights}
            for name, pair in pairs.items():
                describe_value(f"objective.{name}", pair if isinstance(pair, str) else [*pair.items()], config)
        return config | ({} if self.advice is None else self.advice.config())

    def warn_of_far_rewards(self, told: History, kernel_bound: Tensor, stacklevel: int) -> None:
        """Say that the first rewards are all far above or below what was expected, if so, as many calls above."""
        if self._learns_units:
            return
        told, mean = told.rewarded, self.hypothesis.mean
        if not len(told.Y):
            return
        with torch.no_grad():
            expected = torch.zeros_like(told.Y) if mean is None else prior_mean(mean, told.X)
        least, largest = (told.Y - expected).aminmax()
        scale = (float(kernel_bound) + self.start.regularization) ** 0.5
        if max(float(least), -float(largest)) > _FAR * scale:
            warnings.warn(
                f"The first {len(told.Y)} rewards are around {float(told.Y.mean()):.4g}, and "
                f"{float(expected.mean()):.4g} ± {scale:.3g} was expected: points not tried look far worse or better "
                "than any other. Give mean=, what is expected of rewards, or subtract it and scale them.",
                KernelBanditWarning,
                stacklevel=stacklevel + 1,
            )

    def guarantee(
        self,
        hypothesis: Hypothesis,
        num_rewards: int = 0,
        *,
        pending_ratio: float = 1.0,
        was_restarted: bool = False,
        learns_residual: bool = False,
        quality: DictionaryQuality | None = None,
    ) -> Guarantee:
        """Return what the width's theorem says, and which of its hypotheses hold.

        Args:
            hypothesis: what is taken for true now.
            num_rewards: how many were told.
            pending_ratio: by how much points that are pending make variances smaller, for bandits without a batch rule.
            was_restarted: whether something was forgotten by a restart.
            learns_residual: whether the dictionary is full, so that variances are not the DTC ones.
            quality: of the dictionary, if it was measured.
        """
        arms = untimed(self.candidates)
        source: ArmSource | None = getattr(arms, "source", None)
        kinds = {"a restart": was_restarted, repr(self.trigger): self.trigger is not None}
        kinds |= {repr(memory): memory.forgets for memory in self._all_memories}
        known = Circumstances(
            regularization=hypothesis.regularization,
            num_rewards=num_rewards,
            learns_residual=learns_residual,
            noise_scale=self.noise_scale,
            dictionary=self.dictionary,
            forgets_by=" and ".join(name for name, forgets in kinds.items() if forgets) or None,
            prior="fitted" if self._learns_units else "given" if self.family is None else "one of several",
            ratio=pending_ratio if self.batches is None else self.batches.largest_ratio,
            num_arms=math.inf if not arms.is_finite else None if source is None else len(source),
            is_staged=self.acquisition.num_stages > 0,
            quality=quality,
            theory=self.theory if isinstance(self.width, ConstantWidth) else None,
        )
        of_width = cast(Width, self.width).guarantee(known)
        numbers = () if self._learns_units else self._precision()
        return replace(of_width, assumptions=(*of_width.assumptions, *numbers))

    def _precision(self) -> tuple[Assumption]:
        """Say whether λ is large enough for the dtype."""
        example, prior = self.candidates.example, self.start
        if example.dtype == torch.float64:
            return precise(True, "numbers are in double precision.")
        with torch.no_grad():
            scale = float(prior_variance(deepcopy(prior.kernel).to(example), example).max())
        if prior.regularization >= _FLOAT32_REGULARIZATION * scale:
            return precise(True, f"{example.dtype} is enough for regularization={prior.regularization:g}.")
        return precise(
            False,
            f"regularization={prior.regularization:g} is tiny for {example.dtype} (prior variance {scale:g}): the "
            "confidence widths drown in rounding. Use float64 candidates.",
        )

    def warn_of_failing(self, stacklevel: int) -> None:
        """Say which hypotheses of the theorem the settings break, if any, as many calls above."""
        said = complaint(self.guarantee(self.hypothesis))
        if said is not None:
            warnings.warn(said, TheoryWarning, stacklevel=stacklevel + 1)


def warn_of_clipping(below: Tensor, floor: float, stacklevel: int) -> None:
    """Say that rewards (k,) count as if they were higher, as many calls above."""
    warnings.warn(
        f"{len(below)} reward(s) lie far below the others, down to {float(below.min()):.6g}, and count as "
        f"{floor:.6g}, so that the others can be told apart. That is right for penalties. If they are losses whose "
        "mean matters, say clip=False.",
        KernelBanditWarning,
        stacklevel=stacklevel + 1,
    )


def _is_nothing(word: Any) -> bool:
    """Say whether a word says what holds without it."""
    return word is None or (isinstance(word, tuple) and not word) or (isinstance(word, float) and word == 0.0)

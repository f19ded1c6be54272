"""What a bandit knows and what is to be said of it: its posterior, its history, its guarantee and its health."""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import wraps
from types import FunctionType
from typing import Any, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.bandit.advice import Questions
from torch_kbandits.bandit.choices import costs_of, fantasized, rule_in
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec
from torch_kbandits.bandit.health import Health, examined, guarantee
from torch_kbandits.bandit.importance import Importance, importance_of
from torch_kbandits.bandit.learning import without_expired
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.stopping import with_bounds
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.timed import some_points
from torch_kbandits.confidence import Guarantee, Width
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.models import DictionaryQuality, NystromGP, OnlineGP, dictionary_quality
from torch_kbandits.numerics.random import Lock, generator_for
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.experts import Answers, GuardedExpert, checked_answers
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import CostObjective, Objective
from torch_kbandits.priors import Prior
from torch_kbandits.selection import (
    EnsembleSurrogate,
    FantasyPosterior,
    Surrogate,
)

_NOTHING = nullcontext()


def _synchronized(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that runs when no other thread runs one of its object, always in torch's usual modes.

    So what a call computes does not depend on ``torch.no_grad``, ``torch.inference_mode`` or another default device.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _NOTHING if isinstance(self, type) else self._lock.held:
            is_usual = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
            if is_usual and not torch._C._len_torch_function_stack():  # a default device is one of that stack
                return method(self, *args, **kwargs)
            # What says no device is on the CPU; the context that sees to it slows every call of torch.
            device = _NOTHING if torch.get_default_device().type == "cpu" else torch.device("cpu")
            with torch.inference_mode(False), torch.enable_grad(), device:
                return method(self, *args, **kwargs)

    return call


def synchronize(kind: type) -> None:
    """Make the public methods and properties that a class defines, and its constructor, ``_synchronized``."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, FunctionType):
            setattr(kind, name, _synchronized(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, member.getter(_synchronized(member.fget)))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(_synchronized(member.__func__)))


class BanditReports:
    """What can be read from a bandit, which ``Bandit`` changes. Public calls, also of subclasses, run one at a time.

    A copy, shallow or deep, is independent.
    """

    candidates: Candidates
    width: Width
    _config: BanditConfig
    _state: State
    _cached_fantasy: tuple[State, FantasyPosterior] | None
    _shown: tuple[Surrogate, NystromGP | OnlineGP] | None
    _seconds: dict[str, deque[float]]
    _lock: Lock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return an object with a lock of its own, before anything else is known of it."""
        self = super().__new__(cls)
        self._lock = Lock()
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        synchronize(cls)

    def __copy__(self) -> Self:
        return deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._lock.held:
            other = memo[id(self)] = type(self).__new__(type(self))
            attributes: dict[str, Any] = vars(other)
            attributes |= deepcopy(vars(self), memo)
            return other

    @property
    def round(self) -> int:
        """The number of the current round, counted from 0."""
        return self._state.round

    @property
    def memory(self) -> Memory | None:
        """Which observations count, as it is in force now; None where all do."""
        return self._spec.memory

    @property
    def prior(self) -> Prior:
        """What is assumed of rewards now, in their units: as given, or as fitted last."""
        return self._spec.prior

    @property
    def regularization(self) -> float:
        """λ, the noise variance of the surrogate, in reward units squared."""
        return self._spec.prior.regularization

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart; all of them if there was none."""
        return self._state.num_since_restart

    @property
    def memory_probabilities(self) -> tuple[float, ...]:
        """The probabilities from which the memory in force was drawn, in the order of ``memories``; none without."""
        choice, seed = self._config.memories, self._config.seed
        return () if choice is None else choice.choice(self._state.summaries, seed).probabilities

    @property
    def model_weights(self) -> tuple[float, ...]:
        """How probable each hypothesis of the family is, in the order given; none without a family.

        Under ``Balancing`` and ``Elimination`` they are the same for all that take part, and 0 for those rejected.
        Other attributes are those of the hypothesis that leads: that plays next, or else is the most probable.
        """
        told = self._state.told
        return told.weights if isinstance(told, EnsembleSurrogate) else ()

    @property
    def beta(self) -> Tensor:
        """The multiplier of the posterior standard deviation in force now, 0-dim."""
        return self.width(self._state.surrogate)

    def guarantee(self, *, check: bool = False, variation_budget: float | None = None) -> Guarantee:
        """Return which assumptions of the width's theorem hold, fail or are unknown; printed, it is a table.

        What only you can know, such as ‖f‖ <= B, is unknown, as is whether a dictionary is accurate where its rule
        promises nothing, unless ``check`` measures it. Without a batch rule it is about the next choice. Unless an
        assumption fails it has the theorem's bounds on ``regret``, see ``cumulative_regret_bound``, and
        ``dictionary_size``. Under a memory the former needs ``variation_budget``, at least P_T = Σ_t ‖f_{t+1} − f_t‖_k;
        ``drift`` is what of it is proportional to that, of order γ_H^(1/2) H^(3/2) P_T.
        """
        budget = checks.optional(checks.non_negative)("variation_budget", variation_budget)
        ratio = self.pending_variance_ratio() if self._config.batches is None else 1.0
        found = guarantee(self._config, self._spec.prior, self._state, ratio, self._quality(check))
        return with_bounds(found, self._config, self._state, budget)

    def pending_variance_ratio(self) -> float:
        """Return by how much what is asked and not learned yet makes variances smaller, at least 1.

        β times the root of this is right for the next choice if β was for what was learned: ``ScaledWidth(β, C**0.5)``
        keeps its theorem in a loop that asks while this is at most C. On arms that stay it is the largest ratio over
        them, in O(A). Elsewhere it is 1 + Σ_s σ²(x_s)/λ over such points, at least the ratio at every point and at most
        the exp(2 C) of GP-BUCB for their information gain C.

        Source: Calandriello et al., ICML 2020, BBKB, for the sum; Desautels, Krause and Burdick, JMLR 2014.
        """
        state = self._state
        if not len(state.ledger.outstanding):
            return 1.0
        ahead, is_listed = self._ahead_of(state), self.candidates.is_lasting and self.candidates.is_finite
        return max(1.0, float(ahead.variance_ratio() if is_listed else 1.0 + ahead.pending_scores().sum()))

    def importance(self, *, num_points: int = 1024, num_draws: int = 64) -> Importance:
        """Return how much each parameter matters: by length scales, and by its share of the posterior mean's variance.

        Parameters are drawn independently of each other, each from the values that may be played; on a box uniformly,
        of contexts and of actions that rounds bring as they were played. The time is the current one. Shares are Sobol
        indices: of first order, what a parameter explains alone, and total, with all that it explains with others.
        Functions drawn from the posterior say how far these are known.

        Args:
            num_points: n of the estimates; a power of two is best.
            num_draws: S functions, drawn jointly at about 2,000 points; 0 is refused.

        Raises:
            EmptyHistoryError: if nothing that was learned counts.

        Source: Marrel et al., Reliability Engineering and System Safety 2009, for the shares of the mean and of draws.
        Cost: O(n G m²) for G parameters, and O(2000³ + S 2000²).
        """
        model = cast(NystromGP, self.model)
        return importance_of(self._config, self._state, model, num_points=num_points, num_draws=num_draws)

    def dictionary_quality(
        self, X: Tensor | None = None, *, num_points: int = 1000, max_reference: int = 2000
    ) -> DictionaryQuality:
        """Compare the variances of the dictionary's posterior with the exact ones, of the rewards that count now.

        Args:
            X: where to compare, (k, d), points as ``history`` has them. None for a sample, half of points played and
                half of what may be played; with contexts, which nobody knows beforehand, of points played.
            num_points: of the sample, at least 1.
            max_reference: see ``torch_kbandits.models.dictionary_quality``, which has the cost.

        Raises:
            EmptyHistoryError: if nothing that was learned counts.
            InputError: if the posterior is exact, or an argument does not fit.
        """
        if self._config.dictionary is None:
            raise InputError("The posterior of this bandit is exact: there is no dictionary to measure.")
        half, state = checks.size("num_points", num_points) // 2, self._state
        if X is None and state.surrogate.num_observations:
            generator = generator_for(self._config.seed, state.round, "quality")
            played = state.surrogate.played
            some = played[torch.randperm(len(played), generator=generator, device="cpu")[: max(1, half)]]
            X = self._there(torch.cat([some, some_points(self.candidates, half, state.clock.now, generator)]))
        return dictionary_quality(cast(NystromGP, self.model), X, max_reference=max_reference)

    @property
    def history(self) -> History:
        """All that was told, in order; a copy."""
        self._state = changed(self._state, ledger=self._state.ledger.in_one_part)
        return self._state.ledger.told[0].copied(self.candidates.device)

    @property
    def rule(self) -> AcquisitionRule:
        """How the next point is chosen from the posterior."""
        return rule_in(self._config, self._state)

    @property
    def num_asked(self) -> int:
        """How many points were ever asked for or marked as pending."""
        return self._state.ledger.num_asked

    @property
    def num_observations(self) -> int:
        """How many rewards were ever told."""
        return self._state.ledger.num_observations

    def history_since(self, number: int) -> History:
        """Return the history without its first ``number`` rewards. Cost: O(what is returned), not O(n)."""
        told = self._state.ledger.history_since(checks.non_negative_integer("number", number))
        return told.copied(self.candidates.device)

    @property
    def weights(self) -> Tensor:
        """What each reward of ``history`` counts for now, (n,) in double precision: λ over its noise variance, or 0."""
        ledger, history = self._state.ledger, self._state.ledger.history_since(0)
        weights, times = torch.zeros(ledger.num_observations, dtype=torch.float64), history.times
        learned = slice(ledger.num_forgotten, ledger.num_learned)
        level = self._spec.prior.regularization
        noise = history.rows(learned).noise_or(level)
        if self.memory is not None and times is not None:
            noise = self.memory.noise(times[learned], self._state.clock.now, noise)
        weights[learned] = level / noise
        return self._there(weights.masked_fill(history.Y.isnan(), 0.0))

    @property
    def now(self) -> float:
        """The current time, from which ages are counted: the round, a number, or of a date the seconds since 1970."""
        return self._state.now

    @property
    def pending(self) -> Tensor:
        """The points asked for and not yet told, (k, d), in the order asked; a copy. With contexts joint points."""
        return self._there(self._state.ledger.pending.points)

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """The ids of the points asked for and not yet told, in the order asked."""
        return self._state.ledger.pending.ids

    @property
    def pending_ages(self) -> Tensor:
        """How long ago each pending point was asked for, (k,), in the units of ``now`` and in double precision."""
        times = self._state.ledger.pending.times
        return self._there(self._state.now - torch.tensor(times, dtype=torch.float64))

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d), all points learned if the posterior is exact; a copy."""
        return self._there(self._state.surrogate.inducing_points)

    @property
    def spent(self) -> float:
        """What plays cost so far, whatever was forgotten since: all costs told of an objective, or those of levels."""
        objective, levels = self._config.objective, self._config.levels
        if levels is not None:
            return levels.spent(self._state.ledger.history_since(0))
        if not isinstance(objective, CostObjective):
            hint = "objective=BudgetPacing(...) or CostCooling(...), or a fidelity: else sum history.outcomes"
            raise InputError(f"spent needs {hint}.")
        return float(costs_of(self._config, self._state, objective)[0].double().nansum())

    @property
    def objective(self) -> Objective | None:
        """What is sought in place of the reward alone; None for that."""
        return self._config.objective

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The names of the outcomes that are declared, in the order of the columns of ``history.outcomes``."""
        return tuple(each.name for each in self._config.declared)

    def outcome_model(self, name: str) -> NystromGP | OnlineGP:
        """Return the posterior of an outcome of a name as a BoTorch model, built when asked for, O(n m²)."""
        place = self.outcomes.index(checks.one_of("name", name, self.outcomes))
        return self._model_of(self._state.outcomes[place].surrogate)

    @property
    def model(self) -> NystromGP | OnlineGP:
        """The posterior as a BoTorch model, built when asked for, O(n m²); without rewards that a batch rule holds."""
        return self._model_of(self._state.surrogate)

    def health(self, *, check: bool = False) -> Health:
        """Return whether predictions hold, what calls take and so on; ``check`` measures the dictionary, too."""
        return examined(self._config, self._state, self._seconds, self._quality(check))

    @property
    def _spec(self) -> SurrogateSpec:
        """What is taken for true now: of a family by the hypothesis that leads."""
        told = self._state.told
        return self._config.specs[told.leader] if isinstance(told, EnsembleSurrogate) else self._state.spec

    def _there(self, values: Tensor) -> Tensor:
        """Return a copy of values where the candidates are."""
        return values.to(self.candidates.device, copy=True)

    def _now(self, time: Any, context: Any, candidates: Any) -> tuple[State, Domain]:
        """Return what is known at a time, and what may be played then; who gives advice is asked if not done yet."""
        state = self._at(time)
        domain = self.candidates.in_round(context, candidates, state.clock.now)
        if (advice := self._config.advice) is None or advice.expert is None or state.answers_now is not None:
            return state, domain
        said = advice.answers(*self._asked_by(state), state.clock, self._config.seed)
        return self._advised(state, said), domain

    def _at(self, time: Any) -> State:
        """Return what is known at a time."""
        return without_expired(self._config, self._state.at(self._state.clock.moved_to(time, self._state.round)))

    def _asked_by(self, state: State) -> tuple[History, Kernel, int]:
        """Return what questions depend on: rewards since the last restart, the prior covariance and the round."""
        return state.ledger.history_since(state.ledger.num_forgotten).rewarded, state.told.kernel, state.round

    def _advised(self, state: State, said: Answers) -> State:
        """Keep what was said at a time, whatever comes of it; return the state with it."""
        answers = (*state.answers, (state.clock.now, said))
        self._state = changed(self._state, answers=answers)
        return changed(state, answers=answers)

    def _advice(self) -> Questions:
        """Return what the expert is asked, where answers are given."""
        if self._config.advice is None or self._config.advice.expert is not None:
            raise InputError("Questions are answered where an algorithm that has an expert is given none: expert=None.")
        return self._config.advice

    @property
    def expert(self) -> GuardedExpert | None:
        """The expert that is asked, with what is counted of it; None where there is none, or answers are given."""
        return None if self._config.advice is None else self._config.advice.expert

    def questions(self, *, time: Any = None) -> Tensor:
        """Return points of which it is worth to know the function of now (Q, d), for who can look; see ``answer``.

        They are past inputs, with contexts joint points, the context first. There are none while earlier answers count.

        Args:
            time: the current time, where ``ask`` is given one.

        Raises:
            InputError: if this bandit asks an expert itself, or none.
        """
        advice, state = self._advice(), self._at(time)
        if state.answers_now is not None:
            return self._there(self.candidates.example[:0])
        return self._there(advice.points(*self._asked_by(state), self._config.seed))

    def answer(self, X: Any, Y: Any, variance: Any, *, time: Any = None) -> None:
        """Tell what the function of now is at points, those of ``questions`` or others: no rewards, and no round.

        Args:
            X: the points (Q, d), with contexts joint ones.
            Y: noisy values of the current function there, (Q,), in reward units.
            variance: of their noise, in reward units squared: one for all, or (Q,).
            time: the current time, where ``ask`` is given one.

        Raises:
            InputError: if something does not fit, or this bandit asks an expert itself, or none; then nothing changed.
        """
        advice, state, example = self._advice(), self._at(time), self.candidates.example
        X = checks.listed_points("X", X, dimension=example.shape[-1], like=example)
        self._advised(state, advice.lasting(checked_answers((Y, variance), X), state.round, state.clock.now))

    def _known_ahead(self, state: State) -> FantasyPosterior | None:
        """Return the posterior with the batch so far pending if it was computed already."""
        if self._cached_fantasy is None:
            return None
        known, ahead = self._cached_fantasy
        if known.ledger.pending is not state.ledger.pending or known.ledger.held is not state.ledger.held:
            return None
        is_same = known.round == state.round and known.surrogate is state.surrogate
        return ahead if known is state or is_same else None

    def _ahead_of(self, state: State) -> FantasyPosterior:
        """Return the posterior with the batch so far pending, kept from ask to ask."""
        if (ahead := self._known_ahead(state)) is None:
            ahead = fantasized(self._config, state)
            self._cached_fantasy = state, ahead
        return ahead

    def _model_of(self, surrogate: Surrogate) -> NystromGP | OnlineGP:
        """Return a posterior as a BoTorch model of its own, remembered while it stays."""
        if self._shown is None or self._shown[0] is not surrogate:
            self._shown = surrogate, surrogate.shown().to(self.candidates.device)
        return self._shown[1]

    def _quality(self, check: bool) -> DictionaryQuality | None:
        """Return the quality of the dictionary if that is asked for, there is one, and something counts."""
        can = self._config.dictionary is not None and self._state.surrogate.num_observations
        return self.dictionary_quality() if checks.flag("check", check) and can else None


synchronize(BanditReports)

"""Ask, tell, save and replay: the order of the calls. The posterior and its search live below."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal, Self, cast, overload

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.advice import Questions
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.callbacks import Callbacks
from torch_kbandits.bandit.choices import with_chosen
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.decisions import BanditDecisions
from torch_kbandits.bandit.health import FIRST_REWARDS, LAST_CALLS, warn_of_failing, warn_of_far_rewards
from torch_kbandits.bandit.keeping import KeptBandit
from torch_kbandits.bandit.learning import before_any, learned, round_of, without_expired
from torch_kbandits.bandit.reports import BanditReports
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.suggestions import Slate, Suggestion
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import TheoremWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.evaluation.log import Log
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.ledger import Expiry
from torch_kbandits.outcomes import Fidelity, Limit, Objective, Outcome
from torch_kbandits.priors import Family, LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.selection import FantasyPosterior, Surrogate

#: What a round may bring, and what may be said of its play, by name; see ``Bandit.run``.
_BROUGHT, _TOLD = ("time", "context", "candidates"), ("y", "outcomes", "failed", "noise", "sem")


class Bandit(KeptBandit, BanditDecisions, BanditReports):
    """A kernelized bandit: ``ask`` for the next point, ``tell`` its reward.

    What it knows is a function of the configuration, the seed, the history and the points still pending, and the
    randomness of a round depends on no other round. A named algorithm is a subclass that only chooses the pieces.

    Args:
        candidates: what may be played. Of ``Configurations`` mappings are asked for and told in place of points.
        kernel: the prior covariance; a copy is kept.
        regularization: λ > 0, the noise variance of the surrogate, in reward units squared.
        prior: kernel, regularization and mean in one, as a ``Prior``; or a ``LearnedPrior``, which fits them to the
            rewards that count. Then the first points are spread over the candidates, unless only the number of the
            memory is to be learned.
        dictionary: which played points span the approximation; None for the exact posterior.
        width: the confidence width, a multiplier of the standard deviation; None for acquisitions that use none.
        acquisition: how the next point is chosen from the posterior; ``EpsilonGreedy(rule, epsilon)`` with a share of
            uniform choices.
        batches: when rewards are learned; None: at once.
        memory: which observations count at a time, and with what noise, where the function changes; None where all do.
            Under a prior on time, ``TemporalPrior``, the points of any candidates get the time as their first column.
        seed: addresses all randomness.
        trigger: when to restart; None for never. The rewards of the round that triggered count after the restart, as
            the first of the function that is new. What a batch rule held back before is forgotten.
        memories: which memory is in force, block by block, instead of ``memory``; None for the same in all rounds.
        advice: who is asked about the current function before a choice; None for nobody.
        mean: the prior mean, in reward units: a number, a value for each arm (A,), a GPyTorch mean, or a function of
            points (n, d), with contexts of (context, action), that returns (n,). If it has a parameter ``time`` it is
            given the times (n,) too: then points get the time as their first column, which the kernel does not see.
        family: hypotheses that take turns, each with what it has of its own in place of kernel, regularization, memory
            and mean; None for one.
        theory: the width of the theorem that ``width`` is in place of if it is a constant; only ``guarantee`` asks.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, where the width does not know it; the same.
        outcomes: what is measured of a play beside its reward: names, or each an ``Outcome`` with a prior and a memory.
            There is a posterior of each.
        constraints: limits on outcomes, ``AtMost("temperature", 80.0)`` or ``AtLeast(...)``; see ``Limit``.
        expire_after: the age above 0, in units of time or rounds where there is none, at which the next ``ask`` or
            ``tell`` forgets pending points; with ``Expiry(age, "fail")`` they fail. None for never. Rewards that come
            after all are told by x with their ``time=``.
        objective: what is sought in place of the reward alone: several objectives, see ``Scalarization``, or reward for
            its cost, see ``BudgetPacing`` and ``CostCooling``; triggers, batches and choices of a memory still look at
            the reward.
        fidelity: which column of the candidates is a fidelity, at which levels and costs; see ``Fidelity``.

    A ``TheoryWarning`` says once which assumptions of the width's theorem these pieces break; see ``guarantee``.

    With a memory, or a mean that depends on it, there is a time. Unless ``ask`` and ``tell`` are given times, it is the
    round, counted from 0. A reward has the time at which its point was asked for, whenever it is told; that of a point
    that was not asked for is the current time.

    All that is known is one value, which a call that succeeds replaces: after an error or an interrupt it is as it was.

    Cost of adapting: a trigger reads the posterior at the points told. A change of memory, once a block, computes the
    posterior of what it keeps afresh: O(u³), or O(n m²) for a dictionary chosen anew.

    Raises:
        InputError: if an argument does not fit; the message says what was expected.
    """

    #: Whether it was said which assumptions of a theorem the pieces break: when they were put together first.
    _was_warned_of = False

    def __init__(
        self,
        *,
        candidates: Candidates,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        dictionary: DictionaryRule | None = None,
        width: Width | None = None,
        acquisition: AcquisitionRule | EpsilonGreedy | None = None,
        batches: BatchRule | None = None,
        memory: Memory | None = None,
        seed: int,
        trigger: RestartTrigger | None = None,
        memories: MemoryChoice | None = None,
        advice: Questions | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        family: Family | None = None,
        theory: TheoremWidth | None = None,
        noise_scale: float | None = None,
        outcomes: Sequence[str | Outcome] = (),
        constraints: Sequence[Limit] = (),
        expire_after: float | Expiry | None = None,
        objective: Objective | None = None,
        fidelity: Fidelity | None = None,
    ) -> None:
        rule = UpperConfidenceRule() if acquisition is None else acquisition
        assumed, expiry = prior_of(prior, kernel, regularization, mean), Expiry.of(expire_after)
        pieces = candidates, assumed, dictionary, width, rule, batches, memory, seed, trigger, memories, advice, family
        self._config = BanditConfig(*pieces, theory, noise_scale, outcomes, constraints, expiry, objective, fidelity)
        self.candidates = self._config.candidates
        self.dictionary = dictionary
        self.width = cast(Width, self._config.width)
        self.batches = batches
        self.trigger = trigger
        self.memories = memories
        self.seed = self._config.seed
        self._state: State = before_any(self._config)
        self._cached_fantasy: tuple[State, FantasyPosterior] | None = None
        self._shown: tuple[Surrogate, NystromGP | OnlineGP] | None = None
        self._warned_of_stale_points = self._warned_of_clipping = False
        self._diagnostics: tuple[str, ...] = ()
        self._callbacks = Callbacks()
        self._seconds: dict[str, deque[float]] = {name: deque(maxlen=LAST_CALLS) for name in ("ask", "tell")}
        if not self._was_warned_of:
            warn_of_failing(self._config, self._state, 3 if type(self).__init__ is Bandit.__init__ else 5)

    # ---------------------------------------------------------------- the loop

    @overload
    def ask(
        self,
        q: int | None = 1,
        *,
        details: Literal[False] = False,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        distinct: bool = False,
        exclude: Any = None,
    ) -> Any: ...

    @overload
    def ask(
        self,
        q: int | None = 1,
        *,
        details: Literal[True],
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        distinct: bool = False,
        exclude: Any = None,
    ) -> Suggestion: ...

    def ask(
        self,
        q: int | None = 1,
        *,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        distinct: bool = False,
        exclude: Any = None,
        details: bool = False,
    ) -> Any:
        """Return the next q points to play, (q, d); with contexts the next q actions in this one, (q, a).

        They are pending until they are told, in any order: later points are chosen as if those had returned their
        posterior mean. So ``ask(5)`` gives the points that ``ask(3)`` and then ``ask(2)`` give. A point whose
        evaluation failed is told so, and one that was not evaluated is dropped by ``forget``. The time of this call is
        that of their rewards.

        Args:
            q: number of points; None for as many as the batch rule allows, at least one and at most 10,000 at a time.
            context: what is known before the choice, (c,): needs ``ContextualActions``, like the next.
            candidates: the actions of this round, (A, a), where they differ from round to round.
            time: the current time, a number or a date, not before any given earlier; needs a memory. None: the round.
            remember: False to look without anything becoming pending: then nothing changes.
            distinct: whether the points are different actions of a finite set, by row, in the order chosen.
            exclude: what of a finite set may not be played now: rows, names, or a mask (A,), True where it may not.
            details: whether to return a ``Suggestion``: with the points their numbers, which ``tell`` takes, rows and
                names, and what is expected of them.

        Raises:
            InputError: if an argument does not fit, or q is None without a batch rule or where its batch is complete.

        Cost: that of the candidates for each point; O(A) on arms without pending points.
        """
        remember, details, slate = checks.flag("remember", remember), checks.flag("details", details), None
        is_noted = details or bool(remember and self._callbacks and self._callbacks.hear_asks)
        if is_noted or distinct is not False or exclude is not None:
            wanted, distinct = self._config.states_propensities, checks.flag("distinct", distinct)
            slate = Slate(exclude, distinct=distinct, states=is_noted or wanted, spares=not wanted)
        X, state, ahead = self._asked(None if q is None else checks.size("q", q), time, context, candidates, slate)
        actions, before, found = self.candidates.actions(X.clone()), self._state.ledger, None
        if slate is not None and is_noted:
            found = slate.suggestion(actions, X, state, self.candidates, is_pending=remember)
        if remember:
            self._become(state, ahead)
            self._notify(before, found)
        return found if details else actions

    def mark_pending(self, x: Any, *, context: Any = None, time: Any = None) -> tuple[int, ...]:
        """Make points pending that this bandit did not choose, as those that other workers evaluate; return their ids.

        The next points are chosen as if these had returned their posterior mean, as with points asked for.

        Args:
            x: as in ``tell``, like the context: points (q, d), with contexts actions (q, a).
            context: of all or each.
            time: as in ``ask``.

        ``InputError`` if they do not fit; then nothing changes.
        """
        clock = self._state.clock.moved_to(time, self._state.round)
        return self._mark(self.candidates.points(x, context, clock.now).detach().clone(), clock)

    def tell(
        self,
        x: Any = None,
        y: Any = None,
        *,
        context: Any = None,
        time: Any = None,
        ids: int | Sequence[int] | None = None,
        rows: Any = None,
        candidates: Any = None,
        outcomes: Mapping[str, Any] | None = None,
        failed: Any = False,
        noise: Any = None,
        sem: Any = None,
        log: Log | None = None,
    ) -> None:
        """Learn rewards; the points need not have been asked for, nor be told in the order asked, nor soon.

        The posterior is as if all had been told in the order played: the age of a late reward is counted from then.

        With a batch rule rewards are kept aside until the points told make a complete batch. Logged data can go in
        first, in one call: then leverage scores are those given all of it, so that the dictionary is about as large as
        if it had come in parts, and never larger than its cap.

        Args:
            x: points (q, d), with contexts actions (q, a): a tensor of the dtype and device of the candidates, or
                numbers in lists, an array or a data frame, which are converted to these. So are contexts.
            y: rewards (q,) or (q, 1), or one, (), if q = 1: any real numbers, of which ``True`` is 1, or arrays,
                lists, series or tensors of them, of any dtype and on any device.
            context: with contexts, that of the actions, (c,), or one for each, (q, c).
            time: when the points were played, one for all or one for each, (q,): numbers or dates, as a list, an array
                or a tensor, or of pandas. They may lie before the current time or after it, which then moves. None: the
                time of their ``ask`` for those that are pending; for others the current time, of the last ``ask``.
            ids: instead of x and context, the numbers that ``ask(details=True)`` returned with the points.
            rows: instead of x, the rows of arms or actions, or their names, one or several; of actions that a round
                brought with these, ``candidates``.
            candidates: the actions of the round of which these are rows, as ``ask`` takes them.
            outcomes: what else was measured: for each name that is declared a number, or one for each point; None, NaN
                or no name where it was not. Told without y, before the reward is known, points asked for stay pending.
            failed: whether the plays failed, one for all, or one for each point, (q,): then y has None or NaN where it
                did, and outcomes may be known. A point that failed is not asked for again at once, and how likely
                others are to fail is learned; see ``failure_probability``.
            noise: the noise variance of each reward where it is known, in reward units squared, above 0, one for all
                or one for each, (q,), None or NaN for λ; see "The noise of each reward".
            sem: in its place standard errors, as of means of repeated measurements, whose squares it is.
            log: what another policy played, in place of the others: its rows that have a reward, in one round, as in
                "Learning from logs". Points that are pending stay so.

        Raises:
            InputError: if shapes, kinds or values do not fit, or an id is not pending.
            NumericalError: if the posterior cannot be computed. After an error the bandit is as it was.
        """
        start, state = perf_counter(), without_expired(self._config, self._state)
        if log is not None:
            X, y, time = self._logged(log, state, x, y, context, time, ids, rows, candidates)
            places = [-1] * len(X)
        else:
            X, places = self._told(state, x, context, ids, rows, candidates)
        before = self._state.ledger
        self._learn(state, X, places, start, y=y, outcomes=outcomes, failed=failed, time=time, noise=noise, sem=sem)
        self._notify(before, None, state.ledger.pending, places)

    def run(
        self,
        pull: Callable[[Any], Any],
        rounds: int,
        *,
        offered: Callable[[int], Mapping[str, Any]] | None = None,
        stop: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Play rounds: ask for a point, get its reward from ``pull``, and tell it; return what was played, together.

        The result is what so many calls of ``ask`` and ``tell`` give, sooner. After an error, also one of ``pull``, the
        rounds before it were played, and the bandit is as it was then.

        Args:
            pull: given what ``ask`` would return, returns its reward; or by name the words of ``tell`` but for x,
                context, time and ids: ``{"y": 1.0, "outcomes": {"cost": 2.0}}``, ``{"failed": True}``. It may look at
                the bandit, and ask and tell nothing.
            rounds: how many, at most.
            stop: asked of the bandit after each reward, whether that was the last; see ``StopWhen``.
            offered: given the number of a round, returns by name the words of its ``ask``: context, candidates, time.

        Raises:
            InputError: if an argument or what is returned does not fit.
        """
        for name, function in (("pull", pull), ("offered", offered), ("stop", stop)):
            if not (callable(function) or (function is None and name != "pull")):
                raise InputError(f"{name} must be a function, got {checks.describe(function)}.")
        number = checks.positive_integer("rounds", rounds)
        played = list[Tensor]()
        while len(played) < number:
            words = {} if offered is None else _named("offered", offered(self.round), _BROUGHT)
            slate = Slate(spares=not self._config.states_propensities) if self._callbacks.hear_asks else None
            X, state, ahead = self._asked(1, *(words.get(name) for name in _BROUGHT), slate=slate)
            before, action = self._state.ledger, self.candidates.actions(X.clone())
            told, now = pull(action), self._state.ledger
            counts = [(each.num_observations, each.num_forgotten) for each in (before, now)]
            if now.pending is not before.pending or counts[0] != counts[1]:
                raise InputError("pull must not ask, tell or otherwise change the bandit that runs.")
            said = _named("pull", told, _TOLD) if isinstance(told, Mapping) else {"y": told}
            self._cached_fantasy = state, ahead
            asked, last = state.ledger.pending, len(state.ledger.pending.ids) - 1
            self._learn(state, X, [last], perf_counter(), **said)
            self._notify(before, slate and slate.suggestion(action, X, state, self.candidates), asked, [last])
            played.append(X)
            if stop is not None and stop(self):
                break
        return self.candidates.actions(torch.cat(played))

    def forget(self, x: Any = None, *, context: Any = None, ids: int | Sequence[int] | None = None) -> None:
        """Drop pending points that will not be told, given as in ``tell``; all of them if none are.

        What was asked and forgotten leaves no trace. So a rule that draws (Thompson sampling, random search) may next
        repeat the draw of a point that is still pending.

        Raises:
            InputError: if a point is not pending; then nothing is dropped.
        """
        state = self._state
        pending = state.ledger.pending
        if ids is not None:
            remaining = pending.without_rows(self._places(state, ids, x, context))
        elif x is None and context is None:
            remaining = pending.without(pending.points)
        else:
            X = self.candidates.points(x, context, state.clock.now)
            remaining = pending.without(X, self._config.own_columns)
            if len(pending.ids) - len(remaining.ids) != len(X):
                raise InputError(f"Not all of the {len(X)} point(s) are pending; {len(pending.ids)} are.")
        self._become(changed(state, ledger=replace(state.ledger, pending=remaining)))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kernel={type(self.prior.kernel).__name__}, regularization={self.regularization:g}, "
            f"dictionary={self.dictionary!r}, width={self.width!r}, seed={self.seed}, round={self.round})"
        )

    # ---------------------------------------------------------------- inside

    def _asked(
        self, q: int | None, time: Any, context: Any, candidates: Any, slate: Slate | None = None
    ) -> tuple[Tensor, State, FantasyPosterior]:
        """Return the next q points, not to be written to, what is known once they are pending, and their posterior."""
        start = perf_counter()
        state, domain = self._now(time, context, candidates)
        slate = Slate() if slate is None and self._config.states_propensities else slate
        if slate is not None:
            domain = slate.begun(self.candidates, domain, candidates)
        known = self._ahead_of(state)
        ahead, before = with_chosen(self._config, state, domain, known, q, slate), known.num_pending
        X = ahead.pending[before:].clone() if before else ahead.pending
        stages = None if ahead.stages is None else ahead.stages[before:]
        rows, propensities = ((), ()) if slate is None else (slate.rows, slate.propensities)
        state = changed(state, ledger=state.ledger.with_asked(X, state.now, stages, rows, propensities))
        self._seconds["ask"].append(perf_counter() - start)
        return X, state, ahead

    def _mark(self, X: Tensor, clock: Clock, stages: Tensor | None = None, *noted: Any) -> tuple[int, ...]:
        """Make points (q, d) pending at a time, with stages, rows and propensities if known; return their ids."""
        state = without_expired(self._config, self._state.at(clock))
        ledger, before = state.ledger.with_asked(X, state.now, stages, *noted), self._state.ledger
        self._become(changed(state, ledger=ledger))
        self._notify(before)
        return ledger.pending.ids[len(ledger.pending.ids) - len(X) :]

    def _learn(self, state: State, X: Tensor, rows: Sequence[int], start: float, **said: Any) -> None:
        """Take over what is known once points (q, d) are told, rows of what is pending or -1; it began in seconds."""
        config, asked = self._config, state.ledger.pending
        clock, told, is_over = round_of(config, state, X, rows, **said)
        pending = asked.without_rows(rows) if is_over else asked
        if is_over and not self._warned_of_stale_points:
            self._warned_of_stale_points = asked.warn_if_stale(pending, stacklevel=5)
        # What learns shares buffers with the fantasized, and writes to them.
        ahead, self._cached_fantasy = self._known_ahead(state), None
        after = learned(config, state, clock, told, pending, ahead)
        if state.ledger.num_observations < FIRST_REWARDS <= after.ledger.num_observations:
            warn_of_far_rewards(config, after.ledger.history_since(0), after.told.kernel_bound(), 4)
        # A batch of which all is told and nothing learned stays what it was.
        held = after.ledger.held
        stays = ahead is not None and held and not pending.ids and ahead.looks_from(held[0].over.X, held[0].over.stages)
        self._warn_of_fits(after, 5)
        self._seconds["tell"].append(perf_counter() - start)
        self._become(after, ahead if stays and after.told is state.told else None)

    @classmethod
    def _made_of(cls, words: dict[str, Any]) -> Self:
        """Return the bandit of ``BanditConfig.arguments``, past the constructor of a named algorithm, which chooses."""
        bandit = cls.__new__(cls)
        bandit._was_warned_of = True
        Bandit.__init__(bandit, **words)
        del bandit._was_warned_of
        return bandit


def _named(what: str, words: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return words by name that a function of the caller's gave, of which there are no others than these."""
    checks.instance(f"what {what} returns", words, Mapping, f"a mapping from {', '.join(names)}")
    unknown = [name for name in words if name not in names]
    if unknown:
        raise InputError(f"run takes {', '.join(names)} by name, got {', '.join(map(repr, unknown))}.")
    return words

"""Ask, tell, save and replay: the order of the calls. The posterior and its search live below."""

import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from time import perf_counter
from typing import Any, NamedTuple, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.choices import with_chosen
from torch_kbandits.bandit.config import Advice, BanditConfig
from torch_kbandits.bandit.health import (
    FIRST_REWARDS,
    LAST_CALLS,
    said_of_clipping,
    said_of_corners,
    warn_of_failing,
    warn_of_far_rewards,
)
from torch_kbandits.bandit.learning import before_any, learned, replayed, restarted, round_of, without_expired
from torch_kbandits.bandit.reports import BanditReports
from torch_kbandits.bandit.saving import loaded, restored, save, state_of
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import TheoremWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Expiry
from torch_kbandits.outcomes import Limit, Outcome, Scalarization
from torch_kbandits.priors import Family, LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.selection import FantasyPosterior, Surrogate

#: What a round may bring, and what may be said of its play, by name; see ``Bandit.run``.
_BROUGHT, _TOLD = ("time", "context", "candidates"), ("y", "outcomes", "failed")


class Asked(NamedTuple):
    """What ``ask(return_ids=True)`` returns.

    Attributes:
        actions: the points (q, d) to play; with contexts actions (q, a); of a parameter space a list of q mappings.
        ids: the number of each, by which ``tell`` and ``forget`` know it.
    """

    actions: Any
    ids: tuple[int, ...]


class Bandit(BanditReports):
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
        acquisition: how the next point is chosen from the posterior.
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
        objective: several objectives that are sought in place of the reward, see ``Scalarization``; triggers, batches
            and choices of a memory still look at the reward.

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
        acquisition: AcquisitionRule | None = None,
        batches: BatchRule | None = None,
        memory: Memory | None = None,
        seed: int,
        trigger: RestartTrigger | None = None,
        memories: MemoryChoice | None = None,
        advice: Advice | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        family: Family | None = None,
        theory: TheoremWidth | None = None,
        noise_scale: float | None = None,
        outcomes: Sequence[str | Outcome] = (),
        constraints: Sequence[Limit] = (),
        expire_after: float | Expiry | None = None,
        objective: Scalarization | None = None,
    ) -> None:
        rule = UpperConfidenceRule() if acquisition is None else acquisition
        assumed, expiry = prior_of(prior, kernel, regularization, mean), Expiry.of(expire_after)
        pieces = candidates, assumed, dictionary, width, rule, batches, memory, seed, trigger, memories, advice, family
        self._config = BanditConfig(*pieces, theory, noise_scale, outcomes, constraints, expiry, objective)
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
        self._seconds: dict[str, deque[float]] = {name: deque(maxlen=LAST_CALLS) for name in ("ask", "tell")}
        if not self._was_warned_of:
            warn_of_failing(self._config, self._state, 3 if type(self).__init__ is Bandit.__init__ else 5)

    # ---------------------------------------------------------------- the loop

    def ask(
        self,
        q: int | None = 1,
        *,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        return_ids: bool = False,
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
            return_ids: whether to return ``Asked``, which has the numbers of the points too, for ``tell``.

        Raises:
            InputError: if an argument does not fit, or q is None without a batch rule or where its batch is complete.

        Cost: that of the candidates for each point; O(A) on arms without pending points.
        """
        remember, return_ids = checks.flag("remember", remember), checks.flag("return_ids", return_ids)
        if return_ids and not remember:
            raise InputError("return_ids=True needs remember=True: what is not remembered cannot be told by its id.")
        X, state, ahead = self._asked(None if q is None else checks.size("q", q), time, context, candidates)
        actions = self.candidates.actions(X.clone())
        if remember:
            self._become(state, ahead)
        return Asked(actions, state.ledger.pending.ids[-len(X) :]) if return_ids else actions

    def mark_pending(self, x: Any, *, context: Any = None, time: Any = None) -> tuple[int, ...]:
        """Make points pending that this bandit did not choose, as those that other workers evaluate; return their ids.

        The next points are chosen as if these had returned their posterior mean, as with points asked for.

        Args:
            x: as in ``tell``, like the context: points (q, d), with contexts actions (q, a).
            context: of all or each.
            time: as in ``ask``.

        Raises:
            InputError: if they do not fit; then nothing changes.
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
        outcomes: Mapping[str, Any] | None = None,
        failed: Any = False,
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
            ids: instead of x and context, the numbers that ``ask(return_ids=True)`` returned with the points.
            outcomes: what else was measured: for each name that is declared a number, or one for each point; None, NaN
                or no name where it was not. They may be told alone, without y, before the reward is known: points that
                were asked for stay pending.
            failed: whether the plays failed, one for all, or one for each point, (q,): then y has None or NaN where it
                did, and outcomes may be known. A point that failed is not asked for again at once, and how likely
                others are to fail is learned; see ``failure_probability``.

        Raises:
            InputError: if shapes, kinds or values do not fit, or an id is not pending.
            NumericalError: if the posterior cannot be computed.

        After an error the bandit is as it was.
        """
        start, state = perf_counter(), without_expired(self._config, self._state)
        if ids is None:
            X, rows = state.ledger.pending.found(self.candidates.points(x, context, 0.0), self._config.own_columns)
        else:
            rows = self._rows(state, ids, x, context)
            X = state.ledger.pending.points[rows]
        self._learn(state, X, rows, start, y=y, outcomes=outcomes, failed=failed, time=time)

    def run(
        self, pull: Callable[[Any], Any], rounds: int, *, offered: Callable[[int], Mapping[str, Any]] | None = None
    ) -> Any:
        """Play rounds: ask for a point, get its reward from ``pull``, and tell it; return what was played, together.

        The result is what so many calls of ``ask`` and ``tell`` give, sooner. After an error, also one of ``pull``, the
        rounds before it were played, and the bandit is as it was then.

        Args:
            pull: given what ``ask`` would return, returns its reward; or by name the words of ``tell`` but for x,
                context, time and ids: ``{"y": 1.0, "outcomes": {"cost": 2.0}}``, ``{"failed": True}``. It may look at
                the bandit, and ask and tell nothing.
            rounds: how many.
            offered: given the number of a round, returns by name the words of its ``ask``: context, candidates, time.

        Raises:
            InputError: if an argument or what is returned does not fit.
        """
        for name, function in (("pull", pull), ("offered", offered)):
            if not (callable(function) or function is offered is None):
                raise InputError(f"{name} must be a function, got {checks.describe(function)}.")
        number = checks.positive_integer("rounds", rounds)
        played = list[Tensor]()
        while len(played) < number:
            words = {} if offered is None else _named("offered", offered(self.round), _BROUGHT)
            X, state, ahead = self._asked(1, *(words.get(name) for name in _BROUGHT))
            before, told, now = self._state.ledger, pull(self.candidates.actions(X.clone())), self._state.ledger
            counts = [(each.num_observations, each.num_forgotten) for each in (before, now)]
            if now.pending is not before.pending or counts[0] != counts[1]:
                raise InputError("pull must not ask, tell or otherwise change the bandit that runs.")
            said = _named("pull", told, _TOLD) if isinstance(told, Mapping) else {"y": told}
            self._cached_fantasy = state, ahead
            self._learn(state, X, [len(state.ledger.pending.ids) - 1], perf_counter(), **said)
            played.append(X)
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
            remaining = pending.without_rows(self._rows(state, ids, x, context))
        elif x is None and context is None:
            remaining = pending.without(pending.points)
        else:
            X = self.candidates.points(x, context, state.clock.now)
            remaining = pending.without(X, self._config.own_columns)
            if len(pending.ids) - len(remaining.ids) != len(X):
                raise InputError(f"Not all of the {len(X)} point(s) are pending; {len(pending.ids)} are.")
        self._become(changed(state, ledger=replace(state.ledger, pending=remaining)))

    def restart(self) -> None:
        """Forget all that was told so far, as where the function has become another; the history keeps it.

        The next choice is from the prior. Points stay pending, and their rewards count once they are told: ``forget``
        those that were played on the function that was.
        """
        self._become(restarted(self._config, self._state))

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        return state_of(type(self), self._config, self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        The posterior is computed afresh, so it agrees with the saved one to rounding.

        Raises:
            StateMismatchError: if the state is of another format or configuration; the message names each difference.
                Then the bandit is as it was.
        """
        self._become(restored(type(self), self._config, state))
        if self._config.advice is not None:
            self._config.advice.expert.restore(state["expert"]["counts"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write this bandit to one file, whole or not at all, from which ``load`` makes it again, anywhere.

        It holds the state, and what the bandit is made of as plain values: no code, so that reading it runs none.

        Raises:
            FileError: if the file cannot be written; then an old one of that name is as it was.

        Cost: that of ``state_dict``, and a copy of the arms where they are in memory.
        """
        save(self, path, self._config.arguments)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, into: Self | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Return the bandit that ``save`` wrote; it goes on where that one was.

        ``Bandit.load`` finds the algorithm; that of a class takes this one only. A bandit of a class, kernel or other
        piece of your own, of arms that a function computes, or that asks an expert is not made again from a file: make
        it as it was and give it as ``into``. Arms in a file are looked for where they were.

        Args:
            path: of the file.
            into: a bandit of the same configuration, to take the state and be returned; after an error it is as it was.
            device: of the tensors; None for that of the saved ones, or of ``into``.

        Raises:
            FileError: if the file cannot be read.
            DamagedFileError: if it is cut, changed or no bandit's.
            StateMismatchError: if it is of a newer format, or no bandit like ``into`` or of this class can be made of
                it; the message says what to do.
            InputError: if the device cannot be used, or is given with ``into``.
        """
        return loaded(cls, path, into, device)

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet.

        The bandit then chooses as the recorded one would, if its configuration and seed are the same. A history does
        not say when there was a restart, nor of what kind its times are: give the next ones as before. Times at which
        rewards were told, if they are the numbers of the rounds, are taken for rounds. Without them, as in a log, each
        reward is told as if it had come when its point was played, or when one before it was that was played later.

        Cost: that of telling it. Of a prior that is learned all fits are made; the posterior is computed after the last
        one, unless those before decided something: when to restart, when a batch was complete, which memory counted.

        Raises:
            InputError: if something was told already, or the history does not fit; then the bandit stays empty.
        """
        if self.round:
            raise InputError(f"replay needs a bandit that was told nothing; this one was told {self.round} round(s).")
        state = replayed(self._config, self._state, history)
        self._warn_of_fits(state, 4)
        self._become(changed(state, clock=state.clock.undecided))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kernel={type(self.prior.kernel).__name__}, regularization={self.regularization:g}, "
            f"dictionary={self.dictionary!r}, width={self.width!r}, seed={self.seed}, round={self.round})"
        )

    # ---------------------------------------------------------------- inside

    def _asked(self, q: int | None, *brought: Any) -> tuple[Tensor, State, FantasyPosterior]:
        """Return the next q points, not to be written to, what is known once they are pending, and their posterior."""
        start = perf_counter()
        state, domain = self._now(*brought)
        known = self._ahead_of(state)
        ahead, before = with_chosen(self._config, state, domain, known, q), known.num_pending
        X = ahead.pending[before:].clone() if before else ahead.pending
        stages = None if ahead.stages is None else ahead.stages[before:]
        state = changed(state, ledger=state.ledger.with_asked(X, state.now, stages))
        self._seconds["ask"].append(perf_counter() - start)
        return X, state, ahead

    def _mark(self, X: Tensor, clock: Clock, stages: Tensor | None = None) -> tuple[int, ...]:
        """Make points (q, d) pending at a time, which stages (q,) chose, or none; return their ids."""
        state = without_expired(self._config, self._state.at(clock))
        ledger = state.ledger.with_asked(X, state.now, stages)
        self._become(changed(state, ledger=ledger))
        return ledger.pending.ids[len(ledger.pending.ids) - len(X) :]

    def _rows(self, state: State, ids: Any, x: Any, context: Any) -> list[int]:
        """Return the rows of pending points by their ids, in place of which no points may be given."""
        if x is not None or context is not None:
            raise InputError("Give either x (and its context) or ids, not both: an id names its point.")
        expiry, hint = self._config.expire_after, ", time=..." if state.clock.matters else ""
        expires = None if expiry is None else f"{expiry}, and tell(x, y{hint}) learns it late"
        return state.ledger.pending_rows(ids, expires)

    def _learn(self, state: State, X: Tensor, rows: Sequence[int], start: float, **said: Any) -> None:
        """Take over what is known once points (q, d) are told, rows of what is pending or -1; it began in seconds."""
        config, asked = self._config, state.ledger.pending
        told, is_over = round_of(config, state, X, rows, **said)
        pending = asked.without_rows(rows) if is_over else asked
        if is_over and not self._warned_of_stale_points:
            self._warned_of_stale_points = asked.warn_if_stale(pending, stacklevel=5)
        # What learns shares buffers with the fantasized, and writes to them.
        ahead, self._cached_fantasy = self._known_ahead(state), None
        after = learned(config, state, told, pending, ahead)
        if state.ledger.num_observations < FIRST_REWARDS <= after.ledger.num_observations:
            warn_of_far_rewards(config, after.ledger.history_since(0), after.told.kernel_bound(), 4)
        # A batch of which all is told and nothing learned stays what it was.
        held = after.ledger.held
        stays = ahead is not None and held and not pending.ids and ahead.looks_from(held[0].over.X, held[0].over.stages)
        self._warn_of_fits(after, 5)
        self._seconds["tell"].append(perf_counter() - start)
        self._become(after, ahead if stays and after.told is state.told else None)

    def _become(self, state: State, ahead: FantasyPosterior | None = None) -> None:
        """Take over what is known from now on, and the posterior with its batch pending, if that is known."""
        self._cached_fantasy = None if ahead is None else (state, ahead)
        self._state = state

    def _warn_of_fits(self, after: State, stacklevel: int) -> None:
        """Say once, to the caller so many calls above, what is odd about a fit, and that rewards are clipped."""
        corners = said_of_corners(self._config, self._state, after) if self._config.constraints else ()
        for diagnostic in (*after.diagnostics, *corners):
            if diagnostic not in self._diagnostics:
                self._diagnostics = (*self._diagnostics, diagnostic)
                warnings.warn(diagnostic, KernelBanditWarning, stacklevel=stacklevel)
        clips = not self._warned_of_clipping and after.spec.prior.floor > -math.inf
        if clips and (said := said_of_clipping(self._state, after)) is not None:
            self._warned_of_clipping = True  # first, since a warning may be an error
            warnings.warn(said, KernelBanditWarning, stacklevel=stacklevel)

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

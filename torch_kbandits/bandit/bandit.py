"""Ask, tell, save and replay: the order of the calls. What is believed and how it is searched lives below."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from os import PathLike
from typing import Any, Literal, NamedTuple, Self, cast, overload

import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.bandit.filling import fill, require_open
from torch_kbandits.bandit.pieces import Pieces
from torch_kbandits.bandit.saving import loaded, save
from torch_kbandits.bandit.state import SavedState, check_config, check_format, saved_state, state_of
from torch_kbandits.bandit.undisturbed import Undisturbed
from torch_kbandits.beliefs import Belief, Lookahead
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.ledger import History, Ledger, Pending, check_rounds, joined, replayed_rounds, rewards

#: Points that ``ask(None)`` returns at most.
_LARGEST_BATCH = 10_000

#: Of the points of a batch that are told at once so many are looked at first, to see whether it is complete.
_FIRST_LOOKED_AT = 256


class Asked(NamedTuple):
    """What ``ask(return_ids=True)`` returns.

    Attributes:
        actions: the points (q, d) to play; with contexts actions (q, a).
        ids: the number of each, by which ``tell`` and ``forget`` know it.
    """

    actions: Tensor
    ids: tuple[int, ...]


class Bandit(Undisturbed):
    """A kernelized bandit: ``ask`` for the next point, ``tell`` its reward.

    The state is a function of the configuration, the seed, the history and the points still pending, and the
    randomness of a round depends on no other round. A named algorithm is a subclass that only chooses the pieces.

    Args:
        candidates: what may be played.
        kernel: the prior covariance; a copy is kept.
        regularization: λ > 0, the noise variance of the surrogate, in reward units squared.
        dictionary: which played points span the approximation; None for the exact posterior.
        width: the confidence width, a multiplier of the standard deviation; None for acquisitions that use none.
        acquisition: how the next point is chosen from the posterior.
        batches: when rewards are learned; None: at once.
        memory: which observations count at a time, and with what noise, where the function changes; None where all do.
        seed: addresses all randomness.

    With a memory there is a time. Unless ``ask`` and ``tell`` are given times, it is the round, counted from 0: a
    reward has that of the round in which it is told.

    Raises:
        InputError: if an argument does not fit; the message says what was expected.
    """

    def __init__(
        self,
        *,
        candidates: Candidates,
        kernel: Kernel,
        regularization: float,
        dictionary: DictionaryRule | None = None,
        width: Width | None = None,
        acquisition: AcquisitionRule | None = None,
        batches: BatchRule | None = None,
        memory: Memory | None = None,
        seed: int,
    ) -> None:
        rule = UpperConfidenceRule() if acquisition is None else acquisition
        self._pieces = Pieces(candidates, kernel, regularization, dictionary, width, rule, batches, memory, seed)
        self.candidates = candidates
        self.regularization = self._pieces.regularization
        self.dictionary = dictionary
        self.width = cast(Width, self._pieces.width)
        self.batches = batches
        self.memory = memory
        self.seed = self._pieces.seed
        self._acquisition, self._kernel = rule, self._pieces.kernel
        self._clock = self._pieces.clock
        self._belief = self._prior()
        self._ledger = Ledger.empty(candidates.example, staged=rule.num_stages > 0, timed=self._pieces.has_clock)
        self._ahead: Lookahead | None = None
        self._model: NystromGP | OnlineGP | None = None
        self.round = 0
        self._warned_of_stale_points = False
        self._pieces.warn_of_single_precision(3)

    # ---------------------------------------------------------------- the loop

    @overload
    def ask(
        self,
        q: int | None = 1,
        *,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        return_ids: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def ask(
        self,
        q: int | None = 1,
        *,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        return_ids: Literal[True],
    ) -> Asked: ...

    def ask(
        self,
        q: int | None = 1,
        *,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
        remember: bool = True,
        return_ids: bool = False,
    ) -> Tensor | Asked:
        """Return the next q points to play, (q, d); with contexts the next q actions in this one, (q, a).

        They are pending until they are told, in any order: later points are chosen as if those had returned their
        posterior mean. So ``ask(5)`` gives the points that ``ask(3)`` and then ``ask(2)`` give. A point whose
        evaluation failed is dropped by ``forget``.

        Args:
            q: number of points; None for as many as the batch rule allows, at least one and at most 10,000 at a time.
            context: what is known before the choice, (c,): needs ``ContextualActions``, like the next.
            candidates: the actions of this round, (A, a), where they differ from round to round.
            time: the present time, a number or a date, not before any given earlier; needs a memory. None: the round.
            remember: False to look without anything becoming pending: then nothing changes.
            return_ids: whether to return the numbers of the points as well, by which they can be told later.

        Raises:
            InputError: if q, the context or the actions do not fit, q is None where no batch rule is set or its batch
                is complete but untold, or ids are wanted of what is not remembered.

        Cost: that of the candidates for each point; O(A) on arms without pending points.
        """
        if q is not None:
            q = checks.positive_integer("q", q)
        if return_ids and not remember:
            raise InputError("return_ids=True needs remember=True: what is not remembered cannot be told by its id.")
        present = self._present
        ids: tuple[int, ...] = ()
        try:
            domain = self._domain_at(time, context, candidates)
            domain = self._belief.in_round(domain, self._acquisition)
            if q is None:
                require_open(self.batches, self._lookahead, len(self.pending_ids))
            ahead = self._lookahead() if remember else copy(self._lookahead())
            before = len(ahead.pending)
            size, choose = before + (_LARGEST_BATCH if q is None else q), self._chooser(ahead, domain)
            fill(ahead, size, self.batches, choose, until_complete=q is None)
            X = ahead.pending[before:].clone()
            actions = self.candidates.actions(X)
            if remember:
                stages = ahead.stages
                self._ledger = self._ledger.with_asked(X, None if stages is None else stages[before:])
                ids = self._ledger.pending.ids[-len(X) :]
            else:
                self._present = present
        except BaseException:
            self._present = present
            self._ahead = None  # it may hold points that were chosen and are not returned
            raise
        return Asked(actions, ids) if return_ids else actions

    def mark_pending(self, x: Any, *, context: Any = None, time: Any = None) -> tuple[int, ...]:
        """Make points pending that this bandit did not choose, as those that other workers evaluate; return their ids.

        The next points are chosen as if these had returned their posterior mean, as with points asked for.

        Args:
            x: points (q, d), of the dtype and device of the candidates; with contexts actions (q, a).
            context: with contexts, that of the actions, (c,), or one for each, (q, c).
            time: as in ``ask``.

        Raises:
            InputError: if they do not fit; then nothing changes.
        """
        present = self._present
        try:
            clock = self._clock.moved_to(time, self.round)
            X = self.candidates.points(x, self.candidates.with_time(context, clock.now)).detach().clone()
            self._move_to(clock)
            ledger = self._ledger.with_asked(X)
        except BaseException:
            self._present = present
            raise
        self._ledger, self._ahead = ledger, None
        return ledger.pending.ids[len(ledger.pending.ids) - len(X) :]

    def tell(
        self,
        x: Any = None,
        y: Any = None,
        *,
        context: Any = None,
        time: Any = None,
        ids: int | Sequence[int] | None = None,
    ) -> None:
        """Learn rewards; the points need not have been asked for, nor be told in the order asked.

        With a batch rule rewards are kept aside until the points told make a complete batch. Logged data can go in
        first, in one call: then leverage scores are those given all of it, so that the dictionary is about as large as
        if it had come in parts, and never larger than its cap. The posterior is that of its points and of all rewards.

        Args:
            x: points (q, d), of the dtype and device of the candidates; with contexts actions (q, a).
            y: rewards (q,) or (q, 1), or one, (), if q = 1: any real numbers, arrays, lists or tensors of them, of any
                real dtype and on any device. They are converted to the dtype and device of the candidates.
            context: with contexts, that of the actions, (c,), or one for each, (q, c).
            time: when the rewards were observed, not before any time given earlier; that of the last ``ask`` without.
            ids: instead of x and context, the numbers that ``ask(return_ids=True)`` returned with the points.

        Raises:
            InputError: if shapes, kinds or values do not fit, or an id is not pending.
            NumericalError: if the posterior cannot be computed.

        After an error the bandit is as it was.
        """
        if y is None:
            raise InputError("y is missing: give a reward for each point, tell(x, y) or tell(ids=ids, y=y).")
        clock = self._clock.at_reward(time, self.round)
        if ids is None:
            context = self.candidates.with_time(context, clock.now)
            X = self.candidates.points(x, context).detach().clone()
            asked = self._ledger.pending
            pending, stages = asked.without(X, self._pieces.own_columns), asked.stages_of(X)
            if not self._warned_of_stale_points:
                self._warned_of_stale_points = asked.warn_if_stale(pending, stacklevel=4)
        else:
            if x is not None or context is not None:
                raise InputError("Give either x (and its context) or ids, not both: an id stands for its point.")
            numbers, pending = self._ledger.pending_ids(ids), self._ledger.pending
            X, stages = pending.at_ids(numbers), pending.stages_at(numbers)
            pending = pending.without_ids(numbers)
        self._learn_round(X, rewards(y, X).detach().clone(), stages, pending, clock)

    def _learn_round(self, X: Tensor, Y: Tensor, stages: Tensor | None, pending: Pending, clock: Clock) -> None:
        """Learn rewards Y (q,) at X (q, d) as one round and leave these points pending; everything or nothing."""
        told = History(X, Y, torch.full((len(X),), self.round, device=X.device), stages, clock.stamps(X))
        # The lookahead shares buffers with what is about to change, and failed changes may leave points in the belief.
        ahead, self._ahead = self._ahead, None
        before, belief, known = dict(vars(self)), dict(vars(self._belief)), self._belief
        try:
            self._move_to(clock)
            self._clock = clock.after_reward(self.round + 1)
            ahead = ahead if self._belief is known else None
            held = self._learn_if_complete(told, ahead)
            self._ledger = self._ledger.with_told(told, held, pending)
            if not held:
                self._model = None
            elif ahead is not None and len(pending.ids) == 0 and torch.equal(ahead.pending, held[0].X):
                self._ahead = ahead  # the batch stays what it was: all of it is told now
            self.round += 1
            self._move_to(self._clock)
        except BaseException:
            vars(known).update(belief)
            vars(self).update(before)
            raise

    def forget(self, x: Any = None, *, context: Any = None, ids: int | Sequence[int] | None = None) -> None:
        """Drop pending points that will not be told; all of them if none are given.

        What was asked and forgotten leaves no trace. So a rule that draws (Thompson sampling, random search) may next
        repeat the draw of a point that is still pending.

        Args:
            x: points (k, d); with contexts actions (k, a).
            context: with contexts, that of the actions.
            ids: instead of both, the numbers that ``ask(return_ids=True)`` returned.

        Raises:
            InputError: if a point is not pending; then nothing is dropped.
        """
        pending = self._ledger.pending
        if ids is not None:
            if x is not None or context is not None:
                raise InputError("Give either x (and its context) or ids, not both: an id stands for its point.")
            remaining = pending.without_ids(self._ledger.pending_ids(ids))
        elif x is None and context is None:
            remaining = pending.without(pending.points)
        else:
            X = self.candidates.points(x, self.candidates.with_time(context, self._clock.now))
            remaining = pending.without(X, self._pieces.own_columns)
            if len(pending.ids) - len(remaining.ids) != len(X):
                raise InputError(f"Not all of the {len(X)} point(s) are pending; {len(pending.ids)} are.")
        self._ledger, self._ahead = replace(self._ledger, pending=remaining), None

    # ---------------------------------------------------------------- what is believed

    @property
    def beta(self) -> Tensor:
        """The multiplier of the posterior standard deviation in force now, 0-dim."""
        return self.width(self._belief)

    @property
    def history(self) -> History:
        """All that was told, in order; a copy."""
        self._ledger = self._ledger.in_one_part
        return self._ledger.told[0].copied()

    @property
    def rule(self) -> AcquisitionRule:
        """How the next point is chosen from the posterior."""
        return self._acquisition

    @property
    def num_asked(self) -> int:
        """How many points were ever asked for or marked as pending."""
        return self._ledger.num_asked

    @property
    def num_told(self) -> int:
        """How many rewards were ever told."""
        return self._ledger.num_told

    def told_since(self, number: int) -> History:
        """Return the history without its first ``number`` rewards. Cost: O(what is returned), not O(n)."""
        return self._ledger.told_since(checks.non_negative_integer("number", number))

    @property
    def weights(self) -> Tensor:
        """What each reward of ``history`` counts for now, (n,), in double precision: λ by its noise variance.

        It is 1 in full, and 0 for what was forgotten or what a batch rule keeps aside.
        """
        ledger, times = self._ledger, self.history.times
        weights = torch.zeros(ledger.num_told, dtype=torch.float64, device=self.candidates.example.device)
        learned = slice(ledger.num_forgotten, ledger.num_learned)
        weights[learned] = 1.0
        if self.memory is not None and times is not None:
            weights[learned] = self.regularization / self.memory.noise(
                times[learned], self._clock.now, self.regularization
            )
        return weights

    @property
    def now(self) -> float:
        """The present time as a number, from which ages are counted: of a date the seconds since 1970; else the round.

        It is minus infinity before the first time.
        """
        return float(self.round) if self._ledger.told[0].times is None else self._clock.now

    @property
    def pending(self) -> Tensor:
        """The points asked for and not yet told, (k, d), in the order asked; a copy. With contexts joint points."""
        return self._ledger.pending.points.clone()

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """The ids of the points asked for and not yet told, in the order asked."""
        return self._ledger.pending.ids

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d), all points learned if the posterior is exact; a copy."""
        return self._belief.inducing_points.clone()

    @property
    def visited_share(self) -> float:
        """The share of the candidates whose posterior the last ``ask`` computed afresh, in (0, 1]; 1 for a full pass.

        On many arms bounds certify that the others cannot be chosen.
        """
        return self._belief.visited_share

    @property
    def model(self) -> NystromGP | OnlineGP:
        """The posterior as a BoTorch model, built when asked for, O(n m²); without rewards that a batch rule holds."""
        if self._model is None:
            learned = slice(self._ledger.num_forgotten, self._ledger.num_learned)
            self._model = self._belief.shown(self.history.rows(learned))
        return self._model

    def acquisition(self, *, context: Any = None, candidates: Any = None, time: Any = None) -> AcquisitionFunction:
        """Return the acquisition function that ``ask`` maximises, given what is pending, as a BoTorch one on ``model``.

        With a context it is a function of the action alone: BoTorch's ``FixedFeatureAcquisitionFunction``. Thompson
        sampling makes draws of its own: those of ``ask`` come from another form of the same posterior.

        Args:
            context: as in ``ask``.
            candidates: as in ``ask``.
            time: as in ``ask``; nothing changes for the bandit.
        """
        present = self._present
        try:
            domain = self._domain_at(time, context, candidates)
            domain = self._belief.in_round(domain, self._acquisition)
            outstanding = self._ledger.outstanding
            seed = seed_for(self.seed, self.round, f"ask {len(outstanding)}")
            pending = outstanding if len(outstanding) else None
            function = self._acquisition.function(self.model, self.beta, pending, domain, seed)
            self._present = present
        except BaseException:  # no finally: that may itself be interrupted
            self._present = present
            raise
        return domain.of_action(function, self.candidates.example.shape[-1])

    def recommend(self, *, context: Any = None, candidates: Any = None, time: Any = None) -> Tensor:
        """Return the point (1, d) to use if the run ended now: of those learned the one of the largest posterior mean.

        With a context it is the action (1, a) of the largest posterior mean in it, played or not; on a box the best of
        a search.

        Args:
            context: as in ``ask``.
            candidates: as in ``ask``.
            time: as in ``ask``; nothing changes for the bandit.

        Raises:
            EmptyHistoryError: if nothing was learned yet, or nothing of it counts any more.
        """
        present = self._present
        try:
            domain = self._domain_at(time, context, candidates)
            best = self._belief.recommend_in(domain if self.candidates.is_contextual else None)
            self._present = present
        except BaseException:
            self._present = present
            raise
        return self.candidates.actions(best)

    def restart(self) -> None:
        """Forget all that was told so far, as where the function has become another; points stay pending.

        The history keeps it. The next choice is from the prior. Rewards of points pending that are told later count.
        """
        belief = self._prior().at(self._clock.now)
        self._ledger, self._belief, self._ahead, self._model = self._ledger.restarted, belief, None, None

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        belief = self._belief
        return state_of(self._config(), self._ledger, self._clock, belief.inducing_points, belief.dictionary_weights)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        The posterior is computed afresh from history and dictionary, so it agrees with the saved one to rounding.

        Raises:
            StateMismatchError: if the state is of another format or configuration; the message names each difference.

        After an error the bandit is as it was.
        """
        check_format(state)
        check_config(state["config"], self._config())
        saved = saved_state(state, self.candidates.example, self._acquisition.num_stages, timed=self._pieces.has_clock)
        self._belief = self._restored(saved)
        self._ledger = Ledger.restored(
            saved.history, saved.pending, saved.num_asked, saved.num_learned, saved.num_forgotten
        )
        self._clock = saved.clock
        self._ahead = self._model = None
        self.round = saved.history.next_round

    def save(self, path: str | PathLike[str]) -> None:
        """Write this bandit to one file, from which ``load`` makes it again, here or in another process.

        The file is written whole or not at all, and has a checksum. It holds the state, and what the bandit is made of
        as plain values: no code, so that reading it runs none. See ``load`` for what cannot be made again.

        Raises:
            FileError: if the file cannot be written; then an old one of that name is as it was.

        Cost: that of ``state_dict``, and a copy of the arms where they are in memory.
        """
        save(self, path, self._words(), torch.cat([self.candidates.example, self._belief.inducing_points]))

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        into: Self | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return the bandit that ``save`` wrote; it goes on where that one was.

        ``Bandit.load`` finds the algorithm; that of a class takes this one only. A bandit of a class, kernel or other
        piece of your own, of arms that a function computes, or that asks an expert is not made again from a file: make
        it as it was and give it as ``into``. Arms in a file are looked for where they were.

        Args:
            path: of the file.
            into: a bandit of the same configuration, to take the state and be returned; what it knew is replaced.
            device: of the tensors; None for that of the saved ones, or of ``into``.

        Raises:
            FileError: if the file cannot be read.
            DamagedFileError: if it is cut, changed or no bandit's.
            StateMismatchError: if it is of a newer format, of another configuration than ``into``, of another
                algorithm than this class, or of one that cannot be made again; the message says what to do.
            InputError: if the device cannot be used, or is given with ``into``.

        After an error ``into`` is as it was.
        """
        return loaded(cls, path, into, device)

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet.

        The bandit then chooses as the recorded one would, if its configuration and seed are the same. Where that was
        restarted, only if this one is too: a history does not say when. Nor does it say of what kind its times are:
        give the next ones as before.

        Raises:
            InputError: if something was told already, or the history does not fit; then the bandit stays empty.
        """
        check_rounds(history)
        if self.round:
            raise InputError(f"replay needs a bandit that was told nothing; this one was told {self.round} round(s).")
        fresh, before, clock = self._prior(), self._ledger, self._clock
        clocks = clock.replayed(history.times, history.rounds)
        rounds = replayed_rounds(history, self.candidates.example, self._acquisition.num_stages)
        try:
            for now, (X, Y, stages) in zip(clocks, rounds, strict=True):
                self._learn_round(X, Y, stages, self._ledger.pending.without(X, self._pieces.own_columns), now)
            self._clock = self._clock.undecided
        except BaseException:
            self._belief, self._ledger, self._clock, self.round = fresh, before, clock, 0
            self._ahead = self._model = None
            raise

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kernel={type(self._kernel).__name__}, regularization={self.regularization:g}, "
            f"dictionary={self.dictionary!r}, width={self.width!r}, seed={self.seed}, round={self.round})"
        )

    # ---------------------------------------------------------------- inside

    def _prior(self) -> Belief:
        """Return the belief before any reward, under the memory that is in force."""
        return self._pieces.prior(self.memory)

    def _restored(self, saved: SavedState) -> Belief:
        """Return the belief of a saved bandit, computed afresh."""
        belief = self._prior().at(saved.clock.now)
        learned = saved.history.rows(slice(saved.num_forgotten, saved.num_learned))
        if len(learned.X):
            belief.restore_history(learned, saved.dictionary)
        return belief

    @property
    def _present(self) -> tuple[Clock, Belief, Lookahead | None, NystromGP | OnlineGP | None]:
        """What depends on the time that it is."""
        return self._clock, self._belief, self._ahead, self._model

    @_present.setter
    def _present(self, present: tuple[Clock, Belief, Lookahead | None, NystromGP | OnlineGP | None]) -> None:
        self._clock, self._belief, self._ahead, self._model = present

    def _domain_at(self, time: Any, context: Any, candidates: Any) -> Domain:
        """Move on to a time, and return what may be played then."""
        clock = self._clock.moved_to(time, self.round)
        domain = self.candidates.in_round(self.candidates.with_time(context, clock.now), candidates)
        self._move_to(clock)
        return domain

    def _move_to(self, clock: Clock) -> None:
        """Make it the time of a clock."""
        belief = self._belief.at(clock.now)
        if belief is not self._belief:
            self._belief, self._ahead, self._model = belief, None, None
        self._clock = clock

    def _learn_if_complete(self, told: History, ahead: Lookahead | None) -> tuple[History, ...]:
        """Learn what is told and what was kept aside, or keep all of it aside; return what is kept aside."""
        if self.batches is None:
            self._learn(told)
            return ()
        held = joined([*self._ledger.held, told])
        if not self._is_complete(self.batches, held.X, ahead):
            return (held,)
        self._learn(held)
        return ()

    def _is_complete(self, batches: BatchRule, X: Tensor, ahead: Lookahead | None) -> bool:
        """Say whether points (k, d) are a complete batch; of thousands, which cost their square, the first may do."""
        if ahead is not None and torch.equal(ahead.pending, X):
            return batches.is_complete(ahead)
        first, belief = X[:_FIRST_LOOKED_AT], self._belief
        is_complete = batches.is_complete(belief.lookahead(first))
        return is_complete or (len(X) > len(first) and batches.is_complete(belief.lookahead(X)))

    def _learn(self, told: History) -> None:
        """Condition on rewards told."""
        generator = self._pieces.dictionary_generator(self._ledger.num_learned)
        self._belief.learn_history(told, self.dictionary, generator)

    def _lookahead(self) -> Lookahead:
        """Return the posterior with the batch so far pending, kept from ask to ask."""
        if self._ahead is None:
            stages = self._ledger.pending.stages
            self._ahead = self._belief.lookahead_in_stages(self._ledger.outstanding, stages)
        return self._ahead

    def _chooser(self, ahead: Lookahead, domain: Domain) -> Callable[[int], Tensor]:
        """Return what chooses the next point (1, d) in this round when so many are pending."""
        rule, beta, seed, number = self._acquisition, self.beta, self.seed, self.round
        return lambda pending: ahead.choose(rule, beta, seed_for(seed, number, f"ask {pending}"), domain)

    def _words(self) -> dict[str, Any]:
        """Return the arguments of the constructor that makes this bandit again, without choosing its pieces anew."""
        return {field.name: getattr(self._pieces, field.name) for field in fields(self._pieces)}

    @classmethod
    def _made_of(cls, words: dict[str, Any]) -> Self:
        """Return the bandit of ``_words``; the constructor of a named algorithm, which chooses pieces, is passed by."""
        bandit = cls.__new__(cls)
        Bandit.__init__(bandit, **words)
        return bandit

    def _config(self) -> dict[str, Any]:
        """Return all that must agree between a saved state and the bandit that loads it, by name."""
        return {"algorithm": type(self).__name__} | self._pieces.config()

"""Ask, tell, save and replay: the order of the calls. What is believed and how it is searched lives below."""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, overload

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.fixed_feature import FixedFeatureAcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule
from torch_kbandits.batches import BatchRule
from torch_kbandits.candidates import Belief, Candidates, Lookahead, StagedBelief
from torch_kbandits.clock import Clock
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import EmptyHistoryError, InputError, KernelBanditWarning, TheoryWarning
from torch_kbandits.gram import check_kernel, prior_variance
from torch_kbandits.ledger import History, Ledger, Pending, check_rounds, checked_stages, joined, rewards
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.random import generator_for, seed_for
from torch_kbandits.state import (
    STATE_FORMAT,
    SavedState,
    check_config,
    check_format,
    describe_kernel,
    describe_value,
    saved_state,
)

#: In single precision a regularization below this fraction of the prior variance drowns in rounding.
_FLOAT32_REGULARIZATION = 1e-4

#: Points that ``ask(None)`` returns at most.
_LARGEST_BATCH = 10_000

#: So many points pending, none of which is what is told, look like a mistake.
_STALE_POINTS = 50


class Asked(NamedTuple):
    """What ``ask(return_ids=True)`` returns.

    Attributes:
        actions: the points (q, d) to play; with contexts actions (q, a).
        ids: the number of each, by which ``tell`` and ``forget`` know it.
    """

    actions: Tensor
    ids: tuple[int, ...]


class Bandit:
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
        acquisition = UpperConfidenceRule() if acquisition is None else acquisition
        checks.instance("candidates", candidates, Candidates, "Arms or a Box")
        checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        if dictionary is not None:
            checks.instance("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        checks.instance("acquisition", acquisition, AcquisitionRule, "a rule such as UpperConfidenceRule()")
        if width is not None or acquisition.uses_width:
            checks.instance("width", width, Width, "a confidence width such as ConstantWidth(2.0)")
        if batches is not None:
            checks.instance("batches", batches, BatchRule, "a rule such as GlobalBatchRule(2.0)")
            if batches.repeats_points and candidates.is_contextual:
                raise InputError(
                    f"{type(batches).__name__} plays a point again and again, and each round brings another context or "
                    "other actions: use GlobalBatchRule or LocalBatchRule, or candidates that stay."
                )
        if memory is not None:
            checks.instance("memory", memory, Memory, "a memory such as SlidingWindow(500)")
            _check_memory(memory, checks.positive("regularization", regularization))
        if isinstance(seed, bool):
            raise InputError(f"seed must be a whole number, got {seed}.")
        checks.instance("seed", seed, int, "a whole number")
        check_kernel(kernel, candidates.example)
        if acquisition.num_stages and not (dictionary is None and batches is None and memory is None):
            raise InputError(
                "A rule that chooses through stages needs exact posteriors: leave out dictionary, batches and memory."
            )
        self.candidates = candidates
        self.regularization = checks.positive("regularization", regularization)
        self.dictionary = dictionary
        self.width = ConstantWidth(0.0) if width is None else width
        self.batches = batches
        self.memory = memory
        self.seed = seed
        self._acquisition = acquisition
        self._kernel = deepcopy(kernel)
        self._clock = Clock()
        self._belief = self._prior()
        self._ledger = Ledger.empty(candidates.example, staged=acquisition.num_stages > 0, timed=self._has_clock)
        self._ahead: Lookahead | None = None
        self._model: NystromGP | OnlineGP | None = None
        self.round = 0
        self._warned_of_stale_points = False
        self._warn_of_single_precision()

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
            checks.positive_integer("q", q)
        if return_ids and not remember:
            raise InputError("return_ids=True needs remember=True: what is not remembered cannot be told by its id.")
        present = self._present
        ids: tuple[int, ...] = ()
        try:
            domain = self._domain_at(time, context, candidates)
            self._acquisition.check(domain)
            if q is None:
                self._require_open_batch()
            ahead = self._lookahead() if remember else copy(self._lookahead())
            before = len(ahead.pending)
            self._fill(ahead, before + (_LARGEST_BATCH if q is None else q), domain, until_complete=q is None)
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
            if self._has_clock:
                clock = self._clock.moved_to(time, self.round)
                context = self.candidates.with_time(context, clock.now)
                self._move_to(clock)
            else:
                self._refuse_time(time)
            X = self.candidates.points(x, context).detach().clone()
            ledger = self._ledger.with_asked(X, checked_stages(None, X, self._acquisition.num_stages))
        except BaseException:
            self._present = present
            raise
        self._ledger, self._ahead = ledger, None
        return ledger.pending.ids[len(ledger.pending.ids) - len(X) :]

    def tell(
        self,
        x: Any = None,
        y: Tensor | float | None = None,
        *,
        context: Any = None,
        time: Any = None,
        ids: int | Sequence[int] | None = None,
    ) -> None:
        """Learn rewards; the points need not have been asked for, nor be told in the order asked.

        With a batch rule rewards are kept aside until the points told make a complete batch.

        Args:
            x: points (q, d), of the dtype and device of the candidates; with contexts actions (q, a).
            y: rewards (q,) or (q, 1), or a number or 0-dim tensor if q = 1.
            context: with contexts, that of the actions, (c,), or one for each, (q, c).
            time: when the rewards were observed, not before any time given earlier; that of the last ``ask`` without.
            ids: instead of x and context, the numbers that ``ask(return_ids=True)`` returned with the points.

        Raises:
            InputError: if shapes, dtypes or values do not fit, or an id is not pending.
            NumericalError: if the posterior cannot be computed.

        After an error the bandit is as it was.
        """
        if y is None:
            raise InputError("y is missing: give a reward for each point, tell(x, y) or tell(ids=ids, y=y).")
        clock = self._clock_at_reward(time)
        if ids is None:
            context = self.candidates.with_time(context, clock.now)
            X = self.candidates.points(x, context).detach().clone()
            pending, stages = self._ledger.pending.without(X, self._own_columns), self._ledger.pending.stages_of(X)
            self._warn_of_stale_points(pending)
        else:
            if x is not None or context is not None:
                raise InputError("Give either x (and its context) or ids, not both: an id stands for its point.")
            numbers, pending = self._ledger.pending_ids(ids), self._ledger.pending
            X, stages = pending.at_ids(numbers), pending.stages_at(numbers)
            pending = pending.without_ids(numbers)
        self._learn_round(X, rewards(y, X).detach().clone(), stages, pending, clock)

    def _learn_round(self, X: Tensor, Y: Tensor, stages: Tensor | None, pending: Pending, clock: Clock) -> None:
        """Learn rewards Y (q,) at X (q, d) as one round and leave these points pending; everything or nothing."""
        times = torch.full((len(X),), clock.now, dtype=torch.float64, device=X.device) if self._has_clock else None
        told = History(X, Y, torch.full((len(X),), self.round, device=X.device), stages, times)
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
            remaining = pending.without(X, self._own_columns)
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
        """Return the acquisition function that ``ask`` maximises, as a BoTorch one on ``model``.

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
            outstanding = self._ledger.outstanding
            seed = seed_for(self.seed, self.round, f"ask {len(outstanding)}")
            pending = outstanding if len(outstanding) else None
            function = self._acquisition.function(self.model, self.beta, pending, domain, seed)
            self._present = present
        except BaseException:  # no finally: that may itself be interrupted
            self._present = present
            raise
        fixed = domain.fixed_features
        if fixed is None:
            return function
        d = self.candidates.example.shape[-1]
        return FixedFeatureAcquisitionFunction(function, d, list(fixed), cast(Tensor, domain.context))

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
            best = self._recommended(self._domain_at(time, context, candidates))
            self._present = present
        except BaseException:
            self._present = present
            raise
        return best

    def restart(self) -> None:
        """Forget all that was told so far, as where the function has become another; points stay pending.

        The history keeps it. The next choice is from the prior. Rewards of points pending that are told later count.
        """
        belief = self._prior().at(self._clock.now)
        self._ledger, self._belief, self._ahead, self._model = self._ledger.restarted, belief, None, None

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        history, weights = self.history, self._belief.dictionary_weights
        return {
            "format": STATE_FORMAT,
            "config": self._config(),
            "history": history._asdict(),
            "inducing_points": self.inducing_points,
            "dictionary_weights": None if weights is None else weights.clone(),
            "pending": self.pending,
            "pending_ids": list(self.pending_ids),
            "pending_stages": self._ledger.pending.stages,
            "num_asked": self._ledger.num_asked,
            "num_learned": self._ledger.num_learned,
            "num_forgotten": self._ledger.num_forgotten,
            "clock": {"now": self._clock.now, "kind": self._clock.kind},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        The posterior is computed afresh from history and dictionary, so it agrees with the saved one to rounding.

        Raises:
            StateMismatchError: if the state is of another format or configuration; the message names each difference.

        After an error the bandit is as it was.
        """
        check_format(state)
        check_config(state["config"], self._config())
        saved = saved_state(state, self.candidates.example, self._acquisition.num_stages, timed=self._has_clock)
        self._belief = self._restored(saved)
        self._ledger = Ledger.restored(
            saved.history, saved.pending, saved.num_asked, saved.num_learned, saved.num_forgotten
        )
        self._clock = saved.clock
        self._ahead = self._model = None
        self.round = saved.history.next_round

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
        example = self.candidates.example
        numbers = history.rounds.unique_consecutive()
        clocks = (clock,) * len(numbers)
        if self._has_clock:
            if history.times is None:
                raise InputError("This bandit has a memory, so a history to replay needs times.")
            clocks = clock.replayed(history.times, history.rounds)
        try:
            for number, now in zip(numbers, clocks, strict=True):
                told = history.rows(history.rounds == number)
                X = checks.points("history.X", told.X, dimension=example.shape[-1], like=example)
                stages = checked_stages(told.stages, X, self._acquisition.num_stages)
                pending = self._ledger.pending.without(X, self._own_columns)
                self._learn_round(X, rewards(told.Y, X), stages, pending, now)
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
        num_stages = self._acquisition.num_stages
        if num_stages:
            return StagedBelief(self.candidates.example, self._kernel, self.regularization, num_stages)
        online = self.dictionary is not None and self.dictionary.is_online
        return self.candidates.belief(
            self._kernel,
            self.regularization,
            self.seed,
            exact=self.dictionary is None,
            online=online,
            memory=self.memory,
        )

    def _restored(self, saved: SavedState) -> Belief:
        """Return the belief of a saved bandit, computed afresh."""
        belief = self._prior().at(saved.clock.now)
        learned = saved.history.rows(slice(saved.num_forgotten, saved.num_learned))
        if len(learned.X):
            belief.restore_history(learned, saved.dictionary)
        return belief

    @property
    def _has_clock(self) -> bool:
        """Whether it matters when something is asked or told."""
        return self.memory is not None or self.candidates.is_timed

    @property
    def _own_columns(self) -> int:
        """The first column by which a point is known again: it may be told at another time than it was asked for."""
        return int(self.candidates.is_timed)

    @property
    def _present(self) -> tuple[Clock, Belief, Lookahead | None, NystromGP | OnlineGP | None]:
        """What depends on the time that it is."""
        return self._clock, self._belief, self._ahead, self._model

    @_present.setter
    def _present(self, present: tuple[Clock, Belief, Lookahead | None, NystromGP | OnlineGP | None]) -> None:
        self._clock, self._belief, self._ahead, self._model = present

    def _domain_at(self, time: Any, context: Any, candidates: Any) -> Domain:
        """Move on to a time, and return what may be played then."""
        if not self._has_clock:
            self._refuse_time(time)
            return self.candidates.in_round(context, candidates)
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

    def _clock_at_reward(self, time: Any) -> Clock:
        """Return the clock at the time of a reward."""
        if self._has_clock:
            return self._clock.at_reward(time, self.round)
        self._refuse_time(time)
        return self._clock

    def _refuse_time(self, time: Any) -> None:
        if time is not None:
            raise InputError("This bandit has no memory, so it knows no time: give it memory=, or leave out time.")

    def _recommended(self, domain: Domain) -> Tensor:
        """Return the point (1, d) to use, or the action (1, a), by what is believed now."""
        belief = self._belief
        if belief.num_observations == 0:
            raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")
        if not self.candidates.is_contextual:
            return belief.recommend()
        greedy = belief.lookahead(self.candidates.example[:0])
        best = greedy.choose(UpperConfidenceRule(), torch.zeros_like(belief.regularization), 0, domain)
        return self.candidates.actions(best)

    def _learn_if_complete(self, told: History, ahead: Lookahead | None) -> tuple[History, ...]:
        """Learn what is told and what was kept aside, or keep all of it aside; return what is kept aside."""
        if self.batches is None:
            self._learn(told)
            return ()
        held = joined([*self._ledger.held, told])
        batch = ahead if ahead is not None and torch.equal(ahead.pending, held.X) else self._belief.lookahead(held.X)
        if not self.batches.is_complete(batch):
            return (held,)
        self._learn(held)
        return ()

    def _learn(self, told: History) -> None:
        """Condition on rewards told."""
        generator = self._dictionary_generator(self._ledger.num_learned)
        self._belief.learn_history(told, self.dictionary, generator)

    def _dictionary_generator(self, num_learned: int) -> torch.Generator | None:
        """Return the randomness of the dictionary rule after so many rewards learned; None without a rule."""
        if self.dictionary is None:
            return None
        # Not by round: rewards told one by one or at once must lead to the same dictionary after a batch.
        return generator_for(self.seed, 0 if self.dictionary.is_coupled else num_learned, "dictionary")

    def _lookahead(self) -> Lookahead:
        """Return the posterior with the batch so far pending, kept from ask to ask."""
        if self._ahead is None:
            stages = self._ledger.pending.stages
            self._ahead = self._belief.lookahead_in_stages(self._ledger.outstanding, stages)
        return self._ahead

    def _fill(self, ahead: Lookahead, size: int, domain: Domain, *, until_complete: bool) -> None:
        """Choose points until ``size`` are pending, or the batch rule says that the batch is complete."""
        beta = self.beta
        while len(ahead.pending) < size:
            number = len(ahead.pending)
            again = self.batches.repeats(ahead) if self.batches is not None and number else 0
            if again:
                ahead.add(ahead.pending[:1], min(again, size - number))
            else:
                seed = seed_for(self.seed, self.round, f"ask {number}")
                ahead.add(ahead.choose(self._acquisition, beta, seed, domain))
            if until_complete and self.batches is not None and self.batches.is_complete(ahead):
                return

    def _require_open_batch(self) -> None:
        """Refuse ``ask(None)`` where there is no batch to fill."""
        if self.batches is None:
            raise InputError("ask(q=None) lets a batch rule decide, and this bandit has none: give q.")
        # What is kept aside may be a complete batch by now, where variances grow as time passes: one more point then.
        if len(self.pending_ids) and self.batches.is_complete(ahead := self._lookahead()):
            raise InputError(
                f"The batch of {len(ahead.pending)} point(s) is complete: tell the {len(self.pending_ids)} pending "
                "one(s), or give q to go on without their rewards."
            )

    def _warn_of_stale_points(self, pending: Pending) -> None:
        """Say once that points pile up which are asked for and never told, as when they are rounded on the way."""
        if not self._warned_of_stale_points and len(self.pending_ids) == len(pending.ids) >= _STALE_POINTS:
            self._warned_of_stale_points = True
            warnings.warn(
                f"What was told is not among the {len(pending.ids)} pending points: they make every ask slower and "
                "keep the bandit away from them. Tell points exactly as they were asked for, forget(x) what was not "
                "evaluated, or ask(remember=False) if nothing is evaluated in parallel.",
                KernelBanditWarning,
                stacklevel=3,
            )

    def _config(self) -> dict[str, Any]:
        """Return all that must agree between a saved state and the bandit that loads it, by name."""
        config: dict[str, Any] = {"algorithm": type(self).__name__, "seed": self.seed}
        config |= {f"candidates.{key}": value for key, value in self.candidates.describe().items()}
        config |= describe_kernel(self._kernel)
        config["regularization"] = self.regularization
        describe_value("acquisition", self._acquisition, config)
        describe_value("batches", self.batches, config)
        describe_value("dictionary", self.dictionary, config)
        describe_value("memory", self.memory, config)
        describe_value("width", self.width, config)
        return config

    def _warn_of_single_precision(self) -> None:
        example = self.candidates.example
        if example.dtype == torch.float64:
            return
        with torch.no_grad():
            scale = float(prior_variance(self._belief.kernel, example).max())
        if self.regularization < _FLOAT32_REGULARIZATION * scale:
            warnings.warn(
                f"regularization={self.regularization:g} is tiny for {example.dtype} (prior variance "
                f"{scale:g}): the confidence widths drown in rounding. Use float64 candidates.",
                TheoryWarning,
                stacklevel=3,
            )


def _check_memory(memory: Memory, regularization: float) -> None:
    """Refuse a memory in which nothing ever counts."""
    now = torch.zeros(1, dtype=torch.float64)
    if not bool(memory.noise(now, 0.0, regularization).isfinite()):
        raise InputError(
            f"{memory!r} drops an observation of noise variance {regularization:g} as soon as it is made: let the "
            "largest variance be above the regularization."
        )

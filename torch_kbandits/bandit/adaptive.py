"""A bandit that adapts to a rate of change nobody knows."""

from typing import Any, Self

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.adaptation.restart_trigger import Prediction
from torch_kbandits.bandit.state import SavedState, describe_value
from torch_kbandits.beliefs import Belief
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.ledger import History, Pending


class AdaptiveBandit(Bandit):
    """A bandit that restarts when a reward says so, or learns which memory to use, or both.

    As for every bandit its state is a function of the configuration, the seed, the history and the points pending: it
    is saved, loaded and replayed like any other.

    Args:
        trigger: when to restart; None for never. The rewards of the round that triggered count after the restart: they
            are the first of the function that is new. What a batch rule held back before is forgotten.
        memories: which memory is in force, block by block; None for the same in all rounds.
        memory: as in ``Bandit``, where ``memories`` is None.
        seed: addresses all randomness.
        pieces: as in ``Bandit``.

    Raises:
        InputError: if an argument does not fit, or neither a trigger nor memories are given.

    Cost: a trigger reads the posterior at the points told. A change of memory computes the posterior of what counts
    afresh: O(u³), or O(n m²) for a dictionary chosen anew, once a block.
    """

    def __init__(
        self,
        *,
        trigger: RestartTrigger | None = None,
        memories: MemoryChoice | None = None,
        memory: Memory | None = None,
        seed: int,
        **pieces: Any,
    ) -> None:
        if trigger is None and memories is None:
            raise InputError("Give a trigger such as ResidualTrigger(), or memories to choose from; or take Bandit.")
        if trigger is not None:
            checks.instance("trigger", trigger, RestartTrigger, "a trigger such as ResidualTrigger()")
        if memories is not None:
            checks.instance("memories", memories, MemoryChoice, "a BanditOverBandit or a DynamicModelSelection")
            if memory is not None:
                raise InputError("Give either memory or memories: one of memories is in force at any time.")
            if trigger is not None and not memories.allows_restarts:
                raise InputError(
                    f"{type(memories).__name__} compares memories on the whole history, which does not say when a "
                    "trigger restarted: give one of the two, or BanditOverBandit."
                )
            memory = memories.choice((), checks.whole_number("seed", seed)).memory
        self.trigger = trigger
        self.memories = memories
        self._summaries: tuple[Any, ...] = ()
        super().__init__(memory=memory, seed=seed, **pieces)
        if memories is not None:
            self._check_memories(memories)

    def _check_memories(self, memories: MemoryChoice) -> None:
        """Refuse memories of which not all go with the other pieces."""
        for each in memories.memories:
            self._pieces.check_memory(each)
        if len({each.needs_time_column for each in memories.memories}) > 1:
            raise InputError(
                "Either all memories are priors on time, such as BackToPrior(0.01), or none: BackToPrior(0.0) is the "
                "one that keeps all."
            )

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart; all of them if there was none."""
        return self._ledger.num_told - self._ledger.num_forgotten

    @property
    def memory_probabilities(self) -> tuple[float, ...]:
        """The probabilities from which the memory in force was drawn, in the order of ``memories``; none without."""
        if self.memories is None:
            return ()
        return self.memories.choice(self._summaries, self.seed).probabilities

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet; see ``Bandit.replay``.

        Restarts and choices of memories are made again. Those made by ``restart`` are not part of a history.
        """
        before = self.memory, self._summaries
        try:
            super().replay(history)
        except BaseException:
            self.memory, self._summaries = before
            raise

    def _learn_round(self, X: Tensor, Y: Tensor, stages: Tensor | None, pending: Pending, clock: Clock) -> None:
        before, belief, known = dict(vars(self)), dict(vars(self._belief)), self._belief
        before["_ahead"] = None  # it may share buffers with what a failed round leaves behind
        try:
            if self.trigger is not None and self.trigger.is_triggered(Y, self._prediction(X, clock)):
                self.restart()
            super()._learn_round(X, Y, stages, pending, clock)
            if self.memories is not None and self.round % self.memories.block_size == 0:
                self._start_block(self.memories)
        except BaseException:
            vars(known).update(belief)
            vars(self).update(before)
            raise

    def _prediction(self, X: Tensor, clock: Clock) -> Prediction:
        """Return what is believed of rewards at points (q, d) at the time at which they were made."""
        belief = self._belief.at(clock.now)
        return Prediction(*belief.moments(X), belief, self.num_since_restart)

    def _start_block(self, memories: MemoryChoice) -> None:
        """Choose the memory of the next block, and bring the posterior to what counts in it."""
        self._ledger = self._ledger.in_one_part
        told = self._ledger.told[0]
        known, self.memory = self.memory, self._memory_after(told)
        if not memories.shares_history:
            self.restart()
        elif self.memory is not known:
            learned = slice(self._ledger.num_forgotten, self._ledger.num_learned)
            self._belief = self._relearned(told.rows(learned), self.memory, self._clock.now, self._ledger.num_learned)
            self._ahead = self._model = None

    def _restored(self, saved: SavedState) -> Belief:
        before = self.memory, self._summaries
        try:
            self._summaries = ()
            self.memory = self._memory_after(saved.history)
            return super()._restored(saved)
        except BaseException:
            self.memory, self._summaries = before
            raise

    def _memory_after(self, history: History) -> Memory | None:
        """Return the memory that is in force once a history was told."""
        if self.memories is None:
            return self.memory
        self._summaries = self.memories.summaries(history, self._summaries, self._believed)
        return self.memories.choice(self._summaries, self.seed).memory

    def _believed(self, history: History, memory: Memory, now: float) -> Belief:
        """Return the posterior of the first part of what was told, under a memory at a time."""
        return self._relearned(history, memory, now, len(history.X))

    def _relearned(self, learned: History, memory: Memory | None, now: float, num_learned: int) -> Belief:
        """Return the posterior of what counts of a history under a memory at a time.

        A dictionary is chosen in passes over twice as many observations each time, so that every pass has the scores of
        a posterior that knows about half of them.

        Args:
            learned: what may count.
            memory: which of it counts.
            now: the time.
            num_learned: how many rewards were learned in the end of it, counted from the first ever.
        """
        belief = self._pieces.prior(memory).at(now)
        if memory is not None and learned.times is not None:
            noise = memory.noise(learned.times, now, belief.regularization.double())
            learned = learned.rows(noise.isfinite())
        number = len(learned.X)
        start, stop = 0, number if self.dictionary is None else 1
        while start < number:
            generator = self._pieces.dictionary_generator(num_learned - number + start)
            belief.learn_history(learned.rows(slice(start, stop)), self.dictionary, generator)
            start, stop = stop, 2 * stop
        return belief

    def _words(self) -> dict[str, Any]:
        words = super()._words() | {"trigger": self.trigger, "memories": self.memories}
        return words if self.memories is None else words | {"memory": None}  # which one is in force is state

    @classmethod
    def _made_of(cls, words: dict[str, Any]) -> Self:
        bandit = cls.__new__(cls)
        AdaptiveBandit.__init__(bandit, **words)
        return bandit

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        if self.memories is not None:  # which one is in force is state
            config = {key: value for key, value in config.items() if key.partition(".")[0] != "memory"}
        describe_value("memories", self.memories, config)
        describe_value("trigger", self.trigger, config)
        return config

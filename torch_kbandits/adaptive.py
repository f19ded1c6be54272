"""A bandit that adapts to a rate of change nobody knows."""

from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.adaptation import BanditOverBandit, RestartTrigger
from torch_kbandits.adaptation.restart_trigger import Prediction
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Belief
from torch_kbandits.clock import Clock
from torch_kbandits.errors import InputError
from torch_kbandits.ledger import History, Pending
from torch_kbandits.memory import Memory
from torch_kbandits.state import SavedState, describe_value


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
        memories: BanditOverBandit | None = None,
        memory: Memory | None = None,
        seed: int,
        **pieces: Any,
    ) -> None:
        if trigger is None and memories is None:
            raise InputError("Give a trigger such as ResidualTrigger(), or memories to choose from; or take Bandit.")
        if trigger is not None:
            checks.instance("trigger", trigger, RestartTrigger, "a trigger such as ResidualTrigger()")
        if memories is not None:
            checks.instance("memories", memories, BanditOverBandit, "a BanditOverBandit")
            if memory is not None:
                raise InputError("Give either memory or memories: one of memories is in force at any time.")
            memory = memories.choice((), seed).memory
        self.trigger = trigger
        self.memories = memories
        super().__init__(memory=memory, seed=seed, **pieces)

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart; all of them if there was none."""
        return self._ledger.num_told - self._ledger.num_forgotten

    @property
    def memory_probabilities(self) -> tuple[float, ...]:
        """The probabilities from which the memory in force was drawn, in the order of ``memories``; none without."""
        if self.memories is None:
            return ()
        return self.memories.choice(self.memories.block_means(self.history), self.seed).probabilities

    def replay(self, history: History) -> None:
        """Tell a recorded history, round by round, to a bandit that was told nothing yet; see ``Bandit.replay``.

        Restarts and choices of memories are made again. Those made by ``restart`` are not part of a history.
        """
        memory = self.memory
        try:
            super().replay(history)
        except BaseException:
            self.memory = memory
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

    def _start_block(self, memories: BanditOverBandit) -> None:
        """Choose the memory of the next block, and bring the posterior to what counts in it."""
        self._ledger = self._ledger.in_one_part
        told = self._ledger.told[0]
        known, self.memory = self.memory, self._memory_after(told)
        if not memories.shares_history:
            self.restart()
        elif self.memory is not known:
            self._belief = self._relearned(told.rows(slice(self._ledger.num_forgotten, self._ledger.num_learned)))
            self._ahead = self._model = None

    def _restored(self, saved: SavedState) -> Belief:
        known, self.memory = self.memory, self._memory_after(saved.history)
        try:
            return super()._restored(saved)
        except BaseException:
            self.memory = known
            raise

    def _memory_after(self, history: History) -> Memory | None:
        """Return the memory that is in force once a history was told."""
        if self.memories is None:
            return self.memory
        return self.memories.choice(self.memories.block_means(history), self.seed).memory

    def _relearned(self, learned: History) -> Belief:
        """Return the posterior of what counts of a history under the memory in force.

        A dictionary is chosen in passes over twice as many observations each time, so that every pass has the scores of
        a posterior that knows about half of them.
        """
        belief = self._prior().at(self._clock.now)
        if self.memory is not None and learned.times is not None:
            noise = self.memory.noise(learned.times, self._clock.now, belief.regularization.double())
            learned = learned.rows(noise.isfinite())
        number = len(learned.X)
        start, stop = 0, number if self.dictionary is None else 1
        while start < number:
            generator = self._pieces.dictionary_generator(self._ledger.num_learned - number + start)
            belief.learn_history(learned.rows(slice(start, stop)), self.dictionary, generator)
            start, stop = stop, 2 * stop
        return belief

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        if self.memories is not None:  # which one is in force is state
            config = {key: value for key, value in config.items() if key.partition(".")[0] != "memory"}
        describe_value("memories", self.memories, config)
        describe_value("trigger", self.trigger, config)
        return config

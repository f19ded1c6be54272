"""One block of the arms in a worker, with the posterior there. It knows nothing of Ray."""

import pickle
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.candidates.sources import ArmSource, TensorArms
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.posteriors.pending import less_taken
from torch_kbandits.posteriors.posterior import Arms, Prior

Array = NDArray[Any]

#: Words of a method: NumPy arrays, which travel with fewer bytes than tensors, and plain values.
Words = dict[str, Any]

#: Ranks drawn at a time to get at those of a shard.
_BLOCK = 2**20


class WorkerLost(Exception):  # noqa: N818 - an event between the two halves of this package, which nobody else sees
    """A worker ended before it replied."""


class Held(NamedTuple):
    """Which posterior a shard holds.

    Attributes:
        learned: the version of what it learned.
        tip: the version with the points that it holds pending; that of what it learned if there are none.
    """

    learned: int
    tip: int


class Message(NamedTuple):
    """What takes a shard to the posterior that is wanted.

    Attributes:
        since: what the shard must hold; what it holds pending beyond that is dropped. None where there is a start.
        start: the prior covariance in the dtype of the arms and the prior, to begin with; None to go on.
        changes: of the arms, in order: methods of ``Arms`` by name, and their words.
        pending: of each point that becomes pending the words of ``Arms.taken``.
        learns_residual: whether variances are those of ``learned_residual``.
        wanted: what the shard holds in the end.
    """

    since: Held | None
    start: tuple[Kernel, Prior] | None
    changes: Sequence[tuple[str, Words]]
    pending: Sequence[Words]
    learns_residual: bool
    wanted: Held


class Reply(NamedTuple):
    """What a shard returns.

    Attributes:
        held: the posterior that it holds now; None for none that is known.
        is_answered: whether it held what the message builds on; if not, nothing was done.
        answer: to the question, if it is answered.
    """

    held: Held | None
    is_answered: bool
    answer: Any = None


class Shard:
    """``Arms`` of one block, what points pending take of them, and other shards that are asked through this one.

    Attributes:
        source: the block.
        arms: at the posterior that it holds.

    Args:
        device: where the block lives.
        num_threads: of torch in this process; None leaves them as they are.
    """

    source: TensorArms
    arms: Arms

    def __init__(self, device: str = "cpu", num_threads: int | None = None) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self._device = torch.device(device)
        self._held: Held | None = None
        self._ranks: tuple[int, Tensor] | None = None
        self._led: tuple[Any, Sequence[Any]] = None, ()

    def load(self, arms: Array | ArmSource, rows: range) -> None:
        """Read the arms of some rows into memory; ``arms`` are these arms, or a source of all.

        Raises:
            ArmsChangedError: if the source has other arms by now.
        """
        block = arms.block(rows.start, rows.stop) if isinstance(arms, ArmSource) else torch.from_numpy(np.array(arms))
        self.source, self._rows = TensorArms(block.to(self._device)), rows

    def lead(self, line: Any, workers: Sequence[Any]) -> None:
        """Lead the workers of the shards that come next, in their order, which a ``Line`` asks."""
        self._led = line, workers

    def reply(self, data: bytes, hands_on: bool) -> bytes:
        """Return replies, in bytes: of this shard, and if it hands the question on of those that it leads.

        That is a list with one ``Reply`` that stands for all if all answered, else with one for each, in their order,
        None for a worker that was lost.

        Args:
            data: a message and a question, in bytes.
            hands_on: whether those that it leads are asked too.
        """
        line, led = self._led
        tickets = [line.ask(worker, data, False) for worker in led] if hands_on else []
        message, question = pickle.loads(data)
        replies: list[Reply | None] = [self._answer(message, question)]
        for ticket in tickets:
            try:
                replies += pickle.loads(line.hear(ticket))
            except WorkerLost:
                replies.append(None)
        answers = [reply.answer for reply in replies if reply is not None and reply.is_answered]
        if len(answers) == len(replies) > 1:
            replies = [Reply(self._held, True, question.merged(answers))]
        return pickle.dumps(replies)

    def _answer(self, message: Message, question: Any) -> Reply:
        """Go to the posterior that a message leads to, and answer a question about it.

        After an error or an interrupt the shard holds nothing that is known, and has to be started again.
        """
        held, since = self._held, message.since
        if message.start is None and (held is None or since not in (held, Held(held.learned, held.learned))):
            return Reply(held, False)
        self._held = None
        if message.start is not None:
            vars(self).pop("arms", None)  # its memory is that of the new ones
            self.arms = Arms.of(self.source.blocks, *message.start, self.source.block(0, 0))
        for name, words in message.changes:
            self.arms = getattr(self.arms, name)(**_with_tensors(words))
        if since is None or since.learned == since.tip:
            self._pending, self._taken = list[Words](), self.arms.untaken
        self._pending += message.pending
        self.learns_residual = message.learns_residual
        answer, self._held = question.asked_of(self), message.wanted
        return Reply(self._held, True, answer)

    @property
    def variance(self) -> Array:
        """Variances of the arms with the points pending, (A,)."""
        for words in self._pending[len(self._taken) :]:
            self._taken = self.arms.taken(self._taken, **_with_tensors(words))
        return less_taken(self.arms.table.variances(self.learns_residual), self._taken)

    def ranks(self, seed: int) -> Tensor:
        """Return what ``tie_rank`` has of these arms under a seed, (A,). Cost: that of all draws up to theirs, once."""
        if self._ranks is None or self._ranks[0] != seed:
            generator = generator_for(seed, 0, "ties")
            for first in range(0, self._rows.start, _BLOCK):
                _ranks(min(_BLOCK, self._rows.start - first), generator)
            self._ranks = seed, _ranks(len(self._rows), generator).to(self._device)
        return self._ranks[1]

    def cpu_seconds(self) -> float:
        """Return the processor time that this process has used so far."""
        return time.process_time()


def _with_tensors(words: Words) -> Words:
    """Return words whose points are tensors: copies, since what Ray hands over may not be written to."""
    return {name: torch.tensor(word) if name in ("point", "points") and word is not None else word
            for name, word in words.items()}  # fmt: skip


def _ranks(number: int, generator: torch.Generator) -> Tensor:
    return torch.rand(number, generator=generator, dtype=torch.float32, device="cpu")

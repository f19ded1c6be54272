"""What is asked of workers, by way of which others, and what becomes of those that are lost."""

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from torch_kbandits.errors import KernelBanditError
from torch_kbandits.integrations.ray.course import Course, Held, Message
from torch_kbandits.integrations.ray.nodes import Line, WorkerLost
from torch_kbandits.integrations.ray.questions import Question
from torch_kbandits.integrations.ray.shard import Reply

#: So often a worker is tried in one call: once, once more where it held something else, and so on where it was lost.
_ATTEMPTS = 5

#: From so many shards on, some lead others. A second hop takes as long as three calls, which 9 shards save, and only
#: where each shard has a processor of its own.
_LEAST_LED = 16

#: Bytes up to which a message goes with each call, and from hand to hand; larger ones go into a store once.
_SMALL = 2**16


class ShardLostError(KernelBanditError, RuntimeError):
    """A worker is gone and no other could take its place; the message says which arms it had, and why.

    The bandit is as it was before the call, and the next call tries again.
    """


class Workers(ABC):
    """One worker for each shard, and which posterior each holds, as far as is known.

    What a worker says that it holds counts: what is remembered here only saves asking. So calls may be interrupted, and
    bandits may share the workers; they then start each other's tables anew whenever they take turns.

    Many shards are asked in groups: the first of each hands the question on to the others, and returns the answer of
    all. So √N calls are made here and √N by each of the first, one after another, in place of N here. There are two
    levels: at 64 shards a third would save nothing.

    Args:
        shards: the rows of each shard, in order.
        line: how bytes get to the workers.
        group_size: shards in a group; None for as many as there are groups, and for one if there are few shards.
    """

    def __init__(self, shards: Sequence[range], line: Line, group_size: int | None = None) -> None:
        self.shards, self.line = tuple(shards), line
        number = len(self.shards)
        size = group_size or (math.isqrt(number - 1) + 1 if number >= _LEAST_LED else 1)
        self.groups = [range(first, min(first + size, number)) for first in range(0, number, size)]
        self._held: dict[int, Held | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same workers: copies of a bandit share them."""
        return self

    def gather(self, course: Course, question: Question) -> Any:
        """Lead all shards to a posterior, and return their answer.

        Workers that were lost are replaced, and their tables built from what was learned.

        Raises:
            ShardLostError: if that fails.
            KernelBanditError: what a shard raised, which then is started anew by the next call.

        Cost: one message to each shard, and two where one was lost or held something unexpected.
        """
        for number in self.absent():
            self._held.pop(number, None)
        missing = list(range(len(self.shards)))
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []
        for _ in range(_ATTEMPTS):
            self._start([number for number in missing if number not in self._held])
            holders: dict[Held | None, list[int]] = {}
            for number in missing:
                holders.setdefault(self._held[number], []).append(number)
            sent = [
                each for held, numbers in holders.items() for each in self.send(course.message(held), numbers, question)
            ]
            missing = []
            for numbers, ticket in sent:
                try:
                    replies = self.receive(ticket)
                except WorkerLost:
                    self._held.pop(numbers[0], None)
                    missing += numbers
                except Exception as error:
                    errors.append(error)
                else:
                    missing += self._heard(numbers, replies, answers)
            if errors:
                raise errors[0]
            if not missing:
                return question.merged([answers[number] for number in sorted(answers)])
        lost = [self.named(number) for number in sorted(missing)]
        raise ShardLostError(
            f"No answer from {', '.join(lost)} in {_ATTEMPTS} attempts: the worker ended each time. Ray's logs say "
            "why; too little memory is the most common reason, and more shards need less each."
        )

    def _heard(self, numbers: Sequence[int], replies: list[Reply | None], answers: dict[int, Any]) -> list[int]:
        """Put down what some shards replied, under the first for whom it stands; return those yet to answer."""
        missing = []
        if len(replies) == 1 and replies[0] is not None:
            self._held.update(dict.fromkeys(numbers, replies[0].held))
        for number, reply in zip(numbers, replies, strict=False):
            if reply is None:
                self._held.pop(number, None)
            else:
                self._held[number] = reply.held
            if reply is not None and reply.is_answered:
                answers[number] = reply.answer
            else:
                missing.append(number)
        return missing

    def send(self, message: Message, numbers: Sequence[int], question: Question) -> list[tuple[Sequence[int], Any]]:
        """Send some shards a message with a question; return what stands for the replies of which of them.

        If these are all shards, what is small goes by way of the first of each group.
        """
        data: Any = self.packed(message, question)
        if len(data) > _SMALL:
            data = self.stored(data)
        elif len(numbers) == len(self.shards) and question.is_small:
            return [(group, self.line.ask(self.worker(group[0]), data, True)) for group in self.groups]
        return [((number,), self.line.ask(self.worker(number), data, False)) for number in numbers]

    def receive(self, ticket: Any) -> list[Reply | None]:
        """Return replies, or raise what a shard raised; see ``Node.reply``.

        Raises:
            WorkerLost: if the worker that was asked ended before.
        """
        return pickle.loads(self.line.hear(ticket))

    def named(self, number: int) -> str:
        """Return what messages call a shard."""
        rows = self.shards[number]
        return f"shard {number} of {len(self.shards)} (arms {rows.start} to {rows.stop - 1})"

    def _start(self, numbers: list[int]) -> None:
        if numbers:
            self.start(numbers)
            for group in self.groups:
                if len(group) > 1 and not set(group).isdisjoint(numbers):
                    self.introduce(group)
            self._held.update(dict.fromkeys(numbers))

    @abstractmethod
    def close(self) -> None:
        """End all workers."""

    @abstractmethod
    def absent(self) -> list[int]:
        """Return the shards of which it is known, before anything is sent, that they have no worker."""

    @abstractmethod
    def start(self, numbers: list[int]) -> None:
        """Give these shards new workers that have read their arms.

        Raises:
            ShardLostError: if one cannot be had.
        """

    @abstractmethod
    def worker(self, number: int) -> Any:
        """Return the worker of a shard, as ``line`` knows it."""

    @abstractmethod
    def introduce(self, group: Sequence[int]) -> None:
        """Have the first of a group lead the others from now on, unless it was lost."""

    @abstractmethod
    def packed(self, message: Message, question: Question) -> bytes:
        """Return both in bytes."""

    def stored(self, data: bytes) -> Any:
        """Return what stands for many bytes that several workers are sent."""
        return data

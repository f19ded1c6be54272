"""What is asked of workers, and what becomes of those that are lost."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from torch_kbandits.errors import KernelBanditError
from torch_kbandits.integrations.ray.course import Course, Held, Message
from torch_kbandits.integrations.ray.questions import Question
from torch_kbandits.integrations.ray.shard import Reply

#: So often a worker is tried in one call: once, once more where it held something else, and so on where it was lost.
_ATTEMPTS = 4


class ShardLostError(KernelBanditError, RuntimeError):
    """A worker is gone and no other could take its place; the message says which arms it had, and why.

    The bandit is as it was before the call, and the next call tries again.
    """


class WorkerLost(Exception):  # noqa: N818 - an event between the two halves of this package, which nobody else sees
    """A worker ended before it replied."""


class Workers(ABC):
    """One worker for each shard, and which posterior each holds, as far as is known.

    What a worker says that it holds counts: what is remembered here only saves asking. So calls may be interrupted, and
    bandits may share the workers; they then start each other's tables anew whenever they take turns.

    Args:
        shards: the rows of each shard, in order.
    """

    def __init__(self, shards: Sequence[range]) -> None:
        self.shards = tuple(shards)
        self._held: dict[int, Held | None] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same workers: copies of a bandit share them."""
        return self

    def gather(self, course: Course, question: Question) -> list[Any]:
        """Lead all shards to a posterior, and return what each answers, in their order.

        Workers that were lost are replaced, and their tables built from what was learned.

        Raises:
            ShardLostError: if that fails.
            KernelBanditError: what a shard raised, which then is started anew by the next call.

        Cost: one message to each shard, and two where one was lost or held something unexpected.
        """
        for number in self.absent():
            self._held.pop(number, None)
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []
        for _ in range(_ATTEMPTS):
            missing = [number for number in range(len(self.shards)) if number not in answers]
            self._start([number for number in missing if number not in self._held])
            messages: dict[Held | None, Message] = {}
            for number in missing:
                held = self._held[number]
                if held not in messages:
                    messages[held] = course.message(held)
            tickets = self.send({number: messages[self._held[number]] for number in missing}, question)
            for number, ticket in tickets.items():
                try:
                    reply = self.receive(ticket)
                except WorkerLost:
                    self._held.pop(number, None)
                except Exception as error:
                    errors.append(error)
                else:
                    self._held[number] = reply.held
                    if reply.is_answered:
                        answers[number] = reply.answer
            if errors:
                raise errors[0]
            if len(answers) == len(self.shards):
                return [answers[number] for number in range(len(self.shards))]
        missing = [self.named(number) for number in range(len(self.shards)) if number not in answers]
        raise ShardLostError(
            f"No answer from {', '.join(missing)} in {_ATTEMPTS} attempts: the worker ended each time. Ray's logs say "
            "why; too little memory is the most common reason, and more shards need less each."
        )

    def named(self, number: int) -> str:
        """Return what messages call a shard."""
        rows = self.shards[number]
        return f"shard {number} of {len(self.shards)} (arms {rows.start} to {rows.stop - 1})"

    def _start(self, numbers: list[int]) -> None:
        if numbers:
            self.start(numbers)
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
    def send(self, messages: dict[int, Message], question: Question) -> dict[int, Any]:
        """Send each shard its message with the question; return what stands for the replies."""

    @abstractmethod
    def receive(self, ticket: Any) -> Reply:
        """Return a reply, or raise what the shard raised.

        Raises:
            WorkerLost: if the worker ended before.
        """

"""A shard that is asked in bytes, and hands the question on to shards that it leads."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch_kbandits.integrations.ray.shard import Reply, Shard


class WorkerLost(Exception):  # noqa: N818 - an event between the two halves of this package, which nobody else sees
    """A worker ended before it replied."""


class Line(ABC):
    """How bytes get to a worker and back. Workers that lead others are sent it, so it holds nothing large."""

    @abstractmethod
    def ask(self, worker: Any, data: Any, hands_on: bool) -> Any:
        """Have a worker reply to ``data``, see ``Node.reply``, without waiting; return what stands for its reply."""

    @abstractmethod
    def hear(self, ticket: Any) -> bytes:
        """Return a reply, or raise what the shard raised.

        Raises:
            WorkerLost: if the worker ended before.
        """


class Node(Shard):
    """A shard, and those that it leads, which are asked through it and whose answers become one here."""

    _followers: Sequence[Any] = ()

    def lead(self, line: Line, followers: Sequence[Any]) -> None:
        """Lead the workers of the shards that come next, in their order."""
        self._line, self._followers = line, followers

    def reply(self, data: bytes, hands_on: bool) -> bytes:
        """Return replies, in bytes: of this shard, and if it hands the question on of those that it leads.

        That is a list with one ``Reply`` that stands for all if all answered, else with one for each, in their order,
        None for a worker that was lost.

        Args:
            data: a message and a question, in bytes.
            hands_on: whether those that it leads are asked too.
        """
        tickets = [self._line.ask(worker, data, False) for worker in self._followers] if hands_on else []
        message, question = pickle.loads(data)
        replies: list[Reply | None] = [self.answer(message, question)]
        for ticket in tickets:
            try:
                replies += pickle.loads(self._line.hear(ticket))
            except WorkerLost:
                replies.append(None)
        answers = [reply.answer for reply in replies if reply is not None and reply.is_answered]
        if len(answers) == len(replies) > 1:
            replies = [Reply(self.held, True, question.merged(answers))]
        return pickle.dumps(replies)

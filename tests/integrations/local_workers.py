"""Shards in this process, each behind a wall of bytes, that can be lost and can fail as those of Ray can."""

from itertools import pairwise

from ray import cloudpickle

from torch_kbandits.integrations.ray import ShardedArms, ShardLostError
from torch_kbandits.integrations.ray.nodes import Line, Node, WorkerLost
from torch_kbandits.integrations.ray.workers import Workers


class LocalCalls(Line):
    """Calls that are made when their reply is heard.

    Attributes:
        living: the worker of each shard, None for one that was lost.
        asked: the shards whose workers were asked, in order.
        dies_on_receipt: shards whose worker ends with the next message.
        dies_with_reply: shards whose worker ends once it has done what the next message says.
        fails_on_receipt: what shards raise on the next message, by number.
    """

    def __init__(self):
        self.living, self.asked = {}, []
        self.dies_on_receipt, self.dies_with_reply, self.fails_on_receipt = set(), set(), {}

    def ask(self, worker, data, hands_on):
        self.asked.append(worker[0])
        return worker, data, hands_on

    def hear(self, ticket):
        (number, node), data, hands_on = ticket
        if number in self.dies_on_receipt:
            self.dies_on_receipt.remove(number)
            self.living[number] = None
        if node is None or self.living.get(number) is not node:
            raise WorkerLost
        if number in self.fails_on_receipt:
            raise self.fails_on_receipt.pop(number)
        reply = node.reply(data, hands_on)
        if number in self.dies_with_reply:
            self.dies_with_reply.remove(number)
            self.living[number] = None
            raise WorkerLost
        return reply


class LocalWorkers(Workers):
    """Workers without Ray.

    Attributes:
        starts: how many unique played points each table was built from, with the number of its shard, in order.
        sent: bytes of each message, for each shard.
        refuses: shards for which no worker can be had.
    """

    def __init__(self, source, shards, group_size=None):
        super().__init__(shards, LocalCalls(), group_size)
        self.source = source
        self.starts, self.sent, self.refuses = [], [], set()

    @property
    def living(self):
        return self.line.living

    def close(self):
        self.living.clear()

    def absent(self):
        return [number for number in range(len(self.shards)) if number not in self.living]

    def start(self, numbers):
        for number in numbers:
            if number in self.refuses:
                raise ShardLostError(f"No worker came up for {self.named(number)}.")
            self.living[number] = Node()
            rows = self.shards[number]
            tensor = self.source.tensor
            self.living[number].load(self.source if tensor is None else tensor[rows.start : rows.stop].numpy(), rows)

    def worker(self, number):
        return number, self.living[number]

    def introduce(self, group):
        first, *others = map(self.worker, group)
        if first[1] is not None:
            first[1].lead(self.line, others)

    def packed(self, message, question):
        return cloudpickle.dumps((message, question))

    def send(self, message, numbers, question):
        self.sent += [len(self.packed(message, question))] * len(numbers)
        if message.start is not None:
            self.starts += [(number, len(message.start.points)) for number in numbers]
        return super().send(message, numbers, question)

    def lose(self, number):
        """End a worker, without anybody being told."""
        self.living[number] = None


def sharded(arms, num_shards, borders=None, group_size=None):
    """Arms over workers in this process; with borders (num_shards - 1,) the shards have any sizes.

    Seven or more are asked in groups of three.
    """
    result = ShardedArms(arms, num_shards=num_shards)
    shards = result.workers.shards
    if borders is not None:
        ends = [0, *borders, len(result.source)]
        shards = [range(*pair) for pair in pairwise(ends)]
    result.workers = LocalWorkers(result.source, shards, group_size or (3 if num_shards >= 7 else 1))
    return result

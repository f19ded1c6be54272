"""Shards in this process, each behind a wall of bytes, that can be lost and can fail as those of Ray can."""

import pickle
from itertools import pairwise

from ray import cloudpickle

from torch_kbandits.integrations.ray import ShardedArms, ShardLostError
from torch_kbandits.integrations.ray.shard import Shard
from torch_kbandits.integrations.ray.workers import WorkerLost, Workers


class LocalWorkers(Workers):
    """Workers without Ray.

    Attributes:
        starts: how many unique played points each table was built from, with the number of its shard, in order.
        sent: bytes of each message.
        refuses: shards for which no worker can be had.
        dies_on_receipt: shards whose worker ends with the next message.
        fails_on_receipt: what shards raise on the next message, by number.
    """

    def __init__(self, source, shards):
        super().__init__(shards)
        self.source, self.living = source, {}
        self.starts, self.sent = [], []
        self.refuses, self.dies_on_receipt, self.fails_on_receipt = set(), set(), {}

    def close(self):
        self.living = {}

    def absent(self):
        return [number for number in range(len(self.shards)) if number not in self.living]

    def start(self, numbers):
        for number in numbers:
            if number in self.refuses:
                raise ShardLostError(f"No worker came up for {self.named(number)}.")
            self.living[number] = Shard()
            rows = self.shards[number]
            tensor = self.source.tensor
            self.living[number].load(self.source if tensor is None else tensor[rows.start : rows.stop].numpy(), rows)

    def send(self, messages, question):
        tickets = {}
        for number, message in messages.items():
            data = cloudpickle.dumps((message, question))
            self.sent.append(len(data))
            if message.start is not None:
                self.starts.append((number, len(message.start.points)))
            tickets[number] = number, data
        return tickets

    def receive(self, ticket):
        number, data = ticket
        if number in self.dies_on_receipt:
            self.dies_on_receipt.remove(number)
            self.lose(number)
        if self.living[number] is None:
            raise WorkerLost
        if number in self.fails_on_receipt:
            raise self.fails_on_receipt.pop(number)
        return pickle.loads(pickle.dumps(self.living[number].answer(*pickle.loads(data))))

    def lose(self, number):
        """End a worker, without anybody being told."""
        self.living[number] = None


def sharded(arms, num_shards, borders=None):
    """Arms over workers in this process; with borders (num_shards - 1,) the shards have any sizes."""
    result = ShardedArms(arms, num_shards=num_shards)
    shards = result.workers.shards
    if borders is not None:
        ends = [0, *borders, len(result.source)]
        shards = [range(*pair) for pair in pairwise(ends)]
    result.workers = LocalWorkers(result.source, shards)
    return result

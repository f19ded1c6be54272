"""Shards in this process, each behind a wall of bytes, that can be lost and can fail as those of Ray can."""

import pickle
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import torch
from problems import data, matern, reward
from ray import cloudpickle
from ray.exceptions import RayActorError

from torch_kbandits import algorithms
from torch_kbandits.integrations.ray import ShardedArms, ShardLostError
from torch_kbandits.integrations.ray.shard import Shard
from torch_kbandits.integrations.ray.workers import Workers


class LocalWorkers(Workers):
    """Workers without Ray, whose calls are made when their reply is heard.

    Attributes:
        living: the worker of each shard, None for one that was lost.
        starts: shards that were started with what is known, in order.
        sent: bytes of each message, for each shard.
        refuses: shards for which no worker can be had.
        device: where shards live.
        dies_on_receipt: shards whose worker ends with the next message.
        dies_with_reply: shards whose worker ends once it has done what the next message says.
        fails_on_receipt: what shards raise on the next message, by number.
    """

    def __init__(self, source, shards):
        super().__init__(source, shards, 1.0, 0.0, 120.0)
        self.living, self.starts, self.sent, self.refuses, self.device = {}, [], [], set(), "cpu"
        self.dies_on_receipt, self.dies_with_reply, self.fails_on_receipt = set(), set(), {}

    def close(self, numbers=None):
        self.living.clear()
        self.actors.clear()

    def started(self):
        new = [number for number in range(len(self.shards)) if number not in self.living or number not in self.actors]
        for number in new:
            if number in self.refuses:
                raise ShardLostError(f"No worker came up for {self.named(number)}.")
            self.living[number] = shard = Shard(self.device)
            shard.load(*self.block(number))
            self.actors[number] = SimpleNamespace(reply=SimpleNamespace(remote=partial(self.call, number, shard)))
        return new

    def call(self, number, shard, data):
        self.sent.append(len(data))
        if pickle.loads(data)[0].start is not None:
            self.starts.append(number)
        return number, shard, data

    def receive(self, ticket):
        number, shard, data = ticket
        if number in self.dies_on_receipt:
            self.dies_on_receipt.remove(number)
            self.lose(number)
        if self.living.get(number) is not shard:
            raise RayActorError
        if number in self.fails_on_receipt:
            raise self.fails_on_receipt.pop(number)
        reply = pickle.loads(pickle.dumps(shard.reply(data)))
        if number in self.dies_with_reply:
            self.dies_with_reply.remove(number)
            self.lose(number)
            raise RayActorError
        return reply

    def packed(self, message, question):
        return cloudpickle.dumps((message, question))

    def lose(self, number):
        """End a worker, without anybody being told."""
        self.living[number] = None


def sharded(arms, num_shards, borders=None):
    """Arms over workers in this process, cut at borders (num_shards - 1,)."""
    result = ShardedArms(arms, num_shards=num_shards)
    shards = result.workers.shards
    if borders is not None:
        ends = [0, *borders, len(result.source)]
        shards = [range(*pair) for pair in pairwise(ends)]
    result.workers = LocalWorkers(result.source, shards)
    return result


LAMBDA = 0.02

#: Where 160 arms are cut: shards of very different sizes.
CUTS = {1: None, 2: [23], 3: [7, 90], 7: [1, 3, 40, 41, 99, 150]}


def make(candidates, name="bkb", **settings):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "seed": 0}
    if name not in ("gp-ei", "gp-pi", "random") and "prior" not in settings:
        words["beta"] = 2.0
    return algorithms.build(name, candidates=candidates, **(words | settings))


def some_arms(count=160, d=2):
    """Arms of which the last third repeats others, in other shards."""
    arms = data(count - count // 3, d)[0]
    return torch.cat([arms, arms[torch.randperm(len(arms))[: count // 3]]])


def noisy(X, number):
    return reward(X) + 0.2 * torch.randn(len(X), generator=torch.Generator().manual_seed(number), dtype=X.dtype)


def rounds(bandits, count, first=0):
    """Play with several bandits at once: single points, batches, late and lost ones, strangers, rewards in pairs."""
    for number in range(first, first + count):
        by_rule = bandits[0].batches is not None and len(bandits[0].pending) == 0
        asked = [bandit.ask(None if by_rule else 1 + number % 3) for bandit in bandits]
        for bandit, X in zip(bandits, asked, strict=True):
            assert torch.equal(X, asked[0]), number
            if number % 11 == 5:
                bandit.forget(X[:1])
                X = X[1:]
            elif number % 11 == 7:
                bandit.tell(torch.tensor([[0.3, 0.1 * (number % 5)]], dtype=X.dtype), 0.4)
            if number % 4 != 2 and len(bandit.pending):  # else told a round later
                X = bandit.pending
                bandit.tell(X, noisy(X, number))


def assert_alike(bandits):
    """The next five choices, each of which knows that those before it are pending, and the dictionaries agree."""
    assert torch.equal(*(bandit.ask(5, remember=False) for bandit in bandits))
    assert torch.equal(*(bandit.inducing_points for bandit in bandits))

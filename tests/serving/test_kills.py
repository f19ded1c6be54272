"""Servers that are killed under load lose nothing that was answered, and do nothing twice."""

import random
import signal
import time

import pytest
import torch
from processes import Client, Nursery, end, free_port, insist
from served import BANDITS, saved

from torch_kbandits.serving import Service


def killed_under_load(folder, *, kills, clients, compact_after, seed=0):
    """Kill a server so often while clients insist, then look that what is left is what they were answered."""
    path, port, random_ = saved(BANDITS["bkb"], folder), free_port(), random.Random(seed)
    nursery = Nursery(path, port, compact_after=compact_after)
    crowd = [Client(port, number) for number in range(clients)]
    pid = nursery.start()
    insist(port, "GET", "/ready")
    for client in crowd:
        client.start()
    for _ in range(kills):
        time.sleep(random_.uniform(0.0, 0.15))
        end(pid, signal.SIGKILL)
        pid = nursery.start()
        insist(port, "GET", "/ready")
    for client in crowd:
        client.stopping.set()
    for client in crowd:
        client.join()
    end(pid, signal.SIGKILL)
    nursery.close()
    assert [client.error for client in crowd] == [None] * clients
    return path, crowd


def audit(path, crowd):
    """Each answer that somebody got is there once, and nothing else is."""
    served = Service.open(path)
    asked = {key: answer for client in crowd for key, answer in client.asked.items()}
    told = {number: reward for client in crowd for number, reward in client.told.items()}
    ids = [number for answer in asked.values() for number in answer["ids"]]
    assert sorted(ids) == list(range(served.bandit.num_asked))
    assert sorted(told) == sorted(ids)
    assert served.bandit.pending_ids == ()
    history = served.bandit.history
    assert sorted(history.Y.tolist()) == sorted(told.values())
    points = {
        told[number]: action
        for answer in asked.values()
        for number, action in zip(answer["ids"], answer["actions"], strict=True)
    }
    assert torch.equal(history.X, history.X.new_tensor([points[reward] for reward in history.Y.tolist()]))
    served.close()
    return len(told)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("compact_after", [3, 1000])
def test_a_few_kills(compact_after, tmp_path):
    path, crowd = killed_under_load(tmp_path, kills=3, clients=2, compact_after=compact_after)
    assert audit(path, crowd) > 5


@pytest.mark.slow
@pytest.mark.parametrize("compact_after", [4, 25, 1000])
def test_a_hundred_kills(compact_after, tmp_path):
    path, crowd = killed_under_load(tmp_path, kills=100, clients=4, compact_after=compact_after, seed=compact_after)
    assert audit(path, crowd) > 100


def test_who_is_asked_to_stop_saves_the_bandit_whole(tmp_path):
    path, port = saved(BANDITS["bkb"], tmp_path), free_port()
    nursery = Nursery(path, port)
    pid = nursery.start()
    asked = insist(port, "POST", "/ask", {"q": 2, "key": "a"})
    insist(port, "POST", "/tell", {"ids": asked["ids"][:1], "y": 1.5})
    end(pid, signal.SIGTERM)
    nursery.close()
    served = Service.open(path)
    assert served.journal.position == served._changes == 0
    assert served.bandit.history.Y.tolist() == [1.5]
    assert served.answer("ask", {"q": 2, "key": "a"}) == asked
    served.close()

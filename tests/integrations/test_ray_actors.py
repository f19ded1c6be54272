"""Sharded arms in a real local Ray with two CPUs: what the shards in one process cannot show."""

import gc
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from local_workers import assert_alike, make, rounds
from problems import data, matern

from torch_kbandits import Arms, Bandit, ConstantWidth, InputError
from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.integrations.ray import ShardedArms, ShardLostError
from torch_kbandits.memory import SlidingWindow

pytestmark = pytest.mark.slow

# Workers cannot import test modules.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def start_ray():
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)


@pytest.fixture
def _ray():
    """One Ray for all tests; tests that end it leave none behind, and the next starts another."""
    if not ray.is_initialized():
        start_ray()


@pytest.fixture(scope="module", autouse=True)
def _ray_ends():
    yield
    ray.shutdown()


WORDS = {"kernel": matern(0.4), "regularization": 0.02, "width": ConstantWidth(1.0), "seed": 0}


def pair(arms, name="bkb", **settings):
    candidates = ShardedArms(arms, num_shards=2)
    words = {"resampling": "coupled"} | settings if name == "bkb" else settings
    whole = arms if isinstance(arms, torch.Tensor) else candidates.source
    return [make(each, name, **words) for each in (Arms(whole), candidates)], candidates


def kill(candidates, number):
    ray.kill(candidates.workers.actors[number])


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize(
    ("name", "memory"),
    [("bkb", None), ("bkb", SlidingWindow(20)), ("gp-pi", None), ("random", None)],
    ids=["bkb", "window", "gp-pi", "random"],
)
def test_rounds_with_workers_killed_on_the_way(name, memory):
    arms, settings = data(2000 if name == "bkb" else 700, 2, 1)[0], {} if memory is None else {"memory": memory}
    bandits, candidates = pair(torch.cat([arms, arms[::7]]), name, **settings)
    for first, killed in [(0, ()), (20, (1,)), (40, (0, 1))]:
        for number in killed:
            kill(candidates, number)
        rounds(bandits, 20 if name == "bkb" else 10, first)
    candidates.close()


@pytest.mark.usefixtures("_ray")
def test_a_rebuild_that_fails_says_why_and_a_later_one_goes_on(tmp_path):
    arms, path = data(500, 2, 1)[0], tmp_path / "arms.npy"
    np.save(path, arms.numpy())
    candidates = ShardedArms(np.load(path, mmap_mode="r"), num_shards=2)
    bandits = [make(Arms(arms)), make(candidates)]
    rounds(bandits, 8)
    ours = bandits[1]
    before, stamp = ours.state_dict(), path.stat()
    kill(candidates, 0)
    path.rename(tmp_path / "gone.npy")
    with pytest.raises(ShardLostError, match=r"shard 0 of 2 \(arms 0 to 249\) could not read its arms.*call again"):
        ours.ask()
    after = ours.state_dict()
    assert all(torch.equal(before["history"][key], after["history"][key]) for key in ("X", "Y", "rounds"))
    assert str(before["pending"]) == str(after["pending"])
    (tmp_path / "gone.npy").rename(path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    rounds(bandits, 8, 8)
    assert_alike(bandits)
    candidates.close()


@pytest.mark.usefixtures("_ray")
def test_an_error_of_the_workers():
    arms = data(400, 2, 1)[0]
    candidates = ShardedArms(arms, num_shards=2)
    bandits = [make(Arms(arms)), make(candidates)]
    rounds(bandits, 5)
    for rule, kind, message in (
        (Failing(), ZeroDivisionError, "division"),
        (Locked(), InputError, "rule cannot be sent to another process"),
    ):
        with pytest.raises(kind, match=message):
            Bandit(candidates=candidates, acquisition=rule, **WORDS).ask()
    rounds(bandits, 5, 5)
    assert_alike(bandits)
    candidates.close()


class Failing(ThompsonRule):
    def on_arms(self, posterior, beta, seed):
        return 1 / 0


class Locked(ThompsonRule):
    def __post_init__(self):
        object.__setattr__(self, "lock", threading.Lock())


@pytest.mark.usefixtures("_ray")
def test_workers_end_when_nobody_has_them():
    candidates = ShardedArms(data(50, 2)[0], num_shards=2)
    bandit = make(candidates)
    bandit.ask()
    processes = ray.get([actor.__ray_call__.remote(process) for actor in candidates.workers.actors.values()])
    assert all(map(is_there, processes))
    del bandit, candidates
    gc.collect()
    until = time.monotonic() + 20
    while any(map(is_there, processes)):
        assert time.monotonic() < until
        time.sleep(0.1)


def process(shard):
    return os.getpid()


def is_there(number):
    """Say whether a process lives; one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("_ray")
def test_workers_for_which_there_is_no_room():
    taken = ShardedArms(data(50, 2)[0], num_shards=2)
    make(taken).ask()
    arms = data(60, 2)[0]
    late = ShardedArms(arms, num_shards=2, start_timeout=3.0)
    with pytest.raises(ShardLostError, match=r"No worker came up for shard . of 2 .* of which 0 and 0 are free"):
        make(late)
    taken.close()
    late = ShardedArms(arms, num_shards=2)
    assert torch.equal(make(late).ask(), make(Arms(arms)).ask())
    late.close()


def test_the_block_of_the_page(tmp_path, monkeypatch):
    """The quick tests of the documentation leave it out, since it starts a Ray."""
    ray.shutdown()
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "integrations" / "ray.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "ray.md", "exec"), {"__name__": "__docs__"})
    assert not ray.is_initialized()


def test_without_a_ray_one_is_started_and_after_its_end_another():
    ray.shutdown()
    arms = data(200, 2, 1)[0]
    candidates = ShardedArms(arms, num_shards=2)
    bandits = [make(Arms(arms)), make(candidates)]
    rounds(bandits, 5)
    ray.shutdown()
    start_ray()
    rounds(bandits, 5, 5)
    assert_alike(bandits)
    workers = candidates.workers
    assert ray.get([workers.actors[number].__ray_call__.remote(threads) for number in (0, 1)]) == [1, 1]
    ray.shutdown()


def threads(shard):
    return torch.get_num_threads()

"""Rounds that a bandit plays itself are those of ask and tell."""

import pytest
import torch
from problems import rbf
from product import ARMS, Loop, drawn, reasons, reward

from torch_kbandits import InputError, algorithms

pytestmark = [
    pytest.mark.filterwarnings("ignore:Negative variance values"),
    pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning"),
]


def bandit(**words):
    return algorithms.IGPUCB(candidates=ARMS, kernel=rbf(), regularization=0.1, beta=2.0, seed=0, **words)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("seed", [300, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(301, 320))])
def test_a_run_is_so_many_asks_and_tells(seed, tmp_path):
    combinations = [it for it in drawn(seed, 10) if not reasons(it)]
    assert combinations
    for it in combinations:
        one, other = Loop(it, it.bandit(tmp_path)), Loop(it, it.bandit(tmp_path))
        asked = []
        for _ in range(5):
            asked.append(one.ask())
            one.tell(asked[-1])

        def offered(number, loop=other):
            loop.turn += 1
            return loop.words()

        def pull(x, loop=other):
            return {"y": reward(x)} | loop.measured(x)

        played = other.bandit.run(pull, 5, offered=offered)
        if isinstance(played, list):
            assert played == [x for each in asked for x in each], it
        else:
            assert torch.equal(played, torch.cat(asked)), it
        one.compare(other)
        for name in ("X", "Y", "rounds", "times", "told_at"):
            ours, theirs = (getattr(each.bandit.history, name) for each in (one, other))
            assert ours is theirs is None or torch.equal(ours, theirs), (it, name)
        assert (
            one.bandit.ask(return_ids=True, **one.words()).ids == other.bandit.ask(return_ids=True, **one.words()).ids
        )


def test_a_failed_pull_leaves_the_rounds_before_it():
    played, calm = bandit(), bandit()
    rewards = iter([0.3, 0.1])
    with pytest.raises(StopIteration):
        played.run(lambda x: next(rewards), 5)
    told = iter([0.3, 0.1])
    calm.run(lambda x: next(told), 2)
    assert torch.equal(played.history.Y, calm.history.Y)
    assert len(played.pending) == 0
    assert torch.equal(played.ask(), calm.ask())


@pytest.mark.parametrize("told", [float("nan"), "one", {"reward": 1.0}, {"x": ARMS[:1], "y": 1.0}])
def test_what_no_tell_takes_is_refused(told):
    played = bandit()
    with pytest.raises(InputError):
        played.run(lambda x: told, 1)
    assert (played.round, len(played.pending)) == (0, 0)


def test_what_a_round_does_not_bring_is_refused():
    with pytest.raises(InputError, match="time, context, candidates"):
        bandit().run(lambda x: 0.0, 1, offered=lambda number: {"context_": 1.0})
    with pytest.raises(InputError, match="no memory"):
        bandit().run(lambda x: 0.0, 1, offered=lambda number: {"time": 1.0})


def test_who_pulls_may_look_and_not_ask():
    played = bandit()
    seen = []

    def pull(x):
        seen.append(played.round)
        return x.sum()

    played.run(pull, 3)
    assert seen == [0, 1, 2]
    with pytest.raises(InputError, match="must not ask"):
        played.run(lambda x: played.ask().sum(), 1)


def test_what_is_asked_for_may_be_changed_by_who_pulls():
    played, calm = bandit(), bandit()

    def pull(x):
        y = x.sum().clone()
        x.zero_()
        return y

    played.run(pull, 4)
    calm.run(lambda x: x.sum(), 4)
    assert torch.equal(played.history.X, calm.history.X)


@pytest.mark.parametrize("q", [1, 3])
def test_what_was_asked_for_may_be_changed_by_who_asked(q):
    played = bandit()
    for _ in range(2):
        x = played.ask(q)
        kept = x.clone()
        before = played.pending[:-q]
        x.zero_()
        assert torch.equal(played.pending, torch.cat([before, kept]))
    played.tell(kept, kept.sum(-1))
    assert torch.equal(played.history.X, kept)


def test_plays_may_fail_and_have_outcomes():
    played = bandit(outcomes=["cost"])
    played.run(lambda x: {"failed": True} if played.round == 1 else {"y": 1.0, "outcomes": {"cost": 2.0}}, 3)
    assert played.history.lost.tolist() == [False, True, False]
    assert played.history.outcomes[:, 0].tolist()[::2] == [2.0, 2.0]

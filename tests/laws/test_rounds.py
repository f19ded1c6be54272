"""Rounds by ask and tell, and by ``run``, are the same, whoever looks or interrupts."""

from copy import deepcopy
from itertools import count

import pytest
import torch
from interrupts import Interrupt, swaps
from kinds import ARMS, KINDS, known, make, points, same
from problems import difference

from torch_kbandits import InputError

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")


def play(kind, bandit, first, rounds):
    for number in range(first, first + rounds):
        words = kind.words(number)
        x = bandit.ask(**words)
        bandit.tell(x, **kind.told(points(x), number), context=words.get("context"))
    return bandit


def run(kind, bandit, first, rounds):
    offered, told = count(first), count(first)
    words = {"offered": lambda _: kind.words(next(offered))}
    return bandit.run(lambda x: kind.told(points(x), next(told)), rounds, **words)


def assert_alike(kind, one, other, first):
    """They were told the same, choose alike in two rounds more, and believe the same to rounding."""
    assert torch.equal(one.history.X, other.history.X)
    assert same(list(one.history[1:4]), list(other.history[1:4]))
    assert same(one.pending, other.pending)
    for each in (one, other):
        play(kind, each, first, 2)
    assert difference(one.history.X, other.history.X) <= kind.tolerance
    assert difference(known(kind, one), known(kind, other)) < max(1e-6, kind.tolerance)


@pytest.mark.one_in(10)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", KINDS)
def test_rounds_in_one_call_and_looked_at_are_those_of_ask_and_tell(name):
    kind = KINDS[name]
    one, other = kind.make(), kind.make()
    for number in (0, 1) if kind.tolerance else (0, 3, 6, 9):
        rounds = 1 if kind.tolerance else 3
        run(kind, one, number, rounds)
        play(kind, other, number, rounds)
        one.ask(3, remember=False, **kind.words(number + rounds))  # which changes nothing
        one.health()
        if number == 3:
            one.load_state_dict(deepcopy(one).state_dict())
        if number == 6:
            for each in (one, other):
                each.restart()
    assert_alike(kind, one, other, number + rounds)


@pytest.mark.parametrize("name", ["igp-ucb", "ek-ucb, contexts"])
def test_pull_may_look_and_a_failed_pull_leaves_the_rounds_before_it(name):
    kind, seen = KINDS[name], []
    bandit, twin = (play(kind, kind.make(), 0, 12) for _ in range(2))

    def pull(x):
        seen.append((bandit.round, len(bandit.history.X)))
        if len(seen) == 3:
            raise StopIteration
        return kind.told(x, bandit.round)

    with pytest.raises(StopIteration):
        bandit.run(pull, 5, offered=kind.words)
    assert seen == [(12, 12), (13, 13), (14, 14)]
    for bad in (float("nan"), "one", {"reward": 1.0}, {"x": ARMS[:1], "y": 1.0}):
        with pytest.raises(InputError):
            bandit.run(lambda x, bad=bad: bad, 1, offered=kind.words)
    for words, message in (({"context_": 1.0}, "time, context, candidates"), ({"time": 1.0}, "no memory")):
        with pytest.raises(InputError, match=message):
            bandit.run(lambda x: 0.0, 1, offered=lambda number, words=words: kind.words(number) | words)
    curious = deepcopy(bandit)
    with pytest.raises(InputError, match="must not ask"):
        curious.run(lambda x: curious.ask(**kind.words(14)).sum(), 1, offered=kind.words)
    assert (bandit.round, len(bandit.pending)) == (14, 0)
    assert_alike(kind, bandit, play(kind, twin, 12, 2), 14)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("lines", ["swaps", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["igp-ucb", "sw-gp-ucb", "growing", "ek-ucb, contexts"])
def test_an_interrupt_of_rounds_leaves_those_before_it(name, lines):
    """And what comes then is as it would have been; of the lines some."""
    kind = KINDS[name]
    start = play(kind, kind.make(), 0, 13)
    tried = swaps(lambda: run(kind, deepcopy(start), 13, 3))[::15] if lines == "swaps" else count(1, 29)
    for line in tried:
        bandit = deepcopy(start)
        with Interrupt(line) as interrupt:
            run(kind, bandit, 13, 3)
        if interrupt.at is None:
            break
        told = bandit.num_observations - 13
        assert told <= 3, interrupt.at
        bandit.forget()
        assert_alike(kind, bandit, play(kind, deepcopy(start), 13, told), 13 + told)


def test_a_reward_that_is_no_number_ends_the_rounds_before_it():
    calm = make("igp-ucb")
    calm.run(lambda x: x.sum(), 30)
    for bad in (float("nan"), float("inf")):
        bandit = make("igp-ucb")
        with pytest.raises(InputError):
            bandit.run(lambda x, bandit=bandit, bad=bad: x.sum() if bandit.round < 30 else bad, 40)
        assert (bandit.round, len(bandit.pending)) == (30, 0)
        assert same(bandit.state_dict(), calm.state_dict())
    for words, message in (((torch.zeros(5, 60), 5), "pull must be a function"), ((sum, 0), "rounds")):
        with pytest.raises(InputError, match=message):
            bandit.run(*words)

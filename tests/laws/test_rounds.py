"""Rounds by ask and tell, and by ``run``, are the same, whoever looks or interrupts."""

from copy import deepcopy
from itertools import count

import pytest
import torch
from interrupts import Interrupt, swaps
from kinds import ARMS, KINDS, known, make, points, same
from problems import DOUBLE, difference, matern

from torch_kbandits import InputError, algorithms

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


def by_hand(bandit, table, arms):
    """The same by ask and tell; of equal arms the first one's reward."""
    for rewards in table:
        x = bandit.ask()
        bandit.tell(x, rewards[int((arms == x).all(-1).nonzero()[0])])
    return bandit


def test_a_reward_that_is_no_number_ends_the_rounds_before_it_and_one_that_nobody_sees_does_not():
    table = torch.randn(40, 60, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    calm, seen = by_hand(make("igp-ucb"), table[:30], ARMS), torch.full_like(table[:30], torch.nan)
    rows = [int((x == ARMS).all(-1).nonzero()[0]) for x in calm.history.X]
    seen[range(30), rows] = table[range(30), rows]
    for bad in (float("nan"), float("inf")):
        bandit = make("igp-ucb")
        with pytest.raises(InputError):
            bandit.run(torch.cat([seen, torch.full((9, 60), bad, dtype=DOUBLE)]))
        assert (bandit.round, len(bandit.pending)) == (30, 0)
        assert same(bandit.state_dict(), calm.state_dict())


def test_what_a_table_of_rewards_must_be():
    bandit, table = make("igp-ucb"), torch.zeros(5, 60, dtype=DOUBLE)
    words = {"bounds": torch.tensor([[0.0], [1.0]]), "kernel": matern(), "regularization": 0.1, "seed": 0, "beta": 1.0}
    box = algorithms.build("igp-ucb", **words)
    wrong = [(lambda bad=bad: bandit.run(bad), r"must be \(r, 60\)") for bad in (table[0], table[:, :11], table.T)]
    wrong += [
        (lambda: bandit.run(torch.complex(table, table)), r"must be \(r, 60\)"),
        (lambda: bandit.run("rewards"), "a function that returns rewards, or a table"),
        (lambda: bandit.run(table, 6), "5 rounds, and 6"),
        (lambda: bandit.run(table[:0]), "0 rounds"),
        (lambda: bandit.run(table, offered=lambda number: {}), "offered="),
        (lambda: bandit.run(lambda x: 0.0), "rounds"),
        (lambda: box.run(table), "column for each arm"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()
    assert bandit.round == 0
    assert bandit.run(table, 2).shape == (2, 2)

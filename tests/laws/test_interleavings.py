"""What a bandit does after errors, interrupts, tells in another order and points of which all is known."""

import pytest
import torch
from gpytorch.kernels import LinearKernel
from problems import DOUBLE, data, difference, matern, play, rbf, reward

from torch_kbandits import Arms, Bandit, ConstantWidth, InputError, NumericalError, RidgeLeverageSampling, algorithms
from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.memory import SlidingWindow


def make(name, num_arms=100, seed=0, **settings):
    words = {"candidates": data(num_arms, 2, 1)[0], "kernel": rbf(0.3), "regularization": 0.01, "seed": seed}
    if name not in ("gp-ei", "gp-pi", "random"):
        words["beta"] = 1.5
    if name in ("bob-gp-ucb", "sup-kernel-ucb"):
        words["horizon"] = 200
    if name == "sparq-gp-ucb":
        words["expert"] = lambda X, time: (reward(X), 0.05)
    words |= {"r-gp-ucb": {"period": 7}, "sw-gp-ucb": {"window": 7}, "ui-gp-ucb": {"growth": 0.03}}.get(name, {})
    words |= settings
    if name == "lin-ucb":
        words["features"] = words.pop("kernel")
    return algorithms.build(name, **words)


@pytest.mark.one_in(24)
@pytest.mark.parametrize("num_arms", [100, 700])
@pytest.mark.parametrize("name", ["bkb", "gp-ei", "gp-pi", "gp-ts", "gp-ucb"])
@pytest.mark.parametrize("stranger", [False, True])
def test_a_failed_tell_changes_nothing_while_points_are_pending(name, num_arms, stranger):
    for seed in range(3):
        bandit = make(name, num_arms, seed)
        play(bandit, 6)
        asked = bandit.ask(4)
        expected = bandit.ask(5, remember=False)
        point = asked[:1] + (0.123 if stranger else 0.0)
        with pytest.raises(NumericalError):
            bandit.tell(point.repeat(40, 1), torch.full((40,), 1.7e308, dtype=DOUBLE))
        assert torch.equal(bandit.pending, asked)
        assert torch.equal(bandit.ask(5, remember=False), expected)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", algorithms.names())
def test_an_interrupted_ask_leaves_nothing_pending(name, monkeypatch):
    bandit = make(name)
    play(bandit, 5)
    expected = bandit.ask(5, remember=False)
    lookahead = type(bandit._ahead_of(bandit._standing))
    original, calls = lookahead.choose, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 1:
            return original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(lookahead, "choose", interrupted)
    if name != "mini-gp-ucb":  # which may choose once for all five
        with pytest.raises(KeyboardInterrupt):
            bandit.ask(5)
    monkeypatch.undo()
    assert len(bandit.pending) == 0
    assert torch.equal(bandit.ask(5), expected)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["gp-ts", "gp-ucb", "bkb"])
def test_a_loaded_state_continues_on_many_arms(name):
    """More arms than those whose whole covariance is kept; draws must not depend on the order of the features."""
    bandit, twin = make(name, 600), make(name, 600)
    play(bandit, 15)
    twin.load_state_dict(bandit.state_dict())
    assert torch.equal(twin.ask(10), bandit.ask(10))
    replayed = make(name, 600)
    replayed.replay(bandit.history)
    assert torch.equal(replayed.ask(10), bandit.pending)


@pytest.mark.parametrize("name", ["mini-gp-ucb", "bbkb"])
def test_a_batch_told_in_another_order_is_replayed(name):
    bandit = make(name)
    for _ in range(4):
        X = bandit.ask(None)
        bandit.tell(X, reward(X))
    X = torch.cat([bandit.ask(None), bandit.ask(3)]).flip(0)
    bandit.tell(X, reward(X))
    replayed = make(name)
    replayed.replay(bandit.history)
    assert replayed.model.num_observations == bandit.model.num_observations
    assert difference(replayed.ask(), bandit.ask()) == 0.0


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="draws are in the basis that the dictionary came by")
def test_draws_of_a_loaded_bandit_whose_dictionary_spans_more_than_it_needs():
    """A linear function of two columns: any two points span it, and which do depends on who came first."""
    arms = data(100, 2, 1)[0]
    words = {"kernel": LinearKernel().double(), "regularization": 0.1, "acquisition": ThompsonRule(), "seed": 0}
    words |= {"dictionary": RidgeLeverageSampling(2.0, "coupled"), "width": ConstantWidth(1.5)}
    bandit, loaded = (Bandit(candidates=Arms(arms), **words) for _ in range(2))
    for _ in range(12):
        play(bandit, 1)
        loaded.load_state_dict(bandit.state_dict())
        assert difference(loaded._belief.deviation(7), bandit._belief.deviation(7)) < 1e-6


@pytest.mark.parametrize(("name", "settings"), [("mini-gp-ucb", {}), ("bbkb", {}), ("bbkb", {"batch_rule": "local"})])
def test_an_arm_of_which_all_is_known_ends_the_batch(name, settings):
    """A linear function vanishes at the origin: its variance there is 0 from the start."""
    arms = torch.linspace(0.0, 1.0, 11, dtype=DOUBLE).unsqueeze(-1)
    bandit = make(name, candidates=arms, kernel=LinearKernel().double(), **settings)
    for _ in range(4):
        X = bandit.ask(None)
        assert len(X) <= 1_000
        bandit.tell(X, -X[:, 0])
    assert bandit.model.num_observations == len(bandit.history.X)
    assert float(bandit.recommend()) == 0.0


def test_a_batch_is_no_longer_than_its_limit(monkeypatch):
    monkeypatch.setattr("torch_kbandits.bandit.bandit._LARGEST_BATCH", 7)
    bandit = make("mini-gp-ucb", regularization=1e-2, batch_threshold=2500.0)
    assert len(bandit.ask(None)) == 7
    assert len(bandit.ask(None)) == 7
    assert len(bandit.pending.unique(dim=0)) == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["ek-ucb", "gp-ts", "bkb", "bbkb", "sup-kernel-ucb"])
def test_points_marked_as_pending_count_like_points_asked_for(name):
    words = {"candidates": data(60, 2)[0], "kernel": matern(), "regularization": 0.1, "seed": 3, "beta": 1.5}
    words |= {"horizon": 50} if name == "sup-kernel-ucb" else {}
    asking, marking = (algorithms.build(name, **words) for _ in range(2))
    for t in range(4):
        x = asking.ask()
        assert marking.mark_pending(x) == (t,)
        for bandit in (asking, marking):
            bandit.tell(ids=t, y=0.1 * t)
    X = asking.ask(3)
    assert marking.mark_pending(X) == (4, 5, 6)
    assert torch.equal(marking.pending, asking.pending)
    if name != "sup-kernel-ucb":  # which learns by the stages that chose, and a point that others chose has none
        assert torch.equal(marking.ask(2), asking.ask(2))
    marking.forget(ids=[4, 5, 6])
    assert {4, 5, 6}.isdisjoint(marking.pending_ids)


def test_marking_that_fails_changes_nothing():
    bandit = algorithms.build(
        "igp-ucb",
        candidates=data(60, 2)[0],
        kernel=matern(),
        regularization=0.1,
        seed=3,
        beta=1.5,
        memory=SlidingWindow(5),
    )
    bandit.tell(bandit.ask(time=3.0), 0.3)
    before = bandit.state_dict()
    for x, time in ((torch.zeros(1, 3, dtype=DOUBLE), 4.0), (torch.zeros(1, 2, dtype=DOUBLE), 2.0), ("point", 5.0)):
        with pytest.raises(InputError):
            bandit.mark_pending(x, time=time)
        assert str(bandit.state_dict()) == str(before)

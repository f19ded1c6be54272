"""Fits in a thread: whenever one is ready, the bandit believes what follows from its history and the prior in force."""

import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager
from copy import deepcopy
from itertools import count, cycle
from threading import Event
from time import sleep
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
import torch
from problems import believed, data, dense, difference
from product import ARMS, DICTIONARIES

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.algorithms.registry import signature
from torch_kbandits.bandit.adaptation import CumulatedTrigger
from torch_kbandits.memory import LinearGrowth, SlidingWindow, TemporalPrior

PROBES = data(7, 2, 3)[0]
#: Those have kernels that are given.
FAMILIES = ("lb-gp-ucb", "pe-gp-ucb", "pe-gp-ts", "hp-gp-ts")


def bandit_of(candidates=None, dictionary=None, memory=None, background=True, **words):
    prior = kb.LearnedPrior(num_initial=5, refit_share=0.25, background=background)
    pieces = {"width": kb.ConstantWidth(1.5), "seed": 0, "dictionary": dictionary, "memory": memory} | words
    return kb.Bandit(candidates=candidates or kb.Arms(ARMS), prior=prior, **pieces)


def rewards_of(x):
    return 30.0 + torch.sin(5.0 * x[:, -1]) * torch.cos(3.0 * x[:, 0])


def play(bandit, rounds):
    for number in range(bandit.round, bandit.round + rounds):
        words = {"context": PROBES[number % 7, :1]} if isinstance(bandit.candidates, kb.ContextualActions) else {}
        x = bandit.ask(**words)
        y = rewards_of(torch.cat([words["context"].expand(len(x), 1), x], -1) if words else x)
        bandit.tell(x, y, **words)
    return bandit


class Threads:
    """In the place of threads: what they compute is there after some rounds, as many as is said in turn."""

    def __init__(self, delays):
        self.delays, self.begun = cycle(delays), 0

    def __call__(self, target, args, name):
        self.begun += 1
        rounds = count()
        delay = next(self.delays)
        return SimpleNamespace(start=lambda: target(*args), is_alive=lambda: next(rounds) < delay)


@contextmanager
def threads(*delays):
    with pytest.MonkeyPatch.context() as patch:
        fake = Threads(delays)
        patch.setattr("torch_kbandits.bandit.background.Thread", fake)
        yield fake


def assert_follows(bandit):
    """The posterior is the dense one of the history under the prior in force, with the dictionary as it is."""
    prior, (X, Y, T, Z) = bandit.prior, dense(*bandit.history[:2], PROBES, bandit.inducing_points)

    def kernel(A, B):
        return prior.kernel(torch.from_numpy(A), torch.from_numpy(B)).to_dense().numpy()

    known = X, Y - prior.mean, np.full(len(Y), prior.regularization)
    expected = oracles.exact(kernel, *known, T) if bandit.dictionary is None else oracles.dtc(kernel, *known, Z, T)
    mean, variance = believed(bandit, PROBES)
    assert difference(mean - prior.mean, expected.mean) < max(expected.rounding, 1e-7)
    assert difference(variance, expected.variance) < max(expected.rounding, 1e-7)


CASES = {
    "arms": {},
    "dictionary": {"dictionary": DICTIONARIES["kors"]},
    "contexts": {"candidates": kb.ContextualActions(ARMS[:, 1:], context_dim=1)},
    "contexts and dictionary": {
        "candidates": kb.ContextualActions(ARMS[:, 1:], context_dim=1),
        "dictionary": DICTIONARIES["coupled"],
    },
}


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(7)
@pytest.mark.parametrize("delays", [[0], [1, 6], [9, 3, 0], [7]], ids=str)
def test_whenever_a_fit_is_ready_the_posterior_is_that_of_the_prior_in_force(name, delays):
    with threads(*delays) as made:
        bandit = bandit_of(**CASES[name])
        for _ in range(3):
            play(bandit, 10)
            assert_follows(bandit)
    assert made.begun > 1
    assert bandit._state.last_fit.number > 5


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("memory", [SlidingWindow(9.0), TemporalPrior(0.1)])
def test_what_no_longer_counts_does_not_once_a_fit_is_ready(memory):
    with threads(7, 2, 0, 6):
        ours = play(bandit_of(memory=memory), 30)
    theirs = kb.Bandit(candidates=kb.Arms(ARMS), prior=ours.prior, memory=memory, width=kb.ConstantWidth(1.5), seed=1)
    theirs.replay(ours.history)
    probes = PROBES if ours.candidates.example.shape[-1] == 2 else torch.cat([PROBES[:, :1] + 30.0, PROBES], -1)
    for mine, other in zip(believed(ours, probes), believed(theirs, probes), strict=True):
        assert difference(mine, other) < 1e-7


@pytest.mark.usefixtures("short_fits")
def test_until_a_fit_is_ready_nothing_waits_for_it():
    """Choices are those under the first prior for good; and a restart forgets what is under way."""
    with threads(10**6) as made:
        ours = play(bandit_of(), 20)
        assert made.begun == 1
        first = kb.LearnedPrior(num_initial=5, refit_share=100.0)
        theirs = play(kb.Bandit(candidates=kb.Arms(ARMS), prior=first, width=kb.ConstantWidth(1.5), seed=0), 20)
        assert torch.equal(ours.history.X, theirs.history.X)
        ours.restart()
        play(ours, 5)
        assert made.begun == 2


@pytest.mark.usefixtures("short_fits")
def test_as_many_fits_are_made_as_without_and_none_again_after_a_restart_of_the_process(tmp_path, monkeypatch):
    with threads(0):
        ours = play(bandit_of(), 22)
    assert ours._state.last_fit[:2] == play(bandit_of(background=False), 22)._state.last_fit[:2] == (19, 19)
    monkeypatch.setattr(kb.LearnedPrior, "fitted", None)
    ours.save(tmp_path / "bandit")
    again = kb.Bandit.load(tmp_path / "bandit")
    assert again.prior.regularization == ours.prior.regularization
    assert torch.equal(again.ask(3), ours.ask(3))


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("trigger", [None, CumulatedTrigger()])
def test_a_replay_makes_all_fits_where_they_are_due(trigger):
    with threads(10**6) as made:
        ours, theirs = (bandit_of(background=each, trigger=trigger) for each in (True, False))
        history = play(bandit_of(background=False), 16).history
        for each in (ours, theirs):
            each.replay(history)
        assert not made.begun
    assert ours._state.last_fit == theirs._state.last_fit
    assert torch.equal(ours.ask(3), theirs.ask(3))


@pytest.mark.usefixtures("short_fits")
def test_a_fit_that_fails_is_said_and_the_prior_stays(monkeypatch):
    ours = play(bandit_of(), 5)
    prior = ours.prior

    def failing(*_, **__):
        raise kb.NumericalError("no kernel value is finite")

    monkeypatch.setattr(kb.LearnedPrior, "fitted", failing)
    with threads(0) as made:
        with pytest.warns(kb.KernelBanditWarning, match=r"not be fitted in the background.*no kernel value is finite"):
            play(ours, 3)
        assert ours.prior is prior
        assert made.begun == 1
        assert_follows(ours)
        play(ours, 3)
        assert made.begun == 2
        assert ours.prior is prior


@pytest.mark.usefixtures("short_fits")
def test_outcomes_and_failures_are_known_under_the_priors_fitted():
    """As the bandit that is made again of its state knows them, from its history and nothing else."""
    with threads(5, 0, 8):
        outcome = kb.Outcome("heat", kb.LearnedPrior(num_initial=4, background=True))
        ours = bandit_of(outcomes=[outcome], constraints=[kb.AtMost("heat", 0.9, mode="optimistic")])
        for number in range(24):
            x = ours.ask()
            failed = number % 6 == 5
            ours.tell(x, None if failed else rewards_of(x), outcomes={"heat": x[:, 0]}, failed=failed)
        again = bandit_of(outcomes=[outcome], constraints=[kb.AtMost("heat", 0.9, mode="optimistic")])
        again.load_state_dict(ours.state_dict())
    assert ours._state.outcomes[0].last_fit.number > 4
    for one, other in zip((ours._state, *ours._state.outcomes), (again._state, *again._state.outcomes), strict=True):
        for mine, theirs in zip(one.told.moments(PROBES), other.told.moments(PROBES), strict=True):
            assert difference(mine, theirs) < 1e-7
    assert difference(ours.failure_probability(ARMS), again.failure_probability(ARMS)) < 1e-7


WITHOUT = ("lin-ucb", "shared-lin-ucb", "sparq-gp-ucb", "w-sparq-gp-ucb", *FAMILIES)
NAMES = [name for name in algorithms.names() if name not in WITHOUT]


@pytest.mark.one_in(12)
@pytest.mark.filterwarnings("ignore:Takeno:torch_kbandits.TheoryWarning")
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_knows_what_its_state_says(name):
    """What is made again of it, from the history and the prior in force, knows the same."""
    needed = {"horizon": 30, "period": 9, "window": 9, "growth": LinearGrowth(0.1)}
    words = {word: value for word, value in needed.items() if word in signature(name).parameters}
    prior = kb.LearnedPrior(num_initial=4, background=True)
    with threads(6, 0, 3):
        ours, again = (algorithms.build(name, candidates=kb.Arms(ARMS), prior=prior, seed=0, **words) for _ in range(2))
        play(ours, 25)
    again.load_state_dict(ours.state_dict())
    if name != "random-search":
        assert ours._state.last_fit.number > 4
    points = ARMS if ours.candidates.example.shape[-1] == 2 else torch.cat([ARMS[:, :1] * 0.0 + 25.0, ARMS], -1)
    for mine, theirs in zip(ours._state.told.moments(points), again._state.told.moments(points), strict=True):
        assert difference(mine, theirs) < 1e-6


@pytest.mark.usefixtures("short_fits")
def test_a_copy_begins_a_fit_under_way_again_and_no_thread_is_left(monkeypatch):
    """With a thread that waits; what is saved meanwhile knows nothing of it."""
    ours, go_on, own = play(bandit_of(), 6), Event(), kb.LearnedPrior.fitted
    fits = []

    def fitted(*args, **words):
        go_on.wait(30.0)
        fits.append(1)
        return own(*args, **words)

    before = threading.active_count()
    monkeypatch.setattr(kb.LearnedPrior, "fitted", fitted)
    play(ours, 2)
    copies = deepcopy(ours), pickle.loads(pickle.dumps(ours._state))
    assert threading.active_count() == before + 1
    assert copies[0]._state.underway is copies[1].underway is None
    state = ours.state_dict()
    go_on.set()
    again = bandit_of()
    again.load_state_dict(state)
    for each in (ours, copies[0], again):
        while each._state.last_fit.number == 5:
            play(each, 1)
            while each._state.underway is not None and not each._state.underway.is_over:
                sleep(0.01)
        assert each._state.last_fit.number in (7, 9)
        assert_follows(each)
    assert len(fits) == 3
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_process_ends_with_a_fit_under_way():
    code = """
import torch
from torch_kbandits import ContextualActions, LearnedPrior, algorithms
bandit = algorithms.EKUCB(action_dim=2, context_dim=6, prior=LearnedPrior(background=True), beta=1.0, seed=0)
X = torch.rand(500, 8, dtype=torch.float64)
Y = (5.0 * X[:, 0]).sin() + 0.2 * torch.randn(500, dtype=torch.float64)
bandit.tell(X[:300, 6:], Y[:300], context=X[:300, :6])
bandit.tell(X[300:, 6:], Y[300:], context=X[300:, :6])
assert bandit._state.underway is not None and not bandit._state.underway.is_over
"""
    words = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", code], check=False, **words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("short_fits")
def test_threads_of_others_stay_as_many_also_where_no_thread_can_be_started(monkeypatch):
    number = torch.get_num_threads()
    ours = play(bandit_of(), 5)

    def refusing(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refusing)
        play(ours, 3)
    assert ours._state.last_fit.number == 7
    assert_follows(ours)
    assert torch.get_num_threads() == number

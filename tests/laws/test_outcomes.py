"""Outcomes of a play: each has the posterior of what was measured of it, and changes nothing for the reward."""

from datetime import datetime

import numpy as np
import oracles
import pandas as pd
import pytest
import torch
from problems import DOUBLE, data, matern, rbf

from torch_kbandits import (
    KORS,
    Arms,
    AtMost,
    Bandit,
    Box,
    ConstantWidth,
    ContextualActions,
    InputError,
    LearnedPrior,
    Outcome,
    Prior,
    RidgeLeverageSampling,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow

ARMS = data(40, 2)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
HEAT = Outcome("heat", Prior(rbf(0.3), 0.05, 0.2))
COST = Outcome("cost", LearnedPrior(num_initial=4))
CANDIDATES = {
    "arms": lambda: Arms(ARMS),
    "box": lambda: Box(BOX, num_restarts=1, raw_samples=4),
    "actions in a context": lambda: ContextualActions(ARMS[:, :1], context_dim=1),
}
CONTEXTS = data(60, 1, 5)[0]


def make(kind="arms", **words):
    words = {"kernel": matern(), "regularization": 0.1, "width": ConstantWidth(1.5), "outcomes": [HEAT, COST]} | words
    return Bandit(candidates=CANDIDATES[kind](), seed=1, **words)


def measured(bandit, x, number):
    """The first outcome of every play but each third, the second of every other."""
    heat = None if number % 3 == 2 else np.sin(3.0 * x.sum(-1).numpy())
    return {"heat": heat} | ({"cost": 40.0 + x[:, -1]} if number % 2 else {})


def play(bandit, number, start=0, outcomes=True):
    for turn in range(start, start + number):
        words = {"context": CONTEXTS[turn]} if untimed(bandit.candidates).context_dim else {}
        x = bandit.ask(**words)
        told = {"outcomes": measured(bandit, x, turn)} if outcomes else {}
        bandit.tell(x, torch.cos(4.0 * x).sum(-1), **words, **told)
    return bandit


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", CANDIDATES)
@pytest.mark.parametrize("memory", [None, SlidingWindow(6.0), Discount(0.9)], ids=["all", "window", "discount"])
def test_an_outcome_has_the_posterior_of_what_was_measured_of_it(kind, memory):
    bandit = play(make(kind, memory=memory), 14)
    history, now = bandit.history, bandit.now
    column = history.outcomes[:, 0]
    there = column.isfinite()
    assert 0 < int(there.sum()) < 14
    noise = torch.full((int(there.sum()),), 0.05, dtype=DOUBLE)
    X, y = history.X[there], column[there]
    if memory is not None:
        age = now - history.times[there]
        counts = age <= 6.0 if isinstance(memory, SlidingWindow) else torch.ones_like(age, dtype=torch.bool)
        noise = noise if isinstance(memory, SlidingWindow) else 0.05 * 0.9**-age
        X, y, noise = X[counts], y[counts], noise[counts]
    probes = data(9, 2, 8)[0]
    kernel = oracles.rbf(0.3)
    K = kernel(X.numpy(), X.numpy()) + np.diag(noise.numpy())
    cross = kernel(probes.numpy(), X.numpy())
    mean = 0.2 + cross @ np.linalg.solve(K, y.numpy() - 0.2)
    variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
    posterior = bandit.outcome_model("heat").posterior(probes.unsqueeze(-2))
    tolerance = oracles.rounding(len(X), np.linalg.cond(K))
    np.testing.assert_allclose(posterior.mean.flatten(), mean, atol=tolerance)
    np.testing.assert_allclose(posterior.variance.flatten(), variance, atol=tolerance)


@pytest.mark.parametrize("kind", CANDIDATES)
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(2.0), KORS()], ids=["exact", "fresh", "kors"])
def test_outcomes_change_nothing_for_the_reward(kind, dictionary):
    with_them, without = make(kind, dictionary=dictionary), make(kind, dictionary=dictionary, outcomes=())
    play(with_them, 8)
    play(without, 8, outcomes=False)
    assert torch.equal(with_them.history.X, without.history.X)
    assert without.history.outcomes is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [None, SlidingWindow(5.0), BackToPrior(0.05)], ids=["all", "window", "prior"])
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(2.0)], ids=["exact", "fresh"])
def test_a_loaded_and_a_replayed_bandit_know_the_same(dictionary, memory, tmp_path):
    words = {"dictionary": dictionary, "memory": memory, "constraints": [AtMost("heat", 0.9, "optimistic")]}
    bandit = play(make(**words), 11)
    loaded, replayed = make(**words), make(**words)
    loaded.load_state_dict(bandit.state_dict())
    replayed.replay(bandit.history)
    bandit.save(tmp_path / "it.kb")
    read = Bandit.load(tmp_path / "it.kb")
    for other in (loaded, replayed, read):
        assert torch.equal(other.ask(remember=False), bandit.ask(remember=False))
        assert torch.equal(other.history.outcomes.nan_to_num(), bandit.history.outcomes.nan_to_num())
        for name in ("heat", "cost"):
            ours, theirs = (each.outcome_model(name) for each in (bandit, other))
            probes = torch.cat([torch.full((9, ours.train_inputs[0].shape[-1] - 2), 12.0, dtype=DOUBLE), ARMS[:9]], -1)
            difference = ours.posterior(probes).mean - theirs.posterior(probes).mean
            assert float(difference.abs().max()) < 1e-6
    play(bandit, 3, 11)
    play(read, 3, 11)
    assert torch.equal(bandit.history.X, read.history.X)


def test_an_outcome_may_have_a_memory_of_its_own():
    bandit = play(make(outcomes=[Outcome("heat", HEAT.prior, memory=SlidingWindow(3.0)), COST]), 12)
    model = bandit.outcome_model("heat")
    assert 0 < len(model.train_inputs[0]) <= 3
    assert len(bandit.model.train_inputs[0]) == 12


def test_an_outcome_may_know_the_time_where_the_reward_does_not():
    bandit = play(make(outcomes=[Outcome("heat", HEAT.prior, memory=BackToPrior(0.1)), COST]), 6)
    plain = play(make(), 6)
    assert torch.equal(bandit.candidates.actions(bandit.history.X), plain.history.X)
    assert bandit.outcome_model("heat").train_inputs[0].shape[-1] == 3
    assert torch.equal(bandit.ask(), plain.ask())


def test_outcomes_are_told_with_what_a_batch_rule_keeps_aside():
    bandit = make(batches=GlobalBatchRule(50.0))
    asked = bandit.ask(3, return_ids=True)
    bandit.tell(ids=asked.ids[:2], y=[0.1, 0.2], outcomes={"heat": [1.0, 2.0]})
    assert bandit.model.train_inputs[0].shape[0] == 0
    assert bandit.outcome_model("heat").train_targets.tolist() == [1.0, 2.0]


def test_a_restart_forgets_outcomes_too():
    bandit = play(make(), 6)
    bandit.restart()
    assert len(bandit.outcome_model("heat").train_inputs[0]) == 0
    play(bandit, 3, 6)
    twin = make()
    twin.load_state_dict(bandit.state_dict())
    assert len(twin.outcome_model("heat").train_inputs[0]) == len(bandit.outcome_model("heat").train_inputs[0]) > 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"haet": 1.0}, "did you mean 'heat'"),
        ({"pressure": 1.0}, "not declared"),
        ({"heat": [1.0, 2.0]}, "a number for each of 1 play"),
        ({"heat": "hot"}, "heat"),
        ({"heat": float("inf")}, "finite"),
        ([1.0], "must be a mapping"),
    ],
)
def test_what_is_no_outcome_is_refused_and_nothing_changes(given, says):
    bandit = play(make(), 3)
    x, before = bandit.ask(), bandit.state_dict()
    with pytest.raises(InputError, match=says):
        bandit.tell(x, 1.0, outcomes=given)
    assert torch.equal(bandit.history.X, before["history"]["X"])
    assert bandit.pending_ids == tuple(before["pending_ids"])


@pytest.mark.parametrize(
    "value",
    [1.5, np.float64(1.5), [1.5], (1.5,), np.array([1.5]), torch.tensor(1.5), torch.tensor([[1.5]]), pd.Series([1.5])],
)
def test_outcomes_in_any_form(value):
    bandit = make()
    bandit.tell(bandit.ask(), 0.0, outcomes={"heat": value})
    assert bandit.history.outcomes[0].tolist()[0] == 1.5
    assert bandit.history.outcomes[0].isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"outcomes": "heat"}, "must be a list"),
        ({"outcomes": [3]}, r"outcomes\[0\] must be a name or an Outcome"),
        ({"outcomes": [HEAT, Outcome("heat")]}, "declared once"),
        ({"constraints": [HEAT]}, r"constraints\[0\] must be a limit"),
        ({"constraints": [AtMost(Outcome("heat"), 1.0)]}, "declared once"),
    ],
)
def test_what_declares_no_outcome_is_refused(words, says):
    with pytest.raises(InputError, match=says):
        make(**words)


def test_a_state_of_other_outcomes_is_refused():
    state = play(make(), 3).state_dict()
    for words in ({"outcomes": [HEAT]}, {"outcomes": [HEAT, Outcome("cost", memory=SlidingWindow(3.0))]}):
        with pytest.raises(StateMismatchError, match="outcomes"):
            make(**words).load_state_dict(state)
    state["history"]["outcomes"] = state["history"]["outcomes"][:, :1]
    with pytest.raises(StateMismatchError, match="outcome"):
        make().load_state_dict(state)


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_takes_them(name):
    assert {"outcomes", "constraints"} <= set(algorithms.registry.signature(name).parameters)


def test_dates_and_outcomes_go_together():
    bandit = make(memory=SlidingWindow(3600.0))
    x = bandit.ask(time=datetime(2026, 1, 1, 12))
    bandit.tell(x, 1.0, outcomes={"heat": 0.3})
    bandit.ask(time=datetime(2026, 1, 1, 14), remember=False)
    model = bandit.outcome_model("heat")
    assert len(model.train_inputs[0]) == 1  # looking into the future changes nothing
    bandit.tell(bandit.ask(time=datetime(2026, 1, 1, 15)), 1.0)
    assert len(bandit.outcome_model("heat").train_inputs[0]) == 0


def first_outcomes(bandit, number, start=0):
    """Plays of which the heat is told at once, and the reward with the next play but one."""
    waiting = []
    for turn in range(start, start + number):
        asked = bandit.ask(return_ids=True)
        bandit.tell(ids=asked.ids, outcomes={"heat": torch.sin(3.0 * asked.actions.sum(-1))})
        assert asked.ids[0] in bandit.pending_ids
        waiting.append(asked)
        if len(waiting) == 3:
            late = waiting.pop(0)
            told = {"failed": True} if turn % 5 == 4 else {"y": torch.cos(4.0 * late.actions).sum(-1)}
            bandit.tell(ids=late.ids, **told, outcomes={"cost": 1.0})
            assert late.ids[0] not in bandit.pending_ids
    return bandit


@pytest.mark.one_in(3)
@pytest.mark.parametrize("batches", [None, GlobalBatchRule(1.5)], ids=["at once", "in batches"])
@pytest.mark.parametrize("memory", [None, Discount(0.95), BackToPrior(0.05)], ids=["all", "discount", "prior"])
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling(2.0)], ids=["exact", "fresh"])
def test_outcomes_may_be_told_before_the_reward(dictionary, memory, batches, tmp_path):
    words = {"dictionary": dictionary, "memory": memory, "batches": batches}
    bandit = first_outcomes(make(**words), 7)
    history = bandit.history
    assert int(history.outcomes[:, 0].isfinite().sum()) == 7
    assert int(history.Y.isfinite().sum()) == 4
    assert int(history.lost.sum()) == 1
    assert len(bandit.outcome_model("heat").train_inputs[0]) == 7
    bandit.save(tmp_path / "it.kb")
    read, replayed = Bandit.load(tmp_path / "it.kb"), make(**words)
    replayed.replay(history)
    probes = torch.cat([torch.full((9, history.X.shape[-1] - 2), 30.0, dtype=DOUBLE), ARMS[:9]], -1)
    for name in ("heat", "reward"):
        models = [each.model if name == "reward" else each.outcome_model(name) for each in (bandit, read, replayed)]
        means = [model.posterior(probes).mean for model in models]
        assert float((means[0] - means[1]).abs().max()) < 1e-6
        assert float((means[0] - means[2]).abs().max()) < 1e-6
    first_outcomes(bandit, 2, 7)
    first_outcomes(read, 2, 7)
    assert torch.equal(bandit.history.X, read.history.X)


def test_without_a_reward_only_outcomes_that_are_declared():
    bandit = make()
    x = bandit.ask()
    with pytest.raises(InputError, match="y is missing"):
        bandit.tell(x)
    with pytest.raises(InputError, match="y is missing"):
        bandit.tell(x, outcomes={})
    with pytest.raises(InputError, match="y is missing"):  # nothing was measured
        bandit.tell(x, outcomes={"heat": None, "cost": float("nan")})
    with pytest.raises(InputError, match="not declared"):
        bandit.tell(x, outcomes={"pressure": 1.0})
    bandit.tell(x, outcomes={"heat": 0.5})
    assert torch.equal(bandit.pending, x)
    assert bandit.failure_probability(x).tolist() == [0.0]
    bandit.tell(x, 1.0)
    assert len(bandit.pending) == 0

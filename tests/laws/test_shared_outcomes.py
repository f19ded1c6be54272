"""An outcome under the reward's kernel, λ and memory shares dictionary and features, and changes in nothing else."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, difference, examples, matern, rbf

from torch_kbandits import (
    KORS,
    Arms,
    AtMost,
    Bandit,
    Box,
    CappedDictionary,
    ConstantWidth,
    ContextualActions,
    LearnedPrior,
    Outcome,
    Prior,
    RidgeLeverageSampling,
)
from torch_kbandits.bandit import sharing
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.beliefs import FeatureTable, ToldOtherwise, choice
from torch_kbandits.beliefs.choice import COVARIANCE_LIMIT
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.memory import BackToPrior, Discount, KeepAll, SlidingWindow

LAMBDA = 0.1
ARMS = data(40, 2)[0]
#: More arms than an exact posterior keeps all covariances of.
MANY = data(COVARIANCE_LIMIT + 8, 2, 3)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXTS = data(80, 1, 5)[0]
PROBES = torch.cat([ARMS[:5], data(5, 2, 8)[0]])
CANDIDATES = {
    "arms": lambda: Arms(ARMS),
    "box": lambda: Box(BOX, num_restarts=1, raw_samples=4),
    "actions in a context": lambda: ContextualActions(ARMS[:, :1], context_dim=1),
}
DICTIONARIES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(2.0),
    "kors": KORS(),
    "capped": CappedDictionary(RidgeLeverageSampling(3.0, "coupled"), 6, "stop"),
}
MEMORIES = {
    "keep": KeepAll(),
    "window": SlidingWindow(9.0),
    "discount": Discount(0.9),
    "prior": BackToPrior(0.02),
}


def heat_mean(X):
    return 0.5 - X[..., -1]


def heat(x):
    """What is measured of points (q, d), whatever comes before their last two columns."""
    return torch.sin(3.0 * x[:, -2:].sum(-1))


def reward(x):
    return torch.cos(4.0 * x[:, -2:]).sum(-1)


def outcome(name="heat", **words):
    return Outcome(name, Prior(**{"kernel": matern(), "regularization": LAMBDA, "mean": heat_mean} | words))


def make(kind="arms", **words):
    words = {"kernel": matern(), "regularization": LAMBDA, "width": ConstantWidth(1.5)} | words
    words = {"outcomes": [outcome()]} | words
    candidates = CANDIDATES[kind]() if isinstance(kind, str) else kind
    return Bandit(candidates=candidates, seed=1, **words)


def alone(kind, **words):
    """A bandit whose reward is the outcome."""
    return make(kind, prior=outcome().prior, kernel=None, regularization=None, outcomes=(), **words)


def belief_of(bandit, number=0):
    return bandit._standing.outcomes[number].told


def shares(bandit, number=0):
    return isinstance(belief_of(bandit, number), ToldOtherwise)


def asked(bandit, turn):
    """What is asked for in a turn, as the posterior has it without a time, and the words to tell it."""
    words = {"context": CONTEXTS[turn % 80]} if untimed(bandit.candidates).context_dim else {}
    x = bandit.ask(**words)
    joint = torch.cat([words["context"].expand(len(x), -1), x], -1) if words else x
    return x, joint, words


def play(bandit, number, start=0, twin=None, missing=()):
    """Play turns; a bandit whose reward is the outcome is told what was measured."""
    for turn in range(start, start + number):
        x, joint, words = asked(bandit, turn)
        told = {} if turn in missing else {"outcomes": {each: heat(joint) for each in bandit.outcomes}}
        bandit.tell(x, reward(joint), **words, **told)
        if twin is not None and turn not in missing:
            twin.tell(x, heat(joint), **words)
    return bandit


def probes(bandit):
    width = bandit.candidates.example.shape[-1]
    return torch.cat([torch.full((len(PROBES), width - 2), bandit.now, dtype=DOUBLE), PROBES], -1)


def agree(ours, theirs, X, tolerance=1e-7):
    """Say that two beliefs are the same posterior, in all that an outcome is asked."""
    assert ours.num_observations == theirs.num_observations
    for one, other in zip(ours.moments(X), theirs.moments(X), strict=True):
        assert difference(one, other) < tolerance
    assert torch.equal(ours.inducing_points, theirs.inducing_points)
    assert torch.equal(ours.played, theirs.played)
    for name in ("mean_norm", "information_gain", "effective_dimension", "projection_error", "kernel_bound"):
        assert difference(getattr(ours, name)(), getattr(theirs, name)()) < 10 * tolerance, name
    if ours.num_observations:
        top = theirs.moments(theirs.recommend())[0]
        assert difference(theirs.moments(ours.recommend())[0], top) < tolerance


def agree_on_residuals(ours, theirs):
    """Say that what was predicted of each play before it was told was the same."""
    assert (ours.since, ours.number) == (theirs.since, theirs.number)
    np.testing.assert_allclose(ours.recent, theirs.recent, atol=1e-6)
    np.testing.assert_allclose(ours.misfit.log_evidence, theirs.misfit.log_evidence, atol=1e-4)


def agree_with_pending(ours, theirs, domain):
    pending = ours.played[-2:]
    ahead, other = ours.lookahead(pending), theirs.lookahead(pending)
    for _ in range(2):
        one, two = ahead.offered(domain), other.offered(domain)
        assert difference(one.mean, two.mean) < 1e-7
        assert difference(one.variance, two.variance) < 1e-7
        assert torch.equal(one.chosen(3), two.chosen(3))
        for each in (ahead, other):
            each.add(ours.played[:1], 2)
    assert torch.equal(ahead.pending, other.pending)
    assert difference(ahead.pending_scores(), other.pending_scores()) < 1e-7


@pytest.mark.one_in(16)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_it_has_the_posterior_of_a_bandit_whose_reward_it_is(kind, dictionary, memory, monkeypatch):
    monkeypatch.setattr(choice, "COVARIANCE_LIMIT", 0)
    words = {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES[memory]}
    bandit, twin = make(kind, **words), alone(kind, **words)
    play(bandit, 22, twin=twin)
    assert shares(bandit)
    now = bandit._standing.clock.now
    ours, theirs = belief_of(bandit), twin._standing.at(twin._standing.clock).told.at(now)
    agree(ours, theirs, probes(bandit))
    agree_on_residuals(bandit._standing.outcomes[0].residuals, twin._standing.residuals)
    words = {"context": CONTEXTS[3]} if kind == "actions in a context" else {}
    if kind != "box":
        agree_with_pending(ours, theirs, bandit._now(None, words.get("context"), None)[1])
    shown = [each.posterior(probes(bandit)) for each in (bandit.outcome_model("heat"), twin.model)]
    assert difference(shown[0].mean, shown[1].mean) < 1e-6
    assert difference(shown[0].variance, shown[1].variance) < 1e-6


@pytest.mark.parametrize("memory", ["none", "keep", "window", "discount"])
def test_it_has_the_posterior_of_dense_formulas(memory):
    bandit = play(make(Arms(MANY), memory=MEMORIES.get(memory)), 30)
    assert shares(bandit)
    X, y, now = bandit.history.X, bandit.history.outcomes[:, 0], bandit.now
    noise = torch.full((30,), LAMBDA, dtype=DOUBLE)
    if memory in ("window", "discount"):
        age = now - bandit.history.times
        counts = age <= 9.0 if memory == "window" else torch.ones_like(age, dtype=torch.bool)
        noise = noise if memory == "window" else LAMBDA * 0.9**-age
        X, y, noise = X[counts], y[counts], noise[counts]
    kernel = oracles.matern52(0.5, 1.7)
    K = kernel(X.numpy(), X.numpy()) + np.diag(noise.numpy())
    tolerance = oracles.rounding(len(X), np.linalg.cond(K), 1.7)
    ahead = belief_of(bandit).lookahead(X[:0]).offered(None)
    for at, (mean, variance) in (
        (PROBES, belief_of(bandit).moments(PROBES)),
        (MANY, (ahead.mean, ahead.variance)),
    ):
        cross = kernel(at.numpy(), X.numpy())
        expected = heat_mean(at).numpy() + cross @ np.linalg.solve(K, (y - heat_mean(X)).numpy())
        np.testing.assert_allclose(mean, expected, atol=tolerance)
        left = 1.7 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
        np.testing.assert_allclose(variance, left, atol=tolerance)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=8),
    missing=st.integers(0, 30),
    restarts=st.sets(st.integers(0, 8), max_size=2),
    dictionary=st.sampled_from(["exact", "fresh", "kors"]),
    memory=st.sampled_from([None, "keep", "window", "discount"]),
)
@examples(30)
def test_whatever_is_told_it_is_as_if_told_alone(sizes, missing, restarts, dictionary, memory):
    """Several plays at once, the same ones again, a restart, and from some play on one that was not measured."""
    words = {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES.get(memory)}
    bandit, twin = make(Arms(MANY), **words), alone(Arms(MANY), **words)
    number = 0
    for turn, size in enumerate(sizes):
        rows = (torch.arange(number, number + size) * 7) % 20
        X = MANY[rows]
        measured = heat(X)
        there = torch.arange(number, number + size) != missing
        number += size
        when = {} if memory is None else {"time": turn}
        bandit.tell(X, reward(X), outcomes={"heat": measured.masked_fill(~there, torch.nan)}, **when)
        if bool(there.any()):
            twin.tell(X[there], measured[there], **when)
        assert shares(bandit) == (number <= missing)
        if turn in restarts:
            bandit.restart()
            twin.restart()
    now = bandit._standing.clock.now
    agree(belief_of(bandit), twin._standing.told.at(now), PROBES)


@pytest.mark.parametrize("kind", ["arms", "actions"])
def test_late_plays_that_count_no_more_are_passed_over(kind):
    """What does not count when it is told, or counts before others told earlier, is not taken for another."""
    words = {"memory": SlidingWindow(5.0), "dictionary": DICTIONARIES["fresh"]}
    candidates = Arms(ARMS) if kind == "arms" else ContextualActions(ARMS, context_dim=0)
    bandit, twin = make(candidates, **words), alone(candidates, **words)
    for row, time in enumerate([0.0, 1.0, 10.0, 2.0, 12.0, 8.0, 13.0, 3.0, 14.0]):
        X = ARMS[row : row + 1]
        bandit.tell(X, reward(X), outcomes={"heat": heat(X)}, time=time)
        twin.tell(X, heat(X), time=time)
        assert shares(bandit)
        agree(belief_of(bandit), twin._standing.told, PROBES)
    loaded = make(candidates, **words)
    loaded.load_state_dict(bandit.state_dict())
    assert shares(loaded)
    agree(belief_of(loaded), belief_of(bandit), PROBES)


def test_in_single_precision_it_is_right_to_that_precision():
    arms = MANY.float()
    kernel = matern().float()
    prior = Prior(kernel, LAMBDA, heat_mean)
    bandit = make(Arms(arms), kernel=kernel, outcomes=[Outcome("heat", prior)])
    twin = make(Arms(arms), kernel=None, regularization=None, prior=prior, outcomes=())
    play(bandit, 25, twin=twin)
    assert shares(bandit)
    ours, theirs = belief_of(bandit), twin._standing.told
    for one, other in zip(ours.moments(arms), theirs.moments(arms), strict=True):
        assert one.dtype == torch.float32
        assert difference(one, other) < 1e-4


LIMITS = {
    "safe": AtMost(outcome(), 0.9, beta=2.0, safe_seed=MANY[:3]),
    "optimistic": AtMost(outcome(), 0.6, "optimistic", beta=1.0),
    "a theorem's": AtMost(outcome(), 0.9, "optimistic", beta=SelfNormalizedWidth(0.1, 1.0, 0.05)),
}
PLACES = {
    "arms": lambda: Arms(MANY),
    "actions": lambda: ContextualActions(MANY[:40], context_dim=0),
    "box": lambda: Box(BOX, num_restarts=1, raw_samples=8),
    "actions in a context": lambda: ContextualActions(MANY[:20, :1], context_dim=1),
}
SEEDS = {"actions in a context": MANY[:3, :1]}


@pytest.mark.one_in(40)
@pytest.mark.parametrize("memory", ["none", "window", "prior"])
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("place", PLACES)
def test_the_same_is_played_within_limits(place, limit, dictionary, memory, monkeypatch):
    limit = LIMITS[limit]
    if limit.is_safe and place in SEEDS:
        limit = AtMost(outcome(), 0.9, beta=2.0, safe_seed=SEEDS[place])
    words = {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES.get(memory)}
    words |= {"outcomes": (), "constraints": [limit]}
    number, gap = (6, 4) if place == "box" else (12, 8)
    ours = play(make(PLACES[place](), **words), number, missing=[gap])
    monkeypatch.setattr(sharing, "differs_in_numbers_alone", lambda *_: False)
    theirs = make(PLACES[place](), **words)
    assert not shares(theirs)
    play(theirs, number, missing=[gap])
    tolerance = 1e-4 if place == "box" else 0.0
    assert difference(ours.history.X, theirs.history.X) <= tolerance


@pytest.mark.one_in(9)
@pytest.mark.parametrize("memory", [None, "window", "prior"])
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("missing", [(), (5,)], ids=["whole", "with a gap"])
def test_a_loaded_and_a_replayed_bandit_go_on_alike(dictionary, memory, missing, tmp_path):
    words = {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES.get(memory)}
    # Of a function a file has no more than its name.
    words |= {"outcomes": [outcome(mean=0.2)], "constraints": [AtMost("heat", 0.6, "optimistic", beta=1.0)]}
    bandit = play(make(Arms(MANY), **words), 12, missing=missing)
    replayed = make(Arms(MANY), **words)
    replayed.replay(bandit.history)
    bandit.save(tmp_path / "it.kb")
    read = Bandit.load(tmp_path / "it.kb")
    assert shares(bandit) == shares(read) == shares(replayed) == (not missing)
    for other in (read, replayed):
        agree(belief_of(other), belief_of(bandit), probes(bandit), 1e-6)
        agree_on_residuals(*(each._standing.outcomes[0].residuals for each in (other, bandit)))
    for each in (bandit, read, replayed):
        play(each, 5, 12)
        assert torch.equal(each.history.X, bandit.history.X)


def test_a_state_saved_with_another_dictionary_of_the_outcome_keeps_it():
    bandit = play(make(Arms(MANY), dictionary=DICTIONARIES["fresh"]), 12)
    state, loaded = bandit.state_dict(), make(Arms(MANY), dictionary=DICTIONARIES["fresh"])
    own = state["outcomes"][0]
    own["inducing_points"] = own["inducing_points"][1:]
    if own["dictionary_weights"] is not None:
        own["dictionary_weights"] = own["dictionary_weights"][1:]
    loaded.load_state_dict(state)
    assert not shares(loaded)
    assert torch.equal(belief_of(loaded).inducing_points, own["inducing_points"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("memory", [None, "window", "discount"])
def test_a_look_into_the_future_changes_nothing_and_what_is_told_no_older_belief(dictionary, memory):
    words = {"dictionary": DICTIONARIES[dictionary], "memory": MEMORIES.get(memory)}
    bandit, twin = make(Arms(MANY), **words), alone(Arms(MANY), **words)

    def tell(rows):
        for row in rows:
            X, when = MANY[row : row + 1], {} if memory is None else {"time": float(row)}
            bandit.tell(X, 0.3, outcomes={"heat": heat(X)}, **when)
            if row < 8:
                twin.tell(X, heat(X), **when)

    tell(range(8))
    known = belief_of(bandit)
    if memory is not None:
        bandit.ask(time=40.0, remember=False)
        assert belief_of(bandit) is known
    tell(range(8, 11))
    older = twin._standing.told.at(8.0)
    agree(known.at(8.0), older, PROBES)
    ours, theirs = (each.lookahead(PROBES[:0]).offered(None) for each in (known.at(8.0), older))
    assert difference(ours.mean, theirs.mean) < 1e-7
    assert difference(ours.variance, theirs.variance) < 1e-7


@pytest.mark.parametrize("kind", CANDIDATES)
def test_a_play_that_failed_ends_it_and_a_later_restart_does_not_bring_it_back(kind):
    bandit = play(make(kind, memory=KeepAll()), 4)
    x, joint, words = asked(bandit, 4)
    bandit.tell(x, failed=True, outcomes={"heat": heat(joint)}, **words)
    assert not shares(bandit)
    assert belief_of(bandit).num_observations == 5
    bandit.restart()
    play(bandit, 2, 5)
    assert not shares(bandit)


def test_a_restart_keeps_it():
    bandit = play(make(Arms(MANY)), 6)
    bandit.restart()
    assert shares(bandit)
    assert belief_of(bandit).num_observations == 0
    assert difference(belief_of(bandit).moments(PROBES)[0], heat_mean(PROBES)) < 1e-12
    twin = play(alone(Arms(MANY)), 0)
    play(bandit, 5, 6, twin=twin)
    agree(belief_of(bandit), twin._standing.told, PROBES)


def other_kernel():
    kernel = matern()
    kernel.base_kernel.nu = 1.5
    return kernel


@pytest.mark.parametrize(
    "words",
    [
        {"outcomes": [outcome(regularization=float(np.nextafter(LAMBDA, 1.0)))]},
        {"outcomes": [outcome(kernel=rbf())]},
        {"outcomes": [outcome(kernel=matern(0.5000001))]},
        {"outcomes": [outcome(kernel=other_kernel())]},
        {"outcomes": [outcome(floor=-3.0)]},
        {"outcomes": [Outcome("heat", LearnedPrior(num_initial=4))]},
        {"outcomes": [Outcome("heat", outcome().prior, memory=SlidingWindow(4.0))]},
        {"outcomes": [outcome()], "batches": GlobalBatchRule(50.0)},
        {"outcomes": [outcome()], "prior": LearnedPrior(num_initial=4), "kernel": None, "regularization": None},
    ],
    ids=["λ", "kernel", "number of the kernel", "setting of it", "floor", "learned", "memory", "batches", "reward's"],
)
def test_under_other_assumptions_it_has_a_posterior_of_its_own(words):
    bandit = play(make(Arms(MANY[:30]), **({"dictionary": DICTIONARIES["fresh"]} | words)), 3)
    assert not shares(bandit)
    assert belief_of(bandit).num_observations > 0
    replayed = make(Arms(MANY[:30]), **({"dictionary": DICTIONARIES["fresh"]} | words))
    replayed.replay(bandit.history)
    assert difference(*(belief_of(each).moments(PROBES)[0] for each in (bandit, replayed))) < 1e-7


class Noted(type(rbf())):
    """A kernel that notes how many values were asked of it."""

    values = 0

    def forward(self, x1, x2, diag=False, **words):
        type(self).values += x1.shape[-2] * (1 if diag else x2.shape[-2])
        return super().forward(x1, x2, diag=diag, **words)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dictionary", ["exact", "fresh", "kors"])
@pytest.mark.parametrize("place", ["arms", "box", "actions in a context"])
def test_no_kernel_value_is_computed_for_more_outcomes(place, dictionary, monkeypatch):
    """Not even where all means are read: limits that allow everything are kept."""
    kernel, tables, values = Noted().double(), [], []
    start = FeatureTable.__init__

    def noted(self, *args, **words):
        tables.append(self)
        start(self, *args, **words)

    monkeypatch.setattr(FeatureTable, "__init__", noted)
    for number in (1, 3):
        limits = [AtMost(outcome(str(each), kernel=kernel), 99.0, "optimistic") for each in range(number)]
        words = {"outcomes": (), "constraints": limits, "dictionary": DICTIONARIES[dictionary], "kernel": kernel}
        bandit = make(PLACES[place](), **words)
        assert all(shares(bandit, each) for each in range(number))
        play(bandit, 1)
        tables.clear()
        Noted.values = 0
        play(bandit, 3 if place == "box" else 8, 1)
        values.append(Noted.values)
        assert not tables
    assert values[0] == values[1] > 0


def test_a_round_costs_an_outcome_one_solve(monkeypatch):
    """That of its prediction, which is judged before anything is told; what is asked again is remembered."""
    bandit, solved = make(Arms(MANY), outcomes=[outcome("heat"), outcome("cost")]), []
    weights_of = FeatureTable.weights_of
    monkeypatch.setattr(FeatureTable, "weights_of", lambda *args: solved.append(1) or weights_of(*args))
    play(bandit, 4)
    assert len(solved) == 8
    for _ in range(3):
        belief_of(bandit).moments(PROBES)
    assert len(solved) == 9

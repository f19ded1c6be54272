"""The posterior under a dictionary that only grows, against Proposition 4.2 of Zenati et al. computed densely."""

import extended
import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, KERNELS, as_told, data, dense, difference, rbf, reward

from torch_kbandits import KORS, CappedDictionary, ContextualActions, DictionaryFullError, algorithms
from torch_kbandits.beliefs import FeatureTable, Terms, belief_over
from torch_kbandits.dictionaries import Selection
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.tables import played, store

LAMBDA = 0.1
SAMPLING = KORS(0.3)
ACTIONS = torch.linspace(0.0, 1.0, 6, dtype=DOUBLE).unsqueeze(-1)
TEST_POINTS = data(40, 3, seed=9)[0]
SUMS = ("effective_dimension", "information_gain", "mean_norm")


def make(dim=3, kernel=None, row_memory=2**30, dtype=DOUBLE, noise=LAMBDA):
    candidates = ContextualActions(action_dim=dim, context_dim=0, row_memory=row_memory, dtype=dtype)
    return belief_over(candidates, Terms(kernel or rbf(0.6), noise, 0, exact=False, online=True))


def learn(belief, X, Y, rule=SAMPLING, first=0):
    """Tell rewards one at a time."""
    for number in range(len(X)):
        generator = torch.Generator().manual_seed(first + number)
        belief = belief.learned(as_told(X[number : number + 1], Y[number : number + 1]), rule, generator)
    return belief


def errors(belief, expected, T):
    """The largest difference of each quantity from the dense one."""
    at = belief.joint.embed(T)
    scalars = [belief.effective_dimension(), belief.information_gain(), belief.mean_norm()]
    return {
        "mean": difference(belief.joint.mean_at(at), expected.mean.astype(float)),
        "variance": difference(belief.joint.variance_at(at), expected.variance.astype(float)),
        "covariance": difference(belief.joint.covariance_at(at, at), expected.covariance.astype(float)),
    } | {name: abs(float(ours) - getattr(expected, name)) for name, ours in zip(SUMS, scalars, strict=True)}


def shares(found, expected):
    """Errors of sums over the points relative to them, the others as they are."""
    return {name: error / max(1.0, getattr(expected, name)) if name in SUMS else error for name, error in found.items()}


def assert_near(belief, X, Y, kernel):
    expected = extended.dtc(kernel, *dense(X, Y), LAMBDA, *dense(belief.inducing_points, TEST_POINTS))
    found = shares(errors(belief, expected, TEST_POINTS), expected)
    assert max(found.values()) < expected.rounding, found


def same(belief, other, tolerance):
    """Whether two posteriors are one to rounding, on one dictionary with one memory."""
    ours, theirs = belief.joint.embed(TEST_POINTS), other.joint.embed(TEST_POINTS)
    return (
        torch.equal(belief.inducing_points, other.inducing_points)
        and difference(belief.dictionary_weights, other.dictionary_weights) < tolerance
        and difference(belief.joint.mean_at(ours), other.joint.mean_at(theirs)) < tolerance
        and difference(belief.joint.variance_at(ours), other.joint.variance_at(theirs)) < tolerance
        and difference(belief.joint.covariance_at(ours, ours), other.joint.covariance_at(theirs, theirs)) < tolerance
        and torch.equal(belief.recommend(), other.recommend())
        and all(
            abs(float(getattr(belief, name)() - getattr(other, name)())) < tolerance for name in (*SUMS, "kernel_bound")
        )
    )


# ---------------------------------------------------------------- the formula


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["matern", "rbf", "scaled rbf"])
def test_the_posterior_is_that_of_the_proposition(name, monkeypatch):
    """At every stage, over refreshed inverses, with points told one at a time, in pairs and all at once."""
    monkeypatch.setattr(FeatureTable, "CHECK", 90)
    X, Y = data(270, 3)
    Y, pair = Y.squeeze(-1), KERNELS[name]
    belief = make(kernel=pair.make())
    told = 0
    for stage, size in ((1, 1), (2, 1), (5, 1), (40, 1), (41, 1), (60, 2), (150, 1), (270, 120)):
        while told < stage:
            generator = torch.Generator().manual_seed(told)
            belief = belief.learned(as_told(X[told : told + size], Y[told : told + size]), KORS(0.3), generator)
            told += size
        told = min(told, len(X))
        assert belief.num_observations == told
        assert_near(belief, X[:told], Y[:told], pair.dense)
    assert 40 < len(belief.inducing_points) < 135
    best = extended.dtc(pair.dense, *dense(X, Y), LAMBDA, *dense(belief.inducing_points, X[:100])).mean.argmax()
    means = belief.joint.mean_at(belief.joint.embed(X))
    assert torch.equal(belief.recommend(), X[means.argmax(), None])
    assert float(means.max()) >= float(means[best])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matern", "rbf"])
def test_five_thousand_rounds_leave_no_drift(name):
    X, Y = data(5_000, 3)
    Y, pair = Y.squeeze(-1), KERNELS[name]
    belief = learn(make(kernel=pair.make()), X, Y)
    assert_near(belief, X, Y, pair.dense)


def test_a_repeated_point_counts_each_time():
    X, Y = data(12, 3)
    X, Y = X.repeat(8, 1), torch.cat([Y.squeeze(-1) + shift for shift in torch.linspace(-1.0, 1.0, 8).double()])
    belief = learn(make(), X, Y, KORS(3.0))
    assert len(belief.inducing_points) <= 12
    assert_near(belief, X, Y, oracles.rbf(0.6))


# ---------------------------------------------------------------- points that are nearly one


@pytest.mark.one_in(4)
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-5, 1e-6])
def test_nearly_equal_points_do_no_more_harm_than_rounding_must(gap):
    """Half of the points are neighbours of others. Below 1e-8 a neighbour is spanned to rounding and brings nothing."""
    X, Y = data(40, 3)
    X = torch.cat([X[:20], X[:20] + gap * data(20, 3, seed=5)[0]])[torch.randperm(40)]
    Y, noise = Y.squeeze(-1), 0.01
    belief = learn(make(noise=noise), X, Y, KORS(1e6))
    kernel = oracles.rbf(0.6)
    arrays = (*dense(X, Y), noise, *dense(belief.inducing_points, TEST_POINTS))
    assert len(belief.inducing_points) > 33
    truth, at = extended.dtc(kernel, *arrays), belief.joint.embed(TEST_POINTS)
    for name, ours in (("mean", belief.joint.mean_at(at)), ("variance", belief.joint.variance_at(at))):
        # Points that all join leave nothing for the worst case, in which what L and M magnify is multiplied.
        assert difference(ours, getattr(truth, name).astype(float)) < 0.003 * truth.rounding


def test_points_that_are_one_to_rounding_span_once():
    """Six points, each with four neighbours at 1e-13: the exact posterior treats each five as one."""
    base, Y = data(6, 3)
    X = base.repeat(5, 1) + 1e-13 * data(30, 3, seed=4)[0]
    Y = Y.squeeze(-1).repeat(5) + 0.1 * torch.arange(30) / 30
    belief = learn(make(), X, Y, KORS(1e6))
    assert_near_exact = oracles.exact(oracles.rbf(0.6), *dense(X, Y), np.full(30, LAMBDA), TEST_POINTS.numpy())
    at = belief.joint.embed(TEST_POINTS)
    assert difference(belief.joint.mean_at(at), assert_near_exact.mean) < assert_near_exact.rounding
    assert difference(belief.joint.variance_at(at), assert_near_exact.variance) < assert_near_exact.rounding


# ---------------------------------------------------------------- single precision


@pytest.mark.one_in(2)
@pytest.mark.parametrize("row_memory", [2**30, 0])
def test_single_precision_is_as_near_as_its_kernel_values(row_memory):
    X, Y = data(150, 3)
    belief = make(kernel=rbf(0.6).float(), dtype=torch.float32, row_memory=row_memory)
    belief = learn(belief, X.float(), Y.squeeze(-1).float())
    X, Y, T = X.float(), Y.squeeze(-1).float(), TEST_POINTS.float()
    expected = extended.dtc(oracles.rbf(0.6), *dense(X, Y), LAMBDA, *dense(belief.inducing_points, T))
    found = errors(belief, expected, T)
    # A rounding ε of the kernel moves V / λ by ε n / λ, about 2e-4 here, relative to what is summed.
    bound = 150 * torch.finfo(torch.float32).eps / LAMBDA
    assert max(shares(found, expected).values()) < 2.0 * bound, found
    assert belief.effective_dimension().dtype == torch.float32
    assert belief.recommend().dtype == torch.float32


# ---------------------------------------------------------------- what is done late


@pytest.mark.one_in(2)
@pytest.mark.parametrize("row_memory", [2**30, 0])
def test_whenever_played_points_are_asked_about_they_are_up_to_date(row_memory, monkeypatch):
    """In some rounds, after stretches of few rewards and of so many that all is computed afresh."""
    monkeypatch.setattr(played, "_LONGEST", 12)
    X, Y = data(130, 3)
    Y, belief = Y.squeeze(-1), make(row_memory=row_memory)
    for number, asked in enumerate(np.random.default_rng(0).random(130) < 0.15):
        belief = learn(belief, X[number, None], Y[number, None], first=number)
        if not asked and number not in (100, 101, 129):
            continue
        told = X[: number + 1]
        inputs = dense(told, Y[: number + 1])
        expected = extended.dtc(oracles.rbf(0.6), *inputs, LAMBDA, *dense(belief.inducing_points, told))
        variance, mean = belief._table._played_variance, belief._table._played_mean
        assert difference(variance, expected.variance.astype(float)) < expected.rounding
        assert difference(mean, expected.mean.astype(float)) < expected.rounding
        assert torch.equal(belief.recommend(), told[mean.argmax(), None])
        assert float(belief.effective_dimension()) == pytest.approx(float(variance.sum()) / LAMBDA, rel=1e-9)


# ---------------------------------------------------------------- memory and saving


@pytest.mark.one_in(2)
@pytest.mark.parametrize("row_memory", [pytest.param(0, marks=pytest.mark.slow), 8 * 10 * 40, 8 * 25 * 60])
def test_features_need_not_be_kept(row_memory, monkeypatch):
    """Kept throughout, never, or until the budget is exceeded; blocks of 16 so that several are computed."""
    monkeypatch.setattr(store, "_CACHED", 16)
    X, Y = data(120, 3)
    Y = Y.squeeze(-1)
    kept, short = make(), make(row_memory=row_memory)
    for start in range(0, 120, 20):
        part = slice(start, start + 20)
        kept = learn(kept, X[part], Y[part], first=start)
        short = learn(short, X[part], Y[part], first=start)
        assert same(short, kept, 1e-9)
    assert kept._table._played.store is not None
    assert short._table._played.store is None


def test_the_budget_of_features_holds_while_the_dictionary_stays():
    X, Y = data(80, 3)
    belief = make(row_memory=8 * 40)
    belief = belief.learned(as_told(X[:1], Y[0]), KORS(0.3), torch.Generator())
    rule = CappedDictionary(KORS(0.3), 1, "stop")
    for number in range(1, 80):
        belief = belief.learned(as_told(X[number : number + 1], Y[number]), rule, torch.Generator())
        store = belief._table._played.store
        assert (number < 40) == (store is not None)
    assert_near(belief, X, Y.squeeze(-1), oracles.rbf(0.6))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("row_memory", [2**30, 0])
def test_a_restored_belief_is_the_one_that_learned(row_memory):
    X, Y = data(100, 3)
    Y = Y.squeeze(-1)
    belief = learn(make(), X[:80], Y[:80])
    restored = make(row_memory=row_memory)
    Z = belief.inducing_points
    restored = restored.restored(
        as_told(X[:80], Y[:80]), Selection(Z, Z.new_ones(len(Z)), None, belief.dictionary_weights)
    )
    assert same(restored, belief, 1e-8)
    assert restored.num_observations == 80
    belief, restored = (learn(each, X[80:], Y[80:], first=80) for each in (belief, restored))
    assert same(restored, belief, 1e-8)
    assert len(belief.inducing_points) > len(Z)


def test_a_log_told_at_once_costs_no_gram_matrix_of_its_points(monkeypatch):
    """The rows of n rewards that are followed one by one would take a matrix of n × n."""
    monkeypatch.setattr(OnlineDTC, "observed", lambda *_: pytest.fail("the rewards were followed one by one"))
    X, Y = data(500, 3)
    belief = make()
    belief = belief.learned(as_told(X, Y.squeeze(-1)), KORS(0.3), torch.Generator().manual_seed(0))
    assert_near(belief, X, Y.squeeze(-1), oracles.rbf(0.6))


# ---------------------------------------------------------------- the cap


def test_a_full_dictionary_is_exchanged_and_the_posterior_follows():
    X, Y = data(80, 3)
    Y = Y.squeeze(-1)
    rule = CappedDictionary(KORS(3.0), 12, "stop")
    belief, free = learn(make(), X, Y, rule), learn(make(), X[:24], Y[:24], KORS(3.0))
    full, first = dense(belief.inducing_points, free.inducing_points[:12])
    gram = oracles.rbf(0.6)
    assert np.linalg.slogdet(gram(full, full))[1] > np.linalg.slogdet(gram(first, first))[1] + np.log(1.1)
    assert len(free.inducing_points) > 12
    assert_near(belief, X, Y, oracles.rbf(0.6))
    batch = make()
    batch = batch.learned(as_told(X, Y), rule, torch.Generator().manual_seed(0))
    assert len(batch.inducing_points) == 12
    assert_near(batch, X, Y, oracles.rbf(0.6))


def test_a_cap_that_refuses_leaves_everything_as_it_was():
    X, Y = data(60, 3)
    Y = Y.squeeze(-1)
    rule = CappedDictionary(KORS(1e6), 20, "raise")
    belief, twin = learn(make(), X[:20], Y[:20], rule), learn(make(), X[:20], Y[:20], rule)
    for number in (1, 5, 40):
        with pytest.raises(DictionaryFullError):
            belief = belief.learned(as_told(X[20 : 20 + number], Y[20 : 20 + number]), rule, torch.Generator())
        assert same(belief, twin, 1e-15)
        assert belief.num_observations == 20


# ---------------------------------------------------------------- a linear kernel has few directions


def test_a_dictionary_of_more_points_than_directions():
    """Three directions, and a first point of no variance at all; the oracle works in the weights of the kernel."""
    X, Y = data(24, 3)
    X[0] = 0.0
    Y = Y.squeeze(-1)
    belief = learn(make(kernel=KERNELS["linear"].make()), X, Y, KORS(1e6))
    features, at = np.sqrt(0.8) * X.numpy(), np.sqrt(0.8) * TEST_POINTS.numpy()
    precision = features.T @ features / LAMBDA + np.eye(3)
    weights = np.linalg.solve(precision, features.T @ Y.numpy() / LAMBDA)
    embedded = belief.joint.embed(TEST_POINTS)
    assert difference(belief.joint.mean_at(embedded), at @ weights) < 1e-8
    assert difference(belief.joint.variance_at(embedded), (at * np.linalg.solve(precision, at.T).T).sum(1)) < 1e-8
    assert float(belief.mean_norm()) == pytest.approx(np.linalg.norm(weights), abs=1e-8)
    assert float(belief.information_gain()) == pytest.approx(0.5 * np.linalg.slogdet(precision)[1], abs=1e-8)


# ---------------------------------------------------------------- batches under incremental updates


def batched(**settings):
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "beta": 1.5, "seed": 0, "batch_threshold": 2.5}
    return algorithms.build("ek-ucb", candidates=ContextualActions(ACTIONS, context_dim=2), **(words | settings))


def test_means_and_dictionary_stay_within_a_batch():
    contexts = data(200, 2, seed=1)[0]
    bandit = batched()
    lengths, number = [], 0
    for _ in range(8):
        T = TEST_POINTS
        means, dictionary = bandit._belief.joint.mean_at(bandit._belief.joint.embed(T)).clone(), bandit.inducing_points
        total, length = 0.0, 0
        while True:
            x = bandit.ask(context=contexts[number])
            point = torch.cat([contexts[number, None], x], dim=-1)
            total += float(bandit._belief.joint.variance_at(bandit._belief.joint.embed(point))) / LAMBDA
            bandit.tell(x, reward(point), context=contexts[number])
            number, length = number + 1, length + 1
            if 1.0 + total > 2.5:
                break
            assert torch.equal(bandit._belief.joint.mean_at(bandit._belief.joint.embed(T)), means)
            assert torch.equal(bandit.inducing_points, dictionary)
        assert bandit._belief.num_observations == number
        lengths.append(length)
    assert lengths[-1] > lengths[0]
    history = bandit.history
    assert_near(bandit._belief, history.X, history.Y, oracles.rbf(0.6))


def test_a_batch_told_in_other_pieces_ends_in_the_same_state():
    contexts = data(200, 2, seed=1)[0]
    single, grouped, at_once = batched(), batched(), batched()
    number = 0
    for _ in range(6):
        C, asked = [], []
        while True:
            context = contexts[number]
            x = single.ask(context=context)
            for other in (grouped, at_once):
                assert torch.equal(other.ask(context=context), x)
            C, asked, number = [*C, context], [*asked, x], number + 1
            ahead = single._ahead_of(single._standing)
            if 1.0 + float(ahead.pending_scores().sum()) > 2.5:
                break
        C, X = torch.stack(C), torch.cat(asked)
        Y = reward(torch.cat([C, X], dim=-1))
        for row in range(len(X)):
            single.tell(X[row, None], Y[row, None], context=C[row])
        half = max(1, len(X) // 2)
        for part in (slice(0, half), slice(half, None)):
            if len(X[part]):
                grouped.tell(X[part], Y[part], context=C[part])
        at_once.tell(X, Y, context=C)
        assert single._belief.num_observations == number
        for other in (grouped, at_once):
            assert same(other._belief, single._belief, 1e-10)

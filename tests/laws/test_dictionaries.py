"""Dictionaries: non-empty, members of the history, deterministic, drawn with the stated probabilities, and capped."""

import warnings
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from botorch.models import SingleTaskVariationalGP
from hypothesis import given
from kinds import same
from problems import DOUBLE, KERNELS, data, dense, rbf, reward, seeded

import torch_kbandits as kb
from torch_kbandits.dictionaries import KORS, DictionaryRule, PlayedPoints, Selection, theoretical_oversampling
from torch_kbandits.errors import KernelBanditError, KernelBanditWarning

LAMBDA = 0.05
RULES = {
    "ridge leverage": kb.RidgeLeverageSampling(1.5),
    "coupled": kb.RidgeLeverageSampling(1.5, "coupled"),
    "growing": kb.RidgeLeverageSampling(1.5, "growth"),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(1.5), 8, "stop"),
    "kors": KORS(1.5),
    "k-dpp": kb.KDPP(5),
    "greedy": kb.GreedyDictionary(5),
    "uniform": kb.UniformDictionary(5),
}


def played(X, *, kernel="matern", counts=None, scores=None, held=None, new=None):
    counts = torch.ones(len(X), dtype=DOUBLE) if counts is None else counts
    noise = torch.tensor(LAMBDA, dtype=DOUBLE)
    return PlayedPoints(X, KERNELS[kernel].make().requires_grad_(False), noise, counts, scores, held, new)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", sorted(RULES))
@given(n=st.integers(1, 15), copies=st.integers(0, 5), seed=st.integers(0, 10_000))
def test_non_empty_members_of_the_history_and_deterministic(name, n, copies, seed):
    X, _ = data(n, 2, seed)
    X = torch.cat([X, X[:1].expand(copies, -1)])
    first, again = (RULES[name].select(played(X), seeded(seed, 0)) for _ in range(2))
    assert len(first.points) >= 1
    assert torch.equal(first.points, X[first.indices])
    assert torch.equal(first.indices, first.indices.unique())
    assert bool(((first.probabilities > 0.0) & (first.probabilities <= 1.0)).all())
    assert torch.equal(first.indices, again.indices)


def test_estimated_scores_of_many_points_are_close_to_the_exact_ones():
    """Beyond 256 points within the factor that an accurate dictionary allows, 3 for ε = 1/2; exact up to there."""
    X, _ = data(400, 2)
    K = KERNELS["matern"].dense(*dense(X, X))
    exact = np.diag(np.linalg.solve(K + LAMBDA * np.eye(400), K))
    estimated = kb.RidgeLeverageSampling(5.0).probabilities(played(X), seeded(0, 0)) / 5.0
    unclipped = estimated < 0.2
    ratio = estimated[unclipped].numpy() / exact[unclipped.numpy()]
    assert (ratio > 1.0 / 3.0).all()
    assert (ratio < 3.0).all()


def test_greedy_takes_the_largest_schur_complement_each_time():
    X, _ = data(25, 2)
    K = KERNELS["matern"].dense(*dense(X, X))
    chosen = [0]
    for _ in range(7):
        rest = [i for i in range(25) if i not in chosen]
        block = K[np.ix_(chosen, chosen)]
        schur = [K[i, i] - K[i, chosen] @ np.linalg.solve(block, K[chosen, i]) for i in rest]
        chosen.append(rest[int(np.argmax(schur))])
    assert kb.GreedyDictionary(8).select(played(X)).indices.tolist() == sorted(chosen)
    X, _ = data(4, 2)  # it stops when everything is explained
    assert len(kb.GreedyDictionary(10).select(played(X.repeat(3, 1))).points) == 4


def test_uniform_draws_every_point_equally_often():
    """1,000 draws of 4 of 10, all different; frequencies within 4.5 standard errors of 0.4: false alarms below 1e-4."""
    points, hits = played(data(10, 2)[0]), np.zeros(10)
    for number in range(1_000):
        hits[kb.UniformDictionary(4).select(points, seeded(2, number)).indices.numpy()] += 1
    assert hits.sum() == 4_000
    assert (np.abs(hits / 1_000 - 0.4) < 4.5 * np.sqrt(0.4 * 0.6 / 1_000)).all()


def test_fixed_points_stay():
    Z, _ = data(3, 2, seed=5)
    selection = kb.FixedDictionary(Z).select(played(data(9, 2)[0]))
    assert torch.equal(selection.points, Z)
    assert selection.indices is None
    X, Y = data(9, 2)
    model = kb.NystromGP(X, Y, dictionary=kb.FixedDictionary(Z), covar_module=rbf(), regularization=LAMBDA)
    assert torch.equal(model.inducing_points, Z)
    with pytest.raises(kb.InputError, match="3 points and 4"):
        kb.FixedDictionary(Z).allocate_inducing_points(X, rbf(), 4, torch.Size())
    with pytest.raises(kb.InputError, match="d = 2 columns"):
        kb.FixedDictionary(data(3, 4)[0]).select(played(X))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("rule", "num_outputs"),
    [*product(RULES.values(), [1]), *product([kb.FixedDictionary(data(6, 2, seed=5)[0]), RULES["greedy"]], [1, 2])],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_every_rule_is_a_botorch_allocator(rule, num_outputs):
    X, Y = data(20, 2)
    model = SingleTaskVariationalGP(
        X,
        Y.expand(-1, num_outputs),
        num_outputs=num_outputs,
        inducing_points=6,
        inducing_point_allocator=rule,
        learn_inducing_points=False,
        covar_module=rbf(),
        outcome_transform=None,
    )
    strategy = model.model.variational_strategy
    Z = (strategy.base_variational_strategy if num_outputs > 1 else strategy).inducing_points
    assert Z.shape[-2:] == (6, 2)
    assert bool(torch.isfinite(model.posterior(X).mean).all())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", RULES.values(), ids=repr)
def test_batches_and_outputs_share_rows(rule):
    X = torch.stack([data(15, 2, seed)[0] for seed in range(3)])
    Z = rule.allocate_inducing_points(X, rbf(), 4, torch.Size([3]))
    assert Z.shape == (3, 4, 2)
    rows = [(X[b, :, None] == Z[b]).all(-1).nonzero()[:, 0] for b in range(3)]
    assert all(torch.equal(rows[0], other) for other in rows)
    Y = torch.stack([data(15, 2, seed)[1] for seed in range(3)]).expand(3, 15, 2)
    model = kb.NystromGP(X, Y, dictionary=rule, regularization=LAMBDA, covar_module=rbf())
    assert model.inducing_points.shape[0] == 3
    assert model.posterior(X).mean.shape == (3, 15, 2)


def test_theoretical_oversampling_equals_its_formula():
    # α = 3, ε² = 1/4: 6 · 3 · ln(4 · 1000 / 0.1) / 0.25 = 72 ln 40000
    assert theoretical_oversampling(0.1, 1000) == pytest.approx(72.0 * np.log(40_000.0))


def test_bad_settings_are_named():
    for make, message in (
        (lambda: kb.FixedDictionary(torch.empty(0, 2)), "n >= 1"),
        *(
            (lambda r=rule: r.select(played(torch.empty(0, 2, dtype=DOUBLE))), "nothing was played")
            for rule in RULES.values()
        ),
    ):
        with pytest.raises(KernelBanditError, match=message):
            make()


# ---------------------------------------------------------------- a cap

ARMS = data(60, 2)[0]


class Wants(DictionaryRule):
    def __init__(self, rows, probabilities):
        self.wanted = torch.tensor(rows), torch.tensor(probabilities, dtype=DOUBLE)

    def select(self, played, generator=None):
        return Selection.rows(played, *self.wanted)


def held_among(n, in_dictionary=()):
    """Points played, of which some are in the dictionary, and none is offered in exchange."""
    counts, held = 1.0 + torch.arange(n, dtype=DOUBLE) % 3, torch.tensor([row in in_dictionary for row in range(n)])
    scores, new = torch.linspace(0.1, 0.9, n, dtype=DOUBLE), torch.zeros(n, dtype=DOUBLE)
    return played(data(n, 2)[0], counts=counts, scores=scores, held=held, new=new)


def bkb(name="bkb", **settings):
    words = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": 0.01, "beta": 1.5, "seed": 3}
    return kb.algorithms.build(name, **words | settings)


def sizes_of(bandit, rounds):
    sizes = []
    for _ in range(rounds):
        X = bandit.ask()
        bandit.tell(X, reward(X))
        sizes.append(len(bandit.inducing_points))
    return sizes


@given(
    n=st.integers(1, 40), cap=st.integers(1, 20), held=st.sets(st.integers(0, 39)), seed=st.integers(0, 10_000),
    resampling=st.sampled_from(["fresh", "coupled", "growth"]),
)  # fmt: skip
def test_a_cap_keeps_the_foremost_of_what_is_wanted_and_nothing_else(n, cap, held, seed, resampling):
    rule, points = kb.RidgeLeverageSampling(1.5, resampling), held_among(n, held)
    wanted = rule.select(points, seeded(seed, 0))
    ours = kb.CappedDictionary(rule, cap, "stop").select(points, seeded(seed, 0))
    probability = dict(zip(wanted.indices.tolist(), wanted.probabilities.tolist(), strict=True))
    order = sorted(probability, key=lambda row: (row not in held, -probability[row], row))
    assert ours.indices.tolist() == sorted(order[:cap])
    assert ours.probabilities.tolist() == [probability[row] for row in ours.indices.tolist()]


def test_points_that_were_not_played_are_cut_as_well_and_what_is_there_and_not_wanted_does_not_stay():
    rule = Wants([7, 2, 3, 6], [0.1, 0.5, 0.9, 0.7])
    assert kb.CappedDictionary(rule, 2, "stop").select(held_among(8, [0, 4])).indices.tolist() == [3, 6]
    Z = data(6, 2, seed=5)[0]
    selection = kb.CappedDictionary(kb.FixedDictionary(Z), 4, "stop").select(held_among(9, [1]))
    assert torch.equal(selection.points, Z[:4])
    assert selection.indices is None


def test_stop_says_nothing_warn_says_it_once_and_raise_refuses():
    wants, points = Wants([0, 1, 2], [1.0, 1.0, 1.0]), held_among(5)
    message = "3 points were wanted and the cap is 2.*Raise the cap"
    kb.CappedDictionary(wants, 2, "stop").select(points)  # any warning is an error
    for _ in range(2):  # once for each object, however equal they are
        rule = kb.CappedDictionary(wants, 2)
        for _ in range(2):  # a warning that is made an error is not one that was said
            with pytest.raises(KernelBanditWarning, match=message):
                rule.select(points)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [len(rule.select(points).points) for _ in range(3)] == [2] * 3
        assert [warning.category for warning in caught] == [KernelBanditWarning]
    with pytest.raises(kb.DictionaryFullError, match=message) as error:
        kb.CappedDictionary(wants, 2, "raise").select(points)
    assert isinstance(error.value, (kb.KernelBanditError, RuntimeError))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("resampling", ["fresh", "coupled", "growth"])
@pytest.mark.parametrize("name", ["bkb", "bbkb"])
def test_a_bandit_keeps_to_its_cap_and_one_that_never_binds_changes_no_dictionary(name, resampling):
    words = {"resampling": resampling, "oversampling": 1.5}
    capped = bkb(name, max_dictionary=6, when_full="stop", **words)
    assert max(sizes_of(capped, 20)) == 6
    free, loose = bkb(name, **words), bkb(name, max_dictionary=1_000, when_full="raise", **words)
    for _ in range(20):
        X = free.ask()
        for each in (free, loose):
            each.tell(X, reward(X))
        assert torch.equal(loose.inducing_points, free.inducing_points)
    assert len(free.inducing_points) > 6


def test_a_bandit_warns_once_and_a_refusal_leaves_it_as_it_was():
    with pytest.warns(KernelBanditWarning, match="The dictionary is full") as caught:
        sizes_of(bkb(max_dictionary=5), 20)
    assert len(caught) == 1
    bandit = bkb(max_dictionary=4, when_full="raise", oversampling=1e6)
    sizes_of(bandit, 2)
    bandit.ask(2)
    X, before = torch.tensor([[0.1, 0.1], [0.9, 0.2], [0.5, 0.6]], dtype=DOUBLE), bandit.state_dict()  # no arms
    with pytest.raises(kb.DictionaryFullError, match="5 points were wanted and the cap is 4"):
        bandit.tell(X, reward(X))
    assert same(bandit.state_dict(), before)


def test_bad_caps_are_named():
    for settings, message in (
        ({"max_dictionary": 5, "when_full": "grow"}, 'when_full must be "stop" or "warn" or "raise"'),
        ({"when_full": "grow"}, "when_full"),
    ):
        with pytest.raises(kb.InputError, match=message):
            bkb("bbkb", **settings)

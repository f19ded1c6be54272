"""Arms split over shards: the arms and posteriors of one table, whatever happens to the workers. Here without Ray."""

from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import interrupts
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_workers import LocalWorkers, sharded
from problems import DOUBLE, dense, difference, linear, matern, play, rbf
from sharded_play import CUTS, noisy, rounds, some_arms

from torch_kbandits import ArmBlocks, Arms, ArmsChangedError, Bandit, InputError, LearnedPrior, MappedArms, algorithms
from torch_kbandits.acquisition import StagedRule, ThompsonRule, UpperConfidenceRule
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import KORS, FixedDictionary, RidgeLeverageSampling
from torch_kbandits.extras import MissingExtraError
from torch_kbandits.integrations.ray import ShardedArms, ShardLostError, actors, belief, table, workers
from torch_kbandits.integrations.ray.arms import split
from torch_kbandits.integrations.ray.questions import Best, LocalBest, overall_best, undominated
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.numerics.random import highest, tie_rank, tie_width
from torch_kbandits.tables import lazy

LAMBDA = 0.02


def make(candidates, name="bkb", seed=0, **settings):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "seed": seed}
    if name not in ("gp-ei", "gp-pi", "random"):
        words["beta"] = 2.0
    return algorithms.build(name, candidates=candidates, **(words | settings))


def assert_equal_posteriors(ours, theirs, tolerance=1e-10):
    assert difference(ours._belief.mean, theirs._belief.mean) < tolerance
    assert difference(ours._belief.variance, theirs._belief.variance) < tolerance
    assert torch.equal(ours.inducing_points, theirs.inducing_points)


def lost(bandit):
    """What rounding may take from an exact posterior of what was told."""
    X, Y = dense(bandit.history.X, bandit.history.Y)
    return oracles.exact(oracles.matern52(0.4, 1.7), X, Y, np.full(len(Y), LAMBDA), X).rounding


# ---------------------------------------------------------------- the same arms and posteriors


@pytest.mark.usefixtures("short_fits")
def test_a_prior_that_is_learned_plays_the_same_arms():
    arms = some_arms(40)
    both = [
        algorithms.BKB(candidates=each, prior=LearnedPrior(num_initial=5), resampling="coupled", seed=0)
        for each in (sharded(arms, 3), Arms(arms))
    ]
    for _ in range(12):
        x, other = (bandit.ask() for bandit in both)
        assert torch.equal(x, other)
        for bandit in both:
            bandit.tell(x, 40.0 + 3.0 * torch.sin(5.0 * x).sum(-1))
    assert both[0].prior.mean == pytest.approx(both[1].prior.mean)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("resampling", "numbers", "count"),
    [
        ("fresh", (1, 7), 8),
        ("coupled", (3,), 24),
        ("growth", (2,), 12),
        *(pytest.param(name, CUTS, 200, marks=pytest.mark.slow) for name in ("fresh", "coupled", "growth")),
    ],
    ids=lambda value: "" if isinstance(value, (tuple, dict)) else str(value),
)
def test_shards_choose_the_arms_of_one_table(resampling, numbers, count):
    arms = some_arms()
    bandits = [make(Arms(arms), resampling=resampling)]
    bandits += [make(sharded(arms, number, CUTS[number]), resampling=resampling) for number in numbers]
    for first in range(0, count, 4):
        rounds(bandits, 4, first)
        for bandit in bandits[1:]:
            assert_equal_posteriors(bandit, bandits[0])


def test_shards_of_a_full_dictionary_choose_the_arms_of_one_table():
    """Points are exchanged, and what is not spanned is learned, by each shard of its own arms."""
    arms = some_arms(120)
    bandits = [make(each, max_dictionary=5, when_full="stop") for each in (Arms(arms), sharded(arms, 3, [7, 90]))]
    rounds(bandits, 16)
    assert len(bandits[0].inducing_points) == 5
    assert all(bandit._belief.learns_residual for bandit in bandits)
    assert_equal_posteriors(bandits[1], bandits[0])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["bbkb", "gp-ei", "gp-pi", "gp-ucb", "mini-gp-ucb"])
def test_other_algorithms_on_shards(name):
    """An exact table of few arms has other formulas, so posteriors agree as far as these do."""
    arms = some_arms(120)
    bandits = [make(candidates, name) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 8)
    for bandit in bandits[1:]:
        assert_equal_posteriors(bandit, bandits[0], lost(bandit))


def test_shards_expect_what_one_table_expects():
    """Also a worker that is lost, and one that has forgotten."""
    arms = some_arms(120)
    words = {"memory": SlidingWindow(7), "mean": lambda X: 5.0 + 3.0 * torch.cos(4.0 * X).sum(-1)}
    bandits = [make(candidates, **words) for candidates in (Arms(arms), sharded(arms, 3, [7, 90]))]
    for first in range(0, 12, 4):
        rounds(bandits, 4, first)
        bandits[1].candidates.workers.lose(first // 4)
        assert difference(bandits[1]._belief.posterior.mean, bandits[0]._belief.posterior.mean) < 1e-9


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("dictionary", "memory"),
    [(KORS(2.0), SlidingWindow(7)), (None, None), (RidgeLeverageSampling(2.0), None), (KORS(2.0), None)],
    ids=["window", "exact", "fresh", "online"],
)
def test_draws_on_shards_are_those_of_one_table_of_arms_in_blocks(dictionary, memory):
    """With points pending, strangers, and a worker that is lost."""
    arms = some_arms(120)
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "seed": 0, "width": ConstantWidth(1.0)}
    words |= {"acquisition": ThompsonRule(), "dictionary": dictionary, "memory": memory}
    one_table = Arms(ArmBlocks(lambda number: arms[50 * number : 50 * number + 50], 3))
    bandits = [Bandit(candidates=each, **words) for each in (one_table, sharded(arms, 3, [7, 90]))]
    for first in range(0, 12, 4):
        rounds(bandits, 4, first)
        bandits[1].candidates.workers.lose(first // 4)
    assert len(bandits[1].history.X.unique(dim=0)) > 6  # draws, not the same arm again and again


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("dictionary", "memory"), [(KORS(2.0), SlidingWindow(7)), (None, None)], ids=["window", "exact"]
)
def test_stages_on_shards_choose_the_arms_of_one_table(dictionary, memory):
    """Workers hold one posterior at a time, which the stages have built in turns."""
    arms = some_arms(60)
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "seed": 0, "width": ConstantWidth(0.4)}
    words |= {"acquisition": StagedRule(60), "dictionary": dictionary, "memory": memory}
    bandits = [Bandit(candidates=each, **words) for each in (Arms(arms), sharded(arms, 2, [23]))]
    for first in range(0, 12, 4):
        rounds(bandits, 4, first)
        bandits[1].candidates.workers.lose(first // 4 % 2)
    assert torch.equal(bandits[0].history.stages, bandits[1].history.stages)
    assert len(bandits[0].history.stages.unique()) > 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["lb-gp-ucb", "pe-gp-ucb", "hp-gp-ts"])
def test_families_on_shards_choose_the_arms_of_one_table(name):
    """Workers hold one posterior at a time, which the hypotheses have built in turns."""
    arms = some_arms(60)
    one_table = Arms(ArmBlocks(lambda number: arms[20 * number : 20 * number + 20], 3))
    words = {"kernels": (matern(0.8), matern(0.2)), "dictionary": KORS(2.0)}
    bandits = [make(each, name, **words) for each in (one_table, sharded(arms, 2, [23]))]
    for first in range(0, 12, 4):
        rounds(bandits, 4, first)
        bandits[1].candidates.workers.lose(first // 4 % 2)
    assert torch.equal(bandits[0].history.stages, bandits[1].history.stages)
    assert len(bandits[0].history.stages.unique()) > 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("exact", [True, False])
def test_a_draw_in_single_precision_is_one_function_on_all_shards_also_on_one_started_anew(exact):
    arms = some_arms().float()
    words = {"kernel": rbf(0.5).float(), "regularization": LAMBDA, "seed": 0, "width": ConstantWidth(1.0)}
    rule = None if exact else FixedDictionary(arms[::13])
    bandit = Bandit(candidates=sharded(arms, 2, [60]), acquisition=ThompsonRule(), dictionary=rule, **words)
    for X in arms[:20].split(1):
        bandit.tell(X, noisy(X, 0))
        bandit.ask(remember=False)
    first = deviations(bandit)
    bandit.candidates.workers.lose(1)
    bandit.ask(remember=False)
    # What of a played point other points do not span is within 1e-5 of its variance.
    assert difference(deviations(bandit), first) < 0.02
    assert float((first - deviations(bandit, 6)).abs().max()) > 0.3


def deviations(bandit, seed=5):
    """A draw of f − mean at the arms, (A,), as the shards have it."""
    shards = bandit.candidates.workers.living
    return torch.cat([shards[number]._standing.ahead.table.deviation(seed) for number in sorted(shards)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gp-ei", "gp-pi", "random"])
def test_two_hundred_rounds_of_other_rules_with_workers_lost(name):
    """On more arms than a covariance of all is kept for."""
    arms = some_arms(600)
    bandits = [make(candidates, name) for candidates in (Arms(arms), sharded(arms, 4))]
    for first in range(0, 200, 20):
        rounds(bandits, 20, first)
        bandits[1].candidates.workers.lose(first % 3)
    assert_equal_posteriors(bandits[1], bandits[0], lost(bandits[1]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("source", ["tensor", "file", "blocks"])
def test_random_search_asks_no_shard(source, tmp_path):
    arms = some_arms().float()
    np.save(tmp_path / "arms.npy", arms.numpy())
    blocks = arms.split(37)
    given = {
        "tensor": lambda: arms,
        "file": lambda: MappedArms(tmp_path / "arms.npy"),
        "blocks": lambda: ArmBlocks(blocks.__getitem__, len(blocks)),
    }[source]()
    kernel = matern(0.4).float()
    bandits = [make(candidates, "random", kernel=kernel) for candidates in (Arms(arms), sharded(given, 3))]
    workers = bandits[1].candidates.workers
    workers.sent.clear()
    rounds(bandits, 8)
    assert len(workers.sent) == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "settings"),
    [("bbkb", {}), ("bbkb", {"batch_rule": "local"}), ("mini-gp-ucb", {})],
    ids=["global", "local", "stay"],
)
def test_batches_that_a_rule_decides(name, settings):
    arms = some_arms(120)
    bandits = [make(candidates, name, **settings) for candidates in (Arms(arms), sharded(arms, 3))]
    for number in range(6):
        asked = [bandit.ask(None) for bandit in bandits]
        assert torch.equal(*asked), number
        for bandit, X in zip(bandits, asked, strict=True):
            bandit.tell(X, noisy(X, number))


def test_the_posterior_is_the_dense_one():
    arms = some_arms(90)
    bandit = make(sharded(arms, 4), kernel=rbf(0.4))
    rounds([bandit], 5, 4)
    X, Y, Z, T = dense(bandit.history.X, bandit.history.Y, bandit.inducing_points, arms)
    expected = oracles.dtc(oracles.rbf(0.4), X, Y, np.full(len(Y), LAMBDA), Z, T)
    assert difference(bandit._belief.mean, expected.mean) < expected.rounding
    assert difference(bandit._belief.variance, expected.variance) < expected.rounding


def test_a_dictionary_that_was_not_played_and_a_kernel_that_is_not_stationary():
    """The largest prior variance, on which ties depend, is that of another shard than the best arm's."""
    arms = some_arms(80) - 0.5
    words = {"kernel": linear(0.7), "regularization": LAMBDA, "seed": 3, "width": ConstantWidth(2.0)}
    rule = FixedDictionary(arms[::13] + 0.01)
    bandits = [Bandit(candidates=candidates, dictionary=rule, **words) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 8)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert float(bandits[1]._belief.kernel_bound()) == float(bandits[0]._belief.kernel_bound())


def test_single_precision():
    """Choices may differ by rounding; the posteriors of one history differ by no more than that."""
    arms = some_arms().float()
    single, ours = (make(candidates, kernel=matern(0.4).float()) for candidates in (Arms(arms), sharded(arms, 3)))
    X = arms[torch.randint(len(arms), (24,))]
    for number in range(0, 24, 3):
        for bandit in (single, ours):
            bandit.tell(X[number : number + 3], noisy(X[number : number + 3], number))
    assert ours.ask().dtype == torch.float32
    assert_equal_posteriors(ours, single, 1e-4)


def test_few_arms_are_looked_at(monkeypatch):
    for name, number in {"_WORTHWHILE": 0, "_FIRST": 3, "_LONGEST": 7, "_SHARE": 4}.items():
        monkeypatch.setattr(lazy, name, number)
    arms = some_arms(400)
    bandits = [make(candidates, resampling="growth") for candidates in (Arms(arms), sharded(arms, 3))]
    shares = []
    for number in range(12):
        X = [bandit.ask() for bandit in bandits]
        assert torch.equal(*X)
        shares.append(bandits[1].visited_share)
        for bandit in bandits:
            bandit.tell(X[0], noisy(X[0], number))
    assert min(shares) < 0.2
    assert max(shares) == 1.0


# ---------------------------------------------------------------- ties


@given(
    scores=st.lists(
        st.sampled_from([0.5, 1.0 - 9e-11, 1.0 - 6e-11, 1.0 - 4e-11, 1.0 - 3e-11, 1.0 - 1e-11, 1.0]),
        min_size=1,
        max_size=40,
    ),
    ranks=st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.9]), min_size=40, max_size=40),
    cuts=st.sets(st.integers(1, 39), max_size=6),
    size=st.integers(1, 4),
    beta=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_the_best_of_shards_in_groups_is_the_best_of_all(scores, ranks, cuts, size, beta):
    """Scores that are ties, up to 3.7e-11 below the best, or just not; ranks that are drawn twice."""
    scores, ranks = torch.tensor(scores, dtype=DOUBLE), torch.tensor(ranks[: len(scores)])
    beta, bound = torch.tensor(beta, dtype=DOUBLE), torch.tensor(1.0, dtype=DOUBLE)
    expected = highest(scores, ranks, tie_width(scores.max(), beta, bound))
    answers = []
    ends = [0, *sorted(cut for cut in cuts if cut < len(scores)), len(scores)]
    for start, stop in pairwise(ends):
        own = scores[start:stop]
        width = 2.0 * tie_width(own.max(), beta, bound)
        places = undominated(own, ranks[start:stop], width)
        number = (places + start).unsqueeze(-1).double().numpy()
        answers.append(LocalBest(own[places].numpy(), ranks[start:stop][places].numpy(), number, float(width), 0.0))
    best = Best(UpperConfidenceRule(), beta.numpy(), 0)
    groups = [answers[first : first + size] for first in range(0, len(answers), size)]
    merged = [best.merged(group) for group in groups]
    assert float(overall_best(best.merged(merged), beta, bound)) == expected


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_a_tie_depends_on_the_arms_of_all_shards(seed):
    """An arm of huge prior variance, in a shard of its own, makes differences of 1e-6 in the other a rounding."""
    arms = torch.tensor([[0.0, 1e6]] + [[1.0 + 1e-6 * number, 0.0] for number in range(20)], dtype=DOUBLE)
    bandits = [make(candidates, seed=seed, kernel=linear(0.7)) for candidates in (Arms(arms), sharded(arms, 2, [1]))]
    for bandit in bandits:
        bandit.tell(arms[:1], -1e6)
    asked = [bandit.ask() for bandit in bandits]
    assert torch.equal(*asked)
    assert float(asked[0][0, 0]) >= 1.0


def test_equal_scores_send_one_arm():
    scores, ranks = torch.ones(1000, dtype=DOUBLE), torch.rand(1000)
    assert undominated(scores, ranks, scores[0]).tolist() == [int(ranks.argmax())]


@pytest.mark.parametrize("block", [1, 7, 64, 2**20])
def test_shards_draw_their_own_ranks(block, monkeypatch):
    monkeypatch.setattr(table, "_BLOCK", block)
    whole = tie_rank(500, 4)
    for rows in (range(500), range(3), range(37, 38), range(123, 401), range(499, 500)):
        assert torch.equal(table.ranks_of(rows, 4), whole[rows.start : rows.stop])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(4))
def test_arms_that_are_all_equal(seed):
    """In every round the seed's order decides, over the shards' borders."""
    arms = torch.full((31, 2), 0.25, dtype=DOUBLE)
    arms[::5] += torch.arange(7, dtype=DOUBLE).unsqueeze(-1)  # so that one sees which arm it was
    kernel = rbf(1e6)  # and they are equal to the kernel all the same
    bandits = [make(candidates, seed=seed, kernel=kernel) for candidates in (Arms(arms), sharded(arms, 5))]
    asked = [bandit.ask(6) for bandit in bandits]
    assert torch.equal(*asked)


# ---------------------------------------------------------------- what is sent


def test_a_round_sends_the_same_to_many_arms_late_and_early():
    sent = {}
    for count in (100, 1000):
        arms = some_arms(count)
        bandit = make(sharded(arms, 2), resampling="growth")
        workers, sent[count] = bandit.candidates.workers, []
        known = arms[:5].repeat(20, 1)
        for _ in range(2):  # early rounds, and late ones of a hundred more observations
            bandit.tell(known, noisy(known, 0))
            play(bandit, 1)  # in which shards learn of them
            workers.sent.clear()
            play(bandit, 5)
            assert len(workers.sent) == 2 * 5
            sent[count].append(max(workers.sent))
    m = len(bandit.inducing_points)
    assert max(sent[100] + sent[1000]) < 2500 + 8 * m
    assert sent[1000][1] < sent[1000][0] + 8 * m


def test_each_shard_is_asked_once_many_by_way_of_others():
    bandit = make(sharded(some_arms(), 7, group_size=3))
    line = bandit.candidates.workers.line
    for _ in range(2):
        line.asked.clear()
        bandit.ask(remember=False)
        assert line.asked == [0, 3, 6, 1, 2, 4, 5]
    bandit.tell(x := bandit.ask(), noisy(x, 0))
    line.asked.clear()
    assert len(bandit._belief.mean) == 160
    assert line.asked == list(range(7))  # what is large does not go through others


def test_few_shards_are_asked_apart_and_many_in_as_many_groups_as_there_are_shards_in_one():
    sizes = {number: [len(group) for group in Groups(number).groups] for number in (1, 15, 16, 20, 64)}
    assert sizes == {1: [1], 15: [1] * 15, 16: [4] * 4, 20: [5] * 4, 64: [8] * 8}


class Groups(LocalWorkers):
    def __init__(self, number):
        super().__init__(None, [range(row, row + 1) for row in range(number)])


def test_many_bytes_are_stored_once(monkeypatch):
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3, group_size=3))]
    stored = []
    monkeypatch.setattr(LocalWorkers, "stored", lambda self, data: stored.append(data) or data)
    monkeypatch.setattr(workers, "_SMALL", 0)
    rounds(bandits, 1)
    assert len(stored) == 1
    assert_equal_posteriors(bandits[1], bandits[0])


def test_telling_sends_nothing():
    bandit = make(sharded(some_arms(), 3))
    play(bandit, 3)
    workers = bandit.candidates.workers
    before = len(workers.sent)
    bandit.tell(torch.rand(5, 2, dtype=DOUBLE), torch.rand(5, dtype=DOUBLE))
    bandit.recommend()
    bandit.state_dict()
    assert len(workers.sent) == before


@pytest.mark.one_in(4)
@pytest.mark.parametrize("behind", [1, 4, 5, 20])
def test_shards_that_are_far_behind_are_started_anew(behind, monkeypatch):
    monkeypatch.setattr(belief, "_MOST_STEPS", 5)
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 2)  # of the last of which shards do not know yet
    starts = bandits[1].candidates.workers.starts
    starts.clear()
    for bandit in bandits:
        for number in range(behind):
            X = arms[number : number + 2]
            bandit.tell(X, noisy(X, number))
    rounds(bandits, 1)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert [number for number, _ in starts] == ([0, 1, 2] if behind > 4 else [])


# ---------------------------------------------------------------- workers that are lost


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "group_size"), [("bkb", 1), ("gp-ucb", 1), ("bkb", 2), ("bkb", 3)])
def test_lost_workers_are_built_from_the_history(name, group_size):
    arms = some_arms()
    bandits = [make(candidates, name) for candidates in (Arms(arms), sharded(arms, 3, CUTS[3], group_size))]
    workers = bandits[1].candidates.workers
    for number, gone in enumerate([(0, 2), (), (0, 1, 2)]):
        rounds(bandits, 2, 2 * number)
        asked = [bandit.ask(2) for bandit in bandits]  # a new worker learns of these too
        workers.starts.clear()
        for shard in gone:
            workers.lose(shard)
        assert torch.equal(*(bandit.ask(2) for bandit in bandits))
        assert sorted(shard for shard, _ in workers.starts) == list(gone)
        for bandit, X in zip(bandits, asked, strict=True):
            bandit.forget(X)
        assert_equal_posteriors(bandits[1], bandits[0], lost(bandits[0]))


def test_workers_that_were_closed():
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 2, 5)
    bandits[1].candidates.close()
    rounds(bandits, 1, 7)
    assert_equal_posteriors(bandits[1], bandits[0])


@pytest.mark.parametrize("group_size", [1, 3])
@pytest.mark.parametrize(("when", "gone"), [("dies_on_receipt", (0, 2)), ("dies_with_reply", (0,))])
def test_workers_that_end_while_they_work(group_size, when, gone):
    """Those that one led which is lost go on, also where it is not known how far they came."""
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3, group_size=group_size))]
    rounds(bandits, 3)
    workers = bandits[1].candidates.workers
    workers.starts.clear()
    setattr(workers.line, when, set(gone))
    rounds(bandits, 2, 3)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert sorted(number for number, _ in workers.starts) == list(gone)


def assert_unchanged(bandit, before):
    after = bandit.state_dict()
    assert before.keys() == after.keys()
    for key, value in before.items():
        for ours, theirs in zip(
            *(x.values() if isinstance(x, dict) else [x] for x in (after[key], value)), strict=True
        ):
            assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs, key


def test_a_worker_that_cannot_be_replaced():
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 2)
    ours, workers = bandits[1], bandits[1].candidates.workers
    before = ours.state_dict()
    workers.lose(1)
    workers.refuses = {1}
    for _ in range(2):
        with pytest.raises(ShardLostError, match=r"shard 1 of 3 \(arms 53 to 105\)"):
            ours.ask(3)
        assert_unchanged(ours, before)
    X = arms[:4]
    for bandit in bandits:  # nothing that was told meanwhile is lost
        bandit.tell(X, noisy(X, 0))
    workers.refuses = set()
    rounds(bandits, 2, 2)
    assert_equal_posteriors(ours, bandits[0])


def test_a_worker_that_ends_whenever_it_is_asked(monkeypatch):
    bandit = make(sharded(some_arms(), 3))
    rounds([bandit], 3)
    workers = bandit.candidates.workers
    monkeypatch.setattr(workers, "start", lambda numbers: None)
    before = bandit.state_dict()
    workers.lose(2)
    with pytest.raises(ShardLostError, match=r"shard 2 of 3 \(arms 106 to 159\).*ended each time"):
        bandit.ask()
    assert_unchanged(bandit, before)


@pytest.mark.parametrize("group_size", [1, 3])
def test_an_error_in_a_shard_is_raised_and_nothing_is_lost(group_size):
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3, group_size=group_size))]
    rounds(bandits, 3)
    ours, workers = bandits[1], bandits[1].candidates.workers
    before = ours.state_dict()
    workers.line.fails_on_receipt = {1: ArmsChangedError("other arms")}
    with pytest.raises(ArmsChangedError, match="other arms"):
        ours.ask(2)
    assert_unchanged(ours, before)
    rounds(bandits, 2, 3)
    assert_equal_posteriors(ours, bandits[0])


def test_a_shard_that_failed_half_way_is_started_anew(monkeypatch):
    """It may have learned some of what it was told."""
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 2))]
    rounds(bandits, 2)
    workers = bandits[1].candidates.workers
    workers.starts.clear()
    original, calls = table.ShardTable.updated, []

    def failing(self, *arguments):
        calls.append(original(self, *arguments))
        if len(calls) == 1:
            raise MemoryError("too many arms")
        return calls[-1]

    for bandit in bandits:
        for number in range(3):
            X = arms[number : number + 2]
            bandit.tell(X, noisy(X, number))
    monkeypatch.setattr(table.ShardTable, "updated", failing, raising=False)
    with pytest.raises(MemoryError):
        bandits[1].ask()
    monkeypatch.undo()
    rounds(bandits, 2, 2)
    assert_equal_posteriors(bandits[1], bandits[0])
    assert [shard for shard, _ in workers.starts] == [0]


# ---------------------------------------------------------------- one object, many calls


def test_bandits_that_share_workers_and_copies():
    arms = some_arms()
    candidates = sharded(arms, 2)
    ours = [make(candidates, seed=seed, resampling="growth") for seed in (0, 1)]
    single = [make(Arms(arms), seed=seed, resampling="growth") for seed in (0, 1)]
    for number in range(6, 8):
        for pair in zip(ours, single, strict=True):
            rounds(pair, 1, number)
    copied, twin = deepcopy(ours[0]), deepcopy(single[0])
    assert copied.candidates.workers is candidates.workers
    for number in range(8, 10):
        rounds([ours[0], single[0]], 1, number)
        rounds([copied, twin], 1, 2 * number)
    assert_equal_posteriors(copied, twin)
    assert_equal_posteriors(ours[0], single[0])


def test_looking_changes_nothing():
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 2)
    ours = bandits[1]
    seen = ours.ask(5, remember=False)
    first = ours.ask(2)
    assert torch.equal(seen[:2], first)
    assert torch.equal(ours.ask(3, remember=False), seen[2:])
    assert torch.equal(ours.ask(3), seen[2:])
    assert torch.equal(bandits[0].ask(5), seen)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("source", ["tensor", "file", "path", "blocks"])
def test_saved_states_go_from_one_form_to_the_other(source, tmp_path):
    arms = some_arms()
    np.save(tmp_path / "arms.npy", arms.numpy())
    blocks = arms.split(37)
    given = {
        "tensor": lambda: arms,
        "file": lambda: MappedArms(tmp_path / "arms.npy"),
        "path": lambda: str(tmp_path / "arms.npy"),
        "blocks": lambda: ArmBlocks(blocks.__getitem__, len(blocks)),
    }[source]()
    ours, single = make(sharded(given, 3)), make(Arms(arms))
    rounds([ours], 4)
    ours.ask(2)
    single.load_state_dict(ours.state_dict())
    assert torch.equal(single.ask(4), ours.ask(4, remember=False))
    again = make(sharded(given, 2))
    again.load_state_dict(single.state_dict())
    assert torch.equal(again.pending, single.pending)
    rounds([again, single], 2)
    replayed = make(sharded(given, 5))
    replayed.replay(single.history)
    assert torch.equal(replayed.recommend(), single.recommend())


def test_restart():
    arms = some_arms()
    bandits = [make(candidates) for candidates in (Arms(arms), sharded(arms, 3))]
    rounds(bandits, 2, 4)
    for bandit in bandits:
        bandit.restart()
    rounds(bandits, 2)
    assert_equal_posteriors(bandits[1], bandits[0])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("call", ["ask", "tell"])
def test_interrupts_leave_the_bandit_as_it_was(call, monkeypatch):
    """After every second line that changes something in this integration; laws/test_atomicity.py has the tables."""
    monkeypatch.setattr(interrupts, "PACKAGE", str(Path(belief.__file__).parent))
    arms = some_arms(24)
    single, start = make(Arms(arms)), make(sharded(arms, 2))
    rounds([single, start], 3)
    X = single.ask()
    start.ask()
    Y = noisy(X, 0)
    calls = {"ask": lambda bandit: bandit.ask(2), "tell": lambda bandit: bandit.tell(X, Y)}
    calls[call](single)
    expected, after = single.state_dict(), single.ask()
    before = start.state_dict()
    copies, places = iter([deepcopy(start), deepcopy(start)]), set()
    for line in interrupts.swaps(lambda: calls[call](next(copies)))[::2]:
        bandit = deepcopy(start)
        with interrupts.Interrupt(line) as interrupt:
            calls[call](bandit)
        places.add(interrupt.at.partition(":")[0])
        if bandit.round == start.round and len(bandit.pending) == len(start.pending):  # else it was done already
            assert_unchanged(bandit, before)
            calls[call](bandit)
        assert_unchanged(bandit, expected)
        assert torch.equal(bandit.ask(), after), interrupt.at
    ours = {"belief.py"}
    assert places >= (ours if call == "tell" else ours | {"shard.py", "table.py", "workers.py"})


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"num_shards": 0}, "num_shards must be a whole number of at least 1, got"),
        ({"num_shards": 2.0}, "num_shards must be a whole number"),
        ({"num_shards": 61}, "num_shards must be at most the number of arms, 60, got 61"),
        ({"num_shards": 2, "num_gpus_per_shard": -1}, "num_gpus_per_shard"),
        ({"num_shards": 2, "num_cpus_per_shard": "two"}, "num_cpus_per_shard"),
        ({"num_shards": 2, "start_timeout": 0.0}, "start_timeout"),
        ({"num_shards": 2, "column_memory": 8}, "one column of kernel values of a shard's 30 arms needs 240 bytes"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_numbers_that_do_not_fit(words, message):
    with pytest.raises(InputError, match=message):
        ShardedArms(some_arms(60), **words)


@pytest.mark.parametrize("arms", [[["a", "b"]], torch.zeros(0, 2), torch.full((3, 2), torch.nan), "no/such/file.npy"])
def test_arms_that_do_not_fit(arms):
    with pytest.raises(InputError):
        ShardedArms(arms, num_shards=1)


def test_arms_that_cannot_be_sent(tmp_path):
    with (tmp_path / "open").open("w") as file:
        source = ArmBlocks(lambda number: torch.zeros(4, 2) + (0 if file.closed else 1), 2)
        with pytest.raises(InputError, match=r"cannot be sent to another process.*must not hold files"):
            ShardedArms(source, num_shards=2)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[ray\]'"):
        ShardedArms(some_arms(), num_shards=2)


def test_more_shards_than_this_machine_has_processors(monkeypatch):
    """Said before Ray is started, which would wait."""
    monkeypatch.setattr(actors.os, "sched_getaffinity", lambda process: {0, 1})
    with pytest.raises(InputError, match=r"3 shards of 1 CPU\(s\) need 3 and this machine has 2.*=0.67"):
        make(ShardedArms(some_arms(), num_shards=3))


class Together(ThompsonRule):
    """A rule that compares the arms with each other."""

    scores_arms_apart = False


def test_draws_without_waves_and_rules_that_need_all_arms_at_once_are_refused():
    words = {"regularization": LAMBDA, "seed": 0, "width": ConstantWidth(1.0)}
    for kernel, rule, message in (
        (linear(), ThompsonRule(), r"no random Fourier features of LinearKernel.*or give Arms a tensor"),
        (matern(0.4), Together(), "Together needs all arms in one process.*scores_arms_apart = True"),
    ):
        with pytest.raises(InputError, match=message):
            Bandit(candidates=sharded(some_arms(), 2), kernel=kernel, acquisition=rule, **words).ask()


def test_contexts_are_refused():
    bandit = make(sharded(some_arms(), 2))
    with pytest.raises(InputError, match="ShardedArms have neither contexts"):
        bandit.ask(context=[1.0])


def test_sizes_of_shards_differ_by_one_at_most():
    for num_arms in (1, 7, 100):
        for num_shards in range(1, min(num_arms, 9) + 1):
            shards = split(num_arms, num_shards)
            assert [row for rows in shards for row in rows] == list(range(num_arms))
            assert {len(rows) for rows in shards} <= {num_arms // num_shards, -(-num_arms // num_shards)}


@pytest.mark.parametrize("name", ["bkb", "gp-ts", "random"])
def test_arms_that_failed_are_left(name):
    arms = some_arms(30)
    bandit = make(sharded(arms, 3), name)
    asked, fails = [], False
    for number in range(20):
        x = bandit.ask()
        assert not fails or difference(x, asked[-1]) > 0.0
        fails = number == 0 or bool(x[0, 0] > 0.5)
        bandit.tell(x, **({"failed": True} if fails else {"y": float(x.sum())}))
        asked.append(x)
    lost = torch.cat([x for x in asked if x[0, 0] > 0.5])
    assert len(lost) == len(lost.unique(dim=0))
    assert float(bandit.failure_probability(lost).min()) >= 0.5
    loaded = make(sharded(arms, 2), name)
    loaded.load_state_dict(bandit.state_dict())
    assert torch.equal(loaded.ask(), bandit.ask())

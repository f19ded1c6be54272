"""Families of hypotheses: what each has shown is as in dense formulas, and the rules between them do as they say."""

import math
import pickle
from copy import deepcopy

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, ProductKernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, dense, difference, examples, linear, matern, play, rbf, reward
from scipy.stats import binom, chisquare

from torch_kbandits import (
    ArmBlocks,
    Arms,
    Bandit,
    Box,
    ConstantWidth,
    ContextualActions,
    InputError,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.acquisition import LargestOf, StagedRule, ThompsonRule, UniformRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import DynamicModelSelection
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.beliefs import offering
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.dictionaries import GreedyDictionary, RidgeLeverageSampling
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.priors.families import (
    Balancing,
    Elimination,
    Family,
    Prediction,
    Sampling,
    Trials,
    Variant,
    of_length_scales,
    shrinking_scales,
)

#: The quick suite takes a case of each.
pytestmark = pytest.mark.one_in(5)

LAMBDA, BETA = 0.05, 1.5
ARMS = data(30, 2)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
LENGTHS = (0.8, 0.4, 0.2)
RULES = {
    "balancing": Balancing(noise_scale=0.1),
    "elimination": Elimination(noise_scale=0.1),
    "sampling": Sampling(),
    "prediction": Prediction(0.9),
}
CHOICES = {"upper bound": UpperConfidenceRule(), "Thompson": ThompsonRule(64)}


def family(rule, lengths=LENGTHS):
    return Family(tuple(Variant(kernel=rbf(length)) for length in lengths), rule)


def bandit_of(rule, candidates=None, choice="upper bound", **words):
    given = {
        "candidates": Arms(ARMS) if candidates is None else candidates,
        "kernel": rbf(LENGTHS[0]),
        "regularization": LAMBDA,
        "width": ConstantWidth(BETA),
        "acquisition": CHOICES[choice],
        "family": family(RULES[rule]) if isinstance(rule, str) else rule,
        "seed": 4,
    }
    return Bandit(**given | words)


def log_density(kernel, X, y, noise):
    """log N(y; 0, K + diag(noise))."""
    covariance = kernel(X, X) + np.diag(noise * np.ones(len(X)))
    return -0.5 * (
        y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1] + len(X) * math.log(2.0 * math.pi)
    )


# ---------------------------------------------------------------- what each has shown


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("rule", RULES)
def test_what_hypotheses_have_shown_is_as_in_dense_formulas(rule, choice):
    bandit = bandit_of(rule, choice=choice, width=SelfNormalizedWidth(0.1, 1.0, 0.1))
    bandit.tell(ARMS[:4], reward(ARMS[:4]))
    play(bandit, 6)
    X = bandit.ask(3)
    bandit.tell(X[[2, 0]], reward(X[[2, 0]]))
    history, trials = bandit.history, bandit._belief.trials
    assert trials.number == len(history.X) == 12
    sums = np.zeros((len(LENGTHS), 4))
    for number, length in enumerate(LENGTHS):
        for turn in range(history.next_round):
            X, Y = dense(history.X, history.Y)
            now, before = (history.rounds == turn).numpy(), (history.rounds < turn).numpy()
            noise = LAMBDA * np.ones(int(before.sum()))
            told = oracles.exact(oracles.rbf(length), X[before], Y[before], noise, X[now])
            gain = 0.5 * np.linalg.slogdet(np.eye(len(noise)) + oracles.rbf(length)(X[before], X[before]) / LAMBDA)[1]
            beta = 1.0 + 0.1 * math.sqrt(2.0 * (gain + math.log(10.0)) / LAMBDA)
            own = (history.stages == number + 1).numpy()[now]
            sums[number, 0] += own.sum()
            sums[number, 1] += Y[now][own].sum()
            sums[number, 2] += beta * np.sqrt(told.variance[own]).sum()
            sums[number, 3] += (Y[now] - told.mean)[own].sum()
    assert sums[:, 0].sum() == 8
    found = torch.stack([trials.plays, trials.rewards, trials.widths, trials.residuals], dim=-1)
    assert difference(found, sums) < 1e-8


@pytest.mark.parametrize("kind", ["arms", "actions", "box", "aged", "dictionary"])
def test_scores_are_the_evidence_or_what_was_predicted(kind):
    """One by one or several at once; with a dictionary of the first rewards it is the evidence of its own model."""
    candidates = {"actions": ContextualActions(ARMS, context_dim=0), "box": Box(BOX)}.get(kind)
    words = {"aged": {"memory": Discount(0.8)}, "dictionary": {"dictionary": GreedyDictionary(4)}}.get(kind, {})
    bandit = bandit_of("sampling", candidates, **words)
    X, Y = ARMS[:12], data(12, 2)[1][:, 0]
    rounds = [slice(0, 5), slice(5, 6), slice(6, 7)] + ([slice(7, 12)] if kind in ("arms", "actions", "box") else [])
    expected = np.zeros(len(LENGTHS))
    points, values = dense(X, Y)
    for turn, rows in enumerate(rounds):
        for number, length in enumerate(LENGTHS):
            kernel, before = oracles.rbf(length), slice(0, rows.start)
            noise = LAMBDA * np.ones(rows.start)
            if kind == "aged":
                ages = np.concatenate([np.arange(turn)[:1].repeat(5), np.arange(1, turn)]) if turn else np.zeros(0)
                noise = noise / 0.8 ** (turn - ages)
            told = oracles.exact(kernel, points[before], values[before], noise, points[rows])
            if kind == "dictionary" and turn:
                Z = bandit._belief.stage_beliefs[number].inducing_points.numpy()
                told = oracles.dtc(kernel, points[before], values[before], noise, Z, points[rows])
            if kind != "aged" and not (kind == "dictionary" and not turn):
                covariance = told.covariance + LAMBDA * np.eye(len(told.mean))
            else:
                covariance = np.diag(told.variance + LAMBDA)
            residual = values[rows] - told.mean
            expected[number] += log_density(lambda A, B, c=covariance: c, residual, residual, 0.0)
        bandit.tell(X[rows], Y[rows])
        if kind == "dictionary" and not turn:
            for number, length in enumerate(LENGTHS):
                Z, kernel = bandit._belief.stage_beliefs[number].inducing_points.numpy(), oracles.rbf(length)
                cross = kernel(points[rows], Z)
                spanned = cross @ np.linalg.solve(kernel(Z, Z), cross.T)
                expected[number] = log_density(lambda A, B, s=spanned: s, points[rows], values[rows], LAMBDA)
    assert difference(bandit._belief.trials.scores, expected) < 1e-7
    if kind in ("arms", "actions", "box"):
        whole = np.array([log_density(oracles.rbf(length), points, values, LAMBDA) for length in LENGTHS])
        assert difference(bandit._belief.trials.scores, whole) < 1e-7
        weights = np.exp(whole - whole.max())
        assert difference(torch.tensor(bandit.hypothesis_weights), weights / weights.sum()) < 1e-7


def test_older_predictions_count_less_where_the_rule_forgets():
    bandits = {alpha: bandit_of(family(Prediction(alpha))) for alpha in (1.0, 0.7)}
    scores = {alpha: torch.zeros(3, dtype=DOUBLE) for alpha in bandits}
    before = torch.zeros(3, dtype=DOUBLE)
    for row in range(5):
        for bandit in bandits.values():
            bandit.tell(ARMS[row, None], 0.3 * row)
        whole = bandits[1.0]._belief.trials.scores
        scores[0.7], before = 0.7 * scores[0.7] + whole - before, whole
    assert difference(bandits[0.7]._belief.trials.scores, scores[0.7]) < 1e-12
    assert bandits[0.7]._belief.leader == int(scores[0.7].argmax())


# ---------------------------------------------------------------- one hypothesis is none

SPACES = {
    "arms": lambda: Arms(ARMS),
    "many arms": lambda: Arms(data(600, 2, 32)[0]),
    "arms in blocks": lambda: Arms(ArmBlocks(ARMS.split(8).__getitem__, 4)),
    "box": lambda: Box(BOX, num_restarts=1, raw_samples=4),
    "actions": lambda: ContextualActions(ARMS, context_dim=0),
    "box of actions": lambda: ContextualActions(bounds=BOX, context_dim=0, num_restarts=1, raw_samples=4),
}
PIECES = {
    "plain": {},
    "window": {"memory": SlidingWindow(3.0)},
    "prior on time": {"memory": BackToPrior(0.1)},
    "dictionary": {"dictionary": RidgeLeverageSampling(2.0)},
    "batches": {"batches": GlobalBatchRule(1.5)},
    "local batches": {"batches": LocalBatchRule(1.5)},
}


@pytest.mark.one_in(276)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("rule", RULES)
def test_with_one_hypothesis_it_is_the_bandit_without_a_family(rule, choice, space, pieces):
    words = {"candidates": SPACES[space](), "choice": choice, **PIECES[pieces]}
    ours = bandit_of(family(RULES[rule], (0.4,)), **words)
    theirs = bandit_of(None, kernel=rbf(0.4), **words)
    for _ in range(3):
        assert torch.equal(play(ours, 1, 2), play(theirs, 1, 2))
    assert torch.equal(ours.ask(2), theirs.ask(2))
    assert torch.equal(ours.recommend(), theirs.recommend())
    assert torch.equal(ours.beta, theirs.beta)
    assert torch.equal(ours.weights, theirs.weights)
    assert ours.hypothesis_weights == (1.0,)


@pytest.mark.parametrize("name", ["lb-gp-ucb", "pe-gp-ucb", "pe-gp-ts", "hp-gp-ts"])
def test_named_algorithms_with_one_hypothesis_are_those_without(name):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "candidates": ARMS, "seed": 2}
    words |= {"noise_scale": 0.1, "norm_bound": 1.0}
    plain = algorithms.build("gp-ts" if name.endswith("ts") else "igp-ucb", **words)
    ours = algorithms.build(name, scales=(1.0,), **words)
    assert torch.equal(play(ours, 12), play(plain, 12))


# ---------------------------------------------------------------- who plays


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("space", ["arms", "many arms", "actions", "box", "box of actions"])
@pytest.mark.parametrize("choice", CHOICES)
def test_by_elimination_the_highest_score_of_all_is_played(choice, space):
    bandit = bandit_of("elimination", SPACES[space](), choice)
    play(bandit, 4 if space.startswith("box") else 10)
    pending = bandit.ask(2)
    domain = bandit.candidates.in_round(None, None, 0.0)
    offers = []
    for part, seed in offering(bandit._belief, seed_for(4, bandit.round, "ask 2")):
        ahead = part.lookahead(pending)
        x = ahead.choose(bandit.rule, torch.tensor(BETA, dtype=DOUBLE), seed, domain)
        offers.append((ahead.best_score(), x))
        if choice == "upper bound":
            mean = part.moments(x)[0]
            assert offers[-1][0] >= float(mean) - 1e-9
    best = int(np.argmax([score for score, _ in offers]))
    x = bandit.ask()
    assert difference(x, offers[best][1]) <= (1e-3 if "box" in space else 0.0)
    assert bandit._standing.ledger.pending.stages.tolist()[-1] == best + 1


@pytest.mark.parametrize("rule", RULES)
def test_ask_maximises_the_acquisition_function(rule):
    bandit = bandit_of(rule)
    play(bandit, 8)
    for _ in range(3):
        acquisition = bandit.acquisition()
        assert isinstance(acquisition, LargestOf) == (rule == "elimination")
        values = acquisition(ARMS.unsqueeze(-2)).detach()
        x = bandit.ask(remember=False)
        assert float(acquisition(x.unsqueeze(0)).detach()) == pytest.approx(float(values.max()), abs=1e-6)
        bandit.ask()


def test_hypotheses_are_drawn_with_their_probabilities():
    """Chi-square at a false-alarm rate of 1e-6, over draws by seeds of their own."""
    trials = shown(scores=[0.0, 1.0, -0.5])
    rule, draws = Sampling((1.0, 0.5, 3.0)), 3000
    expected = np.array([1.0, 0.5 * math.exp(1.0), 3.0 * math.exp(-0.5)])
    expected /= expected.sum()
    assert difference(rule.weights(trials), expected) < 1e-12
    counts = np.bincount([rule.offering(trials, seed)[0] for seed in range(draws)], minlength=3)
    assert chisquare(counts, draws * expected).pvalue > 1e-6


@pytest.mark.parametrize("scores", [[-1e308, -1e308, -1e308], [0.0, -1e308, -1e308], [0.0, -800.0, 5.0]])
def test_what_explains_nothing_is_not_drawn(scores):
    trials = shown(scores=scores)
    weights = Sampling().weights(trials)
    assert float(weights.sum()) == pytest.approx(1.0)
    for seed in range(20):
        assert float(weights[Sampling().offering(trials, seed)[0]]) > 0.0


# ---------------------------------------------------------------- what is rejected


def shown(number=10, active=None, rates=None, **sums):
    """Trials of hypotheses with some sums; the others are 0."""
    columns = {name: torch.tensor(column, dtype=DOUBLE) for name, column in sums.items()}
    size = len(next(iter(columns.values())))
    none = torch.zeros(size, dtype=DOUBLE)
    words = {name: columns.get(name, none) for name in ("plays", "rewards", "widths", "residuals", "scores")}
    kept = torch.ones(size, dtype=torch.bool) if active is None else torch.tensor(active)
    return Trials(
        **words, active=kept, rates=none if rates is None else torch.tensor(rates, dtype=DOUBLE), number=number
    )


def noise_of(trials):
    return torch.full_like(trials.plays, 0.04)


def test_balancing_rejects_as_the_formula_by_hand():
    """ξ = 2 · 0.01 · ln(3 · π² · 100 / 0.6) = 0.17008; of four plays the second must reach 1 − √(ξ / 16)."""
    rule = Balancing(0.1, 0.1)
    xi = 2.0 * 0.01 * math.log(3.0 * math.pi**2 * 100.0 / 0.6)
    assert xi == pytest.approx(0.17008, abs=1e-5)
    least = 1.0 - math.sqrt(xi / 16.0) - math.sqrt(xi / 4.0)
    for beyond in (-1e-6, 1e-6):
        rewards = [16.0, 4.0 * (least + beyond) - 0.8, 0.0]
        trials = shown(plays=[16.0, 4.0, 0.0], rewards=rewards, widths=[9.0, 0.8, 0.0])
        assert rule.kept(trials, noise_of(trials)).tolist() == [True, beyond > 0.0, True]
    # What is rejected stays so, and rejects nothing.
    gone = shown(plays=[16.0, 4.0, 1.0], rewards=[16.0, 0.0, 0.0], widths=[0.0, 0.0, 0.0], active=[False, True, True])
    assert rule.kept(gone, noise_of(gone)).tolist() == [False, True, True]


def test_elimination_drops_as_the_formula_by_hand():
    rule = Elimination(0.1)  # R = √λ = 0.2
    xi = 2.0 * 0.04 * math.log(3.0 * math.pi**2 * 100.0 / 0.6)
    most = math.sqrt(xi * 4.0) + 0.7
    for beyond in (-1e-6, 1e-6):
        trials = shown(plays=[4.0, 4.0, 0.0], widths=[0.7, 0.7, 0.0], residuals=[-most - beyond, 0.0, 0.0])
        assert rule.kept(trials, noise_of(trials)).tolist() == [beyond < 0.0, True, True]


def test_one_hypothesis_stays_in_any_case():
    rule = Elimination(0.1)
    trials = shown(plays=[4.0, 4.0, 4.0], residuals=[9.0, -8.0, 7.0], active=[True, True, False])
    assert rule.kept(trials, noise_of(trials)).tolist() == [False, True, False]
    bandit = bandit_of(family(Elimination(0.5, 1e-3)), width=ConstantWidth(0.0))
    for row in range(20):
        x = bandit.ask()
        bandit.tell(x, (-1.0) ** row * 5.0)
        assert sum(bandit.hypothesis_weights) == pytest.approx(1.0)
    assert sorted(bandit.hypothesis_weights) == [0.0, 0.0, 1.0]


@given(st.data())
@examples(60)
def test_rules_never_reject_all_nor_take_back(draws):
    number = draws.draw(st.integers(1, 4))
    floats = st.lists(st.floats(-1e6, 1e6), min_size=number, max_size=number)
    sizes = st.lists(st.floats(0.0, 1e6), min_size=number, max_size=number)
    plays = st.lists(st.integers(0, 50).map(float), min_size=number, max_size=number)
    active = draws.draw(st.lists(st.booleans(), min_size=number, max_size=number).filter(any))
    sums = {"plays": draws.draw(plays), "widths": draws.draw(sizes)}
    sums |= {name: draws.draw(floats) for name in ("rewards", "residuals", "scores")}
    trials = shown(active=active, rates=draws.draw(sizes), **sums)
    for rule in (*RULES.values(), Balancing(num_starting=1, shrinkage=0.0)):
        kept = rule.kept(trials, noise_of(trials))
        assert bool(kept.any())
        assert not bool((kept & ~trials.active).any())
        assert trials.active[rule.leader(trials)]
        assert all(trials.active[each] for each in rule.offering(trials, 0))
        assert float(rule.weights(trials).sum()) == pytest.approx(1.0)


def test_bounds_on_regret_are_balanced():
    """The one of the smallest bound after one more round; those of the rates are √n apart."""
    trials = shown(plays=[8.0, 1.0, 2.0], rates=[1.0, 2.0, 2.0])
    assert Balancing().leader(trials) == 1
    assert Balancing().leader(shown(plays=[7.0, 1.0, 2.0], rates=[1.0, 2.0, 2.0])) == 0
    bandit = bandit_of("balancing", width=SelfNormalizedWidth(0.1, 1.0, 0.1))
    play(bandit, 6)
    X = dense(bandit.history.X)[0]
    for length, rate in zip(LENGTHS, bandit._belief.trials.rates.tolist(), strict=True):
        gain = 0.5 * np.linalg.slogdet(np.eye(6) + oracles.rbf(length)(X, X) / LAMBDA)[1]
        beta = 1.0 + 0.1 * math.sqrt(2.0 * (gain + math.log(10.0)) / LAMBDA)
        assert rate == pytest.approx(2.0 * beta * math.sqrt(2.0 / math.log(1.0 + 1.0 / LAMBDA) * gain), rel=1e-7)


def test_a_function_that_is_known_beforehand_has_no_regret():
    variants = (Variant(kernel=linear()), Variant(kernel=linear(0.3)))
    bandit = bandit_of(Family(variants, Balancing()), Arms(torch.zeros(3, 2, dtype=DOUBLE)), kernel=linear())
    play(bandit, 2)
    assert bandit._belief.trials.rates.tolist() == [0.0, 0.0]


def test_shorter_length_scales_join_as_the_scale_grows():
    """With shrinkage 1/2 and d = 2 the fourth joins at √t >= e^(3/2), in round 21."""
    rule = Balancing(num_starting=2, shrinkage=0.5, step=0.5)
    joined = [int(rule.playing(shown(number=number, plays=[0.0] * 6)).sum()) for number in (0, 7, 8, 20, 21, 10_000)]
    assert joined == [2, 2, 3, 3, 4, 6]
    only_later = shown(plays=[1.0] * 6, active=[False, False, False, True, True, True])
    assert rule.playing(only_later).tolist() == [False, False, False, True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pe-gp-ucb", "pe-gp-ts", "lb-gp-ucb"])
def test_the_truth_is_rejected_at_most_at_the_rate_that_is_stated(name):
    """On draws of the true prior, δ = 0.1: 120 runs of 40 rounds, with a false-alarm rate of 1e-6.

    The band of the draw holds in all rounds with probability 0.95, and the noises' sums with 0.95.
    """
    arms, runs, rounds, R = ARMS[:20], 120, 40, 0.2
    factor = np.linalg.cholesky(oracles.rbf(0.4)(*dense(arms, arms)) + 1e-10 * np.eye(20))
    width = math.sqrt(2.0 * math.log(20 * rounds / 0.05))
    rejected = 0
    for run in range(runs):
        generator = np.random.default_rng(run)
        means = torch.tensor(factor @ generator.standard_normal(20))
        bandit = algorithms.build(
            name, kernel=rbf(0.8), regularization=R**2, candidates=arms, scales=(1.0, 0.5, 0.25), beta=width,
            noise_scale=None, failure_probability=0.05, seed=run,
        )  # fmt: skip
        for _ in range(rounds):
            x = bandit.ask()
            row = int((arms == x).all(-1).nonzero()[0])
            bandit.tell(x, means[row] + R * generator.standard_normal())
        rejected += bandit.hypothesis_weights[1] == 0.0
    assert binom.sf(rejected - 1, runs, 0.1) > 1e-6, rejected


@pytest.mark.parametrize("name", ["pe-gp-ucb", "pe-gp-ts", "lb-gp-ucb"])
def test_a_hypothesis_that_the_rewards_contradict_is_rejected(name):
    """Too long a length scale has narrow bands around what is wrong."""
    bandit = algorithms.build(
        name, kernel=rbf(5.0), regularization=1e-4, candidates=ARMS, scales=(1.0, 0.06), beta=1.0, seed=0
    )
    play(bandit, 60)
    assert bandit.hypothesis_weights == (0.0, 1.0)


# ---------------------------------------------------------------- what goes with them


def test_hypotheses_may_differ_in_all_that_is_assumed():
    variants = (
        Variant(kernel=matern(0.3)),
        Variant(regularization=0.4, memory=SlidingWindow(2.0)),
        Variant(memory=Discount(0.5), mean=lambda X: torch.full_like(X[:, 0], 2.0)),
        Variant(mean=0.0),
    )
    bandit = bandit_of(Family(variants, Prediction()), mean=-1.0)
    for row in range(5):
        bandit.tell(ARMS[row, None], 2.0 + 0.1 * row)
    kernels = (oracles.matern52(0.3, 1.7), oracles.rbf(0.8), oracles.rbf(0.8), oracles.rbf(0.8))
    ages = np.arange(5.0, 0.0, -1)
    noises = (LAMBDA * np.ones(5), np.where(ages > 2.0, np.inf, 0.4), LAMBDA / 0.5**ages, LAMBDA * np.ones(5))
    X, Y, T = dense(bandit.history.X, bandit.history.Y, ARMS)
    means = (-1.0, -1.0, 2.0, 0.0)
    for part, kernel, noise, mean in zip(bandit._belief.stage_beliefs, kernels, noises, means, strict=True):
        counts = np.isfinite(noise)
        expected = oracles.exact(kernel, X[counts], Y[counts] - mean, noise[counts], T)
        assert difference(part.moments(ARMS)[0], expected.mean + mean) < expected.rounding
        assert difference(part.moments(ARMS)[1], expected.variance) < expected.rounding
    assert bandit.hypothesis_weights.index(max(bandit.hypothesis_weights)) == bandit._belief.leader == 2
    assert bandit.memory == Discount(0.5)
    assert difference(bandit.weights, 0.5**ages) < 1e-12
    assert difference(bandit.model.posterior(ARMS).mean.squeeze(-1), bandit._belief.moments(ARMS)[0]) < 1e-9


SAVED = {
    "exact": {},
    "dictionary": {"dictionary": RidgeLeverageSampling(2.0)},
    "window": {"memory": SlidingWindow(4.0), "dictionary": RidgeLeverageSampling(2.0, "coupled")},
    "batches": {"batches": GlobalBatchRule(2.0)},
}


@pytest.mark.one_in(36)
@pytest.mark.parametrize("pieces", SAVED)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("rule", RULES)
def test_saved_and_replayed_families_go_on_alike(rule, choice, pieces, tmp_path):
    bandit, twin, replayed = (bandit_of(rule, choice=choice, **SAVED[pieces]) for _ in range(3))
    play(bandit, 8)
    bandit.ask(3)
    bandit.tell(ids=bandit.pending_ids[1], y=0.3)
    bandit.save(tmp_path / "family")
    twin.load_state_dict(bandit.state_dict())
    loaded = Bandit.load(tmp_path / "family")
    replayed.replay(bandit.history)
    replayed.mark_pending(bandit.pending)
    expected = bandit.hypothesis_weights
    ours = [play(each, 5) for each in (bandit, twin, loaded)]
    assert torch.equal(ours[0], ours[1])
    assert torch.equal(ours[0], ours[2])
    assert torch.equal(bandit.history.stages, loaded.history.stages)
    assert replayed.hypothesis_weights == pytest.approx(expected, abs=1e-6)
    assert difference(replayed.ask(), bandit_after(rule, choice, pieces, bandit)) == 0.0


def bandit_after(rule, choice, pieces, bandit):
    """What a bandit asks for that was told the same up to the first play of the comparison, with the same pending."""
    other = bandit_of(rule, choice=choice, **SAVED[pieces])
    other.replay(bandit.history.rows(slice(9)))
    other.mark_pending(bandit.pending)
    return other.ask()


def test_a_restart_forgets_what_was_shown():
    bandit = bandit_of("elimination")
    play(bandit, 5)
    bandit.restart()
    assert bandit._belief.trials.number == 0
    assert float(bandit._belief.sums[:, :-1].abs().sum()) == 0.0


@pytest.mark.parametrize("damage", ["missing", "shape", "nan", "none left", "plays"])
def test_damaged_states_are_refused(damage):
    bandit = bandit_of("elimination")
    play(bandit, 3)
    state = bandit.state_dict()
    if damage == "missing":
        del state["family"]
    elif damage == "shape":
        state["family"] = state["family"][:2]
    else:
        row = {"nan": (0, 2, math.nan), "none left": (slice(None), -1, 0.0), "plays": (0, 0, -1.0)}[damage]
        state["family"][row[:2]] = row[2]
    with pytest.raises(StateMismatchError, match="damaged"):
        bandit_of("elimination").load_state_dict(state)


@pytest.mark.parametrize(
    ("kernel", "dimension"),
    [(rbf(0.7), 2), (matern(0.5), 2), (RBFKernel(ard_num_dims=2).double(), 2)],
    ids=["rbf", "scaled", "ard"],
)
def test_longer_length_scales_are_nearer_points(kernel, dimension):
    X = data(6, dimension)[0]
    for scale, variant in zip((1.0, 0.3, 2.5), of_length_scales(kernel, (1.0, 0.3, 2.5)), strict=True):
        assert difference(gram(variant.kernel, X, X), gram(kernel, X / scale, X / scale)) < 1e-12
        assert variant.kernel is not kernel


def test_all_parts_of_a_kernel_are_stretched():
    kernel = ProductKernel(rbf(0.5), MaternKernel(active_dims=(0,)).double(), linear())
    (variant,) = of_length_scales(kernel, (0.5,))
    lengths = [float(part.lengthscale.detach()) for part in variant.kernel.kernels[:2]]
    assert lengths == pytest.approx([0.25, 0.5 * float(kernel.kernels[1].lengthscale.detach())])


def test_default_length_scales_shrink():
    assert shrinking_scales(3, 2) == pytest.approx((1.0, math.exp(-0.5), math.exp(-1.0)))
    words = {"kernel": rbf(0.8), "regularization": LAMBDA, "beta": 1.0, "seed": 0}
    bandit = algorithms.LBGPUCB(candidates=ARMS, **words)
    lengths = [float(part.kernel.lengthscale) for part in bandit._belief.stage_beliefs]
    assert lengths == pytest.approx([0.8 * math.exp(-0.5 * i) for i in range(5)])
    assert len(algorithms.LBGPUCB(candidates=data(9, 6)[0], **words).hypothesis_weights) == 14
    assert len(algorithms.HPGPTS(candidates=ARMS, kernels=[rbf(0.2), matern()], **words).hypothesis_weights) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Family((), Sampling()), "variants must be one or more"),
        (lambda: Family((rbf(),), Sampling()), r"variants\[0\] must be"),
        (lambda: Family((Variant(),), "hp"), "rule must be"),
        (lambda: Variant(regularization=-1.0), "regularization must be"),
        (lambda: Variant(kernel="rbf"), "kernel must be"),
        (lambda: Variant(memory=3), "memory must be"),
        (lambda: Sampling(()), "probabilities must be a number"),
        (lambda: Sampling((1.0, 0.0)), r"probabilities\[1\] must be"),
        (lambda: bandit_of(family(Sampling((1.0,)))), "probabilities must have a number for each of 3"),
        (lambda: of_length_scales(linear(), (1.0,)), "No part of this LinearKernel"),
        (lambda: of_length_scales(rbf(), ()), "scales must be one or more"),
        (lambda: of_length_scales(rbf(), (0.0,)), r"scales\[0\] must be"),
        (lambda: bandit_of("sampling", acquisition=UniformRule()), "leave out family"),
        (lambda: bandit_of("sampling", acquisition=StagedRule(30)), "leave out family"),
        (lambda: bandit_of("sampling", memories=DynamicModelSelection((Discount(0.5),))), "Leave out memories"),
        (lambda: bandit_of(Family((Variant(mean=ARMS),), Sampling())), "mean must"),
        (lambda: bandit_of("sampling", family=3), "family must be"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_words_that_say_the_same_twice_are_refused():
    words = {"kernel": rbf(), "regularization": LAMBDA, "candidates": ARMS, "beta": 1.0, "seed": 0}
    with pytest.raises(InputError, match="either scales or kernels"):
        algorithms.HPGPTS(scales=(1.0,), kernels=[rbf()], **words)
    with pytest.raises(InputError, match=r"kernels\[0\] must be"):
        algorithms.HPGPTS(kernels=[3], **words)
    with pytest.raises(InputError, match="kernels must be"):
        algorithms.HPGPTS(kernels=rbf(), **words)
    with pytest.raises(InputError, match="GPyTorch kernel"):
        algorithms.HPGPTS(**words | {"kernel": LinearKernel})


@pytest.mark.parametrize("rule", RULES)
def test_the_largest_rewards_break_nothing(rule):
    """The square of a residual is infinite."""
    bandit = bandit_of(rule)
    for sign in (1.0, -1.0, 1.0):
        bandit.tell(bandit.ask(), sign * 1e200)
    assert bool(bandit._belief.sums.isfinite().all())
    assert sum(bandit.hypothesis_weights) == pytest.approx(1.0)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("space", SPACES)
def test_copies_and_pickles_go_on_alike(space):
    bandit = bandit_of("elimination", None if space == "arms in blocks" else SPACES[space]())
    play(bandit, 3)
    bandit.ask(2)
    copied, pickled = deepcopy(bandit), pickle.loads(pickle.dumps(bandit))
    asked, tolerance = bandit.ask(2), 1e-3 if "box" in space else 0.0  # a search amplifies rounding
    assert difference(copied.ask(2), asked) <= tolerance
    assert difference(pickled.ask(2), asked) <= tolerance


@pytest.mark.parametrize("rule", RULES)
def test_in_single_precision_sums_are_those_in_double(rule):
    """What is summed is in double precision; the posteriors are not."""
    bandits = [bandit_of(rule, Arms(ARMS.to(dtype))) for dtype in (torch.float32, DOUBLE)]
    play(bandits[1], 8)
    history = bandits[1].history
    bandits[0].replay(history._replace(X=history.X.float(), Y=history.Y.float()))
    assert bandits[0].ask().dtype == torch.float32
    assert bandits[0]._belief.sums.dtype == DOUBLE
    assert difference(bandits[0]._belief.sums, bandits[1]._belief.sums) < 1e-3

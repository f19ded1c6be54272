"""Families of hypotheses: what each has shown is as in dense formulas, and the rules between them do as they say."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import MaternKernel, ProductKernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, dense, difference, examples, linear, matern, play, rbf, reward
from product import BATCHES, DICTIONARIES, MEMORIES, SPACES
from scipy.stats import binom, chisquare

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.acquisition import StagedRule, ThompsonRule, UniformRule, UpperConfidenceRule
from torch_kbandits.bandit.adaptation import DynamicModelSelection
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.dictionaries import FixedDictionary
from torch_kbandits.memory import Discount, SlidingWindow, TemporalPrior
from torch_kbandits.priors import families

#: The quick suite takes a case of each.
pytestmark = pytest.mark.one_in(5)

LAMBDA, BETA = 0.05, 1.5
ARMS = data(30, 2)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
LENGTHS = (0.8, 0.4, 0.2)
RULES = {
    "balancing": families.Balancing(noise_scale=0.1),
    "elimination": families.Elimination(noise_scale=0.1),
    "sampling": families.Sampling(),
    "prediction": families.Prediction(0.9),
}
CHOICES = {"upper bound": UpperConfidenceRule(), "Thompson": ThompsonRule(64)}


def family(rule, lengths=LENGTHS):
    return families.Family(tuple(families.ModelSpec(kernel=rbf(length)) for length in lengths), rule)


def bandit_of(rule, candidates=None, choice="upper bound", **words):
    given = {
        "candidates": kb.Arms(ARMS) if candidates is None else candidates,
        "kernel": rbf(LENGTHS[0]),
        "regularization": LAMBDA,
        "width": kb.ConstantWidth(BETA),
        "acquisition": CHOICES[choice],
        "family": family(RULES[rule]) if isinstance(rule, str) else rule,
        "seed": 4,
    }
    return kb.Bandit(**given | words)


def log_density(covariance, y):
    return oracles.log_density(y, covariance + LAMBDA * np.eye(len(y)))


# ---------------------------------------------------------------- what each has shown


def shown_densely(bandit):
    """What hypotheses of ``LENGTHS`` have shown by dense formulas, under a self-normalised width with R = 0.1."""
    history, sums = bandit.history, np.zeros((len(LENGTHS), 4))
    X, Y = dense(history.X, history.Y)
    for number, length in enumerate(LENGTHS):
        for turn in range(history.next_round):
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
    return dict(zip(("plays", "rewards", "widths", "residuals"), sums.T.tolist(), strict=True))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("rule", [families.Balancing(noise_scale=0.01), families.Elimination(noise_scale=0.01)])
def test_who_is_rejected_follows_from_dense_formulas(rule, choice):
    """Told singly, several at once, in another order than asked, and what nobody asked for."""
    bandit = bandit_of(family(rule), choice=choice, width=SelfNormalizedWidth(0.1, 1.0, 0.1))
    bandit.tell(ARMS[:4], reward(ARMS[:4]))
    active, rejections = [True] * len(LENGTHS), 0
    for turn in range(25):
        X = bandit.ask(1 + turn % 3)[: 2 if turn % 2 else None].flip(0)
        bandit.tell(X, 3.0 * reward(X))
        trials = shown(number=len(bandit.history.X), active=active, **shown_densely(bandit))
        kept = rule.kept(trials, torch.full((len(LENGTHS),), LAMBDA, dtype=DOUBLE)).tolist()
        rejections += active != kept
        active = kept
        shown_weights = np.array(bandit.model_weights)
        assert (shown_weights[~np.array(kept)] == 0.0).all()
        assert shown_weights.sum() == pytest.approx(1.0)
    assert rejections > 0


@pytest.mark.parametrize("kind", ["arms", "actions", "box", "aged", "dictionary"])
def test_weights_are_by_the_evidence_or_by_what_was_predicted(kind):
    """One by one or several at once; with a dictionary the evidence is that of its own model."""
    Z = ARMS[:4].numpy()
    candidates = {"actions": kb.ContextualActions(ARMS, context_dim=0), "box": kb.Box(BOX)}.get(kind)
    words = {"aged": {"memory": Discount(0.8)}, "dictionary": {"dictionary": FixedDictionary(ARMS[:4])}}.get(kind, {})
    bandit = bandit_of("sampling", candidates, **words)
    X, Y = ARMS[:12], data(12, 2)[1][:, 0]
    rounds = [slice(0, 5), slice(5, 6), slice(6, 7)] + ([slice(7, 12)] if kind in ("arms", "actions", "box") else [])
    expected = np.zeros(len(LENGTHS))
    points, values = dense(X, Y)
    for turn, rows in enumerate(rounds):
        for number, length in enumerate(LENGTHS):
            kernel, before = oracles.rbf(length), slice(0, rows.start)
            noise = LAMBDA * np.ones(rows.start)
            if kind == "dictionary":
                told = oracles.dtc(kernel, points[before], values[before], noise, Z, points[rows])
                if not turn:  # several rewards at once: by the prior of the dictionary's model
                    root = np.linalg.solve(np.linalg.cholesky(kernel(Z, Z)), kernel(Z, points[rows]))
                    told = told._replace(covariance=root.T @ root)
            else:
                if kind == "aged":
                    ages = np.concatenate([np.zeros(5), np.arange(1, turn)])[: rows.start]
                    noise = noise / 0.8 ** (turn - ages)
                told = oracles.exact(kernel, points[before], values[before], noise, points[rows])
                if kind == "aged":
                    told = told._replace(covariance=np.diag(told.variance))
            residual = values[rows] - told.mean
            expected[number] += log_density(told.covariance, residual)
        bandit.tell(X[rows], Y[rows])
        weights = np.exp(expected - expected.max())
        assert difference(torch.tensor(bandit.model_weights), weights / weights.sum()) < 1e-7


# ---------------------------------------------------------------- one hypothesis is none

ALONE = [
    *(("arms", {}), ("many arms", {"memory": MEMORIES["window"]}), ("arms in a file", {"memory": TemporalPrior(0.1)})),
    *(("box", {"dictionary": DICTIONARIES["fresh"]}), ("actions", {"batches": BATCHES["global"]})),
    ("box of actions", {"batches": BATCHES["local"]}),
]


@pytest.mark.one_in(46)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("space", "pieces"), ALONE)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("rule", RULES)
def test_with_one_hypothesis_it_is_the_bandit_without_a_family(rule, choice, space, pieces, tmp_path):
    words = {"candidates": SPACES[space].make(tmp_path), "choice": choice, **pieces}
    ours = bandit_of(family(RULES[rule], (0.4,)), **words)
    theirs = bandit_of(None, kernel=rbf(0.4), **words)
    assert torch.equal(play(ours, 3, 2), play(theirs, 3, 2))
    assert torch.equal(ours.ask(2), theirs.ask(2))
    assert torch.equal(ours.recommend(), theirs.recommend())
    assert torch.equal(ours.beta, theirs.beta)
    assert torch.equal(ours.weights, theirs.weights)
    assert ours.model_weights == (1.0,)


# ---------------------------------------------------------------- who plays


def test_hypotheses_are_drawn_with_their_probabilities():
    """Chi-square at a false-alarm rate of 1e-6, over seeds; what explains nothing is not drawn."""
    trials = shown(scores=[0.0, 1.0, -0.5])
    rule, draws = families.Sampling((1.0, 0.5, 3.0)), 3000
    expected = np.array([1.0, 0.5 * math.exp(1.0), 3.0 * math.exp(-0.5)])
    expected /= expected.sum()
    assert difference(rule.weights(trials), expected) < 1e-12
    counts = np.bincount([rule.offering(trials, seed)[0] for seed in range(draws)], minlength=3)
    assert chisquare(counts, draws * expected).pvalue > 1e-6
    for scores in ([-1e308, -1e308, -1e308], [0.0, -1e308, -1e308], [0.0, -800.0, 5.0]):
        weights = families.Sampling().weights(shown(scores=scores))
        assert float(weights.sum()) == pytest.approx(1.0)
        for seed in range(20):
            assert float(weights[families.Sampling().offering(shown(scores=scores), seed)[0]]) > 0.0


# ---------------------------------------------------------------- what is rejected


def shown(number=10, active=None, rates=None, **sums):
    """Trials of hypotheses with some sums; the others are 0."""
    columns = {name: torch.tensor(column, dtype=DOUBLE) for name, column in sums.items()}
    size = len(next(iter(columns.values())))
    none = torch.zeros(size, dtype=DOUBLE)
    words = {name: columns.get(name, none) for name in ("plays", "rewards", "widths", "residuals", "scores")}
    kept = torch.ones(size, dtype=torch.bool) if active is None else torch.tensor(active)
    return families.Trials(
        **words, active=kept, rates=none if rates is None else torch.tensor(rates, dtype=DOUBLE), number=number
    )


def noise_of(trials):
    return torch.full_like(trials.plays, 0.04)


def test_rejections_are_those_of_the_formulas_by_hand():
    """ξ = 2 R² ln(3 · π² · 100 / 0.6) with R = 0.1; of four plays the second must reach 1 − √(ξ / 16)."""
    rule, xi = families.Balancing(0.1, 0.1), 2.0 * 0.01 * math.log(3.0 * math.pi**2 * 100.0 / 0.6)
    assert xi == pytest.approx(0.17008, abs=1e-5)
    least = 1.0 - math.sqrt(xi / 16.0) - math.sqrt(xi / 4.0)
    most = math.sqrt(4.0 * xi * 4.0) + 0.7  # of elimination, with R = √λ = 0.2
    for beyond in (-1e-6, 1e-6):
        rewards = [16.0, 4.0 * (least + beyond) - 0.8, 0.0]
        trials = shown(plays=[16.0, 4.0, 0.0], rewards=rewards, widths=[9.0, 0.8, 0.0])
        assert rule.kept(trials, noise_of(trials)).tolist() == [True, beyond > 0.0, True]
        trials = shown(plays=[4.0, 4.0, 0.0], widths=[0.7, 0.7, 0.0], residuals=[-most - beyond, 0.0, 0.0])
        assert families.Elimination(0.1).kept(trials, noise_of(trials)).tolist() == [beyond < 0.0, True, True]
    # What is rejected stays so, and rejects nothing.
    gone = shown(plays=[16.0, 4.0, 1.0], rewards=[16.0, 0.0, 0.0], widths=[0.0, 0.0, 0.0], active=[False, True, True])
    assert rule.kept(gone, noise_of(gone)).tolist() == [False, True, True]


@given(st.data())
@examples(60)
def test_rules_never_reject_all_nor_take_back(draws):
    number = draws.draw(st.integers(1, 4))

    def some(values):
        return draws.draw(st.lists(values, min_size=number, max_size=number))

    active = draws.draw(st.lists(st.booleans(), min_size=number, max_size=number).filter(any))
    sums = {"plays": some(st.integers(0, 50).map(float)), "widths": some(st.floats(0.0, 1e6))}
    sums |= {name: some(st.floats(-1e6, 1e6)) for name in ("rewards", "residuals", "scores")}
    trials = shown(active=active, rates=some(st.floats(0.0, 1e6)), **sums)
    for rule in (*RULES.values(), families.Balancing(num_starting=1, shrinkage=0.0)):
        kept = rule.kept(trials, noise_of(trials))
        assert bool(kept.any())
        assert not bool((kept & ~trials.active).any())
        assert trials.active[rule.leader(trials)]
        assert all(trials.active[each] for each in rule.offering(trials, 0))
        assert float(rule.weights(trials).sum()) == pytest.approx(1.0)


def test_bounds_on_regret_are_balanced_and_shorter_length_scales_join_as_the_scale_grows():
    """The smallest bound after one more round leads; at shrinkage 1/2 and d = 2 the fourth joins at √t >= e^(3/2)."""
    for plays, leader in ((8.0, 1), (7.0, 0)):
        assert families.Balancing().leader(shown(plays=[plays, 1.0, 2.0], rates=[1.0, 2.0, 2.0])) == leader
    rule = families.Balancing(num_starting=2, shrinkage=0.5, step=0.5)
    joined = [int(rule.playing(shown(number=number, plays=[0.0] * 6)).sum()) for number in (0, 7, 8, 20, 21, 10_000)]
    assert joined == [2, 2, 3, 3, 4, 6]
    only_later = shown(plays=[1.0] * 6, active=[False, False, False, True, True, True])
    assert rule.playing(only_later).tolist() == [False, False, False, True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pe-gp-ucb", "pe-gp-ts", "lb-gp-ucb"])
def test_the_truth_is_rejected_at_most_at_the_rate_that_is_stated(name):
    """On draws of the true prior, δ = 0.1, half of it for the band and half for the noises; false alarms 1e-6."""
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
        rejected += bandit.model_weights[1] == 0.0
    assert binom.sf(rejected - 1, runs, 0.1) > 1e-6, rejected


# ---------------------------------------------------------------- what goes with them


def test_hypotheses_may_differ_in_all_that_is_assumed():
    """The one that leads speaks: its mean, memory and posterior are those that are shown."""
    variants = (
        families.ModelSpec(kernel=matern(0.3)),
        families.ModelSpec(regularization=0.4, memory=SlidingWindow(2.0)),
        families.ModelSpec(memory=Discount(0.5), mean=lambda X: torch.full_like(X[:, 0], 2.0)),
        families.ModelSpec(mean=0.0),
    )
    kernels = (oracles.matern52(0.3, 1.7), oracles.rbf(0.8), oracles.rbf(0.8), oracles.rbf(0.8))
    ages = np.arange(5.0, 0.0, -1)
    noises = (LAMBDA * np.ones(5), np.where(ages > 2.0, np.inf, 0.4), LAMBDA / 0.5**ages, LAMBDA * np.ones(5))
    means = (-1.0, -1.0, 2.0, 0.0)
    for number, (kernel, noise, mean) in enumerate(zip(kernels, noises, means, strict=True)):
        probabilities = np.full(4, 1e-300)
        probabilities[number] = 1.0
        bandit = bandit_of(families.Family(variants, families.Sampling(tuple(probabilities))), mean=-1.0)
        for row in range(5):
            bandit.tell(ARMS[row, None], 2.0 + 0.1 * row)
        assert bandit.model_weights[number] == pytest.approx(1.0)
        X, Y, T = dense(bandit.history.X, bandit.history.Y, ARMS)
        counts = np.isfinite(noise)
        expected = oracles.exact(kernel, X[counts], Y[counts] - mean, noise[counts], T)
        posterior = bandit.model.posterior(ARMS.unsqueeze(-2))
        assert difference(posterior.mean.flatten(), expected.mean + mean) < expected.rounding
        assert difference(posterior.variance.flatten(), expected.variance) < expected.rounding
        assert difference(bandit.weights, LAMBDA / noise if number != 1 else 1.0 * counts) < 1e-12


def test_longer_length_scales_are_nearer_points():
    X = data(6, 2)[0]
    for kernel in (rbf(0.7), matern(0.5), RBFKernel(ard_num_dims=2).double()):
        for scale, variant in zip((1.0, 0.3, 2.5), families.of_length_scales(kernel, (1.0, 0.3, 2.5)), strict=True):
            assert difference(variant.kernel(X).to_dense(), kernel(X / scale).to_dense()) < 1e-12
            assert variant.kernel is not kernel
    kernel = ProductKernel(rbf(0.5), MaternKernel(active_dims=(0,)).double(), linear())
    (variant,) = families.of_length_scales(kernel, (0.5,))
    lengths = [float(part.lengthscale.detach()) for part in variant.kernel.kernels[:2]]
    assert lengths == pytest.approx([0.25, 0.5 * float(kernel.kernels[1].lengthscale.detach())])


def test_default_length_scales_shrink():
    assert families.shrinking_scales(3, 2) == pytest.approx((1.0, math.exp(-0.5), math.exp(-1.0)))
    words = {"kernel": rbf(0.8), "regularization": LAMBDA, "beta": 1.0, "seed": 0}
    assert len(algorithms.LBGPUCB(candidates=ARMS, **words).model_weights) == 5
    assert len(algorithms.LBGPUCB(candidates=data(9, 6)[0], **words).model_weights) == 14
    assert len(hp_gp_ts(kernels=[rbf(0.2), matern()]).model_weights) == 2


def hp_gp_ts(**words):
    known = {"kernel": rbf(), "regularization": LAMBDA, "candidates": ARMS, "beta": 1.0, "seed": 0}
    return algorithms.HPGPTS(**known | words)


def test_what_does_not_fit_is_refused():
    for make, message in (
        (lambda: families.Family((), families.Sampling()), "variants must be one or more"),
        (lambda: families.Family((rbf(),), families.Sampling()), r"variants\[0\] must be"),
        (lambda: families.Sampling((1.0, 0.0)), r"probabilities\[1\] must be"),
        (lambda: bandit_of(family(families.Sampling((1.0,)))), "probabilities must have a number for each of 3"),
        (lambda: families.of_length_scales(linear(), (1.0,)), "This LinearKernel has no length scale"),
        (lambda: families.of_length_scales(rbf(), (0.0,)), r"scales\[0\] must be"),
        (lambda: bandit_of("sampling", acquisition=UniformRule()), "leave out family"),
        (lambda: bandit_of("sampling", acquisition=StagedRule(30)), "leave out family"),
        (lambda: bandit_of("sampling", memories=DynamicModelSelection((Discount(0.5),))), "Leave out memories"),
        (lambda: bandit_of("sampling", family=3), "family must be"),
        (lambda: hp_gp_ts(scales=(1.0,), kernels=[rbf()]), "either scales or kernels"),
        (lambda: hp_gp_ts(kernels=[3]), r"kernels\[0\] must be"),
    ):
        with pytest.raises(kb.InputError, match=message):
            make()


@pytest.mark.parametrize("rule", RULES)
def test_the_largest_rewards_break_nothing_and_a_restart_forgets_what_was_shown(rule):
    """The square of a residual is infinite."""
    bandit, fresh = bandit_of(rule), bandit_of(rule)
    for sign in (1.0, -1.0, 1.0):
        bandit.tell(bandit.ask(), sign * 1e200)
        assert bool(bandit.model.posterior(ARMS).mean.isfinite().all())
    assert sum(bandit.model_weights) == pytest.approx(1.0)
    bandit.restart()
    assert bandit.model_weights == fresh.model_weights

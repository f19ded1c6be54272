"""The noise variance told of each reward: dense heteroscedastic posteriors, λ where nothing is told, and what is told.

That a bandit told of noise is saved, replayed, logged and undisturbed by errors is with all kinds, see ``kinds.py``.
"""

import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from forgetting import ARMS, DICTIONARIES, KERNEL, LAMBDA, MEMORIES, TESTED, make, reward
from hypothesis import given
from kinds import KINDS, future, same
from kinds import make as named
from kinds import play as played
from problems import DOUBLE, believed, data, dense, difference, examples, matern, rbf
from scipy import stats

import torch_kbandits as kb
from benchmarks import noise_told
from torch_kbandits import InputError
from torch_kbandits.bandit.adaptation import CumulatedTrigger, ResidualTrigger
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.priors.evidence import fit_evidence
from torch_kbandits.priors.marginal import TrainingData

#: What a noise variance of its own (n,) has become at ages (n,), of what counts.
AGED = {
    "discount": lambda own, age: own * 0.8**-age,
    "discount to a limit": lambda own, age: own * 0.8**-age,
    "quadratic": lambda own, age: own * (0.7 * age**2 + 1.0),
    "linear": lambda own, age: own + 0.04 * age,
    "exponential": lambda own, age: own * 0.6**-age,
}
NOISES = st.lists(st.one_of(st.none(), st.floats(1e-3, 30.0)), min_size=12, max_size=12)
X = ARMS[torch.arange(12) % 9]
Y = reward(X) + 0.1 * torch.cos(9.0 * torch.arange(12, dtype=DOUBLE))


def expected(bandit, name, noises):
    """The dense posterior at ``TESTED``: of what counts each with the noise that is its own, or λ."""
    own, times, now = np.array([LAMBDA if each is None else each for each in noises]), np.arange(12.0), 12.0
    if name is not None:
        counts = np.isfinite(MEMORIES[name].noise(times, now))
        own = np.where(counts, AGED.get(name, lambda own, age: own)(own, now - times), np.inf)
    there = np.isfinite(own)
    known = KERNEL, *(part[there] for part in dense(X, Y)), own[there]
    T, Z = dense(TESTED, bandit.inducing_points)
    return oracles.exact(*known, T) if bandit.dictionary is None else oracles.dtc(*known, Z, T)


def is_as(bandit, dense_one):
    mean, variance = believed(bandit, TESTED)
    return max(difference(mean, dense_one.mean), difference(variance, dense_one.variance)) < dense_one.rounding


@examples(24)
@given(
    name=st.sampled_from([None, "window", "window of observations", "restart", *AGED]),
    posterior=st.sampled_from([*DICTIONARIES]),
    noises=NOISES,
)
def test_the_posterior_is_the_dense_one_of_the_noise_told_and_computed_afresh_the_same(name, posterior, noises):
    bandit, again = make(name, posterior), make(name, posterior)
    for x, y, noise in zip(X, Y, noises, strict=True):
        bandit.tell(x.unsqueeze(0), y, noise=noise)
    dense_one = expected(bandit, name, noises)
    assert is_as(bandit, dense_one)
    again.load_state_dict(bandit.state_dict())
    assert is_as(again, dense_one)
    weights = [1.0 if each is None else LAMBDA / each for each in noises]
    if name is None:
        assert bandit.weights.tolist() == pytest.approx(weights)
    if (told := bandit.history.noise) is not None:
        assert same(told, torch.tensor([math.nan if each is None else each for each in noises], dtype=DOUBLE))


@examples(12)
@given(
    posterior=st.sampled_from([*DICTIONARIES]), noises=NOISES, order=st.permutations(range(12)),
    name=st.sampled_from(["window", "linear"]),
)  # fmt: skip
def test_late_rewards_and_those_told_at_once_have_their_own_noise(posterior, noises, order, name):
    at_once, bandit = make(None, posterior), make(name)
    at_once.tell(X, Y, noise=noises)
    assert is_as(at_once, expected(at_once, None, noises))
    for place in order:
        bandit.tell(X[place, None], Y[place], noise=noises[place], time=float(place))
    bandit.mark_pending(X[:1], time=12.0)
    bandit.forget()
    assert is_as(bandit, expected(bandit, name, noises))


def test_points_that_know_the_time_and_the_filter_have_their_own_noise():
    noises = [None, 0.3, 0.01] * 4
    for memory, words in ((TemporalPrior(0.1), {}), (TemporalPrior(0.1, 0.2), {})):
        bandit = make(memory, **words)
        for place, noise in enumerate(noises):
            bandit.tell(X[place, None], Y[place], noise=noise)
        times = torch.arange(12, dtype=DOUBLE)
        timed, tested = torch.cat([times.unsqueeze(-1), X], -1), torch.cat([12.0 + 0.0 * TESTED[:, :1], TESTED], -1)
        counts = np.ones(12, bool) if memory.least_correlation is None else 0.9 ** (0.5 * (12.0 - np.arange(12))) >= 0.2
        own = np.array([LAMBDA if each is None else each for each in noises])[counts]
        known = (part[counts] for part in dense(timed, Y))
        dense_one = oracles.exact(oracles.in_time(KERNEL, 0.1), *known, own, *dense(tested))
        mean, variance = believed(bandit, tested)
        assert difference(mean, dense_one.mean) < dense_one.rounding
        assert difference(variance, dense_one.variance) < dense_one.rounding


#: Whose λ is given, and whose posterior is the same whether any noise is told: no filter of few arms.
FILTERED = ("sparq-gp-ucb", "w-sparq-gp-ucb", "tv-gp-ucb", "dms-tv-gp-ucb", "outcomes in batches")
ALIKE = [name for name in KINDS if "prior" not in name and "noise" not in name and name not in FILTERED]


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", ALIKE)
def test_noise_that_is_lambda_changes_no_digit(name):
    kind = KINDS[name]
    bandits = [kind._replace(told=told) for told in (kind.told, lambda X, n: kind.told(X, n) | noise_for(kind, X, n))]
    asked, known = [], []
    for each in bandits:
        bandit = each.make()
        played(each, bandit, each.rounds)
        asked.append(future(each, bandit))
        known.append(torch.cat([*believed(bandit, bandit.history.X[:4]), bandit.weights]))
    assert torch.equal(*known)
    assert torch.equal(*asked)


def noise_for(kind, X, number):
    return {"noise": [0.05] * len(X)} if number % 2 else {"noise": 0.05}


@pytest.mark.parametrize("posterior", DICTIONARIES)
@pytest.mark.parametrize("memory", [None, "window", "linear"])
def test_a_reward_of_huge_noise_changes_nothing_and_one_of_none_is_believed(posterior, memory):
    bandit, other = make(memory, posterior), make(memory, posterior)
    for each in (bandit, other):
        each.tell(X, Y, noise=0.02)
    other.tell(X[:1] + 0.001, 1e6, noise=1e290)
    other.tell(X[3:4], -1e6, sem=1e150)
    if memory is not None:  # time goes on
        bandit = make(memory, posterior)
        bandit.tell(X, Y, noise=0.02, time=0.0)
        bandit.ask(time=float(other.now), remember=False)
        other = make(memory, posterior)
        other.tell(X, Y, noise=0.02, time=0.0)
        other.tell(X[3:4], -1e6, sem=1e150, time=0.0)
    assert max(map(difference, believed(bandit, TESTED), believed(other, TESTED))) < 1e-9
    other.tell(X[5:6], 0.75, noise=1e-300)
    mean, variance = believed(other, X[5:6])
    assert abs(float(mean) - 0.75) < 1e-4
    assert float(variance) < 2e-6 * LAMBDA


def test_numbers_for_all_or_each_and_standard_errors_are_the_same_noise():
    bandits = [make(None) for _ in range(6)]
    own = [0.04, 0.09, 0.25]
    said = [
        {"noise": own}, {"sem": [0.2, 0.3, 0.5]}, {"noise": np.array(own)}, {"noise": torch.tensor(own, dtype=DOUBLE)},
        {"sem": torch.tensor(own, dtype=DOUBLE).sqrt().unsqueeze(-1)}, {"noise": tuple(own)},
    ]  # fmt: skip
    for bandit, words in zip(bandits, said, strict=True):
        bandit.tell(X[:3], Y[:3], **words)
        assert bandit.history.noise.tolist() == pytest.approx(own, rel=1e-15)
    bandit = make(None)
    bandit.run(lambda x: {"y": reward(x), "sem": 0.5}, 2)
    bandit.tell(X[:2], [None, 1.0], failed=[True, False], noise=0.5)
    bandit.tell(X[:1], failed=True, noise=0.5)
    bandit.tell(X[:2], Y[:2], noise=[None, math.nan])
    noise = [0.25, 0.25, math.nan, 0.5, math.nan, math.nan, math.nan]
    assert same(bandit.history.noise, torch.tensor(noise, dtype=DOUBLE))
    weights = [0.2, 0.2, 0.0, 0.1, 0.0, 1.0, 1.0]
    assert bandit.weights.tolist() == pytest.approx(weights)
    plain = make(None)
    plain.tell(X[:2], Y[:2])
    assert plain.history.noise is None


WRONG = {
    "noise must be a finite number above 0.* got -1.0": {"noise": -1.0},
    "noise must be a finite number above 0.* got 0.0": {"noise": [0.1, 0.0]},
    "sem must be a finite number above 0.* got inf": {"sem": math.inf},
    "the square of sem must be .* got 0.0": {"sem": 1e-200},
    "Give either noise, a variance, or sem": {"noise": 0.1, "sem": 0.1},
    "noise must have a number for each of the 2 point": {"noise": [0.1, 0.1, 0.1]},
    "sem must be": {"sem": "small"},
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_noise_is_refused_and_nothing_is_lost(said):
    bandit = make("discount", outcomes=["heat"])
    bandit.tell(X[:1], Y[0], noise=0.1, outcomes={"heat": 1.0})
    before = bandit.state_dict()
    with pytest.raises(InputError, match=said):
        bandit.tell(X[:2], Y[:2], **WRONG[said])
    with pytest.raises(InputError, match="only outcomes are told: give them with y"):
        bandit.tell(X[:1], outcomes={"heat": 0.5}, noise=0.1)
    history = bandit.history
    for noise in (-1.0, 0.0, math.inf):
        with pytest.raises(InputError, match=r"history.noise must be a finite number above 0"):
            make("discount", outcomes=["heat"]).replay(history._replace(noise=torch.tensor([noise])))
    assert same(before, bandit.state_dict())


def test_outcomes_keep_their_noise_and_failures_theirs():
    """An outcome whose posterior was beside that of rewards, and what plays that fail say, are as without noise."""
    bandits = [make(None, outcomes=["heat"]) for _ in range(2)]
    for bandit, words in zip(bandits, ({}, {"noise": 3.0}), strict=True):
        bandit.tell(X[:4], Y[:4], outcomes={"heat": Y[:4]})
        bandit.tell(X[4:6], Y[4:6], outcomes={"heat": Y[4:6]}, **words)
        bandit.tell(X[6:8], [Y[6], None], failed=[False, True], outcomes={"heat": [1.0, None]}, **words)
    heat = [bandit.outcome_model("heat").posterior(TESTED).mean.flatten() for bandit in bandits]
    failing = [bandit.failure_probability(TESTED) for bandit in bandits]
    assert difference(*heat) < 1e-12
    assert difference(*failing) < 1e-12
    assert difference(*(believed(bandit, TESTED)[0] for bandit in bandits)) > 1e-3


# ---------------------------------------------------------------- dictionaries


class Seen(kb.RidgeLeverageSampling):
    """Remembers what it was told of plays."""

    def select(self, played, generator=None):
        SEEN.append(played)
        return super().select(played, generator)


SEEN = []
WORDS = {"width": kb.ConstantWidth(1.0), "seed": 0}


def test_scores_are_variances_over_own_noise():
    """A rule is told how many fresh observations a point has, so that its inclusion goes by Σ_s τ(x_s)/λ_s."""
    words = {"candidates": kb.Arms(ARMS), "kernel": matern(), "regularization": LAMBDA}
    bandit = kb.Bandit(dictionary=Seen(2.0), **words, **WORDS)
    bandit.tell(X[:3], Y[:3], noise=[0.025, 0.1, None])
    bandit.tell(X[:4], Y[:4], noise=[0.05, 0.05, 0.5, 0.01])
    assert SEEN[-1].counts.tolist() == pytest.approx([3.0, 1.5, 1.1, 5.0])
    assert SEEN[-1].new_counts.tolist() == pytest.approx([1.0, 1.0, 0.1, 5.0])


@pytest.mark.parametrize("rule", [kb.KORS(1.0), kb.CappedDictionary(kb.KORS(1.0), 40, "stop")])
def test_an_online_rule_asks_about_a_play_by_its_own_noise(rule):
    """KORS takes min(1, (3/2) r/(r + λ_s)) of points far apart, whose r is their prior variance."""
    points, drawn = 9.0 * torch.arange(61, dtype=DOUBLE).unsqueeze(-1), []
    for seed in range(8):
        words = {"candidates": kb.Arms(points), "kernel": rbf(0.5), "regularization": 0.1}
        bandit = kb.Bandit(dictionary=rule, **words, **WORDS | {"seed": seed})
        bandit.tell(points[:1], 0.0)
        bandit.tell(points[1:], torch.zeros(60), noise=5.0)  # joins with probability 1/4
        drawn.append(len(bandit.inducing_points) - 1)
        weights = bandit._state.told.dictionary_weights
        assert weights.tolist() == pytest.approx([1.0] + [0.1 / 5.0 / 0.25] * drawn[-1])
    low, high = stats.binom.interval(1.0 - 1e-6, 480, 0.25)
    assert low <= sum(drawn) <= high


# ---------------------------------------------------------------- learned priors, families, residuals


def log_density(X, y, lengthscale, own):
    gram = oracles.matern52(lengthscale, 1.0)(X, X) + np.diag(own)
    return oracles.log_density(y, gram), oracles.rounding(len(y), float(np.linalg.cond(gram)), 100.0)


def test_the_evidence_takes_noise_as_told_and_fits_lambda_to_the_others():
    X, Y = data(60, 1, seed=3)
    told = torch.full((60,), math.nan, dtype=DOUBLE)
    told[::2] = 4.0 ** (torch.arange(30) % 4 - 2.0)
    again = torch.cat([X, X[:20]]), torch.cat([Y, 0.9 * Y[:20]])[:, 0], torch.cat([told, told[1:21]])
    fixed = matern(0.3, 1.0).requires_grad_(False)
    fit = fit_evidence(TrainingData(again[0], again[1], noise=again[2]), fixed, regularization=0.03, seed=0)
    points, rewards, own = dense(*again)
    value, rounding = log_density(points, rewards, 0.3, np.where(np.isnan(own), 0.03, own))
    assert abs(fit.evidence - value) < rounding
    learned = fit_evidence(TrainingData(again[0], again[1], noise=again[2]), fixed, seed=0)

    def posterior(level):
        value, _ = log_density(points, rewards, 0.3, np.where(np.isnan(own), level, own))
        return value + stats.lognorm(1.0, scale=np.exp(-4.0)).logpdf(level)

    best = posterior(learned.regularization)
    assert best > max(posterior(1.02 * learned.regularization), posterior(learned.regularization / 1.02))


def noisy_data(number, seed):
    """Plays of which every second one has a noise variance of 1, told, and the others of 0.01, not told."""
    X, _ = data(number, 1, seed=seed)
    own = torch.where(torch.arange(number) % 2 == 0, 1.0, 0.01).double()
    random = torch.randn(number, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    y = 2.0 * torch.sin(5.0 * X[:, 0]) + own.sqrt() * random
    return X, y, torch.where(own == 1.0, own, math.nan)


@pytest.mark.parametrize("words", [{}, {"memory": kb.memory.SlidingWindow(500.0)}, {"memory": kb.memory.Discount(1.0)}])
def test_a_learned_lambda_is_that_of_rewards_whose_noise_nobody_told(words):
    X, y, noise = noisy_data(80, 5)
    bandits = []
    for told in (noise, None):
        bandit = kb.algorithms.build(
            "gp-ei", candidates=kb.UnitCube(1), prior=kb.LearnedPrior(num_initial=10), seed=0, **words
        )
        bandit.tell(X, 20.0 + 3.0 * y, noise=None if told is None else 9.0 * told)
        bandits.append(bandit)
    assert 0.01 < bandits[0].regularization < 0.36  # 9 times 0.01, within a factor of four or nine below
    assert bandits[1].regularization > 1.5
    assert bandits[0].weights[::2].mean() < 0.1


def test_hypotheses_are_judged_by_the_density_of_rewards_of_their_own_noise():
    own = [0.4, 0.01, 0.05, 0.2]
    bandit = named("lb-gp-ucb", candidates=ARMS)
    bandit.tell(X[:4], Y[:4], noise=own)
    scores = bandit._state.told.trials.scores
    for score, part in zip(scores.tolist(), bandit._state.told.parts, strict=True):
        base = getattr(part.kernel, "base_kernel", part.kernel)
        gram = oracles.rbf(float(base.lengthscale))(*dense(X[:4], X[:4])) + np.diag(own)
        assert score == pytest.approx(oracles.log_density(Y[:4].numpy(), gram), rel=1e-9)


@pytest.mark.parametrize("posterior", ["exact", "kors"])
def test_residuals_are_standard_normal_where_noise_differs_a_hundredfold(posterior):
    """Of 500 residuals of draws of the prior; coverage beyond these bounds would come with probability 1e-5."""
    covered, number, squares = 0, 0, 0.0
    points = ARMS
    gram = KERNEL(*dense(points, points))
    values, vectors = np.linalg.eigh(gram)
    for seed in range(5):
        random = np.random.default_rng(seed)
        f = vectors @ (np.sqrt(values.clip(0.0)) * random.normal(size=len(points)))
        bandit = make(None, posterior)
        for _ in range(100):
            row, noise = random.integers(len(points)), 10.0 ** random.uniform(-2.0, 0.0)
            bandit.tell(points[row, None], f[row] + math.sqrt(noise) * random.normal(), noise=noise)
        health = bandit.health()
        covered += round(health.coverage * health.num_residuals)
        number += health.num_residuals
        squares += health.recent_spread**2 * 100
    low, high = stats.binom.interval(1.0 - 1e-5, number, 0.95)
    assert number == 500
    assert low <= covered <= high
    low, high = stats.chi2.interval(1.0 - 1e-5, 500)
    assert posterior == "kors" or low <= squares <= high


@pytest.mark.parametrize("trigger", [ResidualTrigger(0.1), CumulatedTrigger(0.1)])
def test_a_reward_as_far_off_as_its_noise_said_is_no_change(trigger):
    for noise, restarts in ((36.0, False), (None, True)):
        bandit = make(None, trigger=trigger)
        bandit.tell(X, Y)
        bandit.tell(X[:4], Y[:4] + 5.0, noise=noise)
        assert (float(bandit.weights[0]) == 0.0) == restarts


def test_single_precision_has_the_same_noise():
    words = {"regularization": LAMBDA, "dictionary": kb.RidgeLeverageSampling(2.0), **WORDS}
    arms = ARMS.float()
    bandit = kb.Bandit(candidates=kb.Arms(arms), kernel=matern(0.5, 1.7).float(), **words)
    bandit.tell(arms[:5], Y[:5], noise=[0.2, None, 0.1, 0.01, 1.0])
    assert bandit.history.noise.dtype == DOUBLE
    own = np.array([0.2, LAMBDA, 0.1, 0.01, 1.0])
    known = KERNEL, *dense(arms[:5], Y[:5].float()), own, *dense(bandit.inducing_points, TESTED.float())
    mean, variance = believed(bandit, TESTED.float())
    dense_one = oracles.dtc(*known)
    assert difference(mean, dense_one.mean) < 1e-4
    assert difference(variance, dense_one.variance) < 1e-4


def test_the_benchmark_plays_the_same_noise_told_or_not():
    for by_arm in (False, True):
        _, _, means, deviations, _ = noise_told.problem(3, 4, by_arm=by_arm)
        assert deviations.shape == (4, len(means))
        assert noise_told.LEAST <= deviations.min() < deviations.max() <= noise_told.MOST
        assert bool((deviations == deviations[:1]).all()) == by_arm

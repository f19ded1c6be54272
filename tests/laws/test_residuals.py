"""Residuals of one-step predictions: what they are, what is bet on them, and how often the bet is won by mistake."""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, dense, difference, rbf
from scipy import stats

from torch_kbandits import LearnedPrior, RidgeLeverageSampling, StateMismatchError, algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.bandit.residuals import (
    FALSE_ALARM,
    MISFITS,
    RECENT,
    SLACKS,
    Group,
    Residuals,
    Surprise,
    standardized,
)
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.memory import Linear, SlidingWindow, UncertaintyInjection
from torch_kbandits.priors import Prior

ARMS = data(30, 2)[0]
NOISE = 0.01
GROUPS = st.lists(st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=4), min_size=1, max_size=12)


def stake(number):
    """Half on what is wrong from the start; the other half is spread over what changes."""
    return 0.5 if number == 1 else 0.5 * (1.0 / (1.0 + math.log(number - 1)) - 1.0 / (1.0 + math.log(number)))


def dense_evidence(groups, alternatives):
    """The sum over all start times of what a stake that was put down then has become, and what is left."""
    known, total = len(groups), 0.0
    for alternative in alternatives:
        model = stats.norm(alternative.shift, alternative.deviation)
        factors = [np.mean(model.pdf(group) / stats.norm.pdf(group)) for group in map(np.array, groups)]
        made = sum(stake(start + 1) * np.prod(factors[start:]) for start in range(known))
        total += made / len(alternatives)
    return math.log(total + 0.5 / (1.0 + math.log(known)))


def bet(groups, alternatives=MISFITS):
    surprise = Surprise.against(alternatives)
    for number, group in enumerate(groups):
        surprise = surprise.after([Group(group, number, True)])[0]
    return surprise


@given(GROUPS, st.sampled_from([MISFITS, SLACKS]))
def test_the_bet_is_the_sum_over_all_start_times(groups, alternatives):
    expected = dense_evidence(groups, alternatives)
    assert bet(groups, alternatives).log_evidence == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(GROUPS)
def test_residuals_wait_until_they_are_judged(groups):
    """However a group comes in parts, it is one factor; until then nothing is said."""
    whole = [[z for group in groups for z in group]]
    surprise = Surprise.against(MISFITS)
    for group in groups:
        surprise = surprise.after([Group(group, 0, False)])[0]
        assert surprise.log_evidence == 0.0
    assert surprise.after([Group([], 0, True)])[0].log_evidence == pytest.approx(
        bet(whole).log_evidence, rel=1e-9, abs=1e-9
    )


def test_stakes_sum_to_one():
    assert sum(map(stake, range(1, 2000))) + 0.5 / (1.0 + math.log(1999)) == pytest.approx(1.0, abs=1e-12)


def alarms(alpha, draw, runs=200, rounds=120, alternatives=MISFITS):
    """In how many of the runs the bet ever passes 1/α."""
    generator, number = np.random.default_rng(7), 0
    for _ in range(runs):
        surprise, most = Surprise.against(alternatives), 0.0
        for t in range(rounds):
            surprise = surprise.after([Group(draw(generator), t, True)])[0]
            most = max(most, surprise.log_evidence)
        number += most >= -math.log(alpha)
    return number


@pytest.mark.parametrize("alternatives", [MISFITS, SLACKS])
def test_the_bet_is_won_by_mistake_as_rarely_as_said(alternatives):
    """α = 0.2; more than 65 of 200 would come with probability below 1e-5. Wrong residuals pass that by far."""
    most = int(stats.binom.isf(1e-5, 200, 0.2))
    assert alarms(0.2, lambda generator: generator.normal(size=1).tolist(), alternatives=alternatives) <= most
    factor = 1.5 if alternatives is MISFITS else 0.5
    wrong = alarms(0.2, lambda generator: (factor * generator.normal(size=1)).tolist(), 100, alternatives=alternatives)
    assert wrong > 65


def test_residuals_judged_together_may_depend_on_each_other():
    """Eight times the same residual is one: as eight factors it would be won by mistake in most runs."""
    most = int(stats.binom.isf(1e-5, 100, 0.2))
    assert alarms(0.2, lambda generator: [generator.normal()] * 8, runs=100, rounds=60) <= most


def test_a_late_change_is_dated():
    generator = np.random.default_rng(0)
    groups = [[z] for z in (*generator.normal(size=300), *(generator.normal(size=30) + 1.0))]
    alternative, start = bet(groups).leading
    assert alternative.shift > 0.0
    assert 290 <= start <= 310


def gp_draw(seed, rounds):
    """Values of a function of the prior at the arms, and noise."""
    generator = torch.Generator().manual_seed(seed)
    covariance = torch.tensor(oracles.rbf(0.3)(ARMS.numpy(), ARMS.numpy()))
    values, vectors = torch.linalg.eigh(covariance)
    means = vectors @ (values.clamp_min(0.0).sqrt() * torch.randn(len(ARMS), generator=generator, dtype=DOUBLE))
    return means, math.sqrt(NOISE) * torch.randn(rounds, generator=generator, dtype=DOUBLE)


def words(**settings):
    return {"candidates": ARMS, "kernel": rbf(0.3), "regularization": NOISE, "beta": 2.0, "seed": 3} | settings


def play(bandit, means, noise, factor=1.0):
    for each in noise:
        x = bandit.ask()
        bandit.tell(x, means[(x == ARMS).all(-1)] + factor * each)
    return bandit._standing.residuals


def test_residuals_are_those_of_the_posterior_before():
    bandit = algorithms.IGPUCB(**words())
    X, y = ARMS[[0, 3, 3, 8, 12, 0, 5]], torch.linspace(-1.0, 2.0, 7, dtype=DOUBLE)
    for row in range(7):
        bandit.tell(X[row : row + 1], y[row])
    expected = []
    for row in range(7):
        seen = oracles.exact(oracles.rbf(0.3), *dense(X[:row], y[:row]), np.full(row, NOISE), X[row : row + 1].numpy())
        expected.append(float((y[row] - seen.mean[0]) / math.sqrt(seen.variance[0] + NOISE)))
    known = bandit._standing.residuals
    assert difference(torch.tensor(known.recent, dtype=DOUBLE), np.array(expected)) < 1e-8
    assert (known.number, known.covered) == (7, sum(abs(z) <= 1.96 for z in expected))


@pytest.mark.parametrize("algorithm", ["igp-ucb", "gp-ts"])
def test_residuals_of_a_right_model_are_standard_normal_whatever_is_played(algorithm):
    """600 residuals; each bound is passed with probability below 1e-4, and by a model that is wrong by a quarter."""
    found = {1.0: [], 1.25: []}
    for factor, all_of_them in found.items():
        for seed in range(20 if factor == 1.0 else 6):
            means, noise = gp_draw(seed, 30)
            bandit = algorithms.build(algorithm, **words(regularization=NOISE / factor**4, seed=seed))
            all_of_them += play(bandit, means, noise, 1.0).recent
    right, wrong = np.array(found[1.0]), np.array(found[1.25])
    assert stats.kstest(right, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(right[:-1], right[1:])[0, 1]) < 4.0 / math.sqrt(len(right))
    assert stats.chi2.sf((wrong**2).sum(), len(wrong)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling()])
def test_bandits_on_draws_of_the_prior_are_flagged_as_rarely_as_said(dictionary):
    """150 runs at α = 0.01: more than 8 would come with probability below 1e-4. Noise of twice the size flags most."""
    flagged = {1.0: 0, 2.0: 0}
    for factor in flagged:
        for seed in range(150 if factor == 1.0 else 20):
            means, noise = gp_draw(seed, 80)
            bandit = Bandit(
                candidates=Arms(ARMS),
                kernel=rbf(0.3),
                regularization=NOISE,
                width=ConstantWidth(2.0),
                dictionary=dictionary,
                seed=seed,
            )
            flagged[factor] += play(bandit, means, noise, factor).flagged is not None
    assert flagged[1.0] <= int(stats.binom.isf(1e-4, 150, FALSE_ALARM))
    assert flagged[2.0] >= 12


def test_only_rewards_that_are_numbers_leave_residuals():
    Y, zero = torch.tensor([1.0, math.nan, -2.0], dtype=DOUBLE), torch.zeros(3, dtype=DOUBLE)
    assert standardized(Y, zero, zero + 3.0, torch.tensor(1.0)) == [0.5, -1.0]
    assert standardized(Y * 1e308, -Y * 1e308, zero, torch.tensor(0.0)) == [1e6, -1e6]


def test_a_late_reward_has_the_noise_that_it_counts_with():
    """Ten rounds old it has λ + 10 · 0.5; of those that a window has dropped nothing is judged."""
    grown, dropped = (
        Bandit(
            candidates=Arms(ARMS),
            kernel=rbf(0.3),
            regularization=NOISE,
            width=ConstantWidth(2.0),
            memory=memory,
            seed=0,
        )
        for memory in (UncertaintyInjection(Linear(0.5)), SlidingWindow(5.0))
    )
    for bandit in (grown, dropped):
        bandit.tell(ARMS[:1], 0.0, time=10.0)
        bandit.tell(ARMS[5:6], 1.5, time=0.0)
    seen = oracles.exact(oracles.rbf(0.3), *dense(ARMS[:1], torch.zeros(1)), np.full(1, NOISE), ARMS[5:6].numpy())
    expected = (1.5 - seen.mean[0]) / math.sqrt(seen.variance[0] + NOISE + 5.0)
    assert grown._standing.residuals.recent[1] == pytest.approx(float(expected), rel=1e-8)
    assert dropped._standing.residuals.number == 1


def test_of_rewards_told_at_once_the_first_are_judged_together():
    bandit = algorithms.IGPUCB(**words())
    bandit.tell(ARMS.repeat(40, 1), torch.zeros(1200, dtype=DOUBLE))
    known = bandit._standing.residuals
    assert (known.number, known.misfit.number, len(known.recent)) == (256, 1, RECENT)


def test_what_a_batch_rule_holds_is_judged_with_its_batch():
    bandit = Bandit(
        candidates=Arms(ARMS),
        kernel=rbf(0.3),
        regularization=NOISE,
        width=ConstantWidth(2.0),
        dictionary=RidgeLeverageSampling(),
        batches=GlobalBatchRule(300.0),
        seed=0,
    )
    factors = 0
    for row in range(12):
        bandit.tell(ARMS[row : row + 1], 0.3)
        known, held = bandit._standing.residuals, sum(len(part.X) for part in bandit._standing.ledger.held)
        assert known.misfit.num_held == known.slack.num_held == held
        factors += held == 0
        assert (known.number, known.misfit.number) == (row + 1, factors)
    assert 1 < factors < 12


def test_nothing_is_expected_before_a_prior_was_fitted_and_each_fit_starts_anew():
    bandit = algorithms.IGPUCB(candidates=ARMS, prior=LearnedPrior(num_initial=5), beta=2.0, seed=0)
    for t in range(12):
        before = bandit._standing.last_fit
        x = bandit.ask()
        bandit.tell(x, 100.0 + torch.sin(5.0 * x).sum())
        known, after = bandit._standing.residuals, bandit._standing.last_fit
        if after.number == 0 or after != before:
            assert known.number == 0
        else:
            assert (known.since, known.number) == (after.number, t + 1 - after.number)
    assert known.since


CASES = {
    "exact": lambda: algorithms.IGPUCB(**words()),
    "sparse": lambda: algorithms.BKB(**words()),
    "batches": lambda: algorithms.BBKB(**words()),
    "triggered": lambda: algorithms.ETGPUCB(**words()),
    "memory": lambda: algorithms.IGPUCB(**words(memory=SlidingWindow(7.0))),
    "blocks": lambda: algorithms.BOBGPUCB(**words(horizon=40, block_size=5, shares_history=False)),
    "fitted": lambda: algorithms.IGPUCB(candidates=ARMS, prior=LearnedPrior(num_initial=5), beta=2.0, seed=0),
    "floor": lambda: algorithms.IGPUCB(candidates=ARMS, prior=Prior(rbf(0.3), NOISE, floor=-0.5), beta=2.0, seed=3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_they_are_saved_loaded_and_replayed(case):
    bandit, loaded, replayed = CASES[case](), CASES[case](), CASES[case]()
    for t in range(16):
        x = bandit.ask()
        bandit.tell(x, 2.0 * torch.sin(9.0 * x).sum() * (1.0 if t < 9 else -1.0))
    known = bandit._standing.residuals
    assert known.number or case in ("triggered", "blocks")
    loaded.load_state_dict(bandit.state_dict())
    assert str(loaded._standing.residuals.state()) == str(known.state())
    replayed.replay(bandit.history)
    again = replayed._standing.residuals
    for name in ("since", "number", "covered", "flagged", "slack_since"):
        assert getattr(again, name) == getattr(known, name)
    assert again.recent == pytest.approx(known.recent, rel=1e-5, abs=1e-7)
    assert again.misfit.log_evidence == pytest.approx(known.misfit.log_evidence, rel=1e-5, abs=1e-6)


def test_a_restart_begins_anew_and_forgets_what_was_flagged():
    bandit = algorithms.IGPUCB(**words())
    for row in range(6):
        bandit.tell(ARMS[row : row + 1], 9.0)
    assert bandit._standing.residuals.flagged == 0
    bandit.restart()
    assert str(bandit._standing.residuals.state()) == str(Residuals(6).state())


DAMAGES = {
    "covered": lambda saved: saved | {"covered": 9},
    "recent": lambda saved: saved | {"recent": saved["recent"][:2]},
    "recent numbers": lambda saved: saved | {"recent": saved["recent"] * math.nan},
    "since": lambda saved: saved | {"since": 7},
    "flagged": lambda saved: saved | {"flagged": -1},
    "logs": lambda saved: saved | {"misfit": saved["misfit"] | {"logs": saved["misfit"]["logs"][:3]}},
    "starts": lambda saved: saved | {"slack": saved["slack"] | {"starts": [99, 0]}},
    "held": lambda saved: saved | {"slack": saved["slack"] | {"num_held": 2}},
    "a part": lambda saved: {name: part for name, part in saved.items() if name != "misfit"},
    "a kind": lambda saved: saved | {"misfit": saved["misfit"] | {"number": 4.0}},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_together_is_refused(damage):
    bandit, other = algorithms.IGPUCB(**words()), algorithms.IGPUCB(**words())
    for row in range(5):
        bandit.tell(ARMS[row : row + 1], 0.1)
    state = bandit.state_dict()
    with pytest.raises(StateMismatchError, match="damaged"):
        other.load_state_dict(state | {"residuals": DAMAGES[damage](state["residuals"])})
    assert other.round == 0

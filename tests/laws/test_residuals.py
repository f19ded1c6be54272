"""Residuals of one-step predictions: what is bet on them, and how often the bet is won by mistake.

That they are those of the posterior before is in ``test_posterior``.
"""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, data, rbf
from scipy import stats

import torch_kbandits as kb
from torch_kbandits import LearnedPrior, RidgeLeverageSampling
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.bandit.residuals import FALSE_ALARM, MISFITS, SLACKS, Surprise
from torch_kbandits.confidence import ConstantWidth

ARMS, NOISE = data(30, 2)[0], 0.01
GROUPS = st.lists(st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=4), min_size=1, max_size=12)


def stake(number):
    """Half on what is wrong from the start; the other half is spread over what changes."""
    return 0.5 if number == 1 else 0.5 * (1.0 / (1.0 + math.log(number - 1)) - 1.0 / (1.0 + math.log(number)))


def dense_evidence(groups, alternatives):
    """The sum over all start times of what a stake that was put down then has become, and what is left."""
    known, total = len(groups), 0.0
    for alternative in alternatives:
        model = stats.norm(*alternative)
        factors = [np.mean(model.pdf(group) / stats.norm.pdf(group)) for group in map(np.array, groups)]
        made = sum(stake(start + 1) * np.prod(factors[start:]) for start in range(known))
        total += made / len(alternatives)
    return math.log(total + 0.5 / (1.0 + math.log(known)))


def bet(groups, alternatives=MISFITS):
    surprise = Surprise.against(alternatives)
    for number, group in enumerate(groups):
        surprise = surprise.after([(group, number, True)])[0]
    return surprise


@given(GROUPS, st.sampled_from([MISFITS, SLACKS]))
def test_the_bet_is_the_sum_over_all_start_times(groups, alternatives):
    """However a group comes in parts, it is one factor once it is judged; until then nothing is said."""
    expected = dense_evidence(groups, alternatives)
    assert bet(groups, alternatives).log_evidence == pytest.approx(expected, rel=1e-9, abs=1e-9)
    surprise = Surprise.against(alternatives)
    for group in groups:
        surprise = surprise.after([(group, 0, False)])[0]
        assert surprise.log_evidence == 0.0
    whole = bet([[z for group in groups for z in group]], alternatives)
    judged = surprise.after([([], 0, True)])[0]
    assert judged.log_evidence == pytest.approx(whole.log_evidence, rel=1e-9, abs=1e-9)


def alarms(draw, runs, rounds=120, alternatives=MISFITS):
    """In how many of the runs the bet ever passes 1/α, α = 0.2."""
    generator, number = np.random.default_rng(7), 0
    for _ in range(runs):
        surprise, most = Surprise.against(alternatives), 0.0
        for t in range(rounds):
            surprise = surprise.after([(draw(generator), t, True)])[0]
            most = max(most, surprise.log_evidence)
        number += most >= -math.log(0.2)
    return number


@pytest.mark.parametrize("alternatives", [MISFITS, SLACKS])
def test_the_bet_is_won_by_mistake_as_rarely_as_said(alternatives):
    """More than so many of 100 would come with probability below 1e-5; eight times the same residual is one factor."""
    most, factor = int(stats.binom.isf(1e-5, 100, 0.2)), 1.5 if alternatives is MISFITS else 0.5
    words = {"alternatives": alternatives, "runs": 100}
    assert alarms(lambda generator: generator.normal(size=1).tolist(), **words) <= most
    assert alarms(lambda generator: [generator.normal()] * 8, rounds=60, **words) <= most
    assert alarms(lambda generator: (factor * generator.normal(size=1)).tolist(), **words) > most


def gp_draw(seed, rounds):
    """Values of a function of the prior at the arms, and noise."""
    generator = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(torch.tensor(oracles.rbf(0.3)(ARMS.numpy(), ARMS.numpy())))
    means = vectors @ (values.clamp_min(0.0).sqrt() * torch.randn(len(ARMS), generator=generator, dtype=DOUBLE))
    return means, math.sqrt(NOISE) * torch.randn(rounds, generator=generator, dtype=DOUBLE)


WORDS = {"kernel": rbf(0.3), "regularization": NOISE, "seed": 3}


def composed(**words):
    return kb.Bandit(candidates=kb.Arms(ARMS), width=ConstantWidth(2.0), **(WORDS | words))


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [None, RidgeLeverageSampling()])
def test_bandits_on_draws_of_the_prior_are_flagged_as_rarely_as_said(dictionary):
    """150 runs at α = 0.01: more than 8 would come with probability below 1e-4. Noise of twice the size flags most."""
    flagged = {1.0: 0, 2.0: 0}
    for factor in flagged:
        for seed in range(150 if factor == 1.0 else 20):
            bandit = composed(dictionary=dictionary, seed=seed)
            means, noise = gp_draw(seed, 80)
            for each in noise:
                x = bandit.ask()
                bandit.tell(x, means[(x == ARMS).all(-1)] + factor * each)
            flagged[factor] += bandit.health().flagged_round is not None
    assert flagged[1.0] <= int(stats.binom.isf(1e-4, 150, FALSE_ALARM))
    assert flagged[2.0] >= 12


def test_of_rewards_told_at_once_the_first_are_judged_and_a_batch_is_one_factor():
    bandit = composed()
    bandit.tell(ARMS.repeat(40, 1), torch.zeros(1200, dtype=DOUBLE))
    assert bandit.health().num_residuals == 256
    held = composed(dictionary=RidgeLeverageSampling(), batches=GlobalBatchRule(300.0))
    evidence = set()
    for row in range(12):
        held.tell(ARMS[row : row + 1], 0.3)
        assert held.health().num_residuals == row + 1
        evidence.add(held.health().log_evidence)
    assert 1 < len(evidence) < 12


def test_nothing_is_expected_before_a_prior_was_fitted_and_each_fit_starts_anew():
    bandit = composed(prior=LearnedPrior(num_initial=5), kernel=None, regularization=None)
    since = []
    for t in range(12):
        x = bandit.ask()
        bandit.tell(x, 100.0 + torch.sin(5.0 * x).sum())
        health = bandit.health()
        assert health.num_residuals == (0 if t < 4 else t + 1 - health.residuals_since)
        since.append(health.residuals_since)
    assert since[-1] >= 5


def test_a_restart_begins_anew_and_forgets_what_was_flagged():
    bandit = composed()
    for row in range(6):
        bandit.tell(ARMS[row : row + 1], 9.0)
    assert bandit.health().flagged_round == 0
    bandit.restart()
    health = bandit.health()
    assert (health.flagged_round, health.num_residuals, health.log_evidence) == (None, 0, 0.0)
    assert health.residuals_since == 6

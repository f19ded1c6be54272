"""Replay of a log estimates what a policy would earn, without bias, and leaves no trace of asks that did not match."""

import numpy as np
import pytest
import torch
from players import Policy, Rotation
from problems import DOUBLE, rbf

from torch_kbandits import InputError, algorithms, candidates
from torch_kbandits.environments import LoggedInteractions
from torch_kbandits.experiments import replay_log

#: Probabilities of a reward of 1 by context (rows) and action, and the logging policies.
RATES = np.array([[0.2, 0.5, 0.8], [0.9, 0.4, 0.1]])
UNIFORM = np.full((2, 3), 1.0 / 3.0)
UNEVEN = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])


def logged(policy: np.ndarray, n: int, seed: int = 0) -> LoggedInteractions:
    """Contexts 0 and 1 with equal probability, actions by the policy, rewards 0 or 1; all by NumPy."""
    generator = np.random.default_rng(seed)
    x = generator.integers(2, size=n)
    a = (generator.random(n)[:, None] > policy[x].cumsum(1)[:, :-1]).sum(1)
    y = (generator.random(n) < RATES[x, a]).astype(float)
    return LoggedInteractions(
        torch.tensor(x, dtype=DOUBLE).unsqueeze(1), torch.tensor(a), torch.tensor(y), torch.tensor(policy[x, a])
    )


@pytest.mark.one_in(8)
@pytest.mark.parametrize("policy", [UNIFORM, UNEVEN], ids=["uniform", "uneven"])
@pytest.mark.parametrize("choice", [[0, 0], [2, 0], [1, 2]])
def test_the_mean_of_a_fixed_policy_is_unbiased(policy, choice):
    """Within 4.5 standard errors of the true value, from about 2,000 matches at least; false alarms below 7e-6 each.

    Without the acceptance step an uneven log is more than ten off, for the first choice.
    """
    log = logged(policy, 20_000)
    result = replay_log(Policy(log.action_set, choice), log, seed=1)
    value = RATES[[0, 1], choice].mean()
    error = np.sqrt(value * (1.0 - value) / len(result.rewards))
    assert len(result.rewards) > 1500
    assert abs(result.mean.mean - value) < 4.5 * error
    assert result.mean.error == pytest.approx(error, rel=0.1)
    x, a = log.contexts[:, 0].long().numpy(), log.actions.numpy()
    plain = log.rewards.numpy()[a == np.array(choice)[x]]
    biased = abs(plain.mean() - value) > 10.0 * np.sqrt(value * (1.0 - value) / len(plain))
    assert biased or policy is UNIFORM or choice != [0, 0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("policy", "share"), [(UNIFORM, 1 / 3), (UNEVEN, 0.1)], ids=["uniform", "uneven"])
def test_the_lowest_propensity_is_the_share_that_matches(policy, share):
    """Binomial with 20,000 trials, within 4.5 deviations, in each context; false alarms below 7e-6 each."""
    log = logged(policy, 20_000)
    result = replay_log(Policy(log.action_set, [1, 0]), log, seed=2)
    assert result.offered == 20_000
    for context in (0.0, 1.0):
        n = int((log.contexts == context).sum())
        matched = int((log.contexts[result.rows] == context).sum())
        assert abs(matched - share * n) < 4.5 * np.sqrt(n * share * (1.0 - share))
    # A uniform log loses nothing to acceptance.
    assert (result.accepted == 20_000) == (policy is UNIFORM)
    halved = replay_log(Policy(log.action_set, [1, 0]), log, seed=2, lowest_propensity=share / 2)
    assert abs(len(halved.rewards) - share * 10_000) < 4.5 * np.sqrt(20_000 * share / 2)


def an_algorithm(name, log):
    if name == "rotation":
        return Rotation(candidates=log.action_set)
    space = candidates.ContextualActions(log.action_set, context_dim=1)
    return algorithms.build(name, candidates=space, kernel=rbf(1.0), regularization=0.1, beta=1.0, seed=3)


@pytest.mark.parametrize(
    "name", ["rotation", "bkb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gp-ucb", "gp-ts"))]
)
def test_asks_that_do_not_match_leave_no_trace(name):
    """A player that learns is, after every round, as one that was told the matching interactions alone."""
    log = logged(UNEVEN, 300)
    player, twin = an_algorithm(name, log), an_algorithm(name, log)
    result = replay_log(player, log, seed=0, center=0.25)
    assert result.accepted > len(result.rewards) > 5
    assert len(player.pending) == 0
    for row in result.rows.tolist():
        x = twin.ask(context=log.contexts[row])
        assert torch.equal(x[0], log.action_rows[row])
        twin.tell(x, log.rewards[row : row + 1] - 0.25, context=log.contexts[row])
    if name == "rotation":
        ours, theirs = ([part for round in each.told for part in round] for each in (player, twin))
    else:
        ours, theirs = player.history[:3], twin.history[:3]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert torch.equal(result.rewards, log.rewards[result.rows])


def test_acceptance_has_an_address_and_a_replay_stops_after_its_rounds():
    log = logged(UNEVEN, 2000)

    def replayed(seed, **words):
        state = torch.random.get_rng_state()
        result = replay_log(Policy(log.action_set, [0, 0]), log, seed=seed, **words)
        assert torch.equal(torch.random.get_rng_state(), state)
        return result

    contexts, rewards = torch.zeros(2, 1, dtype=DOUBLE), torch.ones(2, dtype=DOUBLE)
    none = LoggedInteractions(contexts, torch.tensor([0, 0]), rewards, 0.5 * rewards, ("shown", "never shown"))
    result = replay_log(Policy(none.action_set, [1]), none, seed=0)
    assert (result.mean, result.rewards.tolist(), result.offered, result.accepted) == (None, [], 2, 2)
    first, short = replayed(1).rows.tolist(), replayed(1, rounds=50)
    assert first == replayed(1).rows.tolist() != replayed(2).rows.tolist()
    assert short.rows.tolist() == first[:50]
    assert short.offered >= short.accepted >= len(short.rewards) == 50
    assert short.offered == int(short.rows[-1]) + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"log": 3}, "log must be a LoggedInteractions"), ({"seed": 0.5}, "seed must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"lowest_propensity": 0.0}, "lowest_propensity must be a finite number above 0"),
        ({"lowest_propensity": 0.2}, r"lowest_propensity is 0.2 and row \d+ of the log has a propensity of 0.1"),
        ({"center": float("nan")}, "center must be a finite number"),
    ],
)  # fmt: skip
def test_bad_words_are_named(words, message):
    log = logged(UNEVEN, 100)
    with pytest.raises(InputError, match=message):
        replay_log(Policy(log.action_set, [0, 0]), **({"log": log, "seed": 0} | words))

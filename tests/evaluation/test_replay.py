"""A replay is unbiased, leaves no trace of what did not match, and is a function of its seed."""

import numpy as np
import pytest
import torch
from logs import Policy, World, logged, with_sets
from problems import DOUBLE, rbf

from torch_kbandits import InputError, algorithms, candidates
from torch_kbandits.evaluation import Log, replay_log

#: Probabilities of a reward of 1 by context (rows) and action, and the logging policies.
RATES = np.array([[0.2, 0.5, 0.8], [0.9, 0.4, 0.1]])
UNIFORM = np.full((2, 3), 1.0 / 3.0)
UNEVEN = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])


def played(policy, n):
    return logged(World(RATES, policy, policy), n)[0]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("policy", [UNIFORM, UNEVEN], ids=["uniform", "uneven"])
@pytest.mark.parametrize("choice", [[0, 0], [2, 0], [1, 2]])
def test_the_mean_of_a_fixed_policy_is_unbiased(policy, choice):
    """Within 4.5 standard errors of the true value, and so the number of matches; false alarms below 7e-6 each.

    Without the acceptance step an uneven log is more than ten off, for the first choice.
    """
    log = played(policy, 20_000)
    result = replay_log(Policy(log.actions, choice), log, seed=1)
    value = RATES[[0, 1], choice].mean()
    error, share = np.sqrt(value * (1.0 - value) / len(result.rewards)), policy.min()
    # The lowest propensity is the share that matches, and a uniform log loses nothing to acceptance.
    assert abs(len(result.rewards) - share * 20_000) < 4.5 * np.sqrt(20_000 * share * (1.0 - share))
    assert (result.accepted == 20_000) == (policy is UNIFORM)
    assert abs(result.estimate.value - value) < 4.5 * error
    assert result.estimate.standard_error == pytest.approx(error, rel=0.1)
    x, a = log.contexts[:, 0].long().numpy(), log.rows.numpy()
    plain = log.rewards.numpy()[a == np.array(choice)[x]]
    biased = abs(plain.mean() - value) > 10.0 * np.sqrt(value * (1.0 - value) / len(plain))
    assert biased or policy is UNIFORM or choice != [0, 0]


@pytest.mark.parametrize("varies", [False, True], ids=["fixed actions", "actions of each round"])
@pytest.mark.parametrize("name", ["bkb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gp-ucb", "gp-ts"))])
def test_asks_that_do_not_match_leave_no_trace(name, varies):
    """A player that learns is, after every round, as one that was told the matching rows alone."""
    log = played(UNEVEN, 300)
    words = {"context_dim": 1, "action_dim": 3} if varies else {"context_dim": 1}
    space = candidates.ContextualActions(None if varies else log.actions, **words)
    made = {"candidates": space, "kernel": rbf(1.0), "regularization": 0.1, "beta": 1.0, "seed": 3}
    player, twin = (algorithms.build(name, **made) for _ in range(2))
    log = with_sets(log) if varies else log
    result = replay_log(player, log, seed=0, center=0.25)
    assert result.accepted > len(result.rewards) > 5
    assert len(player.pending) == 0
    for row in result.rows.tolist():
        x = twin.ask(context=log.contexts[row], **({"candidates": log.actions[row]} if varies else {}))
        assert torch.equal(x[0], log.played[row])
        twin.tell(x, log.rewards[row : row + 1] - 0.25, context=log.contexts[row])
    assert all(torch.equal(a, b) for a, b in zip(player.history[:3], twin.history[:3], strict=True))
    assert torch.equal(result.rewards, log.rewards[result.rows])


def test_acceptance_has_an_address_and_bad_words_are_named():
    log = played(UNEVEN, 2000)

    def replayed(seed):
        state = torch.random.get_rng_state()
        result = replay_log(Policy(log.actions, [0, 0]), log, seed=seed)
        assert torch.equal(torch.random.get_rng_state(), state)
        return result

    none = Log([0, 0], [1.0, 1.0], [0.5, 0.5], torch.zeros(2, 1, dtype=DOUBLE), torch.eye(2, dtype=DOUBLE))
    result = replay_log(Policy(none.actions, [1]), none, seed=0)
    assert (result.estimate, result.rewards.tolist(), result.accepted) == (None, [], 2)
    assert replayed(1).rows.tolist() == replayed(1).rows.tolist() != replayed(2).rows.tolist()
    with pytest.raises(InputError, match="log must be a Log"):
        replay_log(Policy(log.actions, [0, 0]), log=3, seed=0)

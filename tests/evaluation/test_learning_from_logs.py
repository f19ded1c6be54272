"""A bandit that is told a log knows what one knows that was told its points, and what was pending stays."""

import numpy as np
import pytest
import torch
from logs import logged, with_sets, world
from problems import DOUBLE, rbf

from torch_kbandits import InputError, algorithms
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.evaluation import Log, ips, predicted_rewards, target_probabilities

WORDS = {"kernel": rbf(1.0), "regularization": 0.1, "beta": 1.0, "seed": 3}


def bandit(actions=None, name="gp-ucb", **words):
    kind = {"action_dim": 4} if actions is None else {}
    return algorithms.build(name, candidates=ContextualActions(actions, context_dim=1, **kind), **WORDS, **words)


def believed(bandit, log):
    return predicted_rewards(bandit, log)


@pytest.mark.parametrize("varies", [False, True], ids=["fixed actions", "actions of each round"])
def test_a_log_is_its_points_and_rewards_and_what_is_pending_stays(varies):
    log, _ = logged(world(), 60)
    log = with_sets(log) if varies else log
    rewards = log.rewards.clone()
    rewards[::7] = torch.nan
    known = Log(log.rows, rewards, log.propensities, log.contexts, log.actions)
    there = ~rewards.isnan()
    one, other = (bandit(None if varies else log.actions) for _ in range(2))
    brought = {"context": log.contexts[0]} | ({"candidates": log.actions[0]} if varies else {})
    asked = one.ask(**brought), other.ask(**brought)
    one.tell(log=known)
    other.tell(log.played[there], rewards[there], context=log.contexts[there])
    assert torch.equal(*asked)
    assert len(one.pending) == 1
    assert one.num_observations == int(there.sum()) == other.num_observations
    assert torch.allclose(believed(one, log), believed(other, log), rtol=0.0, atol=1e-12)
    # The dense posterior mean of a Gaussian process, which knows of no propensity.
    X = torch.cat([log.contexts, log.played], 1).numpy()
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1))
    seen, y = K[there][:, there], rewards[there].numpy()
    mean = K[:, there] @ np.linalg.solve(seen + 0.1 * np.eye(len(seen)), y)
    assert torch.allclose(believed(one, log)[range(60), log.rows], torch.from_numpy(mean), rtol=0.0, atol=1e-9)


def test_times_of_a_log_count_where_there_is_a_memory_and_nowhere_else():
    log, _ = logged(world(), 20)
    dated = Log(log.rows, log.rewards, log.propensities, log.contexts, log.actions, times=range(20))
    timeless, one, other = bandit(log.actions), *(bandit(log.actions, "sw-gp-ucb", window=5.0) for _ in range(2))
    for each in (timeless, one):
        each.tell(log=dated)
    other.tell(log.played[14:], log.rewards[14:], context=log.contexts[14:], time=list(range(14, 20)))
    assert torch.allclose(believed(one, log), believed(other, log), rtol=0.0, atol=1e-12)
    assert one.now == 19.0
    assert timeless.num_observations == 20


def test_what_does_not_fit_is_named_and_changes_nothing():
    log, _ = logged(world(), 20)
    one = bandit(log.actions)
    before = str(one.state_dict())
    nothing = Log(log.rows, [None] * 20, log.propensities, log.contexts, log.actions)
    unknown = Log(log.rows, log.rewards, log.propensities, log.contexts, num_actions=4)
    for words, message in (
        ({"log": log, "y": log.rewards}, "Give either a log or points"),
        ({"log": 3}, "log must be a Log"),
        ({"log": nothing}, "No row of the log is left"),
        ({"log": unknown}, "features of the actions are missing"),
    ):
        with pytest.raises(InputError, match=message):
            one.tell(**words)
    assert str(one.state_dict()) == before


@pytest.mark.filterwarnings("ignore::torch_kbandits.errors.OverlapWarning")
def test_propensities_of_a_bandit_are_its_probabilities_in_each_context():
    log, _ = logged(world(), 50)
    log = log.part(slice(30))
    one = bandit(log.actions, "gp-ts")
    one.tell(log=log)
    found = target_probabilities(one, log)
    assert torch.equal(found, target_probabilities(one, log))
    for row in (0, 7):
        assert torch.equal(found[row], one.propensities(context=log.contexts[row]).double())
    other = bandit(None, "gp-ts")
    other.tell(log=log)
    assert torch.allclose(target_probabilities(other, with_sets(log).part([0, 7])), found[[0, 7]], atol=0.2)
    assert ips(log=log, target_probabilities=found).value > 0.0
    assert one.num_observations == 30
    assert one.pending.shape == torch.zeros(0, 5, dtype=DOUBLE).shape

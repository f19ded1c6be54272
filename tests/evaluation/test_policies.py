"""What policies play and models predict is asked of each round, once for rounds that are the same."""

import numpy as np
import pytest
import torch
from logs import logged, with_sets, world
from problems import DOUBLE, rbf

from torch_kbandits import Arms, Bandit, ConstantWidth, InputError, NystromGP
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.evaluation import Log, cross_fitted_rewards, policies, predicted_rewards, target_probabilities


def ragged():
    sets = [torch.arange(2.0 * size, dtype=DOUBLE).reshape(size, 2) for size in (1, 3, 2, 3)]
    return Log([0, 2, 1, 0], [1.0, 0.0, 0.0, 1.0], [1.0, 0.4, 0.5, 0.2], actions=sets)


def test_a_function_is_asked_once_for_each_distinct_context():
    log, _ = logged(world(num_contexts=5), 200)
    asked = []

    def policy(context, actions):
        asked.append(float(context))
        return np.exp(-np.arange(4.0) * context.item()) / np.exp(-np.arange(4.0) * context.item()).sum()

    found = target_probabilities(policy, log)
    assert sorted(asked) == [0.0, 1.0, 2.0, 3.0, 4.0]
    expected = np.exp(-np.arange(4.0) * log.contexts.numpy())
    assert torch.allclose(found, torch.tensor(expected / expected.sum(1, keepdims=True)), rtol=0.0, atol=1e-15)
    assert torch.equal(found, target_probabilities(policy, with_sets(log)))
    counted = Log(log.rows, log.rewards, log.propensities, num_actions=4)
    assert target_probabilities(lambda context, actions: actions - 1, counted)[:, 3].eq(1.0).all()


def test_sets_of_each_round_have_zeros_where_there_is_no_action():
    log = ragged()
    uniform = target_probabilities("uniform", log)
    assert uniform.tolist() == [[1.0, 0.0, 0.0], [1 / 3] * 3, [0.5, 0.5, 0.0], [1 / 3] * 3]
    last = target_probabilities(lambda context, actions: len(actions) - 1, log)
    assert last.argmax(1).tolist() == [0, 2, 1, 2]
    assert predicted_rewards(lambda X: X.sum(-1), log).tolist() == [[1, 0, 0], [1, 5, 9], [1, 5, 0], [1, 5, 9]]


def test_a_bandit_on_arms_has_its_floor_and_stays_as_it_was():
    arms = torch.linspace(0.0, 1.0, 5, dtype=DOUBLE).unsqueeze(-1)
    rule = EpsilonGreedy(UpperConfidenceRule(), 0.25)
    words = {"kernel": rbf(0.3), "regularization": 0.1, "width": ConstantWidth(1.0), "seed": 0}
    bandit = Bandit(candidates=Arms(arms), acquisition=rule, **words)
    log = Log([0, 4, 2, 2], [0.0, 0.3, 1.0, 1.1], [0.2, 0.2, 0.2, 0.2], actions=arms)
    bandit.tell(log=log)
    before = str(bandit.state_dict())
    best = target_probabilities(bandit, log)
    assert best.tolist() == [pytest.approx([0.05, 0.05, 0.05, 0.8, 0.05])] * 4
    assert torch.equal(predicted_rewards(bandit, log)[0], bandit.model.posterior(arms).mean.squeeze(-1))
    assert str(bandit.state_dict()) == before


def test_predictions_are_those_of_each_point_however_many_are_made_at_a_time(monkeypatch):
    log, _ = logged(world(), 60)
    X = torch.cat([log.contexts, log.played], 1)
    model = NystromGP(X, log.rewards[:, None], regularization=0.1, covar_module=rbf(0.8), inducing_points=X[:40])
    expected = predicted_rewards(model, log)
    for row in (0, 31):
        joint = torch.cat([log.contexts[row].expand(4, -1), log.actions], 1)
        assert torch.allclose(expected[row], model.posterior(joint).mean.squeeze(-1), rtol=0.0, atol=1e-12)
    monkeypatch.setattr(policies, "_POINTS_AT_A_TIME", 7)
    for form in (log, with_sets(log)):
        assert torch.allclose(predicted_rewards(model, form), expected, rtol=0.0, atol=1e-12)


def test_no_model_sees_what_it_predicts_and_slates_stay_together():
    log, _ = logged(world(), 30)
    slates = torch.arange(30) // 3
    log = Log(torch.arange(30) % 4, torch.arange(30.0), log.propensities, actions=log.actions, slates=slates)

    def fit(part):
        seen = float(part.rewards.sum())
        return lambda X: torch.full((len(X),), seen, dtype=DOUBLE)

    for folds in (2, 5):
        found = cross_fitted_rewards(fit, log, folds=folds)
        for row in range(30):
            others = slates % folds != slates[row] % folds
            assert found[row].tolist() == [float(log.rewards[others].sum())] * 4
    with pytest.raises(InputError, match="folds must be at most the number of rounds, 10"):
        cross_fitted_rewards(fit, log, folds=11)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda context, actions: 4, "plays row 4 of 4"),
        (lambda context, actions: [0.5, 0.5], "must return probabilities of 4 actions"),
        (lambda context, actions: 0.5, "row that a policy plays must be a whole number"),
        ("random", "policy must be a bandit"),
        (3, "policy must be a bandit"),
    ],
)
def test_what_is_no_policy_is_named(policy, message):
    log, _ = logged(world(), 20)
    with pytest.raises(InputError, match=message):
        target_probabilities(policy, log)
    with pytest.raises(InputError, match="The model must return"):
        predicted_rewards(lambda X: X, log)
    with pytest.raises(InputError, match="model must be a bandit"):
        predicted_rewards(3, log)

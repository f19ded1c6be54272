"""Reference players do what their names say."""

import pytest
import torch

from torch_kbandits import InputError, environments
from torch_kbandits.experiments import run_experiment
from torch_kbandits.experiments.references import BestFixed

NAME = "torch_kbandits.experiments.references:BestFixed"
ROUNDS = 40


def regrets(environment, rounds):
    """The regret of each arm or action that is played in all rounds, (A,)."""
    if hasattr(environment, "context"):
        actions = environment.available(0)
        return sum(environment.regret(environment.joint_points(actions, t), t) for t in range(rounds))
    return sum(environment.regret(environment.arms, round=t) for t in range(rounds))


@pytest.mark.parametrize("name", ["moving-peak", "drift", "chessboard", "bump"])
def test_no_fixed_arm_has_less_regret(name, tmp_path):
    spec = {"rounds": ROUNDS, "seeds": [3], "environments": [{"name": name}], "algorithms": [{"name": NAME}]}
    (record,) = run_experiment(spec, tmp_path, workers=1).records
    least = float(regrets(environments.build(name, seed=3), ROUNDS).min())
    assert record.cumulative_regret[-1] == pytest.approx(least, rel=1e-12)
    assert record.algorithm["label"] == "BestFixed"


def test_where_nothing_moves_it_has_no_regret():
    problem = environments.build("rkhs-function", num_arms=30, seed=0)
    player = BestFixed(environment=problem, horizon=5)
    assert float(problem.regret(player.ask())) == 0.0
    assert torch.equal(player.recommend(), player.ask())


def test_boxes_are_refused():
    problem = environments.build("test-function", domain="box", seed=0)
    with pytest.raises(InputError, match="is a box"):
        BestFixed(environment=problem, horizon=5, bounds=problem.bounds)

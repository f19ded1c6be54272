"""Reference players do what their names say."""

import pytest
import torch

from torch_kbandits import InputError, environments
from torch_kbandits.experiments import run_experiment
from torch_kbandits.experiments.references import BestAnswer, BestFixed

NAME = "torch_kbandits.experiments.references:BestFixed"
ROUNDS = 40


def regrets(environment, rounds):
    """The regret of each arm or action that is played in all rounds, (A,)."""
    if hasattr(environment, "context"):
        actions = environment.available(0)
        return sum(environment.regret(environment.joint_points(actions, t), t) for t in range(rounds))
    return sum(environment.regret(environment.arms, round=t) for t in range(rounds))


@pytest.mark.parametrize("name", ["drift", "chessboard"])
def test_no_fixed_arm_has_less_regret(name, tmp_path):
    spec = {"rounds": ROUNDS, "seeds": [3], "environments": [{"name": name}], "algorithms": [{"name": NAME}]}
    (record,) = run_experiment(spec, tmp_path, workers=1).records
    least = float(regrets(environments.build(name, seed=3), ROUNDS).min())
    assert record.cumulative_regret[-1] == pytest.approx(least, rel=1e-12)
    assert record.algorithm["label"] == "BestFixed"


def test_problems_that_they_cannot_play_are_refused():
    box = environments.build("test-function", domain="box", seed=0)
    with pytest.raises(InputError, match="is a box"):
        BestFixed(environment=box, horizon=5, bounds=box.bounds)
    for name, questions, said in (("bump", 6.0, "what changes"), ("drift", 0.0, "questions")):
        with pytest.raises(InputError, match=said):
            BestAnswer(environment=environments.build(name, seed=0), seed=0, questions=questions)


def test_the_best_answer_is_the_best_arm_where_all_are_asked_about_without_noise():
    problem = environments.build("drift", num_arms=12, variation_budget=5.0, horizon=20, noise_scale=0.0, seed=2)
    player = BestAnswer(environment=problem, seed=0, questions=1e6)
    for t in range(ROUNDS // 2):
        x = player.ask()
        assert float(problem.regret(x, round=t)) == 0.0
        player.tell(x, problem.mean(x, t))


def test_answers_are_read_by_lot_and_with_noise(tmp_path):
    """One question in the first round: what is played is uniform, so its mean regret is that of all arms.

    Over 400 seeds, within 4.5 standard errors: a false alarm in 7e-6 of all draws.
    """
    problem = environments.build("moving-peak", num_arms=50, seed=0)
    first = torch.stack([problem.regret(BestAnswer(environment=problem, seed=s).ask(), round=0) for s in range(400)])
    expected = problem.regret(problem.arms, round=0)
    assert abs(float(first.mean() - expected.mean())) < 4.5 * float(expected.std()) / 400**0.5
    players = [{"name": NAME.replace("Fixed", "Answer"), "questions": 6.0}, {"name": "random"}]
    spec = {"rounds": ROUNDS, "seeds": [3], "environments": [{"name": "moving-peak"}], "algorithms": players}
    ours, random = (record.cumulative_regret[-1] for record in run_experiment(spec, tmp_path, workers=1).records)
    assert 0.0 < ours < random

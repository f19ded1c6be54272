"""A run's regret is that of what was played, in each round's context and against its best; seconds are the bandit's."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from players import Rotation
from problems import DOUBLE, seeded

from torch_kbandits import InputError, algorithms, environments
from torch_kbandits.environments import ContextualEnvironment, SensorReplay, build
from torch_kbandits.experiments import (
    parse_spec,
    play,
    run_experiment,
    run_one,
)
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.references import EnvironmentExpert
from torch_kbandits.experiments.trial import build_bandit, build_environment

pytestmark = pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")


class Changing(ContextualEnvironment):
    """Two to five actions, other ones in each round."""

    context_dim = 2

    def context(self, round):
        return torch.rand(2, generator=seeded(self.seed, round), dtype=DOUBLE)

    def candidates(self, round):
        return torch.rand(2 + round % 4, 1, generator=seeded(self.seed, round, 1), dtype=DOUBLE)

    def mean(self, X, round):
        return X.sum(1)


ENVIRONMENTS = {
    "test-function": {"function": "branin", "num_arms": 40},
    **{name: {"num_arms": 12} for name in ("moving-peak", "abrupt", "drift", "seattle-weather")},
    **{name: {} for name in ("bump", "chessboard", "step-diagonal", "digits")},
}


#: Which reads a file that takes most of a second.
DIGITS = pytest.param("digits", marks=pytest.mark.slow)


def made(name, seed=3):
    return Changing(0.1, seed) if name == "changing" else build(name, seed=seed, **ENVIRONMENTS[name])


def rotation(environment):
    return Rotation(candidates=environment.actions if hasattr(environment, "context") else environment.arms)


def regret_of(environment, told) -> np.ndarray:
    """Cumulative regret of what was told, from means that are looked up by distance where arms stay."""
    regrets, t = [], 0
    for context, x, _ in told:
        if context is not None:
            assert torch.equal(context, environment.context(t))
            X, offered = environment.joint_points(x, t), environment.joint_points(environment.candidates(t), t)
        else:
            X, offered = x, environment.arms
        if hasattr(environment, "context") or callable(environment.means):
            means, best = (torch.stack([environment.mean(row[None], t)[0] for row in rows]) for rows in (X, offered))
        else:
            near = (X[:, None] - offered).abs().sum(-1).min(1)
            assert near.values.max() == 0.0
            means, best = environment.means[near.indices], environment.means
        regrets += (best.max() - means).tolist()
        t += len(x)
    return np.cumsum(regrets)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("record_every", "batch"), [(7, 1), (50, 1), (4, 3), (1, "rule"), (9, "rule")])
@pytest.mark.parametrize("name", [*list(ENVIRONMENTS)[:-1], "changing", "a bandit", DIGITS])
def test_regret_is_that_of_what_was_played(name, record_every, batch):
    environment = made("test-function" if name == "a bandit" else name)
    player = bandit(environment, "bbkb") if name == "a bandit" else rotation(environment)
    trace = play(player, environment, 24, record_every=record_every, batch=batch)
    told = [(None, player.history.X, None)] if name == "a bandit" else player.told
    regret = regret_of(environment, told)
    assert len(regret) == 24
    assert regret[-1] > 0.0
    assert trace.rounds == [*range(record_every, 24, record_every), 24]
    np.testing.assert_allclose(trace.regret, regret[np.array(trace.rounds) - 1], rtol=1e-12, atol=1e-13)
    assert trace.dictionary_size[-1] == len(player.inducing_points)
    assert len(trace.seconds) == len(trace.dictionary_size) == len(trace.rounds)
    if name == "changing" and batch == 1:
        assert all(torch.equal(offered, environment.candidates(t)) for t, offered in enumerate(player.offered))


def bandit(environment, name="gp-ucb"):
    words = {"kernel": environment.kernel, "regularization": environment.regularization, "beta": 2.0, "seed": 1}
    return algorithms.build(name, candidates=environment.arms, **words)


def test_regret_is_dynamic():
    """Always the arm that is best at first: no regret while it is, and all of it later."""
    readings = torch.tensor([[1.0, 0.0]] * 5 + [[1.0, 3.0]] * 5)
    environment = SensorReplay(torch.tensor([[0.0], [1.0]]), readings, 0)
    player = Rotation(candidates=environment.arms[:1])
    with pytest.raises(InputError, match="There are 10 rounds in this environment, and 11 are to be played"):
        play(player, environment, 11)
    assert player.told == []
    assert play(player, environment, 10).regret == [0.0] * 5 + [2.0, 4.0, 6.0, 8.0, 10.0]


@pytest.mark.parametrize("name", ["test-function", "moving-peak", "bump"])
def test_a_batch_has_the_moment_and_the_noise_of_its_first_round_and_rewards_are_centred(name):
    environment = made(name)
    environment.center = 2.0
    player = rotation(environment)
    play(player, environment, 8, batch=3)
    assert [len(x) for _, x, _ in player.told] == [3, 3, 2]
    for t, (context, x, y) in zip((0, 3, 6), player.told, strict=True):
        X = x if context is None else environment.joint_points(x, t)
        assert torch.equal(y, environment.pull(X, t) - 2.0)


def test_seconds_are_those_of_ask_and_tell_alone(monkeypatch):
    """By a clock that the environment and the bandit move: 50 s and 2 s a call."""
    environment, now = build("rkhs-function", num_arms=5, seed=0), [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])

    class Sleepy(Rotation):
        def ask(self):
            now[0] += 2.0
            return super().ask()

        def tell(self, x, y):
            now[0] += 2.0
            super().tell(x, y)

    class Slow:
        center, regret = 0.0, environment.regret

        def pull(self, X, round):
            now[0] += 50.0
            return environment.pull(X, round)

    assert play(Sleepy(candidates=environment.arms), Slow(), 10).seconds[-1] == 40.0


def spec(*environments: dict, **changes):
    algorithms = [{"name": "gp-ucb"}, {"name": "random"}]
    content = {"rounds": 12, "record_every": 5, "settings": {"beta": 1.0}, "algorithms": algorithms}
    return parse_spec(content | {"environments": list(environments)} | changes)


def test_an_algorithm_gets_what_the_environment_knows(monkeypatch):
    def actions(actions=None, *, context_dim, action_dim=None):
        return SimpleNamespace(actions=actions, context_dim=context_dim, action_dim=action_dim)

    monkeypatch.setattr(trial_module, "ContextualActions", actions)
    bump = {"name": "bump", "lengthscale": 0.5, "settings": {"noise_scale": 0.3}}
    player = {"name": "players:Rotation"}
    chess, other = spec({"name": "chessboard"}, bump, algorithms=[player], seeds=[1], settings={}).trials()
    words = build_bandit(chess, build_environment(chess)).words
    assert (words["noise_scale"], words["seed"], words["candidates"].context_dim) == (0.1, 1, 1)
    assert torch.equal(words["candidates"].actions, build("chessboard", seed=1).actions)
    words = build_bandit(other, build_environment(other)).words
    assert (words["noise_scale"], words["kernel"].lengthscale.item()) == (0.3, 0.5)
    candidates = build_bandit(chess, Changing(0.1, 0)).words["candidates"]
    assert (candidates.context_dim, candidates.action_dim) == (2, 1)
    regret = play(rotation(made("chessboard", 1)), made("chessboard", 1), 12, record_every=5).regret
    assert run_one(chess)[0].cumulative_regret == regret


def test_a_spec_replays_a_file(tmp_path):
    readings = np.random.default_rng(0).normal(loc=[20.0, 21.0, 19.0], size=(40, 3))
    file = tmp_path / "readings.csv"
    lines = [f"day {i}," + ",".join(map(repr, map(float, row))) for i, row in enumerate(readings)]
    file.write_text("\n".join(["time,a,b,c", *lines]) + "\n", encoding="utf-8")
    entry = {"name": "sensor-replay", "csv": str(file), "train_fraction": 0.25}
    outcome = run_experiment(spec(entry, rounds=30, record_every=30), tmp_path / "runs", workers=1)
    replayed = readings[10:]
    for record in outcome.records:
        assert 0.0 < record.cumulative_regret[-1] < (replayed.max(1) - replayed.min(1)).sum()
    with pytest.raises(InputError, match="gp-ucb on sensor-replay: There are 30 rounds in this environment, and 31"):
        run_experiment(spec(entry, rounds=31), tmp_path / "more", workers=1)


def test_the_environment_is_its_own_expert():
    environment = build("moving-peak", num_arms=30, seed=4)
    expert, X = EnvironmentExpert(environment, 0.5, batch=3), environment.arms[[3, 8, 20]].repeat(400, 1)
    values, variance = expert(X, 7)
    assert variance == 0.25
    assert torch.equal(expert(X, 7)[0], values)
    assert not torch.equal(expert(X, 8)[0], values)
    error, noise = (values - (environment.mean(X, 21) - 1.5)) / 0.5, environment.pull(X, 21) - environment.mean(X, 21)
    # 1,200 standard normals: the mean and the variance are within five of their standard errors.
    assert abs(float(error.mean())) < 5.0 / 1200**0.5
    assert abs(float(error.var()) - 1.0) < 5.0 * (2.0 / 1200) ** 0.5
    assert abs(float(torch.corrcoef(torch.stack([noise, error]))[0, 1])) < 5.0 / 1200**0.5


def test_specs_play_algorithms_that_ask_an_expert_and_name_those_that_they_cannot_have(tmp_path):
    def run(environment, *options):
        players = [{"name": "sparq-gp-ucb", "label": str(number), **each} for number, each in enumerate(options)]
        return run_experiment(spec({"num_arms": 15, **environment}, algorithms=players), tmp_path, workers=1)

    outcome = run({"name": "moving-peak"}, {"batch": 2}, {"expert": 0.0, "questions": 2.0, "cutoff": 3.0})
    assert (outcome.failures, outcome.notes, len(outcome.records)) == ([], [], 2)
    for name, options, message in (
        ("rkhs-function", {}, "environment must be a problem that changes with time"),
        ("drift", {"batch": "rule"}, "batch, where an expert is asked, must be a whole number"),
        ("drift", {"expert": -0.1}, "expert must be a finite number of at least 0"),
    ):
        with pytest.raises(InputError, match=message):
            run({"name": name}, options)


NAME = "torch_kbandits.experiments.references:BestFixed"
ROUNDS = 40


def regrets(environment, rounds):
    if hasattr(environment, "context"):
        actions = environment.candidates(0)
        return sum(environment.regret(environment.joint_points(actions, t), t) for t in range(rounds))
    return sum(environment.regret(environment.arms, round=t) for t in range(rounds))


@pytest.mark.parametrize("name", ["drift", "chessboard"])
def test_no_fixed_arm_has_less_regret(name, tmp_path):
    spec = {"rounds": ROUNDS, "seeds": [3], "environments": [{"name": name}], "algorithms": [{"name": NAME}]}
    (record,) = run_experiment(spec, tmp_path, workers=1).records
    least = float(regrets(environments.build(name, seed=3), ROUNDS).min())
    assert record.cumulative_regret[-1] == pytest.approx(least, rel=1e-12)
    assert record.algorithm["label"] == "BestFixed"


def test_the_best_answer_is_better_than_chance(tmp_path):
    players = [{"name": "benchmarks.best_answer:BestAnswer"}, {"name": "random"}]
    spec = {"rounds": ROUNDS, "seeds": [3], "environments": [{"name": "moving-peak"}], "algorithms": players}
    ours, random = (record.cumulative_regret[-1] for record in run_experiment(spec, tmp_path, workers=1).records)
    assert 0.0 < ours < random

"""Runs on contextual problems: each round its context, its actions, its reward, and regret of that context."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from contextual_players import Rotation
from problems import DOUBLE

from torch_kbandits.environments import ContextualEnvironment, build
from torch_kbandits.experiments import parse_spec, play, read_records, render, run_experiment, run_one, summarize
from torch_kbandits.experiments import trial as trial_module
from torch_kbandits.experiments.trial import build_bandit, build_environment
from torch_kbandits.numerics.random import generator_for


class Changing(ContextualEnvironment):
    """Two to five actions, other ones in each round."""

    context_dim = 2

    def context(self, round):
        return torch.rand(2, generator=generator_for(self.seed, round, "context"), dtype=DOUBLE)

    def candidates(self, round):
        return torch.rand(2 + round % 4, 1, generator=generator_for(self.seed, round, "set"), dtype=DOUBLE)

    def mean(self, X, round):
        return X.sum(1)


def rotation(environment):
    return Rotation(candidates=SimpleNamespace(actions=environment.actions))


def regret_of(environment, player) -> np.ndarray:
    """Regret of what was told, from means of single points, found anew."""
    regrets, t = [], 0
    for context, actions, _ in player.told:
        assert torch.equal(context, environment.context(t))
        X = torch.cat([context.expand(len(actions), -1), actions], 1)
        everything = environment.joint_points(environment.available(t), t)
        best = max(float(environment.mean(row[None], t)) for row in everything)
        regrets += [best - float(environment.mean(row[None], t)) for row in X]
        t += len(actions)
    return np.cumsum(regrets)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("record_every", "batch"), [(1, 1), (7, 1), (50, 1), (4, 3), (9, "rule")])
@pytest.mark.parametrize("name", ["bump", "chessboard", "step-diagonal", "digits", "changing"])
def test_regret_is_that_of_the_contexts_played(name, record_every, batch):
    environment = Changing(0.1, 0) if name == "changing" else build(name, seed=3)
    player = rotation(environment)
    trace = play(player, environment, 40, record_every=record_every, batch=batch)
    regret = regret_of(environment, player)
    assert len(regret) == 40
    assert regret[-1] > 0.0
    assert trace.rounds == [*range(record_every, 40, record_every), 40]
    np.testing.assert_allclose(trace.regret, regret[np.array(trace.rounds) - 1], rtol=1e-12)
    assert trace.dictionary_size[-1] == 40
    assert np.all(np.diff(trace.seconds) >= 0.0)


def test_a_batch_has_one_context_and_the_noise_of_its_first_round():
    environment = build("bump", seed=0)
    environment.center = 2.0
    player = rotation(environment)
    play(player, environment, 8, batch=3)
    assert [len(actions) for _, actions, _ in player.told] == [3, 3, 2]
    for t, (context, actions, rewards) in zip((0, 3, 6), player.told, strict=True):
        assert torch.equal(context, environment.context(t))
        X = environment.joint_points(actions, t)
        assert torch.equal(rewards, environment.pull(X, t) - 2.0)
        assert len(set((rewards + 2.0 - environment.mean(X)).tolist())) == len(X)


def test_changing_actions_are_offered_round_by_round():
    environment = Changing(0.1, 0)
    player = rotation(environment)
    play(player, environment, 12)
    for t, offered in enumerate(player.offered):
        assert torch.equal(offered, environment.candidates(t))


def test_the_same_contexts_come_whatever_is_played():
    one, other = rotation(build("bump", seed=5)), rotation(build("bump", seed=5))
    play(one, build("bump", seed=5), 20)
    other.told = [(torch.zeros(5), torch.zeros(3, 1), torch.zeros(3))]
    play(other, build("bump", seed=5), 20)
    assert not torch.equal(one.told[0][1], other.told[1][1])
    for (ours, *_), (theirs, *_) in zip(one.told, other.told[1:], strict=True):
        assert torch.equal(ours, theirs)


# ---------------------------------------------------------------- specs and records

SPEC = {
    "name": "contexts",
    "rounds": 12,
    "seeds": 2,
    "record_every": 5,
    "environments": [{"name": "chessboard"}, {"name": "bump", "lengthscale": 0.5, "settings": {"noise_scale": 0.3}}],
    "algorithms": [{"name": "contextual_players:Rotation"}],
}


@pytest.fixture
def _plain_candidates(monkeypatch):
    """Candidates as plain values."""

    def actions(actions=None, *, context_dim, action_dim=None):
        return SimpleNamespace(actions=actions, context_dim=context_dim, action_dim=action_dim)

    monkeypatch.setattr(trial_module, "ContextualActions", actions)


@pytest.mark.usefixtures("_plain_candidates")
def test_specs_play_contextual_problems(tmp_path):
    outcome = run_experiment(parse_spec(SPEC), tmp_path, workers=1)
    assert not outcome.failures
    assert len(outcome.records) == 4
    for record in outcome.records:
        environment = build(record.environment["name"], seed=record.seed, **record.environment["options"])
        player = rotation(environment)
        trace = play(player, environment, 12, record_every=5)
        assert record.recorded_rounds == [5, 10, 12]
        assert record.cumulative_regret == trace.regret
        assert (record.best_mean, record.recommended_mean) == (None, None)
    reread, losses = read_records(tmp_path)
    assert ([record.key for record in reread], losses) == ([record.key for record in outcome.records], [])
    rows = summarize(reread, baseline="Rotation")
    assert [row.simple_regret for row in rows] == [None, None]
    assert "recommended mean" not in render(rows)
    assert json.loads((tmp_path / "records.jsonl").read_text().splitlines()[0])["best_mean"] is None


@pytest.mark.usefixtures("_plain_candidates")
def test_an_algorithm_gets_what_the_environment_knows():
    trials = [trial for trial in parse_spec(SPEC).trials() if trial.seed == 1]
    chess, bump = (build_bandit(trial, build_environment(trial)) for trial in trials)
    assert chess.words["noise_scale"] == 0.1
    assert bump.words["noise_scale"] == 0.3
    assert bump.words["kernel"].lengthscale.item() == 0.5
    assert chess.words["seed"] == 1
    candidates = chess.words["candidates"]
    assert (candidates.context_dim, candidates.action_dim) == (1, None)
    assert torch.equal(candidates.actions, build("chessboard", seed=1).actions)


@pytest.mark.usefixtures("_plain_candidates")
def test_an_algorithm_is_told_the_columns_of_actions_that_change():
    trial = next(parse_spec(SPEC).trials())
    candidates = build_bandit(trial, Changing(0.1, 0)).words["candidates"]
    assert (candidates.actions, candidates.context_dim, candidates.action_dim) == (None, 2, 1)


@pytest.mark.one_in(8)
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["bump", "chessboard", "step-diagonal", "digits"])
def test_named_algorithms_learn(name, batch):
    """GP-UCB's regret is below that of random actions over 60 rounds of one seed."""
    spec = parse_spec(
        {
            "rounds": 60,
            "settings": {"beta": 1.0},
            "environments": [{"name": name}],
            "algorithms": [{"name": "gp-ucb", "batch": batch}, {"name": "random", "batch": batch}],
        }
    )
    (ours, _), (random, _) = (run_one(trial) for trial in spec.trials())
    assert ours.cumulative_regret[-1] < random.cumulative_regret[-1]

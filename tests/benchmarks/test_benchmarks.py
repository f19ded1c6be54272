import json

import numpy as np
import oracles
import pytest
import torch

from benchmarks import replays
from benchmarks.__main__ import main
from benchmarks.paper_001 import SolvedAnew
from benchmarks.references import AuthorsBKB, ExactGPUCB, FrequentDirections, Problem, bkb_posterior
from benchmarks.replay_data import REPLAYS, Replay, Rounds
from benchmarks.replay_known import Known, ridge
from benchmarks.replays import RECOMMENDED, fixed_players, play
from benchmarks.runner import BENCHMARKS
from benchmarks.sketches import fourier
from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.environments import bump

REGULARIZATION, LENGTHSCALE = 0.01, 0.5
KERNEL, NOISE = oracles.rbf(LENGTHSCALE), np.full(50, REGULARIZATION)


@pytest.fixture
def problem() -> Problem:
    arms = np.random.default_rng(0).random((60, 3))
    return Problem(arms, LENGTHSCALE, REGULARIZATION, beta=2.0)


#: Of models, of bandits and of what is told; the others belong to the slow tests.
QUICK = {"model_rounds", "online_tells", "variance_ratio"}


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:A not p.d.")  # of BoTorch's model, which is played beside ours
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BENCHMARKS]
)
def test_every_benchmark_runs_and_saves_what_it_shows(name, tmp_path, capsys, monkeypatch):
    """Without the code of other authors, which tables say: ours play alone."""
    for variable in ("AUTHORS_BKB", "AUTHORS_ADABKB"):
        monkeypatch.delenv(variable, raising=False)
    main([name, "--quick", "--output", str(tmp_path)])
    saved = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert saved["name"] == name
    assert saved["measurements"]
    assert {"cpu", "cores", "torch_threads", "python", "packages", "commit"} <= saved["machine"].keys()
    for table in saved["tables"]:
        assert table["rows"]
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
    whose = {each.get("whose", "ours") for each in saved["measurements"]}
    alone = "was not played: set AUTHORS" in str(saved["tables"])
    assert not name.startswith("authors_bkb") or (alone and whose == {"ours"})
    shown = capsys.readouterr().out
    assert all(" | ".join(row) in shown for table in saved["tables"] for row in table["rows"])
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]


def test_sizes_are_set_by_name_and_others_refused(tmp_path, capsys):
    words = ["variance_ratio", "--quick", "--output", str(tmp_path), "--set"]
    main([*words, "seeds=1", "oversamplings=(5.0,)"])
    sizes = json.loads((tmp_path / "variance_ratio.json").read_text(encoding="utf-8"))["sizes"]
    assert (sizes["seeds"], sizes["oversamplings"], sizes["rounds"]) == (1, [5.0], 15)
    with pytest.raises(SystemExit):
        main([*words, "seed=1"])
    assert "variance_ratio has no size 'seed'; it has arms, " in capsys.readouterr().err


def test_exact_gp_ucb_has_the_dense_posterior(problem):
    rng = np.random.default_rng(1)
    exact = ExactGPUCB(problem, horizon=40, seed=0)
    played, rewards = [], []
    for _ in range(40):
        row, reward = exact.ask(), rng.normal()
        exact.tell(row, reward)
        played.append(row)
        rewards.append(reward)
    # Arms played before come again, so that the oracle also covers repeated plays.
    assert len(set(played)) < len(played)
    expected = oracles.exact(KERNEL, problem.arms[played], np.array(rewards), NOISE[:40], problem.arms)
    np.testing.assert_allclose(exact.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(exact.variance, expected.variance, atol=1e-8)


def test_numpy_bkb_has_the_dtc_posterior(problem):
    rng = np.random.default_rng(2)
    played = rng.integers(0, 20, size=50)
    dictionary = np.unique(played)[:8]
    rewards = rng.normal(size=50)
    mean, variance = bkb_posterior(problem, dictionary, played, rewards)
    arms = problem.arms
    expected = oracles.dtc(KERNEL, arms[played], rewards, NOISE, arms[dictionary], arms)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(variance, expected.variance, atol=1e-8)


def test_the_authors_bkb_has_the_dtc_posterior_and_plays_its_best_arm(problem):
    """Its embedding is another than ``bkb_posterior``'s; equal where K_ZZ is far from singular."""
    rng, authors = np.random.default_rng(3), AuthorsBKB(problem, 2.0, seed=0)
    played, rewards = [], []
    for number in range(30):
        played.append(authors.ask() if number % 2 else int(rng.integers(60)))
        rewards.append(rng.normal())
        authors.tell(played[-1], rewards[-1])
        assert set(authors.dictionary) <= set(played)
        mean, variance = bkb_posterior(problem, authors.dictionary, np.array(played), np.array(rewards))
        upper = mean + 2.0 * np.sqrt(variance)
        assert upper[authors.ask()] >= upper.max() - 1e-5
    assert len(set(played)) < 30


def test_quadrature_has_the_kernel_and_random_features_an_unbiased_one(problem):
    truth = problem.gram(np.arange(60))
    assert abs(fourier(problem, 1_000, 0, False).gram(np.arange(60)) - truth).max() < 1e-6
    drawn = [fourier(problem, 40, seed, True).gram(np.arange(60)) for seed in range(400)]
    assert abs(np.mean(drawn, axis=0) - truth).max() < 6.0 * (0.5 / 20 / 400) ** 0.5  # of 1,770 pairs: a chance of 3e-6


def test_frequent_directions_are_those_of_dense_features(problem):
    rng, m = np.random.default_rng(4), 7
    features = np.linalg.cholesky(problem.gram(np.arange(60)) + 1e-12 * np.eye(60))
    player, sketch, seen = FrequentDirections(problem, m, seed=0), np.zeros((m + 1, 60)), np.zeros(60)
    for _ in range(30):
        row, reward = int(rng.integers(60)), rng.normal()
        player.tell(row, reward)
        sketch[m], seen = features[row], seen + reward * features[row]
        _, values, directions = np.linalg.svd(sketch, full_matrices=False)
        sketch = np.sqrt(values**2 - values[-1] ** 2)[:, None] * directions
        inverse = np.linalg.inv(sketch.T @ sketch + REGULARIZATION * np.eye(60))
        np.testing.assert_allclose(player.mean, features @ inverse @ seen, atol=1e-6)
        expected = REGULARIZATION * np.einsum("ad,de,ae->a", features, inverse, features)
        np.testing.assert_allclose(player.variance, expected, atol=1e-8)


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
    return Replay.of(0, kind, arms, rounds, 24)  # pyright: ignore


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in REPLAYS]
)
def test_what_is_known_ends_before_what_is_played_and_both_are_whole(name):
    for choosing in (False, True):
        replay = REPLAYS[name].make(0, choosing)
        for rounds in (replay.train, replay.play):
            assert rounds.rewards.shape == rounds.means.shape == (len(rounds.contexts), len(replay.arms))
            assert bool(torch.isfinite(rounds.rewards).all() & torch.isfinite(rounds.contexts).all())
        assert (replay.kind == "arms") == (replay.train.contexts.shape[1] == 0)
        known = {tuple(row) for row in torch.cat([replay.train.contexts, replay.train.rewards], dim=1).tolist()}
        played = {tuple(row) for row in torch.cat([replay.play.contexts, replay.play.rewards], dim=1).tolist()}
        assert not known & played
    assert RECOMMENDED[name] in replays._PLAYERS[replay.kind]


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


def test_k_ucb_solved_anew_plays_the_actions_of_k_ucb():
    environment, settings = bump(seed=0), {"regularization": 0.1, "beta": 2.0}
    words = {"candidates": environment.actions, "context_dim": 5, "kernel": environment.kernel, "seed": 0}
    bandit, anew = algorithms.KUCB(**words, **settings), SolvedAnew(environment, **settings)
    for t in range(30):
        context = environment.context(t)
        x, own = bandit.ask(context=context), anew.ask(context)
        if t == 0:  # all actions are equally uncertain
            anew.points = list(environment.joint_points(x, t).numpy())
        else:
            assert torch.equal(x, own)
        y = environment.pull(environment.joint_points(x, t), t)
        bandit.tell(x, y, context=context)
        anew.tell(x, y, context)

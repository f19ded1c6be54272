"""What is played beside the code of other authors: where that is missing, and that both sides get the same."""

import sys

import numpy as np
import pytest
import torch

from benchmarks import authors_bkb, authors_moving
from benchmarks.authors_code import Checkout
from benchmarks.moving_boxes import BOXES

CHECKOUT = Checkout("AUTHORS_OF_SOME_CODE", "github.com/some/code", "library.py")


#: Its trajectory is the rewards that it sees at 0: at the end, of the first points.
FAKE_UITVBO = """
import pickle
import torch

class TimeVaryingBOModel:
    def __init__(self, objective, model, post, **words):
        self.reward = objective["objective_function"]

    def run_TVBO(self, number, horizon):
        self.time_horizon = horizon
        x, y, rounds = self.generate_initial_data(number, 0)
        assert (self.reward(x[:, :1], x[:, 1]) == y).all()
        seen = [self.reward(torch.zeros(1, 1), t[None]) for t in rounds] + [y]
        with open("results/some.pickle", "wb") as file:
            pickle.dump({"trajectory": torch.cat(seen)[:, None].numpy()}, file)
"""


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch):
    for name in ("AUTHORS_OF_SOME_CODE", "AUTHORS_BKB", "AUTHORS_UITVBO", "AUTHORS_UITVBO_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def test_a_missing_checkout_is_refused_in_words():
    assert CHECKOUT.missing() == "not played: set AUTHORS_OF_SOME_CODE to a checkout of github.com/some/code"
    with pytest.raises(FileNotFoundError, match="set AUTHORS_OF_SOME_CODE to a checkout of github"):
        CHECKOUT.modules("library")


def test_without_batch_bkb_ours_play_alone_and_the_table_says_so():
    report = authors_bkb.run(quick=True)
    assert {each["whose"] for each in report.measurements} == {"ours"}
    assert all("batch-bkb was not played: set AUTHORS_BKB" in table.title for table in report.tables)
    for each in report.measurements:
        assert len(each["rows"]) == authors_bkb.QUICK.rounds
        assert 0.0 <= each["regret"] < each["random"] * 3


def test_all_of_a_seed_start_with_the_same_arms_and_the_last_batch_is_cut():
    problem = authors_bkb.Problem("RKHS function", 2, 0.2)
    environment = problem.build(40, 3)
    first = authors_bkb.first_arms(environment, 3)
    assert len(set(first)) == authors_bkb.FIRST

    class Batches:
        dict_size_unique = 2

        def initialize(self, arms, rows, rewards):
            self.told = list(zip(rows, rewards, strict=True))

        def predict(self):
            return np.array([5, 6, 7, 8]), None

        def update(self, rows, rewards, random):
            self.told += zip(rows, rewards, strict=True)

    player = Batches()
    theirs = authors_bkb.play_theirs(player, environment, first, 9, seed=3)
    assert theirs.rows == [*first, 5, 6, 7, 8, 5, 6]
    assert theirs.choices == 2
    pulls = [float(environment.pull(environment.arms[row, None], t)) for t, row in enumerate(theirs.rows)]
    assert player.told == list(zip(theirs.rows, pulls, strict=True))
    ours = authors_bkb.play_ours("bbkb", {"batch_threshold": 50.0}, problem, environment, first, 9, seed=3)
    assert ours.rows[:3] == first
    assert len(ours.rows) == 9
    assert ours.choices < 6


def test_without_the_others_ours_play_the_moving_peak_alone(monkeypatch):
    monkeypatch.setattr(authors_moving, "find_spec", lambda name: None)
    few = ("TV-GP-UCB", "UI-GP-UCB")
    monkeypatch.setattr(authors_moving, "OURS", {name: authors_moving.OURS[name] for name in few})
    report = authors_moving.run(quick=True)
    assert [each["player"] for each in report.measurements] == list(few)
    (regrets, _) = report.tables
    assert "wdbo-algo was not played: pip install" in regrets.title
    assert "uitvbo was not played: set AUTHORS_UITVBO to a checkout" in regrets.title


def test_wiener_is_the_covariance_of_sums():
    """With steps of variance 0.5 after a start of variance 1, at times 0, 1, 3."""
    times = torch.tensor([[0.0], [1.0], [3.0]])
    steps = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    variances = torch.tensor([1.0, 0.5, 0.5, 0.5])
    kernel = authors_moving.Wiener(0.5)
    expected = (steps * variances) @ steps.T
    torch.testing.assert_close(kernel(times).to_dense(), expected)
    torch.testing.assert_close(kernel(times, diag=True), expected.diagonal())


def test_what_a_bandit_chooses_falls_short_of_nothing_and_a_bad_point_does():
    box = BOXES[authors_moving.BOX]
    sizes = authors_moving.Sizes(rounds=8, first=6)
    given = authors_moving.draw(box, sizes, 1)
    points, _ = authors_moving.play_ours(box, given, authors_moving.make("TV-GP-UCB", box, 1), sizes.rounds)
    short = authors_moving.shortfalls(box, given, authors_moving.make("TV-GP-UCB", box, 1), points)
    assert len(short) == 2
    assert max(short) < 1e-3
    played = authors_moving.shortfalls(box, given, authors_moving.make("TV-GP-UCB", box, 1), given.first[:2])
    assert min(played) > 1e-2


@pytest.mark.slow
def test_uitvbo_is_told_the_same_points_and_rewards_in_its_own_python(monkeypatch, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "TVBO.py").write_text(FAKE_UITVBO, encoding="utf-8")
    monkeypatch.setenv("AUTHORS_UITVBO", str(tmp_path))
    monkeypatch.setenv("AUTHORS_UITVBO_PYTHON", sys.executable)
    box, sizes = BOXES[authors_moving.BOX], authors_moving.Sizes(rounds=7, first=4)
    given = authors_moving.draw(box, sizes, 2)
    seen, seconds = authors_moving.play_uitvbo(given, "UI")
    origin = torch.zeros(1, 1, dtype=torch.float64)
    expected = [given.reward(box, origin, t) for t in range(4, 7)]
    expected += [given.reward(box, x[None], t) for t, x in enumerate(given.first)]
    np.testing.assert_allclose(seen.flatten().numpy(), expected, rtol=1e-12)
    assert seconds > 0.0

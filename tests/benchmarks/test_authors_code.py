"""What is played beside the code of other authors: where that is missing, and that both sides get the same."""

import numpy as np
import pytest

from benchmarks import authors_bkb
from benchmarks.authors_code import Checkout

CHECKOUT = Checkout("AUTHORS_OF_SOME_CODE", "github.com/some/code", "library.py")


def test_a_missing_checkout_is_refused_in_words(monkeypatch):
    monkeypatch.delenv("AUTHORS_OF_SOME_CODE", raising=False)
    assert CHECKOUT.missing() == "not played: set AUTHORS_OF_SOME_CODE to a checkout of github.com/some/code"
    with pytest.raises(FileNotFoundError, match="set AUTHORS_OF_SOME_CODE to a checkout of github"):
        CHECKOUT.modules("library")


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

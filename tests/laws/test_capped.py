"""A cap on the dictionary: never more points, the right ones, and the user says what happens when it is full."""

import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from kinds import same
from problems import DOUBLE, data, rbf, reward, seeded

import torch_kbandits as kb
from torch_kbandits.dictionaries import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.errors import KernelBanditWarning

ARMS = data(60, 2)[0]


class Wants(DictionaryRule):
    """A rule that wants given rows with given probabilities."""

    def __init__(self, rows, probabilities):
        self.wanted = torch.tensor(rows), torch.tensor(probabilities, dtype=DOUBLE)

    def select(self, played, generator=None):
        return Selection.rows(played, *self.wanted)

    def select_sized(self, played, size, generator=None):
        return Selection.rows(played, torch.arange(size))


def played(n, in_dictionary=None, new=()):
    """Return points played, of which some are in the dictionary and some new, so that they are offered in exchange."""
    X, _ = data(n, 2)
    held = None if in_dictionary is None else torch.tensor([row in in_dictionary for row in range(n)])
    scores = torch.linspace(0.1, 0.9, n, dtype=DOUBLE)
    counts, fresh = 1.0 + torch.arange(n, dtype=DOUBLE) % 3, torch.tensor([float(row in new) for row in range(n)])
    return PlayedPoints(X, rbf(), torch.tensor(0.1, dtype=DOUBLE), counts, scores, held, fresh.double())


def bkb(name="bkb", **settings):
    words = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": 0.01, "beta": 1.5, "seed": 3}
    return kb.algorithms.build(name, **words | settings)


def play(bandit, rounds):
    sizes = []
    for _ in range(rounds):
        X = bandit.ask()
        bandit.tell(X, reward(X))
        sizes.append(len(bandit.inducing_points))
    return sizes


# ------------------------------------------------------------------------------------------------ which points


@given(
    n=st.integers(1, 40), cap=st.integers(1, 20), held=st.sets(st.integers(0, 39)), seed=st.integers(0, 10_000),
    resampling=st.sampled_from(["fresh", "coupled", "growth"]),
)  # fmt: skip
def test_a_cap_keeps_the_foremost_of_what_is_wanted_and_nothing_else(n, cap, held, seed, resampling):
    rule, points = kb.RidgeLeverageSampling(1.5, resampling), played(n, held)
    wanted = rule.select(points, seeded(seed, 0))
    ours = kb.CappedDictionary(rule, cap, "stop").select(points, seeded(seed, 0))
    probability = dict(zip(wanted.indices.tolist(), wanted.probabilities.tolist(), strict=True))
    order = sorted(probability, key=lambda row: (row not in held, -probability[row], row))
    assert ours.indices.tolist() == sorted(order[:cap])
    assert ours.probabilities.tolist() == [probability[row] for row in ours.indices.tolist()]


def test_points_that_were_not_played_are_cut_as_well_and_what_is_there_and_not_wanted_does_not_stay():
    rule = Wants([7, 2, 3, 6], [0.1, 0.5, 0.9, 0.7])
    assert kb.CappedDictionary(rule, 2, "stop").select(played(8, [0, 4])).indices.tolist() == [3, 6]
    Z = data(6, 2, seed=5)[0]
    selection = kb.CappedDictionary(kb.FixedDictionary(Z), 4, "stop").select(played(9, [1]))
    assert torch.equal(selection.points, Z[:4])
    assert selection.indices is None


# ------------------------------------------------------------------------------------------------ when it is full


def test_stop_says_nothing_warn_says_it_once_and_raise_refuses():
    wants, points = Wants([0, 1, 2], [1.0, 1.0, 1.0]), played(5)
    message = "3 points were wanted and the cap is 2.*Raise the cap"
    kb.CappedDictionary(wants, 2, "stop").select(points)  # any warning is an error
    for _ in range(2):  # once for each object, however equal they are
        rule = kb.CappedDictionary(wants, 2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert len(rule.select(points).points) == 2
        assert [warning.category for warning in caught] == [KernelBanditWarning]
    with pytest.raises(kb.DictionaryFullError, match=message) as error:
        kb.CappedDictionary(wants, 2, "raise").select(points)
    assert isinstance(error.value, kb.KernelBanditError)
    assert isinstance(error.value, RuntimeError)
    rule = kb.CappedDictionary(wants, 2)
    for _ in range(2):  # a warning that is made an error is not one that was said
        with pytest.raises(KernelBanditWarning, match=message):
            rule.select(points)


def test_a_size_beyond_the_cap_follows_the_same_words():
    points, rule = played(3), Wants([0], [1.0])
    assert len(kb.CappedDictionary(rule, 2, "raise").select_sized(points, 2).points) == 2
    for size in (3, 9):  # of which there are three points
        assert len(kb.CappedDictionary(rule, 2, "stop").select_sized(points, size).points) == 2
        with pytest.warns(KernelBanditWarning, match="3 points were wanted"):
            kb.CappedDictionary(rule, 2).select_sized(points, size)
        with pytest.raises(kb.DictionaryFullError):
            kb.CappedDictionary(rule, 2, "raise").select_sized(points, size)


# ------------------------------------------------------------------------------------------------ in a bandit


@pytest.mark.one_in(6)
@pytest.mark.parametrize("resampling", ["fresh", "coupled", "growth"])
@pytest.mark.parametrize("name", ["bkb", "bbkb"])
def test_a_bandit_keeps_to_its_cap_and_one_that_never_binds_changes_no_dictionary(name, resampling):
    """Also where the rule keeps its uniforms from round to round."""
    words = {"resampling": resampling, "oversampling": 1.5}
    capped = bkb(name, max_dictionary=6, when_full="stop", **words)
    assert max(play(capped, 20)) == 6
    free, loose = bkb(name, **words), bkb(name, max_dictionary=1_000, when_full="raise", **words)
    for _ in range(20):
        X = free.ask()
        for each in (free, loose):
            each.tell(X, reward(X))
        assert torch.equal(loose.inducing_points, free.inducing_points)
    assert len(free.inducing_points) > 6


def test_a_bandit_warns_once_and_a_refusal_leaves_it_as_it_was():
    with pytest.warns(KernelBanditWarning, match="The dictionary is full") as caught:
        play(bkb(max_dictionary=5), 20)
    assert len(caught) == 1
    bandit = bkb(max_dictionary=4, when_full="raise", oversampling=1e6)
    play(bandit, 2)
    bandit.ask(2)
    X, before = torch.tensor([[0.1, 0.1], [0.9, 0.2], [0.5, 0.6]], dtype=DOUBLE), bandit.state_dict()  # no arms
    with pytest.raises(kb.DictionaryFullError, match="5 points were wanted and the cap is 4"):
        bandit.tell(X, reward(X))
    assert same(bandit.state_dict(), before)


def test_bad_caps_are_named():
    for settings, message in (
        ({"max_dictionary": 0}, "max_dictionary must be a whole number of at least 1"),
        ({"max_dictionary": 5, "when_full": "grow"}, 'when_full must be "stop" or "warn" or "raise"'),
        ({"when_full": "grow"}, "when_full"),
    ):
        with pytest.raises(kb.InputError, match=message):
            bkb("bbkb", **settings)

"""A bandit put together by hand: what it takes, what it shows, and what it refuses by name."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from kinds import ARMS, composed, make
from problems import DOUBLE, matern, play, reward, scaled

import torch_kbandits as kb


def test_the_public_face():
    bandit = make("bkb", noise_scale=0.1, norm_bound=0.01, horizon=100)
    X = bandit.ask()
    assert bandit.ask(q=4).shape == (4, 2)
    bandit.tell(X, torch.tensor([0.5], dtype=DOUBLE))
    bandit.tell(X, torch.tensor([[0.7]], dtype=DOUBLE))
    bandit.tell(bandit.ask(q=3), torch.zeros(3, 1, dtype=DOUBLE))
    bandit.tell(torch.rand(1, 2, dtype=DOUBLE), torch.tensor(0.1, dtype=DOUBLE))  # never asked, and no arm
    assert bandit.history.Y.tolist() == [0.5, 0.7, 0.0, 0.0, 0.0, 0.1]
    assert bandit.history.rounds.tolist() == [0, 1, 2, 2, 2, 3]
    assert torch.equal(bandit.history_since(4).Y, bandit.history.Y[4:])
    assert (bandit.round, bandit.num_observations, bandit.num_asked, bandit.beta.shape) == (4, 6, 8, ())
    assert isinstance(bandit.acquisition(), kb.KernelUCB)
    assert torch.equal(bandit.inducing_points, bandit.model.inducing_points)


def test_later_changes_of_the_callers_objects_do_not_reach_the_bandit():
    arms, kernel = ARMS.clone(), RBFKernel().double()
    bandit, twin = make("bkb", candidates=arms, kernel=kernel), make("bkb", kernel=RBFKernel().double())
    arms.zero_()
    kernel.lengthscale = 50.0
    X, y = bandit.ask(), torch.ones(1, dtype=DOUBLE)
    bandit.tell(X, y)
    y.zero_()
    twin.tell(X, 1.0)
    assert bandit.history.Y.tolist() == [1.0]
    assert torch.equal(bandit.ask(), twin.ask())
    twin.load_state_dict(bandit.state_dict())


def test_each_round_draws_a_dictionary_of_its_own_and_each_seed_plays_its_own_run():
    bandit, drawn = composed(dictionary=kb.UniformDictionary(3)), []
    bandit.tell(ARMS[:40], reward(ARMS[:40]))
    for _ in range(5):
        bandit.tell(ARMS[:1], 0.0)
        drawn.append(bandit.inducing_points)
    assert len({tuple(points.flatten().tolist()) for points in drawn}) == 5
    assert torch.equal(play(make("bkb", seed=1), 10), play(make("bkb", seed=1), 10))
    assert not torch.equal(play(make("bkb", seed=1), 10), play(make("bkb", seed=2), 10))


#: What is no number, and ranges of what theorems need, are laws of all that takes them.
BAD_CONFIGURATIONS = [
    ({"candidates": None}, "Give either candidates"),
    ({"candidates": ARMS[:0]}, "n >= 1"),
    ({"kernel": RBFKernel(active_dims=[5])}, "cannot be evaluated at points of 2 columns"),
    ({"kernel": scaled(matern(outputscale=1e200), 1e200)}, "finite number"),
]


def test_a_bad_configuration_and_a_piece_of_another_kind_are_named():
    for settings, message in BAD_CONFIGURATIONS:
        with pytest.raises(kb.InputError, match=message):
            make("bkb", **settings)
    for piece in ("candidates", "kernel", "dictionary", "width"):
        with pytest.raises(kb.InputError, match=f"{piece} must be .*, got 7 of type int"):
            composed(**{piece: 7})

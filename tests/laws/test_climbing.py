"""A search over mixed points ends where neither the gradient nor an exchange leads higher, never below its start."""

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import MaternKernel
from problems import DOUBLE, data

from torch_kbandits import Categorical, Float, Integer, KernelUCB, OnlineGP, ParameterSpace
from torch_kbandits.acquisition.climbing import climb
from torch_kbandits.kernels import GroupedKernel

SPACE = ParameterSpace(
    {
        "x": Float(0.0, 1.0),
        "c": Categorical(["a", "b", "c", "d"]),
        "n": Integer(0, 9),
        "flag": Categorical([False, True]),
        "y": Float(0.0, 1.0),
    }
)
CONTINUOUS = [0, 7]
BEST = {"x": 0.3, "c": "c", "n": 7, "flag": False, "y": 1.0}


class Score(AcquisitionFunction):
    """Any function of points (n, d) as an acquisition function of single ones."""

    def __init__(self, score):
        super().__init__(model=None)
        self.score = score

    def forward(self, X):
        return self.score(X.squeeze(-2))


def starts(number=6, seed=0):
    return SPACE.sample(number, torch.Generator().manual_seed(seed))


def ucb(seed=0):
    X = starts(30, seed)
    model = OnlineGP(
        X, data(30, 2, seed)[1], covar_module=GroupedKernel(MaternKernel(), SPACE.groups).double(), regularization=0.01
    )
    model.covar_module.lengthscale = 0.5
    return KernelUCB(model, beta=1.0)


def test_from_any_start_the_best_of_a_bowl_is_found():
    target = SPACE.encode([BEST])[0]
    found = climb(
        Score(lambda X: -(X - target).square().sum(-1)), starts(), continuous=CONTINUOUS, neighbours=SPACE.neighbours
    )
    assert (found - target).abs().max() < 1e-4
    assert all(values | {"x": 0, "y": 0} == BEST | {"x": 0, "y": 0} for values in SPACE.decode(found))


def test_points_climb_with_a_scipy_that_botorch_does_not_know_as_well(monkeypatch):
    monkeypatch.setattr("botorch.generation.gen.get_reasons_against_fast_path", lambda **_: ["SciPy is newer"])
    target = SPACE.encode([BEST])[0]
    found = climb(Score(lambda X: -(X - target).square().sum(-1)), starts(), continuous=CONTINUOUS)
    expected = starts()
    expected[:, CONTINUOUS] = target[CONTINUOUS]
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_near_what_is_found_scores_higher(seed):
    function, begin = ucb(seed), starts(seed=10 + seed)
    found = climb(function, begin, continuous=CONTINUOUS, neighbours=SPACE.neighbours)
    with torch.no_grad():
        before, after = function(begin.unsqueeze(1)), function(found.unsqueeze(1))
        assert (after >= before).all()
        assert (after > before + 1e-3).any()
        for point, value in zip(found, after, strict=True):
            assert function(SPACE.neighbours(point[None]).unsqueeze(1)).max() < value + 1e-6
    assert (SPACE.snap(found) - found).abs().max() < 2.0**-40
    assert ((found >= 0.0) & (found <= 1.0)).all()
    points = found.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(points.unsqueeze(1)).sum(), points)
    inside = gradient[:, CONTINUOUS][(found[:, CONTINUOUS] > 0.0) & (found[:, CONTINUOUS] < 1.0)]
    assert inside.abs().max() < 0.05


def test_what_is_found_from_a_start_does_not_depend_on_the_others():
    function, begin = ucb(), starts()
    together = climb(function, begin, continuous=CONTINUOUS, neighbours=SPACE.neighbours)
    alone = climb(function, begin[2:3], continuous=CONTINUOUS, neighbours=SPACE.neighbours)
    assert (together[2] - alone[0]).abs().max() < 1e-4


def test_coordinates_stay_where_nothing_moves_them():
    function, begin = ucb(), starts()
    others = [column for column in range(SPACE.dimension) if column not in CONTINUOUS]
    assert torch.equal(climb(function, begin, continuous=CONTINUOUS)[:, others], begin[:, others])
    moved = climb(function, begin, continuous=(), neighbours=SPACE.neighbours)
    assert torch.equal(moved[:, CONTINUOUS], begin[:, CONTINUOUS])
    assert torch.equal(climb(function, begin, continuous=()), begin)


def test_functions_without_a_gradient_are_searched_by_exchanges():
    target = SPACE.encode([BEST])[0]
    function = Score(lambda X: (target == X).sum(-1).double())
    found = climb(function, starts(), continuous=CONTINUOUS, neighbours=SPACE.neighbours)
    assert [values["c"] for values in SPACE.decode(found)] == ["c"] * 6
    kinked = Score(lambda X: -(X - target).abs().sqrt().sum(-1))  # its gradient at the best y is not a number
    begin = starts()
    begin[:, -1] = 1.0
    assert (kinked(climb(kinked, begin, continuous=[7])[:, None]) >= kinked(begin[:, None])).all()
    nowhere = climb(function, starts(), continuous=CONTINUOUS, neighbours=lambda x: x[:0])
    assert torch.equal(nowhere, starts())
    assert nowhere.dtype == DOUBLE


def test_what_may_not_be_played_is_not_climbed_to():
    """The top of the bowl is behind a wall: what is found is on this side, and at it."""
    target = torch.tensor([0.9, 0.5], dtype=DOUBLE)
    function = Score(lambda X: -(X - target).square().sum(-1))
    begin = torch.rand(8, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE) * 0.5

    def allows(points):
        return points.sum(-1) <= 1.0

    found = climb(function, begin, continuous=(0, 1), allows=allows)
    assert bool(allows(found).all())
    assert bool((function(found[:, None]) > function(begin[:, None])).all())
    assert float(found.sum(-1).min()) > 1.0 - 2.0**-18  # a way is 2 long at most, and is halved twenty times
    free = climb(function, begin, continuous=(0, 1))
    assert (free - target).abs().max() < 1e-4
    assert torch.equal(climb(function, begin, continuous=(0, 1), allows=lambda X: torch.zeros(len(X)).bool()), begin)

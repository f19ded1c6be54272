"""Ada-BKB plays the centre of the cell of largest index, by a tree that is grown in plain NumPy here."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from problems import DOUBLE, believed

import torch_kbandits as kb
from torch_kbandits import InputError, algorithms
from torch_kbandits.acquisition import AdaptiveDiscretizationRule
from torch_kbandits.memory import Restart, TemporalPrior
from torch_kbandits.outcomes import Scalarization

BOUNDS = torch.tensor([[0.0, -10.0], [1.0, 20.0]], dtype=DOUBLE)


def ard(lengthscales=(0.3, 12.0), scale=2.0):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=len(lengthscales)))
    kernel.base_kernel.lengthscale = torch.tensor(lengthscales)
    kernel.outputscale = scale
    return kernel.double()


def bandit(**words):
    words = {"bounds": BOUNDS, "kernel": ard(), "regularization": 0.01, "beta": 2.0, "seed": 0} | words
    return algorithms.AdaBKB(**words)


def reward(X):
    return torch.sin(5.0 * X[:, 0]) + torch.cos(X[:, 1] / 6.0)


def played(player, rounds):
    for _ in range(rounds):
        x = player.ask()
        player.tell(x, reward(x))
    return player


def by_the_paper(moments, beta, variation, num_parts, lengthscales=(0.3, 12.0), scale=2.0):
    """Oracle: centres of which one is played, and their index, of cells (lower, upper, bound of parts, index, open)."""

    def varies(halves):
        return variation * np.sqrt(2.0 * scale * (1.0 - np.exp(-0.5 * ((halves / lengthscales) ** 2).sum())))

    def cell(lower, upper, above):
        mean, deviation = moments((lower + upper) / 2.0)
        size, bound = varies((upper - lower) / 2.0), mean + beta * deviation
        return lower, upper, bound + size, min(bound, above) + size, beta * deviation <= size

    leaves = [cell(*BOUNDS.numpy(), np.inf)]
    while True:
        closed = max((leaf[3] for leaf in leaves if not leaf[4]), default=-np.inf)
        divided = [leaf for leaf in leaves if leaf[4] and leaf[3] > closed]
        if not divided:
            best = [(leaf[0] + leaf[1]) / 2.0 for leaf in leaves if not leaf[4] and leaf[3] > closed - 1e-9]
            return np.array(best), closed
        leaves = [leaf for leaf in leaves if all(leaf is not each for each in divided)]
        for lower, upper, above, *_ in divided:
            side = np.argmax((upper - lower) / np.array(lengthscales))
            edges = np.linspace(lower[side], upper[side], num_parts + 1)
            for start, stop in pairwise(edges):
                first, last = lower.copy(), upper.copy()
                first[side], last[side] = start, stop
                leaves.append(cell(first, last, above))


@pytest.mark.parametrize(("num_parts", "words"), [(3, {}), (2, {"variation": 3.0}), (3, {"norm_bound": 1.5})])
@pytest.mark.parametrize("rounds", [0, 10])
def test_the_cell_of_the_largest_index_is_played(num_parts, words, rounds):
    player = played(bandit(num_parts=num_parts, **words), rounds)

    def moments(x):
        mean, variance = believed(player, torch.as_tensor(x).unsqueeze(0))
        return float(mean), float(variance) ** 0.5

    best, index = by_the_paper(moments, 2.0, next(iter(words.values()), 2.0), num_parts)
    value = player.acquisition()(torch.from_numpy(best).unsqueeze(-2))
    assert np.allclose(value, index, rtol=1e-6)  # a length scale is a raw parameter in single precision
    assert np.isclose(player.ask().numpy()[0], best, rtol=1e-9).all(-1).any()


def gaps(player, bounds=BOUNDS, **words):
    """By how much ``acquisition()`` is larger at points of the box, edges among them, than at what ``ask`` returns."""
    function = player.acquisition(**words)
    x = player.ask(remember=False, **words)
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(1000, 2, generator=torch.Generator().manual_seed(1)).double()
    X[:100, 0], X[100:200, 1] = bounds[0, 0], bounds[1, 1]
    return function(X.to(x).unsqueeze(-2)) - function(x)


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"variation": 0.5, "num_parts": 2},
        {"memory": Restart(4)},
        {"objective": Scalarization({"reward": "maximize"})},
        {"objective": Scalarization({"reward": "minimize"})},
    ],
)
@pytest.mark.parametrize("pending", [0, 3])
def test_ask_maximises_acquisition_which_is_constant_in_cells(words, pending):
    player = played(bandit(**words), 9)
    if pending:
        player.ask(pending)
    found = gaps(player)
    assert float(found.max()) <= 1e-6 * (1.0 + float(found.abs().max()))
    assert float(found.min()) < -0.01


def test_in_contexts_and_within_limits_too():
    beside = bandit(context_dim=1, kernel=ard((0.5, 0.3, 12.0)))
    for level in torch.linspace(0.0, 1.0, 8, dtype=DOUBLE).split(1):
        x = beside.ask(context=level)
        beside.tell(x, reward(x), context=level)
    assert float(gaps(beside, context=torch.tensor([0.3], dtype=DOUBLE)).max()) <= 1e-9
    limited = bandit(constraints=[kb.AtMost("heat", 1.0, "optimistic")])
    for _ in range(6):
        x = limited.ask()
        limited.tell(x, reward(x), outcomes={"heat": x[:, 0]})
    assert float(gaps(limited).max()) <= 1e-6


def test_a_search_by_gradients_runs_on_it_and_outside_of_the_box_is_nothing():
    function = played(bandit(), 9).acquisition()
    x, value = optimize_acqf(function, BOUNDS, q=1, num_restarts=2, raw_samples=64)
    assert torch.equal(function(x), value.reshape(1))
    assert function(BOUNDS[1:] + 1.0).item() == -torch.inf
    with pytest.raises(AssertionError, match="q=1"):
        function(BOUNDS.unsqueeze(0))


def test_pending_points_count():
    """As σ shrinks at what is pending, cells are divided, or others come first."""
    assert len(played(bandit(), 12).ask(8).unique(dim=0)) > 1


def test_the_best_is_found_with_less_and_less_regret():
    player = played(bandit(noise_scale=0.1), 80)
    grid = torch.cartesian_prod(*(torch.linspace(*ends, 300, dtype=DOUBLE) for ends in BOUNDS.T.tolist()))
    regret = reward(grid).max() - reward(player.history.X)
    assert float(regret[-20:].mean()) < 0.02
    assert float(regret[:20].mean()) > 0.2


def test_units_contexts_and_single_precision():
    scaled = played(bandit(bounds=3.0 * BOUNDS, kernel=ard((0.9, 36.0))), 0)
    one, other = bandit(), scaled
    for _ in range(10):
        x, y = one.ask(), other.ask()
        assert torch.allclose(3.0 * x, y, rtol=1e-6)  # a length scale is a raw parameter in single precision
        one.tell(x, reward(x))
        other.tell(y, reward(x))
    beside = bandit(context_dim=1, kernel=ard((0.5, 0.3, 12.0)))
    assert torch.equal(beside.ask(context=torch.zeros(1, dtype=DOUBLE)), bandit().ask())
    moving = played(bandit(memory=TemporalPrior(0.01)), 20)
    assert float(reward(moving.ask())) > 1.0
    single = played(bandit(bounds=BOUNDS.float(), kernel=ard().float()), 5)
    assert single.ask().dtype == torch.float32


def test_what_has_no_cells_of_one_size_is_refused_and_no_choice_is_endless():
    with pytest.raises(InputError, match="stationary kernel alone, which LinearKernel is not: take BKB"):
        bandit(kernel=LinearKernel()).ask()
    with pytest.raises(InputError, match="num_parts must be at least 2"):
        AdaptiveDiscretizationRule(num_parts=1)
    with pytest.raises(InputError, match="variation"):
        bandit(variation=-1.0)
    everything = bandit(bounds=torch.tensor([[0.0] * 9, [1.0] * 9]), kernel=MaternKernel(), variation=100.0)
    assert everything.ask().shape == (1, 9)

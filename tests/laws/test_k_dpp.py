"""k-DPP: the law of the set after each number of steps is that of the paper's chain, and its limit det K_ZZ."""

import itertools
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel
from problems import DOUBLE, KERNELS, data, dense, linear, matern, rbf, seeded

import torch_kbandits as kb
from torch_kbandits.dictionaries import PlayedPoints

DRAWS = 700
FALSE_ALARM = 1e-5


def with_copies(n, copies, seed=0):
    X = data(n, 2, seed)[0]
    return torch.cat([X, X[:copies]])


#: Points, size, kernel. The mean Gram matrix is formed by the twin of the kernel.
PROBLEMS = {
    "rbf, 2 of 6": (data(6, 2, 1)[0], 2, "rbf"),
    "rbf, 3 of 6": (data(6, 2, 2)[0], 3, "scaled rbf"),
    "linear, 2 of 6": (data(6, 2, 18)[0], 2, "linear"),
    "matern, 4 of 6": (data(6, 1, 4)[0], 4, "matern"),
    "copies, 3 of 7": (with_copies(5, 2, 5), 3, "rbf"),
    "batch, 2 of 6": (torch.stack([data(6, 2, seed)[0] for seed in (6, 7)]), 2, "rbf"),
}


class Enumeration:
    """All sets of m of n points, the k-DPP on them, and the chain's matrix: Alg. 2 of paper 003 word for word."""

    def __init__(self, K, m, accept=lambda ratio: 0.5 * min(1.0, ratio)):
        n = len(K)
        self.sets = list(itertools.combinations(range(n), m))
        self.place = {Z: a for a, Z in enumerate(self.sets)}
        dets = np.array([np.linalg.det(K[np.ix_(Z, Z)]) for Z in self.sets])
        dets[dets < 1e-12] = 0.0
        self.law = dets / dets.sum()
        self.chain = np.zeros((len(dets), len(dets)))
        for a, Z in enumerate(self.sets):
            for i, j in itertools.product(Z, set(range(n)) - set(Z)):
                b = self.place[tuple(sorted((set(Z) - {i}) | {j}))]
                if dets[a] > 0.0:
                    self.chain[a, b] = accept(dets[b] / dets[a]) / (m * (n - m))
            self.chain[a, a] = 1.0 - self.chain[a].sum()

    def after(self, start, steps):
        """The law after ``steps`` from the set ``start``."""
        return np.linalg.matrix_power(self.chain, steps)[self.place[tuple(start.tolist())]]


def variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def variation_bound(law):
    """Total variation that DRAWS independent draws exceed with probability at most FALSE_ALARM (McDiarmid)."""
    mean = 0.5 * np.sqrt(law * (1.0 - law) / DRAWS).sum()
    return mean + math.sqrt(math.log(1.0 / FALSE_ALARM) / (2.0 * DRAWS))


def mean_gram(X, kernel):
    members = X.reshape(-1, *X.shape[-2:])
    return np.mean([KERNELS[kernel].dense(*dense(member, member)) for member in members], 0)


def played(X, kernel=None):
    kernel = matern() if kernel is None else kernel
    return PlayedPoints(X, kernel.requires_grad_(False), torch.tensor(0.05, dtype=DOUBLE), X.new_ones(X.shape[-2]))


def drawn(X, kernel, size, num_swaps=None, generator=None):
    return kb.KDPP(size, num_swaps).select(played(X, kernel), generator).indices


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("steps", [3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 40, 300))])
def test_law_after_steps_is_that_of_the_enumerated_chain(name, steps):
    """24 tests at 1e-5 each: false alarms below 3e-4. Blocks of 256 steps are drawn at once."""
    X, m, kernel = PROBLEMS[name]
    oracle, prior = Enumeration(mean_gram(X, kernel), m), KERNELS[kernel].make().requires_grad_(False)
    expected = oracle.after(drawn(X, prior, m, 0), steps)
    generator, hits = seeded(0, steps), np.zeros(len(expected))
    for _ in range(DRAWS):
        hits[oracle.place[tuple(drawn(X, prior, m, steps, generator).tolist())]] += 1
    assert variation(hits / DRAWS, expected) < variation_bound(expected)
    assert not hits[expected == 0.0].any()
    if steps >= 40:
        assert variation(expected, oracle.law) < 0.05
        assert variation(hits / DRAWS, oracle.law) < variation_bound(oracle.law) + 0.05


@pytest.mark.one_in(4)
@pytest.mark.parametrize("nu", [0.5, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_copies_are_never_drawn_together(nu, dtype, monkeypatch):
    """Though rounding puts their covariance a little below the variance, and all that has any chance happens."""
    X = data(6, 2)[0].to(dtype).repeat(4, 1)
    monkeypatch.setattr(torch, "rand", lambda *size, dtype, **_: torch.zeros(*size, dtype=dtype))
    kernel = MaternKernel(nu=nu).to(dtype).requires_grad_(False)
    for seed in range(20):
        chosen = drawn(X, kernel, 5, 400, seeded(seed, 0))
        assert len(set((chosen % 6).tolist())) == 5
    assert len(drawn(X, kernel, 24, 400, seeded(0, 0))) == 6


def test_no_point_far_from_all_others_is_left_out_for_one_that_the_rest_spans():
    """Without one of them a determinant is less than 1e-5 of what it is with it, so that no draw is likely to be."""
    far = torch.tensor([*range(-48, -15, 4), *range(16, 49, 4)], dtype=DOUBLE)
    for seed in range(6):
        near = 14.0 * torch.rand(60, generator=seeded(seed, 0), dtype=DOUBLE) - 7.0
        Z = kb.KDPP(80).select(played(torch.cat([far, near])[:, None], rbf(10.0**0.5)), seeded(seed, 1)).points
        assert len(far) < len(Z) < 40
        assert bool((far == Z).any(0).all())


def test_more_than_the_rank_is_cut_down_or_filled_up():
    X = data(12, 2)[0]
    rule, points = kb.KDPP(5), played(X, linear())
    selection = rule.select(points, seeded(0, 0))
    assert len(selection.indices) == 2
    assert selection.probabilities.tolist() == [2 / 12] * 2
    for size in (5, 12, 40):
        filled = rule.allocate_inducing_points(X, linear(), size, torch.Size())
        assert len(filled.unique(dim=0)) == min(size, 12)
    X[:, 1] = 0.0
    vanishing = played(X, LinearKernel(active_dims=[1]).double())
    assert len(rule.select(vanishing).indices) == len(kb.GreedyDictionary(3).select(vanishing).indices) == 1


def test_the_generator_is_the_only_source_of_randomness_and_the_default_is_100_steps_a_point():
    X = data(300, 2)[0]
    before = torch.get_rng_state()
    draws = [drawn(X, rbf(), 10, generator=seeded(seed, 0)).tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    first = drawn(X, rbf(), 10)
    torch.manual_seed(5)
    assert torch.equal(first, drawn(X, rbf(), 10))
    assert drawn(X, rbf(), 10, 1000, seeded(1, 0)).tolist() == draws[2]


def test_what_makes_no_sense_is_refused():
    X = data(4, 2)[0]
    for call, message in (
        (lambda: kb.KDPP(0), "size must be a whole number of at least 1"),
        (lambda: kb.KDPP(3, -1), "num_swaps must be a whole number of at least 0"),
        (lambda: drawn(X[:0], rbf(), 2), "nothing was played"),
    ):
        with pytest.raises(kb.KernelBanditError, match=message):
            call()

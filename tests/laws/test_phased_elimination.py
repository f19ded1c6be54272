"""Phases are those of dense formulas: what is played, in which order, what is dropped, and how often the best is."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, matern
from scipy.stats import binom

import torch_kbandits as kb
from torch_kbandits import InputError, algorithms
from torch_kbandits.acquisition import PhasedEliminationRule
from torch_kbandits.memory import Restart, SlidingWindow

ARMS, KERNEL, LEVEL = data(20, 2)[0], oracles.matern52(0.5), 0.04
F = np.sin(5.0 * ARMS.numpy()).sum(1)
WORDS = {"candidates": ARMS, "kernel": matern(0.5, 1.0), "regularization": LEVEL, "seed": 3}


def pulled(bandit, x, noise=0.2):
    """Rewards whose noise follows from how many there were."""
    first = len(bandit.history.X)
    rng = np.random.default_rng([first, 7])
    return torch.sin(5.0 * x).sum(-1) + noise * torch.from_numpy(rng.normal(size=len(x)))


def rows(X):
    return [int((x == ARMS).all(-1).nonzero()[0]) for x in X]


def played(bandit, number, q=1):
    for _ in range(number // q):
        x = bandit.ask(q)
        bandit.tell(x, pulled(bandit, x))
    return np.array(rows(bandit.history.X))


def survivors(X, Y, left, beta):
    """Who of those left may be the best after the rewards of a phase."""
    known = oracles.exact(KERNEL, X, Y, np.full(len(X), LEVEL), ARMS.numpy()[left])
    reach = beta * np.sqrt(known.variance)
    return left[known.mean + reach >= (known.mean - reach).max()]


def test_each_play_is_the_widest_of_those_left_and_rewards_of_a_phase_drop_who_cannot_be_the_best():
    bandit, beta = algorithms.BPE(**WORDS, horizon=60, beta=1.5), 1.5
    assert bandit.rule.lengths == (8, 22, 30)  # ⌈√60⌉ = 8, ⌈√480⌉ = 22, and what is left
    played(bandit, 60)
    history, left, sizes = bandit.history, np.arange(20), []
    for phase in (1, 2, 3):
        own = (history.stages == phase).numpy()
        X, Y, chosen = history.X.numpy()[own], history.Y.numpy().ravel()[own], np.array(rows(history.X[own]))
        assert len(chosen) == bandit.rule.lengths[phase - 1]
        assert set(chosen) <= set(left)
        for number, row in enumerate(chosen):
            at = ARMS.numpy()[left]
            known = oracles.exact(KERNEL, X[:number], Y[:number], np.full(number, LEVEL), at)
            assert known.variance[left == row][0] >= known.variance.max() - 1e-9
        left = survivors(X, Y, left, beta)
        sizes.append(len(left))
    assert 20 > sizes[0] >= sizes[1] >= sizes[2] >= 1
    assert F.argmax() in left
    known = oracles.exact(KERNEL, X, Y, np.full(len(X), LEVEL), ARMS.numpy())
    best = left[(known.mean + beta * np.sqrt(known.variance))[left].argmax()]
    assert rows(bandit.ask()) == [best]  # after the horizon, of whom the last phase leaves
    assert bandit.state_dict()["pending"]["stages"].tolist() == [0]


def test_a_phase_asked_for_at_once_is_that_of_one_after_another_and_a_copy_goes_on(tmp_path):
    one, many = (algorithms.BPE(**WORDS, horizon=60, beta=1.5) for _ in range(2))
    for length in one.rule.lengths[:2]:
        X = many.ask(length)
        assert torch.equal(X, torch.cat([one.ask() for _ in range(length)]))
        many.tell(X, pulled(many, X))
        one.tell(X, pulled(one, X))
    one.ask(4)
    one.save(tmp_path / "bandit.kb")
    assert torch.equal(kb.Bandit.load(tmp_path / "bandit.kb").ask(10), one.ask(10))


def test_who_is_dropped_is_decided_once_all_rewards_of_a_phase_are_there():
    bandit = algorithms.BPE(**WORDS, horizon=60, beta=0.01)
    X = bandit.ask(8)
    bandit.tell(X[:-1], 10.0 * torch.arange(7, dtype=DOUBLE))
    looked = bandit.ask(15, remember=False)
    bandit.tell(X[-1:], 100.0)
    assert len(looked.unique(dim=0)) > len(bandit.ask(15).unique(dim=0))


def test_plays_of_a_phase_are_in_random_order_another_one_after_each_restart():
    words = WORDS | {"beta": 100.0}  # nobody is dropped
    inner, found = algorithms.BPE(**words, horizon=56), algorithms.RPERP(**words, period=56)
    assert found.rule.lengths == (8, 16, 32)
    plain = kb.Bandit(
        candidates=kb.Arms(ARMS),
        kernel=matern(0.5, 1.0),
        regularization=LEVEL,
        width=kb.ConstantWidth(100.0),
        acquisition=PhasedEliminationRule((8, 16, 32)),
        memory=Restart(56),
        seed=3,
    )
    ordered, permuted = played(plain, 112), played(found, 112)
    phases = [slice(start, stop) for first in (0, 56) for start, stop in ((0, 8), (8, 24), (24, 56))]
    for each in (slice(first + part.start, first + part.stop) for first in (0, 56) for part in phases[:3]):
        assert sorted(ordered[each]) == sorted(permuted[each])
        assert list(ordered[each]) != list(permuted[each])
    assert list(ordered[:56]) == list(ordered[56:])
    assert list(permuted[:56]) != list(permuted[56:])
    assert inner.rule.order is None


@pytest.mark.slow
def test_permutations_are_uniform():
    """4,800 permutations of three plays, χ² with 5 degrees of freedom: false alarm 1e-6 at 35.9."""
    rule, three = PhasedEliminationRule((3,), order=5), torch.arange(3)
    seen = [tuple(rule.permuted(three, 1, epoch).tolist()) for epoch in range(4_800)]
    counts = np.unique(seen, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 800.0) ** 2 / 800.0).sum() < 35.9


def missed(width_factor: float) -> int:
    """Of 60 runs in how many the best of 20 arms is dropped, for functions of norm 1 and R = 0.2, at δ = 0.1."""
    gram, lost = KERNEL(ARMS.numpy(), ARMS.numpy()), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=20)
        f = gram @ weights / np.sqrt(weights @ gram @ weights)
        theory = {"noise_scale": 0.2, "norm_bound": 1.0, "failure_probability": 0.1}
        bandit = algorithms.BPE(**WORDS | {"seed": seed}, horizon=40, **theory)
        beta = width_factor * float(bandit.beta)
        left = np.arange(20)
        for length in bandit.rule.lengths:
            X = bandit.ask(length)
            Y = f[rows(X)] + 0.2 * rng.normal(size=length)
            left = survivors(X.numpy(), Y, left, beta)
            bandit.tell(X, torch.from_numpy(Y))
        lost += f.argmax() not in left
    return lost


@pytest.mark.slow
def test_the_best_arm_is_dropped_as_seldom_as_the_theorem_says():
    """False alarm 1e-6; a tenth of the width is caught."""
    most = binom.ppf(1.0 - 1e-6, 60, 0.1)
    assert missed(1.0) <= most
    assert missed(0.02) > most


def test_what_phases_cannot_go_through_is_refused_by_name():
    words = {name: word for name, word in WORDS.items() if name != "candidates"}
    square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
    for kind, own in (
        (algorithms.BPE, {"horizon": 10}),
        (algorithms.MVR, {"horizon": 10}),
        (algorithms.RPERP, {"period": 10}),
    ):
        for where in ({"bounds": square}, {"candidates": ARMS, "context_dim": 1}, {"action_dim": 2}):
            with pytest.raises(InputError, match=f"{kind.__name__} goes through the same arms"):
                kind(**words, **where, beta=1.0, **own)
        with pytest.raises(InputError, match=r"[Ll]eave out memory"):
            kind(**WORDS, beta=1.0, memory=SlidingWindow(5.0), **own)
    with pytest.raises(InputError, match="noise_scale and norm_bound"):
        algorithms.BPE(**WORDS, horizon=10)
    with pytest.raises(InputError, match="period is missing"):
        algorithms.RPERP(**WORDS, beta=1.0)
    with pytest.raises(InputError, match="the same arms in each phase"):
        kb.Bandit(
            candidates=kb.ContextualActions(ARMS[:, :1], context_dim=1),
            kernel=matern(),
            regularization=0.1,
            width=kb.ConstantWidth(1.0),
            acquisition=PhasedEliminationRule((3,)),
            seed=0,
        )
    with pytest.raises(InputError, match="maximises no acquisition function"):
        algorithms.MVR(**WORDS, horizon=10, beta=1.0).acquisition()


def test_what_is_guaranteed_is_the_width_of_a_fixed_design():
    theory = {"noise_scale": 0.2, "norm_bound": 1.0, "failure_probability": 0.1}
    for kind, own, number in (
        (algorithms.BPE, {"horizon": 60}, 20 * 3),
        (algorithms.MVR, {"horizon": 60}, 20),
        (algorithms.RPERP, {"period": 24, "horizon": 60}, 20 * 2 * 3),  # phases of 8 and 16, three periods
    ):
        bandit = kind(**WORDS, **theory, **own)
        assert bandit.width.num_bounds == number
        guarantee = bandit.guarantee()
        assert guarantee.holds is None
        assert "Vakili" in guarantee.theorem
        assert "points chosen apart from rewards" in {each.name for each in guarantee.with_status("holds")}
    # √γ T/√H + P_T H is least at H = (T √γ / P_T)^⅔ up to a constant.
    known = {"horizon": 400, "beta": 1.0}
    periods = [algorithms.RPERP(**WORDS, **known, variation_budget=budget).memory.period for budget in (2.0, 16.0)]
    assert periods[0] / periods[1] == pytest.approx(4.0, rel=0.05)

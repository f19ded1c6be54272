"""What was learned before: priors of past runs by dense formulas, guards against them, points to begin with, tasks."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import IndexKernel, RBFKernel, ScaleKernel
from problems import DOUBLE, data, dense, difference, exactly

import torch_kbandits as kb
from torch_kbandits import LearnedPrior, Prior, algorithms
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.priors.families import Balancing, Family

ARMS = data(60, 2, seed=9)[0]


def free():
    return ScaleKernel(RBFKernel()).double()


def task(X, shift=0.0):
    return torch.sin(6.0 * X[:, 0]) + X[:, 1] ** 2 + shift * torch.cos(5.0 * X[:, 1])


def past(number, n=20, *, sign=1.0, noise=0.1, of=task):
    """Runs of tasks that are alike, each with a level of its own."""
    found = []
    for seed in range(number):
        random = torch.Generator().manual_seed(seed)
        X = torch.rand(n, 2, generator=random, dtype=DOUBLE)
        rest = noise * torch.randn(n, generator=random, dtype=DOUBLE)
        found.append((X, 5.0 + seed + sign * of(X, 0.2 * seed) + rest))
    return found


def parts(spec):
    """Length scale, variance and the variance of levels of a fitted kernel, and λ."""
    stationary, constant = spec.kernel.kernels
    inside = stationary.base_kernel
    variance = float(stationary.outputscale)
    if isinstance(inside, ScaleKernel):
        inside, variance = inside.base_kernel, variance * float(inside.outputscale)
    return float(inside.lengthscale), variance, float(constant.constant), spec.regularization


def evidence(runs, lengthscale, variance, noise, scale):
    """The sum of log marginal likelihoods, levels integrated out, and the prior of λ, which is LogN(−4, 1) in units."""
    total = -math.log(noise / scale**2) - 0.5 * (math.log(noise / scale**2) + 4.0) ** 2
    for X, Y in runs:
        K = oracles.rbf(lengthscale, variance)(*dense(X, X)) + noise * np.eye(len(X)) + scale**2
        total += oracles.log_density((Y - Y.mean()).numpy(), K)
    return total


def test_kernel_and_noise_have_the_largest_sum_of_marginal_likelihoods():
    runs = past(3)
    lengthscale, variance, spread, noise = parts(Family.from_runs(runs, free()).variants[1])
    rest = torch.cat([Y - Y.mean() for _, Y in runs])
    scale = math.hypot(float(rest.mean()), float(rest.std()))
    best = evidence(runs, lengthscale, variance, noise, scale)
    for place in range(3):
        for factor in (0.97, 1.03):
            moved = [lengthscale, variance, noise]
            moved[place] *= factor
            assert evidence(runs, *moved, scale) < best
    levels = np.array([level_of(X, Y, lengthscale, variance, noise, scale) for X, Y in runs])
    assert spread == pytest.approx((scale**2 + ((levels - levels.mean()) ** 2).sum()) / 3.0, rel=1e-6)


def level_of(X, Y, lengthscale, variance, noise, scale):
    K = oracles.rbf(lengthscale, variance)(*dense(X, X)) + noise * np.eye(len(X)) + scale**2
    return float(Y.mean() + scale**2 * np.linalg.solve(K, (Y - Y.mean()).numpy()).sum())


def test_the_mean_of_one_run_is_its_posterior_mean():
    ((X, Y),) = past(1)
    prior = Prior.from_runs([(X, Y)], free())
    lengthscale, variance, _, noise = parts(prior)
    scale = math.hypot(float((Y - Y.mean()).mean()), float(Y.std()))
    level = level_of(X, Y, lengthscale, variance, noise, scale)
    points, values, T = dense(X, Y - level, ARMS)
    expected = level + oracles.exact(oracles.rbf(lengthscale, variance), points, values, np.full(20, noise), T).mean
    assert difference(prior.mean(ARMS), expected) < 1e-7


def test_noise_that_was_told_of_rewards_of_a_run_is_used():
    ((X, Y),) = past(1)
    told = torch.linspace(0.01, 2.0, 20, dtype=DOUBLE).masked_fill(torch.arange(20) % 3 == 0, math.nan)
    bounds = torch.tensor([[0.0] * 2, [1.0] * 2], dtype=DOUBLE)
    bandit = algorithms.GPUCB(bounds=bounds, kernel=free(), regularization=0.1, beta=1.0, seed=0)
    bandit.tell(X, Y, noise=told)
    prior = Prior.from_runs([bandit], free())
    lengthscale, variance, _, left = parts(prior)
    noise = torch.where(told.isnan(), left, told).numpy()
    scale = math.hypot(float((Y - Y.mean()).mean()), float(Y.std()))
    K = oracles.rbf(lengthscale, variance)(*dense(X, X)) + np.diag(noise) + scale**2
    level = float(Y.mean() + scale**2 * np.linalg.solve(K, (Y - Y.mean()).numpy()).sum())
    points, values, T = dense(X, Y - level, ARMS)
    expected = level + oracles.exact(oracles.rbf(lengthscale, variance), points, values, noise, T).mean
    assert difference(prior.mean(ARMS), expected) < 1e-7


@pytest.mark.slow
def test_units_of_rewards_and_columns_change_nothing_and_bandits_histories_and_pairs_are_runs():
    runs = past(3)
    prior = Prior.from_runs(runs)
    other = Prior.from_runs([(300.0 * X, 7.0 * Y - 20.0) for X, Y in runs])
    assert difference(other.mean(300.0 * ARMS), 7.0 * prior.mean(ARMS) - 20.0) < 1e-4
    assert other.regularization == pytest.approx(49.0 * prior.regularization, rel=1e-4)
    bandits = []
    for X, Y in runs:
        words = {"bounds": torch.tensor([[0.0] * 2, [1.0] * 2], dtype=DOUBLE), "seed": 0, "beta": 1.0}
        memory = TemporalPrior(0.1) if len(bandits) == 1 else None  # its points have a time, which is no column
        bandits.append(algorithms.GPUCB(kernel=free(), regularization=0.1, memory=memory, **words))
        bandits[-1].tell(X, Y)
    given = [bandits[0].history, bandits[1], runs[2]]
    assert difference(Prior.from_runs(given).mean(ARMS), prior.mean(ARMS)) < 1e-9


def test_runs_that_have_nothing_in_common_say_nothing_of_the_mean():
    def rough(X, shift):
        random = torch.Generator().manual_seed(int(50 * shift))
        W = 4.0 * torch.randn(2, 8, generator=random, dtype=DOUBLE)
        return torch.cos(X @ W + 6.0 * torch.rand(8, generator=random, dtype=DOUBLE)).sum(-1)

    prior = Prior.from_runs(past(3, of=rough), free())
    assert isinstance(prior.mean, float)
    assert not isinstance(Prior.from_runs(past(3), free()).mean, float)


def regrets(make, truth, rounds=25):
    """Regret of rewards with noise, summed."""
    bandit, random, total = make(), torch.Generator().manual_seed(1), 0.0
    for _ in range(rounds):
        x = bandit.ask()
        total += float(truth(ARMS).max() - truth(x))
        bandit.tell(x, truth(x) + 0.1 * torch.randn(1, generator=random, dtype=DOUBLE))
    return total, bandit


def guarded(runs, **words):
    family = Family.from_runs(runs, **words)
    prior, width = Prior.from_runs(runs), kb.ConstantWidth(2.0)
    return lambda: kb.Bandit(candidates=kb.Arms(ARMS), prior=prior, family=family, width=width, seed=0)


def after_the_change(X):
    return 9.0 + task(X, 0.3)


def test_a_past_that_helps_is_believed_and_one_that_misleads_is_found_out():
    for sign, believed in ((1.0, True), (-1.0, False)):
        family = Family.from_runs(past(3, sign=sign), free())
        words = {"prior": Prior(free(), 0.1), "family": family, "width": kb.ConstantWidth(2.0), "seed": 0}
        bandit = kb.Bandit(candidates=kb.Arms(ARMS), **words)
        bandit.tell(ARMS[:12], after_the_change(ARMS[:12]))
        assert (bandit.model_weights[0] > 0.9) == believed
        assert believed or bandit.model_weights[0] < 1e-6


@pytest.mark.slow
def test_a_past_that_helps_saves_regret_and_one_that_misleads_costs_a_factor_under_a_guard_alone():
    none, _ = regrets(lambda: algorithms.GPUCB(candidates=ARMS, prior=LearnedPrior(), seed=0), after_the_change)
    helped, _ = regrets(guarded(past(3)), after_the_change)
    misled, _ = regrets(guarded(past(3, sign=-1.0)), after_the_change)
    believing = Prior.from_runs(past(3, sign=-1.0))
    alone, _ = regrets(lambda: algorithms.GPUCB(candidates=ARMS, prior=believing, beta=2.0, seed=0), after_the_change)
    assert helped < 0.5 * none
    assert misled < 1.5 * none < alone


def test_a_rule_may_be_given_and_what_is_no_run_is_refused():
    assert isinstance(Family.from_runs(past(2), free(), rule=Balancing()).rule, Balancing)
    X, Y = past(1)[0]
    for runs, match in (
        ([], "a list of one past run"),
        ([3.0], r"runs\[0\] must be a bandit"),
        ([(X[:1], Y[:1])], "two points"),
        ([(X, Y), (X[:, :1], Y)], "columns of the task"),
    ):
        with pytest.raises(kb.InputError, match=match):
            Prior.from_runs(runs)


# ---------------------------------------------------------------- points to begin with


def test_points_to_begin_with_are_asked_for_in_their_order_and_then_points_are_spread(tmp_path):
    first = [4, 7, 9]

    def make(**words):
        prior = LearnedPrior(initial=ARMS[first], **words)
        return algorithms.GPUCB(candidates=ARMS, prior=prior, seed=0)

    def rows(X):
        return [int((x == ARMS).all(-1).nonzero()[0]) for x in X]

    assert rows(make().ask(5))[:3] == first
    bandit = make()
    assert rows(bandit.ask(remember=False)) == [4]
    bandit.tell(bandit.ask(), 1.0)
    bandit.save(tmp_path / "begun.kb")
    for each in (bandit, kb.Bandit.load(tmp_path / "begun.kb")):
        assert rows(each.ask(2)) == [7, 9]
        assert each.num_asked == 3
        assert rows(each.ask()) != [9]
    suggestion = make().ask(2, details=True, exclude=[4])
    assert int(suggestion.rows[0]) != 4
    assert int(suggestion.rows[1]) == 7
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
    on_box = algorithms.GPUCB(bounds=box, prior=LearnedPrior(initial=[[0.5, 0.25], [0.1, 0.2]]), seed=0)
    assert on_box.ask(3)[:2].tolist() == [[0.5, 0.25], [0.1, 0.2]]
    space = kb.ParameterSpace({"rate": kb.Float(0.0, 1.0), "kind": kb.Categorical(["a", "b"])})
    on_space = algorithms.GPUCB(candidates=space, prior=LearnedPrior(initial=[{"rate": 0.25, "kind": "b"}]), seed=0)
    assert on_space.ask()[0] == {"rate": pytest.approx(0.25), "kind": "b"}


def test_points_to_begin_with_that_are_no_candidates_are_refused():
    with pytest.raises(kb.InputError, match=r"initial\[1\] is none of the candidates"):
        algorithms.GPUCB(candidates=ARMS, prior=LearnedPrior(initial=[*ARMS[:1].tolist(), [2.0, 2.0]]), seed=0)
    with pytest.raises(kb.InputError, match="candidates that stay"):
        algorithms.GPUCB(candidates=ARMS, context_dim=1, prior=LearnedPrior(initial=ARMS[:1]), seed=0)


# ---------------------------------------------------------------- several tasks


def of_tasks():
    """Tasks 0, 1 and 2, of which the last is the opposite of the others, and what their kernel is densely."""
    kernel = (IndexKernel(num_tasks=3, rank=1, active_dims=(0,)) * RBFKernel(active_dims=(1, 2))).double()
    tasks, places = kernel.kernels
    tasks.covar_factor.data = torch.tensor([[1.0], [0.8], [-0.9]], dtype=DOUBLE)
    tasks.var = torch.tensor([0.1, 0.2, 0.3], dtype=DOUBLE)
    places.lengthscale = exactly(0.5)
    B = np.outer([1.0, 0.8, -0.9], [1.0, 0.8, -0.9]) + np.diag([0.1, 0.2, 0.3])

    def gram(X, T):
        return B[np.ix_(X[:, 0].astype(int), T[:, 0].astype(int))] * oracles.rbf(0.5)(X[:, 1:], T[:, 1:])

    return kernel, gram


@pytest.mark.parametrize("name", ["gp-ucb", "bkb", "ek-ucb", "gp-ts"])
def test_tasks_side_by_side_share_what_they_learn_as_the_dense_posterior_does(name):
    kernel, gram = of_tasks()
    words = {"regularization": 0.05, "beta": 1.0, "seed": 0}
    bandit = algorithms.build(name, candidates=ARMS, context_dim=1, kernel=kernel, **words)
    for turn in range(15):
        x = bandit.ask(context=[float(turn % 3)])
        bandit.tell(x, torch.sin(4.0 * x).sum() + turn % 3, context=[float(turn % 3)])
    T = torch.cat([torch.cat([torch.full((60, 1), float(each)), ARMS], -1) for each in range(3)]).double()
    X, Y, points = dense(bandit.history.X, bandit.history.Y, T)
    noise = np.full(len(X), 0.05)
    if name in ("bkb", "ek-ucb"):
        expected = oracles.dtc(gram, X, Y, noise, *dense(bandit.inducing_points), points)
    else:
        expected = oracles.exact(gram, X, Y, noise, points)
    posterior = bandit.model.posterior(T.unsqueeze(-2))
    assert difference(posterior.mean.flatten(), expected.mean) < 1e-8
    assert difference(posterior.variance.flatten(), expected.variance) < 1e-8


def test_how_alike_tasks_are_is_learned():
    kernel = (IndexKernel(num_tasks=3, rank=1, active_dims=(0,)) * RBFKernel(active_dims=(1, 2))).double()
    kernel.kernels[0].covar_factor.data = torch.full((3, 1), 0.5, dtype=DOUBLE)
    X = torch.cat([(torch.arange(45) % 3).double().unsqueeze(-1), data(45, 2, seed=3)[0]], dim=-1)
    sign = torch.tensor([1.0, 1.0, -1.0], dtype=DOUBLE)[X[:, 0].long()]
    prior = kb.fit_prior(
        X, sign * task(X[:, 1:]) + 0.05 * torch.randn(45, generator=torch.Generator().manual_seed(0)), kernel
    )
    (tasks,) = [part for part in prior.kernel.modules() if isinstance(part, IndexKernel)]
    B = tasks.covar_matrix.to_dense()
    alike = B / (B.diag().sqrt() * B.diag().sqrt().unsqueeze(-1))
    assert alike[0, 1] > 0.8
    assert alike[0, 2] < -0.5


def test_a_bandit_under_a_prior_of_the_past_is_saved_and_made_again(tmp_path):
    bandit = algorithms.GPUCB(candidates=ARMS, prior=Prior.from_runs(past(1), free()), beta=1.0, seed=0)
    bandit.tell(bandit.ask(), 1.0)
    bandit.save(tmp_path / "past.kb")
    assert torch.equal(kb.Bandit.load(tmp_path / "past.kb").ask(5), bandit.ask(5))

"""What all arms have in common at a time is a kernel of time alone, added to that of the arms."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from torch_kbandits import Bandit, ContextualActions, ForgettingKernel, InputError, LearnedPrior, algorithms
from torch_kbandits.candidates import Arms, Timed
from torch_kbandits.kernels import SpaceTimeKernel, WienerKernel
from torch_kbandits.memory import BackToPrior, SlidingWindow
from torch_kbandits.priors import default_kernel

DOUBLE = torch.float64
ARMS = torch.linspace(0.0, 1.0, 25, dtype=DOUBLE).unsqueeze(-1)
LENGTH, OWN, COMMON, DAY, NOISE, BETA = 0.15, 0.01, 4.0, 0.1, 0.01, 2.0


def own(share=OWN):
    """The kernel of the arms, of which a share is replaced in a unit of time."""
    space = RBFKernel().double()
    space.lengthscale = torch.tensor(LENGTH, dtype=DOUBLE)
    return SpaceTimeKernel(space, ForgettingKernel(share))


def common(variance=COMMON, share=DAY):
    """The kernel of what they have in common."""
    kernel = ScaleKernel(ForgettingKernel(share, active_dims=(0,))).double()
    kernel.outputscale = torch.tensor(variance, dtype=DOUBLE)
    return kernel


def gram(X, Z):
    """The sum of both by its formula; the first column is the time."""
    apart = np.abs(X[:, None, 0] - Z[None, :, 0])
    places = np.exp(-((X[:, None, 1] - Z[None, :, 1]) ** 2) / (2.0 * LENGTH**2))
    return places * (1.0 - OWN) ** (apart / 2.0) + COMMON * (1.0 - DAY) ** (apart / 2.0)


@pytest.mark.parametrize("window", [None, 6.0])
@pytest.mark.parametrize("algorithm", [algorithms.GPUCB, algorithms.BKB])
def test_the_posterior_is_that_of_dense_formulas(algorithm, window):
    """Of what counts; also on a dictionary, which has all that was played."""
    words = {"oversampling": 1e9} if algorithm is algorithms.BKB else {}
    memory = None if window is None else SlidingWindow(window)
    kernel = own() + common()
    bandit = algorithm(
        candidates=Timed(Arms(ARMS)), kernel=kernel, regularization=NOISE, memory=memory, beta=BETA, seed=0, **words
    )
    generator = torch.Generator().manual_seed(0)
    times, rewards = [0.0, 0.0, 1.0, 2.5, 5.0, 7.0, 7.0, 8.0], torch.randn(8, generator=generator, dtype=DOUBLE)
    for number, (now, y) in enumerate(zip(times, rewards.tolist(), strict=True)):
        bandit.tell(ARMS[3 * number, None], y, time=now)
    x = bandit.ask(time=9.0, remember=False)
    counts = [number for number, now in enumerate(times) if window is None or 9.0 - now <= window]
    X, y = np.array([[times[n], float(ARMS[3 * n])] for n in counts]), rewards.numpy()[counts]
    points = np.hstack([np.full((len(ARMS), 1), 9.0), ARMS.numpy()])
    solved = np.linalg.solve(gram(X, X) + NOISE * np.eye(len(X)), gram(X, points))
    scores = y @ solved + BETA * np.sqrt(1.0 + COMMON - (gram(X, points) * solved).sum(0))
    acquisition = bandit.acquisition(time=9.0)
    with torch.no_grad():
        found = acquisition(torch.from_numpy(points[:, None, 1:]))
    np.testing.assert_allclose(found.numpy(), scores, rtol=1e-6)
    assert scores[int((x == ARMS).all(-1).nonzero()[0])] >= scores.max() - 1e-8


@pytest.mark.parametrize("offset", [0.0, 3.0, -50.0])
def test_what_days_add_to_all_rewards_does_not_matter_where_they_may_differ_by_any_amount(offset):
    """Of four arms on each of five days the differences count."""
    bandit = algorithms.GPUCB(
        candidates=Timed(Arms(ARMS)), kernel=own() + common(1e6, 0.99), regularization=NOISE, beta=BETA, seed=0
    )
    generator, played = torch.Generator().manual_seed(1), []
    for day in range(5):
        X = ARMS[torch.randperm(len(ARMS), generator=generator)[:4]]
        Y = torch.sin(6.0 * X.squeeze(-1)) + offset * day**2
        bandit.tell(X, Y, time=float(day))
        played.append(bandit.ask(time=day + 0.5, remember=False))
    with torch.no_grad():
        points = torch.cat([torch.full((len(ARMS), 1), 5.0, dtype=DOUBLE), ARMS], -1)
        mean = bandit.model.posterior(points).mean.squeeze(-1)
    truth = torch.sin(6.0 * ARMS.squeeze(-1))
    assert ((mean - mean.mean()) - (truth - truth.mean())).abs().max() < 0.2


@pytest.mark.parametrize("candidates", ["arms", "contexts"])
@pytest.mark.parametrize("memory", [None, SlidingWindow(20.0)])
@pytest.mark.parametrize("prior", ["given", pytest.param("learned", marks=pytest.mark.slow)])
def test_it_goes_with_contexts_dictionaries_memories_fits_and_files(candidates, memory, prior, tmp_path):
    """A saved bandit goes on as the one that was saved."""
    context = {"context": torch.tensor([0.4], dtype=DOUBLE)} if candidates == "contexts" else {}
    inner = ContextualActions(ARMS, context_dim=1) if context else Arms(ARMS)
    kernel = SpaceTimeKernel(default_kernel(1 + len(context)), ForgettingKernel(OWN)) + common()
    words = {"prior": LearnedPrior(kernel=kernel, num_initial=4)}
    if prior == "given":
        words = {"kernel": kernel.requires_grad_(False), "regularization": NOISE}
    bandit = algorithms.EKUCB(candidates=Timed(inner), memory=memory, beta=BETA, seed=0, **words)
    for day in range(5):
        x = bandit.ask(time=float(day), **context)
        bandit.tell(x, float(x.sum()) + day % 2, time=float(day), **context)
    bandit.save(tmp_path / "bandit.kb")
    again = Bandit.load(tmp_path / "bandit.kb")
    assert torch.equal(again.ask(time=6.0, **context), bandit.ask(time=6.0, **context))


def expected(X, time):
    return torch.zeros_like(X[..., 0])


@pytest.mark.parametrize("candidates", [Arms(ARMS), Timed(Arms(ARMS))], ids=["arms", "timed"])
@pytest.mark.parametrize("words", [{"memory": BackToPrior(0.1)}, {"mean": expected}], ids=["memory", "mean"])
def test_what_takes_the_kernel_of_one_time_refuses_others(words, candidates):
    """A memory that is a prior on time, or a mean, for which a kernel would take a column of space for the time."""
    words = {"candidates": candidates, "beta": BETA, "seed": 0} | words
    for kernel in (own() + common(), default_kernel(1) + common(), ScaleKernel(own())):
        with pytest.raises(InputError, match=r"would take a column of space for the time.*leave out that memory"):
            algorithms.GPUCB(kernel=kernel, regularization=NOISE, **words)
    with pytest.raises(InputError, match="SpaceTimeKernel in ScaleKernel would take"):
        algorithms.GPUCB(
            prior=LearnedPrior(own(), mean=words.pop("mean", None)), **{"memory": BackToPrior(0.1)} | words
        )
    with pytest.raises(InputError, match="WienerKernel in ProductKernel would take"):
        SpaceTimeKernel(RBFKernel() * WienerKernel(active_dims=(1,)), ForgettingKernel(OWN))


def regret(seed, kernel):
    """The mean regret of 120 rounds on a function that drifts while all of it goes up and down together."""
    generator = torch.Generator().manual_seed(seed)
    places = np.exp(-((ARMS.numpy() - ARMS.numpy().T) ** 2) / (2.0 * LENGTH**2))
    factor = torch.from_numpy(np.linalg.cholesky(places + 1e-8 * np.eye(len(ARMS))))
    bandit = algorithms.GPUCB(candidates=Timed(Arms(ARMS)), kernel=kernel, regularization=NOISE, beta=BETA, seed=seed)
    normals = torch.randn(120, len(ARMS) + 2, generator=generator, dtype=DOUBLE)
    function, level, lost = factor @ normals[0, 2:], 0.0, 0.0
    for day, (up, noise, *_) in enumerate(normals.tolist()):
        function = (1.0 - OWN) ** 0.5 * function + OWN**0.5 * (factor @ normals[day, 2:])
        level = (1.0 - DAY) ** 0.5 * level + (DAY * COMMON) ** 0.5 * up
        x = bandit.ask(time=float(day))
        arm = int((x == ARMS).all(-1).nonzero()[0])
        lost += float(function.max() - function[arm]) / 120.0
        bandit.tell(x, float(function[arm]) + level + NOISE**0.5 * noise, time=float(day))
    return lost


@pytest.mark.slow
def test_knowing_of_it_takes_a_third_of_the_regret_off():
    """Claimed before these seeds were run: at most 0.7 times, after 0.24 to 0.51 on others; it was 0.234 to 0.371."""
    seeds = range(10, 16)
    with_it = sum(regret(seed, own() + common()) for seed in seeds)
    without = sum(regret(seed, own()) for seed in seeds)
    assert with_it <= 0.7 * without

"""Rounds by others: BoTorch's own models on many arms, and the papers' formulas and updates in NumPy."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from benchmarks.arm_bandits import BETA, OVERSAMPLING, REGULARIZATION, kernel
from benchmarks.contextual_players import AuthorsEKUCB, Surrogate
from benchmarks.references import Problem, bkb_round
from benchmarks.runner import seconds_of

#: Arms whose posterior is computed at a time: of 512, 2,048 and all, this was the fastest for the exact model.
_BLOCK = 512

#: Points of a dictionary, observations of an exact model, and the length scale, of rounds on many arms.
_POINTS, _OBSERVATIONS, _LENGTHSCALE = 350, (500, 2_000), 0.025

#: The milliseconds of each round, and what returns the points that the model is at then.
Steps = Iterator[tuple[float, Callable[[], Any]]]


def reward(X: Tensor, context: Tensor | None = None) -> Tensor:
    """Return mean rewards (q,) of arms X (q, d), or of actions X (q, c) in a context (c,)."""
    return torch.sin(7.0 * X).sum(-1) if context is None else torch.exp(-(context - X).square().sum(-1))


def offered(t: int) -> dict[str, Tensor]:
    """Return the context (3,) and the ten actions (10, 3) of a round."""
    drawn = torch.rand(11, 3, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
    return {"context": drawn[0], "candidates": drawn[1:]}


def peers(arms: Tensor, first: int, rounds: int) -> dict[str, Callable[[], Steps]]:
    """Return by name rounds over arms (A, d), and rounds with contexts after the first."""
    points = arms[:_POINTS]
    rows, rewards = np.arange(len(points)), reward(points).numpy()
    problem, rng = Problem(arms.numpy(), _LENGTHSCALE, REGULARIZATION, BETA), np.random.default_rng(0)
    afresh = partial(bkb_round, problem, rows, rows, rewards, OVERSAMPLING, rng)
    variational = variational_blocks(arms, points, _LENGTHSCALE)
    found = {"NumPy, BKB from scratch": _calls(afresh, points), "BoTorch, variational": _calls(variational, points)}
    for n in _OBSERVATIONS:
        known = arms[:n], reward(arms[:n]), _LENGTHSCALE
        found[f"BoTorch, exact, posterior in blocks, n = {n:,}"] = _calls(exact_blocks(arms, *known), known[0])
        found[f"BoTorch, exact, optimize_acqf_discrete, n = {n:,}"] = _calls(exact_search(arms, *known), known[0])
    found = {f"{name}, {len(arms):,} arms": steps for name, steps in found.items()}
    for scale in (1.2, 0.7):
        found[f"NumPy, EK-UCB, 10 actions, length scale {scale}"] = partial(_ek_ucb, scale, first, rounds)
    return found


def _ek_ucb(lengthscale: float, first: int, rounds: int) -> Steps:
    """Play the updates of EK-UCB's paper in NumPy, which make choices of their own."""
    player, rng = (
        AuthorsEKUCB(Surrogate(lengthscale, 1.0), 1.0, 1.0, scores_what_is_left=True),
        np.random.default_rng(1),
    )
    for t in range(first + rounds):
        context, actions = offered(t).values()
        joint = torch.cat([context.expand(len(actions), -1), actions], dim=1).numpy()
        start = time.perf_counter()
        row = player.choose(joint)
        chosen = time.perf_counter() - start
        y = float(reward(actions[row], context)) + 0.1 * rng.standard_normal()
        start = time.perf_counter()
        player.tell(joint[row], y)
        if t >= first:
            yield 1e3 * (chosen + time.perf_counter() - start), lambda: player.dictionary


def _calls(play: Callable[[], object], points: Tensor, number: int = 3) -> Callable[[], Steps]:
    """Return what plays the same round some times, at points (m, d)."""
    return lambda: ((1e3 * seconds_of(play), lambda: points) for _ in range(number))


def exact_search(arms: Tensor, X: Tensor, Y: Tensor, lengthscale: float) -> Callable[[], Tensor]:
    """Return a round of the exact GP: condition on X (n, d), Y (n,), then ``optimize_acqf_discrete`` over arms (A, d).

    Hyperparameters are fixed, so nothing is fitted. BoTorch's UCB multiplies the standard deviation by √beta.
    """

    def play() -> Tensor:
        acquisition = UpperConfidenceBound(_exact(X, Y, lengthscale), beta=BETA**2)
        best, _ = optimize_acqf_discrete(acquisition, q=1, choices=arms)
        return best

    return play


def exact_blocks(arms: Tensor, X: Tensor, Y: Tensor, lengthscale: float) -> Callable[[], Tensor]:
    """Return the same round with the posterior taken in blocks of arms: the fastest way that was found."""
    return lambda: _best_of_blocks(_exact(X, Y, lengthscale), arms)


def variational_blocks(arms: Tensor, inducing_points: Tensor, lengthscale: float) -> Callable[[], Tensor]:
    """Return a round of the sparse variational GP without its training: only the posterior and UCB of all arms (A, d).

    The variational distribution is left where it starts, since its values do not change what a search costs. What
    depends on the inducing points alone is cached before. ``optimize_acqf_discrete`` is not used: with 350 inducing
    points it solves a system for every single arm and takes a hundred times as long.
    """
    model = SingleTaskVariationalGP(
        inducing_points,
        likelihood=GaussianLikelihood().to(arms),
        covar_module=kernel(lengthscale),
        inducing_points=inducing_points,
        learn_inducing_points=False,
        outcome_transform=None,
    ).eval()
    _best_of_blocks(model, arms[:10])
    return lambda: _best_of_blocks(model, arms)


def _exact(X: Tensor, Y: Tensor, lengthscale: float) -> SingleTaskGP:
    train_Y = Y.unsqueeze(-1)
    noise = torch.full_like(train_Y, REGULARIZATION)
    model = SingleTaskGP(X, train_Y, noise, covar_module=kernel(lengthscale), outcome_transform=None)
    return model.eval()


@torch.no_grad()
def _best_of_blocks(model: SingleTaskGP | SingleTaskVariationalGP, arms: Tensor) -> Tensor:
    scores = []
    for block in arms.split(_BLOCK):
        posterior = model.posterior(block)
        scores.append(posterior.mean + BETA * posterior.variance.sqrt())
    return arms[torch.cat(scores).argmax(), None]

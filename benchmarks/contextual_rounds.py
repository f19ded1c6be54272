"""What a round of EK-UCB costs: on Bump with few actions, and over a hundred thousand rounds with many."""

import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.spatial.distance import cdist
from torch import Tensor
from tqdm import tqdm

from benchmarks.long_run import slope
from benchmarks.memory import resident_bytes
from benchmarks.references import Array, IncrementalEKUCB
from benchmarks.report import Report, Table, spread
from torch_kbandits.algorithms import EKUCB
from torch_kbandits.beliefs import CountedBelief
from torch_kbandits.environments import ContextualEnvironment
from torch_kbandits.environments.anchors import bump
from torch_kbandits.environments.covariances import stationary_kernel

REGULARIZATION = 1.0
BETA = 0.1
OVERSAMPLING = 0.3


@dataclass(frozen=True)
class Sizes:
    """What is run.

    ``rounds`` of Bump with ``actions``, ``repeats`` times; dense rounds are timed after ``dense_at`` rounds. Then
    ``long_rounds`` with ``long_actions`` under a dictionary of at most ``cap`` points, in blocks.
    """

    rounds: int = 5_000
    actions: int = 10
    repeats: int = 3
    dense_at: tuple[int, ...] = (500, 5_000)
    dense_rounds: int = 20
    long_rounds: int = 100_000
    long_actions: int = 100
    cap: int = 50
    block: int = 1_000
    memory_every: int = 20_000


QUICK = Sizes(60, 5, 2, (30, 60), 2, 120, 6, 5, 4, 40)


def run(quick: bool = False) -> Report:
    """Time EK-UCB's rounds, and those of the paper's formulas computed afresh in NumPy."""
    sizes = QUICK if quick else Sizes()
    measurements = [{"case": "bump", **_short(sizes, seed)} for seed in range(sizes.repeats)]
    measurements.append({"case": "long", **_long(sizes)})
    return Report("contextual_rounds", asdict(sizes), _tables(measurements, sizes), measurements)


def dense_round(
    dictionary: Array, played: Array, rewards: Array, offered: Array, lengthscale: float
) -> tuple[Array, Array]:
    """Return means and variances (A,) at offered points by Proposition 4.2 of paper 001, from scratch.

    Λ = (K_ZS K_SZ + λ K_ZZ)⁻¹ is applied by solving, since inverses of nearly singular matrices lose digits.
    """
    K_ZZ, K_ZS = (_gram(dictionary, points, lengthscale) for points in (dictionary, played))
    k = _gram(dictionary, offered, lengthscale)
    ridge = 1e-13 * np.eye(len(dictionary))
    precision = K_ZS @ K_ZS.T + REGULARIZATION * K_ZZ + ridge
    mean = k.T @ np.linalg.solve(precision, K_ZS @ rewards)
    projected = (k * np.linalg.solve(K_ZZ + ridge, k)).sum(0)
    return mean, 1.0 - projected + REGULARIZATION * (k * np.linalg.solve(precision, k)).sum(0)


def _gram(left: Array, right: Array, lengthscale: float) -> Array:
    return np.exp(-cdist(left, right, "sqeuclidean") / (2.0 * lengthscale**2))


def _short(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Play Bump; at some rounds also time the dense computation at the same dictionary and history."""
    environment = bump(seed=seed)
    assert environment.actions is not None
    actions, lengthscale = environment.actions[: sizes.actions], 1.0
    bandit = _bandit(actions, environment.context_dim, stationary_kernel("rbf", lengthscale), None, seed)
    contexts = [environment.context(t) for t in range(sizes.rounds)]
    milliseconds, dense = np.zeros(sizes.rounds), {}
    for t, context in enumerate(contexts):
        started = time.perf_counter()
        action = bandit.ask(context=context)
        asked = time.perf_counter()
        reward = environment.pull(environment.joint_points(action, t), t)
        pulled = time.perf_counter()
        bandit.tell(action, reward, context=context)
        milliseconds[t] = 1e3 * (asked - started + time.perf_counter() - pulled)
        if t + 1 in sizes.dense_at:
            dense[t + 1] = _dense_milliseconds(bandit, context, actions, lengthscale, sizes.dense_rounds)
    incremental = _incremental_milliseconds(environment, contexts, lengthscale, sizes, seed)
    return {
        "seed": seed,
        "seconds": float(milliseconds.sum()) / 1e3,
        "numpy_seconds": float(incremental.sum()) / 1e3,
        "numpy_ms_before": {at: float(incremental[max(0, at - 200) : at].mean()) for at in sizes.dense_at},
        "late_ms": float(milliseconds[-len(milliseconds) // 10 :].mean()),
        "dictionary": len(bandit.inducing_points),
        "ms_before": {at: float(milliseconds[max(0, at - 200) : at].mean()) for at in sizes.dense_at},
        "dense_ms": dense,
    }


def _incremental_milliseconds(
    environment: ContextualEnvironment, contexts: list[Tensor], lengthscale: float, sizes: Sizes, seed: int
) -> Array:
    """Return the milliseconds of each round of the updates in NumPy, which makes choices of its own."""
    player = IncrementalEKUCB(lengthscale, REGULARIZATION, BETA, OVERSAMPLING, seed)
    milliseconds, actions = np.zeros(sizes.rounds), cast(Tensor, environment.actions)[: sizes.actions]
    for t, context in enumerate(contexts):
        offered = torch.cat([context.expand(len(actions), -1), actions], dim=-1).numpy()
        started = time.perf_counter()
        row = player.choose(offered)
        asked = time.perf_counter()
        reward = float(environment.pull(torch.from_numpy(offered[row : row + 1]), t))
        pulled = time.perf_counter()
        player.tell(offered[row], reward)
        milliseconds[t] = 1e3 * (asked - started + time.perf_counter() - pulled)
    return milliseconds


def _dense_milliseconds(bandit: EKUCB, context: Tensor, actions: Tensor, lengthscale: float, rounds: int) -> float:
    history = bandit.history
    offered = torch.cat([context.expand(len(actions), -1), actions], dim=-1).numpy()
    given = bandit.inducing_points.numpy(), history.X.numpy(), history.Y.numpy(), offered, lengthscale
    started = time.perf_counter()
    for _ in range(rounds):
        dense_round(*given)
    return 1e3 * (time.perf_counter() - started) / rounds


def _long(sizes: Sizes) -> dict[str, Any]:
    """Play smooth rewards on contexts in [0, 1]² for a long time, then compare with the dense posterior."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(sizes.long_actions, 1, generator=generator, dtype=torch.float64)
    lengthscale = 0.5
    bandit = _bandit(actions, 2, stationary_kernel("rbf", lengthscale), sizes.cap, 0)
    contexts = torch.rand(sizes.long_rounds, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(sizes.long_rounds, generator=generator, dtype=torch.float64)
    milliseconds, points, regret = (np.zeros(sizes.long_rounds) for _ in range(3))
    memory = [resident_bytes()]
    for t in tqdm(range(sizes.long_rounds), desc="contextual_rounds", unit="round", mininterval=5.0):
        context = contexts[t]
        started = time.perf_counter()
        action = bandit.ask(context=context)
        asked = time.perf_counter()
        mean = _smooth(context, action[0])
        pulled = time.perf_counter()
        bandit.tell(action, mean + noise[t], context=context)
        milliseconds[t] = 1e3 * (asked - started + time.perf_counter() - pulled)
        points[t], regret[t] = len(bandit.inducing_points), float(_smooth(context, actions).max() - mean)
        if (t + 1) % sizes.memory_every == 0:
            memory.append(resident_bytes())
    blocks = np.median(milliseconds.reshape(-1, sizes.block), 1)
    later = slice(len(blocks) // 10, None)
    beside = points.reshape(-1, sizes.block).mean(1)[None, later]
    history = bandit.history
    offered = torch.cat([contexts[-1].expand(len(actions), -1), actions], dim=-1)
    mean, variance = dense_round(
        bandit.inducing_points.numpy(), history.X.numpy(), history.Y.numpy(), offered.numpy(), lengthscale
    )
    with torch.no_grad():
        belief = cast(CountedBelief, bandit._belief)  # whose model is there without a pass over the history
        model = belief.joint.model
        model.learns_residual = False  # as the formulas
        posterior = model.posterior(offered.unsqueeze(-2))
    return {
        "seconds": float(milliseconds.sum()) / 1e3,
        "block_median_ms": blocks.tolist(),
        "block_mean_ms": milliseconds.reshape(-1, sizes.block).mean(1).tolist(),
        "block_regret": regret.reshape(-1, sizes.block).mean(1).tolist(),
        "dictionary": int(points[-1]),
        "slope": slope(blocks[later], beside, sizes.block),
        "memory_bytes": memory,
        "mean_error": float(np.abs(posterior.mean.flatten().numpy() - mean).max()),
        "variance_error": float(np.abs(posterior.variance.flatten().numpy() - variance).max()),
    }


def _smooth(context: Tensor, actions: Tensor) -> Tensor:
    """Return the mean rewards of actions (..., 1) in a context (2,), of the same shape."""
    return torch.sin(4.0 * context[0] + 2.0 * actions) * context[1]


def _bandit(actions: Tensor, context_dim: int, kernel: Kernel, cap: int | None, seed: int) -> EKUCB:
    return EKUCB(
        candidates=actions,
        context_dim=context_dim,
        kernel=kernel,
        regularization=REGULARIZATION,
        oversampling=OVERSAMPLING,
        max_dictionary=cap,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


def _tables(measurements: list[dict[str, Any]], sizes: Sizes) -> list[Table]:
    short, (long,) = measurements[:-1], measurements[-1:]
    rows = [
        [
            f"all {sizes.rounds:,}",
            spread([run["dictionary"] for run in short], 0),
            spread([sizes.rounds / run["seconds"] for run in short], 0),
            spread([1e3 * run["seconds"] / sizes.rounds for run in short]),
            spread([1e3 * run["numpy_seconds"] / sizes.rounds for run in short]),
            "",
        ]
    ]
    for at in sizes.dense_at:
        rows.append(
            [
                f"the 200 before round {at:,}",
                "",
                spread([1e3 / run["ms_before"][at] for run in short], 0),
                spread([run["ms_before"][at] for run in short]),
                spread([run["numpy_ms_before"][at] for run in short]),
                spread([run["dense_ms"][at] for run in short]),
            ]
        )
    columns = ["rounds", "dictionary at the end", "rounds a second", "ms a round", "NumPy, updates, ms", "afresh, ms"]
    fit, memory = long["slope"], long["memory_bytes"]
    stretch = sizes.memory_every // sizes.block
    course = [
        [
            f"{(number + 1) * sizes.memory_every:,}",
            f"{np.median(long['block_median_ms'][number * stretch : (number + 1) * stretch]):.3f}",
            f"{np.mean(long['block_mean_ms'][number * stretch : (number + 1) * stretch]):.3f}",
            f"{np.mean(long['block_regret'][number * stretch : (number + 1) * stretch]):.5f}",
            f"{bytes_ / 2**20:.0f}",
        ]
        for number, bytes_ in enumerate(memory[1:])
    ]
    summary = [
        [
            f"{long['seconds']:.0f}",
            str(long["dictionary"]),
            f"{fit['slope']:.4f} ± {fit['error']:.4f} (p = {fit['p']:.2f})",
            f"{long['mean_error']:.1e}",
            f"{long['variance_error']:.1e}",
        ]
    ]
    return [
        Table(f"EK-UCB on Bump with {sizes.actions} actions, {sizes.repeats} seeds", columns, rows),
        Table(
            f"{sizes.long_rounds:,} rounds with {sizes.long_actions} actions, dictionary at most {sizes.cap}",
            [
                "seconds in all",
                "dictionary",
                "slope of ms a round, per 100,000 rounds",
                "error of means",
                "of variances",
            ],
            summary,
        ),
        Table(
            "The course of it",
            ["rounds", "ms a round, median", "mean", "regret a round", "resident memory, MiB"],
            course,
        ),
    ]

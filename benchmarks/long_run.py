"""Whether time, memory and accuracy of a bandit stay what they are over a hundred thousand rounds.

``python -m benchmarks.long_run CASE CAP SIZES`` runs one case in a fresh interpreter and prints the result; SIZES is
JSON.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb, kernel
from benchmarks.memory import resident_bytes
from benchmarks.references import Array, Problem, bkb_posterior
from benchmarks.report import Report, Table, run_module
from torch_kbandits import Bandit
from torch_kbandits.algorithms import EKUCB
from torch_kbandits.environments import ContextualFunction, FiniteArms, gaussian_bumps

#: EK-UCB on actions beside contexts of two columns; the other cases are BKB on arms of so many columns.
CONTEXTS = "contexts"


@dataclass(frozen=True)
class Sizes:
    """What is run: each case and the cap on its dictionary. Times are put together in blocks of rounds."""

    arms: int = 10_000
    actions: int = 100
    cases: tuple[tuple[str, int], ...] = (("d = 2", 350), ("d = 6", 350), (CONTEXTS, 50))
    rounds: int = 100_000
    block: int = 1_000
    memory_every: int = 10_000


QUICK = Sizes(100, 6, (("d = 2", 5), ("d = 2", 50), (CONTEXTS, 5)), 60, 4, 20)


def run(quick: bool = False) -> Report:
    """Run bandits for as long as is said, each case in a process of its own."""
    sizes = QUICK if quick else Sizes()
    measurements = [
        json.loads(run_module("benchmarks.long_run", case, str(cap), json.dumps(asdict(sizes))))
        for case, cap in sizes.cases
    ]
    tables = [_summary(measurements, sizes), _course(measurements, sizes)]
    return Report("long_run", asdict(sizes), tables, measurements)


def measure(case: str, cap: int, sizes: Sizes) -> dict[str, Any]:
    """Return the times of blocks of rounds, memory on the way and the error of the posterior at the end.

    Nothing but the two calls is timed: the dictionary is compared with the one before between the rounds.
    """
    environment: FiniteArms | ContextualFunction
    if case == CONTEXTS:
        actions = torch.rand(sizes.actions, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        environment = ContextualFunction(_smooth, 2, actions, 0.1, 0)
        prior = {"kernel": kernel(), "regularization": REGULARIZATION}
        caps = {"max_dictionary": cap, "when_full": "stop"}
        bandit = EKUCB(candidates=actions, context_dim=2, beta=BETA, seed=0, **prior, **caps)
    else:
        environment = gaussian_bumps(sizes.arms, int(case.removeprefix("d = ")), lengthscale=LENGTHSCALE, seed=0)
        bandit = bkb(environment.arms, 0, resampling="coupled", max_dictionary=cap)
    milliseconds, points, changes, regret = (np.zeros(sizes.rounds) for _ in range(4))
    memory = [resident_bytes()]
    held = set[tuple[float, ...]]()
    for t in tqdm(range(sizes.rounds), desc=f"long_run, {case}", unit="round", mininterval=5.0):
        context = None if isinstance(environment, FiniteArms) else environment.context(t)
        start = time.perf_counter()
        x = bandit.ask(context=context)
        asked = time.perf_counter()
        X = x if isinstance(environment, FiniteArms) else environment.joint_points(x, t)
        y = environment.pull(X, t)
        pulled = time.perf_counter()
        bandit.tell(x, y, context=context)
        milliseconds[t] = 1e3 * (asked - start + time.perf_counter() - pulled)
        regret[t] = float(environment.regret(X) if isinstance(environment, FiniteArms) else environment.regret(X, t))
        now = set(map(tuple, bandit.inducing_points.tolist()))
        points[t], changes[t], held = len(now), len(now ^ held), now
        if (t + 1) % sizes.memory_every == 0:
            memory.append(resident_bytes())
    blocks = np.median(milliseconds.reshape(-1, sizes.block), 1)
    beside = np.stack([values.reshape(-1, sizes.block).mean(1) for values in (points, changes)])
    later = slice(len(blocks) // 10, None)
    return {
        "case": case,
        "cap": cap,
        "seconds": float(milliseconds.sum()) / 1e3,
        "block_median_ms": blocks.tolist(),
        "block_mean_ms": milliseconds.reshape(-1, sizes.block).mean(1).tolist(),
        "block_dictionary": beside[0].tolist(),
        "block_changes": beside[1].tolist(),
        "block_regret": regret.reshape(-1, sizes.block).mean(1).tolist(),
        "slope": slope(blocks[later], beside[:, later], sizes.block),
        "memory_bytes": memory,
        **posterior_error(bandit, environment, sizes.rounds - 1),
    }


def _smooth(X: Tensor) -> Tensor:
    return torch.sin(4.0 * X[:, 0] + 2.0 * X[:, 2]) * X[:, 1]


def slope(block_ms: Array, beside: Array, block: int) -> dict[str, float]:
    """Return how milliseconds a round change with t, per 100,000 rounds, where all that stands beside is equal.

    Least squares on t, a constant and the rows beside; rows that say nothing new cost no degree of freedom.

    Args:
        block_ms: milliseconds a round, (k,).
        beside: what else explains them, (j, k): here the mean size of the dictionary and its changes a round.
        block: rounds in a block.

    Returns:
        The slope, its standard error and the two-sided p-value of the t-test of no slope. The test takes blocks as
        independent; a machine that is busy for a while makes the p-value too small.
    """
    t = block * np.arange(len(block_ms)) / 1e5
    others = np.column_stack([np.ones_like(t), *beside])
    # What the others do not explain of t explains of the times what t alone can (Frisch, Waugh and Lovell).
    t = t - others @ np.linalg.lstsq(others, t)[0]
    rest = block_ms - others @ np.linalg.lstsq(others, block_ms)[0]
    estimate = t @ rest / (t @ t)
    freedom = len(t) - int(np.linalg.matrix_rank(others)) - 1
    residual = rest - estimate * t
    error = np.sqrt(residual @ residual / freedom / (t @ t))
    p = 2.0 * stats.t.sf(abs(estimate / error), freedom)
    return {"slope": float(estimate), "error": float(error), "p": float(p), "freedom": freedom}


def posterior_error(bandit: Bandit, environment: FiniteArms | ContextualFunction, last: int) -> dict[str, float]:
    """Return the largest errors of means and variances, against a fresh computation in NumPy.

    They are those at all arms, or at all actions in the context of the last round.

    Cost: O((A + n) m²) time, O((A + n) m) memory.
    """
    history, Z = bandit.history, bandit.inducing_points
    if isinstance(environment, FiniteArms):
        asked = environment.arms
    else:
        asked = environment.joint_points(environment.actions, last)
    problem = Problem(torch.cat([asked, Z, history.X]).numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    _, dictionary, played = np.split(np.arange(len(problem.arms)), [len(asked), len(asked) + len(Z)])
    mean, variance = (each[: len(asked)] for each in bkb_posterior(problem, dictionary, played, history.Y.numpy()))
    # A bandit shows a model that is computed afresh, and variances in which a full dictionary learns what it lacks.
    belief: Any = bandit._state.belief
    posterior, at = belief.posterior, belief.posterior.at(asked)
    ours = posterior.mean_at(at)[0], posterior.own_variance_at(at)
    if isinstance(environment, FiniteArms):
        ours = posterior.arm_mean()[0], posterior.arms.table.variance
    return {
        "mean_error": float(np.abs(ours[0] - mean).max()),
        "variance_error": float(np.abs(ours[1] - variance).max()),
    }


def _summary(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for run in measurements:
        fit, memory = run["slope"], run["memory_bytes"]
        rows.append(
            [
                run["case"],
                f"{run['block_dictionary'][-1]:.0f} (at most {run['cap']})",
                f"{np.mean(run['block_changes']):.3f}",
                f"{run['seconds']:.0f}",
                f"{fit['slope']:.3f} ± {fit['error']:.3f} (p = {fit['p']:.2f})",
                f"{(memory[-1] - memory[1]) / 2**20:.1f}",
                f"{run['mean_error']:.1e}",
                f"{run['variance_error']:.1e}",
            ]
        )
    columns = [
        "case",
        "dictionary at the end",
        "changes of it a round",
        "seconds in all",
        "slope of ms a round, per 100,000 rounds",
        f"MiB more at the end than at round {sizes.memory_every:,}",
        "error of means",
        "error of variances",
    ]
    title = (
        f"{sizes.rounds:,} rounds of BKB, coupled, on {sizes.arms:,} arms, and of EK-UCB on {sizes.actions:,} actions"
    )
    return Table(title, columns, rows)


def _course(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    """Show each stretch of rounds at whose end memory was read."""
    stretch = sizes.memory_every // sizes.block
    rows = []
    for run in measurements:
        for number, memory in enumerate(run["memory_bytes"][1:], start=1):
            blocks = slice((number - 1) * stretch, number * stretch)
            rows.append(
                [
                    run["case"],
                    f"{number * sizes.memory_every:,}",
                    f"{np.mean(run['block_dictionary'][blocks]):.1f}",
                    f"{np.mean(run['block_changes'][blocks]):.3f}",
                    f"{np.mean(run['block_regret'][blocks]):.5f}",
                    f"{np.median(run['block_median_ms'][blocks]):.2f}",
                    f"{np.mean(run['block_mean_ms'][blocks]):.2f}",
                    f"{memory / 2**20:.1f}",
                ]
            )
    columns = [
        "case",
        "rounds",
        "dictionary",
        "changes of it a round",
        "regret a round",
        "ms a round, median",
        "ms a round, mean",
        "resident memory, MiB",
    ]
    return Table(f"The course of it, in stretches of {sizes.memory_every:,} rounds", columns, rows)


if __name__ == "__main__":
    case_given, cap_given, sizes_given = sys.argv[1:]
    print(json.dumps(measure(case_given, int(cap_given), Sizes(**json.loads(sizes_given)))))

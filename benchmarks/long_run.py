"""Whether time, memory and accuracy of a bandit stay what they are over a hundred thousand rounds."""

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb, kernel
from benchmarks.references import Problem, bkb_posterior
from benchmarks.runner import Found, Measurement, Table, apart, benchmark, resident_bytes
from torch_kbandits import Bandit
from torch_kbandits.algorithms import EKUCB
from torch_kbandits.environments import ContextualFunction, FiniteArms, gaussian_bumps

#: EK-UCB on actions beside contexts of two columns; the other cases are BKB on arms of so many columns.
CONTEXTS = "contexts"


@benchmark(arms=100, actions=6, cases=(("d = 2", 5), ("d = 2", 50), (CONTEXTS, 5)), rounds=60, stretch=20)
def long_run(
    arms: int = 10_000,
    actions: int = 100,
    cases: tuple[tuple[str, int], ...] = (("d = 2", 350), ("d = 6", 350), (CONTEXTS, 50)),
    rounds: int = 100_000,
    stretch: int = 10_000,
) -> Found:
    """Run bandits for as long as is said, each case with its cap on the dictionary in a process of its own."""
    found = [
        apart(in_a_process, case, cap, actions if case == CONTEXTS else arms, rounds, stretch) for case, cap in cases
    ]
    return [_ends(found), _courses(found, stretch)], found


def in_a_process(case: str, cap: int, number: int, rounds: int, stretch: int) -> Measurement:
    """Return what stretches of rounds took, of the two calls alone, memory on the way and the error at the end."""
    bandit, environment = _begun(case, cap, number)
    milliseconds, points, changes, regret = (np.zeros(rounds) for _ in range(4))
    memory, held = [resident_bytes()], set[tuple[float, ...]]()
    for t in tqdm(range(rounds), f"long_run, {case}", mininterval=5.0):
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
        if (t + 1) % stretch == 0:
            memory.append(resident_bytes())
    courses = {"ms": milliseconds, "points": points, "changes": changes, "regret": regret}
    found: Measurement = {"case": case, "cap": cap, "seconds": float(milliseconds.sum()) / 1e3, "memory": memory}
    found["ms, median"] = np.median(milliseconds.reshape(-1, stretch), 1).tolist()
    found |= {name: each.reshape(-1, stretch).mean(1).tolist() for name, each in courses.items()}
    return found | posterior_error(bandit, environment, rounds - 1)


def _begun(case: str, cap: int, number: int) -> tuple[Bandit, FiniteArms | ContextualFunction]:
    if case != CONTEXTS:
        environment = gaussian_bumps(number, int(case.removeprefix("d = ")), lengthscale=LENGTHSCALE, seed=0)
        return bkb(environment.arms, 0, resampling="coupled", max_dictionary=cap), environment
    actions = torch.rand(number, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior: dict[str, Any] = {"kernel": kernel(), "regularization": REGULARIZATION}
    make = partial(EKUCB, candidates=actions, context_dim=2, beta=BETA, seed=0)
    return make(max_dictionary=cap, when_full="stop", **prior), ContextualFunction(_smooth, 2, actions, 0.1, 0)


def _smooth(X: Tensor) -> Tensor:
    return torch.sin(4.0 * X[:, 0] + 2.0 * X[:, 2]) * X[:, 1]


def posterior_error(bandit: Bandit, environment: FiniteArms | ContextualFunction, last: int) -> dict[str, float]:
    """Return the largest errors of means and variances at all arms or, in the last context, at all actions."""
    history, Z = bandit.history, bandit.inducing_points
    is_arms = isinstance(environment, FiniteArms)
    asked = environment.arms if is_arms else environment.joint_points(environment.actions, last)
    problem = Problem(torch.cat([asked, Z, history.X]).numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    _, dictionary, played = np.split(np.arange(len(problem.arms)), [len(asked), len(asked) + len(Z)])
    mean, variance = (each[: len(asked)] for each in bkb_posterior(problem, dictionary, played, history.Y.numpy()))
    # A bandit shows a model that is computed afresh, and variances in which a full dictionary learns what it lacks.
    surrogate: Any = bandit._state.surrogate
    posterior, at = surrogate.posterior, surrogate.posterior.at(asked)
    ours = posterior.mean_at(at)[0], posterior.own_variance_at(at)
    if is_arms:
        ours = posterior.arm_mean()[0], posterior.arms.table.variance
    mean_error, variance_error = (float(np.abs(a - b).max()) for a, b in zip(ours, (mean, variance), strict=True))
    return {"mean_error": mean_error, "variance_error": variance_error}


def _ends(found: list[Measurement]) -> Table:
    rows = []
    for run in found:
        points, memory = (
            f"{run['points'][-1]:.0f} (at most {run['cap']})",
            (run["memory"][-1] - run["memory"][1]) / 2**20,
        )
        errors = (f"{run[name]:.1e}" for name in ("mean_error", "variance_error"))
        rows.append([run["case"], points, f"{run['seconds']:.0f}", f"{memory:.1f}", *errors])
    columns = ["case", "dictionary at the end", "seconds in all", "MiB more than after the first stretch"]
    return Table("What there is at the end", [*columns, "error of means", "error of variances"], rows)


def _courses(found: list[Measurement], stretch: int) -> Table:
    rows = []
    for run in found:
        parts = zip(*(run[name] for name in ("points", "changes", "regret", "ms, median", "ms")), strict=True)
        for number, (part, memory) in enumerate(zip(parts, run["memory"][1:], strict=True), 1):
            shown = (f"{value:.{digits}f}" for value, digits in zip(part, (1, 3, 5, 2, 2), strict=True))
            rows.append([run["case"], f"{number * stretch:,}", *shown, f"{memory / 2**20:.1f}"])
    columns = ["case", "rounds", "dictionary", "changes of it a round", "regret a round", "ms a round, median", "mean"]
    return Table(f"Stretches of {stretch:,} rounds", [*columns, "resident memory, MiB"], rows)

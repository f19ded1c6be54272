"""What the dictionary of BKB costs in regret, and how accurate it is, beside exact GP-UCB and the authors' BKB."""

import statistics
from itertools import product
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
from benchmarks.references import Array, AuthorsBKB, ExactGPUCB, Problem, bkb_posterior
from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, mean_and_error, values
from torch_kbandits.dictionaries import Resampling
from torch_kbandits.environments import FiniteArms, gaussian_bumps

RULES: dict[Resampling, str] = {"fresh": "fresh", "coupled": "coupled", "growth": "growth only"}

#: The factor α of BKB's theorem at ε = 1/2.
ALPHA = 3.0


@benchmark(arms=100, dimensions=(1, 2), rounds=15, seeds=(0, 1))
def bkb_regret(
    arms: int = 2_000,
    dimensions: tuple[int, ...] = (2, 6),
    rounds: int = 500,
    seeds: tuple[int, ...] = tuple(range(7100, 7110)),
    oversamplings: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0),
    resampled: tuple[float, ...] = (3.0, 5.0),
) -> Found:
    """Play all on every environment, with the same noise in a round; only some values of q̄ are also ``resampled``."""
    found = list[Measurement]()
    for dimension, seed in tqdm(list(product(dimensions, seeds)), "bkb_regret"):
        environment = gaussian_bumps(arms, dimension, lengthscale=LENGTHSCALE, seed=seed)
        problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
        key = {"dimension": dimension, "seed": seed}
        uniform = rounds * float(environment.best_mean - environment.means.mean())
        found.append(key | {"player": "arms drawn uniformly, expected", "regret": uniform})
        exact = _regret(ExactGPUCB(problem, rounds, seed), environment, rounds)
        found.append(key | {"player": "exact GP-UCB", "regret": exact})
        for oversampling, rule in product(oversamplings, RULES):
            if rule != "fresh" and oversampling not in resampled:
                continue
            name = {"player": f"BKB, {RULES[rule]}, q̄ = {oversampling:g}"}
            found.append(key | name | _played(environment, rule, oversampling, rounds, seed))
            if rule == "fresh":
                authors = AuthorsBKB(problem, oversampling, seed)
                first = bkb(environment.arms, seed, oversampling=oversampling).ask(remember=False)
                regret = _regret(authors, environment, rounds, environment.indices(first))
                name = {"player": f"authors' code, q̄ = {oversampling:g}", "dictionary": len(authors.dictionary)}
                found.append(key | name | {"regret": regret})
    title = f"Regret after {rounds} rounds on {arms:,} arms, mean ± standard error of {len(seeds)} seeds"
    return [_regrets(f"{title}, d = {each}", chosen(found, dimension=each), rounds) for each in dimensions], found


def _played(
    environment: FiniteArms, resampling: Resampling, oversampling: float, rounds: int, seed: int
) -> dict[str, Any]:
    """Return the regret of BKB, the size of its last dictionary, and how many points joined and left it."""
    bandit, changes, held = bkb(environment.arms, seed, oversampling=oversampling, resampling=resampling), 0, set[int]()
    for t in range(rounds):
        x = bandit.ask()
        bandit.tell(x, environment.pull(x, t))
        before, held = held, set(environment.indices(bandit.inducing_points))
        changes += len(before ^ held)
    regret = float(environment.regret(bandit.history.X).sum())
    return {"regret": regret, "dictionary": len(held), "changes": changes}


def _regret(player: Any, environment: FiniteArms, rounds: int, first: list[int] | None = None) -> float:
    """Return the cumulative pseudo-regret of a player in NumPy, whose first arm may be given."""
    played = list(first or [])
    for t in range(rounds):
        if t >= len(played):
            played.append(player.ask())
        player.tell(played[t], float(environment.pull(environment.arms[played[t], None], t)))
    return float(environment.regret(environment.arms[torch.tensor(played)]).sum())


def _regrets(title: str, here: list[Measurement], rounds: int) -> Table:
    def of(player: str) -> list[float]:
        return values(here, "regret", player=player)

    rows, exact = [], of("exact GP-UCB")
    for player in dict.fromkeys(each["player"] for each in here):
        runs, regrets = chosen(here, player=player), of(player)
        ratio = statistics.fmean(regrets) / statistics.fmean(exact)
        paired = [mine / base for mine, base in zip(regrets, exact, strict=True)]
        rule, _, q = player.removeprefix("BKB, ").partition(", ")
        other = f"authors' code, {q}" if rule == "fresh" else f"BKB, fresh, {q}"
        less = [mine - theirs for mine, theirs in zip(regrets, of(other), strict=True)] if player[:3] == "BKB" else []
        sizes = [each["dictionary"] for each in runs if "dictionary" in each]
        changes = [each["changes"] / rounds for each in runs if "changes" in each]
        rows.append(
            [
                player,
                mean_and_error(regrets, 1),
                f"{ratio:.2f}",
                mean_and_error(paired),
                mean_and_error(less, 1) if less else "–",
                f"{statistics.fmean(sizes):.0f}" if sizes else "–",
                mean_and_error(changes) if changes else "–",
            ]
        )
    columns = ["algorithm", "cumulative regret", "ratio of means", "mean of paired ratios"]
    columns += ["paired difference: fresh to the authors' code, others to fresh", "dictionary at the end"]
    return Table(title, [*columns, "changes of it a round"], rows)


@benchmark(arms=100, rounds=15, every=5, seeds=2)
def variance_ratio(
    arms: int = 2_000,
    dimension: int = 2,
    oversamplings: tuple[float, ...] = (2.0, 3.0),
    rounds: int = 500,
    every: int = 10,
    seeds: int = 10,
) -> Found:
    """Play BKB in its three kinds of resampling; variances of BKB over the exact ones, on all arms along runs."""
    found, rows = list[Measurement](), list[list[str]]()
    for oversampling, resampling in tqdm(list(product(oversamplings, RULES)), "variance_ratio"):
        runs = []
        for seed in range(seeds):
            environment = gaussian_bumps(arms, dimension, lengthscale=LENGTHSCALE, seed=seed)
            ratios, sizes = _ratios(environment, resampling, oversampling, rounds, every, seed)
            runs.append((ratios, sizes))
            ends = {"least": ratios.min(1).tolist(), "largest": ratios.max(1).tolist(), "dictionary": sizes}
            found.append({"resampling": resampling, "oversampling": oversampling, "seed": seed, **ends})
        ratios = np.concatenate([each for each, _ in runs])
        quantiles = np.quantile(ratios, [0.0, 0.001, 0.01, 0.5, 0.99, 0.999, 1.0])
        outside = ((ratios < 1.0 / ALPHA) | (ratios > ALPHA)).any(1).mean()
        size = statistics.fmean(size for _, sizes in runs for size in sizes)
        name = f"{RULES[resampling]}, q̄ = {oversampling:g}"
        rows.append([name, *(f"{value:.3f}" for value in quantiles), f"{100.0 * outside:.1f}", f"{size:.0f}"])
    title = f"DTC variance / exact variance on {arms:,} arms, d = {dimension}, in every {every}th of {rounds} rounds"
    columns = ["BKB", "least", "0.1%", "1%", "median", "99%", "99.9%", "largest"]
    columns += [f"rounds with an arm outside [1/{ALPHA:g}, {ALPHA:g}], %", "dictionary, mean"]
    return [Table(f"{title} of {seeds} seeds", columns, rows)], found


def _ratios(
    environment: FiniteArms, resampling: Resampling, oversampling: float, rounds: int, every: int, seed: int
) -> tuple[Array, list[int]]:
    """Return the ratio of all arms in the rounds looked at, (rounds, A), and the sizes of the dictionaries there."""
    bandit = bkb(environment.arms, seed, oversampling=oversampling, resampling=resampling)
    problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    exact = ExactGPUCB(problem, rounds, seed)
    played, ratios, sizes = list[int](), list[Array](), list[int]()
    for t in range(rounds):
        x = bandit.ask()
        y = environment.pull(x, t)
        bandit.tell(x, y)
        played += environment.indices(x)
        exact.tell(played[-1], float(y))
        if (t + 1) % every == 0:
            rows = np.array(environment.indices(bandit.inducing_points))
            variance = bkb_posterior(problem, rows, np.array(played), np.zeros(len(played)))[1]
            ratios.append(variance / exact.variance)
            sizes.append(len(rows))
    return np.stack(ratios), sizes

"""What the dictionary of BKB costs in regret, and how accurate it is, beside exact GP-UCB and the authors' BKB."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.arm_bandits import LENGTHSCALE, RowPlayer, bkb, problem_of
from benchmarks.references import Array, AuthorsBKB, ExactGPUCB
from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, kinds, mean_and_error, values
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
        problem, key = problem_of(environment), {"dimension": dimension, "seed": seed}
        uniform = rounds * float(environment.best_mean - environment.means.mean())
        found.append(key | {"player": "arms drawn uniformly, expected", "regret": uniform})
        exact = _played(ExactGPUCB(problem, rounds, seed), environment, rounds)
        found.append(key | {"player": "exact GP-UCB"} | exact)
        for oversampling, rule in product(oversamplings, RULES):
            if rule != "fresh" and oversampling not in resampled:
                continue
            bandit = bkb(environment.arms, seed, oversampling=oversampling, resampling=rule)
            first, name = environment.indices(bandit.ask(remember=False)), f"q̄ = {oversampling:g}"
            ours = _played(RowPlayer(bandit, environment), environment, rounds)
            found.append(key | {"player": f"BKB, {RULES[rule]}, {name}"} | ours)
            if rule == "fresh":
                theirs = _played(AuthorsBKB(problem, oversampling, seed), environment, rounds, first)
                found.append(key | {"player": f"authors' code, {name}"} | theirs)
    title = f"Regret after {rounds} rounds on {arms:,} arms, mean ± standard error of {len(seeds)} seeds"
    return [_regrets(f"{title}, d = {each}", chosen(found, dimension=each), rounds) for each in dimensions], found


def _played(player: Any, environment: FiniteArms, rounds: int, first: Sequence[int] = ()) -> Measurement:
    """Return the cumulative pseudo-regret of a player of rows, and how its dictionary changes and ends, if it has one.

    Its first arms may be given.
    """
    played, changes, held = list(first), 0, set[int]()
    for t in range(rounds):
        if t >= len(played):
            played.append(player.ask())
        player.tell(played[t], float(environment.pull(environment.arms[played[t], None], t)))
        before, held = held, {*getattr(player, "dictionary", ())}
        changes += len(before ^ held)
    regret = float(environment.regret(environment.arms[played]).sum())
    return {"regret": regret} | ({"dictionary": len(held), "changes": changes} if held else {})


def _regrets(title: str, here: list[Measurement], rounds: int) -> Table:
    regrets = {player: values(here, "regret", player=player) for player in kinds(here, "player")}
    exact, rows = regrets["exact GP-UCB"], []
    for player, mine in regrets.items():
        rule, _, q = player.removeprefix("BKB, ").partition(", ")
        other = regrets.get(f"authors' code, {q}" if rule == "fresh" else f"BKB, fresh, {q}", [])
        less = [own - theirs for own, theirs in zip(mine, other, strict=False)] if player[:3] == "BKB" else []
        sized = [each for each in chosen(here, player=player) if "dictionary" in each]
        changes = [each["changes"] / rounds for each in sized]
        paired = mean_and_error([own / base for own, base in zip(mine, exact, strict=True)])
        ratio = f"{statistics.fmean(mine) / statistics.fmean(exact):.2f}"
        size = f"{statistics.fmean(each['dictionary'] for each in sized):.0f}" if sized else "–"
        last = [mean_and_error(less, 1) if less else "–", size, mean_and_error(changes) if changes else "–"]
        rows.append([player, mean_and_error(mine, 1), ratio, paired, *last])
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
            bandit = bkb(environment.arms, seed, oversampling=oversampling, resampling=resampling)
            player = RowPlayer(bandit, environment)
            looks = variance_ratios(player, environment, rounds, every, seed)
            pairs = [(ratios, len(player.dictionary)) for ratios, _ in looks]
            ratios, sizes = np.stack([each for each, _ in pairs]), [size for _, size in pairs]
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


def variance_ratios(
    player: Any, environment: FiniteArms, rounds: int, every: int, seed: int
) -> Iterator[tuple[Array, list[int]]]:
    """Let a player of rows play; at times yield its variances over the exact ones, and the rows played so far."""
    exact, played = ExactGPUCB(problem_of(environment), rounds, seed), list[int]()
    for t in range(rounds):
        played.append(player.ask())
        reward = float(environment.pull(environment.arms[played[-1], None], t))
        player.tell(played[-1], reward)
        exact.tell(played[-1], reward)
        if (t + 1) % every == 0:
            yield player.variance / exact.variance, played

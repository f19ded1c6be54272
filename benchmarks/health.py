"""Is it well? How many rounds until a bandit that is wrong is flagged, and how often one that is right is."""

import math
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from tqdm import tqdm

from benchmarks.references import Array
from benchmarks.report import Report, Table
from torch_kbandits import Bandit
from torch_kbandits.algorithms import BKB, CBKB, EKUCB, IGPUCB

LENGTHSCALE, REGULARIZATION, BETA = 0.2, 0.05, 2.0

#: Of the exact posterior and of BKB's: among the same arms in every round, and among the arms of a round.
ALGORITHMS = {"exact": (IGPUCB, EKUCB), "BKB": (BKB, CBKB)}


@dataclass(frozen=True)
class Case:
    """What is wrong with a bandit, if anything.

    Attributes:
        name: of it.
        rounds: to play at most.
        within: how many rounds it should take at most, in a share of the runs; None where no flag should come, or none
            is promised. Both were written down before the seeds of the table were run.
        share: of the runs.
        noise: the deviation of the noise, in units of √λ.
        too_long: the bandit's length scale over the true one.
        drifts: whether from round 200 on a share of the function is replaced in each round.
        offered: how many of the arms, drawn anew, may be played in a round; None for all.
    """

    name: str
    rounds: int
    within: int | None = None
    share: float = 0.95
    noise: float = 1.0
    too_long: float = 1.0
    drifts: bool = False
    offered: int | None = None


DRIFT_FROM, REPLACED = 200, 0.02
CASES = (
    Case("well", 500),
    Case("well, 20 of the arms a round", 500, offered=20),
    Case("noise tripled", 200, within=40, noise=3.0),
    Case("kernel 4 times too long, 20 of the arms a round", 300, within=100, share=0.9, too_long=4.0, offered=20),
    Case("kernel 4 times too long", 300, too_long=4.0),
    Case(f"drifts from round {DRIFT_FROM} on", 500, within=60, drifts=True),
)


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is other arms, another function, other noise and another bandit."""

    arms: int = 200
    dimension: int = 2
    runs: int = 100
    first_seed: int = 10_000
    share_of_rounds: float = 1.0


QUICK = Sizes(arms=20, runs=2, share_of_rounds=0.1)


def run(quick: bool = False) -> Report:
    """Play each case with each algorithm until it is flagged; the same problems for both."""
    sizes = QUICK if quick else Sizes()
    measurements, rows = [], []
    for (algorithm, makers), case in tqdm(list(product(ALGORITHMS.items(), CASES)), desc="health", unit="case"):
        rounds = max(1, round(sizes.share_of_rounds * case.rounds))
        seeds = range(sizes.first_seed, sizes.first_seed + sizes.runs)
        taken = [flagged_after(makers[case.offered is not None], case, rounds, sizes, seed) for seed in seeds]
        measurements.append({"algorithm": algorithm, "case": case.name, "rounds until flagged": taken})
        rows.append([algorithm, case.name, *_summary(case, taken)])
    title = (
        f"Rounds from what is wrong to the flag, at α = 0.01, {sizes.runs} runs on {sizes.arms} arms, functions drawn "
        "from the prior"
    )
    columns = ["posterior", "what is wrong", "flagged", "promised", "median", "95 %", "largest"]
    return Report("health", asdict(sizes), [Table(title, columns, rows)], measurements)


def flagged_after(maker: type[Bandit], case: Case, rounds: int, sizes: Sizes, seed: int) -> int | None:
    """Return how many rounds after something went wrong a bandit is flagged; None if it is not in so many."""
    generator = np.random.default_rng(seed)
    arms = generator.random((sizes.arms, sizes.dimension))
    root = _root(arms)
    means, points = root @ generator.normal(size=len(arms)), torch.from_numpy(arms)
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(case.too_long * LENGTHSCALE, dtype=torch.float64)
    words: dict[str, Any] = {"kernel": kernel, "regularization": REGULARIZATION, "beta": BETA, "seed": seed}
    words |= {"candidates": points} if case.offered is None else {"action_dim": sizes.dimension}
    bandit = maker(**words)
    for t in range(rounds):
        if case.drifts and t >= DRIFT_FROM:
            fresh = root @ generator.normal(size=len(arms))
            means = math.sqrt(1.0 - REPLACED) * means + math.sqrt(REPLACED) * fresh
        x = bandit.ask(candidates=_offered(points, case, generator))
        row = int((points == x).all(-1).nonzero()[0])
        noise = case.noise * math.sqrt(REGULARIZATION) * generator.normal()
        bandit.tell(x, means[row] + noise)
        flagged = bandit.health().flagged_round if t % 10 == 9 or t == rounds - 1 else None
        if flagged is not None:
            return flagged + 1 - (DRIFT_FROM if case.drifts else 0)
    return None


def _offered(points: torch.Tensor, case: Case, generator: np.random.Generator) -> torch.Tensor | None:
    """Return the arms of a round; None where they are the same in all."""
    return None if case.offered is None else points[generator.permutation(len(points))[: case.offered]]


def _root(arms: Array) -> Array:
    """Return a root of the prior covariance of the arms, (A, A)."""
    squares = ((arms[:, None] - arms) ** 2).sum(-1)
    values, vectors = np.linalg.eigh(np.exp(-squares / (2.0 * LENGTHSCALE**2)))
    return vectors * np.sqrt(values.clip(0.0))


def _summary(case: Case, taken: list[int | None]) -> list[str]:
    """Return the share that was flagged, what was promised, and quantiles of the rounds that it took."""
    found = sorted(math.inf if each is None or each <= 0 else each for each in taken)
    number = sum(math.isfinite(each) for each in found)
    early = sum(each is not None and each <= 0 for each in taken)
    flagged = f"{number} of {len(taken)}" + (f", {early} before the change" if early else "")
    promised = "at most 1 %" if case.name.startswith("well") else "–"
    if case.within is not None:
        kept = sum(each <= case.within for each in found)
        promised = f"{100.0 * case.share:.0f} % within {case.within}: {100.0 * kept / len(found):.0f} %"
    quantiles = [found[math.ceil(share * len(found)) - 1] for share in (0.5, 0.95, 1.0)]
    return [flagged, promised, *(f"{each:g}" if math.isfinite(each) else "–" for each in quantiles)]

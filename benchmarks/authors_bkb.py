"""BKB and its batched form beside batch-bkb, the code of their authors: the same arms, first arms, noise and constants.

AUTHORS_BKB names a checkout of github.com/luigicarratino/batch-bkb, which needs scikit-learn; without it ours play
alone.

Claimed before the seeds of ``Sizes`` were played, after trials on the seeds 1 to 6:

1. On the RKHS function in six dimensions BKB, with either way of drawing, and BBKB play the very arms of theirs, in at
   least 10 of 12 seeds each.
2. On the two problems in two dimensions the medians of the paired differences of these three lie within 1% of the
   regret of random play, and at least five of the six intervals contain 0.
3. On all problems the median dictionary of these three is within 20% of theirs, and so is BBKB's number of batches.
4. In six dimensions their local rule has more regret in the median than their global one and than our local one: it
   looks at its bound only after a point more, so that no batch has one point.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from tqdm import tqdm

from benchmarks.authors_code import Checkout
from benchmarks.report import Report, Table
from torch_kbandits import algorithms
from torch_kbandits.environments import FiniteArms, gaussian_bumps, rkhs_function
from torch_kbandits.experiments.summary import difference, estimate

#: λ, the multiplier of the standard deviation, q̄, and C of the batches; the same for both sides.
REGULARIZATION, BETA, OVERSAMPLING, THRESHOLD = 0.01, 2.0, 3.0, 1.2
#: Their code starts from rewards of some arms; both sides are told those of as many, drawn by lot.
FIRST = 3

CHECKOUT = Checkout("AUTHORS_BKB", "github.com/luigicarratino/batch-bkb", "bkb_lib.py")


@dataclass(frozen=True)
class Problem:
    """What is played, on arms uniform in [0, 1]^d."""

    name: str
    dimension: int
    lengthscale: float

    def __str__(self) -> str:
        return f"{self.name}, d = {self.dimension}, l = {self.lengthscale:g}"

    def build(self, arms: int, seed: int) -> FiniteArms:
        """Return the environment of a seed."""
        if self.name == "Gaussian bumps":
            return gaussian_bumps(arms, self.dimension, lengthscale=self.lengthscale, seed=seed)
        return rkhs_function(arms, self.dimension, lengthscale=self.lengthscale, seed=seed)


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another function, other first arms and another noise."""

    problems: tuple[Problem, ...] = (
        Problem("Gaussian bumps", 2, 0.5),
        Problem("RKHS function", 2, 0.2),
        Problem("RKHS function", 6, 0.5),
    )
    arms: int = 2_000
    rounds: int = 500
    seeds: tuple[int, ...] = tuple(range(8200, 8212))


QUICK = Sizes((Problem("Gaussian bumps", 1, 0.5), Problem("RKHS function", 2, 0.2)), arms=60, rounds=12, seeds=(0, 1))


@dataclass(frozen=True)
class Played:
    """A run: the rows of the arms of all rounds, and how.

    Attributes:
        rows: of the arms, one a round.
        dictionary: its size at the end.
        choices: how often was chosen, one arm or a batch.
        seconds: of choosing and learning, without those of the environment.
    """

    rows: list[int]
    dictionary: int
    choices: int
    seconds: float


@dataclass(frozen=True)
class Pair:
    """A player of theirs and those of ours that are compared with it: names in the tables, and how they are made."""

    theirs: str
    kind: str
    words: dict[str, Any]
    ours: dict[str, tuple[str, dict[str, Any]]]


PAIRS = (
    Pair("BKB", "BKB", {}, {"BKB": ("bkb", {}), "BKB, coupled draws": ("bkb", {"resampling": "coupled"})}),
    Pair("Batch BKB", "Batch_BKB", {"ratio_threshold": THRESHOLD}, {"BBKB": ("bbkb", {"batch_threshold": THRESHOLD})}),
    Pair(
        "Local Batch BKB",
        "Local_Batch_BKB",
        {"ratio_threshold": THRESHOLD},
        {"BBKB, local rule": ("bbkb", {"batch_threshold": THRESHOLD, "batch_rule": "local"})},
    ),
)


def run(quick: bool = False) -> Report:
    """Play all on every problem; the first arms and the noise of a round are the same for all players of a seed."""
    sizes = QUICK if quick else Sizes()
    missing = CHECKOUT.missing()
    modules = None if missing else CHECKOUT.modules("bkb_lib", "utils")
    measurements: list[dict[str, Any]] = []
    for problem, seed in tqdm(list(product(sizes.problems, sizes.seeds)), desc="authors_bkb", unit="seed"):
        environment = problem.build(sizes.arms, seed)
        for pair in PAIRS:
            for name, whose, played in _play(pair, modules, problem, environment, sizes.rounds, seed):
                measurements.append(
                    {
                        "problem": str(problem),
                        "seed": seed,
                        "player": name,
                        "whose": whose,
                        "beside": pair.theirs,
                        "regret": float(environment.regret(environment.arms[played.rows]).sum()),
                        "random": sizes.rounds * float(environment.best_mean - environment.means.mean()),
                        "distinct": len(set(played.rows)),
                        "ms": 1e3 * played.seconds / sizes.rounds,
                        **asdict(played),
                    }
                )
    tables = [_table(str(problem), measurements, sizes, missing) for problem in sizes.problems]
    return Report("authors_bkb", asdict(sizes), tables, measurements)


def _play(
    pair: Pair, modules: list[ModuleType] | None, problem: Problem, environment: FiniteArms, rounds: int, seed: int
) -> Iterator[tuple[str, str, Played]]:
    first = first_arms(environment, seed)
    if modules:
        player = make_theirs(modules, pair, problem.lengthscale)
        yield pair.theirs, "theirs", play_theirs(player, environment, first, rounds, seed)
    for name, (kind, words) in pair.ours.items():
        yield name, "ours", play_ours(kind, words, problem, environment, first, rounds, seed)


def first_arms(environment: FiniteArms, seed: int) -> list[int]:
    """Return the rows of the arms of the first rounds, drawn by lot without repetition."""
    return np.random.default_rng(seed).choice(len(environment.arms), FIRST, replace=False).tolist()


def make_theirs(modules: list[ModuleType], pair: Pair, lengthscale: float) -> Any:
    """Return a player of theirs. Without noise variance its multiplier of σ/√λ is √λ times its norm bound: ours."""
    from sklearn.gaussian_process.kernels import RBF, PairwiseKernel

    library, utils = modules
    kernel = utils.FastMixinKernel(RBF(lengthscale), PairwiseKernel(gamma=0.5 / lengthscale**2, metric="rbf"))
    return getattr(library, pair.kind)(
        lam=REGULARIZATION, dot=kernel, fnorm=BETA, noise_variance=0.0, qbar=OVERSAMPLING, **pair.words
    )


def play_theirs(player: Any, environment: FiniteArms, first: list[int], rounds: int, seed: int) -> Played:
    """Let a player of the authors play, in the loop of their examples."""
    random, rows, choices = np.random.RandomState(seed), list(first), 0
    rewards = _pull(environment, first, 0)
    start = time.perf_counter()
    player.initialize(environment.arms.numpy(), first, rewards)
    seconds = time.perf_counter() - start
    while len(rows) < rounds:
        start = time.perf_counter()
        chosen = [int(row) for row in player.predict()[0]][: rounds - len(rows)]
        seconds += time.perf_counter() - start
        rewards = _pull(environment, chosen, len(rows))
        start = time.perf_counter()
        player.update(chosen, rewards, random)
        seconds += time.perf_counter() - start
        rows, choices = rows + chosen, choices + 1
    return Played(rows, int(player.dict_size_unique), choices, seconds)


def play_ours(
    kind: str,
    words: dict[str, Any],
    problem: Problem,
    environment: FiniteArms,
    first: list[int],
    rounds: int,
    seed: int,
) -> Played:
    """Let a bandit play from given first arms; a batched one is asked for the batches that its rule allows."""
    kernel = RBFKernel().double().initialize(lengthscale=torch.tensor(problem.lengthscale, dtype=torch.float64))
    bandit = algorithms.build(
        kind,
        candidates=environment.arms,
        kernel=kernel,
        regularization=REGULARIZATION,
        oversampling=OVERSAMPLING,
        beta=BETA,
        seed=seed,
        **words,
    )
    rows, choices, seconds, chosen = [], 0, 0.0, list(first)
    while True:
        rewards = torch.from_numpy(_pull(environment, chosen, len(rows)))
        start = time.perf_counter()
        bandit.tell(environment.arms[chosen], rewards)
        seconds += time.perf_counter() - start
        rows += chosen
        if len(rows) == rounds:
            return Played(rows, len(bandit.inducing_points), choices, seconds)
        start = time.perf_counter()
        asked = bandit.ask(q=None) if kind == "bbkb" else bandit.ask()
        seconds += time.perf_counter() - start
        chosen, choices = environment.indices(asked)[: rounds - len(rows)], choices + 1


def _pull(environment: FiniteArms, rows: list[int], round: int) -> np.ndarray:
    """Return the rewards of arms that are played in a round and those after it."""
    pulls = [float(environment.pull(environment.arms[row, None], round + late)) for late, row in enumerate(rows)]
    return np.array(pulls)


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes, missing: str | None) -> Table:
    here = [each for each in measurements if each["problem"] == problem]
    rows = []
    for beside, name, whose in dict.fromkeys((each["beside"], each["player"], each["whose"]) for each in here):
        runs = [each for each in here if (each["player"], each["whose"]) == (name, whose)]
        theirs = [each for each in here if (each["player"], each["whose"]) == (beside, "theirs")]
        pairs = list(zip(runs, theirs, strict=True)) if whose == "ours" and theirs else []
        rows.append(
            [
                f"{name}, {whose}",
                _estimate(runs, "regret", 1),
                str(difference([own["regret"] - other["regret"] for own, other in pairs])) if pairs else "",
                f"{sum(own['rows'] == other['rows'] for own, other in pairs)} of {len(pairs)}" if pairs else "",
                _estimate(runs, "dictionary", 0),
                _estimate(runs, "distinct", 0),
                _estimate(runs, "choices", 0),
                _estimate(runs, "ms", 2),
            ]
        )
    by_lot = [each for each in here if each["player"] == here[0]["player"]]
    rows.append(["arms drawn uniformly, expected", _estimate(by_lot, "random", 1), *[""] * 6])
    columns = [
        "player",
        "regret",
        "less theirs",
        "their very arms",
        "dictionary",
        "distinct arms",
        "choices",
        "ms a round",
    ]
    title = f"{problem}: regret after {sizes.rounds:,} rounds on {sizes.arms:,} arms"
    return Table(f"{title}; batch-bkb was {missing}" if missing else title, columns, rows)


def _estimate(runs: list[dict[str, Any]], name: str, digits: int) -> str:
    said = estimate([each[name] for each in runs])
    return f"{said.median:.{digits}f} [{said.lower:.{digits}f}, {said.upper:.{digits}f}]"

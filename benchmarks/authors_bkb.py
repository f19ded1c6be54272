"""BKB and its batched form beside batch-bkb, the code of their authors: the same arms, first arms, noise and constants.

AUTHORS_BKB names a checkout of github.com/luigicarratino/batch-bkb, which needs scikit-learn; without it ours play
alone.

Claimed before the seeds were played, after trials on the seeds 1 to 6:

1. On the RKHS function in six dimensions BKB, with either way of drawing, and BBKB play the very arms of theirs, in at
   least 10 of 12 seeds each.
2. On the two problems in two dimensions the medians of the paired differences of these three lie within 1% of the
   regret of random play, and at least five of the six intervals contain 0.
3. On all problems the median dictionary of these three is within 20% of theirs, and so is BBKB's number of batches.
4. In six dimensions their local rule has more regret in the median than their global one and than our local one: it
   looks at its bound only after a point more, so that no batch has one point.
"""

import time
from dataclasses import asdict, dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.authors_code import Checkout
from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, kinds, seconds_of, values
from torch_kbandits import algorithms
from torch_kbandits.environments import FiniteArms, gaussian_bumps, rkhs_function
from torch_kbandits.experiments.summary import difference, estimate

#: λ, the multiplier of the standard deviation, q̄, and C of the batches; the same for both sides.
REGULARIZATION, BETA, OVERSAMPLING, THRESHOLD = 0.01, 2.0, 3.0, 1.2
#: Their code starts from rewards of some arms; both sides are told those of as many, drawn at random.
FIRST = 3

CHECKOUT = Checkout("AUTHORS_BKB", "github.com/luigicarratino/batch-bkb", "bkb_lib.py")


#: On arms uniform in [0, 1]^d: what makes an environment, d and the length scale.
PROBLEMS = {
    "Gaussian bumps, d = 2, l = 0.5": (gaussian_bumps, 2, 0.5),
    "RKHS function, d = 2, l = 0.2": (rkhs_function, 2, 0.2),
    "RKHS function, d = 6, l = 0.5": (rkhs_function, 6, 0.5),
}

#: Their players: what makes one, and by our names those of ours that are compared with it.
THEIRS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[str, dict[str, Any]]]]] = {
    "BKB": ("BKB", {}, {"BKB": ("bkb", {}), "BKB, coupled draws": ("bkb", {"resampling": "coupled"})}),
    "Batch BKB": ("Batch_BKB", {"ratio_threshold": THRESHOLD}, {"BBKB": ("bbkb", {"batch_threshold": THRESHOLD})}),
    "Local Batch BKB": (
        "Local_Batch_BKB",
        {"ratio_threshold": THRESHOLD},
        {"BBKB, local rule": ("bbkb", {"batch_threshold": THRESHOLD, "batch_rule": "local"})},
    ),
}


@dataclass
class Played:
    """A run: rows of arms, one a round; the dictionary at the end; choices of an arm or a batch, and their seconds."""

    rows: list[int]
    dictionary: int = 0
    choices: int = 0
    seconds: float = 0.0


@benchmark(problems=tuple(PROBLEMS)[:2], arms=60, rounds=12, seeds=(0, 1))
def authors_bkb(
    problems: tuple[str, ...] = tuple(PROBLEMS),
    arms: int = 2_000,
    rounds: int = 500,
    seeds: tuple[int, ...] = tuple(range(8200, 8212)),
) -> Found:
    """Play all on every problem; the first arms and the noise of a round are the same for all players of a seed."""
    missing = CHECKOUT.missing()
    modules = None if missing else CHECKOUT.modules("bkb_lib", "utils")
    found = list[Measurement]()
    for problem, seed in tqdm(list(product(problems, seeds)), "authors_bkb"):
        make, dimension, lengthscale = PROBLEMS[problem]
        environment = make(arms, dimension, lengthscale=lengthscale, seed=seed)
        random = rounds * float(environment.best_mean - environment.means.mean())

        def add(name: str, whose: str, beside: str, played: Played) -> None:
            lost = float(environment.regret(environment.arms[played.rows]).sum())  # noqa: B023
            entries = {"player": name, "whose": whose, "beside": beside, "regret": lost, "random": random}  # noqa: B023
            entries |= {"distinct": len(set(played.rows)), "ms": 1e3 * played.seconds / rounds, **asdict(played)}
            found.append({"problem": problem, "seed": seed} | entries)  # noqa: B023

        # Their code starts from rewards of some arms, at random without repetition.
        first = np.random.default_rng(seed).choice(arms, FIRST, replace=False).tolist()
        for theirs, (kind, words, ours) in THEIRS.items():
            if modules:
                player = _theirs(modules, kind, lengthscale, words)
                add(theirs, "theirs", theirs, _play_theirs(player, environment, first, rounds, seed))
            for name, (kind, words) in ours.items():
                prior = {"kernel": kernel(lengthscale), "regularization": REGULARIZATION}
                words = {"oversampling": OVERSAMPLING, "beta": BETA, "seed": seed} | words | prior
                bandit = algorithms.build(kind, candidates=environment.arms, **words)
                add(name, "ours", theirs, _play_ours(bandit, kind == "bbkb", environment, first, rounds))
    said = f"regret after {rounds:,} rounds on {arms:,} arms" + (f"; batch-bkb was {missing}" if missing else "")
    return [_table(f"{problem}: {said}", chosen(found, problem=problem)) for problem in problems], found


def _theirs(modules: list[ModuleType], kind: str, lengthscale: float, words: dict[str, Any]) -> Any:
    """Return a player of theirs. Without noise variance its multiplier of σ/√λ is √λ times its norm bound: ours."""
    from sklearn.gaussian_process.kernels import RBF, PairwiseKernel

    library, utils = modules
    dot = utils.FastMixinKernel(RBF(lengthscale), PairwiseKernel(gamma=0.5 / lengthscale**2, metric="rbf"))
    prior = {"lam": REGULARIZATION, "dot": dot, "fnorm": BETA, "noise_variance": 0.0, "qbar": OVERSAMPLING}
    return getattr(library, kind)(**prior, **words)


def _play_theirs(player: Any, environment: FiniteArms, first: list[int], rounds: int, seed: int) -> Played:
    """Let a player of the authors play, in the loop of their examples."""
    random, run = np.random.RandomState(seed), Played(list(first))
    rewards = _pull(environment, first, 0)
    run.seconds += seconds_of(lambda: player.initialize(environment.arms.numpy(), first, rewards))
    while len(run.rows) < rounds:
        start = time.perf_counter()
        chosen = [int(row) for row in player.predict()[0]][: rounds - len(run.rows)]
        run.seconds += time.perf_counter() - start
        rewards = _pull(environment, chosen, len(run.rows))
        run.seconds += seconds_of(lambda chosen=chosen, rewards=rewards: player.update(chosen, rewards, random))
        run.rows, run.choices = run.rows + chosen, run.choices + 1
    run.dictionary = int(player.dict_size_unique)
    return run


def _play_ours(bandit: Any, in_batches: bool, environment: FiniteArms, first: list[int], rounds: int) -> Played:
    """Let a bandit play from given first arms; a batched one is asked for the batches that its rule allows."""
    run, chosen = Played([]), list(first)
    while True:
        rewards = torch.from_numpy(_pull(environment, chosen, len(run.rows)))
        run.seconds += seconds_of(lambda chosen=chosen, rewards=rewards: bandit.tell(environment.arms[chosen], rewards))
        run.rows += chosen
        if len(run.rows) == rounds:
            run.dictionary = len(bandit.inducing_points)
            return run
        start = time.perf_counter()
        asked = bandit.ask(q=None) if in_batches else bandit.ask()
        run.seconds += time.perf_counter() - start
        chosen, run.choices = environment.indices(asked)[: rounds - len(run.rows)], run.choices + 1


def _pull(environment: FiniteArms, rows: list[int], round: int) -> np.ndarray:
    """Return the rewards of arms that are played in a round and those after it."""
    pulls = [float(environment.pull(environment.arms[row, None], round + late)) for late, row in enumerate(rows)]
    return np.array(pulls)


def _table(title: str, here: list[Measurement]) -> Table:
    rows = []
    for name, whose in [(name, whose) for name in kinds(here, "player") for whose in ("theirs", "ours")]:
        if not (runs := chosen(here, player=name, whose=whose)):
            continue
        theirs = chosen(here, player=runs[0]["beside"], whose="theirs") if whose == "ours" else []
        paired = ["", ""]
        if theirs:
            pairs = list(zip(runs, theirs, strict=True))
            same = sum(own["rows"] == other["rows"] for own, other in pairs)
            less = difference([own["regret"] - other["regret"] for own, other in pairs])
            paired = [str(less), f"{same} of {len(pairs)}"]
        counts = (_estimate(runs, *each) for each in (("dictionary", 0), ("distinct", 0), ("choices", 0), ("ms", 2)))
        rows.append([f"{name}, {whose}", _estimate(runs, "regret", 1), *paired, *counts])
    at_random = chosen(here, player=here[0]["player"], whose=here[0]["whose"])
    rows.append(["arms drawn uniformly, expected", _estimate(at_random, "random", 1), *[""] * 6])
    columns = ["player", "regret", "less theirs", "their very arms", "dictionary", "distinct arms", "choices"]
    return Table(title, [*columns, "ms a round"], rows)


def _estimate(runs: list[Measurement], name: str, digits: int) -> str:
    said = estimate(values(runs, name))
    return f"{said.median:.{digits}f} [{said.lower:.{digits}f}, {said.upper:.{digits}f}]"

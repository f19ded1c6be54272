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
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.arm_bandits import kernel
from benchmarks.authors_code import Checkout
from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, kinds, seconds_of, values
from torch_kbandits import algorithms
from torch_kbandits.environments import FiniteArms, gaussian_bumps, rkhs_function
from torch_kbandits.experiments.summary import difference, summary_of

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

#: How a player is asked for rows of arms, how it is told rewards of them, and the size of its dictionary.
Player = tuple[Callable[[], list[int]], Callable[[list[int], np.ndarray], Any], Callable[[], int]]


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
        # Their code starts from rewards of some arms, at random without repetition.
        first = np.random.default_rng(seed).choice(arms, FIRST, replace=False).tolist()
        players = dict[tuple[str, str, str], Player]()
        for theirs, (kind, words, ours) in THEIRS.items():
            if modules:
                players[theirs, "theirs", theirs] = _theirs(modules, kind, lengthscale, words, environment, seed)
            for name, (kind, words) in ours.items():
                players[name, "ours", theirs] = _ours(kind, lengthscale, words, environment, seed)
        for (name, whose, beside), player in players.items():
            run = _play(player, environment, first, rounds)
            lost = float(environment.regret(environment.arms[run["rows"]]).sum())
            key = {"problem": problem, "seed": seed, "player": name, "whose": whose, "beside": beside}
            found.append(key | {"regret": lost, "random": random, "distinct": len(set(run["rows"]))} | run)
    said = f"regret after {rounds:,} rounds on {arms:,} arms" + (f"; batch-bkb was {missing}" if missing else "")
    return [_table(f"{problem}: {said}", chosen(found, problem=problem)) for problem in problems], found


def _theirs(
    modules: list[ModuleType], kind: str, lengthscale: float, words: dict[str, Any], environment: FiniteArms, seed: int
) -> Player:
    """Return a player of theirs. Without noise variance its multiplier of σ/√λ is √λ times its norm bound: ours."""
    from sklearn.gaussian_process.kernels import RBF, PairwiseKernel

    library, utils = modules
    dot = utils.FastMixinKernel(RBF(lengthscale), PairwiseKernel(gamma=0.5 / lengthscale**2, metric="rbf"))
    prior = {"lam": REGULARIZATION, "dot": dot, "fnorm": BETA, "noise_variance": 0.0, "qbar": OVERSAMPLING}
    player, random, told = getattr(library, kind)(**prior, **words), np.random.RandomState(seed), list[int]()

    def tell(rows: list[int], rewards: np.ndarray) -> None:
        if told:
            player.update(rows, rewards, random)
        else:
            player.initialize(environment.arms.numpy(), rows, rewards)
        told.extend(rows)

    return lambda: [int(row) for row in player.predict()[0]], tell, lambda: int(player.dict_size_unique)


def _ours(kind: str, lengthscale: float, words: dict[str, Any], environment: FiniteArms, seed: int) -> Player:
    """Return a bandit; a batched one is asked for the batches that its rule allows."""
    words = {"oversampling": OVERSAMPLING, "beta": BETA, "seed": seed, "kernel": kernel(lengthscale)} | words
    bandit = algorithms.build(kind, candidates=environment.arms, regularization=REGULARIZATION, **words)
    q = None if kind == "bbkb" else 1
    return (
        lambda: environment.indices(bandit.ask(q=q)),
        lambda rows, rewards: bandit.tell(environment.arms[rows], rewards),
        lambda: len(bandit.inducing_points),
    )


def _play(player: Player, environment: FiniteArms, first: list[int], rounds: int) -> Measurement:
    """Let a player play from given first arms; return its rows, one a round, and how often and how long it chose."""
    (ask, tell, size), rows, chosen, choices, seconds = player, list[int](), list(first), 0, 0.0
    while True:
        pulled = enumerate(chosen, start=len(rows))
        rewards = np.array([float(environment.pull(environment.arms[row, None], round)) for round, row in pulled])
        seconds += seconds_of(lambda chosen=chosen, rewards=rewards: tell(chosen, rewards))
        rows += chosen
        if len(rows) == rounds:
            return {"rows": rows, "dictionary": size(), "choices": choices, "ms": 1e3 * seconds / rounds}
        start = time.perf_counter()
        asked = ask()
        seconds += time.perf_counter() - start
        chosen, choices = asked[: rounds - len(rows)], choices + 1


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
    said = summary_of(values(runs, name))
    return f"{said.median:.{digits}f} [{said.lower:.{digits}f}, {said.upper:.{digits}f}]"

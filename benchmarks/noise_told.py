"""Regret where the noise differs from play to play, or from arm to arm, and is told, or not."""

import math
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, crossed, mean_and_error, values
from torch_kbandits import LearnedPrior
from torch_kbandits.algorithms import BKB, GPTS, GPUCB, RandomSearch
from torch_kbandits.numerics.gram import gram

#: Arms in the unit square, the length scale, and standard deviations of the noise from the least to the most.
ARMS, LENGTHSCALE, LEAST, MOST = 200, 0.2, 0.1, 1.0
#: The mean variance of a deviation whose logarithm is uniform, which who is told nothing takes for λ.
LEVEL = (MOST**2 - LEAST**2) / (2.0 * math.log(MOST / LEAST))
_REGRETS = "regret a round", "in the end"
_FITTED = "GP-UCB, prior fitted"
PLAYERS = {
    "GP-UCB": partial(GPUCB, beta=2.0),
    "BKB": partial(BKB, beta=2.0),
    "GP-TS": partial(GPTS, beta=1.0),
    _FITTED: partial(GPUCB, beta=2.0, prior=LearnedPrior()),
    "random": RandomSearch,
}


def problem(seed: int, rounds: int, *, by_arm: bool) -> tuple[Tensor, MaternKernel, np.ndarray, np.ndarray, np.ndarray]:
    """Return arms (A, 2), their kernel, means (A,), deviations of plays of each in each round (T, A), their noise."""
    random = np.random.default_rng([41, seed])
    arms, kernel = torch.from_numpy(random.random((ARMS, 2))), MaternKernel(nu=2.5).double()
    kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    with torch.no_grad():
        spectrum, vectors = np.linalg.eigh(gram(kernel, arms).numpy())
    means = vectors @ (np.sqrt(spectrum.clip(0.0)) * random.standard_normal(ARMS))
    share = random.random((1 if by_arm else rounds, ARMS if by_arm else 1))
    deviations = np.broadcast_to(LEAST * (MOST / LEAST) ** share, (rounds, ARMS))
    return arms, kernel, means, deviations, random.standard_normal((rounds, ARMS))


def _played(player: str, seed: int, by_arm: bool, is_told: bool, rounds: int) -> Measurement:
    """Return the mean regret of the rounds of a player, and that of what it recommends in the end."""
    arms, kernel, means, deviations, noise = problem(seed, rounds, by_arm=by_arm)
    given: dict[str, Any] = {} if player == _FITTED else {"kernel": kernel, "regularization": LEVEL}
    bandit, rows = PLAYERS[player](candidates=arms, seed=seed, **given), list[int]()
    for t in range(rounds):
        asked = bandit.ask(details=True)
        row = int(cast(Tensor, asked.rows)[0])
        sem = deviations[t, row] if is_told else None
        bandit.tell(ids=asked.ids, y=means[row] + deviations[t, row] * noise[t, row], sem=sem)
        rows.append(row)
    best = int((arms == bandit.recommend()).all(-1).nonzero()[0])
    regrets = means.max() - means[rows].mean(), means.max() - means[best]
    return dict(zip(_REGRETS, map(float, regrets), strict=True))


@benchmark(seeds=2, rounds=4)
def noise_told(parts: Parts, seeds: int = 40, first: int = 200, rounds: int = 100) -> Found:
    """Play with each noise told, and not, on the same problems; seeds below 200 served for tuning."""
    keys = crossed(seed=range(first, first + seeds), by_arm=(False, True), player=PLAYERS, is_told=(False, True))
    keys = [each for each in keys if each["player"] != "random" or not each["is_told"]]
    found, tables = parts.all("noise_told", keys, partial(_played, rounds=rounds)), list[Table]()
    for by_arm, player_or_arm in ((False, "play to play"), (True, "arm to arm")):
        rows = []
        for player in PLAYERS:
            cells = [player]
            for regret in _REGRETS:
                unsaid, said = (values(found, regret, player=player, by_arm=by_arm, is_told=x) for x in (False, True))
                saved = mean_and_error([a - b for a, b in zip(unsaid, said, strict=True)], 3) if said else ""
                cells += [*(f"{np.mean(each):.3f}" if each else "" for each in (unsaid, said)), saved]
            rows.append(cells)
        title = f"The noise of each reward told, it differs from {player_or_arm}"
        tables.append(Table(title, ["player", *map(", ".join, product(_REGRETS, ("not told", "told", "saved")))], rows))
    return tables, found

"""The bandits whose rounds are timed, and single rounds of them on many arms."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

from benchmarks.references import Array, Problem, Rows
from torch_kbandits import Bandit
from torch_kbandits.algorithms import BBKB, BKB
from torch_kbandits.candidates import Arms
from torch_kbandits.environments.arms import FiniteArms

REGULARIZATION = 0.01
BETA = 2.0
OVERSAMPLING = 3.0

#: What may happen to a dictionary in a round.
STAYS, GAINS, LOSES = CHANGES = ("stays", "gains points", "loses points")


@dataclass(frozen=True)
class Case:
    """A size of dictionary to time rounds at; the longer the length scale, the smaller the dictionary that suffices.

    Attributes:
        lengthscale: of the kernel.
        dictionary: rounds count whose dictionary has nearly this size; growing bandits stop growing there.
        rounds: to play in all.
    """

    lengthscale: float
    dictionary: int
    rounds: int

    def counts(self, size: int) -> bool:
        """Say whether a dictionary has nearly the size of the case."""
        return 0.9 * self.dictionary <= size <= 1.15 * self.dictionary


@dataclass(frozen=True)
class Round:
    """One timed round: ``tell``, then the next ``ask``.

    Attributes:
        told: number of rewards told by then.
        ms: milliseconds.
        dictionary: its rows among the arms after the round, (m,).
        added: points that joined it in this round.
        dropped: points that left it.
        visited: the share of the arms whose score ``ask`` computed.
        choice: row of the arm that ``ask`` returned.
    """

    told: int
    ms: float
    dictionary: Rows
    added: int
    dropped: int
    visited: float
    choice: int

    @property
    def change(self) -> str:
        """What happened to the dictionary, in words."""
        if self.dropped:
            return LOSES
        return GAINS if self.added else STAYS


@dataclass(frozen=True)
class Run:
    """All rounds of a run, with the rows (n,) of the arms played and the rewards (n,), in order."""

    rounds: list[Round]
    played: Rows
    rewards: Array


def kernel(lengthscale: float, dtype: torch.dtype = torch.float64) -> RBFKernel:
    """Return the Gaussian kernel with a fixed length scale."""
    scale = torch.tensor(lengthscale, dtype=dtype)  # GPyTorch would round a Python float to single precision
    return RBFKernel().to(dtype).initialize(lengthscale=scale).requires_grad_(False)


def problem(environment: FiniteArms, case: Case) -> Problem:
    """Return what the NumPy references need."""
    return Problem(environment.arms.numpy(), case.lengthscale, REGULARIZATION, BETA)


def _bkb(resampling: Literal["fresh", "coupled", "growth"], capped: bool, arms: Arms, case: Case, seed: int) -> Bandit:
    return BKB(
        candidates=arms,
        kernel=kernel(case.lengthscale),
        regularization=REGULARIZATION,
        oversampling=OVERSAMPLING,
        resampling=resampling,
        max_dictionary=case.dictionary if capped else None,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


def _bbkb(arms: Arms, case: Case, seed: int) -> Bandit:
    return BBKB(
        candidates=arms,
        kernel=kernel(case.lengthscale),
        regularization=REGULARIZATION,
        oversampling=OVERSAMPLING,
        max_dictionary=case.dictionary,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


#: What makes each bandit from its arms, its case and a seed.
BANDITS: dict[str, Callable[[Arms, Case, int], Bandit]] = {
    "BKB, growth only": partial(_bkb, "growth", True),
    "BKB, coupled": partial(_bkb, "coupled", False),
    "BKB, fresh": partial(_bkb, "fresh", False),
    "BBKB": _bbkb,
}


def play(bandit: Bandit, environment: FiniteArms, case: Case) -> Run:
    """Play a case with a bandit that was told nothing yet; return its timed rounds.

    The dictionary is looked at between the rounds, outside of the timed part.
    """
    rounds: list[Round] = []
    held: set[int] = set()
    x = bandit.ask()
    for t in range(case.rounds):
        y = environment.pull(x, t)
        start = time.perf_counter()
        bandit.tell(x, y)
        x = bandit.ask()
        seconds = time.perf_counter() - start
        rows = environment.indices(bandit.inducing_points)
        now = set(rows)
        rounds.append(
            Round(
                told=t + 1,
                ms=1e3 * seconds,
                dictionary=np.array(rows, dtype=np.intp),
                added=len(now - held),
                dropped=len(held - now),
                visited=bandit.visited_share,
                choice=environment.indices(x)[0],
            )
        )
        held = now
    history = bandit.history
    return Run(rounds, np.array(environment.indices(history.X), dtype=np.intp), history.Y.numpy())

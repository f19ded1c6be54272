"""The ways to choose settings that ``train_networks.py`` compares."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from train_networks_jobs import JOB, SETTING, Job, jobs

from torch_kbandits import Bandit, ColumnSpec, ContextualActions, LearnedPrior, Prior, algorithms, fit_prior
from torch_kbandits.memory import Memory, SlidingWindow
from torch_kbandits.priors import default_kernel

#: Rewards that count: the latest.
WINDOW = 500

#: The most points of a dictionary, which says what a choice among tens of thousands of settings costs.
MAX_DICTIONARY = 100

#: Multiplier of the standard deviation. With 2, in 400 jobs of another stream on one in sixteen settings and with a
#: dictionary of 100, a job lost 0.55 in the mean where it lost 0.39.
BETA = 1.0

#: Trainings of random settings, of another stream of jobs, from which the prior of ``known`` is.
LOGGED, LOG_SEED = 400, 1_000


class Policy(Protocol):
    """Chooses a setting for each job; learns what came of it when its training has ended, in whatever order."""

    def choose(self, job: Job) -> int:
        """Return the row of a setting."""
        ...

    def learn(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Learn the rewards of jobs."""
        ...


class Contextual:
    """CBKB on the joint points of job and setting. A bandit numbers what it asks, from 0, as jobs are numbered."""

    def __init__(self, bandit: Bandit, path: Path) -> None:
        self.bandit, self._settings = bandit, torch.from_numpy(np.load(path))

    def choose(self, job: Job) -> int:
        """Ask in the context of the job; a row goes in as it is."""
        setting = self.bandit.ask(context=job.row)
        return int((self._settings == setting).all(-1).nonzero()[0])

    def learn(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Tell by id: neither the job nor the setting need be kept."""
        self.bandit.tell(ids=numbers, y=rewards)


class AnySetting:
    """A setting by lot."""

    def __init__(self, seed: int, number: int) -> None:
        self._seed, self._number = seed, number

    def choose(self, job: Job) -> int:
        """Draw, for each job apart."""
        return int(np.random.default_rng([self._seed, job.number]).integers(self._number))

    def learn(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Do nothing."""


def bandit_on(path: Path, seed: int, prior: Prior | LearnedPrior, memory: Memory | None) -> Bandit:
    """Return a bandit on the settings of a file."""
    return algorithms.CBKB(
        candidates=ContextualActions(np.load(path, mmap_mode="r"), context_columns=JOB, action_columns=SETTING),
        prior=prior,
        memory=memory,
        resampling="growth",
        max_dictionary=MAX_DICTIONARY,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


def learning(path: Path, seed: int) -> Bandit:
    """Return one that is told nothing beforehand."""
    return bandit_on(path, seed, LearnedPrior(), SlidingWindow(WINDOW, "observations"))


def remembering(path: Path, seed: int) -> Bandit:
    """Return the same without a memory."""
    return bandit_on(path, seed, LearnedPrior(), None)


def known(path: Path, seed: int) -> Bandit:
    """Return one that knows kernel, noise and mean from the start: from trainings of another year."""
    earlier, rng = jobs(LOGGED, LOG_SEED), np.random.default_rng(LOG_SEED)
    settings = torch.from_numpy(np.load(path))
    rows = torch.from_numpy(rng.integers(len(settings), size=LOGGED))
    X = torch.cat([JOB.encode([job.row for job in earlier]), settings[rows]], dim=-1)
    rewards = [job.reward(row) for job, row in zip(earlier, rows.tolist(), strict=True)]
    joint = ColumnSpec([*JOB.columns, *SETTING.columns])
    prior = fit_prior(X, rewards, kernel=default_kernel(joint.width, joint.groups))
    return bandit_on(path, seed, prior, SlidingWindow(WINDOW, "observations"))


BANDITS: dict[str, Callable[[Path, int], Bandit]] = {
    "CBKB, prior learned, last 500": learning,
    "CBKB, prior learned, all": remembering,
    "CBKB, prior known, last 500": known,
}

RANDOM = "random settings"


def described() -> dict[str, Any]:
    """Return what defines the policies, for the record."""
    return {"window": WINDOW, "max_dictionary": MAX_DICTIONARY, "beta": BETA, "logged": LOGGED}

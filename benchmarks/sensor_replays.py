"""Whether bandits that know a mean profile of the past beat a player who only takes the best mean of the past.

On stretches of real readings, before any of those that judge were played, it was fixed what is to be shown: GP-UCB
without a memory, and with the memory that did best on stretches before these, both with the profile as ``mean=``, have
on each replay a smaller mean regret than the arm with the best mean of the training stretch. To be told as well: what
they have against the arm with the best mean for the hour, where there is one.
"""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from benchmarks.sensor_stretches import REPLAYS, Stretch, stretches
from torch_kbandits import Bandit, LearnedPrior, Prior, algorithms
from torch_kbandits.candidates import ContextualActions, Timed
from torch_kbandits.kernels import ForgettingKernel, PrecomputedKernel, SpaceTimeKernel
from torch_kbandits.memory import (
    BackToPrior,
    Discount,
    Linear,
    Memory,
    Restart,
    SlidingWindow,
    UncertaintyInjection,
)
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.learned import Told

#: Multiplier of the deviation for all.
_BETA = 2.0

#: Hours of a day that are alike, as a share of the circle over which a correlation falls to e^(−1/2).
_HOURS_ALIKE = 0.5

_HISTORY, _HOURLY = "best historical mean, one sensor", "best historical mean of the hour"

Mean = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sizes:
    """What is run: how many stretches of each replay, of at most so many rounds; those of before, to choose on.

    Those who choose a memory or fit a prior as they play are slow, and may be left out.
    """

    stretches: tuple[tuple[str, int], ...] = tuple(REPLAYS.items())
    rounds: int = 366
    choosing: bool = False
    slow: bool = True


QUICK = Sizes(stretches=(("nitrogen oxides, days", 1),), rounds=8)


class Known:
    """What a stretch to learn from says before the one after it is played.

    The profile, which is the mean, is that of all of it. How far a profile may be from the next one, and how fast that
    changes, only other readings can tell: kernel, λ and the number of a memory are fitted to one reading a time of the
    second half, taken at random, under the profile of the first.
    """

    def __init__(self, stretch: Stretch) -> None:
        train, phases = stretch.train, stretch.train_phases
        self.seed, self.half, self.phases = stretch.seed, len(train) // 2, int(phases.max()) + 1
        self.profile = _profile(train, phases, self.phases)
        self.first = _profile(train[: self.half], phases[: self.half], self.phases)
        self.arms = torch.arange(train.shape[1], dtype=torch.float64).unsqueeze(-1)
        played = torch.randint(train.shape[1], (len(train),), generator=generator_for(stretch.seed, 0, "log"))
        X = torch.stack([phases, played], dim=-1).double()
        self.X, self.Y = X[self.half :], train[torch.arange(len(train)), played][self.half :]
        rest = train - self.profile[phases]
        self.covariance = rest.mT.cov() / rest.var(0).mean()

    def together(self) -> Kernel:
        """Return the kernel of what is common to sensors, as their covariance has it, times a factor."""
        return ScaleKernel(PrecomputedKernel(self.covariance, active_dims=(1,))).double()

    def apart(self) -> Kernel:
        """Return the kernel of what each sensor has for itself, times a factor."""
        eye = torch.eye(len(self.arms), dtype=torch.float64)
        return ScaleKernel(PrecomputedKernel(eye, active_dims=(1,))).double()

    def kernel(self) -> Kernel:
        """Return the kernel on (phase, sensor)."""
        return self.together() + self.apart()

    def of_two_rates(self) -> Kernel:
        """Return a kernel on (time, phase, sensor) under which sensors drift apart slowly and together fast."""
        slow, fast = ForgettingKernel(0.001), ForgettingKernel(0.1)
        return SpaceTimeKernel(self.apart(), slow) + SpaceTimeKernel(self.together(), fast)

    def with_hours(self) -> Kernel:
        """Return a kernel on (phase, sensor) that knows that hours differ for all sensors alike."""
        turns = torch.arange(self.phases, dtype=torch.float64) / self.phases
        angles = torch.pi * (turns - turns.unsqueeze(-1))
        alike = (-2.0 * (angles.sin() / _HOURS_ALIKE).square()).exp()
        return self.kernel() + ScaleKernel(PrecomputedKernel(alike, active_dims=(0,))).double()

    def by_profile(self, first: bool = False) -> Mean:
        """Return the profile, or that of the first half, as a mean."""
        table = self.first if first else self.profile
        return lambda points: table[points[..., 0].long(), points[..., 1].long()]

    def by_level(self, first: bool = False) -> Mean:
        """Return the mean of all sensors at the phase as a mean."""
        table = (self.first if first else self.profile).mean(1)
        return lambda points: table[points[..., 0].long()]

    @staticmethod
    def by_zero(first: bool = False) -> Mean:
        """Return zero as a mean."""
        return lambda points: torch.zeros_like(points[..., 0])

    def fitted(self, mean: Callable[[bool], Mean], memory: Memory | None, timed: bool) -> tuple[Prior, Memory | None]:
        """Return kernel and λ, and the memory with its number, that are fitted to the second half."""
        kernel = self.of_two_rates() if timed else self.kernel()
        times = torch.arange(self.half, self.half + len(self.Y), dtype=torch.float64)
        learning = LearnedPrior(kernel, mean=mean(True), learn_memory=memory is not None)
        knows_time = timed or (memory is not None and memory.needs_time_column)
        told = Told(
            X=torch.cat([times.unsqueeze(-1), self.X], dim=-1) if knows_time else self.X,
            Y=self.Y,
            expected=mean(True)(self.X),
            known=self.X,
            first=self.Y[:10],
            memory=memory,
            times=None if memory is None else times,
            now=float(times[-1]),
            groups=None,
        )
        fit = learning.fitted(told, self.seed)
        return replace(fit.prior, mean=mean(False)), fit.memory


def _profile(readings: Tensor, phases: Tensor, number: int) -> Tensor:
    """Return the mean readings of each phase, (phases, A)."""
    return torch.stack([readings[phases == phase].mean(0) for phase in range(number)])


# ---------------------------------------------------------------- players


def _bandit(
    known: Known, prior: Prior | LearnedPrior, memory: Memory | None = None, name: str = "k-ucb", timed: bool = False
) -> Bandit:
    candidates = ContextualActions(known.arms, context_dim=1)
    words = {} if memory is None else {"memory": memory}
    return algorithms.build(
        name, candidates=Timed(candidates) if timed else candidates, prior=prior, beta=_BETA, seed=known.seed, **words
    )


def _given(
    known: Known, mean: str = "profile", memory: Memory | None = None, timed: bool = False, name: str = "k-ucb"
) -> Bandit:
    """Return a bandit with all that the training stretch says."""
    means = {"zero": known.by_zero, "level": known.by_level, "profile": known.by_profile}
    prior, memory = known.fitted(means[mean], memory, timed)
    return _bandit(known, prior, memory, name, timed)


def _learned(known: Known, memory: Memory | None = None, profile: bool = False, told: bool = False) -> Bandit:
    """Return a bandit that fits its prior as it plays, with the profile as its mean or one that it learns.

    One that is told the second half of the training stretch has the profile of the first.
    """
    mean, kernel = (known.by_profile(told), known.kernel()) if profile else (None, known.with_hours())
    bandit = _bandit(known, LearnedPrior(kernel, mean=mean, learn_memory=memory is not None), memory)
    if told:
        bandit.tell(known.X[:, 1:], known.Y, context=known.X[:, :1])
    return bandit


_MEMORIES: dict[str, Memory] = {
    "window": SlidingWindow(50.0),
    "restarts": Restart(50.0),
    "discount": Discount(0.95),
    "growing noise": UncertaintyInjection(Linear(0.01)),
    "prior on time": BackToPrior(0.05),
}

#: Those with a memory that the training stretch gives a number, of which one is chosen.
_CHOSEN_FROM: dict[str, Callable[[Known], Bandit]] = {
    "no memory, mean=profile": _given,
    **{f"{name}, mean=profile": partial(_given, memory=memory) for name, memory in _MEMORIES.items()},
    "kernel of two rates, mean=profile": partial(_given, timed=True),
}

#: What did best of them on the stretches before, ``measured(Sizes(choosing=True))``, beside no memory.
_CHOSEN = {
    "nitrogen oxides, days": "prior on time, mean=profile",
    "pedestrians, hours": "discount, mean=profile",
    "pedestrians, days": "discount, mean=profile",
}

_FAST: dict[str, Callable[[Known], Bandit]] = {
    "no memory, mean=0": partial(_given, mean="zero"),
    "no memory, mean=level": partial(_given, mean="level"),
    **_CHOSEN_FROM,
    "ET, mean=profile": partial(_given, name="et-gp-ucb"),
    "prior on time, mean=level": partial(_given, mean="level", memory=_MEMORIES["prior on time"]),
}

_BANDITS: dict[str, Callable[[Known], Bandit]] = {
    **_FAST,
    "DMS-TV, mean=profile": partial(_given, name="dms-tv-gp-ucb"),
    "no memory, LearnedPrior": _learned,
    "no memory, LearnedPrior, told half": partial(_learned, told=True),
    "no memory, LearnedPrior(mean=profile)": partial(_learned, profile=True),
    "no memory, LearnedPrior(mean=profile), told half": partial(_learned, profile=True, told=True),
    "prior on time, LearnedPrior": partial(_learned, memory=_MEMORIES["prior on time"]),
    "prior on time, LearnedPrior(mean=profile)": partial(_learned, memory=_MEMORIES["prior on time"], profile=True),
}


def play(bandit: Bandit, stretch: Stretch) -> Tensor:
    """Return the sensors (T,) that a bandit chooses, to each of which it is told the reading."""
    chosen = []
    for phase, readings in zip(stretch.test_phases.double(), stretch.test, strict=True):
        x = bandit.ask(context=phase.reshape(1))
        chosen.append(int(x))
        bandit.tell(x, readings[chosen[-1]], context=phase.reshape(1))
    return torch.tensor(chosen)


def fixed_players(stretch: Stretch, known: Known) -> dict[str, Tensor]:
    """Return the sensors (T,) that players without a model choose."""
    test, phases = stretch.test, stretch.test_phases
    last, following = known.profile[phases[0]].argmax().reshape(1), []
    change = torch.zeros_like(test[0])
    for phase, readings in zip(phases, test, strict=True):
        following.append(arm := int((known.profile[phase] + change).argmax()))
        change[arm] = readings[arm] - known.profile[phase, arm]
    return {
        "one sensor, best in hindsight": test.mean(0).argmax().expand(len(test)),
        _HISTORY: stretch.train.mean(0).argmax().expand(len(test)),
        _HOURLY: known.profile.argmax(1)[phases],
        "profile and the last reading of each sensor": torch.tensor(following),
        "best of the round before, all seen": torch.cat([last, test[:-1].argmax(1)]),
    }


def relative_regret(stretch: Stretch, chosen: Tensor) -> float:
    """Return the regret over that of random play, against the best sensor of each round."""
    best = stretch.test.amax(1)
    mine = stretch.test[torch.arange(len(chosen)), chosen]
    return float((best - mine).mean() / (best - stretch.test.mean(1)).mean())


# ---------------------------------------------------------------- run


def run(quick: bool = False) -> Report:
    """Play every player on every stretch."""
    return measured(QUICK if quick else Sizes())


def measured(sizes: Sizes) -> Report:
    """Play; only those among whom a memory is chosen, on stretches before, if this is to choose one."""
    measurements = []
    bandits = _CHOSEN_FROM if sizes.choosing else _BANDITS if sizes.slow else _FAST
    for name, number in sizes.stretches:
        for stretch in tqdm(stretches(name, number, choosing=sizes.choosing), desc=name, total=number):
            known = Known(stretch)
            short = stretch._replace(test=stretch.test[: sizes.rounds], test_phases=stretch.test_phases[: sizes.rounds])
            players = fixed_players(short, known)
            players |= {player: play(make(known), short) for player, make in bandits.items()}
            for player, chosen in players.items():
                row = {"replay": name, "seed": stretch.seed, "player": player}
                measurements.append({**row, "regret": relative_regret(short, chosen)})
    return Report(
        "sensor_replays", asdict(sizes), [_table(measurements, name) for name, _ in sizes.stretches], measurements
    )


def _table(measurements: list[dict[str, Any]], replay: str) -> Table:
    runs = [run for run in measurements if run["replay"] == replay]

    def of(player: str) -> list[float]:
        return [run["regret"] for run in runs if run["player"] == player]

    against = [_HISTORY, _HOURLY] if of(_HISTORY) != of(_HOURLY) else [_HISTORY]
    rows = []
    for player in dict.fromkeys(run["player"] for run in runs):
        claimed = player in ("no memory, mean=profile", _CHOSEN[replay])
        cells = []
        for known in against:
            more = [mine - theirs for mine, theirs in zip(of(player), of(known), strict=True)]
            cells.append(mean_and_error(more, 3) + (" ✓" if statistics.fmean(more) < 0.0 else " ✗") * claimed)
        rows.append([player, mean_and_error(of(player), 3), *cells])
    title = (
        f"{replay.capitalize()}: regret against the best sensor of each round over that of random play, mean ± "
        f"standard error of {len(of(_HISTORY))} stretches"
    )
    return Table(title, ["player", "regret", *(f"more than that of the {known}" for known in against)], rows)

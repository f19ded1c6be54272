"""Whether one-step predictions hold: standardised residuals, and an e-process of how surprising they are together."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.loops import residual_loops
from torch_kbandits.numerics.shallow import changed

#: A flag is raised on predictions that hold with at most this probability, ever.
FALSE_ALARM = 0.01
#: So many residuals, the latest, are kept.
RECENT = 100
#: Of rewards told at once so many, the first, are judged.
MOST_JUDGED = 256
#: So many rounds are judged together.
_TOGETHER = 64
#: Half of the quantile range that holds 95 % of a standard normal.
BAND = 1.959963984540054
#: Residuals beyond this say no more. A λ that single precision rounds to zero counts as the least number above it.
_LARGEST, _TINY = 1e6, sys.float_info.min


#: Residuals of a round, its number, and whether its posterior learns it: then they are judged with those that wait.
Group = tuple[Sequence[float], int, bool]

#: What residuals may be in place of N(0, 1), by mean and deviation: bands that are too narrow, means that are off.
MISFITS = (
    *((0.0, deviation) for deviation in (1.5, 2.0, 3.0, 5.0)),
    *((sign * size, 1.0) for size in (0.5, 1.0, 2.0) for sign in (-1.0, 1.0)),
)
#: Bands that are too wide.
SLACKS = ((0.0, 0.5), (0.0, 0.25))


@dataclass(frozen=True, eq=False)
class Surprise:
    """How surprising residuals are together, as a martingale: a bet against N(0, 1) that starts with 1.

        R_t = L_t (R_{t−1} + w_t),  M_t = Σ_{s>t} w_s + mean over the alternatives of R_t,  Σ_s w_s = 1

    L_t is the likelihood ratio of the t-th residual under an alternative, so R_t is what stakes w_s have made that were
    put on it at the times s. If each residual is N(0, 1) given what was told before, M_t is a non-negative martingale
    of mean 1, so M_t >= 1/α ever with probability at most α, whatever is played. Of residuals that are judged together
    (told at once, or learned at once by a batch rule) L_t is the mean, whose mean is 1 however they depend on each
    other. Half is staked at the start, w_1 = 1/2, and for what changes w_t = ½ (1/(1 + ln(t−1)) − 1/(1 + ln t)), about
    1/(2 t ln² t), so that a late change costs little more than an early one.

    Source: Ville's inequality (1939) for the bound; Shiryaev (1963) and Roberts (1966) for R_t, where all w_s are 1, so
    that the mean time to a false alarm is bounded instead; Shin, Ramdas and Rinaldo, 2023, for the "e-detector". Page's
    CUSUM (1954) has the largest term of the sum in its place, and the Page–Hinkley test is that for a shift of the
    mean. Differs: stakes that sum to 1, several alternatives.

    Attributes:
        alternatives: shift and deviation of what is bet on, with equal stakes, (a, 2).
        number: t, how many factors there were.
        logs: ln R_t of each alternative, in nats, (a,).
        starts: for each the round since which most of R_t was made, (a,).
        num_held: how many residuals wait for a batch to be complete.
        held: ln of the sum of their likelihood ratios under each alternative, (a,).
        log_evidence: ln M_t, in nats: 0 before any residual; ever above ln(1/α) with probability at most α.
    """

    alternatives: np.ndarray
    number: int
    logs: np.ndarray
    starts: np.ndarray
    num_held: int
    held: np.ndarray
    log_evidence: float = 0.0

    @classmethod
    def against(cls, alternatives: Sequence[tuple[float, float]]) -> Self:
        """Return a bet on alternatives before any residual."""
        nothing, none = np.full(len(alternatives), -math.inf), np.zeros(len(alternatives), dtype=np.int64)
        return cls(np.array(alternatives, dtype=np.float64), 0, nothing, none, 0, nothing)

    def after(self, groups: Sequence[Group]) -> tuple[Self, int | None]:
        """Return the same with more residuals, and the round of the first alarm, None for none. Cost: O(1) for each."""
        values = np.array([z for residuals, *_ in groups for z in residuals], dtype=np.float64)
        sizes = np.array([(len(residuals), *rest) for residuals, *rest in groups], dtype=np.int64)
        known = self.number, self.logs, self.starts, self.num_held, self.held
        made = residual_loops.bet(self.alternatives, values, sizes, known, -math.log(FALSE_ALARM))
        return type(self)(self.alternatives, *made[:-1]), None if made[-1] < 0 else made[-1]

    @property
    def leading(self) -> tuple[tuple[float, float], int]:
        """The alternative that has earned most, and the round since which."""
        place = int(self.logs.argmax())
        shift, deviation = self.alternatives[place].tolist()
        return (shift, deviation), int(self.starts[place])

    def state(self) -> dict[str, Any]:
        """Return this as numbers and a tensor (3, a)."""
        columns = torch.from_numpy(np.stack([self.logs, self.starts, self.held]))
        return {"number": self.number, "num_held": self.num_held, "columns": columns}

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Return the bet of a ``state``."""
        logs, starts, held = state["columns"].cpu().numpy().copy()
        number, evidence = state["number"], residual_loops.log_evidence(state["number"], logs)
        return type(self)(self.alternatives, number, logs, starts.astype(np.int64), state["num_held"], held, evidence)


#: Bets that bands are too narrow, or means off; and that bands are too wide.
_NARROW, _WIDE = Surprise.against(MISFITS), Surprise.against(SLACKS)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one-step predictions since the last restart or fit were worth, by their residuals; see ``Health``."""

    since: int = 0  # the round from which on residuals are counted
    number: int = 0  # how many were judged
    covered: int = 0  # how many of them lie within ±1.96
    recent: tuple[float, ...] = ()  # the last 100
    misfit: Surprise = _NARROW  # the bet that bands are too narrow, or means off
    slack: Surprise = _WIDE  # the bet that bands are too wide
    flagged: int | None = None  # the round in which ``misfit`` passed 1/α first
    slack_since: int | None = None  # that in which ``slack`` did
    waiting: tuple[Group, ...] = ()  # residuals that were not judged, by round

    def told(self, residuals: Sequence[float], number: int, *, is_learned: bool) -> Self:
        """Return the same with those of the round of a number; unless the posterior learns it they wait for a batch."""
        after = changed(self, waiting=(*self.waiting, (residuals, number, is_learned)))
        return after if len(after.waiting) < _TOGETHER else after.judged

    @property
    def judged(self) -> Self:
        """The same with nothing waiting. Cost: O(1) for each residual."""
        if not self.waiting:
            return self
        (misfit, flagged), (slack, slack_since) = self.misfit.after(self.waiting), self.slack.after(self.waiting)
        new = [z for residuals, *_ in self.waiting for z in residuals]
        number, covered = self.number + len(new), self.covered + sum([abs(z) <= BAND for z in new])
        flagged = flagged if self.flagged is None else self.flagged
        slack_since = slack_since if self.slack_since is None else self.slack_since
        recent = (*self.recent, *new)[-RECENT:]
        return type(self)(self.since, number, covered, recent, misfit, slack, flagged, slack_since)

    def state(self) -> dict[str, Any]:
        """Return these, judged, as numbers and tensors of their own, by name."""
        known = {name: value for name, value in vars(self.judged).items() if name != "waiting"}
        bets = {"misfit": known["misfit"].state(), "slack": known["slack"].state()}
        return known | {"recent": torch.tensor(known["recent"], dtype=torch.float64)} | bets

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """Return the predictions of a ``state``."""
        bets = {"misfit": _NARROW.restored(state["misfit"]), "slack": _WIDE.restored(state["slack"])}
        return cls(**{**state, "recent": tuple(state["recent"].tolist()), **bets})


#: Before any reward.
NONE_YET = Predictions()


def standardized(Y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> list[float]:
    """Return the residuals z of those rewards (q,) that are numbers and count, of many those of the first 256.

    Noise is that of all, 0-dim, or of each, (q,), infinite where a reward does not count.
    """
    if Y.shape[0] > MOST_JUDGED:
        Y, mean, variance = (column[:MOST_JUDGED] for column in (Y, mean, variance))
    noises = noise[:MOST_JUDGED].tolist() if noise.dim() else [noise.item()] * Y.shape[0]
    found = list[float]()
    for y, expected, spread, each in zip(Y.tolist(), mean.tolist(), variance.tolist(), noises, strict=True):
        z = (y - expected) / math.sqrt(max(spread + each, _TINY))
        if not math.isnan(z) and not math.isinf(each):
            found.append(min(max(z, -_LARGEST), _LARGEST))
    return found

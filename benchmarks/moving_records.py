"""Rewards that move, or do not: recorded series of many arms, with and without a memory, beside what is done instead.

None of these series was looked at before the rule was fixed: TV-GP-UCB under a ``LearnedPrior`` forgets nothing unless
the marginal likelihood with a drift is 3 nats above that without. It was chosen on synthetic functions that stay, drift
and jump. Nothing of a series is known beforehand; rewards are of its columns as recorded, one arm a round. Of series of
eight arms or fewer the draws differ in the order of the arms alone.

Claimed before they were played: TV-GP-UCB with the rule is, over all series, (a) no worse than the same that always
forgets, (b) no worse than GP-UCB without a memory, each by the mean of paired differences; (c) ahead of BoTorch with
the time as a column.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from tqdm import tqdm

from benchmarks.replay_data import Replay, data_frame, filled, of_readings
from benchmarks.replays import play, relative_regret
from benchmarks.runner import Found, Parts, Table, benchmark, kinds, mean_and_error, values
from benchmarks.time_column import TimeColumn, WindowedUCB
from torch_kbandits import LearnedPrior, algorithms
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.kernels import PrecomputedKernel

_BETA = 2.0

# ---------------------------------------------------------------- series


def _tourists() -> np.ndarray:
    """Nights that visitors spent in 20 regions of Australia: the growth over a year, quarters."""
    nights = np.log(data_frame("fpp2", "visnights").to_numpy(float))
    return nights[4:] - nights[:-4]


def _rooms() -> np.ndarray:
    """Rooms that are let in eight states of Australia, percent, quarters."""
    rooms = data_frame("fpp3", "aus_accommodation")
    return rooms.pivot(index="Date", columns="State", values="Occupancy").to_numpy(float)


def _measles() -> np.ndarray:
    """Measles in a year and state of the USA, 1928 to 1990: the logarithm of cases in 10,000 people."""
    table = data_frame("dslabs", "us_contagious_diseases")
    table = table[(table["disease"] == "Measles") & (table["year"] <= 1990)]
    table["rate"] = np.log1p(1e4 * table["count"] / table["population"])
    rates = table.pivot(index="year", columns="state", values="rate").to_numpy(float)
    return filled(rates[:, np.isnan(rates).mean(0) < 0.05])


def _prices() -> np.ndarray:
    """Prices of six goods in the USA: the growth over a year, years in which all are known."""
    return np.diff(np.log(data_frame("fpp3", "prices").drop(columns="year").dropna().to_numpy(float)), axis=0)


def _currencies() -> np.ndarray:
    """Currencies of 17 countries in dollars: the change over a year, quarters."""
    rates = data_frame("plm", "Parity").pivot(index="time", columns="country", values="ls").to_numpy(float)
    rates = rates[:, np.isfinite(rates).all(0) & (rates.std(0) > 0.0)]
    return rates[4:] - rates[:-4]


def _returns() -> np.ndarray:
    """Daily returns of three stocks and the market, percent. A control: who could win?"""
    return 100.0 * data_frame("Ecdat", "CRSPday")[["ge", "ibm", "mobil", "crsp"]].to_numpy(float)


#: Series, and how many stretches of each, one after another.
SERIES: dict[str, tuple[Callable[[], np.ndarray], int]] = {
    "tourists": (_tourists, 1),
    "rooms": (_rooms, 1),
    "measles": (_measles, 1),
    "prices": (_prices, 1),
    "currencies": (_currencies, 1),
    "returns": (_returns, 3),
}


def stretches(name: str, rounds: int, draws: int) -> Iterator[tuple[dict[str, Any], Replay]]:
    """Yield each stretch, and of each so many draws of at most eight arms in random order."""
    make, number = SERIES[name]
    whole = torch.from_numpy(np.array(make()))
    for place in range(number):
        part = whole[place * rounds : (place + 1) * rounds]
        for draw in range(draws):
            generator = torch.Generator().manual_seed(100 * place + draw)
            arms = torch.randperm(part.shape[1], generator=generator)[:8]
            yield {"series": name, "stretch": place, "draw": draw}, of_readings(draw, part[:, arms], 0)


# ---------------------------------------------------------------- players


def _ours(replay: Replay, name: str, **words: Any) -> Any:
    """Return a bandit that learns what all arms share and what each has for itself."""
    eye = torch.eye(len(replay.arms), dtype=torch.float64)
    kernel = ScaleKernel(PrecomputedKernel(torch.ones_like(eye))) + ScaleKernel(PrecomputedKernel(eye))
    words |= {"prior": LearnedPrior(kernel.double()), "beta": _BETA, "seed": replay.seed}
    return algorithms.build(name, candidates=replay.arms, **words)


def _time_column(replay: Replay) -> TimeColumn:
    return TimeColumn(replay.arms, rounds=len(replay.play.rewards), seed=replay.seed, beta=_BETA)


PLAYERS: dict[str, Callable[[Replay], Any]] = {
    "GP-UCB": partial(_ours, name="gp-ucb"),
    "TV-GP-UCB, ε = 0.01": partial(_ours, name="tv-gp-ucb", forgetting=0.01),
    "TV-GP-UCB": partial(_ours, name="tv-gp-ucb"),
    "DMS-TV-GP-UCB": partial(_ours, name="dms-tv-gp-ucb"),
    "BoTorch, time as a column": _time_column,
    "SW-UCB, independent arms": lambda replay: WindowedUCB(replay.arms, window=4 * len(replay.arms)),
}
_FIXED, _BASE = "best fixed arm", "TV-GP-UCB"


@benchmark(series=("rooms",), rounds=14, draws=1)
def moving_records(parts: Parts, series: Sequence[str] = tuple(SERIES), rounds: int = 100, draws: int = 3) -> Found:
    """Play all on each stretch, and compare the regret, as a share of random play's, stretch by stretch."""
    found = [
        parts.measured(key | {"player": player}, partial(_played, replay, player))
        for name in tqdm(series, "moving_records")
        for key, replay in stretches(name, rounds, draws)
        for player in (*PLAYERS, _FIXED)
    ]
    there, rows = kinds(found, "series"), list[list[str]]()
    for player in (*PLAYERS, _FIXED):
        own = [mean_and_error(values(found, "regret", series=name, player=player), 3) for name in there]
        mine, base = (values(found, "regret", player=each) for each in (player, _BASE))
        less = [another - one for one, another in zip(mine, base, strict=True)]
        rows.append([player, *own, mean_and_error(mine, 3), mean_and_error(less, 3)])
    size = f"{draws} draws of eight arms of each stretch of {rounds} rounds or fewer"
    title = f"Regret as a share of random play's, {size}"
    return [Table(title, ["player", *there, "all", f"{_BASE} less it"], rows)], found


def _played(replay: Replay, player: str) -> dict[str, Any]:
    if player == _FIXED:
        best = replay.play.rewards.mean(0).argmax()
        return {"regret": relative_regret(replay.play, best.expand(len(replay.play.rewards)))}
    learner = PLAYERS[player](replay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelBanditWarning)  # that a kernel explains nothing of returns is right
        regret = relative_regret(replay.play, play(learner, replay))
    return {"regret": regret, "forgetting": getattr(getattr(learner, "memory", None), "forgetting", None)}

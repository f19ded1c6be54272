"""What docs/choose.md and docs/memories.md recommend, on real rewards of nine kinds, against players without a model.

Fixed before the stretches that judge were played. Of each replay some of the past is known, and one player is what the
two pages recommend for it as they stood; see ``RECOMMENDED``. On every replay but stocks, a control:

(a) it is better than random play: the interval of its difference in regret lies below 0;
(b) it is no worse than the arm with the best mean of the past: that interval does not lie above 0;
(c) it is near the best: the median of its regret less that of the bandit that has the least mean regret on the
    replay in hindsight is at most 0.05 of random play's regret.

On stocks nobody has less regret than random play: no interval of a difference lies below 0.
"""

import dataclasses
import statistics
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.replay_data import REPLAYS, Kind, Replay, Rounds, stretches_of
from benchmarks.replay_known import Known, ridge
from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, kinds, mark, mean_and_error, values
from benchmarks.time_column import TimeColumn
from torch_kbandits import Bandit, LearnedPrior, algorithms
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.experiments.summary import Difference, difference, summary_of
from torch_kbandits.memory import (
    Discount,
    LinearGrowth,
    Memory,
    Restart,
    SlidingWindow,
    TemporalPrior,
    UncertaintyInjection,
)

#: Multiplier of the deviation, unless a name says another; what (c) allows.
_BETA, _NEAR = 2.0, 0.05

_HISTORY, _HINDSIGHT, _NO_MEMORY = "best historical mean", "best arm in hindsight", "GP-UCB, mean=profile"

# ---------------------------------------------------------------- players


def _given(
    known: Known, memory: Memory | None = None, name: str = "k-ucb", beta: float = _BETA, alone: bool = False
) -> Bandit:
    """Return a bandit with all that the known part says: the profile as its mean, and what was fitted."""
    prior, memory = known.fitted(memory, alone)
    words = {} if memory is None else {"memory": memory}
    words |= {"horizon": len(known.replay.play.rewards)} if name == "bob-gp-ucb" else {}
    words |= {} if name == "gp-ei" else {"beta": beta}
    return _bandit(known, name, False, prior=prior, **words)


def _learned(known: Known, name: str = "k-ucb", profile: bool = False, told: bool = False) -> Bandit:
    """Return a bandit that fits its prior as it plays, with the profile as its mean, or the log told beforehand."""
    mean, kernel = (known.mean(), known.kernel()) if profile else (None, known.kernel_of_levels())
    words: dict[str, Any] = {} if name == "gp-ei" else {"beta": _BETA}
    return _bandit(known, name, told, prior=LearnedPrior(kernel, mean=mean), **words)


def _bandit(known: Known, name: str, told: bool, **words: Any) -> Bandit:
    bandit = algorithms.build(name, candidates=known.candidates(), seed=known.replay.seed, **words)
    if told:
        bandit.tell(known.X, known.Y, context=None if known.replay.kind == "arms" else known.contexts)
    return bandit


def _time_column(known: Known) -> TimeColumn:
    """Return what needs none of this: it is told nothing of the known part but how many phases there are."""
    replay = known.replay
    return TimeColumn(
        replay.arms, rounds=len(replay.play.rewards), seed=replay.seed, beta=_BETA, levels=max(known.phases - 1, 1)
    )


Make = Callable[[Known], Bandit | TimeColumn]

_MEMORIES: dict[str, Memory] = {
    "window": SlidingWindow(50.0),
    "restarts": Restart(50.0),
    "discount": Discount(0.95),
    "growing noise": UncertaintyInjection(LinearGrowth(0.01)),
    "prior on time": TemporalPrior(0.05),
}

_REMEMBERING: dict[str, Make] = {
    **{f"{name}, mean=profile": partial(_given, memory=memory) for name, memory in _MEMORIES.items()},
    "ET, mean=profile": partial(_given, name="et-gp-ucb"),
    "BOB, mean=profile": partial(_given, name="bob-gp-ucb"),
    "DMS, mean=profile": partial(_given, name="dms-gp-ucb"),
    "DMS-TV, mean=profile": partial(_given, name="dms-tv-gp-ucb"),
}

_OF_PHASES: dict[str, Make] = {
    _NO_MEMORY: _given,
    **_REMEMBERING,
    "GP-UCB, LearnedPrior": _learned,
    "GP-UCB, LearnedPrior, told the log": partial(_learned, told=True),
    "GP-UCB, LearnedPrior(mean=profile)": partial(_learned, profile=True),
}

_OF_ARMS: dict[str, Make] = {
    **_OF_PHASES,
    "GP-EI, mean=profile": partial(_given, name="gp-ei"),
    "GP-EI, LearnedPrior(mean=profile)": partial(_learned, name="gp-ei", profile=True),
}

_OF_CONTEXTS: dict[str, Make] = {
    "K-UCB, LearnedPrior": _learned,
    "K-UCB, LearnedPrior, told the log": partial(_learned, told=True),
    "K-UCB, LearnedPrior(mean=ridge)": partial(_learned, profile=True),
    "EK-UCB, LearnedPrior, told the log": partial(_learned, name="ek-ucb", told=True),
    "CBBKB, LearnedPrior, told the log": partial(_learned, name="cbbkb", told=True),
    "LinUCB, told the log": partial(_bandit, name="lin-ucb", told=True),
}

#: What is advised where a profile is known, first, and others, who came after the claims.
_ADVISED: dict[str, Make] = {
    "GP-UCB, mean=profile, β = 1": partial(_given, beta=1.0),
    _NO_MEMORY: _given,
    "UCB, independent arms, mean=profile, β = 1": partial(_given, beta=1.0, alone=True),
    "TV-GP-UCB, LearnedPrior(mean=profile)": partial(_learned, name="tv-gp-ucb", profile=True),
    "BoTorch, time as a column": _time_column,
}

_PLAYERS: dict[Kind, dict[str, Make]] = {"arms": _OF_ARMS, "phases": _OF_PHASES, "contexts": _OF_CONTEXTS}

#: What docs/choose.md and docs/memories.md recommended for each replay before it was played, and on which line.
RECOMMENDED = {
    "nitrogen oxides, days": _NO_MEMORY,  # readings of the past: the profile, no memory
    "pedestrians, days": _NO_MEMORY,
    "employment, months": "DMS-TV, mean=profile",  # it changes, nobody knows how fast
    "ozone, months": _NO_MEMORY,  # the same for each month: the profile, the phase as a context
    "pedestrians, hours": _NO_MEMORY,
    "flights": "K-UCB, LearnedPrior, told the log",  # something is known before each choice
    "digits": "K-UCB, LearnedPrior, told the log",
    "networks, trainings": "GP-EI, LearnedPrior(mean=profile)",  # the knobs are numbers, whole numbers or choices
    "stocks, days": _NO_MEMORY,
}


def play(bandit: Bandit | TimeColumn, replay: Replay) -> Tensor:
    """Return the arms (T,) that a bandit chooses, whose rewards it is told."""
    chosen, rounds = [], replay.play
    for context, rewards in zip(rounds.contexts, rounds.rewards, strict=True):
        told = None if replay.kind == "arms" else context
        x = bandit.ask(context=told)
        chosen.append(int((replay.arms == x).all(-1).nonzero()[0]))
        bandit.tell(x, rewards[chosen[-1]], context=told)
    return torch.tensor(chosen)


def fixed_players(replay: Replay, known: Known) -> dict[str, Tensor]:
    """Return the arms (T,) of players without a bandit; the first knows what is played on."""
    rounds = replay.play
    number = len(rounds.rewards)
    players = {
        _HINDSIGHT: rounds.means.mean(0).argmax().expand(number),
        _HISTORY: replay.train.rewards.mean(0).argmax().expand(number),
    }
    if replay.kind == "phases":
        players["best historical mean of the phase"] = known.profile.argmax(1)[rounds.phases]
    if replay.kind == "contexts":
        joint = torch.cat(
            [rounds.contexts.unsqueeze(1).expand(-1, len(replay.arms), -1), replay.arms.expand(number, -1, -1)], dim=-1
        )
        players["ridge regression of the past"] = ridge(replay.train)(joint).argmax(1)
    return players


def relative_regret(rounds: Rounds, chosen: Tensor) -> float:
    """Return the regret against the best arm of each round over that which random play expects."""
    best = rounds.means.amax(1)
    mine = rounds.means.gather(1, chosen.unsqueeze(-1)).squeeze(-1)
    return float((best - mine).mean() / (best - rounds.means.mean(1)).mean())


# ---------------------------------------------------------------- run


@benchmark(replays=("stocks, days", "ozone, months", "digits"), stretches=1, rounds=4)
def replays(
    parts: Parts,
    replays: tuple[str, ...] = tuple(REPLAYS),
    stretches: int = 12,
    rounds: int = 120,
    choosing: bool = False,
) -> Found:
    """Play every player on every stretch, of a replay at most so many, or on those for choosing."""
    found = _played(parts, replays, _PLAYERS, stretches, rounds, choosing)
    return [_claims(found), *(_table(found, name) for name in replays), _memories(found)], found


@benchmark(replays=("stocks, days",), players=2, stretches=1, rounds=4)
def profiles(
    parts: Parts,
    replays: tuple[str, ...] = ("nitrogen oxides, days", "pedestrians, days", "ozone, months", "pedestrians, hours"),
    players: int = 3,
    stretches: int = 12,
    rounds: int = 120,
) -> Found:
    """Play so many of those who know a profile on every stretch, beside the first of them and who does not learn."""
    some = dict([*_ADVISED.items()][:players])
    found, rows = _played(parts, replays, dict.fromkeys(_PLAYERS, some), stretches, rounds), list[list[str]]()
    for player in kinds(found, "player"):
        rows.append([player])
        for name in replays:
            mine, base = (values(found, "regret", replay=name, player=each) for each in (player, next(iter(some))))
            less = [one - another for one, another in zip(mine, base, strict=bool(mine))]
            rows[-1] += [mean_and_error(mine, 3), mean_and_error(less, 3)] if mine else ["–", "–"]
    head = ["player", *(each for name in replays for each in (name, f"{name}, less the first bandit"))]
    return [Table("Regret as a share of random play's", head, rows)], found


def _played(
    parts: Parts,
    names: tuple[str, ...],
    players: Mapping[Kind, dict[str, Make]],
    stretches: int,
    rounds: int,
    choosing: bool = False,
) -> list[Measurement]:
    """Return the regret of every player, and of those without a bandit, on every stretch."""
    found = list[Measurement]()
    for key, replay in stretches_of(names, stretches, choosing):
        replay = dataclasses.replace(replay, play=replay.play.rows(slice(rounds)))
        known = Known(replay)
        for player, rows in fixed_players(replay, known).items():
            found.append(key | {"player": player, "regret": relative_regret(replay.play, rows)})
        for player, make in players[replay.kind].items():
            found.append(parts.measured(key | {"player": player}, partial(_measured, make, replay, known)))
    return found


def _measured(make: Make, replay: Replay, known: Known) -> Measurement:
    with warnings.catch_warnings():
        # That a kernel explains nothing of stocks is as it should be.
        warnings.simplefilter("ignore", KernelBanditWarning)
        return {"regret": relative_regret(replay.play, play(make(known), replay))}


def _less(found: list[Measurement], replay: str, player: str, other: str) -> Difference:
    """Return what a player has more than another, stretch by stretch."""
    mine, theirs = (values(found, "regret", replay=replay, player=each) for each in (player, other))
    return difference([one - another for one, another in zip(mine, theirs, strict=True)])


def _table(found: list[Measurement], replay: str) -> Table:
    here, rows = chosen(found, replay=replay), list[list[str]]()
    for player in kinds(here, "player"):
        mine, less = summary_of(values(here, "regret", player=player)), _less(here, replay, player, _HISTORY)
        paired = ["", ""] if player == _HISTORY else [str(less), f"{less.wins} of {less.pairs}"]
        bold = f"**{player}**" if player == RECOMMENDED[replay] else player
        rows.append([bold, str(mine), mine.mean_and_error, *paired])
    stretches = len(chosen(here, player=_HISTORY))
    title = f"{replay.capitalize()}: regret over that of random play, {stretches} stretches"
    head = ["player", "median [quartiles]", "mean", f"less that of the {_HISTORY}", "below it"]
    return Table(title, head, rows)


def _memories(found: list[Measurement]) -> Table:
    """Return what each memory has more than none, all with the profile as their mean."""
    there, rows = kinds(chosen(found, player=_NO_MEMORY), "replay"), list[list[str]]()
    for player in _REMEMBERING:
        less = [_less(found, name, player, _NO_MEMORY) for name in there]
        rows.append([player.partition(",")[0], *(f"{each}; {each.wins} of {each.pairs}" for each in less)])
    return Table("Memories: regret less that without one, median [95% interval]; below it", ["memory", *there], rows)


def _claims(found: list[Measurement]) -> Table:
    rows, bandits = list[list[str]](), {player for players in _PLAYERS.values() for player in players}
    for name in kinds(found, "replay"):
        regrets = {player: values(found, "regret", replay=name, player=player) for player in bandits}
        best = min(filter(regrets.get, regrets), key=lambda player: statistics.fmean(regrets[player]))
        less_random = {
            player: difference([each - 1.0 for each in regret]) for player, regret in regrets.items() if regret
        }
        mine = RECOMMENDED[name]
        less = [less_random[mine], *(_less(found, name, mine, other) for other in (_HISTORY, best))]
        if name.startswith("stocks"):
            marks = [mark(not any(map(_is_below, less_random.values()))), "", ""]
        else:
            not_above = less[1].lower is None or less[1].lower <= 0.0
            marks = [mark(_is_below(less[0])), mark(not_above), mark(less[2].median <= _NEAR)]
        rows.append([name, mine, *(f"{a}{b}" for a, b in zip(less, marks, strict=True)), best])
    head = ["replay", "recommended", "(a) less random", f"(b) less {_HISTORY}", "(c) less the best bandit", "which is"]
    return Table("What was claimed: differences in regret, median [95% interval]", head, rows)


def _is_below(less: Difference) -> bool:
    return less.upper is not None and less.upper < 0.0

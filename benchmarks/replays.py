"""What docs/which.md and docs/memories.md recommend, on real rewards of nine kinds, against players without a model.

Fixed before the stretches that judge were played. Of each replay some of the past is known, and one player is what the
two pages recommend for it as they stood; see ``RECOMMENDED``. On every replay but stocks, a control:

(a) it is better than random play: the interval of its difference in regret lies below 0;
(b) it is no worse than the arm with the best mean of the past: that interval does not lie above 0;
(c) it is near the best: the median of its regret less that of the bandit that has the least mean regret on the
    replay in hindsight is at most 0.05 of random play's regret.

On stocks nobody has less regret than random play: no interval of a difference lies below 0.
"""

import json
import statistics
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.replay_data import REPLAYS, Replay, Rounds, stretch
from benchmarks.replay_known import Known, ridge
from benchmarks.report import Report, Table
from torch_kbandits import Bandit, LearnedPrior, algorithms
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.experiments.summary import Difference, difference, estimate
from torch_kbandits.memory import (
    Discount,
    LinearGrowth,
    Memory,
    Restart,
    SlidingWindow,
    TemporalPrior,
    UncertaintyInjection,
)

#: Multiplier of the deviation for all; what (c) allows; where results are kept as they come.
_BETA, _NEAR, _KEPT = 2.0, 0.05, Path("runs/benchmarks/replays.jsonl")

_HISTORY, _HINDSIGHT, _NO_MEMORY = "best historical mean", "best arm in hindsight", "GP-UCB, mean=profile"


@dataclass(frozen=True)
class Sizes:
    """What is run: replays, at most so many stretches of each, rounds, and whether on those for choosing."""

    replays: tuple[str, ...] = tuple(REPLAYS)
    stretches: int = 12
    rounds: int = 120
    choosing: bool = False


QUICK = Sizes(replays=("stocks, days", "ozone, months", "digits"), stretches=1, rounds=4)


# ---------------------------------------------------------------- players


def _given(known: Known, memory: Memory | None = None, name: str = "k-ucb", **words: Any) -> Bandit:
    """Return a bandit with all that the known part says: the profile as its mean, and what was fitted."""
    prior, memory = known.fitted(memory)
    words |= {} if memory is None else {"memory": memory}
    words |= {} if name == "gp-ei" else {"beta": _BETA}
    return algorithms.build(name, candidates=known.candidates(), prior=prior, seed=known.seed, **words)


def _over_bandits(known: Known) -> Bandit:
    """Return one that chooses its window, for as many rounds as there are."""
    return _given(known, name="bob-gp-ucb", horizon=len(known.replay.play.rewards))


def _learned(known: Known, name: str = "k-ucb", profile: bool = False, told: bool = False) -> Bandit:
    """Return a bandit that fits its prior as it plays, with the profile as its mean, or the log told beforehand."""
    mean, kernel = (known.mean(), known.kernel()) if profile else (None, known.kernel_of_levels())
    prior = LearnedPrior(kernel, mean=mean)
    words: dict[str, Any] = {} if name == "gp-ei" else {"beta": _BETA}
    bandit = algorithms.build(name, candidates=known.candidates(), prior=prior, seed=known.seed, **words)
    return _told(bandit, known) if told else bandit


def _linear(known: Known) -> Bandit:
    """Return LinUCB with the width of its paper, told the log."""
    return _told(algorithms.build("lin-ucb", candidates=known.candidates(), seed=known.seed), known)


def _told(bandit: Bandit, known: Known) -> Bandit:
    context = None if known.replay.kind == "arms" else known.contexts
    bandit.tell(known.X, known.Y, context=context)
    return bandit


Make = Callable[[Known], Bandit]

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
    "BOB, mean=profile": _over_bandits,
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
    "LinUCB, told the log": _linear,
}

_PLAYERS = {"arms": _OF_ARMS, "phases": _OF_PHASES, "contexts": _OF_CONTEXTS}

#: What docs/which.md and docs/memories.md recommended for each replay before it was played, and for which line of them.
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


def play(bandit: Bandit, replay: Replay) -> Tensor:
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


def run(quick: bool = False) -> Report:
    """Play every player on every stretch; what was played by an earlier call is not played again."""
    return measured(QUICK) if quick else measured(Sizes(), _KEPT)


def measured(sizes: Sizes, kept: Path | None = None) -> Report:
    """Play what is not in the file of results yet, of which a line is added for each run."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else []
    runs = [run for line in lines if (run := json.loads(line))["replay"] in sizes.replays]
    done = {(run["replay"], run["stretch"], run["player"]) for run in runs}
    for name in sizes.replays:
        source = REPLAYS[name]
        number = min(sizes.stretches, source.choosing if sizes.choosing else source.stretches)
        for seed in tqdm(range(number), desc=name):
            replay = stretch(name, seed, choosing=sizes.choosing).shortened(sizes.rounds)
            known = Known(replay)
            players: dict[str, Make | Tensor] = {**fixed_players(replay, known), **_PLAYERS[replay.kind]}
            for player, choices in players.items():
                if (name, seed, player) in done:
                    continue
                with warnings.catch_warnings():
                    # That a kernel explains nothing of stocks is as it should be.
                    warnings.simplefilter("ignore", KernelBanditWarning)
                    chosen = choices if isinstance(choices, Tensor) else play(choices(known), replay)
                regret = relative_regret(replay.play, chosen)
                runs.append(run := {"replay": name, "stretch": seed, "player": player, "regret": regret})
                if kept is not None:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(run) + "\n")
    tables = [_claims(runs, sizes.replays), *(_table(runs, name) for name in sizes.replays)]
    return Report("replays", asdict(sizes), [*tables, _memories(runs, sizes.replays)], runs)


def _of(runs: list[dict[str, Any]], replay: str) -> dict[str, list[float]]:
    """Return the regrets of each player, by stretch."""
    there = sorted((run for run in runs if run["replay"] == replay), key=lambda run: run["stretch"])
    players = dict.fromkeys(run["player"] for run in there)
    return {player: [run["regret"] for run in there if run["player"] == player] for player in players}


def _less(mine: list[float], theirs: list[float]) -> list[float]:
    return [a - b for a, b in zip(mine, theirs, strict=True)]


def _table(runs: list[dict[str, Any]], replay: str) -> Table:
    regrets, rows = _of(runs, replay), []
    for player, mine in regrets.items():
        less = difference(_less(mine, regrets[_HISTORY]))
        paired = ["", ""] if player == _HISTORY else [str(less), f"{less.wins} of {less.pairs}"]
        bold = f"**{player}**" if player == RECOMMENDED[replay] else player
        rows.append([bold, str(estimate(mine)), estimate(mine).mean_and_error, *paired])
    title = f"{replay.capitalize()}: regret over that of random play, {len(regrets[_HISTORY])} stretches"
    head = ["player", "median [quartiles]", "mean", f"less that of the {_HISTORY}", "below it"]
    return Table(title, head, rows)


def _memories(runs: list[dict[str, Any]], replays: tuple[str, ...]) -> Table:
    """Return what each memory has more than none, all with the profile as their mean."""
    there = [name for name in replays if _NO_MEMORY in _of(runs, name)]
    rows = []
    for player in _REMEMBERING:
        less = [difference(_less(_of(runs, name)[player], _of(runs, name)[_NO_MEMORY])) for name in there]
        rows.append([player.partition(",")[0], *(f"{each}; {each.wins} of {each.pairs}" for each in less)])
    return Table("Memories: regret less that without one, median [95% interval]; below it", ["memory", *there], rows)


def _claims(runs: list[dict[str, Any]], replays: tuple[str, ...]) -> Table:
    rows, bandits = [], {player for players in _PLAYERS.values() for player in players}
    for name in replays:
        regrets = _of(runs, name)
        played = [player for player in regrets if player in bandits]
        best = min(played, key=lambda player: statistics.fmean(regrets[player]))
        mine, random = regrets[RECOMMENDED[name]], [1.0] * len(regrets[best])
        less = [difference(_less(mine, other)) for other in (random, regrets[_HISTORY], regrets[best])]
        if name.startswith("stocks"):
            verdicts = [not any(_is_below(difference(_less(regrets[player], random))) for player in played), None, None]
        else:
            verdicts = [_is_below(less[0]), less[1].lower is None or less[1].lower <= 0.0, less[2].median <= _NEAR]
        marks = ["" if verdict is None else " ✓" if verdict else " ✗" for verdict in verdicts]
        rows.append([name, RECOMMENDED[name], *(f"{a}{b}" for a, b in zip(less, marks, strict=True)), best])
    head = ["replay", "recommended", "(a) less random", f"(b) less {_HISTORY}", "(c) less the best bandit", "which is"]
    return Table("What was claimed: differences in regret, median [95% interval]", head, rows)


def _is_below(less: Difference) -> bool:
    """Say whether a difference is below zero beyond chance."""
    return less.upper is not None and less.upper < 0.0

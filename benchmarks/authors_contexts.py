"""EK-UCB and its baselines beside the code of their authors: the same problems, kernel, multiplier and first action.

    .venv/bin/python -m benchmarks.authors_contexts runs/benchmarks/authors_contexts.json curves.png

draws the curves of a saved result.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.contextual_players import (
    AuthorsCBBKB,
    AuthorsCBKB,
    AuthorsEKUCB,
    AuthorsKUCB,
    AuthorsSupKernelUCB,
    Player,
    Surrogate,
)
from benchmarks.references import Array
from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import algorithms, environments
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.environments import ContextualFunction
from torch_kbandits.experiments import Record
from torch_kbandits.experiments.plots import figures
from torch_kbandits.plotting.style import write_figure

#: λ and μ; the multiplier of σ/√λ is the authors'.
REGULARIZATION, MULTIPLIER = 10.0, 0.1
#: The largest γ of the authors' code.
OVERSAMPLING = 0.1 * REGULARIZATION
#: Which SupKernelUCB plays for: the authors'.
HORIZON = 2_000


@dataclass(frozen=True)
class Problem:
    """An environment by name, with a length scale."""

    name: str
    lengthscale: float

    def __str__(self) -> str:
        return f"{self.name}, l = {self.lengthscale:g}"


@dataclass(frozen=True)
class Sizes:
    """What is run; a seed addresses contexts and noise, and our own draws."""

    problems: tuple[Problem, ...] = (
        Problem("bump", 1.0),
        Problem("bump", 0.1),
        Problem("chessboard", 0.1),
        Problem("step-diagonal", 0.1),
    )
    rounds: int = 300
    seeds: int = 3
    record_every: int = 10


QUICK = Sizes((Problem("bump", 1.0), Problem("chessboard", 0.1)), rounds=30, seeds=2, record_every=10)

THEIRS: dict[str, Callable[[Surrogate], Player]] = {
    "K-UCB": lambda surrogate: AuthorsKUCB(surrogate),
    "EK-UCB": lambda surrogate: AuthorsEKUCB(surrogate, OVERSAMPLING, REGULARIZATION),
    "EK-UCB, the paper's score": lambda surrogate: AuthorsEKUCB(
        surrogate, OVERSAMPLING, REGULARIZATION, scores_what_is_left=True
    ),
    "CBKB": lambda surrogate: AuthorsCBKB(surrogate),
    "CBBKB, C = 3": lambda surrogate: AuthorsCBBKB(surrogate, 3.0),
    "CBBKB, C = 3, means kept": lambda surrogate: AuthorsCBBKB(surrogate, 3.0, keeps_means=True),
    "CBBKB, C = 30": lambda surrogate: AuthorsCBBKB(surrogate, 30.0),
    "SupKernelUCB": lambda surrogate: AuthorsSupKernelUCB(surrogate, HORIZON),
}

OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "K-UCB": ("k-ucb", {}),
    "EK-UCB": ("ek-ucb", {"oversampling": OVERSAMPLING}),
    "CBKB": ("cbkb", {"oversampling": 10.0}),
    "CBBKB, C = 3": ("cbbkb", {"batch_threshold": 3.0, "oversampling": 30.0}),
    "SupKernelUCB": ("sup-kernel-ucb", {"horizon": HORIZON}),
}

#: What the figure shows: name in the tables, whose, and the words of the legend.
SHOWN = {
    ("K-UCB", "theirs"): "K-UCB, theirs",
    ("EK-UCB", "theirs"): "EK-UCB, theirs",
    ("EK-UCB, the paper's score", "theirs"): "EK-UCB, theirs with the paper's score",
    ("EK-UCB", "ours"): "EK-UCB, ours",
    ("CBBKB, C = 3", "theirs"): "CBBKB, C = 3, theirs",
    ("CBBKB, C = 3", "ours"): "CBBKB, C = 3, ours",
}


def run(quick: bool = False) -> Report:
    """Play all on every problem; contexts and the noise of a round are the same for all players of a seed."""
    sizes = QUICK if quick else Sizes()
    measurements: list[dict[str, Any]] = []
    for problem in sizes.problems:
        for seed in tqdm(range(sizes.seeds), desc=f"authors_contexts, {problem}", unit="seed"):
            built = environments.build(problem.name, lengthscale=problem.lengthscale, seed=seed)
            environment = cast(ContextualFunction, built)
            means = torch.stack(
                [environment.mean(environment.joint_points(environment.actions, t), t) for t in range(sizes.rounds)]
            )
            curves = {"random, expected": means.mean(1), "best fixed action": means[:, means.sum(0).argmax()]}
            runs = [{"player": name, "whose": "theirs", "means": got} for name, got in curves.items()]
            every = torch.arange(sizes.rounds)
            for name, make in THEIRS.items():
                player = make(Surrogate(problem.lengthscale, REGULARIZATION, MULTIPLIER))
                rows = play_theirs(player, environment, sizes.rounds)
                counts = {"dictionary": player.dictionary_size, "broken": player.broken}
                runs.append({"player": name, "whose": "theirs", "means": means[every, rows], **counts})
            for name in OURS:
                bandit = build(name, environment, seed)
                rows = play_ours(bandit, environment, sizes.rounds, first_action(environment))
                counts = {"dictionary": len(bandit.inducing_points)}
                runs.append({"player": name, "whose": "ours", "means": means[every, rows], **counts})
            for each in runs:
                regret = (means.amax(1) - each.pop("means")).cumsum(0)[sizes.record_every - 1 :: sizes.record_every]
                measurements.append({"problem": str(problem), "seed": seed, **each, "regret": regret.tolist()})
    tables = [_table(str(problem), measurements, sizes) for problem in sizes.problems]
    return Report("authors_contexts", asdict(sizes), tables, measurements)


def build(name: str, environment: ContextualFunction, seed: int) -> Bandit:
    """Return our bandit of a name in ``OURS``, with the authors' multiplier."""
    kind, words = OURS[name]
    return algorithms.build(
        kind,
        candidates=ContextualActions(environment.actions, context_dim=environment.context_dim),
        kernel=environment.kernel,
        regularization=REGULARIZATION,
        beta=MULTIPLIER / REGULARIZATION**0.5,
        seed=seed,
        **words,
    )


def play_theirs(player: Player, environment: ContextualFunction, rounds: int) -> list[int]:
    """Let a player of the authors play; return the row of the action of each round."""
    rows = []
    for t in range(rounds):
        offered = environment.joint_points(environment.actions, t)
        rows.append(player.choose(offered.numpy()))
        player.tell(offered[rows[-1]].numpy(), float(environment.pull(offered[rows[-1], None], t)))
    return rows


def play_ours(bandit: Bandit, environment: ContextualFunction, rounds: int, first: int) -> list[int]:
    """Let a bandit play from a given first action; return the row of the action of each round."""
    rows = []
    for t in range(rounds):
        context, offered = environment.context(t), environment.joint_points(environment.actions, t)
        action = bandit.ask(context=context) if t else environment.actions[first, None]
        point = environment.joint_points(action, t)
        bandit.tell(action, environment.pull(point, t), context=context)
        rows.append(int((offered == point).all(1).nonzero()[0]))
    return rows


def first_action(environment: ContextualFunction) -> int:
    """Return the row of the action with which all players of the authors start."""
    surrogate = Surrogate(1.0, REGULARIZATION, MULTIPLIER)
    return AuthorsKUCB(surrogate).choose(environment.joint_points(environment.actions, 0).numpy())


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    here = [each for each in measurements if each["problem"] == problem]
    columns = [
        "player",
        "theirs",
        "ours",
        "ours − theirs",
        "dictionary, theirs",
        "ours",
        "choices by no number, theirs",
    ]
    rows = []
    for name in dict.fromkeys(each["player"] for each in here):
        theirs, ours = (
            [each for each in here if (each["player"], each["whose"]) == (name, whose)] for whose in ("theirs", "ours")
        )
        difference = _ends(ours) - _ends(theirs) if ours else np.zeros(0)
        rows.append(
            [
                name,
                *(_cell(values) for values in (_ends(theirs), _ends(ours), difference)),
                *(_mean(runs, "dictionary") for runs in (theirs, ours)),
                _mean(theirs, "broken"),
            ]
        )
    return Table(f"{problem}, λ = μ = {REGULARIZATION:g}: regret after {sizes.rounds:,} rounds", columns, rows)


def _ends(runs: list[dict[str, Any]]) -> Array:
    return np.array([each["regret"][-1] for each in runs])


def _cell(values: Array) -> str:
    return mean_and_error(values.tolist(), 1) if len(values) else ""


def _mean(runs: list[dict[str, Any]], name: str) -> str:
    values = [each[name] for each in runs if name in each]
    return f"{np.mean(values):.0f}" if values else ""


def records(saved: dict[str, Any]) -> list[Record]:
    """Return the runs of a saved result that ``SHOWN`` names, as records to draw."""
    every, rounds = saved["sizes"]["record_every"], saved["sizes"]["rounds"]
    recorded = list(range(every, rounds + 1, every))
    shown = []
    for (player, whose), label in SHOWN.items():
        for each in saved["measurements"]:
            if (each["player"], each["whose"]) == (player, whose):
                words = {"label": label, "name": label, "options": {}, "batch": 1}
                place = {"label": each["problem"], "name": each["problem"], "options": {}}
                # Seconds and dictionaries of each round were not measured, and their figures are not written.
                unmeasured = [1.0] * len(recorded), [0] * len(recorded)
                shown.append(
                    Record(
                        f"{label} {each['problem']} {each['seed']}",
                        words,
                        place,
                        {},
                        rounds,
                        every,
                        each["seed"],
                        {},
                        recorded,
                        each["regret"],
                        *unmeasured,
                        None,
                        None,
                    )
                )
    return shown


def main(arguments: Sequence[str]) -> None:
    """Draw the curves of a saved result."""
    source, target = arguments
    saved = json.loads(Path(source).read_text(encoding="utf-8"))
    write_figure(Path(target), figures(records(saved))["regret"])


if __name__ == "__main__":
    main(sys.argv[1:])

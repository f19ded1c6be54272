"""EK-UCB and its baselines beside the code of their authors: the same problems, kernel, multiplier and first action."""

from collections.abc import Callable
from itertools import product
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
from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, kinds, mean_and_error
from torch_kbandits import algorithms, environments
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.environments import ContextualFunction

#: λ and μ; the multiplier of σ/√λ is the authors'.
REGULARIZATION, MULTIPLIER = 10.0, 0.1
#: The largest γ of the authors' code.
OVERSAMPLING = 0.1 * REGULARIZATION
#: Which SupKernelUCB plays for: the authors'.
HORIZON = 2_000


#: Environments with length scales.
PROBLEMS = (("bump", 1.0), ("bump", 0.1), ("chessboard", 0.1), ("step-diagonal", 0.1))

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


@benchmark(problems=(("bump", 1.0), ("chessboard", 0.1)), rounds=30, seeds=2)
def authors_contexts(
    problems: tuple[tuple[str, float], ...] = PROBLEMS, rounds: int = 300, seeds: int = 3, record_every: int = 10
) -> Found:
    """Play all on every problem; contexts and the noise of a round are the same for all players of a seed."""
    found = list[Measurement]()
    for (name, lengthscale), seed in tqdm(list(product(problems, range(seeds))), "authors_contexts"):
        environment = cast(ContextualFunction, environments.build(name, lengthscale=lengthscale, seed=seed))
        means = torch.stack(
            [environment.mean(environment.joint_points(environment.actions, t), t) for t in range(rounds)]
        )

        def add(player: str, whose: str, got: torch.Tensor, **counts: int) -> None:
            regret = (means.amax(1) - got).cumsum(0)[record_every - 1 :: record_every].tolist()  # noqa: B023
            key = {"problem": f"{name}, l = {lengthscale:g}", "seed": seed}  # noqa: B023
            found.append(key | {"player": player, "whose": whose, **counts, "regret": regret})

        add("random, expected", "theirs", means.mean(1))
        add("best fixed action", "theirs", means[:, means.sum(0).argmax()])
        every = torch.arange(rounds)
        for player, make in THEIRS.items():
            theirs = make(Surrogate(lengthscale, REGULARIZATION, MULTIPLIER))
            got = means[every, _play_theirs(theirs, environment, rounds)]
            add(player, "theirs", got, dictionary=theirs.dictionary_size, broken=theirs.broken)
        for player in OURS:
            bandit = build(player, environment, seed)
            got = means[every, _play_ours(bandit, environment, rounds)]
            add(player, "ours", got, dictionary=len(bandit.inducing_points))
    title = f"λ = μ = {REGULARIZATION:g}: regret after {rounds:,} rounds"
    problem_names = kinds(found, "problem")
    return [_table(f"{problem}, {title}", chosen(found, problem=problem)) for problem in problem_names], found


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


def _play_theirs(player: Player, environment: ContextualFunction, rounds: int) -> list[int]:
    """Let a player of the authors play; return the row of the action of each round."""
    rows = []
    for t in range(rounds):
        offered = environment.joint_points(environment.actions, t)
        rows.append(player.choose(offered.numpy()))
        player.tell(offered[rows[-1]].numpy(), float(environment.pull(offered[rows[-1], None], t)))
    return rows


def _play_ours(bandit: Bandit, environment: ContextualFunction, rounds: int) -> list[int]:
    """Let a bandit play from the action with which all players of the authors start; return the rows of its actions."""
    rows, surrogate = list[int](), Surrogate(1.0, REGULARIZATION, MULTIPLIER)
    for t in range(rounds):
        context, offered = environment.context(t), environment.joint_points(environment.actions, t)
        if t:
            action = bandit.ask(context=context)
        else:
            action = environment.actions[AuthorsKUCB(surrogate).choose(offered.numpy()), None]
        point = environment.joint_points(action, t)
        bandit.tell(action, environment.pull(point, t), context=context)
        rows.append(int((offered == point).all(1).nonzero()[0]))
    return rows


def _table(title: str, here: list[Measurement]) -> Table:
    rows = []
    for name in kinds(here, "player"):
        theirs, ours = (chosen(here, player=name, whose=whose) for whose in ("theirs", "ours"))
        lost, mine = (np.array([each["regret"][-1] for each in runs]) for runs in (theirs, ours))
        cells = [
            mean_and_error(each.tolist(), 1) if len(each) else "" for each in (lost, mine, mine - lost[: len(mine)])
        ]
        rows.append([name, *cells, _mean(theirs, "dictionary"), _mean(ours, "dictionary"), _mean(theirs, "broken")])
    columns = ["player", "theirs", "ours", "ours − theirs", "dictionary, theirs", "ours"]
    return Table(title, [*columns, "choices by no number, theirs"], rows)


def _mean(runs: list[Measurement], name: str) -> str:
    found = [each[name] for each in runs if name in each]
    return f"{np.mean(found):.0f}" if found else ""

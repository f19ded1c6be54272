"""The loop of a run: ask, pull, tell, and what is measured meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.environments import AnyEnvironment, ContextualEnvironment, DynamicEnvironment

#: Rows whose regret is measured at a time, so that a table of arms is compared with few points at once.
_REGRET_ROWS = 256


@dataclass(frozen=True)
class Trace:
    """What was measured while a bandit played.

    Args:
        rounds: the recorded rounds, counted from 1; the last is T.
        regret: cumulative pseudo-regret after them, in reward units.
        seconds: cumulative seconds of ask and tell after them; the environment's time is not in it.
        dictionary_size: inducing points after them.
    """

    rounds: list[int]
    regret: list[float]
    seconds: list[float]
    dictionary_size: list[int]


def play(
    bandit: Bandit,
    environment: AnyEnvironment,
    rounds: int,
    *,
    record_every: int = 1,
    batch: int | str = 1,
    watch: Callable[[int], None] | None = None,
) -> Trace:
    """Let a bandit play an environment and measure it.

    Args:
        bandit: told nothing yet; for contexts one with ``ContextualActions``.
        environment: what is played. The bandit gets no time from a ``DynamicEnvironment``: its clock is its own rounds.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        batch: how many points are asked for at a time; "rule" asks for as many as the algorithm's rule allows. All
            rounds of a batch are recorded with the seconds and the dictionary after it, and they have one context, or
            one moment of a problem that changes: those of the first.
        watch: called after every tell with the number of plays so far, such as to show them; its time is not measured.

    Raises:
        InputError: if the environment has fewer rounds; before anything is played.

    Cost: that of the bandit and the environment, and about 10 microseconds a round.
    """
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(rounds)
    clock = time.perf_counter
    ask, tell, center = bandit.ask, bandit.tell, environment.center
    contextual = isinstance(environment, ContextualEnvironment)
    played: list[Tensor] = []
    recorded: list[int] = []
    spent: list[float] = []
    sizes: list[int] = []
    seconds, t, due = 0.0, 0, min(record_every, rounds)
    asked_with: dict[str, Any] = {}
    told_with: dict[str, Any] = {}
    while t < rounds:
        if contextual:
            told_with = {"context": environment.context(t)}
            offered = environment.candidates(t)
            asked_with = told_with if offered is None else {**told_with, "candidates": offered}
        started = clock()
        if batch == 1:
            x = ask(**asked_with)
        elif batch == "rule":
            x = ask(q=None, **asked_with)[: rounds - t]
        else:
            x = ask(q=min(int(batch), rounds - t), **asked_with)
        asked = clock()
        X = environment.joint_points(x, t) if contextual else x
        y = environment.pull(X, t)
        if center:
            y = y - center
        pulled = clock()
        tell(x, y, **told_with)
        seconds += asked - started + clock() - pulled
        played.append(X)
        t += len(X)
        while due <= t and len(recorded) < -(-rounds // record_every):
            recorded.append(due)
            spent.append(seconds)
            sizes.append(len(bandit.inducing_points))
            due = min(due + record_every, rounds)
        if watch is not None:
            watch(t)
    cumulative = _regret(environment, played).double().cumsum(0)[torch.tensor(recorded) - 1].tolist()
    return Trace(recorded, cumulative, spent, sizes)


def _regret(environment: AnyEnvironment, played: list[Tensor]) -> Tensor:
    """Return the pseudo-regret of every play, (T,); ``played`` has the points of each batch."""
    if not isinstance(environment, ContextualEnvironment | DynamicEnvironment):
        return torch.cat([environment.regret(X) for X in torch.cat(played).split(_REGRET_ROWS)])
    regrets, t = [], 0
    for X in played:
        regrets.append(environment.regret(X, t))
        t += len(X)
    return torch.cat(regrets)

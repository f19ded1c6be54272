"""The loop of a run: ask, pull, tell, and what is measured meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


@dataclass
class PlayState:
    """How far a bandit has played.

    Args:
        played: the points of each batch, in order.
        seconds: of ask and tell so far.
        trace: what was measured so far but for the regret, which is measured at the end.
    """

    played: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    trace: Trace = field(default_factory=lambda: Trace([], [], [], []))

    @property
    def rounds(self) -> int:
        """Number of plays."""
        return sum(map(len, self.played))


def play(
    bandit: Bandit,
    environment: AnyEnvironment,
    rounds: int,
    *,
    record_every: int = 1,
    batch: int | str = 1,
    state: PlayState | None = None,
    keep_every: int | None = None,
    keep: Callable[[PlayState], None] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Trace:
    """Let a bandit play an environment and measure it.

    Args:
        bandit: told nothing yet, or what ``state`` says; for contexts one with ``ContextualActions``.
        environment: what is played. The bandit gets no time from a ``DynamicEnvironment``: its clock is its own rounds.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        batch: how many points are asked for at a time; "rule" asks for as many as the algorithm's rule allows. All
            rounds of a batch are recorded with the seconds and the dictionary after it, and they have one context, or
            one moment of a problem that changes: those of the first.
        state: where the bandit is, if it has played before; it is changed.
        keep_every: rounds between two calls of ``keep``, which come after a batch.
        keep: called with the state.
        watch: called with the number of plays so far, after every tell; its time is not measured.

    Raises:
        InputError: if the environment has fewer rounds; before anything is played.
    """
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(rounds)
    clock, center = time.perf_counter, environment.center
    contexts = environment if isinstance(environment, ContextualEnvironment) else None
    state = PlayState() if state is None else state
    trace, t = state.trace, state.rounds
    while t < rounds:
        before = t
        words: dict[str, Any] = {}
        if contexts is not None:
            candidates = contexts.candidates(t) if contexts.actions is None else None
            words = {"context": contexts.context(t)} | ({} if candidates is None else {"candidates": candidates})
        several: dict[str, Any] = {} if batch == 1 else {"q": None if batch == "rule" else min(int(batch), rounds - t)}
        started = clock()
        x = bandit.ask(**words, **several)[: rounds - t]
        asked = clock()
        X = x if contexts is None else contexts.joint_points(x, t)
        y = environment.pull(X, t) - center
        pulled = clock()
        bandit.tell(x, y, **{name: words[name] for name in words if name == "context"})
        state.seconds += clock() - pulled + asked - started
        state.played.append(X)
        t += len(X)
        while len(trace.rounds) < -(-rounds // record_every):
            due = min((len(trace.rounds) + 1) * record_every, rounds)
            if due > t:
                break
            trace.rounds.append(due)
            trace.seconds.append(state.seconds)
            trace.dictionary_size.append(len(getattr(bandit, "inducing_points", ())))
        if keep is not None and keep_every is not None and before // keep_every < t // keep_every and t < rounds:
            keep(state)
        if watch is not None:
            watch(t)
    regret = _regret(environment, state.played).double().cumsum(0)[torch.tensor(trace.rounds) - 1].tolist()
    return replace(trace, regret=regret)


def _regret(environment: AnyEnvironment, played: list[Tensor]) -> Tensor:
    """Return the pseudo-regret of every play, (T,); ``played`` has the points of each batch."""
    if not isinstance(environment, ContextualEnvironment | DynamicEnvironment):
        return torch.cat([environment.regret(X) for X in torch.cat(played).split(_REGRET_ROWS)])
    regrets, t = [], 0
    for X in played:
        regrets.append(environment.regret(X, t))
        t += len(X)
    return torch.cat(regrets)

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
class Progress:
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
    progress: Progress | None = None,
    keep_every: int | None = None,
    keep: Callable[[Progress], None] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Trace:
    """Let a bandit play an environment and measure it.

    Args:
        bandit: told nothing yet, or what ``progress`` says; for contexts one with ``ContextualActions``.
        environment: what is played. The bandit gets no time from a ``DynamicEnvironment``: its clock is its own rounds.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        batch: how many points are asked for at a time; "rule" asks for as many as the algorithm's rule allows. All
            rounds of a batch are recorded with the seconds and the dictionary after it, and they have one context, or
            one moment of a problem that changes: those of the first.
        progress: where the bandit is, if it has played before; it is changed.
        keep_every: rounds between two calls of ``keep``, which come after a batch.
        keep: called with the progress.
        watch: called with the number of plays so far, such as to show them, after every tell; its time is not measured.

    Raises:
        InputError: if the environment has fewer rounds; before anything is played.

    Cost: that of the bandit and the environment, and about 10 microseconds a round.
    """
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(rounds)
    clock, center = time.perf_counter, environment.center
    contexts = environment if isinstance(environment, ContextualEnvironment) else None
    progress = Progress() if progress is None else progress
    played, trace, t = progress.played, progress.trace, progress.rounds
    elsewhere = 0.0  # seconds that are the environment's

    def offered(contexts: ContextualEnvironment) -> dict[str, Any]:
        """Return what the present round brings."""
        nonlocal elsewhere
        started = clock()
        candidates = contexts.candidates(t)
        words = {"context": contexts.context(t)} | ({} if candidates is None else {"candidates": candidates})
        elsewhere += clock() - started
        return words

    def pull(x: Tensor) -> Tensor:
        """Return the rewards of points of the present round, after which comes another."""
        nonlocal elsewhere, t
        started = clock()
        X = x if contexts is None else contexts.joint_points(x, t)
        y = environment.pull(X, t)
        played.append(X)
        t += X.shape[0]
        elsewhere += clock() - started
        return y - center if center else y

    while t < rounds:
        started, before, elsewhere = clock(), t, 0.0
        kept = rounds if keep_every is None else (t // keep_every + 1) * keep_every
        until = min(_due(trace, record_every, rounds), kept, rounds)
        if batch == 1 and _runs(bandit):
            number = until - t if watch is None else 1
            bandit.run(pull, number, offered=None if contexts is None else lambda _: offered(contexts))
        else:
            words = {} if contexts is None else offered(contexts)
            several: dict[str, Any] = {"q": None if batch == "rule" else min(int(batch), rounds - t)}
            x = bandit.ask(**words, **({} if batch == 1 else several))[: rounds - t]
            bandit.tell(x, pull(x), **{name: words[name] for name in words if name == "context"})
        progress.seconds += clock() - started - elsewhere
        while len(trace.rounds) < -(-rounds // record_every) and (due := _due(trace, record_every, rounds)) <= t:
            trace.rounds.append(due)
            trace.seconds.append(progress.seconds)
            trace.dictionary_size.append(len(getattr(bandit, "inducing_points", ())))
        if keep is not None and keep_every is not None and before // keep_every < t // keep_every and t < rounds:
            keep(progress)
        if watch is not None:
            watch(t)
    regret = _regret(environment, played).double().cumsum(0)[torch.tensor(trace.rounds) - 1].tolist()
    return replace(trace, regret=regret)


def _runs(bandit: Bandit) -> bool:
    """Say whether ``run`` does what asking and telling would: not if a subclass, or what is no bandit, has its own."""
    kind = type(bandit)
    return isinstance(bandit, Bandit) and (kind.ask, kind.tell) == (Bandit.ask, Bandit.tell)


def _due(trace: Trace, record_every: int, rounds: int) -> int:
    """Return the next round to record."""
    return min((len(trace.rounds) + 1) * record_every, rounds)


def _regret(environment: AnyEnvironment, played: list[Tensor]) -> Tensor:
    """Return the pseudo-regret of every play, (T,); ``played`` has the points of each batch."""
    if not isinstance(environment, ContextualEnvironment | DynamicEnvironment):
        return torch.cat([environment.regret(X) for X in torch.cat(played).split(_REGRET_ROWS)])
    regrets, t = [], 0
    for X in played:
        regrets.append(environment.regret(X, t))
        t += len(X)
    return torch.cat(regrets)

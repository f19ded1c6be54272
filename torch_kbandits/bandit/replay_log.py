"""Points that were asked for, as plain numbers for a log, and pending again from it to the last bit."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_kbandits import checks
from torch_kbandits.bandit.bandit import Bandit
from torch_kbandits.errors import InputError
from torch_kbandits.observations.history import checked_stages
from torch_kbandits.priors.learned import LastFit


def recorded(bandit: Bandit, number: int) -> dict[str, Any]:
    """Return so many points that were asked for last, and the stages that chose them, as lists that JSON holds exactly.

    Cost: O(what is returned).
    """
    pending = bandit._state.ledger.pending
    stages = None if pending.stages is None else pending.stages[-number:].tolist()
    return {"points": pending.points[-number:].tolist(), "stages": stages}


def ask_again(
    bandit: Bandit, points: Sequence[Sequence[float]], stages: Sequence[int] | None, time: Any = None
) -> tuple[int, ...]:
    """Make points pending that this bandit chose before, without choosing anew; return their ids.

    A choice made anew agrees to rounding alone where the posterior was computed afresh; these are what was answered.
    Points that were pending for too long by then are given up first, as when they were asked for.

    Args:
        bandit: in the state in which it chose them.
        points: rows (q, d), as ``recorded`` returned them: joint ones with contexts.
        stages: of each, as ``recorded`` returned them.
        time: that was given to ``ask``.

    Raises:
        InputError: if they do not fit; then nothing changes.
    """
    example, state = bandit.candidates.example, bandit._state
    X = torch.tensor(points, dtype=torch.float64).to(example)
    checks.points("the points of the log", X, dimension=example.shape[-1], like=example)
    known = None if stages is None else torch.tensor(stages, dtype=torch.long)
    if (known is None) != (state.ledger.pending.stages is None):
        raise InputError("The log is of a bandit with stages and this one has none, or the other way round.")
    known = checked_stages(known, X, bandit._config.num_stages)
    return bandit._mark(X, state.clock.moved_to(time, state.round), known)


def last_fits(bandit: Bandit) -> tuple[LastFit, ...]:
    """Return when the prior of rewards and those of outcomes were fitted last; nothing where none is learned."""
    config, state = bandit._config, bandit._state
    is_learned = any(each.learning for each in (config, *config.of_outcomes))
    return tuple(each.last_fit for each in (state, *state.outcomes)) if is_learned else ()

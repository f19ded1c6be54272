"""What was told, as plain columns of which a data frame is made."""

from typing import Any

from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Configurations
from torch_kbandits.candidates.timed import untimed


def history_columns(bandit: Bandit) -> dict[str, list[Any]]:
    """Return what was told as named columns, a row for each play: ``pandas.DataFrame(history_columns(bandit))``.

    The columns are ``round``; ``time`` where the bandit has a clock, dates as seconds since 1970; those of the context
    and the action by their names, ``x0, x1, …`` where there are none, of a parameter space the parameters; ``reward``,
    ``failed`` and each outcome by its name, ``nan`` where there is none; ``weight``, what the reward counts for now. A
    name that occurs twice gets its place as well. Cost: O(n d).
    """
    history, space = bandit.history, untimed(bandit.candidates)
    X = history.X[:, history.X.shape[-1] - space.example.shape[-1] :]
    columns: dict[str, list[Any]] = {"round": history.rounds.tolist()}
    if history.times is not None:
        columns["time"] = history.times.tolist()
    named = [] if space.names is None else list(space.names)
    names = [name or f"x{place}" for place, name in enumerate(named or [""] * X.shape[-1])]
    width = space.context_dim if isinstance(space, Configurations) else X.shape[-1]
    parts = list(zip(names, X.mT.tolist(), strict=True))[:width]
    if isinstance(space, Configurations):
        decoded = space.actions(X)
        keys = list(dict.fromkeys(key for each in decoded for key in each))
        parts += [(key, [each.get(key) for each in decoded]) for key in keys]
    parts += [("reward", history.Y.tolist()), ("failed", history.lost.tolist())]
    if history.outcomes is not None:
        parts += zip(bandit.outcomes, history.outcomes.mT.tolist(), strict=True)
    for name, values in [*parts, ("weight", bandit.weights.tolist())]:
        columns[name if name not in columns else f"{name}.{len(columns)}"] = values
    return columns

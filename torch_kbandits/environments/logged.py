"""What another policy did: contexts, actions, rewards and the probabilities with which the actions were chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import finite_rows
from torch_kbandits.environments.csv_files import Table, read_rows
from torch_kbandits.environments.options import nearest
from torch_kbandits.errors import InputError


@dataclass(frozen=True, eq=False)
class LoggedInteractions:
    """Interactions of a logging policy with the world, in order; one set of actions for all of them.

    Args:
        contexts: (n, c), n >= 1.
        actions: what was played: rows (n, a) like the contexts in dtype, or positions (n,) of dtype torch.int64 in a
            list of actions, which then are the rows of the identity.
        rewards: (n,), what came of them, in reward units.
        propensities: (n,) in (0, 1], the probability with which the logging policy chose the action in the context.
        action_names: what the positions stand for, in order; only with positions.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named; rows count from 0.
    """

    contexts: Tensor
    actions: Tensor
    rewards: Tensor
    propensities: Tensor
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        contexts = finite_rows("contexts", self.contexts, "(n, c) with n >= 1")
        object.__setattr__(self, "contexts", contexts)
        n = len(contexts)
        for name in ("rewards", "propensities"):
            value = checks.same_kind(name, checks.floating_tensor(name, getattr(self, name), contexts), contexts)
            if value.shape != (n,):
                raise InputError(f"{name} must be ({n},) like the contexts, got {checks.describe(value)}.")
            object.__setattr__(self, name, value)
        checks.finite("rewards", self.rewards)
        object.__setattr__(self, "actions", self._checked_actions(n))
        # A NaN is in no interval.
        outside = (~((self.propensities > 0.0) & (self.propensities <= 1.0))).nonzero().flatten().tolist()
        if outside:
            raise InputError(
                f"propensities must lie in (0, 1]: {len(outside)} row(s) do not, the first is row {outside[0]} with "
                f"{float(self.propensities[outside[0]])}. An action of probability 0 cannot have been logged."
            )

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def action_set(self) -> Tensor:
        """The distinct actions (A, a), in order of their positions or else sorted; give these to a bandit."""
        if self.actions.dim() == 2:
            return torch.unique(self.actions, dim=0)
        size = int(self.actions.max()) + 1 if self.action_names is None else len(self.action_names)
        return torch.eye(size, dtype=self.contexts.dtype, device=self.contexts.device)

    @property
    def action_rows(self) -> Tensor:
        """What was played, as rows (n, a) of ``action_set``."""
        return self.actions if self.actions.dim() == 2 else self.action_set[self.actions]

    def _checked_actions(self, n: int) -> Tensor:
        actions = self.actions
        if not isinstance(actions, Tensor):
            given = checks.listed("actions", actions)
            if isinstance(given, list) and all(type(each) is int for each in given):
                actions = torch.tensor(given, dtype=torch.int64, device=self.contexts.device)
        if isinstance(actions, Tensor) and actions.dtype == torch.int64:
            if actions.shape != (n,) or actions.device != self.contexts.device:
                raise InputError(f"positions must be ({n},) like the contexts, got {checks.describe(actions)}.")
            known = None if self.action_names is None else len(self.action_names)
            wrong = (actions < 0) | (False if known is None else actions >= known)
            if bool(wrong.any()):
                row = int(wrong.nonzero()[0])
                end = "" if known is None else f" and below {known}, the number of names"
                raise InputError(f"positions must be at least 0{end}; row {row} has {int(actions[row])}.")
            return actions
        actions = checks.points("actions", actions, like=self.contexts)
        if actions.dim() != 2 or len(actions) != n:
            raise InputError(
                f"actions must be ({n}, a), or ({n},) of dtype torch.int64, got {checks.describe(actions)}."
            )
        if self.action_names is not None:
            raise InputError("action_names are for positions (n,) of dtype torch.int64; these actions are rows.")
        return actions


def read_log(
    path: str | Path,
    context_columns: Sequence[str],
    action_columns: str | Sequence[str],
    reward_column: str,
    propensity_column: str,
    *,
    delimiter: str = ",",
) -> LoggedInteractions:
    """Return the interactions of a CSV file, in double precision.

    Args:
        path: the file, UTF-8; rows are interactions in order, the first row names the columns.
        context_columns: numbers, at least one column.
        action_columns: the name of one column of labels, any text, which become positions in alphabetical order with
            ``action_names``; or a list of names of columns with numbers, which become rows.
        reward_column: numbers.
        propensity_column: numbers in (0, 1].
        delimiter: between cells.

    Raises:
        InputError: if the file cannot be read, has no interactions, lacks a column or has it twice, a row has another
            length, or a cell is empty or does not fit; the message has the line and the column, both from 1.
    """
    (_, names), *rows = read_rows("path", path, delimiter)
    table = Table(path, names, rows)
    labels = None
    actions: list[int] = []
    if isinstance(action_columns, str):
        labels = _column(table, action_columns)
    else:
        actions = _columns(table, "action_columns", action_columns)
    contexts = _columns(table, "context_columns", context_columns)
    reward, propensity = _column(table, reward_column), _column(table, propensity_column)
    if not rows:
        raise InputError(f"{path} has a header and no interactions.")

    def read(column: int) -> Tensor:
        return torch.tensor([table.number(line, column, cells[column]) for line, cells in rows], dtype=torch.float64)

    propensities = read(propensity)
    for (line, _), value in zip(rows, propensities.tolist(), strict=True):
        if not 0.0 < value <= 1.0:
            raise InputError(
                f"{table.place(line, propensity)}: a propensity must lie in (0, 1], got {value:g}. An action of "
                "probability 0 cannot have been logged."
            )
    rest = read(reward), propensities
    context = torch.stack([read(column) for column in contexts], dim=1)
    if labels is None:
        return LoggedInteractions(context, torch.stack([read(column) for column in actions], dim=1), *rest)
    for line, cells in rows:
        if not cells[labels]:
            raise InputError(f"{table.place(line, labels)}: the action is missing. Fill it, or leave the row out.")
    known = sorted({cells[labels] for _, cells in rows})
    positions = {name: i for i, name in enumerate(known)}
    return LoggedInteractions(
        context, torch.tensor([positions[cells[labels]] for _, cells in rows]), *rest, tuple(known)
    )


def _columns(table: Table, name: str, value: Sequence[str]) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise InputError(f"{name} must be a list of at least one column name, got {checks.describe(value)}.")
    return [_column(table, each) for each in value]


def _column(table: Table, name: str) -> int:
    if not isinstance(name, str):
        raise InputError(f"A column is named by a string, got {checks.describe(name)}.")
    if table.names.count(name) != 1:
        if name in table.names:
            raise InputError(f"{table.path} has two columns {name!r}.")
        listed = f"{nearest(name, table.names)}; it has {', '.join(table.names)}"
        raise InputError(f"{table.path} has no column {name!r}{listed}.")
    return table.names.index(name)

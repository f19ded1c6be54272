"""What another policy did: contexts, actions, rewards and the probabilities with which the actions were chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.csv_cells import number, place, read_lines
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
        checks.keep(self, contexts=checks.points)
        contexts = self.contexts
        if contexts.dim() != 2 or len(contexts) == 0:
            raise InputError(f"contexts must be (n, c) with n >= 1, got {checks.describe(contexts)}.")
        n = len(contexts)
        for name in ("rewards", "propensities"):
            value = checks.floating_tensor(name, getattr(self, name), contexts)
            object.__setattr__(self, name, checks.same_kind(name, value, contexts))
            if value.shape != (n,):
                raise InputError(f"{name} must be ({n},) like the contexts, got {checks.describe(value)}.")
        checks.finite("rewards", self.rewards)
        self._check_actions(n)
        # A NaN is in no interval.
        outside = (~((self.propensities > 0.0) & (self.propensities <= 1.0))).nonzero().flatten().tolist()
        if outside:
            first = outside[0]
            raise InputError(
                f"propensities must lie in (0, 1]: {len(outside)} row(s) do not, the first is row {first} with "
                f"{float(self.propensities[first])}. An action of probability 0 cannot have been logged."
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

    def _check_actions(self, n: int) -> None:
        given = None if isinstance(self.actions, Tensor) else checks.listed("actions", self.actions)
        if isinstance(given, list) and all(type(each) is int for each in given):
            object.__setattr__(self, "actions", torch.tensor(given, dtype=torch.int64, device=self.contexts.device))
        if isinstance(self.actions, Tensor) and self.actions.dtype == torch.int64:
            known = None if self.action_names is None else len(self.action_names)
            if self.actions.shape != (n,) or self.actions.device != self.contexts.device:
                raise InputError(f"positions must be ({n},) like the contexts, got {checks.describe(self.actions)}.")
            wrong = (self.actions < 0) | (False if known is None else self.actions >= known)
            if bool(wrong.any()):
                row = int(wrong.nonzero()[0])
                end = "" if known is None else f" and below {known}, the number of names"
                raise InputError(f"positions must be at least 0{end}; row {row} has {int(self.actions[row])}.")
            return
        object.__setattr__(self, "actions", checks.points("actions", self.actions, like=self.contexts))
        if self.actions.dim() != 2 or len(self.actions) != n:
            raise InputError(
                f"actions must be ({n}, a), or ({n},) of dtype torch.int64, got {checks.describe(self.actions)}."
            )
        if self.action_names is not None:
            raise InputError("action_names are for positions (n,) of dtype torch.int64; these actions are rows.")


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
    contexts = _list_of_names("context_columns", context_columns)
    labelled = isinstance(action_columns, str)
    rows = [] if labelled else _list_of_names("action_columns", action_columns)
    (_, header), *lines = read_lines("path", path, delimiter)
    names = [cell.strip() for cell in header]
    wanted = {name: _column(path, names, name) for name in (*contexts, *rows, reward_column, propensity_column)}
    label = _column(path, names, action_columns) if labelled else None
    values: dict[str, list[float]] = {name: [] for name in wanted}
    labels: list[str] = []
    for line, cells in lines:
        if len(cells) != len(names):
            raise InputError(f"{path}, line {line}: expected {len(names)} cells, got {len(cells)}.")
        for name, column in wanted.items():
            values[name].append(_value(path, line, column, names, cells[column], name == propensity_column))
        if label is not None:
            labels.append(_label(path, line, label, names, cells[label]))
    if not lines:
        raise InputError(f"{path} has a header and no interactions.")
    table = {name: torch.tensor(column, dtype=torch.float64) for name, column in values.items()}
    known = tuple(sorted(set(labels)))
    positions = {name: i for i, name in enumerate(known)}
    return LoggedInteractions(
        torch.stack([table[name] for name in contexts], dim=1),
        torch.tensor([positions[name] for name in labels]) if labelled else torch.stack([table[r] for r in rows], 1),
        table[reward_column],
        table[propensity_column],
        known if labelled else None,
    )


def _list_of_names(name: str, value: Sequence[str]) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise InputError(f"{name} must be a list of at least one column name, got {checks.describe(value)}.")
    return list(value)


def _column(path: str | Path, names: list[str], name: str) -> int:
    if not isinstance(name, str):
        raise InputError(f"A column is named by a string, got {checks.describe(name)}.")
    if names.count(name) != 1:
        problem = "two columns" if name in names else "no column"
        hint = "" if name in names else f"{nearest(name, names)}; it has {', '.join(names)}"
        raise InputError(f"{path} has {problem} {name!r}{hint}.")
    return names.index(name)


def _value(path: str | Path, line: int, column: int, names: list[str], cell: str, propensity: bool) -> float:
    value = number(path, line, column, names, cell)
    if value is None:
        raise InputError(f"{place(path, line, column, names)}: the value is missing. Fill it, or leave the row out.")
    if propensity and not 0.0 < value <= 1.0:
        raise InputError(
            f"{place(path, line, column, names)}: a propensity must lie in (0, 1], got {cell.strip()}. An action of "
            "probability 0 cannot have been logged."
        )
    return value


def _label(path: str | Path, line: int, column: int, names: list[str], cell: str) -> str:
    if not cell.strip():
        raise InputError(f"{place(path, line, column, names)}: the action is missing. Fill it, or leave the row out.")
    return cell.strip()

"""A set of candidates that a data frame lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from ax.core.parameter import FixedParameter, Parameter
from ax.core.search_space import SearchSpace

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Rows that an error message shows at most.
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The only parameterizations that may be tried; a value, saved once with the experiment.

    Attributes:
        columns: the values of each parameter, all of one length.
    """

    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Return the rows of a data frame with a column for each parameter.

        Raises:
            InputError: if it is no data frame, has no rows, a column twice, or a missing value.
        """
        checks.instance("candidates", frame, pd.DataFrame, "a pandas data frame with a column for each parameter")
        twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
        if twice:
            raise InputError(f"candidates has more than one column of the name(s) {twice}.")
        if frame.shape[0] == 0 or frame.shape[1] == 0:
            raise InputError(f"candidates must have at least one row and one column, got shape {frame.shape}.")
        missing = frame.isna().to_numpy()
        if missing.any():
            row, column = (int(number) for number in np.argwhere(missing)[0])
            raise InputError(
                f"candidates must have no missing values: {int(missing.sum())} are NaN or None, the first in column "
                f"{frame.columns[column]!r}, row {row} (counted from 0). Leave such rows out, as candidates.dropna() "
                "does."
            )
        return cls({str(name): frame[name].tolist() for name in frame.columns})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The parameterizations, one for each row."""
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]

    def within(self, space: SearchSpace) -> Self:
        """Return the pool with values of the types of a search space.

        Raises:
            InputError: if a column is no parameter, or a value is outside the space.
        """
        unknown = [name for name in self.names if name not in space.parameters]
        if unknown:
            raise InputError(
                f"candidates has the column(s) {unknown}, which are no parameters; those are "
                f"{list(space.parameters)}. Leave the column(s) out, as candidates.drop(columns={unknown}) does."
            )
        return type(self)({name: _cast(space.parameters[name], values) for name, values in self.columns.items()})

    def matching(self, fixed: Mapping[str, Any], space: SearchSpace) -> list[dict[str, Any]]:
        """Return the rows that agree with fixed parameters and keep all constraints, at least one.

        Raises:
            InputError: if a parameter is neither a column nor fixed, or no row agrees or keeps the constraints.
        """
        needed = [name for name, parameter in space.parameters.items() if not isinstance(parameter, FixedParameter)]
        absent = [name for name in needed if name not in self.columns and name not in fixed]
        if absent:
            raise InputError(
                f"candidates lacks the column(s) {absent}: add them, or give their values with every call, "
                "get_next_trials(..., fixed_parameters={...})."
            )
        agrees = np.ones(len(self), dtype=bool)
        for name, value in fixed.items():
            if name in self.columns:
                agrees &= np.array([candidate == value for candidate in self.columns[name]])
        if not agrees.any():
            raise InputError(
                f"No row of candidates has the fixed parameters {dict(fixed)}. Leave the columns of a context out of "
                "candidates if every row may be tried in every context."
            )
        constraints = space.parameter_constraints
        if constraints:
            agrees &= np.array([all(each.check({**row, **fixed}) for each in constraints) for row in self.rows])
        if not agrees.any():
            raise InputError(
                f"No row of candidates keeps the constraints {constraints} with the fixed parameters {dict(fixed)}: "
                "add rows that do."
            )
        return [self.rows[number] for number in agrees.nonzero()[0]]


def _cast(parameter: Parameter, values: Sequence[Any]) -> list[Any]:
    """Return values in the type of a parameter; refuse those that it does not take."""
    cast: list[Any] = []
    outside: list[int] = []
    for row, value in enumerate(values):
        try:
            converted: Any = parameter.cast(value)
        except (TypeError, ValueError):
            converted = None
        if converted is None or converted != value or not parameter.validate(converted):
            outside.append(row)
        cast.append(converted)
    if outside:
        shown = ", ".join(f"{values[row]!r} in row {row}" for row in outside[:_SHOWN])
        raise InputError(
            f"candidates has {len(outside)} value(s) of {parameter.name!r} outside the search space, such as {shown} "
            f"(rows counted from 0): {parameter}."
        )
    return cast

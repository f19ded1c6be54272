"""A set of candidates that a data frame lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from ax.adapter.data_utils import ExperimentData
from ax.adapter.transforms.base import Transform
from ax.core.observation import ObservationFeatures
from ax.core.parameter import FixedParameter, Parameter
from ax.core.search_space import SearchSpace
from torch import Tensor

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

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

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

    def matching(self, fixed: Mapping[str, Any], space: SearchSpace) -> Tensor:
        """Return the numbers (k,) of the rows that agree with fixed parameters and keep all constraints, k >= 1.

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
        return torch.from_numpy(agrees.nonzero()[0])

    def encoded(self, transforms: Sequence[Transform], names: Sequence[str]) -> Tensor:
        """Return the rows as the model sees them, (N, d), NaN where a row says nothing.

        Args:
            transforms: Ax's, fitted.
            names: the d parameters after them.

        Cost: O(N d) in Python.
        """
        features = [ObservationFeatures(parameters=dict(row)) for row in self.rows]
        for transform in transforms:
            features = transform.transform_observation_features(features)
        numbers = [[feature.parameters.get(name, np.nan) for name in names] for feature in features]
        return torch.tensor(numbers, dtype=torch.float64)


class ExactRows(Transform):
    """Undoes the rounding of Ax's other transforms: what was chosen from a pool is a row of it to the last digit."""

    no_op_for_experiment_data = True

    def __init__(
        self,
        search_space: SearchSpace | None = None,
        experiment_data: ExperimentData | None = None,
        adapter: Any = None,
        config: Any = None,
        *,
        pool: CandidatePool,
    ) -> None:
        super().__init__(search_space=search_space, experiment_data=experiment_data, adapter=adapter, config=config)
        self._names = pool.names
        self._rows = {_key(row, self._names): row for row in pool.rows}

    def untransform_observation_features(
        self, observation_features: list[ObservationFeatures]
    ) -> list[ObservationFeatures]:
        """Put the row in the place of what is one up to rounding."""
        for feature in observation_features:
            if all(name in feature.parameters for name in self._names):
                feature.parameters.update(self._rows.get(_key(feature.parameters, self._names), {}))
        return observation_features


def _key(parameters: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Return a key that numbers share which agree in ten digits."""
    return tuple(f"{value:.10g}" if isinstance(value, float) else value for value in map(parameters.get, names))


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

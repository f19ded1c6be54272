"""Search spaces of Ax as spaces of this package, which experiments these strategies take, and lists of candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, LinearConstraint, Parameter, ParameterSpace

_TAKEN = (
    "float and int ranges (linear or log), ordered and unordered choices of numbers, strings or booleans, and fixed "
    "values"
)

#: What a parameter must not be, by Ax's attribute that says so.
_REFUSED = {
    "is_hierarchical": "hierarchical (others depend on its value)",
    "is_fidelity": "a fidelity",
    "is_task": "a task",
    "logit_scale": "on a logit scale",
}

Parameters = Mapping[str, Any]


class TrialSpace:
    """The parameterizations of a search space, some of their parameters fixed, as points of the unit cube.

    Attributes:
        whole: the space of all parameters that are not constant.
        names: of the parameters of several values.
        order: of each column its place in the space of all, (d,).
        context: the columns of those that are fixed, (c,), which come first.
        free: the space of those that are not; None where nothing is left to choose.
    """

    def __init__(self, space: SearchSpace, fixed: Parameters) -> None:
        constant = {name: each.value for name, each in space.parameters.items() if isinstance(each, FixedParameter)}
        kinds = {name: _kind(each) for name, each in space.parameters.items() if name not in constant}
        self._parameters, self._given = list(space.parameters), {**constant, **fixed}
        self.names = [name for name, kind in kinds.items() if kind.count > 1]
        self.whole = ParameterSpace(kinds)
        self.free, left = None, {name: kind for name, kind in kinds.items() if name not in fixed}
        if any(kind.count > 1 for kind in left.values()):
            bounds = [each for each in space.parameter_constraints if each.constraint_dict.keys() - fixed.keys()]
            self.free = ParameterSpace(left, [_without(fixed, each) for each in bounds])
        held = [self.free is not None and self.names[group] in fixed for group in self.whole.groups]
        self.order = torch.tensor(held).logical_not().long().argsort(stable=True)
        self.context = torch.zeros(0, dtype=torch.float64)
        if any(held):
            self.context = ParameterSpace({name: kinds[name] for name in kinds if name in fixed}).encode([fixed])[0]

    def points(self, rows: Sequence[Parameters]) -> Tensor:
        """Return parameterizations as points (n, d), whatever is fixed now."""
        return self.whole.encode(rows)[:, self.order]

    def completed(self, rows: Sequence[Parameters]) -> list[Parameters]:
        """Return parameterizations with what is fixed and constant."""
        return [{name: self._given.get(name, row.get(name)) for name in self._parameters} for row in rows]


def _kind(parameter: Any) -> Parameter:
    if isinstance(parameter, RangeParameter):
        kind: Any = Integer if parameter.parameter_type is ParameterType.INT else Float
        return kind(parameter.lower, parameter.upper, log=parameter.log_scale)
    return Categorical(parameter.values, is_ordered=bool(parameter.is_ordered) and len(parameter.values) > 2)


def _without(fixed: Parameters, constraint: Any) -> LinearConstraint:
    """Return what a constraint leaves to the parameters that are not fixed."""
    weights = {name: weight for name, weight in constraint.constraint_dict.items() if name not in fixed}
    taken = sum(weight * fixed[name] for name, weight in constraint.constraint_dict.items() if name in fixed)
    return LinearConstraint(weights, constraint.bound - taken)


def check_experiment(experiment: Experiment) -> None:
    """Refuse an experiment with other parameters, constraints or goals than are taken."""
    space, goal = experiment.search_space, experiment.optimization_config
    for name, parameter in space.parameters.items():
        wrong = [words for flag, words in _REFUSED.items() if getattr(parameter, flag, False)]
        if wrong or not isinstance(parameter, RangeParameter | ChoiceParameter | FixedParameter):
            what = wrong[0] if wrong else f"a {type(parameter).__name__}"
            raise InputError(f"The parameter {name!r} is {what}; what works is {_TAKEN}.")
    for constraint in space.parameter_constraints:
        others = [name for name in constraint.constraint_dict if not isinstance(space.parameters[name], RangeParameter)]
        if constraint.is_equality or others:
            raise InputError(
                f"The constraint {constraint} is {f'on the choice(s) {others}' if others else 'an equality'}; what "
                "works is linear inequalities of ranges. With candidates=, list the parameterizations that keep it."
            )
    if goal is None:
        raise InputError("There is no objective: call configure_optimization first.")
    sums = [list(goal.objective.metric_names)] if goal.objective.is_scalarized_objective else []
    sums += [list(each) for each in goal.objective._parsed[1] if len(each) > 1]
    sums += [list(each.metric_names) for each in goal.outcome_constraints if len(each.metric_names) > 1]
    if sums:
        raise InputError(
            f"Single metrics can be optimised and limited, and not the sum of {sums[0]}: report it as a metric of its "
            "own."
        )


def check_fixed(fixed: Parameters, space: SearchSpace) -> Parameters:
    """Return fixed parameters, or refuse those that are not of the search space or break a constraint."""
    for name, value in fixed.items():
        _value_of("fixed_parameters has", space, name, value)
    for constraint in space.parameter_constraints:
        if constraint.constraint_dict.keys() <= fixed.keys() and not constraint.check(dict(fixed)):
            raise InputError(f"fixed_parameters {dict(fixed)} break the constraint {constraint}.")
    return fixed


def _value_of(who: str, space: SearchSpace, name: str, value: Any) -> Any:
    """Return a value in the type of a parameter, or refuse one that it does not take."""
    parameter: Any = space.parameters.get(name)
    if parameter is None:
        raise InputError(f"{who} {name!r}, which is no parameter; those are {list(space.parameters)}. Leave it out.")
    try:
        found = parameter.cast(value)
        if found == value and parameter.validate(found):
            return found
    except (TypeError, ValueError):
        pass
    raise InputError(f"{who} {name!r} = {value!r}, outside {parameter}.")


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a data frame of candidates by name, or refuse what is none."""
    checks.instance("candidates", frame, pd.DataFrame, "a pandas data frame with a column for each parameter")
    missing = int(frame.isna().to_numpy().sum())
    if 0 in frame.shape or not frame.columns.is_unique or missing:
        raise InputError(
            "candidates must have at least one row, columns of different names and no missing values; got shape "
            f"{frame.shape}, columns {list(frame.columns)} and {missing} value(s) that are NaN or None. "
            "candidates.dropna() leaves such rows out."
        )
    return {str(name): frame[name].tolist() for name in frame.columns}


def rows_within(columns: Mapping[str, Sequence[Any]], space: SearchSpace) -> list[dict[str, Any]]:
    """Return candidates as rows, with values of the types of a search space, or refuse those outside."""
    return [
        {
            name: _value_of(f"Row {number} of candidates (counted from 0) has", space, name, value)
            for name, value in zip(columns, values, strict=True)
        }
        for number, values in enumerate(zip(*columns.values(), strict=True))
    ]


def rows_matching(rows: Sequence[Parameters], fixed: Parameters, space: SearchSpace) -> list[Parameters]:
    """Return the candidates that agree with fixed parameters and keep all constraints, or refuse if there is none."""
    needed = [name for name, parameter in space.parameters.items() if not isinstance(parameter, FixedParameter)]
    if absent := [name for name in needed if name not in rows[0] and name not in fixed]:
        raise InputError(
            f"candidates lacks the column(s) {absent}: add them, or give their values with every call, "
            "get_next_trials(..., fixed_parameters={...})."
        )
    constraints = space.parameter_constraints
    agreeing = [row for row in rows if all(row.get(name, value) == value for name, value in fixed.items())]
    found = [row for row in agreeing if all(each.check({**row, **fixed}) for each in constraints)]
    if not found:
        raise InputError(
            f"No row of candidates has the fixed parameters {dict(fixed)} and keeps the constraints {constraints}. "
            "Leave the columns of a context out of candidates if every row may be tried in every context."
        )
    return found

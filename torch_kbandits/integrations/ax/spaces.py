"""Search spaces of Ax as spaces of this package, which experiments these strategies take, and lists of candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, LinearConstraint, Parameter, ParameterSpace

_TAKEN = "float and int ranges (linear or log), choices of numbers, strings or booleans, and fixed values"

#: What a parameter must not be, by Ax's attribute that says so.
_REFUSED = {
    "is_hierarchical": "hierarchical (others depend on its value)",
    "is_fidelity": "a fidelity",
    "is_task": "a task",
    "logit_scale": "on a logit scale",
}

Parameters = Mapping[str, Any]


class TrialSpace:
    """The parameterizations of a search space, some of their parameters fixed: in ``encoded`` these are held.

    Where they are listed, by columns, ``rows`` are those that may be tried; none where all may.
    """

    def __init__(self, space: SearchSpace, fixed: Parameters, listed: Mapping[str, Sequence[Any]] | None) -> None:
        _within("fixed_parameters has", fixed, space)
        for constraint in space.parameter_constraints:
            if constraint.constraint_dict.keys() <= fixed.keys() and not constraint.check(dict(fixed)):
                raise InputError(f"fixed_parameters {dict(fixed)} break the constraint {constraint}.")
        constant = {name: each.value for name, each in space.parameters.items() if isinstance(each, FixedParameter)}
        kinds = {name: _kind(each) for name, each in space.parameters.items() if name not in constant}
        limits = [LinearConstraint(each.constraint_dict, each.bound) for each in space.parameter_constraints]
        self.encoded = ParameterSpace(kinds, limits, {name: fixed[name] for name in kinds if name in fixed})
        self.is_free = any(kind.count > 1 and name not in fixed for name, kind in kinds.items())
        self._parameters, self._given = list(space.parameters), {**constant, **fixed}
        self.rows = [] if listed is None else _rows_matching(listed, fixed, space)

    def points(self, rows: Sequence[Parameters]) -> Tensor:
        """Return parameterizations as points (n, d), whatever is fixed now."""
        return self.encoded.encode(rows)

    def completed(self, rows: Sequence[Parameters]) -> list[Parameters]:
        """Return parameterizations with what is fixed and constant."""
        return [{name: self._given.get(name, row.get(name)) for name in self._parameters} for row in rows]


def _kind(parameter: Any) -> Parameter:
    if isinstance(parameter, RangeParameter):
        kind: Any = Integer if parameter.parameter_type is ParameterType.INT else Float
        return kind(parameter.lower, parameter.upper, log=parameter.log_scale)
    return Categorical(parameter.values, is_ordered=bool(parameter.is_ordered) and len(parameter.values) > 2)


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
        raise InputError(f"Single metrics can be optimised and limited, not the sum of {sums[0]}: report it as one.")


def _within(who: str, row: Parameters, space: SearchSpace) -> dict[str, Any]:
    """Return values in the types of the parameters of a search space, or refuse those that it does not take."""
    found = {}
    for name, value in row.items():
        parameter: Any = space.parameters.get(name)
        if parameter is None:
            raise InputError(f"{who} {name!r}, which is no parameter of {list(space.parameters)}: leave it out.")
        try:
            found[name] = parameter.cast(value)
            is_within = found[name] == value and parameter.validate(found[name])
        except (TypeError, ValueError):
            is_within = False
        if not is_within:
            raise InputError(f"{who} {name!r} = {value!r}, outside {parameter}.")
    return found


def _rows_matching(
    candidates: Mapping[str, Sequence[Any]], fixed: Parameters, space: SearchSpace
) -> list[dict[str, Any]]:
    """Return the candidates, given by columns, that agree with fixed parameters and keep all constraints, as rows."""
    needed = [name for name, parameter in space.parameters.items() if not isinstance(parameter, FixedParameter)]
    if absent := [name for name in needed if name not in candidates and name not in fixed]:
        raise InputError(
            f"candidates lacks the column(s) {absent}: add them, or give their values with every call, "
            "get_next_trials(..., fixed_parameters={...})."
        )
    rows = [dict(zip(candidates, values, strict=True)) for values in zip(*candidates.values(), strict=True)]
    rows = [_within(f"Row {number} of candidates (counted from 0) has", row, space) for number, row in enumerate(rows)]
    agreeing = [row for row in rows if all(row.get(name, value) == value for name, value in fixed.items())]
    found = [row for row in agreeing if all(each.check({**row, **fixed}) for each in space.parameter_constraints)]
    if not found:
        raise InputError(
            f"No row of candidates has the fixed parameters {dict(fixed)} and keeps the constraints "
            f"{space.parameter_constraints}. Leave the columns of a context out of candidates if every row may be "
            "tried in every context."
        )
    return found

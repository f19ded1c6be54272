"""Search spaces of Ax as spaces of this package, and which experiments these strategies take."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter import Parameter as AxParameter
from ax.core.search_space import SearchSpace
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, LinearConstraint, Parameter, ParameterSpace

_TAKEN = (
    "float and int ranges (linear or log), ordered and unordered choices of numbers, strings or booleans, and fixed "
    "values"
)

Parameters = Mapping[str, Any]


class TrialSpace:
    """The parameterizations of a search space, some of their parameters fixed, as points of the unit cube.

    An ordered choice is a whole number, its place in the list; everything else is what it is in ``ParameterSpace``.

    Attributes:
        whole: the space of all parameters that are not constant.
        names: of the parameters of several values.
        order: of each column its place in the space of all, (d,).
        context: the columns of those that are fixed, (c,), which come first.
        free: the space of those that are not; None where nothing is left to choose.
    """

    def __init__(self, space: SearchSpace, fixed: Parameters) -> None:
        known = {name: each for name, each in space.parameters.items() if not isinstance(each, FixedParameter)}
        constant = {name: each.value for name, each in space.parameters.items() if isinstance(each, FixedParameter)}
        self._parameters, self._given = list(space.parameters), {**constant, **fixed}
        self._choices = {name: cast(ChoiceParameter, each).values for name, each in known.items() if _is_ordered(each)}
        kinds = {name: _kind(each) for name, each in known.items()}
        self.names = [name for name, kind in kinds.items() if kind.count > 1]
        self.whole = ParameterSpace(kinds)
        self.free, left = None, {name: kind for name, kind in kinds.items() if name not in fixed}
        if any(kind.count > 1 for kind in left.values()):
            bounds = [each for each in space.parameter_constraints if each.constraint_dict.keys() - fixed.keys()]
            self.free = ParameterSpace(left, [_without(fixed, each) for each in bounds])
        held = [self.free is not None and self.names[group] in fixed for group in self.whole.groups]
        self.order = torch.tensor(held).logical_not().long().argsort(stable=True)
        chosen = {name: kind for name, kind in kinds.items() if name in fixed}
        self.context = (
            ParameterSpace(chosen).encode([self._placed(fixed)])[0]
            if any(held)
            else torch.zeros(0, dtype=torch.float64)
        )

    def points(self, rows: Sequence[Parameters]) -> Tensor:
        """Return parameterizations as points (n, d), whatever is fixed now."""
        return self.whole.encode([self._placed(row) for row in rows])[:, self.order]

    def completed(self, rows: Sequence[Parameters]) -> list[Parameters]:
        """Return parameterizations with what is fixed and constant."""
        return [{name: self._given.get(name, row.get(name)) for name in self._parameters} for row in rows]

    def configurations(self, rows: Sequence[Parameters]) -> list[Parameters]:
        """Return configurations of ``free`` as parameterizations."""
        return self.completed(
            [
                {name: self._choices[name][value] if name in self._choices else value for name, value in row.items()}
                for row in rows
            ]
        )

    def _placed(self, row: Parameters) -> Parameters:
        """Return a parameterization with the places of ordered choices."""
        choices = self._choices
        return {name: choices[name].index(value) if name in choices else value for name, value in row.items()}


def check_space(space: SearchSpace) -> None:
    """Refuse a search space that is not taken.

    Raises:
        InputError: if a parameter is of another kind, or a constraint on them is no inequality of ranges.
    """
    for parameter in space.parameters.values():
        wrong = _what_is_wrong(parameter)
        if wrong is not None:
            raise InputError(f"The parameter {parameter.name!r} is {wrong}; what works is {_TAKEN}.")
    for constraint in space.parameter_constraints:
        others = [name for name in constraint.constraint_dict if not isinstance(space.parameters[name], RangeParameter)]
        if constraint.is_equality or others:
            raise InputError(
                f"The constraint {constraint} is {f'on the choice(s) {others}' if others else 'an equality'}; what "
                "works is linear inequalities of ranges. With candidates=, list the parameterizations that keep it."
            )


def check_goals(experiment: Experiment) -> None:
    """Refuse goals other than metrics to be maximised or minimised, within limits on single metrics.

    Raises:
        InputError: if there is no objective, or a sum of metrics.
    """
    goal = experiment.optimization_config
    if goal is None:
        raise InputError("There is no objective: call configure_optimization first.")
    if goal.objective.is_scalarized_objective or any(len(each) > 1 for each in goal.objective._parsed[1]):
        raise InputError(
            f"Metrics can be optimised, and the objective has a sum of {list(goal.objective.metric_names)}. Report a "
            'score of your own as the metric, and configure_optimization(objective="score").'
        )
    for constraint in goal.outcome_constraints:
        if len(constraint.metric_names) != 1:
            raise InputError(
                f"Single metrics can be limited, and {constraint.expression!r} is a sum. Report it as a metric of its "
                "own."
            )


def check_fixed(fixed: Parameters, space: SearchSpace) -> Parameters:
    """Return fixed parameters if the search space has them.

    Raises:
        InputError: if one is no parameter, or has a value outside the space, or they leave no way to keep a constraint.
    """
    for name, value in fixed.items():
        if name not in space.parameters:
            raise InputError(
                f"fixed_parameters has {name!r}, which is no parameter; those are {list(space.parameters)}."
            )
        if not space.parameters[name].validate(value):
            raise InputError(f"fixed_parameters has {name!r} = {value!r}, outside {space.parameters[name]}.")
    for constraint in space.parameter_constraints:
        least = {name: _least(space, fixed, name, weight) for name, weight in constraint.constraint_dict.items()}
        if not constraint.check(least):
            raise InputError(
                f"fixed_parameters {dict(fixed)} break the constraint {constraint}, whatever the other parameters are."
            )
    return fixed


def _least(space: SearchSpace, fixed: Parameters, name: str, weight: float) -> float:
    """Return the value of a range that makes its term of a constraint least."""
    parameter = cast(RangeParameter, space.parameters[name])
    return float(fixed.get(name, parameter.lower if weight > 0.0 else parameter.upper))


def _kind(parameter: AxParameter) -> Parameter:
    if isinstance(parameter, RangeParameter):
        kind: Any = Integer if parameter.parameter_type is ParameterType.INT else Float
        return kind(parameter.lower, parameter.upper, log=parameter.log_scale)
    values = cast(ChoiceParameter, parameter).values
    return Integer(0, len(values) - 1) if _is_ordered(parameter) else Categorical(values)


def _is_ordered(parameter: AxParameter) -> bool:
    return isinstance(parameter, ChoiceParameter) and bool(parameter.is_ordered) and len(parameter.values) > 2


def _without(fixed: Parameters, constraint: Any) -> LinearConstraint:
    """Return what a constraint leaves to the parameters that are not fixed."""
    weights = {name: weight for name, weight in constraint.constraint_dict.items() if name not in fixed}
    taken = sum(weight * fixed[name] for name, weight in constraint.constraint_dict.items() if name in fixed)
    return LinearConstraint(weights, constraint.bound - taken)


def _what_is_wrong(parameter: AxParameter) -> str | None:
    if isinstance(parameter, ChoiceParameter | FixedParameter) and parameter.is_hierarchical:
        return "hierarchical (others depend on its value)"
    if parameter.is_fidelity:
        return "a fidelity"
    if isinstance(parameter, ChoiceParameter) and parameter.is_task:
        return "a task"
    if isinstance(parameter, RangeParameter) and parameter.logit_scale:
        return "on a logit scale"
    if not isinstance(parameter, RangeParameter | ChoiceParameter | FixedParameter):
        return f"a {type(parameter).__name__}"
    return None

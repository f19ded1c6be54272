"""What experiments these strategies take, checked before the first trial."""

from collections.abc import Mapping
from typing import Any, cast

from ax.core.experiment import Experiment
from ax.core.parameter import ChoiceParameter, FixedParameter, Parameter, RangeParameter
from ax.core.search_space import SearchSpace

from torch_kbandits.errors import InputError

_TAKEN = (
    "float and int ranges (linear or log), ordered and unordered choices of numbers, strings or booleans, and fixed "
    "values"
)


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


def check_objective(experiment: Experiment) -> None:
    """Refuse goals other than one metric, to be maximised or minimised.

    Raises:
        InputError: if there are several objectives, or a sum of metrics.
    """
    goal = experiment.optimization_config
    if goal is None:
        raise InputError("There is no objective: call configure_optimization first.")
    if goal.is_moo_problem or len(goal.objective.metric_names) != 1:
        raise InputError(
            f"One metric can be optimised, and the objective has {list(goal.objective.metric_names)}. Report a score "
            'of your own as the metric, and configure_optimization(objective="score").'
        )


def check_fixed(fixed: Mapping[str, Any], space: SearchSpace) -> Mapping[str, Any]:
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
        if not constraint.check(
            {name: _least(space, fixed, name, w) for name, w in constraint.constraint_dict.items()}
        ):
            raise InputError(
                f"fixed_parameters {dict(fixed)} break the constraint {constraint}, whatever the other parameters are."
            )
    return fixed


def _least(space: SearchSpace, fixed: Mapping[str, Any], name: str, weight: float) -> float:
    """Return the value of a range that makes its term of a constraint least."""
    parameter = cast(RangeParameter, space.parameters[name])
    return float(fixed.get(name, parameter.lower if weight > 0.0 else parameter.upper))


def _what_is_wrong(parameter: Parameter) -> str | None:
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

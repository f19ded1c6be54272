"""Distributions of Optuna as parameters of a space."""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace


def space_of(distributions: Mapping[str, BaseDistribution]) -> ParameterSpace:
    """Return the space of named distributions.

    Raises:
        InputError: if one is of another kind than Optuna's three, or has a range that double precision cannot hold; the
            message names the parameter.
    """
    return ParameterSpace({name: _parameter(name, distribution) for name, distribution in distributions.items()})


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    try:
        if isinstance(distribution, FloatDistribution):
            return Float(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
        if isinstance(distribution, IntDistribution):
            return Integer(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
        if isinstance(distribution, CategoricalDistribution):
            return Categorical(distribution.choices)
    except InputError as error:
        raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    raise InputError(
        f"parameter {name!r} has a {type(distribution).__name__}, which KernelBanditSampler does not know: use "
        "suggest_float, suggest_int or suggest_categorical."
    )


def values_in(
    parameters: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    space: Mapping[str, BaseDistribution],
) -> dict[str, Any] | None:
    """Return the part of a trial's parameters that a space has, or None if it lacks some or drew them elsewhere."""
    if any(name not in parameters or distributions.get(name, wanted) != wanted for name, wanted in space.items()):
        return None
    return {name: parameters[name] for name in space}

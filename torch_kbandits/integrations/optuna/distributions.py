"""Distributions of Optuna as parameters of a space."""

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace


def space_of(
    distributions: Mapping[str, BaseDistribution], conditions: Mapping[str, tuple[str, tuple[float, ...]]] | None = None
) -> ParameterSpace:
    """Return the space of named distributions.

    Args:
        distributions: by name.
        conditions: of those that are not always there, on which it depends and with which values: see ``Tree``.

    Raises:
        InputError: if one is of another kind than Optuna's three, or has a range that double precision cannot hold; the
            message names the parameter.
    """
    when = {
        name: {other: tuple(map(distributions[other].to_external_repr, values))}
        for name, (other, values) in (conditions or {}).items()
    }
    return ParameterSpace({name: _parameter(name, each, when.get(name, {})) for name, each in distributions.items()})


def _parameter(name: str, distribution: BaseDistribution, when: Mapping[str, Any]) -> Parameter:
    try:
        if isinstance(distribution, FloatDistribution):
            return Float(distribution.low, distribution.high, log=distribution.log, step=distribution.step, when=when)
        if isinstance(distribution, IntDistribution):
            return Integer(distribution.low, distribution.high, log=distribution.log, step=distribution.step, when=when)
        if isinstance(distribution, CategoricalDistribution):
            return Categorical(_told_apart(distribution.choices), when)
    except InputError as error:
        raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    raise InputError(
        f"parameter {name!r} has a {type(distribution).__name__}, which KernelBanditSampler does not know: use "
        "suggest_float, suggest_int or suggest_categorical."
    )


def _told_apart(choices: Sequence[Any]) -> list[Any]:
    """Return the choices without those that Optuna takes for an earlier one, such as 1 after True."""
    try:
        return list(dict.fromkeys(choices))
    except TypeError:  # lists and dicts, which have no hash
        return [choice for number, choice in enumerate(choices) if choices.index(choice) == number]

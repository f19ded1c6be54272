"""Which parameters the trials of a study have, on which others it depends whether they do, and the space of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

#: Whole numbers with more values than this say nothing about which parameters there are.
_MOST_VALUES = 32


@dataclass(frozen=True)
class ConditionalSpace:
    """Parameters that can be chosen together.

    Attributes:
        distributions: by name, each after what it depends on.
        conditions: of those that not all trials have, the parameter on which it depends, and its values with which they
            have it, as Optuna stores them: of a choice its number, since choices may be lists.
    """

    distributions: Mapping[str, BaseDistribution]
    conditions: Mapping[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)

    def space(self) -> ParameterSpace:
        """Return it as a space of parameters; ``InputError`` names one that cannot be searched."""
        when = {
            name: {other: tuple(map(self.distributions[other].to_external_repr, values))}
            for name, (other, values) in self.conditions.items()
        }
        return ParameterSpace(
            {name: _parameter(name, each, when.get(name, {})) for name, each in self.distributions.items()}
        )

    def values_of(self, known: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> dict[str, Any]:
        """Return those of a trial's parameters that are of the space and were drawn from its distributions."""
        return {
            name: known[name]
            for name, wanted in self.distributions.items()
            if name in known and distributions.get(name, wanted) == wanted
        }

    def has_all_of(self, trial: FrozenTrial) -> bool:
        """Whether all parameters of a trial that have several values are of the space."""
        return all(each.single() or self.distributions.get(name) == each for name, each in trial.distributions.items())


def space_of(trials: Sequence[FrozenTrial], names: Mapping[str, BaseDistribution] | None = None) -> ConditionalSpace:
    """Return the parameters that trials have, as far as it follows from others which of them have which.

    A parameter that not all of them have depends on a choice, or a whole number, that every trial with it has, and
    that takes other values in all trials without it. Of several such the one that the fewest trials have is it, then
    the one suggested last before. Where there is none the parameter is left out, as one is whose range changes. A
    value of a whole number that no trial had is taken for the nearest that one had; a choice for one without.

    Args:
        trials: completed ones.
        names: those that are searched; None for all.
    """
    drawn: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            drawn.setdefault(name, []).append(distribution)
    several = {
        name: each[0]
        for name, each in drawn.items()
        if not each[0].single() and (names is None or name in names) and all(other == each[0] for other in each)
    }
    having = {name: {row for row, trial in enumerate(trials) if name in trial.params} for name in several}
    found = {name: several[name] for name in sorted(several) if len(having[name]) == len(trials)}
    conditions: dict[str, tuple[str, tuple[float, ...]]] = {}
    is_growing = True
    while is_growing:
        known = dict(found)
        for name in several.keys() - known.keys():
            if fitting := list(_fitting(name, known, having, trials)):
                conditions[name] = min(fitting)[-1]
        found |= {name: several[name] for name in several if name in conditions}
        is_growing = len(found) > len(known)
    return ConditionalSpace(found, conditions)


def _fitting(
    name: str, found: Mapping[str, BaseDistribution], having: Mapping[str, set[int]], trials: Sequence[FrozenTrial]
) -> Iterator[tuple[int, int, str, tuple[str, tuple[float, ...]]]]:
    """Yield the conditions that a parameter may have, the likeliest the least."""
    rows = having[name]
    order = list(trials[min(rows)].params)
    for other, distribution in found.items():
        if not rows <= having[other] or not _has_few_values(distribution):
            continue
        distance = order.index(name) - order.index(other)
        stored = {row: distribution.to_internal_repr(trials[row].params[other]) for row in having[other]}
        within = {stored[row] for row in rows}
        without = {stored[row] for row in having[other] - rows}
        if distance > 0 and not within & without:
            yield len(having[other]), distance, other, (other, _values(distribution, within, without))


def _has_few_values(distribution: BaseDistribution) -> bool:
    if isinstance(distribution, IntDistribution):
        return (distribution.high - distribution.low) // distribution.step < _MOST_VALUES
    return isinstance(distribution, CategoricalDistribution)


def _values(distribution: BaseDistribution, within: set[float], without: set[float]) -> tuple[float, ...]:
    """Return the values of a parameter with which trials have another one."""
    if isinstance(distribution, CategoricalDistribution):
        return tuple(sorted(within))
    known, whole = sorted(within | without), cast(IntDistribution, distribution)
    every = range(whole.low, whole.high + 1, whole.step)
    return tuple(value for value in every if min(known, key=lambda other: (abs(other - value), other)) in within)


def _parameter(name: str, distribution: BaseDistribution, when: Mapping[str, Any]) -> Parameter:
    try:
        if isinstance(distribution, (FloatDistribution, IntDistribution)):
            kind: Any = Float if isinstance(distribution, FloatDistribution) else Integer
            return kind(distribution.low, distribution.high, log=distribution.log, step=distribution.step, when=when)
        if isinstance(distribution, CategoricalDistribution):
            return Categorical(_distinct(distribution.choices), when)
    except InputError as error:
        raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    raise InputError(
        f"parameter {name!r} has a {type(distribution).__name__}, which KernelBanditSampler does not know: use "
        "suggest_float, suggest_int or suggest_categorical."
    )


def _distinct(choices: Sequence[Any]) -> list[Any]:
    """Return the choices without those that Optuna takes for an earlier one, such as 1 after True."""
    try:
        return list(dict.fromkeys(choices))
    except TypeError:  # lists and dicts, which have no hash
        return [choice for number, choice in enumerate(choices) if choices.index(choice) == number]

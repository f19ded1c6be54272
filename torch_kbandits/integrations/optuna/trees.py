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
class Tree:
    """Parameters that can be chosen together.

    Attributes:
        distributions: by name, each after what it depends on.
        conditions: of those that not all trials have, the parameter on which it depends, and its values with which they
            have it, as Optuna stores them: of a choice its number, since choices may be lists.
    """

    distributions: Mapping[str, BaseDistribution]
    conditions: Mapping[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)

    def space(self) -> ParameterSpace:
        """Return it as a space of parameters.

        Raises:
            InputError: if one is of another kind than Optuna's three, or has a range that double precision cannot hold;
                the message names the parameter.
        """
        when = {
            name: {other: tuple(map(self.distributions[other].to_external_repr, values))}
            for name, (other, values) in self.conditions.items()
        }
        return ParameterSpace(
            {name: _parameter(name, each, when.get(name, {})) for name, each in self.distributions.items()}
        )

    def values_of(self, known: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> dict[str, Any]:
        """Return the part of a trial's parameters that the tree has and that were drawn from these distributions."""
        return {
            name: known[name]
            for name, wanted in self.distributions.items()
            if name in known and distributions.get(name, wanted) == wanted
        }

    def has_all_of(self, trial: FrozenTrial) -> bool:
        """Whether all parameters of a trial that have several values are of the tree."""
        return all(each.single() or self.distributions.get(name) == each for name, each in trial.distributions.items())


def tree_of(trials: Sequence[FrozenTrial], names: Mapping[str, BaseDistribution] | None = None) -> Tree:
    """Return the parameters that trials have, as far as it follows from others which of them have which.

    A parameter that not all of them have depends on a choice, or a whole number, that every trial with it has, and
    that takes other values in all trials without it. Of several such the one that the fewest trials have is it, then
    the one suggested last before. Where there is none the parameter is left out, as one is whose range changes. A
    value of a whole number that no trial had is taken for the nearest that one had; a choice for one without.

    What a tree is may change with a trial that differs, and only then.

    Args:
        trials: completed ones.
        names: those that are searched; None for all.
    """
    first: dict[str, BaseDistribution] = {}
    changing = set[str]()
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if first.setdefault(name, distribution) != distribution:
                changing.add(name)
    several = {
        name: each
        for name, each in first.items()
        if name not in changing and not each.single() and (names is None or name in names)
    }
    having = {name: {row for row, trial in enumerate(trials) if name in trial.params} for name in several}
    found = {name: several[name] for name in sorted(several) if len(having[name]) == len(trials)}
    conditions: dict[str, tuple[str, tuple[float, ...]]] = {}
    left = [name for name in several if name not in found]
    while left:
        added = []
        for name in left:
            fitting = list(_fitting(name, found, having, trials))
            if fitting:
                conditions[name] = min(fitting)[-1]
                added.append(name)
        if not added:
            break
        found |= {name: several[name] for name in added}
        left = [name for name in left if name not in added]
    return Tree(found, conditions)


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
    nearest = {value: min(known, key=lambda other: (abs(other - value), other)) for value in every}
    return tuple(value for value in every if nearest[value] in within)


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

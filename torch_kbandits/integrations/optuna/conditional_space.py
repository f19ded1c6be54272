"""Which parameters the trials of a study have, on which others it depends whether they do, and the space of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from torch_kbandits.errors import InputError
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

#: Whole numbers with more values than this say nothing about which parameters there are.
_MOST_VALUES = 32

#: A parameter, and its values with which trials have another one, as Optuna stores them: of a choice its number, since
#: choices may be lists.
Condition = tuple[str, tuple[float, ...]]


@dataclass(frozen=True)
class ConditionalSpace:
    """Parameters that can be chosen together, by name, each after what it depends on; ``conditions`` says on what."""

    distributions: Mapping[str, BaseDistribution]
    conditions: Mapping[str, Condition] = field(default_factory=dict)

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


def searched(trial: FrozenTrial) -> dict[str, BaseDistribution]:
    """Return the parameters of a trial that have several values."""
    return {name: each for name, each in trial.distributions.items() if not each.single()}


def space_of(trials: Sequence[FrozenTrial], names: Mapping[str, BaseDistribution] | None = None) -> ConditionalSpace:
    """Return the parameters that completed trials have, as far as it follows from others which of them have which.

    A parameter that not all of them have depends on a choice, or a whole number, that every trial with it has, and
    that takes other values in all trials without it: the one that the fewest trials have, then the one suggested last
    before. Where there is none the parameter is left out, as one is whose range changes. A value of a whole number
    that no trial had is taken for the nearest that one had; a choice for one without.
    """
    several: dict[str, BaseDistribution] = {}
    for trial in trials:
        several = searched(trial) | several
    having = {name: {row for row, trial in enumerate(trials) if name in trial.params} for name in several}
    several = {
        name: several[name]
        for name in sorted(several)
        if (names is None or name in names)
        and all(trials[row].distributions[name] == several[name] for row in having[name])
    }
    found = {name: each for name, each in several.items() if len(having[name]) == len(trials)}
    conditions: dict[str, Condition] = {}
    while True:
        left = [name for name in several if name not in found]
        new = {name: each for name in left if (each := _condition(name, found, having, trials)) is not None}
        if not new:
            return ConditionalSpace(found, conditions)
        conditions |= new
        found |= {name: several[name] for name in new}


def _condition(
    name: str, found: Mapping[str, BaseDistribution], having: Mapping[str, set[int]], trials: Sequence[FrozenTrial]
) -> Condition | None:
    """Return the likeliest condition under which trials have a parameter, None if there is none."""
    rows = having[name]
    order = list(trials[min(rows)].params)
    options = list[tuple[int, int, str, tuple[float, ...]]]()
    for other, distribution in found.items():
        if not rows <= having[other] or (distance := order.index(name) - order.index(other)) <= 0:
            continue
        stored = {row: distribution.to_internal_repr(trials[row].params[other]) for row in having[other]}
        within, without = {stored[row] for row in rows}, {stored[row] for row in having[other] - rows}
        if isinstance(distribution, IntDistribution):
            known, every = within | without, range(distribution.low, distribution.high + 1, distribution.step)
            is_listed = len(every) <= _MOST_VALUES
            values = [v for v in every if min(known, key=lambda k: (abs(k - v), k)) in within] if is_listed else []
        else:
            values = sorted(within) if isinstance(distribution, CategoricalDistribution) else []
        if values and not within & without:
            options.append((len(having[other]), distance, other, tuple(values)))
    return min(options)[2:] if options else None


def _parameter(name: str, distribution: BaseDistribution, when: Mapping[str, Any]) -> Parameter:
    try:
        if isinstance(distribution, CategoricalDistribution):  # without choices that Optuna takes for an earlier one
            choices = distribution.choices
            return Categorical([each for number, each in enumerate(choices) if choices.index(each) == number], when)
        if isinstance(distribution, (FloatDistribution, IntDistribution)):
            kind: Any = Float if isinstance(distribution, FloatDistribution) else Integer
            return kind(distribution.low, distribution.high, log=distribution.log, step=distribution.step, when=when)
    except InputError as error:
        raise InputError(f"parameter {name!r} cannot be searched: {error}") from None
    raise InputError(
        f"parameter {name!r} has a {type(distribution).__name__}, which KernelBanditSampler does not know."
    )

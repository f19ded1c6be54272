"""A generator of Xopt that plays a kernelized bandit."""

import json
import math
import secrets
import warnings
from copy import deepcopy
from typing import Annotated, Any

import gest_api.vocs as gest
import torch
from pydantic import BeforeValidator, Field, PlainSerializer
from xopt.generator import Generator
from xopt.generators import generators

from torch_kbandits import checks
from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.values import describe, rebuild
from torch_kbandits.candidates import Configurations
from torch_kbandits.errors import InfeasibleError, InputError, KernelBanditWarning
from torch_kbandits.integrations.tuning import is_spread, tuning_bandit, tuning_prior
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.columns import ColumnSpec, Number
from torch_kbandits.outcomes import REWARD, AtLeast, AtMost, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior
from torch_kbandits.spaces import Categorical, Float, ParameterSpace

_SIDES = {gest.LessThanConstraint: [AtMost], gest.GreaterThanConstraint: [AtLeast]}
_SIDES[gest.BoundsConstraint] = [AtLeast, AtMost]
_NOW = {"data", "context", "time"}  # fields that may change while a bandit is in use


def _written(value: Any) -> str:
    """Return a prior or memory as text, which YAML keeps as it is."""
    return json.dumps(describe(value), default=lambda each: {"tensor": each.tolist(), "dtype": str(each.dtype)[6:]})


def _tensors(found: dict[str, Any]) -> Any:
    return torch.tensor(found["tensor"], dtype=getattr(torch, found["dtype"])) if "tensor" in found else found


def _read(value: Any) -> Any:
    """Return a prior or memory, given it or its description, as text or as a mapping."""
    try:
        given = json.loads(value, object_hook=_tensors) if isinstance(value, str) else value
        return rebuild("it", given) if isinstance(given, dict) else given
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        hint = 'an object, or described as in {"is": "SlidingWindow", "of": {"size": 100}}'
        raise InputError(f"a prior or memory must be {hint}; got {checks.shown(value)}: {error!r}") from error


_Described = Annotated[Any, BeforeValidator(_read), PlainSerializer(_written, when_used="unless-none")]


class KernelBanditGenerator(Generator):
    """Xopt's evaluations, chosen by a kernelized bandit whose kernel and noise are fitted: see ``LearnedPrior``.

    Discrete variables are numbers, searched in order. Contextual ones are read, not chosen, and not in suggestions.
    Several objectives are weighed, see ``Scalarization``; constraints are limits on outcomes, see ``Limit``. Rows with
    ``xopt_error``, or no finite value of the (first) objective, have failed. A context or time that is missing is that
    of the row before. Rows that do not fit, as outside of the ranges of variables, are left out with a warning.
    What is suggested follows from the fields, the data, and what was suggested and has no row yet; so an ``Xopt`` that
    was dumped goes on as it would have, up to the ten decimals of data that its files have.

    Args:
        seed: addresses all randomness; a random one unless given, which the field then has.
        algorithm: a registry name; "gp-ei" unless given, in contexts, under a memory or of several objectives "gp-ucb".
        beta: the multiplier of the standard deviation; 2 unless given, where the algorithm takes one.
        prior: a ``Prior`` or ``LearnedPrior`` of the (first) objective, with the other sign if that is minimised.
        memory: which rows count, where the machine drifts, such as ``SlidingWindow(600.0)``.
        time_column: the column of data with the time of each row; unless given rows are counted.
        weights: of several objectives, by name; random unless given, so that suggestions cover the Pareto front.
        constraint_beta: the multiplier of the deviation of constraints; 3 with ``safe_params`` unless given, else 0.
        safe_params: configurations known to be feasible, after which only what is surely feasible is suggested.
        bandit_options: further words of the algorithm, numbers and text, before which those above give way.
        context, time: the values of contextual variables, and the time, now; None for those of the newest row.
    """

    name = "kernel_bandit"
    supports_batch_generation: bool = True
    supports_single_objective: bool = True
    supports_multi_objective: bool = True
    supports_constraints: bool = True
    supports_discrete_variables: bool = True
    supports_contextual_variables: bool = True

    seed: int = Field(default_factory=lambda: secrets.randbits(63))
    algorithm: str | None = None
    beta: float | None = None
    prior: _Described = None
    memory: _Described = None
    time_column: str | None = None
    weights: dict[str, float] | None = None
    constraint_beta: float | None = None
    safe_params: list[dict[str, Any]] = Field(default_factory=list)
    bandit_options: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, float] | None = None
    time: float | None = None

    _told: Bandit
    _space: ParameterSpace
    _reward: str
    _sign: float
    _settings: dict[str, Any]
    _rows: list[tuple[dict[str, Any], dict[str, Any]]]
    _pending: list[tuple[dict[str, Any], Any]]

    @property
    def bandit(self) -> Bandit:
        """The bandit that was told all data, of which nothing is pending; it has ``recommend()`` and ``health()``."""
        if self._settings != self.model_dump(exclude=_NOW) or self._read_data()[: len(self._rows)] != self._rows:
            self.model_post_init(None)
        for x, words in self._read_data()[len(self._rows) :]:
            try:
                self._told.tell([x], **words)
            except InputError as error:
                warnings.warn(f"A row of data is left out: {error}", KernelBanditWarning, stacklevel=3)
            self._rows.append((x, words))
            # A suggestion has its row: that of this configuration, else the oldest, as where a machine rounds.
            place = next((place for place, (asked, _) in enumerate(self._pending) if asked == x), 0)
            del self._pending[place : place + 1]
        return self._told

    def generate(self, n_candidates: int | None = 1) -> list[dict[str, Any]]:
        """Return so many configurations to evaluate next, each chosen as if those before it were being evaluated.

        ``InputError`` if data lack a column or the context, ``InfeasibleError`` if nothing new is surely feasible.
        """
        bandit = deepcopy(self.bandit)  # asking leaves no trace in what is known
        context = self._rows[-1][1]["context"] if self._rows and self.context is None else self.context
        now: dict[str, Any] = {"context": context, "time": self.time}
        if bandit.memory is not None and self.time is None:
            now["time"] = max((words["time"] for _, words in self._rows), default=0.0) + (not self.time_column)
        for x, asked in self._pending:
            bandit.mark_pending([x], **now | {"context": asked})
        found = [self._suggestion(bandit, now) for _ in range(1 if n_candidates is None else n_candidates)]
        self._pending += [(x, context) for x in found]
        return [dict(x) for x in found]

    def _suggestion(self, bandit: Bandit, now: dict[str, Any]) -> dict[str, Any]:
        """Return the next suggestion, which is pending from then on."""
        number, learning = len(self._rows) + len(bandit.pending), bandit._config.learning
        is_still = now == {"context": None, "time": None} and not self.safe_params
        if learning is None or not (is_still and is_spread(bandit, number, learning.num_initial)):
            try:
                return bandit.ask(**now)[0]
            except InfeasibleError:
                if self.safe_params:
                    raise
        point = self._space.sample(1, generator_for(bandit.seed, 0, "first points"), first=number)
        bandit.mark_pending(spread := self._space.decode(point), **now)
        return spread[0]

    def model_post_init(self, context: Any) -> None:
        """Take a bandit that was told nothing, or refuse what does not fit together: then all stays as it was."""
        vocs, parameters, columns = self.vocs, {}, []
        for name, each in vocs.variables.items():
            if isinstance(each, gest.ContextualVariable):
                columns.append(Number(name, *(each.domain if all(map(math.isfinite, each.domain)) else ())))
            elif isinstance(each, gest.DiscreteVariable):
                parameters[name] = Categorical(sorted(each.values, key=float), is_ordered=True)
            else:
                parameters[name] = Float(*each.domain)
        space, objectives = ParameterSpace(parameters), dict[str, Any]()
        for name in sorted(vocs.objectives, key=lambda name: name != REWARD):  # else the first one is the reward
            kind = type(vocs.objectives[name]).__name__.removesuffix("Objective").lower()
            objectives[name] = checks.one_of(f"the type of objective {name!r}", kind, ("maximize", "minimize"))
        reward = next(iter(objectives))
        sign = 1.0 if objectives.pop(reward) == "maximize" else -1.0
        limit: dict[str, Any] = {"mode": "optimistic", "beta": self.constraint_beta or 0.0}
        limit = {"beta": self.constraint_beta, "safe_seed": self.safe_params} if self.safe_params else limit
        words: dict[str, Any] = {"memory": self.memory, "constraints": []}
        for name, each in vocs.constraints.items():
            sides = zip(_SIDES[type(each)], getattr(each, "range", None) or [each.value], strict=True)
            words["constraints"] += [side(name, value, **limit) for side, value in sides]
        aside = tuning_prior(LearnedPrior(clip=False))
        words["outcomes"] = [Outcome(name, aside) for name in dict.fromkeys([*objectives, *vocs.constraints])]
        if objectives:
            weights = {REWARD if name == reward else name: each for name, each in (self.weights or {}).items()}
            words["objective"] = Scalarization(dict[str, Any]({REWARD: "maximize"} | objectives), weights or "random")
        algorithm = self.algorithm or ("gp-ucb" if columns or objectives or self.memory is not None else "gp-ei")
        words["beta"] = 2.0 if self.beta is None and "beta" in registry.signature(algorithm).parameters else self.beta
        candidates = Configurations(space, context_columns=ColumnSpec(columns) if columns else None)
        words |= {"prior": self.prior or LearnedPrior(), "seed": self.seed} | self.bandit_options
        bandit = tuning_bandit(algorithm, candidates, **words)
        if bandit.memory is None and not (self.time_column is None and self.time is None):
            raise InputError("time_column and time are for machines that drift: give memory=, or leave them out.")
        self._told, self._space, self._reward, self._sign = bandit, space, reward, sign
        self._rows, self._pending, self._settings = [], [], self.model_dump(exclude=_NOW)

    def _read_data(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return what each row of data tells: a configuration, and words of ``tell``."""
        if self.data is None or self.data.empty:
            return []
        outcomes, contexts = self._told.outcomes, self.vocs.variables.keys() - self._space.parameters
        needed = dict.fromkeys([*self.vocs.variables, self._reward, *outcomes, self.time_column or self._reward])
        if missing := [name for name in needed if name not in self.data]:
            raise InputError(f"The data lack the columns {missing}; they have {list(self.data.columns)}.")
        data, found = self.data.replace([math.inf, -math.inf], math.nan), []
        sensed = [name for name in data if name in contexts or name == self.time_column]
        data[sensed] = data[sensed].ffill().bfill()  # an evaluation that failed may have read nothing
        for name, each in self._space.parameters.items():
            if isinstance(each, Float):  # files of Xopt have ten decimals, which may be beyond an end of a range
                inside = data[name].clip(each.low, each.high)
                data[name] = inside.where((inside - data[name]).abs() < 1e-10, data[name])
        for number, row in enumerate(data.astype(object).where(data.notna(), None).to_dict("records")):
            failed = row[self._reward] is None or row.get("xopt_error") is True
            words = {"y": None if failed else self._sign * row[self._reward], "failed": failed}
            words["outcomes"] = {name: row[name] for name in outcomes}
            words["context"] = {name: row[name] for name in contexts} or None
            words["time"] = None if self._told.memory is None else row.get(self.time_column, number) or 0.0
            found.append(({name: row[name] for name in self._space.parameters}, words))
        return found


generators[KernelBanditGenerator.name] = KernelBanditGenerator

"""A generation strategy for Ax's client, the point to use in the end, and what of both Ax writes to JSON.

Ax's own encoder would write dataclasses under bare names such as ``Linear``; here names say what to import.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from functools import partial
from types import NoneType
from typing import Any

from ax.api.client import Client
from ax.core.observation import ObservationFeatures
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from pandas import DataFrame

from torch_kbandits import checks
from torch_kbandits.acquisition import DiscretizedThompsonSampling, KernelUCB
from torch_kbandits.bandit.saving import NotRebuildableError, describe, rebuild
from torch_kbandits.confidence import ConstantWidth, InformationGain, Width
from torch_kbandits.confidence.base import DEFAULT_BETA, Mode
from torch_kbandits.dictionaries import DictionaryRule, RidgeLeverageSampling
from torch_kbandits.errors import DamagedFileError, InputError
from torch_kbandits.integrations.ax.adapter import RECOMMEND, KernelBanditGenerators
from torch_kbandits.integrations.ax.trials import Settings
from torch_kbandits.memory import Growth, Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.priors import LearnedPrior, Prior

#: The node that generates all trials.
BANDIT_NODE = "KernelBandit"

_DEFAULT_RULE, _DEFAULT_PRIOR = RidgeLeverageSampling(), LearnedPrior(clip=False)


def kernel_bandit_strategy(
    *,
    seed: int,
    dictionary: DictionaryRule | None = _DEFAULT_RULE,
    memory: Memory | None = None,
    beta: float | Width = 2.0,
    prior: Prior | LearnedPrior = _DEFAULT_PRIOR,
    candidates: DataFrame | None = None,
    initialization_trials: int = 5,
    constraint_mode: Mode = "optimistic",
    constraint_beta: float | Width | None = None,
) -> GenerationStrategy:
    """Return a strategy for ``client.set_generation_strategy``: a bandit with upper confidence bounds in Ax.

    Outcomes stay in their own units, so λ, R, B and the widths made of them mean what they say. Time is the index of
    the trial. Several objectives are weighed at random for each trial; see ``Scalarization``.

    Args:
        seed: addresses all randomness. Equal experiments with equal seeds get equal trials.
        dictionary: which tried points span the Nyström posterior, ``NystromGP``; None for the exact one, ``OnlineGP``.
        memory: which trials count at a time, where the function changes, such as ``SlidingWindow(50)``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``.
        prior: of the first objective, on parameters scaled to the unit cube: a ``Prior``, kept as it is, or a
            ``LearnedPrior``, fitted for every trial; its mean is a number. Of other metrics all is fitted. An unordered
            choice of more than two values takes a column for each of them; everything else takes one. Trials with a
            standard error have its square in place of λ.
        candidates: a data frame with a column for each parameter, whose rows alone may be tried. Columns may be left
            out for parameters that every call of ``get_next_trials`` fixes.
        initialization_trials: trials by a Sobol sequence, or drawn from the candidates, before the bandit chooses. It
            also waits for the first outcome, and for two where anything is fitted.
        constraint_mode: which trials the outcome constraints of the experiment allow once the bandit chooses:
            "optimistic", those that may keep them, or "safe", those that surely do. The first trials know of none: to
            be safe attach at least ``initialization_trials`` that are.
        constraint_beta: for the constraints a multiplier of the standard deviation or a ``Width``; unless given 2 for
            "optimistic" and 3 for "safe".

    Raises:
        InputError: if an argument does not fit; when trials are asked for, if the experiment does not.
        InfeasibleError: when trials are asked for that are to be safe, and none is known to be.

    Cost of a trial: that of a fit, of telling all trials, O(n m²) or O(u³) for u distinct points, and of the search or
    O(N m²) on N candidates.
    """
    checks.absent_or("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
    checks.absent_or("memory", memory, Memory, "a memory such as SlidingWindow(50)")
    if memory is not None and memory.needs_time_column:
        raise InputError(
            f"{memory!r} needs points that know their time, and those of Ax do not: give another memory, such as "
            "Discount(0.95)."
        )
    checks.instance("prior", prior, (Prior, LearnedPrior), "a Prior or a LearnedPrior")
    if not isinstance(prior.mean, (float, NoneType)):
        raise InputError(f"the mean of prior must be a number, got {checks.describe(prior.mean)}.")
    try:
        rebuild("prior", describe(prior))
    except NotRebuildableError as error:
        raise InputError(f"prior must be one that the file of an experiment can hold: {error}.") from error
    if prior.regularization is None and getattr(memory, "max_variance", None) is not None:
        raise InputError(
            "max_variance of the memory is compared with variances: give prior a regularization, the λ they start from."
        )
    if candidates is not None:
        checks.instance("candidates", candidates, DataFrame, "a pandas data frame with a column for each parameter")
        if candidates.empty or not candidates.columns.is_unique or bool(candidates.isna().to_numpy().any()):
            raise InputError(
                "candidates must have at least one row, columns of different names and no missing values; got shape "
                f"{candidates.shape}, columns {list(candidates.columns)}. candidates.dropna() leaves rows out."
            )
    default = DEFAULT_BETA[checks.one_of("constraint_mode", constraint_mode, DEFAULT_BETA)]
    width, constraint_width = (
        each if isinstance(each, Width) else ConstantWidth(each)
        for each in (beta, default if constraint_beta is None else constraint_beta)
    )
    settings = Settings(
        seed=checks.non_negative_integer("seed", seed),
        prior=prior,
        width=width,
        dictionary=dictionary,
        memory=memory,
        candidates=None if candidates is None else {str(name): candidates[name].tolist() for name in candidates},
        initialization_trials=checks.positive_integer("initialization_trials", initialization_trials),
        constraint_mode=constraint_mode,
        constraint_width=constraint_width,
    )
    spec = GeneratorSpec(KernelBanditGenerators.BANDIT, generator_kwargs={"settings": settings})
    return GenerationStrategy(name=BANDIT_NODE, nodes=[GenerationNode(name=BANDIT_NODE, generator_specs=[spec])])


def recommend(client: Client, fixed_parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameterization of the best posterior mean; no trial is made, and later trials stay what they were.

    Unlike ``client.get_best_parameterization`` it may never have been tried, and it may be asked for in a context. It
    keeps outcome constraints by the posterior means, and surely where the strategy's are "safe". Of several objectives
    it is the best of their means, scalarised with equal weights; see ``Scalarization``.

    Args:
        client: with a strategy of ``kernel_bandit_strategy``.
        fixed_parameters: the values of some parameters, such as a context.

    Raises:
        InputError: if the client has another strategy, or a fixed parameter is outside the search space.
        EmptyHistoryError: if no trial has an outcome.
        InfeasibleError: if nothing keeps the outcome constraints.
    """
    strategy, experiment = client._maybe_generation_strategy, client._maybe_experiment
    if strategy is None or experiment is None or BANDIT_NODE not in strategy.nodes_by_name:
        raise InputError("recommend needs a client with an experiment and a strategy of kernel_bandit_strategy.")
    spec = strategy.nodes_by_name[BANDIT_NODE].generator_spec
    spec.fit(experiment=experiment)
    fixed = ObservationFeatures(parameters=dict(fixed_parameters or {}))
    run = spec.gen(n=1, fixed_features=fixed, model_gen_options={RECOMMEND: True})
    return dict(run.arms[0].parameters)


def register() -> None:
    """Tell Ax how to save these strategies, and its own with our models, acquisition functions and values."""
    for model in (NystromGP, OnlineGP):
        register_model(model)
    for function in (KernelUCB, DiscretizedThompsonSampling):
        register_acquisition_function(function)
    CORE_ENCODER_REGISTRY[KernelBanditGenerators] = lambda value: {"__type": _name(type(value)), "name": value.name}
    CORE_DECODER_REGISTRY[_name(KernelBanditGenerators)] = KernelBanditGenerators
    for kind in (Settings, *value_classes()):
        CORE_ENCODER_REGISTRY[kind] = _write
        # Ax has functions in place of classes, too.
        CORE_DECODER_REGISTRY[_name(kind)] = partial(_read, kind)  # pyright: ignore[reportArgumentType]


def value_classes() -> list[type]:
    """Return the dataclasses of this package that settings of a strategy, or parts of a strategy of Ax, may be."""
    kinds: list[type] = [Memory, Growth, Width, InformationGain, DictionaryRule]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__.startswith("torch_kbandits.")]
    return [kind for kind in ours if dataclasses.is_dataclass(kind) and not inspect.isabstract(kind)]


def _name(kind: type) -> str:
    """Return what a class is called in a file: Ax shows it to whoever loads that without the import."""
    return f"{kind.__name__} (first import torch_kbandits.integrations.ax)"


def _write(value: Any) -> dict[str, Any]:
    """Return one of our values as Ax writes it."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return {"__type": _name(type(value)), "fields": describe(fields)}


def _read(kind: type, fields: Any) -> Any:
    """Return the value that was written, to the last bit; ``DamagedFileError`` if it is not what was written."""
    try:
        return kind(**rebuild(kind.__name__, fields))
    except (NotRebuildableError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"The experiment holds a {kind.__name__} that does not fit together ({error!r}): its file was changed, or "
            "another version of torch_kbandits wrote it. Take an earlier copy, or load it with that version."
        ) from error

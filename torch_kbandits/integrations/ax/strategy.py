"""A generation strategy for Ax's client, the point to use in the end, and what of both Ax writes to JSON."""

import dataclasses
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, cast, get_args

from ax.api.client import Client
from ax.core.experiment import Experiment
from ax.core.observation import ObservationFeatures
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.global_stopping.strategies.base import BaseGlobalStoppingStrategy
from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from pandas import DataFrame

from torch_kbandits import checks
from torch_kbandits.acquisition import DiscretizedThompsonSampling, KernelUCB
from torch_kbandits.bandit.saving import NotRebuildableError, describe, rebuild
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import Mode
from torch_kbandits.dictionaries import DictionaryRule, RidgeLeverageSampling
from torch_kbandits.errors import DamagedFileError, InputError
from torch_kbandits.integrations.ax.adapter import RECOMMEND, BanditAdapter, KernelBanditGenerators
from torch_kbandits.integrations.ax.trials import Settings
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.outcomes import AtMost
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
            choice of more than two values takes a column for each. A standard error squared is in place of λ.
        candidates: a data frame with a column for each parameter that calls do not fix, whose rows alone may be tried.
        initialization_trials: trials by a Sobol sequence, or drawn from the candidates, before the bandit chooses. It
            also waits for the first outcome, and for two where anything is fitted.
        constraint_mode: which trials the outcome constraints allow once the bandit chooses: "optimistic", those that
            may keep them, or "safe", those that surely do. To be safe attach at least ``initialization_trials`` first.
        constraint_beta: for these a multiplier of the standard deviation or a ``Width``; 2 unless given, "safe" 3.

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
    checks.one_of("constraint_mode", constraint_mode, get_args(Mode))
    settings = Settings(
        seed=checks.non_negative_integer("seed", seed),
        prior=prior,
        width=beta if isinstance(beta, Width) else ConstantWidth(beta),
        dictionary=dictionary,
        memory=memory,
        candidates=None if candidates is None else {str(name): candidates[name].tolist() for name in candidates},
        initialization_trials=checks.positive_integer("initialization_trials", initialization_trials),
        constraint_mode=constraint_mode,
        constraint_width=AtMost("outcome", 0.0, constraint_mode, constraint_beta).width,
    )
    spec = GeneratorSpec(KernelBanditGenerators.BANDIT, generator_kwargs={"settings": settings})
    return GenerationStrategy(name=BANDIT_NODE, nodes=[GenerationNode(name=BANDIT_NODE, generator_specs=[spec])])


def recommend(client: Client, fixed_parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameterization of the best posterior mean, tried or not; no trial is made, and later ones stay.

    It keeps outcome constraints by the posterior means, and surely where the strategy's are "safe". Of several
    objectives it is the best of their means, scalarised with equal weights; see ``Scalarization``. The client has a
    strategy of ``kernel_bandit_strategy``; fixed parameters are those of a context.

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


class KernelBanditStoppingStrategy(BaseGlobalStoppingStrategy):
    """A global stopping strategy for Ax: the experiment ends once a function says so of the bandit that plays it.

    Args:
        stop: asked of the bandit that was told all trials, such as ``StopWhen(regret=0.1)``, in the units of the
            objective, in either direction; not before the bandit chooses.
        strategy: that of ``kernel_bandit_strategy``. ``InputError`` if it is another, or ``stop`` is no function.
        min_trials, inactive_when_pending_trials: as in Ax.
    """

    def __init__(
        self,
        stop: Callable[..., bool],
        strategy: GenerationStrategy,
        min_trials: int = 1,
        inactive_when_pending_trials: bool = True,
    ) -> None:
        super().__init__(min_trials, inactive_when_pending_trials)
        if not callable(stop) or BANDIT_NODE not in getattr(strategy, "nodes_by_name", ()):
            raise InputError("Give a function of the bandit such as a StopWhen, and what kernel_bandit_strategy made.")
        self.stop, self.strategy = stop, strategy

    def _should_stop_optimization(self, experiment: Experiment) -> tuple[bool, str]:
        """Say whether to stop, and why."""
        (spec := self.strategy.nodes_by_name[BANDIT_NODE].generator_spec).fit(experiment=experiment)
        return cast(BanditAdapter, spec.fitted_adapter).says(self.stop), f"{self.stop!r} of the bandit says so."


def register() -> None:
    """Tell Ax how to save these strategies, and its own with our models and acquisition functions."""
    for model in (NystromGP, OnlineGP):
        register_model(model)
    for function in (KernelUCB, DiscretizedThompsonSampling):
        register_acquisition_function(function)
    CORE_ENCODER_REGISTRY[KernelBanditGenerators] = lambda value: {"__type": _name(type(value)), "name": value.name}
    CORE_DECODER_REGISTRY[_name(KernelBanditGenerators)] = KernelBanditGenerators
    CORE_ENCODER_REGISTRY[Settings] = _write
    CORE_DECODER_REGISTRY[_name(Settings)] = _read  # pyright: ignore[reportArgumentType] (Ax has functions, too)


def _name(kind: type) -> str:
    """Return what a class is called in a file: Ax shows it to whoever loads that without the import."""
    return f"{kind.__name__} (first import torch_kbandits.integrations.ax)"


def _write(value: Settings) -> dict[str, Any]:
    """Return settings as Ax writes them."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {"__type": _name(Settings), "fields": describe(fields)}


def _read(fields: Any) -> Settings:
    """Return the settings that were written, to the last bit; ``DamagedFileError`` if they are others."""
    try:
        return Settings(**rebuild("settings", fields))
    except (NotRebuildableError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFileError(
            f"The experiment holds settings that do not fit together ({error!r}): its file was changed, or "
            "another version of torch_kbandits wrote it. Take an earlier copy, or load it with that version."
        ) from error

"""A generation strategy for Ax's client."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from ax.adapter.registry import Y_trans
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.utils.common.constants import Keys
from gpytorch.kernels import Kernel

from torch_kbandits import checks
from torch_kbandits.acquisition import KernelUCB
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import DEFAULT_BETA, Mode
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ax.acquisition import KernelBanditAcquisition
from torch_kbandits.integrations.ax.cube import UnitCube
from torch_kbandits.integrations.ax.generators import TRANSFORMS, KernelBanditGenerators
from torch_kbandits.integrations.ax.models import AxNystromGP, AxOnlineGP, ModelSettings
from torch_kbandits.integrations.ax.pool import CandidatePool
from torch_kbandits.integrations.ax.saved_kernels import write_kernel
from torch_kbandits.memory import Memory

if TYPE_CHECKING:
    import pandas as pd

_MODELS = {"nystrom": AxNystromGP, "exact": AxOnlineGP}

#: The node that generates once there is data.
BANDIT_NODE = "KernelBandit"
_INITIAL_NODE = "KernelBanditInitial"


def kernel_bandit_strategy(
    *,
    seed: int,
    model: Literal["nystrom", "exact"] = "nystrom",
    dictionary: DictionaryRule | None = None,
    memory: Memory | None = None,
    beta: float | Width = 2.0,
    kernel: Kernel | None = None,
    regularization: float | None = None,
    prior_mean: float | None = None,
    candidates: "pd.DataFrame | None" = None,
    initialization_trials: int = 5,
    transform_outcomes: bool = False,
    constraint_mode: Mode = "optimistic",
    constraint_beta: float | Width | None = None,
) -> GenerationStrategy:
    """Return a strategy for ``client.set_generation_strategy``: kernelized upper confidence bounds in Ax.

    Outcomes stay in their own units, so λ, R, B and the widths made of them mean what they say. What is not given is
    fitted in every round, to up to 200 of the observations that count, by marginal likelihood. Time is the index of
    the trial.

    Args:
        seed: addresses all randomness. Equal experiments with equal seeds get equal trials.
        model: the posterior, "nystrom" (``NystromGP``) or "exact" (``OnlineGP``).
        dictionary: a rule for the Nyström posterior; by default ``RidgeLeverageSampling()``.
        memory: which trials count at a time, where the function changes, such as ``SlidingWindow(50)``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``.
        kernel: the prior covariance on parameters scaled to the unit cube, in units of the outcome squared; kept as it
            is. None for a Matérn-5/2 kernel that is fitted. An unordered choice of more than two values takes a column
            for each of them, any two at distance 1; everything else takes one.
        regularization: λ > 0, the noise variance, in units of the outcome squared; kept as it is. None for a fitted
            one. Trials with a standard error have its square instead.
        prior_mean: the constant prior mean, in units of the outcome. None for a fitted one, and for 0 where kernel and
            noise are given.
        candidates: a data frame with a column for each parameter, whose rows alone may be tried. Columns may be left
            out for parameters that every call of ``get_next_trials`` fixes.
        initialization_trials: trials by a Sobol sequence, or drawn from the candidates, before the first by the model.
            It also waits for the first outcome.
        transform_outcomes: whether Ax winsorises, bilogs and standardises outcomes in every round, as it does for its
            own models. Then nothing that is given in units of the outcome keeps its meaning.
        constraint_mode: which trials the outcome constraints of the experiment allow once there is a model:
            "optimistic", those that may keep them, or "safe", those that surely do. The first trials know of none: to
            be safe attach at least ``initialization_trials`` that are. ``kernel``, ``regularization`` and
            ``prior_mean`` are those of the objective; of the other metrics they are fitted.
        constraint_beta: for the constraints a multiplier of the standard deviation or a ``Width``; unless given 2 for
            "optimistic" and 3 for "safe".

    Raises:
        InputError: if an argument does not fit. When trials are asked for: if the experiment has parameters,
            constraints or goals that are not supported.

    Cost of a trial: that of a fit to 200 observations, of the posterior of n, O(n m²) or O(u³) for u distinct points,
    and of Ax's search or O(N m²) on N candidates.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {checks.describe(seed)}.")
    checks.one_of("model", model, _MODELS)
    if dictionary is not None:
        checks.instance("dictionary", dictionary, DictionaryRule, "a rule such as RidgeLeverageSampling()")
        if model == "exact":
            raise InputError('A dictionary belongs to model="nystrom"; model="exact" has none.')
    if memory is not None:
        checks.instance("memory", memory, Memory, "a memory such as SlidingWindow(50)")
        if memory.needs_time_column:
            raise InputError(
                f"{memory!r} needs points that know their time, and those of Ax do not: give another memory, such as "
                "Discount(0.95)."
            )
    if regularization is not None:
        regularization = checks.positive("regularization", regularization)
    elif getattr(memory, "max_variance", None) is not None:
        raise InputError(
            "max_variance of the memory is compared with variances: give regularization, the λ they start from."
        )
    if prior_mean is not None:
        prior_mean = checks.finite_number("prior_mean", prior_mean)
    initialization_trials = checks.positive_integer("initialization_trials", initialization_trials)
    width = beta if isinstance(beta, Width) else ConstantWidth(beta)
    checks.one_of("constraint_mode", constraint_mode, DEFAULT_BETA)
    limiting = DEFAULT_BETA[constraint_mode] if constraint_beta is None else constraint_beta
    limiting = limiting if isinstance(limiting, Width) else ConstantWidth(limiting)
    settings = ModelSettings(
        seed=seed,
        dictionary=dictionary,
        memory=memory,
        kernel=_own(kernel),
        regularization=regularization,
        prior_mean=prior_mean,
    )
    asked: dict[str, Any] = {"seed": seed}
    if candidates is not None:
        asked["pool"] = CandidatePool.of(candidates)
    options = {"model_gen_options": {Keys.AX_ACQUISITION_KWARGS.value: asked}}
    first: dict[str, Any] = {"seed": seed % 2**32, "deduplicate": False}
    if candidates is not None:
        first["transforms"] = []
    config = ModelConfig(
        botorch_model_class=_MODELS[model],
        model_options={"settings": settings},
        input_transform_classes=[UnitCube],
        name=f"{model} posterior",
    )
    bandit = {
        "surrogate_spec": SurrogateSpec(model_configs=[config], allow_batched_models=False),
        "acquisition_class": KernelBanditAcquisition,
        "botorch_acqf_class": KernelUCB,
        "botorch_acqf_options": {"beta": width, "constraint_mode": constraint_mode, "constraint_beta": limiting},
        "transforms": [*TRANSFORMS, *(kind for kind in Y_trans if transform_outcomes and kind not in TRANSFORMS)],
    }
    return GenerationStrategy(
        name=BANDIT_NODE,
        nodes=[
            GenerationNode(
                name=_INITIAL_NODE,
                generator_specs=[
                    GeneratorSpec(KernelBanditGenerators.INITIAL, generator_kwargs=first, generator_gen_kwargs=options)
                ],
                transition_criteria=_enough(initialization_trials),
            ),
            GenerationNode(
                name=BANDIT_NODE,
                generator_specs=[
                    GeneratorSpec(KernelBanditGenerators.BANDIT, generator_kwargs=bandit, generator_gen_kwargs=options)
                ],
            ),
        ],
    )


def _enough(trials: int) -> list[MinTrials]:
    """Return when the first trials are enough: so many were made and did not fail, and one has an outcome."""
    lost = [TrialStatus.FAILED, TrialStatus.ABANDONED]
    made = MinTrials(trials, BANDIT_NODE, not_in_statuses=lost, use_all_trials_in_exp=True)
    told = MinTrials(1, BANDIT_NODE, not_in_statuses=lost, use_all_trials_in_exp=True, count_only_trials_with_data=True)
    return [made, told]


def _own(kernel: Kernel | None) -> Kernel | None:
    """Return a fixed copy of a kernel that can be saved."""
    if kernel is None:
        return None
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    if kernel.batch_shape:
        raise InputError(f"kernel must have no batch dimensions, got batch_shape {tuple(kernel.batch_shape)}.")
    copy = deepcopy(kernel).double().requires_grad_(False)
    write_kernel(copy)
    return copy

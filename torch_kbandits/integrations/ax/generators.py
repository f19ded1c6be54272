"""The two generators of a strategy, as entries of a registry like Ax's own: the first trials, and the bandit."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, cast

import torch
from ax.adapter.base import Adapter, GenResults
from ax.adapter.random import RandomAdapter
from ax.adapter.registry import Cont_X_trans, GeneratorRegistryBase, GeneratorSetup, Mixed_transforms
from ax.adapter.torch import TorchAdapter
from ax.adapter.transforms.derelativize import Derelativize
from ax.core.experiment import Experiment
from ax.core.generator_run import GeneratorRun
from ax.core.observation import ObservationFeatures
from ax.core.optimization_config import OptimizationConfig
from ax.core.parameter import FixedParameter
from ax.core.search_space import SearchSpace
from ax.generators.random.sobol import SobolGenerator
from ax.generators.torch.botorch_modular.generator import BoTorchGenerator
from ax.utils.common.constants import Keys
from ax.utils.common.random import with_rng_seed
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ax.failed import with_failed
from torch_kbandits.integrations.ax.pool import CandidatePool, ExactRows
from torch_kbandits.integrations.ax.precision import AsSaved
from torch_kbandits.integrations.ax.problem import check_fixed, check_objective, check_space
from torch_kbandits.numerics.random import generator_for, seed_for

#: How Ax hands the model its data: parameters as numbers, in their own units or the logarithm, and outcomes untouched.
#: Choices stay discrete. Ax's one-hot columns are relaxed in the search, and what is uncertain between the choices is
#: rounded to one of them: the same point would be tried again and again.
TRANSFORMS = [AsSaved, *Mixed_transforms, Derelativize]


def _checked(init: Any) -> Any:
    """Check the experiment before an adapter is made for it; Ax reads the arguments of the constructor by name."""

    @wraps(init)
    def checked(self: Adapter, *, experiment: Experiment, **kwargs: Any) -> None:
        check_space(experiment.search_space)
        check_objective(experiment)
        init(self, experiment=experiment, **kwargs)

    return checked


def _with_priors_of_the_objective(init: Any) -> Any:
    """Give what is known beforehand to the model of the objective alone; those of other metrics fit their own."""

    @wraps(init)
    def known(self: Adapter, *, experiment: Experiment, generator: BoTorchGenerator, **kwargs: Any) -> None:
        spec = generator.surrogate_spec
        if spec is not None:
            (config,) = spec.model_configs
            settings = config.model_options["settings"].without_priors()
            fitted = replace(config, model_options={**config.model_options, "settings": settings})
            goal = cast(OptimizationConfig, experiment.optimization_config)
            others = {metric.signature for metric in experiment.metrics.values()} - set(
                goal.objective.metric_signatures
            )
            generator.surrogate_spec = replace(
                spec, metric_to_model_configs={name: [fitted] for name in sorted(others)}
            )
        init(self, experiment=experiment, generator=generator, **kwargs)

    return known


class InitialAdapter(RandomAdapter):
    """Ax's adapter of random search, on a pool if there is one."""

    __init__ = _checked(RandomAdapter.__init__)

    def gen(
        self,
        n: int,
        search_space: SearchSpace | None = None,
        optimization_config: OptimizationConfig | None = None,
        pending_observations: dict[str, list[ObservationFeatures]] | None = None,
        fixed_features: ObservationFeatures | None = None,
        model_gen_options: dict[str, Any] | None = None,
    ) -> GeneratorRun:
        """Return n new points; the arguments are those of the base class, by which Ax knows what to give."""
        check_fixed(_parameters(fixed_features), self._search_space)
        return super().gen(
            n, search_space, optimization_config, pending_observations, fixed_features, model_gen_options
        )

    def _gen(
        self,
        n: int,
        search_space: SearchSpace,
        pending_observations: dict[str, list[ObservationFeatures]],
        fixed_features: ObservationFeatures | None,
        optimization_config: OptimizationConfig | None,
        model_gen_options: dict[str, Any] | None,
    ) -> GenResults:
        options = dict((model_gen_options or {}).get(Keys.AX_ACQUISITION_KWARGS, {}))
        pool = options.get("pool")
        if pool is None:
            return super()._gen(
                n, search_space, pending_observations, fixed_features, optimization_config, model_gen_options
            )
        fixed, space = _parameters(fixed_features), self._search_space
        pool = pool.within(space)
        waiting = _pending(pending_observations)
        tried = [arm.parameters for arm in self._experiment.arms_by_signature.values()]
        tried += [feature.parameters for feature in waiting]
        rows = [pool.rows[row] for row in pool.matching(fixed, space).tolist()]
        fresh = [row for row in rows if not any(row.items() <= parameters.items() for parameters in tried)]
        rows = fresh or rows
        generator = generator_for(options["seed"], len(self._experiment.trials), f"initial {len(waiting)}")
        drawn = torch.randperm(len(rows), generator=generator, device="cpu")[:n].tolist()
        constant = {name: part.value for name, part in space.parameters.items() if isinstance(part, FixedParameter)}
        features = [ObservationFeatures(parameters={**constant, **fixed, **rows[number]}) for number in drawn]
        return GenResults(observation_features=features, weights=[1.0] * len(features))


class BanditAdapter(TorchAdapter):
    """Ax's adapter of BoTorch, with a seed for each trial, and a pool if there is one."""

    __init__ = _checked(_with_priors_of_the_objective(TorchAdapter.__init__))

    _rows: "_EncodedPool | None" = None

    def gen(
        self,
        n: int,
        search_space: SearchSpace | None = None,
        optimization_config: OptimizationConfig | None = None,
        pending_observations: dict[str, list[ObservationFeatures]] | None = None,
        fixed_features: ObservationFeatures | None = None,
        model_gen_options: dict[str, Any] | None = None,
    ) -> GeneratorRun:
        """Return n new points; the arguments are those of the base class."""
        fixed = check_fixed(_parameters(fixed_features), self._search_space)
        options = dict(model_gen_options or {})
        asked = dict(options.get(Keys.AX_ACQUISITION_KWARGS, {}))
        pool = asked.pop("pool", None)
        pending_observations = with_failed(pending_observations, self._experiment)
        trial, waiting = len(self._experiment.trials), len(_pending(pending_observations))
        seed = seed_for(asked.pop("seed"), trial, f"search {waiting}") % 2**32  # NumPy takes no more
        if pool is not None:
            asked["candidate_set"] = self._candidates(pool, fixed)
        options[Keys.AX_ACQUISITION_KWARGS.value] = asked
        # Ax draws from torch's and from NumPy's global generator.
        with with_rng_seed(seed):
            return super().gen(n, search_space, optimization_config, pending_observations, fixed_features, options)

    def feature_importances(self, metric_signature: str) -> dict[str, float]:
        """Return shares of the inverse lengthscales by parameter, where each has one.

        Raises:
            InputError: if the kernel has not one lengthscale for each parameter.
        """
        try:
            return super().feature_importances(metric_signature)
        except (NotImplementedError, ValueError) as error:
            raise InputError(
                "Importances are inverse lengthscales, and the kernel has not one for each of the parameters "
                f"{list(self.parameters)}: unordered choices take several columns, and a kernel of your own may have "
                "one for all. Sobol indices are there for every kernel: compute_analyses([SensitivityAnalysisPlot()])."
            ) from error

    def _candidates(self, given: CandidatePool, fixed: Mapping[str, Any]) -> Tensor:
        """Return the candidates that agree with fixed parameters, (N, d), as the model sees them."""
        # Ax makes its transforms anew for new data, but encodings of a search space stay.
        ours = {name: transform for name, transform in self.transforms.items() if name != _EXACT}
        if self._rows is None or self._rows.given is not given:
            pool = given.within(self._search_space)
            encoded = pool.encoded(list(ours.values()), self.parameters)
            self._rows = _EncodedPool(given, pool, encoded, ExactRows(pool=pool))
        # The first transform is the last to be undone.
        self.transforms = OrderedDict({_EXACT: self._rows.exact, **ours})
        candidates = self._rows.encoded[self._rows.pool.matching(fixed, self._search_space)]
        if fixed:
            (context,) = CandidatePool({name: [value] for name, value in fixed.items()}).encoded(
                list(ours.values()), self.parameters
            )
            candidates = torch.where(context.isnan(), candidates, context)
        return candidates


@dataclass(frozen=True, eq=False)
class _EncodedPool:
    """A pool, with values of the types of the search space, and as the model sees it."""

    given: CandidatePool
    pool: CandidatePool
    encoded: Tensor
    exact: ExactRows


#: The name of the transform that undoes the rounding of the others.
_EXACT = "ExactRows"


class KernelBanditGenerators(GeneratorRegistryBase):
    """What the nodes of a strategy generate with; saved by name."""

    INITIAL = "KernelBanditInitial"
    BANDIT = "KernelBandit"

    @property
    def GENERATOR_KEY_TO_GENERATOR_SETUP(self) -> dict[str, GeneratorSetup]:  # noqa: N802 (Ax's name)
        """The parts of each generator, by its value."""
        return {
            "KernelBanditInitial": GeneratorSetup(InitialAdapter, SobolGenerator, Cont_X_trans),
            "KernelBandit": GeneratorSetup(BanditAdapter, BoTorchGenerator, TRANSFORMS),
        }


def _parameters(features: ObservationFeatures | None) -> dict[str, Any]:
    return {} if features is None else dict(features.parameters)


def _pending(observations: Mapping[str, list[ObservationFeatures]] | None) -> list[ObservationFeatures]:
    """Return what is pending for the metric for which most is."""
    return max((observations or {}).values(), key=len, default=[])

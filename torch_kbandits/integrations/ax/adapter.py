"""Between Ax and a bandit: trials are told, and what is asked for are the next ones."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from ax.adapter.base import Adapter, GenResults
from ax.adapter.data_utils import ExperimentData
from ax.adapter.registry import GeneratorRegistryBase, GeneratorSetup
from ax.adapter.transforms.derelativize import Derelativize
from ax.core.observation import ObservationData, ObservationFeatures
from ax.core.optimization_config import OptimizationConfig
from ax.core.search_space import SearchSpace
from ax.core.trial_status import TrialStatus
from ax.exceptions.model import AdapterMethodNotImplementedError
from ax.generators.base import Generator
from gpytorch.settings import min_fixed_noise

from torch_kbandits.errors import EmptyHistoryError, InfeasibleError
from torch_kbandits.integrations.ax.spaces import Parameters, TrialSpace, check_experiment
from torch_kbandits.integrations.ax.trials import Settings, TrialBandit, read
from torch_kbandits.models import NystromGP
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors import Prior

#: The option of ``gen`` that asks for the point to use in the end.
RECOMMEND = "kbandits_recommend"


class BanditGenerator(Generator):
    """What Ax makes an adapter with: the settings."""

    can_predict = can_model_in_sample = property(lambda self: True)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class BanditAdapter(Adapter):
    """Plays a bandit in Ax. Its posterior follows from the trials alone, so that nothing else has to be saved."""

    generator: BanditGenerator

    def _fit(self, search_space: SearchSpace, experiment_data: ExperimentData) -> None:
        """Check the experiment, and read its trials."""
        check_experiment(self._experiment)
        self._trials, self._latest = read(experiment_data, self._experiment), cast(TrialBandit | None, None)

    def _gen(
        self,
        n: int,
        search_space: SearchSpace,
        optimization_config: OptimizationConfig | None,
        pending_observations: dict[str, list[ObservationFeatures]],
        fixed_features: ObservationFeatures | None,
        model_gen_options: dict[str, Any] | None,
    ) -> GenResults:
        fixed: Parameters = {} if fixed_features is None else fixed_features.parameters
        waiting = max(pending_observations.values(), key=len, default=[])
        recommends = (model_gen_options or {}).get(RECOMMEND, False)
        if recommends and not self._trials.num_outcomes:
            raise EmptyHistoryError("Nothing can be recommended: no trial has an outcome yet.")
        if self._is_first and not recommends:
            found = self._spread(n, fixed, waiting)
        else:
            bandit = self._bandit(fixed, optimization_config, plainly=recommends)
            bandit.wait([] if recommends else [each.parameters for each in waiting])
            try:
                found = bandit.asked(n)
            except InfeasibleError:
                if recommends or self.generator.settings.constraint_mode == "safe":
                    raise
                found = self._spread(n, fixed, waiting)
            self._latest = self._latest if recommends else bandit
        return GenResults([ObservationFeatures(dict(each)) for each in found], [1.0] * len(found))

    def _predict(
        self, observation_features: list[ObservationFeatures], use_posterior_predictive: bool = False
    ) -> list[ObservationData]:
        models = {name: self.current.model(name) for name in self.current.signs}
        return self._predicted(models, observation_features, use_posterior_predictive)

    def _cross_validate(
        self,
        search_space: SearchSpace,
        cv_training_data: ExperimentData,
        cv_test_points: list[ObservationFeatures],
        use_posterior_predictive: bool = False,
    ) -> list[ObservationData]:
        """Predict from other data; hyperparameters, dictionary and time stay, the memory sees what is left."""
        bandit, trials, models = self.current, read(cv_training_data, self._experiment), dict[str, Any]()
        X = bandit.space.points(trials.parameters)
        for name, memory in bandit.memories.items():
            model, values = bandit.model(name), bandit.values(name, trials)
            level = float(model.regularization)
            rows = values.isfinite()
            rows[rows.clone()] = (noise := memory.noise(trials.times[rows], self._trials.now, level)).isfinite()
            words: dict[str, Any] = {"inducing_points": model.inducing_points} if isinstance(model, NystromGP) else {}
            words |= {"covar_module": deepcopy(model.covar_module), "mean_module": deepcopy(model.mean_module)}
            data = X[rows], values[rows].unsqueeze(-1), noise[noise.isfinite()].unsqueeze(-1)
            with min_fixed_noise(float_value=0.0, double_value=0.0, half_value=0.0):  # else it is raised to 1e-6
                models[name] = type(model)(*data, regularization=level, **words)
        return self._predicted(models, cv_test_points, use_posterior_predictive)

    def _predicted(
        self, models: dict[str, Any], features: list[ObservationFeatures], noisy: bool
    ) -> list[ObservationData]:
        """Return posterior means and variances of all metrics by their models."""
        X = self.current.space.points([each.parameters for each in features]).unsqueeze(-2)
        with torch.no_grad():
            posteriors = [model.posterior(X) for model in models.values()]
        means = [sign * each.mean.flatten() for sign, each in zip(self.current.signs.values(), posteriors, strict=True)]
        variances = [
            each.variance.flatten() + noisy * model.regularization
            for model, each in zip(models.values(), posteriors, strict=True)
        ]
        rows = zip(torch.stack(means, -1).numpy(), torch.stack(variances, -1).detach().numpy(), strict=True)
        return [ObservationData(list(models), mean, np.diag(variance)) for mean, variance in rows]

    @property
    def current(self) -> TrialBandit:
        """The bandit of the last trial, or one that was told the trials since."""
        if self._latest is None and self._is_first:
            raise AdapterMethodNotImplementedError("There is no posterior before the first trials.")
        self._latest = self._latest or self._bandit({}, self._optimization_config)
        return self._latest

    def says(self, stop: Callable[..., bool]) -> bool:
        """Return what a function says of a bandit that was told all trials; False while the first ones are made."""
        if self._is_first:
            return False
        found = self._bandit({}, self._optimization_config)
        return bool(stop(found.bandit, **found.time))

    @property
    def _is_first(self) -> bool:
        """Whether the next trial is one of the first: too few were made, or too few for a fit have an outcome."""
        lost, settings = (TrialStatus.FAILED, TrialStatus.ABANDONED), self.generator.settings
        made = sum(trial.status not in lost for trial in self._experiment.trials.values())
        needed = 1 if isinstance(settings.prior, Prior) else 2
        return made < settings.initialization_trials or self._trials.num_outcomes < needed

    def _bandit(self, fixed: Parameters, goals: OptimizationConfig | None, *, plainly: bool = False) -> TrialBandit:
        space, settings = self._space(fixed), self.generator.settings
        return TrialBandit(settings, self._trials, space, cast(Any, goals), plainly=plainly)

    def _space(self, fixed: Parameters) -> TrialSpace:
        return TrialSpace(self._search_space, fixed, self.generator.settings.candidates)

    def _spread(self, n: int, fixed: Parameters, waiting: list[ObservationFeatures]) -> list[Parameters]:
        """Return n parameterizations that cover the space evenly, or are drawn from the candidates."""
        seed, space = self.generator.settings.seed, self._space(fixed)
        number = len(self._experiment.trials) + sum(each.trial_index is None for each in waiting)
        if rows := space.rows:
            tried = [arm.parameters for arm in self._experiment.arms_by_signature.values()]
            tried += [each.parameters for each in waiting]
            rows = [row for row in rows if not any(row.items() <= parameters.items() for parameters in tried)] or rows
            drawn = torch.randperm(len(rows), generator=generator_for(seed, number, "first trials"), device="cpu")
            return space.completed([rows[place] for place in drawn[:n].tolist()])
        if not space.is_free:
            return space.completed([{}])
        points = space.encoded.sample(n, generator_for(seed, 0, "first trials"), first=number)
        return space.completed(space.encoded.decode(points))


class KernelBanditGenerators(GeneratorRegistryBase):
    """What the node of a strategy generates with; saved by name."""

    BANDIT = "KernelBandit"

    @property
    def GENERATOR_KEY_TO_GENERATOR_SETUP(self) -> dict[str, GeneratorSetup]:  # noqa: N802 (Ax's name)
        """The parts of the generator, by its value."""
        setup = GeneratorSetup(
            BanditAdapter,
            BanditGenerator,
            [Derelativize],
            # There is no posterior of the baseline before the first trials: it counts as it was measured.
            standard_adapter_kwargs={"transform_configs": {"Derelativize": {"use_raw_status_quo": True}}},
            not_saved_generator_kwargs=["settings"],
        )
        return {self.BANDIT.value: setup}

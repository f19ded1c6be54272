"""The models of this package as Ax builds them: from data with trial indices, and from one value with all settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.utils.datasets import SupervisedDataset
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.settings import prior_mode
from torch import Tensor

from torch_kbandits.dictionaries import DictionaryRule, RidgeLeverageSampling
from torch_kbandits.errors import InputError
from torch_kbandits.integrations.ax.cube import UnitCube
from torch_kbandits.integrations.ax.fitting import (
    Ageing,
    Hyperparameters,
    Observations,
    fit_hyperparameters,
    own_least_noise,
    scaled_kernel,
)
from torch_kbandits.integrations.ax.trials import Trials
from torch_kbandits.memory import Growth, Memory
from torch_kbandits.models import FactoredGP, NystromGP, OnlineGP
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.numerics.random import generator_for, seed_for
from torch_kbandits.numerics.rows import distinct


@dataclass(frozen=True)
class ModelSettings:
    """What a model is made with; a value, saved with the experiment.

    Attributes:
        seed: addresses the randomness of the dictionary and of the fit.
        dictionary: the rule of a Nyström posterior; None for ridge leverage sampling.
        memory: what old trials count for; None for all alike.
        kernel: a given prior covariance on the unit cube; None for a fitted one.
        regularization: a given λ, in reward units squared; None for a fitted one.
        prior_mean: a given prior mean, in reward units; None for a fitted one.
    """

    seed: int
    dictionary: DictionaryRule | None = None
    memory: Memory | None = None
    kernel: Kernel | None = None
    regularization: float | None = None
    prior_mean: float | None = None

    def without_priors(self) -> Self:
        """Return them for another outcome, of which nothing is known beforehand."""
        return replace(self, kernel=None, regularization=None, prior_mean=None)

    @property
    def growth(self) -> Growth | None:
        """How noise grows with age under the memory, as its ``growth`` says; None if it does not."""
        return getattr(self.memory, "growth", None)


class FittedByTrials(FactoredGP):
    """What both models have in common: Ax builds them, and ``fit_gpytorch_mll`` calls ``custom_fit``.

    Hyperparameters follow from the data alone, not from those of the trial before, so an experiment that was saved and
    loaded goes on as if it had not been.
    """

    _settings: ModelSettings
    _trials: Trials

    @classmethod
    def construct_inputs(
        cls, training_data: SupervisedDataset, *, settings: ModelSettings, categorical_features: list[int] | None = None
    ) -> dict[str, Any]:
        """Return the arguments of the constructor.

        Args:
            training_data: one outcome; its ``group_indices`` are the indices of the trials.
            settings: what the model is made with.
            categorical_features: columns of unordered choices, which Ax names; ``UnitCube`` knows them.
        """
        trials = Trials.of(training_data, settings.memory, settings.regularization)
        return {"trials": trials, "settings": settings}

    def custom_fit(self, mll: MarginalLogLikelihood, **_: Any) -> MarginalLogLikelihood:  # pyright: ignore
        """Fit what is not given, and choose the dictionary anew."""
        settings, growth = self._settings, self._settings.growth
        trials = self._trials.fitted(fading=growth is not None)
        known = None if trials.Yvar is None else trials.noise.unsqueeze(-1)
        ageing = None if growth is None or known is not None else Ageing(growth, trials.times, trials.now)
        with torch.no_grad():
            X = self._preprocess(trials.X)
        found = fit_hyperparameters(
            Observations(X, trials.Y, known, ageing),
            kernel=settings.kernel,
            regularization=settings.regularization,
            prior_mean=settings.prior_mean,
            groups=cast(UnitCube, self.input_transform).groups,
            seed=seed_for(settings.seed, int(trials.now), "fit"),
        )
        self._take(found)
        return mll.eval()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at x.

        Raises:
            UnsupportedError: BoTorch's, where its short cut for leaving out one observation after another asks. That
                is right for exact posteriors of observations that do not age; Ax then leaves them out one by one.
        """
        if not self.training and prior_mode.off():
            raise UnsupportedError("Leave out observations by load_state_dict of models without them.")
        return super().forward(x)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take over the hyperparameters, dictionary and present of a model, as Ax does to leave out some of its trials.

        What the memory makes of the trials left is what it makes of them at that present.
        """
        settings = self._settings
        trials = self._trials.seen_at(float(state_dict["present"]), settings.memory, settings.regularization)
        type(self).__init__(self, trials, settings, self.input_transform)  # pyright: ignore  (other trials may count)
        own = {name: value for name, value in self.state_dict().items() if name.endswith(".times")}
        return super().load_state_dict({**state_dict, **own}, *args, **kwargs)

    def _remember(self, trials: Trials, settings: ModelSettings) -> None:
        """Keep what the model is made of."""
        self._trials, self._settings = trials, settings
        self.register_buffer("present", trials.X.new_tensor(trials.now))

    def _take(self, found: Hyperparameters) -> None:
        """Take over hyperparameters, and forget what was computed with others."""
        self.covar_module = found.kernel
        self.mean_module = _constant_mean(found.prior_mean, self._trials)
        if found.regularization is not None:
            self.likelihood.noise = self._trials.X.new_tensor(found.regularization)
        self._clear_cache()


class AxOnlineGP(FittedByTrials, OnlineGP):
    """``OnlineGP`` in Ax: the exact posterior."""

    def __init__(self, trials: Trials, settings: ModelSettings, input_transform: UnitCube) -> None:
        with own_least_noise():
            super().__init__(**_arguments(trials, settings, input_transform), input_transform=input_transform)
        self._remember(trials, settings)


class AxNystromGP(FittedByTrials, NystromGP):
    """``NystromGP`` in Ax: a Nyström posterior, whose dictionary is chosen anew whenever there is new data."""

    def __init__(self, trials: Trials, settings: ModelSettings, input_transform: UnitCube) -> None:
        arguments = _arguments(trials, settings, input_transform)
        # The rule chooses with the fitted kernel, so after the fit.
        first = arguments["train_X"][:1]
        with own_least_noise():
            super().__init__(**arguments, inducing_points=first, input_transform=input_transform)
        self._remember(trials, settings)

    def _take(self, found: Hyperparameters) -> None:
        super()._take(found)
        rule = self._settings.dictionary or RidgeLeverageSampling()
        trial = 0 if rule.is_coupled or rule.is_online else int(self._trials.now)
        generator = generator_for(self._settings.seed, trial, "dictionary")
        chosen = self._choose(self._trials.counted().X, rule, generator)
        self.inducing_points = distinct(chosen)[0]
        self._clear_cache()


def _arguments(trials: Trials, settings: ModelSettings, cube: UnitCube) -> dict[str, Any]:
    """Return the arguments of a model of this package; what is to be fitted has the value from which a fit starts."""
    counted, level = trials.counted(), settings.regularization
    if settings.kernel is not None:
        _check_columns(settings.kernel, cube, trials.X)
    arguments: dict[str, Any] = {
        "train_X": counted.X,
        "train_Y": counted.Y,
        "covar_module": settings.kernel or scaled_kernel(cube.groups).requires_grad_(False),
        "mean_module": _constant_mean(settings.prior_mean or 0.0, trials),
    }
    if trials.Yvar is not None:
        arguments |= {
            "train_Yvar": counted.noise.unsqueeze(-1),
            "regularization": float(trials.Yvar.mean()) if level is None else level,
        }
    elif settings.growth is not None:
        ageing = Ageing(settings.growth, counted.times, trials.now)
        arguments["likelihood"] = ageing.likelihood(level or 1.0).requires_grad_(False)
    else:
        arguments["regularization"] = level or 1.0
    return arguments


def _check_columns(kernel: Kernel, cube: UnitCube, X: Tensor) -> None:
    """Refuse a kernel that is not one on the cube."""
    try:
        check_kernel(kernel, cube.transform(X.new_zeros(1, X.shape[-1])))
    except InputError as error:
        raise InputError(
            f"kernel must be one on the unit cube, whose columns are {cube.columns} here: a column for each parameter, "
            f"but for an unordered choice of more than two values one for each value. {error}"
        ) from error


def _constant_mean(value: float, trials: Trials) -> ConstantMean:
    mean = ConstantMean().to(trials.X)
    mean.initialize(constant=trials.X.new_tensor(value))
    return mean.requires_grad_(False)

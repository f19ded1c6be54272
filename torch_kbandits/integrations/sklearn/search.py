"""The search over parameters that a kernelized bandit makes.

``_run_search`` is scikit-learn's documented hook for searches that choose in the light of what was found, of a class,
``BaseSearchCV``, that has no public name; all else is then exactly what ``RandomizedSearchCV`` does.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.saving import settings_of
from torch_kbandits.candidates import UnitCube
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.integrations.sklearn.distributions import SearchSpace
from torch_kbandits.integrations.sklearn.evaluations import Evaluations, Row, digest
from torch_kbandits.integrations.tuning import is_spread, tuning_bandit
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.rows import among
from torch_kbandits.priors import LearnedPrior, default_kernel
from torch_kbandits.spaces import ParameterSpace

#: Spaces of at most so many configurations are listed, if their encodings have no more numbers than so many.
_LISTED, _NUMBERS = 4096, 2**22
_DRAWS = 32  # so many points of a design are tried for one that is new
#: Words that do not matter for what is measured.
_FREE = {"checkpoint", "estimator", "n_iter", "n_jobs", "num_initial", "batch_size", "pre_dispatch", "refit", "verbose"}


class UntriedCube(UnitCube):
    """The configurations of a space as points of the cube; what was tried is not played again, and may be recommended.

    A small space is searched whole, whatever points a search looks at. In a larger one points whose configurations were
    all tried are taken to these nevertheless. ``count`` is infinite where configurations are not listed.
    """

    def __init__(self, space: ParameterSpace) -> None:
        self.space, self.tried = space, torch.zeros(0, space.dimension, dtype=torch.float64)
        self._listed = _listed(space)
        self.count = math.inf if self._listed is None else len(self._listed)
        super().__init__(space.dimension, snap=self.untried, continuous=space.continuous, neighbours=space.neighbours)

    def untried(self, points: Tensor) -> Tensor:
        """Return encodings (m, d) of configurations, those not tried if there are any among those considered."""
        points = self.space.snap(points) if self._listed is None else self._listed
        fresh = ~among(points, self.tried)
        return points[fresh] if bool(fresh.any()) else points

    def spread(self, seed: int, number: int) -> Tensor:
        """Return the encoding (1, d) of a configuration; those of one number after another are evenly spread."""
        drawn = self.space.sample(_DRAWS, generator_for(seed, 0, "design"), first=number)
        others = self.untried(drawn)
        return others[[int((others - drawn[0]).square().sum(-1).argmin())]]

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that all may be used in the end, (n,) bool: each is of a configuration."""
        return torch.ones(len(points), dtype=torch.bool)


def _listed(space: ParameterSpace) -> Tensor | None:
    """Return the encodings of all configurations of a space, (n, d); None where they are too many."""
    parameters = space.parameters.values()
    counts = [parameter.count for parameter in parameters if not parameter.when]  # others may be there or not
    if math.prod(counts) > _LISTED or any(parameter.count > _LISTED for parameter in parameters):
        return None
    found = latest = space.sample(1, torch.Generator().manual_seed(0))
    while len(latest) and len(found) <= _LISTED and found.numel() <= _NUMBERS:
        near = space.neighbours(latest).unique(dim=0)
        latest = near[~among(near, found)]
        found = torch.cat([found, latest])
    return None if len(latest) else found.unique(dim=0)


class KernelBanditSearchCV(BaseSearchCV):
    """A search over parameters by cross-validation, in which a kernelized bandit chooses what to evaluate.

    It is used as ``RandomizedSearchCV`` is. The first configurations, and later those of the numbers 8, 16, 32, …, fill
    the space evenly. The others are chosen by a bandit whose prior is learned from mean test scores, see
    ``LearnedPrior``. No configuration is evaluated twice. One whose score is not finite, as where a fit failed, is told
    as a failed play.

    Args:
        estimator: what is tuned.
        param_distributions: of each parameter a list of choices; a frozen distribution of ``scipy.stats``, searched by
            its quantiles; or ``Float``, ``Integer`` or ``Categorical`` of ``torch_kbandits``. A list of three numbers
            or more is searched in order of size. Or a list of such dicts, of one of which configurations are.
        n_iter: configurations to evaluate.
        algorithm, beta: a registry name, and the multiplier of the standard deviation, or a ``Width``, where that takes
            one; 2 unless given.
        num_initial: configurations that fill the space, all evaluated at once; by default 10, or a third of ``n_iter``
            if that is less, but at least 2.
        batch_size: configurations evaluated at once from then on; by default as many as ``n_jobs`` has workers.
        bandit_options: ``kernel`` and ``clip`` of ``LearnedPrior``, and words of the algorithm. A dictionary that can
            be capped stops at 400 points unless ``max_dictionary`` (None for no cap) and ``when_full`` say otherwise.
        checkpoint: path of a directory in which joblib keeps what was measured, batch by batch, for the same search of
            the same data. Needs a ``random_state``.
        scoring, n_jobs, cv, verbose, pre_dispatch, return_train_score: as in ``RandomizedSearchCV``.
        refit: whether to refit the best configuration; with several metrics the name of the one to maximise.
        random_state: of the design and of the bandit.
        error_score: the score of a fit that fails. A number is told to the bandit as it is, NaN as a failure.

    Attributes:
        cv_results_: a row for each configuration in order of evaluation, as in ``RandomizedSearchCV``; so are others.
        bandit_: what was learned, a ``Bandit`` on a ``UnitCube``; None where nothing could be chosen.
        space_: the ``SearchSpace``; ``space_.decode(bandit_.history.X)`` are the configurations told.
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        n_iter: int = 10,
        algorithm: str = "gp-ei",
        beta: float | Width | None = None,
        num_initial: int | None = None,
        batch_size: int | None = None,
        bandit_options: Mapping[str, Any] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[..., int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.param_distributions, self.n_iter, self.random_state = param_distributions, n_iter, random_state
        self.algorithm, self.beta, self.bandit_options = algorithm, beta, bandit_options
        self.num_initial, self.batch_size, self.checkpoint = num_initial, batch_size, checkpoint
        words: Any = {"scoring": scoring, "n_jobs": n_jobs, "refit": refit, "cv": cv, "verbose": verbose}
        words |= {"pre_dispatch": pre_dispatch, "error_score": error_score, "return_train_score": return_train_score}
        super().__init__(estimator, **words)

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search, and refit the best configuration; arguments are as in ``RandomizedSearchCV.fit``.

        Raises:
            InputError: if a word does not fit.
            StateMismatchError: if ``cv`` draws other splits than those of what is in the checkpoint.
        """
        data = {} if self.checkpoint is None else {"X": X, "y": y, **params}
        self._data = {name: digest(value) for name, value in data.items()}  # small: workers are sent this object
        return super().fit(X, y, **params)

    def _run_search(self, evaluate_candidates: Callable[..., Any], *, callback_ctx: Any = None) -> None:
        """Evaluate a design that fills the space, then what the bandit asks for, batch by batch."""
        checks.absent_or("checkpoint", self.checkpoint, (str, PathLike), "the path of a directory")
        if self.checkpoint is not None and self.random_state is None:
            raise InputError("checkpoint= needs a random_state, by which the search is known when it goes on.")
        self.space_ = SearchSpace(self.param_distributions)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        cube = UntriedCube(self.space_.space) if self.space_.space.dimension else None
        sizes = self._sizes(1 if cube is None else cube.count)
        self.bandit_ = None if cube is None else self._bandit(cube, max(2, sizes[1]), seed)
        key = "" if self.checkpoint is None else self._key(sizes, seed)
        evaluations = self._evaluations = Evaluations(self, evaluate_candidates, callback_ctx, key)
        try:
            if self.bandit_ is not None and cube is not None:
                _play(self.bandit_, cube, sizes, evaluations)
            else:
                evaluations.add(torch.zeros(1, 0, dtype=torch.float64))
            evaluations.finish(super()._format_results)
        finally:
            del self._evaluations

    def _format_results(self, candidate_params: Any, n_splits: int, out: list[Row], more_results: Any = None) -> Any:
        """Hand over what was measured; the table with which ``fit`` goes on is filled at the end."""
        self._evaluations.measured = out
        return self._evaluations.table

    def _key(self, sizes: tuple[int, int, int], seed: int) -> str:
        """Return what tells a search of some data from others."""
        settings = {name: value for name, value in self.get_params().items() if name not in _FREE}
        settings |= {"sizes": sizes, "random_state": seed, "estimator": type(self.estimator)}
        settings |= {"beta": settings_of("", self.beta), "bandit_options": settings_of("", self.bandit_options or {})}
        settings |= {"param_distributions": self.space_.settings(), "refit": isinstance(self.refit, str) and self.refit}
        return digest({name: digest(value) for name, value in (settings | self._data).items()})

    def _sizes(self, count: float) -> tuple[int, int, int]:
        """Return how many configurations to evaluate, how many of them first, and how many at once later."""
        wanted = checks.positive_integer("n_iter", self.n_iter)
        size = int(min(wanted, count))
        if size < wanted:
            message = (
                f"There are only {size} different configurations, fewer than n_iter={wanted}; each is evaluated once."
            )
            warnings.warn(message, KernelBanditWarning, stacklevel=2)
        num_initial = min(10, max(2, size // 3))
        if self.num_initial is not None:
            num_initial = checks.whole_number("num_initial", self.num_initial, least=2)  # a fit needs two scores
        batch_size = effective_n_jobs(self.n_jobs) if self.batch_size is None else self.batch_size  # pyright: ignore[reportArgumentType]
        return size, min(num_initial, size), checks.positive_integer("batch_size", batch_size)

    def _bandit(self, cube: UntriedCube, num_initial: int, seed: int) -> Bandit:
        """Return a bandit that was told nothing."""
        options: dict[str, Any] = {"kernel": None, "clip": True, **(self.bandit_options or {})}
        kernel, clip = options.pop("kernel"), options.pop("clip")
        kernel = default_kernel(cube.dimension, cube.space.groups) if kernel is None else kernel
        prior = LearnedPrior(kernel, clip=clip, num_initial=num_initial)
        return tuning_bandit(self.algorithm, cube, prior, seed=seed, beta=self.beta, **options)


def _play(bandit: Bandit, cube: UntriedCube, sizes: tuple[int, int, int], evaluations: Evaluations) -> None:
    """Evaluate batch after batch, and tell the bandit all."""
    size, num_initial, batch_size = sizes
    scores, num_spread = np.zeros(0), 0
    while (told := len(scores)) < size:
        for number in range(told, min(size, told + batch_size if told >= num_initial else num_initial)):
            if is_spread(number, bandit.num_observations, num_initial):
                x, num_spread = cube.spread(bandit.seed, num_spread), num_spread + 1
                if bandit.num_observations:
                    bandit.mark_pending(x)
            else:
                x = bandit.ask()
            cube.tried = torch.cat([cube.tried, x])
        points = cube.tried[told:]
        rows = evaluations.add(points)
        scores = np.append(scores, evaluations.scores(rows, len(points)))
        if len(scores) >= num_initial and bool(np.isfinite(scores).any()):
            new = slice(bandit.num_observations, None)
            fails = ~np.isfinite(scores[new])
            bandit.tell(cube.tried[new], np.where(fails, np.nan, scores[new]), failed=fails)

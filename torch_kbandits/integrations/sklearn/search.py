"""The search over parameters that a kernelized bandit makes."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from torch_kbandits import checks
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.fitted import FittedBandit
from torch_kbandits.integrations.sklearn.distributions import SearchSpace
from torch_kbandits.integrations.sklearn.sequential import Evaluate, SequentialSearchCV
from torch_kbandits.integrations.sklearn.untried import Untried
from torch_kbandits.random import generator_for

#: Scores this many times as far below the median as the best is above it are told as if they were there.
_FAR_BELOW = 5.0


class KernelBanditSearchCV(SequentialSearchCV):
    """A search over parameters by cross-validation, in which a kernelized bandit chooses what to evaluate.

    It is used as ``RandomizedSearchCV`` is and leaves the same attributes. The first configurations fill the space
    evenly. From then on a ``FittedBandit`` chooses, ``batch_size`` of them at a time, and learns their mean test
    scores. No configuration is evaluated twice.

    A configuration one of whose fits failed is told a score as bad as any seen. Scores far below the others are told as
    less far below: what matters is which are good.

    Args:
        estimator: what is tuned.
        param_distributions: of each parameter a list of choices; ``uniform``, ``loguniform`` or ``randint`` of
            ``scipy.stats``; or ``Float``, ``Integer`` or ``Categorical`` of ``torch_kbandits.integrations.parameters``.
            A list of three numbers or more is searched in order of size, at equal distances.
        n_iter: configurations to evaluate.
        algorithm: a registry name, as in ``FittedBandit``.
        beta: multiplier of the standard deviation, as in ``FittedBandit``; 2 unless given.
        num_initial: configurations that fill the space, all evaluated at once; by default 10, or a third of ``n_iter``
            if that is less, but at least 2.
        batch_size: configurations evaluated at once from then on; by default as many as ``n_jobs`` has workers. The
            result depends on it, and on ``n_jobs`` only through it.
        recommend: "score" takes the configuration of the best mean test score for the best, as scikit-learn does,
            "posterior" that of the largest posterior mean among those evaluated.
        bandit_options: further words of ``FittedBandit`` and of its algorithm.
        scoring: as in ``RandomizedSearchCV``, like all words below.
        n_jobs: joblib's workers.
        refit: whether to refit the best configuration; with several metrics the name of the one to maximise.
        cv: the splits, which all configurations share.
        verbose: how much scikit-learn prints, batch by batch.
        pre_dispatch: jobs that are dispatched at once.
        random_state: of the design and of the bandit.
        error_score: the score of a fit that fails.
        return_train_score: whether to score on the training data as well.

    Attributes:
        cv_results_: a row for each configuration in order of evaluation; columns as in ``RandomizedSearchCV``, and so
            are ``best_index_``, ``best_params_``, ``best_score_``, ``best_estimator_`` and the others.
        bandit_: what was learned, a ``FittedBandit``; None where nothing could be chosen.
        space_: the ``SearchSpace``; ``space_.decode(bandit_.history.X)`` are the configurations told.
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Mapping[str, Any],
        *,
        n_iter: int = 10,
        algorithm: str = "ek-ucb",
        beta: float | Width | None = None,
        num_initial: int | None = None,
        batch_size: int | None = None,
        recommend: str = "score",
        bandit_options: Mapping[str, Any] | None = None,
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
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.algorithm = algorithm
        self.beta = beta
        self.num_initial = num_initial
        self.batch_size = batch_size
        self.recommend = recommend
        self.bandit_options = bandit_options
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,  # pyright: ignore[reportArgumentType]
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,  # pyright: ignore[reportArgumentType]
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def _search(self, evaluate: Evaluate) -> None:
        """Evaluate a design that fills the space, then what the bandit asks for, batch by batch."""
        checks.one_of("recommend", self.recommend, ("score", "posterior"))
        if self.recommend == "posterior" and callable(self.refit):
            raise InputError('recommend="posterior" and a callable refit both say which is best. Give one of them.')
        self.space_ = SearchSpace.of(self.param_distributions)
        untried = Untried(self.space_.space)
        size, num_initial, batch_size = self._sizes(untried.count)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        bandit = self.bandit_ = self._made(untried, max(2, num_initial), seed)
        generator = generator_for(seed, 0, "design")

        scores = np.zeros(0)
        while len(scores) < size:
            if bandit is None or bandit.num_told == 0:
                wanted = num_initial - len(scores)
                points = untried.sample(min(wanted if wanted > 0 else batch_size, size - len(scores)), generator)
                untried.add(points)
            else:
                points = _ask(bandit, min(batch_size, size - len(scores)), untried)
            scores = np.append(scores, evaluate(self.space_.decode(points)))
            done = len(scores) >= num_initial and bool(np.isfinite(scores).any())
            if bandit is not None and done:
                told = bandit.history.Y.numpy()
                bandit.tell(untried.tried[len(told) :], torch.from_numpy(_rewards(scores, told)))

    def _sizes(self, count: float) -> tuple[int, int, int]:
        """Return how many configurations to evaluate, how many of them first, and how many at once later."""
        whole = {}
        for name in ("n_iter", "num_initial", "batch_size"):
            value = getattr(self, name)
            if value is not None or name == "n_iter":
                plain: Any = int(value) if isinstance(value, np.integer) else value
                whole[name] = checks.positive_integer(name, plain)
        size = int(min(whole["n_iter"], count))
        if size < whole["n_iter"]:
            warnings.warn(
                f"There are only {size} different configurations, fewer than n_iter={self.n_iter}; each is evaluated "
                "once.",
                KernelBanditWarning,
                stacklevel=2,
            )
        num_initial = whole.get("num_initial", min(10, max(2, size // 3)))
        if num_initial < 2:
            raise InputError("num_initial must be at least 2, since a fit needs two scores; got 1.")
        workers = effective_n_jobs(self.n_jobs)  # pyright: ignore[reportArgumentType]
        return size, min(num_initial, size), whole.get("batch_size", workers)

    def _made(self, untried: Untried, num_initial: int, seed: int) -> FittedBandit | None:
        if untried.space.dimension == 0:
            return None
        return FittedBandit(
            dimension=untried.space.dimension,
            snap=untried,
            algorithm=self.algorithm,
            beta=self.beta,
            num_initial=num_initial,
            seed=seed,
            **(self.bandit_options or {}),
        )

    def _select_best_index(self, refit: Any, refit_metric: str, results: Mapping[str, Any]) -> int:
        """Return the row that is recommended."""
        if self.recommend == "posterior" and self.bandit_ is not None and self.bandit_.num_told:
            played = (self.bandit_.recommend() == self.bandit_.history.X).all(-1)
            index = int(played.nonzero()[0])
            if np.isfinite(results[f"mean_test_{refit_metric}"][index]):
                return index
        return int(super()._select_best_index(refit, refit_metric, results))


def _ask(bandit: FittedBandit, q: int, untried: Untried) -> torch.Tensor:
    """Return q different points (q, d), pending; one by one, so that each knows of those before."""
    asked = []
    for _ in range(q):
        asked.append(bandit.ask())
        untried.add(asked[-1])
    return torch.cat(asked)


def _rewards(scores: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Return the rewards to tell of the scores, of which so many were told before.

    Scores far below the median count as if they were less far below, or one of them would be the unit in which all
    others are equal. Scores that are not finite count as the worst that was ever told.
    """
    finite = scores[np.isfinite(scores)]
    median, best = float(np.median(finite)), float(finite.max())
    new = scores[len(told) :]
    usable = np.isfinite(new)
    if best > median:
        new = np.maximum(new, median - _FAR_BELOW * (best - median))
    return np.where(usable, new, min([*told, *new[usable]]))

"""The search over parameters that a kernelized bandit makes."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.integrations.sklearn.checkpoint import Batch, SearchCheckpoint, described
from torch_kbandits.integrations.sklearn.distributions import LEVELS, SearchSpace
from torch_kbandits.integrations.sklearn.evaluations import Evaluations, SequentialSearchCV
from torch_kbandits.integrations.sklearn.untried import Untried, UntriedCube
from torch_kbandits.integrations.tuning import is_spread, tuning_bandit
from torch_kbandits.priors import LearnedPrior, default_kernel


class KernelBanditSearchCV(SequentialSearchCV):
    """A search over parameters by cross-validation, in which a kernelized bandit chooses what to evaluate.

    It is used as ``RandomizedSearchCV`` is and leaves the same attributes. The first configurations fill the space
    evenly, and so does every eighth one later. The others are chosen by a bandit whose prior is learned, ``batch_size``
    of them at a time, which learns their mean test scores; see ``LearnedPrior``. No configuration is evaluated twice.

    A configuration one of whose fits failed, or whose score is not finite, is told as a play that failed: it has no
    score, and how likely others are to fail is learned. Scores far below the others count as less far below: what
    matters is which are good.

    Args:
        estimator: what is tuned.
        param_distributions: of each parameter a list of choices; a frozen distribution of ``scipy.stats``, searched by
            its quantiles; or ``Float``, ``Integer`` or ``Categorical`` of ``torch_kbandits``, which may depend on
            others. A list of three numbers or more is searched in order of size, at equal distances. A list of such
            dicts: configurations are of one of them, and what they have in common is learned together.
        n_iter: configurations to evaluate.
        algorithm: a registry name, such as "gp-ei", "ek-ucb" or "gp-ts".
        beta: multiplier of the standard deviation, or a ``Width``; 2 unless given, where the algorithm takes one.
        num_initial: configurations that fill the space, all evaluated at once; by default 10, or a third of ``n_iter``
            if that is less, but at least 2.
        batch_size: configurations evaluated at once from then on; by default as many as ``n_jobs`` has workers. The
            result depends on it, and on ``n_jobs`` only through it.
        recommend: "score" takes the configuration of the best mean test score for the best, as scikit-learn does,
            "posterior" that of the largest posterior mean among those evaluated.
        bandit_options: further words: ``kernel`` and ``clip`` of ``LearnedPrior``, and those of the algorithm. A
            dictionary that can be capped stops at 400 points unless ``max_dictionary`` (None for no cap) and
            ``when_full`` say otherwise.
        checkpoint: path of a file that is written after each batch. A search that finds it goes on from there, if it is
            the same search of the same data, and comes out as one that was not interrupted. Needs a ``random_state``.
        scoring: as in ``RandomizedSearchCV``, like all words below.
        n_jobs: joblib's workers.
        refit: whether to refit the best configuration; with several metrics the name of the one to maximise.
        cv: the splits, which all configurations share.
        verbose: how much scikit-learn prints, batch by batch.
        pre_dispatch: jobs that are dispatched at once.
        random_state: of the design and of the bandit.
        error_score: the score of a fit that fails. A number is told to the bandit as it is, NaN as a failure.
        return_train_score: whether to score on the training data as well.

    Attributes:
        cv_results_: a row for each configuration in order of evaluation; columns as in ``RandomizedSearchCV``, and so
            are ``best_index_``, ``best_params_``, ``best_score_``, ``best_estimator_`` and the others.
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
        recommend: str = "score",
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
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.algorithm = algorithm
        self.beta = beta
        self.num_initial = num_initial
        self.batch_size = batch_size
        self.recommend = recommend
        self.bandit_options = bandit_options
        self.checkpoint = checkpoint
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

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search, and refit the best configuration; see ``RandomizedSearchCV.fit``.

        Args:
            X: data, n rows.
            y: what is to be predicted, if anything.
            params: passed on to the estimator, the splitter and the scorer.

        Raises:
            InputError: if a word does not fit.
            FileError: if the checkpoint cannot be read, or none can be written at its path.
            DamagedFileError: if it is cut, changed or no checkpoint's.
            StateMismatchError: if it is of another search or other data; the message names each difference.
        """
        self._data: dict[str, str] = {}
        if self.checkpoint is not None:
            self._data = {name: described(value) for name, value in {"X": X, "y": y, **params}.items()}
        try:
            return super().fit(X, y, **params)
        finally:
            del self._data

    def _search(self, evaluations: Evaluations) -> None:
        """Evaluate a design that fills the space, then what the bandit asks for, batch by batch."""
        checks.one_of("recommend", self.recommend, ("score", "posterior"))
        if self.recommend == "posterior" and callable(self.refit):
            raise InputError('recommend="posterior" and a callable refit both say which is best. Give one of them.')
        if self.checkpoint is not None and self.random_state is None:
            raise InputError("checkpoint= needs a random_state, by which the search is known when it goes on.")
        self.space_ = SearchSpace.of(self.param_distributions)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        untried = Untried(self.space_.space, seed)
        sizes = size, num_initial, batch_size = self._sizes(untried.count)
        bandit = self.bandit_ = self._made(untried, max(2, num_initial), seed)
        kept = SearchCheckpoint(self.checkpoint, {} if self.checkpoint is None else self._identity(sizes, seed))
        earlier, evaluations.splits.expected = iter(kept.batches), kept.splits

        scores = np.zeros(0)
        while len(scores) < size:
            before = untried.tried
            if bandit is None or bandit.num_observations == 0:
                wanted = num_initial - len(scores)
                points = untried.sample(min(wanted if wanted > 0 else batch_size, size - len(scores)))
                untried.add(points)
            else:
                numbers = range(len(scores), min(len(scores) + batch_size, size))
                points = _chosen(bandit, numbers, num_initial, untried)
            batch = next(earlier, None)
            if batch is None:
                found, rows = evaluations.add(self.space_.decode(points))
                kept.keep(Batch(points, rows), evaluations.splits.digest)
            else:
                if not torch.equal(points, batch.points):
                    _warn_of_other_choices(self.checkpoint)
                    untried.tried = torch.cat([before, batch.points])
                    if bandit is not None:
                        bandit.forget()
                found = evaluations.add_known(self.space_.decode(batch.points), batch.rows)
            scores = np.append(scores, found)
            if bandit is not None and len(scores) >= num_initial and bool(np.isfinite(scores).any()):
                new = scores[bandit.num_observations :]
                fails = ~np.isfinite(new)
                bandit.tell(untried.tried[bandit.num_observations :], [*np.where(fails, np.nan, new)], failed=fails)

    def _identity(self, sizes: tuple[int, int, int], seed: int) -> dict[str, str]:
        """Return what must agree between a search and the one that goes on with it, by name."""
        words: dict[str, Any] = dict(zip(("n_iter", "num_initial", "batch_size"), sizes, strict=True))
        words["random_state"] = seed
        for name, parameter in self.space_.space.parameters.items():
            choices, given = getattr(parameter, "choices", parameter), self.space_.given.get(name)
            levels = None if given is None or given.shape is None else given.shape.ppf(LEVELS)
            words[f"param_distributions {name}"] = type(parameter), choices, given and given.numbers, levels
        words["estimator"] = type(self.estimator)
        words |= {f"estimator__{name}": _classes_in(value) for name, value in self.estimator.get_params().items()}
        names = "algorithm", "beta", "bandit_options", "scoring", "cv", "error_score", "return_train_score"
        words |= {name: getattr(self, name) for name in names}
        if isinstance(self.refit, str):  # the score that is maximised
            words["refit"] = self.refit
        return {name: described(value) for name, value in words.items()} | self._data

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

    def _made(self, untried: Untried, num_initial: int, seed: int) -> Bandit | None:
        space = untried.space
        if space.dimension == 0:
            return None
        options: dict[str, Any] = {"kernel": None, "clip": True, **(self.bandit_options or {})}
        kernel, clip = options.pop("kernel"), options.pop("clip")
        kernel = default_kernel(space.dimension, space.groups) if kernel is None else kernel
        cube = UntriedCube(space.dimension, snap=untried, continuous=space.continuous, neighbours=space.neighbours)
        prior = LearnedPrior(kernel, clip=clip, num_initial=num_initial)
        return tuning_bandit(self.algorithm, cube, prior, seed=seed, beta=self.beta, **options)

    def _select_best_index(self, refit: Any, refit_metric: str, results: Mapping[str, Any]) -> int:
        """Return the row that is recommended."""
        if self.recommend == "posterior" and self.bandit_ is not None and self.bandit_.num_observations:
            told = self.bandit_.candidates.actions(self.bandit_.history.X)
            index = int((self.bandit_.recommend() == told).all(-1).nonzero()[0])
            if np.isfinite(results[f"mean_test_{refit_metric}"][index]):
                return index
        return int(super()._select_best_index(refit, refit_metric, results))


def _chosen(bandit: Bandit, numbers: Iterable[int], num_initial: int, untried: Untried) -> torch.Tensor:
    """Return the different points (q, d) of the evaluations of q numbers, pending; each knows of those before."""
    chosen = []
    for number in numbers:
        if is_spread(number, bandit.num_observations, num_initial):
            chosen.append(untried.sample(1))
            bandit.mark_pending(chosen[-1])
        else:
            chosen.append(bandit.ask())
        untried.add(chosen[-1])
    return torch.cat(chosen)


def _warn_of_other_choices(path: Any) -> None:
    warnings.warn(
        f"The search chooses other configurations than those in {path!r}, as it may on another kind of machine or with "
        "other versions of its packages. It goes on with what was evaluated, but not as one that was not interrupted.",
        KernelBanditWarning,
        stacklevel=2,
    )


def _classes_in(value: Any) -> Any:
    """Return a setting with classes in place of estimators, of which ``get_params`` lists the parameters as well."""
    if isinstance(value, (list, tuple)):
        return [_classes_in(part) for part in value]
    return type(value) if hasattr(value, "get_params") and not isinstance(value, type) else value

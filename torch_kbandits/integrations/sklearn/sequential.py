"""scikit-learn's searches over parameters, for those that choose in the light of what was found.

This is the only place that knows what is private to scikit-learn. ``_run_search`` is documented there as the hook for
such searches, in a class, ``BaseSearchCV``, that has no public name; what fit, scorers, fit parameters, routing,
refitting and delegation do is then exactly what ``RandomizedSearchCV`` does.
"""

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV

from torch_kbandits.errors import InputError, StateMismatchError
from torch_kbandits.integrations.sklearn.identity import digest

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")


class Evaluated(NamedTuple):
    """What is known of n configurations.

    Attributes:
        scores: their mean test scores (n,), NaN for those that failed.
        rows: what scikit-learn measured in each fit, by configuration and split; empty if every fit failed.
    """

    scores: np.ndarray
    rows: list[dict[str, Any]]


class Evaluate(Protocol):
    """Has configurations evaluated."""

    def __call__(self, candidates: list[dict[str, Any]], known: list[dict[str, Any]] | None = None) -> Evaluated:
        """Return what is known of n configurations once they are evaluated.

        Args:
            candidates: the configurations.
            known: the rows that an earlier process returned of them, instead of which nothing is evaluated. All that is
                known comes before what is not.
        """
        ...


class SequentialSearchCV(BaseSearchCV):
    """A search whose ``_search`` evaluates one batch of configurations after another.

    Beyond what ``BaseSearchCV`` does, all configurations meet the same splits, also those of a splitter that would
    draw others each time, and a batch in which every fit fails does not end the search.

    Attributes:
        n_iter: how many configurations are evaluated at most.
    """

    n_iter: Any

    @abstractmethod
    def _search(self, evaluate: Evaluate, splits: "FixedSplits") -> None:
        """Choose configurations and have them evaluated, at ``splits``."""

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]], *, callback_ctx: Any = None) -> None:
        if isinstance(self.scoring, (list, tuple, dict)):
            self._name_of_score(self.scoring)
        splits = FixedSplits(self._checked_cv_orig)
        self._failed: dict[int, dict[str, Any]] = {}
        self._formatted: tuple[Any, ...] = ()
        self._known: tuple[list[Any], list[Any]] = [], []
        self._rehearses = False
        task = _SearchTask(self, callback_ctx)
        results: dict[str, Any] = {}
        number, failure = 0, None

        def evaluate(candidates: list[dict[str, Any]], known: list[dict[str, Any]] | None = None) -> Evaluated:
            nonlocal results, number, failure
            first, number = number, number + len(candidates)
            table: dict[str, Any] = {}
            if known is None:
                try:
                    table = results = evaluate_candidates(candidates, cv=splits, **task.next(len(candidates)))
                except ValueError as error:
                    if not _ALL_FAILED.match(str(error)):
                        raise
                    failure = error
                    warnings.warn(str(error), FitFailedWarning, stacklevel=2)
            elif known:
                if len(known) != len(candidates) * self.n_splits_:
                    raise StateMismatchError(
                        f"The checkpoint has {len(known)} fits of {len(candidates)} configuration(s), and cv makes "
                        f"{self.n_splits_} of each. Give the same cv and data, or another checkpoint=."
                    )
                self._known = [*self._known[0], *candidates], [*self._known[1], *known]
                table = self._format_results([], self.n_splits_, [])
            if not table:
                self._failed |= dict(enumerate(candidates, first))
                return Evaluated(np.full(len(candidates), np.nan), [])
            rows = self._formatted[2][-len(candidates) * self.n_splits_ :]
            return Evaluated(table[f"mean_test_{self._name_of_score(table)}"][first:], rows)

        try:
            self._search(evaluate, splits)
            if not results and self._known[0]:
                # What ``fit`` goes on with is what is evaluated here, so that something must be: what takes least time.
                self._rehearses = True
                results = evaluate_candidates([self._quickest()], cv=splits, **task.next(1))
            if not results and failure is not None:
                raise failure
            # The dictionary that BaseSearchCV goes on with; now its warnings are heard, once.
            results.update(super()._format_results(*self._with_failures(*self._formatted)))
            task.end()
        finally:
            del self._failed, self._formatted, self._known, self._rehearses

    def _quickest(self) -> dict[str, Any]:
        """Return the configuration known whose fits all succeeded, if there is one, and took the least time."""
        candidates, rows = self._known
        n = self.n_splits_
        own = [rows[n * place : n * (place + 1)] for place in range(len(candidates))]
        costs = [
            (
                any(row["fit_error"] is not None for row in each),
                sum(row["fit_time"] + row["score_time"] for row in each),
            )
            for each in own
        ]
        return candidates[costs.index(min(costs))]

    def _name_of_score(self, results: Any) -> str:
        """Return the name of the one score that is maximised."""
        if "mean_test_score" in results:
            return "score"
        if isinstance(self.refit, str) and (self.refit in results or f"mean_test_{self.refit}" in results):
            return self.refit
        raise InputError(
            f"{type(self).__name__} maximises one score: with several metrics refit must be the name of that one, "
            f"got refit={self.refit!r}."
        )

    def _format_results(
        self, candidate_params: list[Any], n_splits: int, out: list[Any], more_results: Any = None
    ) -> dict[str, Any]:
        here = ([], []) if self._rehearses else (candidate_params, out)
        candidate_params, out = ([*known, *new] for known, new in zip(self._known, here, strict=True))
        self._formatted = candidate_params, n_splits, out, more_results
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that scores are not finite, anew after each batch
            return super()._format_results(*self._with_failures(*self._formatted))

    def _with_failures(
        self, candidate_params: list[Any], n_splits: int, out: list[Any], more_results: Any
    ) -> tuple[Any, ...]:
        """Return the rows so far with those of batches in which every fit failed, in the order of evaluation."""
        candidate_params, out = list(candidate_params), list(out)
        nothing = {part: self._error_scores(out[0][part]) for part in ("test_scores", "train_scores") if part in out[0]}
        row = out[0] | nothing | {"fit_time": np.nan, "score_time": np.nan}
        for place, candidate in sorted(self._failed.items()):
            if place <= len(candidate_params):
                candidate_params.insert(place, candidate)
                out[place * n_splits : place * n_splits] = [row] * n_splits
        return candidate_params, n_splits, out, more_results

    def _error_scores(self, scores: Any) -> Any:
        return dict.fromkeys(scores, self.error_score) if isinstance(scores, dict) else self.error_score


class _SearchTask:
    """The search as a task of scikit-learn's callbacks, whose parts are the fits of all batches.

    Args:
        search: the search.
        context: what ``BaseSearchCV`` hands over since scikit-learn 1.9; None where it has no callbacks.
    """

    def __init__(self, search: SequentialSearchCV, context: Any) -> None:
        self._search, self._begun = search, 0
        if context is not None:
            most = search.n_iter * search.n_splits_ if isinstance(search.n_iter, Integral) else None
            context = context.subcontext(task_name="search", max_subtasks=most, sequential_subtasks=False)
            context.call_on_fit_task_begin(estimator=search)
        self._context = context

    def next(self, number: int) -> dict[str, Any]:
        """Return what the evaluation of so many configurations is called with."""
        if self._context is None:
            return {}
        first = self._begun
        self._begun += number * self._search.n_splits_
        return {"callback_ctx": _Numbered(self._context, first)}

    def end(self) -> None:
        """Say that the search is done."""
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self._search)


class _Numbered(NamedTuple):
    """The context of a search for one batch, whose fits scikit-learn counts from 0 and which begin at ``first``."""

    context: Any
    first: int

    def subcontext(self, *, task_id: int, **words: Any) -> Any:
        """Return the context of a fit."""
        return self.context.subcontext(task_id=self.first + task_id, **words)


class FixedSplits:
    """Splits that are drawn once.

    Args:
        splitter: what draws them.

    Attributes:
        expected: their ``digest`` in an earlier process; None if there was none.
        digest: of the splits, once they were drawn.
    """

    def __init__(self, splitter: Any) -> None:
        self.splitter = splitter
        self.expected: str | None = None
        self.digest = ""
        self._splits: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        """Yield the rows to train and to test on, the same in every call.

        Raises:
            StateMismatchError: if they are not those that are expected.
        """
        if self._splits is None:
            splits = list(self.splitter.split(X, y, **settings))
            self.digest = digest(np.asarray(part) for split in splits for part in split)
            if self.expected not in (None, self.digest):
                raise StateMismatchError(
                    f"{self.splitter!r} draws other splits than it did when the checkpoint was written, so scores "
                    "cannot be compared. Give cv a random_state, or another checkpoint=."
                )
            self._splits = splits
        return iter(self._splits)

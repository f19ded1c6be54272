"""scikit-learn's searches over parameters, for those that choose in the light of what was found.

This is the only place that knows what is private to scikit-learn. ``_run_search`` is documented there as the hook for
such searches, in a class, ``BaseSearchCV``, that has no public name; what fit, scorers, fit parameters, routing,
refitting and delegation do is then exactly what ``RandomizedSearchCV`` does.
"""

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV

from torch_kbandits.errors import InputError

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")

#: Takes configurations, n of them, and returns their mean test scores (n,), NaN for those that failed.
Evaluate = Callable[[list[dict[str, Any]]], np.ndarray]


class SequentialSearchCV(BaseSearchCV):
    """A search whose ``_search`` evaluates one batch of configurations after another.

    Beyond what ``BaseSearchCV`` does, all configurations meet the same splits, also those of a splitter that would
    draw others each time, and a batch in which every fit fails does not end the search.
    """

    @abstractmethod
    def _search(self, evaluate: Evaluate) -> None:
        """Choose configurations and have them evaluated."""

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        if isinstance(self.scoring, (list, tuple, dict)):
            self._name_of_score(self.scoring)
        splits = _FixedSplits(self._checked_cv_orig)
        self._failed: dict[int, dict[str, Any]] = {}
        self._formatted: tuple[Any, ...] = ()
        results: dict[str, Any] = {}
        number, failure = 0, None

        def evaluate(candidates: list[dict[str, Any]]) -> np.ndarray:
            nonlocal results, number, failure
            first, number = number, number + len(candidates)
            try:
                results = evaluate_candidates(candidates, cv=splits)
            except ValueError as error:
                if not _ALL_FAILED.match(str(error)):
                    raise
                failure = error
                self._failed |= dict(enumerate(candidates, first))
                warnings.warn(str(error), FitFailedWarning, stacklevel=2)
                return np.full(len(candidates), np.nan)
            return results[f"mean_test_{self._name_of_score(results)}"][first:]

        try:
            self._search(evaluate)
            if not results and failure is not None:
                raise failure
            # The dictionary that BaseSearchCV goes on with; now its warnings are heard, once.
            results.update(super()._format_results(*self._with_failures(*self._formatted)))
        finally:
            del self._failed, self._formatted

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


class _FixedSplits:
    """Splits that are drawn once."""

    def __init__(self, splitter: Any) -> None:
        self.splitter = splitter
        self.splits: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        if self.splits is None:
            self.splits = list(self.splitter.split(X, y, **settings))
        return iter(self.splits)

"""What is measured in a search of scikit-learn that chooses in the light of what was found.

This is the only place that knows what is private to scikit-learn. ``_run_search`` is documented there as the hook for
such searches, in a class, ``BaseSearchCV``, that has no public name; what fit, scorers, fit parameters, routing,
refitting and delegation do is then exactly what ``RandomizedSearchCV`` does.
"""

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV

from torch_kbandits.errors import InputError, StateMismatchError

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")

#: What scikit-learn measured in a fit, by name.
Row = dict[str, Any]


class SequentialSearchCV(BaseSearchCV):
    """A search whose ``_search`` has one batch of configurations evaluated after another.

    Beyond what ``BaseSearchCV`` does, all configurations meet the same splits, also those of a splitter that would
    draw others each time, and a batch in which every fit fails does not end the search.

    Attributes:
        n_iter: how many configurations are evaluated at most.
    """

    n_iter: Any

    @abstractmethod
    def _search(self, evaluations: "Evaluations") -> None:
        """Choose configurations and have them evaluated."""

    def _run_search(self, evaluate_candidates: Callable[..., Any], *, callback_ctx: Any = None) -> None:
        self._evaluations = Evaluations(self, evaluate_candidates, callback_ctx)
        try:
            self._search(self._evaluations)
            self._evaluations.finish()
        finally:
            del self._evaluations

    def _format_results(self, candidate_params: Any, n_splits: int, out: list[Row], more_results: Any = None) -> Any:
        """Hand over what was measured; the table with which ``fit`` goes on is filled at the end."""
        self._evaluations.measured = out
        return self._evaluations.table

    def _table_of(self, candidates: list[Any], rows: list[Row]) -> dict[str, Any]:
        """Return the table of configurations, of which rows were measured, as scikit-learn makes it."""
        return super()._format_results(candidates, self.n_splits_, rows)


class Evaluations:
    """The configurations evaluated in a search, batch by batch, and what was measured of them.

    Args:
        search: the search.
        evaluate: what ``BaseSearchCV`` evaluates configurations with.
        context: the search as a task of scikit-learn's callbacks, whose parts are the fits of all batches.

    Attributes:
        splits: which all configurations meet.
        table: ``cv_results_``, empty until ``finish``.
        measured: the rows of all fits that were made here.
    """

    def __init__(self, search: SequentialSearchCV, evaluate: Callable[..., Any], context: Any) -> None:
        self._search, self._evaluate, self._num_splits = search, evaluate, search.n_splits_
        if isinstance(search.scoring, (list, tuple, dict)):
            self._name_of_score(search.scoring)
        self.splits = FixedSplits(search._checked_cv_orig)
        self.table: dict[str, Any] = {}
        self.measured: list[Row] = []
        self._batches: list[tuple[list[Any], list[Row]]] = []
        self._begun, self._failure = 0, ValueError("No configuration was evaluated.")
        most = search.n_iter * self._num_splits if isinstance(search.n_iter, Integral) else None
        self._context = context.subcontext(task_name="search", max_subtasks=most, sequential_subtasks=False)
        self._context.call_on_fit_task_begin(estimator=search)

    def __reduce__(self) -> Any:
        return object, ()  # joblib's workers are sent the search, and look at nothing of this

    def add(self, candidates: list[Any]) -> tuple[np.ndarray, list[Row]]:
        """Have n configurations evaluated; return their mean test scores (n,), and rows, none if all fits failed."""
        rows: list[Row] = []
        try:
            self._fit(candidates)
            rows = self.measured[-len(candidates) * self._num_splits :]
        except ValueError as error:
            if not _ALL_FAILED.match(str(error)):
                raise
            self._failure = error
            warnings.warn(str(error), FitFailedWarning, stacklevel=2)
        return self.add_known(candidates, rows), rows

    def add_known(self, candidates: list[Any], rows: list[Row]) -> np.ndarray:
        """Take over what ``add`` returned of n configurations in an earlier process; return their scores (n,).

        Raises:
            StateMismatchError: if there are more or fewer splits now.
        """
        if rows and len(rows) != len(candidates) * self._num_splits:
            raise StateMismatchError(
                f"The checkpoint has {len(rows)} fits of {len(candidates)} configuration(s), and cv makes "
                f"{self._num_splits} of each. Give the same cv and data, or another checkpoint=."
            )
        self._batches.append((candidates, rows))
        if not rows:
            return np.full(len(candidates), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that scores are not finite; it is said of all in the end
            table = self._search._table_of(candidates, rows)
        return table[f"mean_test_{self._name_of_score(table)}"]

    def finish(self) -> None:
        """Fill the table; raise scikit-learn's error if every fit failed."""
        candidates = [each for batch, _ in self._batches for each in batch]
        succeeded = next((rows for _, rows in self._batches if rows), None)
        if succeeded is None:
            raise self._failure
        if not self.measured:
            # What ``fit`` goes on with is what is evaluated here, so that something must be: what takes least time.
            costs = [each for batch in self._batches for each in self._costs(*batch)]
            self._fit([min(costs, key=lambda each: each[:2])[-1]])
        scores = [part for part in ("test_scores", "train_scores") if part in succeeded[0]]
        nothing = succeeded[0] | {part: self._error_scores(succeeded[0][part]) for part in scores}
        nothing |= {"fit_time": np.nan, "score_time": np.nan}
        filled = [rows or [nothing] * len(batch) * self._num_splits for batch, rows in self._batches]
        self.table.update(self._search._table_of(candidates, [row for rows in filled for row in rows]))
        self._context.call_on_fit_task_end(estimator=self._search)

    def _fit(self, candidates: list[Any]) -> None:
        context = _Numbered(self._context, self._begun)
        self._begun += len(candidates) * self._num_splits
        self._evaluate(candidates, cv=self.splits, callback_ctx=context)

    def _costs(self, candidates: list[Any], rows: list[Row]) -> Iterator[tuple[bool, float, Any]]:
        """Yield of each configuration measured whether a fit failed, the seconds that it took, and itself."""
        for place, candidate in enumerate(candidates if rows else ()):
            own = rows[self._num_splits * place : self._num_splits * (place + 1)]
            seconds = sum(row["fit_time"] + row["score_time"] for row in own)
            yield any(row["fit_error"] is not None for row in own), seconds, candidate

    def _error_scores(self, scores: Any) -> Any:
        error = self._search.error_score
        return dict.fromkeys(scores, error) if isinstance(scores, dict) else error

    def _name_of_score(self, results: Any) -> str:
        """Return the name of the one score that is maximised."""
        refit = self._search.refit
        if "mean_test_score" in results:
            return "score"
        if isinstance(refit, str) and (refit in results or f"mean_test_{refit}" in results):
            return refit
        raise InputError(
            f"{type(self._search).__name__} maximises one score: with several metrics refit must be the name of that "
            f"one, got refit={refit!r}."
        )


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
        self.digest: Any = ""
        self._splits: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        """Yield the rows to train and to test on, the same in every call.

        Raises:
            StateMismatchError: if they are not those that are expected.
        """
        if self._splits is None:
            splits = list(self.splitter.split(X, y, **settings))
            self.digest = joblib.hash([np.asarray(part) for split in splits for part in split])
            if self.expected not in (None, self.digest):
                raise StateMismatchError(
                    f"{self.splitter!r} draws other splits than it did when the checkpoint was written, so scores "
                    "cannot be compared. Give cv a random_state, or another checkpoint=."
                )
            self._splits = splits
        return iter(self._splits)

"""What is measured in a search of scikit-learn that chooses in the light of what was found."""

import re
import warnings
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.exceptions import FitFailedWarning

from torch_kbandits.errors import InputError, StateMismatchError

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")

#: What scikit-learn measured in a fit, by name.
Row = dict[str, Any]


class Evaluations:
    """The configurations evaluated in a search, batch by batch, and what was measured of them; the splits as well.

    All configurations meet the same splits, also those of a splitter that would draw others each time, and a batch in
    which every fit fails does not end the search.

    Args:
        search: the ``BaseSearchCV``.
        evaluate: what it evaluates configurations with.
        context: the search as a task of scikit-learn's callbacks, whose parts are the fits of all batches.

    Attributes:
        measured: the rows of all fits that were made here.
        table: ``cv_results_``, empty until ``finish``.
        digest: of the splits, once they were drawn; it must be the one that is ``expected``, if any.
    """

    def __init__(self, search: Any, evaluate: Callable[..., Any], context: Any) -> None:
        self._search, self._evaluate, self._num_splits = search, evaluate, search.n_splits_
        if isinstance(search.scoring, (list, tuple, dict)):
            self._check_maximised(search.refit if isinstance(search.refit, str) else None, search.scoring)
        self.measured: list[Row] = []
        self.table: dict[str, Any] = {}
        self.digest = ""
        self.expected: str | None = None
        self._splits: list[Any] | None = None
        self._candidates: list[Any] = []
        self._rows: list[Row | None] = []
        self._begun, self._failure = 0, ValueError("No configuration was evaluated.")
        most = search.n_iter * self._num_splits if isinstance(search.n_iter, Integral) else None
        self._context = context.subcontext(task_name="search", max_subtasks=most, sequential_subtasks=False)
        self._context.call_on_fit_task_begin(estimator=search)

    def __reduce__(self) -> Any:
        return object, ()  # joblib's workers are sent the search, and look at nothing of this

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        """Yield the rows to train and to test on, the same in every call.

        Raises:
            StateMismatchError: if they are not those that are expected.
        """
        if self._splits is None:
            splitter = self._search._checked_cv_orig
            splits = list(splitter.split(X, y, **settings))
            self.digest = str(joblib.hash([np.asarray(part) for split in splits for part in split]))
            if self.expected not in (None, self.digest):
                raise StateMismatchError(
                    f"{splitter!r} draws other splits than it did when the checkpoint was written, so scores cannot be "
                    "compared. Give cv a random_state, or another checkpoint=."
                )
            self._splits = splits
        return iter(self._splits)

    def add(self, candidates: list[Any], rows: list[Row] | None = None) -> tuple[np.ndarray, list[Row]]:
        """Have n configurations evaluated, or take over the rows that an earlier process measured of them.

        Returns:
            Mean test scores (n,), and rows, one for each fit; NaN and no rows if all fits failed.
        """
        rows = self._fitted(candidates) if rows is None else rows
        self._candidates += candidates
        self._rows += rows or [None] * (len(candidates) * self._num_splits)
        scores: Any = [row["test_scores"] for row in rows] or [np.nan] * len(candidates)
        if isinstance(scores[0], dict):
            self._check_maximised(name := self._search.refit, scores[0])
            scores = [each[name] for each in scores]
        return np.array(scores, dtype=float).reshape(len(candidates), -1).mean(axis=1), rows

    def finish(self, format_results: Callable[..., dict[str, Any]]) -> None:
        """Fill the table with what scikit-learn makes of the rows; raise its error if every fit failed."""
        succeeded = [number for number, row in enumerate(self._rows) if row is not None and row["fit_error"] is None]
        if not succeeded:
            raise self._failure
        rows: list[Any] = self._rows
        quickest = min(succeeded, key=lambda number: rows[number]["fit_time"])
        # What ``fit`` goes on with is what is evaluated here, so that something must be.
        if not self.measured and not self._fitted([self._candidates[quickest // self._num_splits]]):
            raise self._failure
        nothing = rows[quickest] | {"fit_time": np.nan, "score_time": np.nan}
        for part in nothing.keys() & {"test_scores", "train_scores"}:
            scores, error = nothing[part], self._search.error_score
            nothing[part] = dict.fromkeys(scores, error) if isinstance(scores, dict) else error
        filled = [nothing if row is None else row for row in rows]
        self.table.update(format_results(self._candidates, self._num_splits, filled))
        self._context.call_on_fit_task_end(estimator=self._search)

    def _fitted(self, candidates: list[Any]) -> list[Row]:
        """Return the rows of configurations that are evaluated now, none if every fit fails."""
        size = len(candidates) * self._num_splits
        context = _Numbered(self._context, self._begun)
        self._begun += size
        try:
            self._evaluate(candidates, cv=self, callback_ctx=context)
        except ValueError as error:
            if not _ALL_FAILED.match(str(error)):
                raise
            self._failure = error
            warnings.warn(str(error), FitFailedWarning, stacklevel=2)
            return []
        return self.measured[-size:]

    def _check_maximised(self, name: Any, scores: Any) -> None:
        """Refuse several metrics of which none is named that is maximised."""
        if not isinstance(name, str) or name not in scores:
            raise InputError(
                f"{type(self._search).__name__} maximises one score: with several metrics refit must be the name of "
                f"that one, got refit={self._search.refit!r}."
            )


class _Numbered(NamedTuple):
    """The context of a search for one batch, whose fits scikit-learn counts from 0 and which begin at ``first``."""

    context: Any
    first: int

    def subcontext(self, *, task_id: int, **words: Any) -> Any:
        """Return the context of a fit."""
        return self.context.subcontext(task_id=self.first + task_id, **words)

"""What is measured in a search of scikit-learn that chooses in the light of what was found."""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import joblib
import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import check_cv
from torch import Tensor

from torch_kbandits.errors import InputError, StateMismatchError

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")

#: What scikit-learn measured in a fit, by name.
Row = dict[str, Any]


class Evaluations:
    """The configurations evaluated in a search, batch by batch, and what was measured of them.

    All configurations meet the same splits, also those of a splitter that would draw others each time, and a batch in
    which every fit fails does not end the search.
    """

    def __init__(self, search: Any, evaluate: Callable[..., Any], context: Any, key: str) -> None:
        self.search, self._evaluate = search, evaluate
        #: Encodings (q, d) of configurations evaluated together, and the rows of their fits, none if all failed.
        self.batches: list[tuple[Tensor, list[Row]]] = []
        #: The rows of all fits that were made in this process, and ``cv_results_``, empty until ``finish``.
        self.measured: list[Row] = []
        self.table: dict[str, Any] = {}
        self._splits: list[Any] = []
        self._digest = ""
        self._failure = ValueError("No configuration was evaluated.")
        self._context = None if context is None else context.subcontext(task_name="search", max_subtasks=None)
        if self._context is not None:  # scikit-learn below 1.9 has no callbacks
            self._context.call_on_fit_task_begin(estimator=search)
        memory = joblib.Memory(search.checkpoint, verbose=0)
        self._key, self._kept = key, memory.cache(_measured, ignore=["evaluations"])

    def __reduce__(self) -> Any:
        return object, ()  # joblib's workers are sent the search, and look at nothing of this

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        """Yield the rows to train and to test on, the same in every call and as they were for what was kept."""
        if not self._splits:
            splitter: Any = getattr(self.search, "_checked_cv_orig", None)
            if splitter is None:  # scikit-learn below 1.7 keeps it to itself
                splitter = check_cv(self.search.cv, y, classifier=is_classifier(self.search.estimator))
            self._splits = list(splitter.split(X, y, **settings))
            self._check_splits(digest([np.asarray(part) for split in self._splits for part in split]))
        return iter(self._splits)

    def add(self, points: Tensor) -> list[Row]:
        """Return the rows of configurations, given by their encodings (q, d), none if every fit fails.

        They are measured now, unless an earlier process kept them; that every fit fails is not kept.
        """
        try:
            rows, splits = cast(Any, self._kept(self._key, points.tolist(), self))
            self._check_splits(splits)
        except ValueError as error:
            if not _ALL_FAILED.match(str(error)):
                raise
            warnings.warn(str(error), FitFailedWarning, stacklevel=2)
            self._failure, rows = error, []
        self.batches.append((points, rows))
        return rows

    def scores(self, rows: list[Row], size: int) -> np.ndarray:
        """Return the test scores (size, splits) of configurations by the rows of their fits; NaN where all failed."""
        scores: Any = [row["test_scores"] for row in rows] or [np.nan] * size
        if isinstance(scores[0], dict):
            name = self.search.refit
            if not isinstance(name, str) or name not in scores[0]:
                hint = "with several metrics refit must be the name of that one"
                raise InputError(f"{type(self.search).__name__} maximises one score: {hint}, got refit={name!r}.")
            scores = [each[name] for each in scores]
        return np.array(scores, dtype=float).reshape(size, -1)

    def finish(self, format_results: Callable[..., dict[str, Any]]) -> None:
        """Fill the table with what scikit-learn makes of the rows; raise its error if every fit failed."""
        candidates = [each for points, _ in self.batches for each in self.search.space_.decode(points)]
        num_splits = next((len(rows) // len(points) for points, rows in self.batches if rows), 1)
        listed = [rows or [None] * (len(points) * num_splits) for points, rows in self.batches]
        rows: list[Any] = [row for each in listed for row in each]
        succeeded = [number for number, row in enumerate(rows) if row is not None and row["fit_error"] is None]
        if not succeeded:
            raise self._failure
        quickest = min(succeeded, key=lambda number: rows[number]["fit_time"])
        # What ``fit`` goes on with is what is evaluated in this process, so that something must be.
        if not self.measured:
            self.fitted([candidates[quickest // num_splits]])
        nothing = rows[quickest] | {"fit_time": np.nan, "score_time": np.nan}
        for part in nothing.keys() & {"test_scores", "train_scores"}:
            scores, error = nothing[part], self.search.error_score
            nothing[part] = dict.fromkeys(scores, error) if isinstance(scores, dict) else error
        self.table.update(format_results(candidates, num_splits, [row or nothing for row in rows]))
        if self._context is not None:
            self._context.call_on_fit_task_end(estimator=self.search)

    def fitted(self, candidates: list[Any]) -> tuple[list[Row], str]:
        """Return the rows of configurations that are evaluated now, and the digest of the splits; what joblib keeps."""
        before, words = len(self.measured), dict[str, Any]()
        if self._context is not None:
            size = len(candidates) * self.search.n_splits_
            context = self._context.subcontext(task_name="batch", max_subtasks=size, sequential_subtasks=False)
            words["callback_ctx"] = context
        self._evaluate(candidates, cv=self, **words)
        return self.measured[before:], self._digest

    def _check_splits(self, found: str) -> None:
        if self._digest not in ("", found):
            raise StateMismatchError(
                f"cv={self.search.cv!r} draws other splits than it did when the checkpoint was written, so "
                "scores cannot be compared. Give cv a random_state, or another checkpoint=."
            )
        self._digest = found


def _measured(key: str, points: list[list[float]], evaluations: Evaluations) -> tuple[list[Row], str]:
    """Evaluate configurations, by their encodings, of a search that has a key."""
    X = torch.tensor(points, dtype=torch.float64).reshape(len(points), -1)
    return evaluations.fitted(evaluations.search.space_.decode(X))


def digest(value: Any) -> str:
    """Return what tells a setting or data from others; the name of its type where it cannot be pickled."""
    try:
        return str(joblib.hash(value))
    except Exception:  # pickling raises many kinds
        return getattr(value, "__qualname__", type(value).__name__)

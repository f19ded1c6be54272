"""What is measured in a search of scikit-learn that chooses in the light of what was found, and its file."""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.exceptions import FitFailedWarning
from torch import Tensor

from torch_kbandits.bandit.saving import read, write
from torch_kbandits.errors import DamagedFileError, FileError, InputError, KernelBanditWarning, StateMismatchError

#: How scikit-learn begins what it says, and raises, when every fit of a batch failed.
_ALL_FAILED = re.compile(r"\s*All the \d+ fits failed")

#: What scikit-learn measured in a fit, by name.
Row = dict[str, Any]


class Evaluations:
    """The configurations evaluated in a search, batch by batch, and what was measured of them.

    All configurations meet the same splits, also those of a splitter that would draw others each time, and a batch in
    which every fit fails does not end the search.
    """

    def __init__(
        self, search: Any, evaluate: Callable[..., Any], context: Any, settings: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._search, self._evaluate, self._num_splits = search, evaluate, search.n_splits_
        #: Encodings (q, d) of configurations evaluated together, and the rows of their fits, none if all failed.
        self.batches: list[tuple[Tensor, list[Row]]] = []
        #: The rows of all fits that were made in this process, and ``cv_results_``, empty until ``finish``.
        self.measured: list[Row] = []
        self.table: dict[str, Any] = {}
        self._splits: list[Any] | None = None
        self._digest: str | None = None
        self._failure = ValueError("No configuration was evaluated.")
        self._context = context.subcontext(task_name="search", max_subtasks=None)
        self._context.call_on_fit_task_begin(estimator=search)
        self._path, self._settings = search.checkpoint, dict[str, str]()
        if self._path is None:
            return
        if not isinstance(self._path, (str, PathLike)):
            raise InputError(f"checkpoint must be the path of a file or None, got {self._path!r}.")
        self._settings = {name: digest(value) for name, value in settings().items()}
        if Path(self._path).exists():
            self._read()
        else:
            self._write()  # says now, and not after hours, that this cannot be done

    def __reduce__(self) -> Any:
        return object, ()  # joblib's workers are sent the search, and look at nothing of this

    def split(self, X: Any, y: Any = None, **settings: Any) -> Iterator[Any]:
        """Yield the rows to train and to test on, the same in every call and as they were when the file was written."""
        if self._splits is None:
            splitter = self._search._checked_cv_orig
            splits = list(splitter.split(X, y, **settings))
            found = str(joblib.hash([np.asarray(part) for split in splits for part in split]))
            if self._digest not in (None, found):
                raise StateMismatchError(
                    f"{splitter!r} draws other splits than it did when the checkpoint was written, so scores cannot be "
                    "compared. Give cv a random_state, or another checkpoint=."
                )
            self._splits, self._digest = splits, found
        return iter(self._splits)

    def add(self, points: Tensor) -> list[Row]:
        """Evaluate configurations, given by their encodings (q, d), and keep what was measured, which is returned."""
        rows = self._fitted(self._search.space_.decode(points))
        self.batches.append((points, rows))
        # A search of which all fits failed is to fail again.
        if self._path is not None and any(rows for _, rows in self.batches):
            try:
                self._write()
            except FileError as error:
                message = f"The search goes on without its checkpoint: {error}"
                warnings.warn(message, KernelBanditWarning, stacklevel=2)
        return rows

    def scores(self, rows: list[Row], size: int) -> np.ndarray:
        """Return the mean test scores (size,) of configurations by the rows of their fits; NaN where all failed."""
        scores: Any = [row["test_scores"] for row in rows] or [np.nan] * size
        if isinstance(scores[0], dict):
            name = self._search.refit
            if not isinstance(name, str) or name not in scores[0]:
                hint = "with several metrics refit must be the name of that one"
                raise InputError(f"{type(self._search).__name__} maximises one score: {hint}, got refit={name!r}.")
            scores = [each[name] for each in scores]
        return np.array(scores, dtype=float).reshape(size, -1).mean(axis=1)

    def finish(self, format_results: Callable[..., dict[str, Any]]) -> None:
        """Fill the table with what scikit-learn makes of the rows; raise its error if every fit failed."""
        candidates = [each for points, _ in self.batches for each in self._search.space_.decode(points)]
        listed = [rows or [None] * (len(points) * self._num_splits) for points, rows in self.batches]
        rows: list[Any] = [row for each in listed for row in each]
        succeeded = [number for number, row in enumerate(rows) if row is not None and row["fit_error"] is None]
        if not succeeded:
            raise self._failure
        quickest = min(succeeded, key=lambda number: rows[number]["fit_time"])
        # What ``fit`` goes on with is what is evaluated in this process, so that something must be.
        if not self.measured and not self._fitted([candidates[quickest // self._num_splits]]):
            raise self._failure
        nothing = rows[quickest] | {"fit_time": np.nan, "score_time": np.nan}
        for part in nothing.keys() & {"test_scores", "train_scores"}:
            scores, error = nothing[part], self._search.error_score
            nothing[part] = dict.fromkeys(scores, error) if isinstance(scores, dict) else error
        self.table.update(format_results(candidates, self._num_splits, [row or nothing for row in rows]))
        self._context.call_on_fit_task_end(estimator=self._search)

    def _fitted(self, candidates: list[Any]) -> list[Row]:
        """Return the rows of configurations that are evaluated now, none if every fit fails."""
        size = len(candidates) * self._num_splits
        context = self._context.subcontext(task_name="batch", max_subtasks=size, sequential_subtasks=False)
        try:
            self._evaluate(candidates, cv=self, callback_ctx=context)
        except ValueError as error:
            if not _ALL_FAILED.match(str(error)):
                raise
            self._failure = error
            warnings.warn(str(error), FitFailedWarning, stacklevel=2)
            return []
        return self.measured[-size:]

    def _write(self) -> None:
        batches = [[points, json.loads(json.dumps(rows, default=float))] for points, rows in self.batches]
        write(self._path, "search", {"settings": self._settings, "splits": self._digest, "batches": batches})

    def _read(self) -> None:
        name = repr(fspath(self._path))
        try:
            content = read(self._path, "search")
            saved, self._digest = content["settings"], content["splits"]
            self.batches = [(points, rows) for points, rows in content["batches"]]
        except (DamagedFileError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{name} is no checkpoint of a search that can be read: {error} Give another checkpoint=, or remove it."
            ) from error
        here = self._settings
        if others := [name for name in {**saved, **here} if saved.get(name) != here.get(name)]:
            raise StateMismatchError(
                f"{name} is the checkpoint of another search, which differs in {', '.join(others)}. Give the same "
                "words and data to go on with it, or another checkpoint=."
            )


def digest(value: Any) -> str:
    """Return what tells a setting or data from others; the name of its type where it cannot be pickled."""
    try:
        return str(joblib.hash(value))
    except Exception:  # pickling raises many kinds
        return getattr(value, "__qualname__", type(value).__name__)

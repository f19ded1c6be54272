"""Outcomes with the digits that Ax saves."""

from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
from ax.adapter.data_utils import ExperimentData
from ax.adapter.transforms.base import Transform

#: Size of what matters in a column above which ten decimals lose nothing of it.
_COARSE = 1e-4


class AsSaved(Transform):
    """Gives models the outcomes that Ax reads back from a file, to which it writes ten decimals.

    So an experiment that was saved and loaded goes on exactly as it would have. Where ten decimals are few for what
    outcomes differ by, they stay as they are, and the trials after loading are close to what they would have been.
    """

    def transform_experiment_data(self, experiment_data: ExperimentData) -> ExperimentData:
        """Round means and standard errors."""
        frame = experiment_data.observation_data.copy()
        for column in frame.columns:
            if column[0] in ("mean", "sem"):
                values = frame[column].to_numpy(dtype="float64")
                size = _size(column[0], values)
                frame[column] = _read_back(values) if size > _COARSE else values
        return ExperimentData(arm_data=experiment_data.arm_data, observation_data=frame)


def _size(kind: str, values: np.ndarray) -> float:
    """Return the size of what matters in means, or in standard errors; NaN if there is none."""
    known = values[~np.isnan(values)]
    if kind == "mean":
        return float(known.std()) if len(known) > 1 else 1.0
    return float(known.mean()) if len(known) else np.nan


def _read_back(values: np.ndarray) -> np.ndarray:
    written = pd.DataFrame({"value": values}).to_json()
    # As Ax reads; its stubs know no dtype=False.
    frame: Any = pd.read_json(StringIO(written), dtype=False)  # pyright: ignore[reportArgumentType]
    return frame["value"].to_numpy(dtype="float64")

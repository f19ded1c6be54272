"""Outcomes with the digits that Ax saves."""

from io import StringIO

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
            if column[0] in ("mean", "sem") and _is_coarse(column[0], frame[column]):
                frame[column] = _read_back(frame[column])
        return ExperimentData(arm_data=experiment_data.arm_data, observation_data=frame)


def _is_coarse(kind: str, values: pd.Series) -> bool:
    """Say whether ten decimals lose nothing that matters of means, or of standard errors."""
    if kind == "mean":
        return len(values) < 2 or float(values.std()) > _COARSE
    return float(values.mean()) > _COARSE


def _read_back(values: pd.Series) -> list[float]:
    written = pd.DataFrame({"value": values.to_numpy(dtype="float64")}).to_json()
    return pd.read_json(StringIO(written), dtype=False)["value"].astype("float64").tolist()

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
            kind, values = column[0], frame[column]
            if kind == "mean" and (len(values) < 2 or values.std() > _COARSE):
                frame[column] = _read_back(values)
            elif kind == "sem" and values.mean() > _COARSE:
                frame[column] = _read_back(values)
        return ExperimentData(arm_data=experiment_data.arm_data, observation_data=frame)


def _read_back(values: pd.Series) -> list[float]:
    written = pd.DataFrame({"value": values.to_numpy(dtype="float64")}).to_json()
    return pd.read_json(StringIO(written), dtype=False)["value"].astype("float64").tolist()

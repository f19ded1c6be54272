"""A pytest plugin that lets BoTorch's own tests meet a model of this package wherever they import ``SingleTaskGP``.

Only tests are substituted: BoTorch's modules hold the class that they imported, so what dispatches on it still works,
since a model of this package is one. Two environment variables say what to do: ``STAND_IN``, the name of the class,
``SingleTaskGP`` for the peer itself; and ``OUTCOMES``, the file that gets the outcome of each test as JSON.
"""

import json
import os
from pathlib import Path
from typing import Any

import botorch.models
import botorch.models.gp_regression
from botorch.models.transforms import Standardize
from botorch.utils.types import DEFAULT
from gpytorch.means import ConstantMean
from torch import Tensor

from torch_kbandits import NystromGP, OnlineGP

_outcomes: dict[str, str] = {}


def with_defaults(kind: type) -> type:
    """Return the class with the signature and the defaults of ``SingleTaskGP``, and all points as dictionary."""

    class StandIn(kind):
        def __init__(
            self,
            train_X: Tensor,
            train_Y: Tensor,
            train_Yvar: Tensor | None = None,
            likelihood: Any = None,
            covar_module: Any = None,
            mean_module: Any = None,
            outcome_transform: Any = DEFAULT,
            input_transform: Any = None,
        ) -> None:
            if outcome_transform == DEFAULT:
                outcome_transform = Standardize(m=train_Y.shape[-1], batch_shape=train_X.shape[:-2])
            if mean_module is None:
                mean_module = ConstantMean(batch_shape=self.get_batch_dimensions(train_X, train_Y)[1])
            dictionary = {"inducing_points": train_X} if kind is NystromGP else {}
            super().__init__(
                train_X,
                train_Y,
                train_Yvar,
                likelihood=likelihood,
                covar_module=covar_module,
                mean_module=mean_module,
                outcome_transform=outcome_transform,
                input_transform=input_transform,
                **dictionary,
            )

    StandIn.__name__ = StandIn.__qualname__ = kind.__name__
    return StandIn


def pytest_configure(config: Any) -> None:
    """Put the class in the place from which tests import."""
    kinds = {kind.__name__: kind for kind in (NystromGP, OnlineGP)}
    if kind := kinds.get(os.environ["STAND_IN"]):
        stand_in = with_defaults(kind)
        botorch.models.SingleTaskGP = stand_in
        botorch.models.gp_regression.SingleTaskGP = stand_in


def pytest_runtest_logreport(report: Any) -> None:
    """Remember the worst that a test came to."""
    if _outcomes.get(report.nodeid) != "failed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(_outcomes, indent=1))

"""A pytest plugin that lets BoTorch's own tests meet a model of this package wherever they import ``SingleTaskGP``.

Two environment variables say what to do: ``STAND_IN``, the name of the class, ``SingleTaskGP`` for the peer itself;
and ``OUTCOMES``, the file that gets the outcome of each test as JSON.
"""

import json
import os
from pathlib import Path
from typing import Any

from botorch import models
from botorch.models import SingleTaskGP, gp_regression
from botorch.models.fully_bayesian import SaasFullyBayesianSingleTaskGP
from botorch.models.transforms import Standardize
from botorch.utils.types import DEFAULT
from gpytorch.means import ConstantMean
from torch import Tensor

from torch_kbandits import NystromGP, OnlineGP

_FROM_BEST = ("passed", "skipped", "failed")
_outcomes: dict[str, str] = {}


def with_defaults(kind: Any) -> type:
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


STAND_INS = {"SingleTaskGP": SingleTaskGP, "NystromGP": with_defaults(NystromGP), "OnlineGP": with_defaults(OnlineGP)}


def pytest_configure() -> None:
    gp_regression.SingleTaskGP = models.SingleTaskGP = STAND_INS[os.environ["STAND_IN"]]
    # The tests are of a commit that exports it there too.
    models.SaasFullyBayesianSingleTaskGP = SaasFullyBayesianSingleTaskGP  # pyright: ignore


def pytest_runtest_logreport(report: Any) -> None:
    """Remember the worst that a test, with its subtests, came to."""
    _outcomes[report.nodeid] = max(_outcomes.get(report.nodeid, "passed"), report.outcome, key=_FROM_BEST.index)


def pytest_sessionfinish() -> None:
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(_outcomes, indent=1))

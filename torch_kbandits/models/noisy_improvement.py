"""BoTorch's noisy expected improvement, which makes an exact model of all points, refuses a Nyström posterior."""

from collections.abc import Callable
from functools import wraps

from botorch.acquisition import analytic
from botorch.exceptions.errors import UnsupportedError
from botorch.models.gpytorch import GPyTorchModel

from torch_kbandits.models.nystrom import NystromGP


def _refusing(check: Callable[[GPyTorchModel], None]) -> Callable[[GPyTorchModel], None]:
    """Return BoTorch's check of models for these functions, which also refuses a ``NystromGP``."""

    @wraps(check)
    def checked(model: GPyTorchModel) -> None:
        if isinstance(model, NystromGP):
            raise UnsupportedError(
                "NoisyExpectedImprovement and LogNoisyExpectedImprovement would make an exact SingleTaskGP of all "
                "observations, and this model is a NystromGP: take qLogNoisyExpectedImprovement, which draws from the "
                "posterior of the model itself, or an OnlineGP."
            )
        check(model)

    return checked


# BoTorch asks this function alone, and builds its model where no method of ours is called.
analytic._check_noisy_ei_model = _refusing(analytic._check_noisy_ei_model)

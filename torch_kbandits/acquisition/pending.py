"""Models with points pending, and whether a model has changed since."""

from contextlib import nullcontext
from typing import Any, cast

from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import GPyTorchPosterior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from torch_kbandits.models import FactoredGP, NystromGP


def hallucinate(model: Model, X: Tensor) -> Model:
    """Return the model conditioned on its own posterior mean at X (k, d): the variance shrinks, the mean stays."""
    if isinstance(model, NystromGP):
        return model.hallucinated(X)
    with model.at_points() if isinstance(model, FactoredGP) else nullcontext():
        mean = cast(GPyTorchPosterior, model.posterior(X)).mean
    likelihood = getattr(model, "likelihood", None)
    kwargs: dict[str, Any] = {}
    if isinstance(likelihood, FixedNoiseGaussianLikelihood) and not hasattr(model, "regularization"):
        # Models without a noise level for later observations get the mean of the earlier ones.
        level = likelihood.noise.mean(-1, keepdim=True)
        kwargs["noise"] = (level.mT if model.num_outputs > 1 else level.unsqueeze(-1)).expand(mean.shape)
    if isinstance(model, ModelListGP):
        return model.condition_on_observations([X] * model.num_outputs, mean, **kwargs)
    return model.condition_on_observations(X, mean, **kwargs)


def require_one_to_one(model: Model) -> None:
    """Refuse a model whose posterior at a point is that of several, which an input transform makes of it.

    Raises:
        UnsupportedError: if it is one.
    """
    for part in model.modules():
        if isinstance(part, InputTransform) and part.is_one_to_many and part.transform_on_eval:
            raise UnsupportedError(
                f"{type(part).__name__} makes several points of one, and one is scored: give a posterior_transform "
                "that joins them, such as BoTorch's ExpectationPosteriorTransform, or leave the input transform out."
            )


def kept_posteriors(model: Model) -> list[Any]:
    """Return what the parts of a model keep of their posteriors: each is another object once its part has changed."""
    return [part.prediction_strategy for part in model.modules() if isinstance(part, ExactGP)]


def has_changed(model: Model, before: list[Any]) -> bool:
    """Say whether a model was told, fitted or moved since ``kept_posteriors`` was called after a posterior."""
    return any(now is not then for now, then in zip(kept_posteriors(model), before, strict=True))

"""Models with points pending, and whether a model has changed since."""

from typing import Any, cast

from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from torch_kbandits.models import NystromGP


def hallucinate(model: Model, X: Tensor) -> Model:
    """Return the model conditioned on its own posterior mean at X (k, d): the variance shrinks, the mean stays."""
    if isinstance(model, NystromGP):
        return model.hallucinated(X)
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


def inputs_of(model: Model) -> dict[str, Any]:
    """Return what is known of the columns and the dtype of a model's inputs, in the words of ``checks.points``."""
    if not isinstance(model, SingleTaskGP) or hasattr(model, "input_transform"):
        return {}
    train_X = cast(tuple[Tensor], model.train_inputs)[0]
    return {"dimension": train_X.shape[-1], "like": train_X}


def kept_posteriors(model: Model) -> list[Any]:
    """Return what the parts of a model keep of their posteriors: each is another object once its part has changed."""
    return [part.prediction_strategy for part in model.modules() if isinstance(part, ExactGP)]


def has_changed(model: Model, before: list[Any]) -> bool:
    """Say whether a model was told, fitted or moved since ``kept_posteriors`` was called after a posterior."""
    return any(now is not then for now, then in zip(kept_posteriors(model), before, strict=True))

"""The time at which a model is asked."""

from gpytorch.models import ExactGP
from torch.nn import Module

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods.ageing import UncertaintyInjectionLikelihood


def at_time(model: Module, now: float) -> None:
    """Let a model look at its observations at time ``now``: set it, and clear what was computed for another time.

    After an error the model is as it was.

    Args:
        model: a model with ``UncertaintyInjectionLikelihood``, or of several such, as ``ModelListGP``.
        now: not before any observation.

    Raises:
        InputError: if no part of the model has such a likelihood, or an observation is later.

    Cost: O(n), and the next posterior is factorised afresh.
    """
    value = checks.finite_number("now", now)
    models = [part for part in model.modules() if isinstance(part, ExactGP)]
    ageing = [(part, part.likelihood) for part in models if isinstance(part.likelihood, UncertaintyInjectionLikelihood)]
    if not ageing:
        raise InputError("No part of the model has an UncertaintyInjectionLikelihood: give it one as likelihood.")
    for part, likelihood in ageing:
        likelihood.check_time(likelihood.now.new_tensor(value), *(part.train_inputs or ()))
    for part, likelihood in ageing:
        likelihood.now = value
        part._clear_cache()

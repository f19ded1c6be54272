"""The words by which a bandit is given its prior."""

from gpytorch.kernels import Kernel

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.priors.learned import LearnedPrior
from torch_kbandits.priors.means import PriorMean
from torch_kbandits.priors.prior import Prior


def given_prior(
    prior: Prior | LearnedPrior | None,
    kernel: Kernel | None = None,
    regularization: float | None = None,
    mean: PriorMean | None = None,
) -> Prior:
    """Return the prior that is given, as one word or as its parts, where none can be learned.

    Raises:
        InputError: if both are given, a part is missing or does not fit, or the prior is to be learned.
    """
    found = prior_of(prior, kernel, regularization, mean)
    if isinstance(found, LearnedPrior):
        raise InputError(
            "A family has hypotheses that are given, so none is learned: give a Prior or a kernel, or leave out the "
            "family."
        )
    return found


def prior_of(
    prior: Prior | LearnedPrior | None, kernel: Kernel | None, regularization: float | None, mean: PriorMean | None
) -> Prior | LearnedPrior:
    """Return the prior that is given, as one word or as its parts.

    Raises:
        InputError: if both are given, or a part is missing or does not fit.
    """
    parts = {"kernel": kernel, "regularization": regularization, "mean": mean}
    if prior is not None:
        checks.instance("prior", prior, (Prior, LearnedPrior), "a Prior or a LearnedPrior")
        if twice := [name for name, part in parts.items() if part is not None]:
            raise InputError(f"Give either prior or {' and '.join(twice)}: a {type(prior).__name__} has them.")
        return prior
    if missing := [name for name in ("kernel", "regularization") if parts[name] is None]:
        raise InputError(
            f"{' and '.join(missing)} must be given, or prior=LearnedPrior(), which fits both to the rewards."
        )
    return Prior(kernel, regularization, 0.0 if mean is None else mean)  # pyright: ignore[reportArgumentType]

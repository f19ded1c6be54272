"""What a model keeps of its posterior: what was learned of which observations, and how it predicts by it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from torch_kbandits.models.data import Observations
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.observations import Places, merged
from torch_kbandits.posteriors.prediction import PredictionStrategy

#: Of more points than this those that no observation is left of are dropped, once they are three in four.
_MANY = 64


class Learned(NamedTuple):
    """The posterior of observations, and the places (n,) of their points among those that it knows."""

    posterior: ExactPosterior | DictionaryPosterior
    places: Places

    def followed(self, new: Observations, sign: float = 1.0) -> "Learned":
        """Return it with more observations; with a sign of −1 without some that there are."""
        X, residuals, variances = (part.detach() for part in new)
        posterior, places = self.posterior.knowing(X if X.dim() == 2 else X[0])
        if len(places):
            residuals, variances = (part.double().reshape(-1, len(places)).numpy() for part in (residuals, variances))
            with np.errstate(all="ignore"):  # the posterior looks whether it is finite
                told = merged(places, sign * posterior.prior.noise / variances[0], residuals)
                posterior = posterior.learned(*told)
        return Learned(posterior, np.concatenate((self.places, places)) if sign > 0.0 else self.places)

    def without(self, gone: Observations, kept: Tensor) -> "Learned":
        """Return it without some observations, of which a mask (n,) is kept."""
        posterior, places = self.followed(gone, -1.0)
        places = places[kept.numpy()]
        if len(posterior.told) > _MANY and 4 * np.count_nonzero(posterior.told.counts) < len(posterior.told):
            posterior, moved = posterior.without_forgotten()
            places = moved[places]
        return Learned(posterior, places)


@dataclass(frozen=True, eq=False)
class Cache:
    """What a model keeps of its posterior where GPyTorch clears it; like its strategies, never deep-copied.

    Attributes:
        strategy: how it predicts.
        learned: what it follows from; None in a batch, on a device, with gradients, or after conditioning.
        has_graph: whether gradients reach through it.
        source: the tensors that it follows from, copied, since they may be written to without a trace; and settings.
    """

    strategy: PredictionStrategy
    learned: Learned | None
    has_graph: bool
    source: tuple[list[Tensor], list[Any]]

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

"""Dictionaries of at most so many points, which are exchanged for others where these span more."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.k_dpp import exchanged
from torch_kbandits.dictionaries.online import OnlineRule, OnlineState
from torch_kbandits.errors import DictionaryFullError, KernelBanditWarning
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.observations import Places

Array = NDArray[Any]

WhenFull = Literal["stop", "warn", "raise"]

#: So many points are scored together while each may change the dictionary. A point replaces another where a determinant
#: grows by a factor: no more often than O(m) times but for logarithms, as the product of the diagonal bounds it.
_WINDOW, _LEAST_GAIN = 32, 1.1


@dataclass(frozen=True, eq=False)
class CappedDictionary(DictionaryRule):
    """Keep to at most ``max_size`` of the points that another rule wants, and exchange them for others.

    Of the points wanted, those that are in the dictionary already come first, then those of the highest inclusion
    probability; ties go to the point played first. Then each of the others that is new replaces the one with which
    det(I + C½ K_ZZ C½ / λ) grows most, if it grows by a tenth, C the numbers of plays; for an online rule, which is
    offered each play, it is det K_ZZ. So a full dictionary spreads over what is played, and changes are few.

    The probabilities of a selection are those of the other rule, 1 for a point that it was not asked about.

    Source: ours, exchanges as in the chain of ``KDPP`` with nothing random; no theorem on the other rule covers it.

    When more are wanted "stop" says nothing, "warn" a ``KernelBanditWarning``, once for each object of this class, and
    "raise" a ``DictionaryFullError``; a bandit then is as it was before. If it ``learns_residual`` a posterior takes as
    learned what a full dictionary does not span, see ``residual_share``, but in draws of functions. Else variances are
    those of DTC, at which ``NystromWidth`` holds, and exploration of what is not spanned never ends.

    Cost: that of the other rule, and O(m²) for each new point beyond the cap; online O(u m + m³).
    """

    rule: DictionaryRule  #: Which points are wanted.
    max_size: int  #: The most points that the dictionary may have.
    when_full: WhenFull = "warn"
    learns_residual: bool = True

    def __post_init__(self) -> None:
        checks.instance("rule", self.rule, DictionaryRule, "a dictionary rule such as RidgeLeverageSampling()")
        checks.keep(self, max_size=checks.positive_integer, learns_residual=checks.flag)
        checks.one_of("when_full", self.when_full, get_args(WhenFull))
        object.__setattr__(self, "is_coupled", self.rule.is_coupled)
        object.__setattr__(self, "is_online", self.rule.is_online)
        object.__setattr__(self, "full_at", self.max_size if self.learns_residual else None)

    def projection_noise(self, noise: float) -> float:
        """Return that of an online rule; see ``OnlineRule``."""
        return cast(OnlineRule, self.rule).projection_noise(noise)

    def probabilities(self, variance: Array, prior: Array, noise: float | Array) -> Array:
        """Return those of an online rule; see ``OnlineRule``."""
        return cast(OnlineRule, self.rule).probabilities(variance, prior, noise)

    def update(
        self,
        posterior: DictionaryPosterior,
        state: OnlineState,
        places: Places,
        uniforms: Array,
        worth: Array | None = None,
    ) -> tuple[DictionaryPosterior, OnlineState]:
        """Offer points to the dictionary of an online rule until it is full, then in exchange; see ``OnlineRule``."""
        rule, first = cast(OnlineRule, self.rule), 0
        while first < len(places):
            room = self.max_size - len(state.weights)
            some = slice(first, None if room > 0 else first + _WINDOW)
            own = None if worth is None else worth[some]
            posterior, state, refused = rule.offered(posterior, state, places[some], uniforms[some], room, own)
            if refused is None:
                first += len(places[some])
            else:
                self._say_full(self.max_size + 1)
                first += refused[0] + 1
                posterior, state = _with_exchange(posterior, state, places[first - 1], refused[1])
        return posterior, state

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Choose at most ``max_size`` points."""
        wanted = self.rule.select(changed(played, max_size=self.max_size), generator)
        if wanted.probabilities.shape[0] <= self.max_size:
            return wanted
        self._say_full(wanted.probabilities.shape[0])
        rank = wanted.probabilities
        if wanted.indices is not None and played.in_dictionary is not None:
            rank = rank + 2.0 * played.in_dictionary[wanted.indices]
        kept = rank.argsort(descending=True, stable=True)[: self.max_size].sort().values
        if wanted.indices is None:
            return Selection(wanted.points[..., kept, :], wanted.probabilities[kept], None)
        rows = wanted.indices[kept]
        # An online rule was not asked about all.
        offered = torch.full_like(played.counts, self.rule.is_online, dtype=torch.bool)
        offered = offered.index_fill(0, wanted.indices, True).index_fill(0, rows, False)
        if played.new_counts is not None:
            offered &= played.new_counts > 0.0
        rows = exchanged(played, rows, offered.nonzero().squeeze(-1), _LEAST_GAIN)
        probabilities = played.points.new_ones(played.size).index_copy(0, wanted.indices, wanted.probabilities)
        return Selection.rows(played, rows, probabilities[rows])

    def _say_full(self, wanted: int) -> None:
        """Raise or warn that more points are wanted than there may be, as ``when_full`` says."""
        message = (
            f"The dictionary is full: at least {wanted} points were wanted and the cap is {self.max_size}. From now on "
            "points are exchanged. Raise the cap (max_size; max_dictionary of a named algorithm) or let the rule want "
            "fewer points (a smaller oversampling)"
        )
        if self.when_full == "raise":
            raise DictionaryFullError(f'{message}, or keep to the cap with when_full="stop".')
        if self.when_full == "warn" and self not in _warned:
            warnings.warn(f'{message}. This warning comes once; when_full="stop" silences it.', KernelBanditWarning, 3)
            _warned.add(self)


def _with_exchange(
    posterior: DictionaryPosterior, state: OnlineState, place: int, probability: float
) -> tuple[DictionaryPosterior, OnlineState]:
    """Return the posterior and its state once a known point took the place of another by det K_ZZ, if one gave way."""
    dictionary = np.append(posterior.dictionary, place)
    points, number = posterior.told.points_at(dictionary).double(), len(dictionary) - 1
    equal = points.new_zeros(()), points.new_ones(number + 1)
    played = PlayedPoints(points, posterior.prior.kernel, *equal, memory=state.memory)
    rows = exchanged(played, torch.arange(number), torch.tensor([number]), _LEAST_GAIN).numpy()
    if rows[-1] != number:
        return posterior, state
    weights = np.zeros(len(posterior.told))
    weights[dictionary[rows]] = np.append(state.weights, 1.0 / probability)[rows]
    return state.at_weights(posterior, weights)


#: The objects that have warned, which is no part of their values.
_warned: WeakSet[CappedDictionary] = WeakSet()

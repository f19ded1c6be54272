"""Dictionaries of at most so many points."""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args
from weakref import WeakSet

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.online_rule import OnlineRule
from torch_kbandits.dictionaries.online_sample import Offer, OnlineSample
from torch_kbandits.errors import DictionaryFullError, KernelBanditWarning

WhenFull = Literal["stop", "warn", "raise"]


@dataclass(frozen=True, eq=False)
class CappedDictionary(DictionaryRule):
    """Keep to at most ``max_size`` of the points that another rule wants.

    Of the points wanted, those that are in the dictionary already come first, then those of the highest inclusion
    probability; ties go to the point played first. So a full dictionary changes no more than it must. The probabilities
    of a selection are those of the other rule. No theorem on the other rule covers a dictionary that was cut.

    Args:
        rule: which points are wanted.
        max_size: the most points that the dictionary may have.
        when_full: what happens when more are wanted. "stop": nothing is said. "warn": a ``KernelBanditWarning``, once
            for each object of this class. "raise": a ``DictionaryFullError``; a bandit then is as it was before.

    However many points are offered at once, an online rule looks no further than the first that is too many, and
    leverage scores are estimated at dictionaries that keep to the cap.

    Cost of a selection: that of the other rule, and O(w log w) when it wants w > ``max_size`` points.
    """

    rule: DictionaryRule
    max_size: int
    when_full: WhenFull = "warn"

    def __post_init__(self) -> None:
        checks.instance("rule", self.rule, DictionaryRule, "a dictionary rule such as RidgeLeverageSampling()")
        checks.keep(self, max_size=checks.positive_integer)
        checks.one_of("when_full", self.when_full, get_args(WhenFull))
        object.__setattr__(self, "is_coupled", self.rule.is_coupled)
        object.__setattr__(self, "is_online", self.rule.is_online)

    def online_sample(self, kernel: Kernel, noise: float, points: Tensor, weights: Tensor) -> OnlineSample:
        """Return the dictionary of an online rule; see ``OnlineRule``."""
        return cast(OnlineRule, self.rule).online_sample(kernel, noise, points, weights)

    def offered(
        self,
        sample: OnlineSample,
        points: Tensor,
        uniforms: Tensor,
        cross: Tensor | None,
        prior: Tensor | None,
        most: int | None = None,
    ) -> Offer:
        """Offer points to the dictionary of an online rule until it is full; then nothing is offered any more.

        Raises:
            DictionaryFullError: if one more is wanted and ``when_full`` is "raise".
        """
        beyond = self.max_size + 1 if most is None else min(most, self.max_size + 1)
        offer = cast(OnlineRule, self.rule).offered(sample, points, uniforms, cross, prior, beyond)
        if offer.sample.size <= self.max_size:
            return offer
        self._say_full(offer.sample.size)
        last = int(offer.joined.nonzero()[max(0, self.max_size - sample.size)])
        chosen, joined = offer.chosen.clone(), offer.joined.clone()
        chosen[last:], joined[last:] = False, False
        before = slice(last)
        kept = sample.offered(points[before], uniforms[before], None if cross is None else cross[:, before])
        return Offer(kept.sample, chosen, joined, offer.probabilities)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Choose at most ``max_size`` points; see ``DictionaryRule.select``.

        Raises:
            DictionaryFullError: if more are wanted and ``when_full`` is "raise".
        """
        wanted = self.rule.select(replace(played, max_size=self.max_size), generator)
        if len(wanted.probabilities) <= self.max_size:
            return wanted
        self._say_full(len(wanted.probabilities))
        kept = self._foremost(wanted, played.in_dictionary)
        indices = None if wanted.indices is None else wanted.indices[kept]
        weights = None if wanted.weights is None else wanted.weights[kept]
        return Selection(wanted.points[..., kept, :], wanted.probabilities[kept], indices, weights)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Choose ``size`` points, or ``max_size`` if that is less, by the other rule.

        Raises:
            DictionaryFullError: if there are more and ``when_full`` is "raise".
        """
        wanted = min(size, played.size)
        if wanted > self.max_size:
            self._say_full(wanted)
        return self.rule.select_sized(played, min(size, self.max_size), generator)

    def _foremost(self, wanted: Selection, in_dictionary: Tensor | None) -> Tensor:
        """Return which of the points wanted are kept, (max_size,), ascending."""
        order = wanted.probabilities.argsort(descending=True, stable=True)
        if wanted.indices is not None and in_dictionary is not None:
            held = in_dictionary[wanted.indices]
            order = order[held[order].to(torch.uint8).argsort(descending=True, stable=True)]
        return order[: self.max_size].sort().values

    def _say_full(self, wanted: int) -> None:
        """Raise or warn that more points are wanted than there may be, as ``when_full`` says."""
        message = (
            f"The dictionary is full: at least {wanted} points were wanted and the cap is {self.max_size}. "
            "What it does not span stays uncertain. Raise the cap (max_size; max_dictionary of a named algorithm), or "
            "let the rule want fewer points (a smaller oversampling)"
        )
        if self.when_full == "raise":
            raise DictionaryFullError(f'{message}, or keep to the cap with when_full="stop".')
        if self.when_full == "warn" and self not in _warned:
            warnings.warn(f'{message}. This is said once; when_full="stop" silences it.', KernelBanditWarning, 3)
            _warned.add(self)


#: The objects that have warned. No part of their values, since no selection depends on it.
_warned: WeakSet[CappedDictionary] = WeakSet()

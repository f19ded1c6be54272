"""What a memory makes of the dictionary of an online rule, and the numbers by which points are drawn for it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits.dictionaries import OnlineRule, OnlineState, Selection
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.observations import Places

#: Points that no longer count leave the dictionary once they are more than one in so many of it.
_PATIENCE = 8


def started(posterior: DictionaryPosterior, dictionary: Selection, rule: OnlineRule) -> OnlineState:
    """Return what a rule knows of a dictionary that was handed over, as of a saved bandit."""
    _, order = posterior.knowing(dictionary.points)
    handed = dictionary.weights
    weights = np.ones(len(order)) if handed is None else handed.numpy()[order.argsort()]
    return OnlineState.of(posterior, weights, rule.projection_noise(posterior.prior.noise))


def too_many_forgotten(posterior: DictionaryPosterior) -> bool:
    """Say whether so many points of the dictionary no longer count that these are to leave it."""
    counting = posterior.told.counts[posterior.dictionary] > 0.0
    return bool(np.count_nonzero(~counting) > len(counting) // _PATIENCE)


def pruned(
    posterior: DictionaryPosterior,
    state: OnlineState,
    rule: OnlineRule,
    again: Places,
    generator: torch.Generator | None,
) -> tuple[DictionaryPosterior, OnlineState]:
    """Return a posterior at the points of its dictionary that count; all that count (u,) are offered again.

    A point that was not drawn with probability p̃ when all were there, and would be with p̃' now, is drawn with
    (p̃' − p̃)/(1 − p̃): so it was kept from joining as little as if those that left had never been there.
    """
    known = state.variances(posterior, again)
    before = rule.probabilities(known.variance, known.prior, state.noise)
    weights = np.where(posterior.told.counts > 0.0, state.by_place(posterior), 0.0)
    numbers = before + (1.0 - before) * uniforms(len(again), generator)
    return rule.update(*state.at_weights(posterior, weights), again, numbers)


def uniforms(number: int, generator: torch.Generator | None) -> NDArray[Any]:
    """Return so many numbers between 0 and 1."""
    return torch.rand(number, generator=generator, dtype=torch.float64, device="cpu").numpy()

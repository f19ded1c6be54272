"""Arms follow a posterior by loops as they do by PyTorch, which is the reference: of arms on a device it does all."""

import copy

import numpy as np
import pytest
import torch
from problems import DOUBLE, data, matern

from torch_kbandits.posteriors.device import DeviceSteps
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.exact_posterior import ExactPosterior
from torch_kbandits.posteriors.pending import Pending
from torch_kbandits.posteriors.posterior import Arms, Prior
from torch_kbandits.posteriors.table import HOST

ARMS, NOISE = data(300, 3, 1)[0], 0.02

KINDS = (ExactPosterior, {}), (DictionaryPosterior, {"follows": True}), (DictionaryPosterior, {"full_at": 4})


def posterior(kind, steps, **words):
    """Return the posterior before any reward of two numbers told of each play, and arms in three blocks."""
    prior, expected = Prior.of(matern(), NOISE, None, None), np.stack((np.zeros(len(ARMS)), np.linspace(0.0, 1.0, 300)))
    blocks = [(first, ARMS[first : first + 100]) for first in (0, 100, 200)]
    arms = Arms.of(lambda: blocks, prior.kernel, ARMS, prior.variance(ARMS), expected, steps)
    return kind.of(prior, ARMS[:0], arms, **words)


def told(known, rng, is_exact):
    """Return a posterior once something more is told, taken back or told as if it weighed otherwise."""
    counts, (u, k) = known.told.counts, (len(known.told), 2)
    what = rng.integers(8)
    if what == 0 and counts.any():
        return known.reweighted(0.9 * counts, 0.9 * known.told.sums)
    if what == 1 and counts.any():
        place = rng.choice(np.flatnonzero(counts), 1)
        return known.learned(place, -counts[place], -known.told.sums[:, place])
    if what < 5 and not is_exact and u:
        change = rng.integers(0, u, 1 + rng.integers(2))
        return known.at_dictionary(np.setxor1d(known.dictionary, change) if what < 4 else np.unique(change))
    known, places = known.knowing(ARMS[rng.integers(0, 300, 1 + rng.integers(3))])
    places = np.unique(places)
    return known.learned(places, 1.0 + rng.random(len(places)), rng.normal(size=(k, len(places))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "words"), KINDS)
def test_arms_follow_by_loops_as_by_pytorch(kind, words, seed):
    ours, reference = (posterior(kind, steps, **words) for steps in (HOST, DeviceSteps(ARMS.device)))
    left, right = np.random.default_rng(seed), np.random.default_rng(seed)
    for turn in range(60):
        ours, reference = told(ours, left, not words), told(reference, right, not words)
        pending, others = Pending.none(ours), Pending.none(reference)
        for row, times in ((turn, 1), (turn, 2), (7, 1)):
            pending, others = pending.given(ARMS[row, None], times), others.given(ARMS[row, None], times)
        table = copy.deepcopy(reference).arms.table
        assert all(each.dtype == DOUBLE for each in (table.mean, table.variance, table.spanned))
        for one, other in (
            (ours.arms.table.features.known, table.features.known),
            (ours.arms.table.mean, table.mean),
            (ours.arms.table.spanned, table.spanned),
            (ours.arm_variance(), reference.arm_variance()),
            (pending.arm_variance(), others.arm_variance()),
        ):
            assert isinstance(other, torch.Tensor)
            assert np.abs(one - other.numpy()).max(initial=0.0) < 1e-12

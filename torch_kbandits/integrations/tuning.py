"""The bandit behind a tuner: a named algorithm under a prior that is learned."""

from dataclasses import replace
from typing import Any

from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Candidates
from torch_kbandits.priors import LearnedPrior

#: The most points of a dictionary, whose square is what a round costs; where the noise is small it would grow without
#: end. Large, because a full one knows little about what is played later: with 30 points in place of 55 and 59, which
#: 140 rounds of Hartmann's function called for at two seeds, the regret of the last 40 was 0.30 and 0.63, not 0.04 and
#: 0.34. (Measured when a full dictionary kept its first points; points are exchanged now, so fewer might do.)
LARGEST_DICTIONARY = 400

#: See ``LearnedPrior``.
_REFIT_SHARE = 0.1

#: So often an evaluation is spread like the first ones: a search may have settled for too little, and a prior that is
#: fitted only to where it led knows little of the rest.
_SPREAD_EVERY = 8


def is_spread(number: int, num_observations: int, num_initial: int) -> bool:
    """Say whether an evaluation covers the space evenly, whatever was learned: the first ones and every eighth later.

    Args:
        number: of the evaluation, counted from 0.
        num_observations: how many rewards the bandit was told.
        num_initial: how many it is told before it chooses.
    """
    return num_observations < num_initial or number % _SPREAD_EVERY == 0


def tuning_prior(prior: LearnedPrior) -> LearnedPrior:
    """Return a prior that is fitted anew whenever there are a tenth more rewards: evaluations are dearer than fits."""
    return replace(prior, refit_share=_REFIT_SHARE)


def tuning_bandit(algorithm: str, candidates: Candidates, prior: LearnedPrior, *, seed: int, **settings: Any) -> Bandit:
    """Return a bandit that was told nothing. A dictionary that can be capped is, at 400 points, without a word.

    Its prior is fitted as ``tuning_prior`` says.

    Args:
        algorithm: a registry name.
        candidates: what may be played.
        prior: what is fitted.
        seed: addresses all randomness.
        settings: further words of the algorithm, which come before the cap; None where one is not given.

    Raises:
        InputError: if a word does not fit.
    """
    words = {name: value for name, value in settings.items() if value is not None or name == "max_dictionary"}
    known = registry.signature(algorithm).parameters
    if {"max_dictionary", "when_full"} <= known.keys():
        words = {"max_dictionary": LARGEST_DICTIONARY, "when_full": "stop"} | words
        if known["oversampling"].default is None:  # exact unless it is said
            words = {"oversampling": 1.0} | words
    return registry.build(algorithm, candidates=candidates, prior=tuning_prior(prior), seed=seed, **words)

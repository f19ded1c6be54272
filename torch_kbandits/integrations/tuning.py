"""The bandit behind a tuner: a named algorithm under a prior that is learned."""

from dataclasses import replace
from typing import Any

from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Candidates
from torch_kbandits.priors import LearnedPrior, Prior

#: The most points of a dictionary: many, because a full one knows little about what is played later.
LARGEST_DICTIONARY = 400

#: The budget at which every point joins a dictionary that is not full.
_ALL = 1e6

#: From this number on evaluations 8, 16, 32, … are spread: a search may have settled for too little.
_FIRST_SPREAD = 8


def is_spread(bandit: Bandit, number: int, num_initial: int) -> bool:
    """Say whether an evaluation covers the space evenly: the first, at 8, 16, …, or in a memory each eighth."""
    is_later = number.bit_count() == 1 if bandit.memory is None else number % _FIRST_SPREAD == 0
    return bandit.num_observations < num_initial or (number >= _FIRST_SPREAD and is_later)


def tuning_prior(prior: LearnedPrior) -> LearnedPrior:
    """Return a prior fitted anew at a tenth more rewards, of which some have no noise: else the best is not refined."""
    return replace(prior, refit_share=0.1, noise_spread=3.0)


def tuning_bandit(
    algorithm: str, candidates: Candidates, prior: Prior | LearnedPrior, *, seed: int, **settings: Any
) -> Bandit:
    """Return a bandit of a registered name that was told nothing; a prior to be learned is as ``tuning_prior`` has it.

    A dictionary that can be capped is, at 400 points, unless the settings say otherwise; until then it takes all points
    where the algorithm can do without one. A word that is None is not given.
    """
    words = {name: value for name, value in settings.items() if value is not None or name == "max_dictionary"}
    known = registry.signature(algorithm).parameters
    if {"max_dictionary", "when_full"} <= known.keys():
        words = {"max_dictionary": LARGEST_DICTIONARY, "when_full": "stop"} | words
        if known["oversampling"].default is None:  # exact until it is full
            words = {"oversampling": _ALL} | words
    prior = tuning_prior(prior) if isinstance(prior, LearnedPrior) else prior
    return registry.build(algorithm, candidates=candidates, prior=prior, seed=seed, **words)

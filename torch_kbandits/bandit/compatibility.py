"""Which pieces of a bandit go together: checks of its configuration, typed loosely as that is above them."""

from collections.abc import Iterable
from typing import Any

import torch

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, OptimisticRule, RandomRule
from torch_kbandits.bandit.adaptation import MemoryChoice, RestartTrigger
from torch_kbandits.bandit.batches import BatchRule
from torch_kbandits.beliefs.posterior_belief import wave_prior
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import TheoremWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.outcomes import REWARD, Limit, Scalarization
from torch_kbandits.priors import Family, given_prior

#: What pieces are, where they are given.
_KINDS: dict[str, tuple[type, str]] = {
    "candidates": (Candidates, "Arms or a Box"),
    "acquisition": (AcquisitionRule, "a rule such as UpperConfidenceRule()"),
    "memory": (Memory, "a memory such as SlidingWindow(500)"),
    "trigger": (RestartTrigger, "a trigger such as ResidualTrigger()"),
    "memories": (MemoryChoice, "a BanditOverBandit or a DynamicModelSelection"),
    "family": (Family, "a Family of hypotheses"),
    "dictionary": (DictionaryRule, "a rule such as RidgeLeverageSampling()"),
    "width": (Width, "a confidence width such as ConstantWidth(2.0)"),
    "theory": (TheoremWidth, "a theorem's width such as SelfNormalizedWidth"),
    "batches": (BatchRule, "a rule such as GlobalBatchRule(2.0)"),
    "objective": (Scalarization, 'a Scalarization such as Scalarization({"reward": "maximize", "cost": "minimize"})'),
}


def check_pieces(config: Any) -> None:
    """Refuse pieces that are of another kind, or have no meaning for each other."""
    for name, (kind, hint) in _KINDS.items():
        piece = getattr(config, name)
        needed = name in ("candidates", "acquisition") or (name == "width" and config.acquisition.uses_width)
        if needed or piece is not None:
            checks.instance(name, piece, kind, hint)
    for number, limit in enumerate(config.constraints):
        checks.instance(f"constraints[{number}]", limit, Limit, 'a limit such as AtMost("temperature", 80.0)')
    if config.family is not None:
        given_prior(config.prior)
    _refuse(_odd_pairs(config))


def _odd_pairs(config: Any) -> Iterable[tuple[bool, str]]:
    """Yield of each pair of pieces that have no meaning for each other whether both are there, and what to do."""
    rule, choice, memory = config.acquisition, config.memories, config.memory
    name, several = type(rule).__name__, type(choice).__name__
    yield choice is not None and memory is not None, "Give either memory or memories: one is in force at any time."
    yield (
        choice is not None and config.trigger is not None and not choice.allows_restarts,
        f"{several} compares memories on the whole history, which does not say when a trigger restarted: give one of "
        "the two, or BanditOverBandit.",
    )
    yield (
        config.advice is not None and (not config.all_memories or rule.num_stages > 0),
        "An expert's answers count at one time only, so they need a memory, and a rule that does not choose through "
        "stages: give memory=UncertaintyInjection(...) or another, or leave out advice.",
    )
    if config.family is not None:
        yield choice is not None, "Leave out memories with a family: give a hypothesis its own, ModelSpec(memory=...)."
        yield config.advice is not None, "Leave out advice with a family."
        yield (
            rule.num_stages > 0 or not rule.needs_observations,
            f"{name} does not choose by one posterior, so a family has no meaning for it: leave out family, or use "
            "UpperConfidenceRule or ThompsonRule.",
        )
        yield (
            config.objective is not None,
            "A family judges its hypotheses by the reward: leave out family or objective.",
        )
    yield (
        config.learning is not None and config.learning.learn_memory and memory is None,
        "learn_memory=True learns the number of a bandit's one memory, and this one has none, or several: give "
        "memory=, such as TemporalPrior(0.01), or leave out learn_memory.",
    )
    yield (
        config.objective is not None and not isinstance(rule, (OptimisticRule, RandomRule)),
        f"{name} scores by no value that an objective may have, so several have no meaning for it: use "
        "UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do.",
    )
    named = [each.name for each in config.declared]
    yield (
        config.objective is not None and REWARD in named,
        f"{REWARD!r} is what objectives call the reward: give the outcome another name.",
    )
    undecided = [each.name for each in config.declared if each.memory is None]
    yield (
        choice is not None and bool(undecided),
        f"{several} puts one memory after the other in force, by the rewards: say which one an outcome has, "
        f"Outcome({(*undecided, '')[0]!r}, memory=...).",
    )


def check_candidates(config: Any) -> None:
    """Refuse a rule that cannot choose among such candidates under such kernels, and kernels that do not fit."""
    candidates, rule, batches = untimed(config.candidates), config.acquisition, config.batches
    level, now = config.start.regularization, torch.zeros(1, dtype=torch.float64)
    dropping = [each for each in config.all_memories if not bool(each.noise(now, 0.0, level).isfinite())]
    odd = (
        (
            rule.num_stages > 0 and not candidates.is_finite,
            "A choice through stages needs a finite set of actions: give actions instead of bounds.",
        ),
        (
            bool(config.constraints) and candidates.is_split,
            "Limits on outcomes need all arms in one process: give Arms, or leave out constraints.",
        ),
        (
            bool(dropping),
            f"{dropping} drop(s) an observation of noise variance {level:g} as soon as it is made: let the largest "
            "variance be above the regularization.",
        ),
        (
            batches is not None and batches.repeats_points and not config.candidates.is_lasting,
            f"{type(batches).__name__} plays a point again and again, and each round brings another context, other "
            "actions or a time that the points know: use GlobalBatchRule or LocalBatchRule, or candidates that stay "
            "under a memory that is no prior on time.",
        ),
    )
    _refuse(odd)
    kernels = [config.start.kernel, *(spec.kernel for spec in config.specs)]
    for memory in config.all_memories or (None,):
        for kernel in kernels:
            under = config.kernel_under(memory, kernel)
            check_kernel(under, config.candidates.example)
            if rule.draws_functions and candidates.is_stored:
                wave_prior(under, config.candidates.example.shape[-1])


def _refuse(odd: Iterable[tuple[bool, str]]) -> None:
    """Refuse the first of what is odd, if any is."""
    for is_odd, message in odd:
        if is_odd:
            raise InputError(message)

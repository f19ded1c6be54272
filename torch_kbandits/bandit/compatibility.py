"""Which pieces of a bandit go together: checks of its configuration, typed loosely as that is above them."""

from typing import Any

import torch

from torch_kbandits import checks
from torch_kbandits.acquisition import OptimisticRule, RandomRule
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.outcomes import REWARD, Limit
from torch_kbandits.priors import given_prior
from torch_kbandits.selection.draws import drawn_function


def check_pieces(config: Any) -> None:
    """Refuse pieces that have no meaning for each other."""
    if config.acquisition.uses_width:
        checks.instance("width", config.width, Width, "a confidence width such as ConstantWidth(2.0)")
    for number, limit in enumerate(config.constraints):
        checks.instance(f"constraints[{number}]", limit, Limit, 'a limit such as AtMost("temperature", 80.0)')
    rule, memories, objective = config.acquisition, config.memories, config.objective
    named, several = type(rule).__name__, type(memories).__name__
    if memories is not None and config.memory is not None:
        raise InputError("Give either memory or memories: one of memories is in force at any time.")
    if memories is not None and config.trigger is not None and not memories.allows_restarts:
        raise InputError(
            f"{several} compares memories on the whole history: leave out trigger, or use BanditOverBandit."
        )
    if config.advice is not None and (not config.all_memories or rule.num_stages):
        raise InputError("An expert's answers count at one time only: give a memory, and a rule without stages.")
    if config.family is not None:
        given_prior(config.prior)
        given = {"memories": memories, "advice": config.advice, "objective": objective}
        if others := [name for name, piece in given.items() if piece is not None]:
            raise InputError(f"Leave out {others[0]} with a family, whose hypotheses are judged by the reward.")
        if rule.num_stages or not rule.needs_observations:
            raise InputError(
                f"{named} does not choose by one posterior, so a family has no meaning for it: leave out family, or "
                "use UpperConfidenceRule or ThompsonRule."
            )
    if config.learning is not None and config.learning.learn_memory and config.memory is None:
        raise InputError(
            "learn_memory=True learns the number of a bandit's one memory, and this one has none, or several: give "
            "memory=, such as TemporalPrior(0.01), or leave out learn_memory."
        )
    if objective is not None and not isinstance(rule, (OptimisticRule, RandomRule)):
        raise InputError(
            f"{named} scores by no value that an objective may have, so several have no meaning for it: use "
            "UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do."
        )
    if objective is not None and REWARD in (each.name for each in config.declared):
        raise InputError(f"{REWARD!r} is what objectives call the reward: give the outcome another name.")
    undecided = [each.name for each in config.declared if each.memory is None]
    if memories is not None and undecided:
        raise InputError(f"{several} goes by the rewards: give the memory of Outcome({undecided[0]!r}, memory=...).")


def check_candidates(config: Any) -> None:
    """Refuse a rule that cannot choose among such candidates under such kernels, and kernels that do not fit."""
    candidates, rule, batches = untimed(config.candidates), config.acquisition, config.batches
    if rule.num_stages and not candidates.is_finite:
        raise InputError("A choice through stages needs a finite set of actions: give actions instead of bounds.")
    if config.constraints and candidates.is_split:
        raise InputError("Limits on outcomes need all arms in one process: give Arms, or leave out constraints.")
    level, now = config.start.regularization, torch.zeros(1, dtype=torch.float64)
    for memory in config.all_memories:
        if not bool(memory.noise(now, 0.0, level).isfinite()):
            raise InputError(
                f"{memory!r} drops an observation of noise variance {level:g} as soon as it is made: let the largest "
                "variance be above the regularization."
            )
    if batches is not None and batches.repeats_points and not config.candidates.is_lasting:
        raise InputError(
            f"{type(batches).__name__} plays a point again and again, and each round brings another context, other "
            "actions or a time that the points know: use GlobalBatchRule or LocalBatchRule."
        )
    for memory in config.all_memories or (None,):
        for prior in (config.start, *(spec.prior for spec in config.specs)):
            under = config.kernel_under(memory, prior.kernel)
            check_kernel(under, config.candidates.example)
            if rule.draws_functions and candidates.is_stored:
                drawn_function(under, config.candidates.example.shape[-1], torch.Generator())

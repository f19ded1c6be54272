"""Which pieces of a bandit do not go together, and what to do instead."""

from typing import Any

import torch

from torch_kbandits import checks
from torch_kbandits.acquisition import (
    EpsilonGreedy,
    OptimisticRule,
    PhasedEliminationRule,
    RandomRule,
    SoftmaxRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit.batches import RandomizedKrigingBeliever
from torch_kbandits.candidates import Arms
from torch_kbandits.candidates.timed import check_offered, untimed
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.numerics.prior_draws import drawn_function, slope_of
from torch_kbandits.outcomes import REWARD, CostObjective, Limit, Scalarization
from torch_kbandits.priors import given_prior


def check_pieces(config: Any) -> None:
    """Refuse pieces of a ``BanditConfig`` that have no meaning for each other."""
    rule, memories, objective, learning = config.rule, config.memories, config.objective, config.learning
    named, several = type(rule).__name__, type(memories).__name__
    if rule.uses_width:
        checks.instance("width", config.width, Width, "a confidence width such as ConstantWidth(2.0)")
    for number, limit in enumerate(config.constraints):
        checks.instance(f"constraints[{number}]", limit, Limit, 'a limit such as AtMost("temperature", 80.0)')
    if memories is not None and config.memory is not None:
        raise InputError("Give either memory or memories: one of memories is in force at any time.")
    if memories is not None and config.trigger is not None and not memories.allows_restarts:
        raise InputError(f"{several} compares memories on the whole history: leave out trigger.")
    if memories is not None and (undecided := [each.name for each in config.declared if each.memory is None]):
        raise InputError(f"{several} goes by the rewards: give the memory of Outcome({undecided[0]!r}, memory=...).")
    if config.advice is not None and (not config.all_memories or rule.num_stages):
        raise InputError("An expert's answers count for a time only: give a memory, and a rule without stages.")
    if config.family is not None:
        given_prior(config.prior)
        if others := [name for name in ("memories", "advice", "objective") if getattr(config, name) is not None]:
            raise InputError(f"Leave out {others[0]} with a family, whose hypotheses are judged by the reward.")
        if rule.num_stages or not rule.needs_observations:
            raise InputError(f"{named} does not choose by one posterior: leave out family, or use ThompsonRule.")
    if isinstance(config.batches, RandomizedKrigingBeliever):
        others = [name for name in ("family", "objective", "advice") if getattr(config, name) is not None]
        if others or rule.num_stages or rule.draws_functions or not rule.needs_observations:
            why = f"leave out {others[0]}" if others else f"{named} has no use for it"
            raise InputError(f"RandomizedKrigingBeliever draws one reward of each point that is pending: {why}.")
    if learning is not None and learning.learn_memory and config.memory is None:
        raise InputError("learn_memory=True learns the number of one memory, and this one has none: give memory=.")
    if isinstance(objective, CostObjective) and not isinstance(rule, (objective.rule, RandomRule)):
        own = type(objective).__name__
        raise InputError(f"{own} weighs no cost against what {named} scores: use {objective.hint}.")
    if isinstance(objective, Scalarization) and not isinstance(rule, (OptimisticRule, RandomRule)):
        raise InputError(
            f"{named} scores by no value that an objective may have, so several have no meaning for it: use "
            "UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do."
        )
    if config.fidelity is not None:
        if others := [name for name in ("family", "objective") if getattr(config, name) is not None]:
            hint = "one posterior of the reward alone chooses levels; for a budget stop at bandit.spent"
            raise InputError(f"Leave out {others[0]} with a fidelity: {hint}.")
        if not isinstance(config.acquisition, UpperConfidenceRule):
            named = type(config.acquisition).__name__
            raise InputError(f"{named} has no upper bound at the target: use GPUCB, BKB or EKUCB, without epsilon.")
    if objective is not None and REWARD in (each.name for each in config.declared):
        raise InputError(f"{REWARD!r} is what objectives call the reward: give the outcome another name.")


def check_candidates(config: Any) -> None:
    """Refuse a rule that cannot choose among such candidates under such kernels, and kernels that do not fit."""
    candidates, rule, batches = untimed(config.candidates), config.rule, config.batches
    level, now = config.start.regularization, torch.zeros(1, dtype=torch.float64)
    if config.learning is not None and len(config.learning.initial):
        check_offered("initial", candidates, config.learning.initial)
    if rule.num_stages and not candidates.is_finite:
        raise InputError("A choice through stages needs a finite set of actions: give actions instead of bounds.")
    if isinstance(rule, PhasedEliminationRule) and not isinstance(config.candidates, Arms):
        raise InputError("PhasedEliminationRule goes through the same arms in each phase: give Arms, such as a grid.")
    if isinstance(batches, RandomizedKrigingBeliever) and candidates.is_split:
        raise InputError("RandomizedKrigingBeliever needs all arms in one process: give Arms, or leave it out.")
    if config.constraints and candidates.is_split:
        raise InputError("Limits on outcomes need all arms in one process: give Arms, or leave out constraints.")
    is_gridded, bounds = getattr(rule, "discretization_size", None) == "theory", getattr(candidates, "bounds", None)
    if is_gridded and (bounds is None or bounds.shape[-1] != 1 or config.constraints or config.objective is not None):
        raise InputError('discretization_size="theory" is for a box of one column and rewards alone: give a number.')
    if batches is not None and batches.repeats_points and not config.candidates.is_lasting:
        raise InputError(
            f"{type(batches).__name__} plays a point again and again, and each round brings another context, other "
            "actions or a time that the points know: use GlobalBatchRule or LocalBatchRule."
        )
    if batches is not None and batches.repeats_points and isinstance(config.acquisition, EpsilonGreedy):
        raise InputError(f"{type(batches).__name__} plays a point again and again: leave out EpsilonGreedy.")
    if isinstance(rule, SoftmaxRule) and not candidates.is_finite:
        raise InputError("SoftmaxRule draws one of listed candidates: give arms or actions instead of bounds.")
    for memory in config.all_memories or (None,):
        if memory is not None and not bool(memory.noise(now, 0.0, level).isfinite()):
            raise InputError(f"{memory!r} drops what is told at noise variance {level:g}: let it keep more than that.")
        for prior in (config.start, *(spec.prior for spec in config.specs)):
            under = config.kernel_under(memory, prior.kernel)
            check_kernel(under, config.candidates.example)
            if rule.draws_functions and candidates.is_stored:
                drawn_function(under, config.candidates.example.shape[-1], torch.Generator())
            if is_gridded:
                slope_of(under, config.candidates.example.shape[-1])

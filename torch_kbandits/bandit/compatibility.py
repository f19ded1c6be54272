"""Which pieces of a bandit go together: checks of its configuration, typed loosely as that is above them."""

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
from torch_kbandits.outcomes import REWARD, Scalarization
from torch_kbandits.priors import Family, given_prior

#: What pieces are, where they are given.
_KINDS: dict[str, tuple[type, str]] = {
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


def check_kinds(config: Any) -> None:
    """Refuse pieces that are of another kind."""
    checks.instance("candidates", config.candidates, Candidates, "Arms or a Box")
    checks.instance("acquisition", config.acquisition, AcquisitionRule, "a rule such as UpperConfidenceRule()")
    for name, (kind, hint) in _KINDS.items():
        piece = getattr(config, name)
        if piece is not None or (name == "width" and config.acquisition.uses_width):
            checks.instance(name, piece, kind, hint)


def check_adaptation(config: Any) -> None:
    """Refuse a choice of memories, a family or a prior that is learned with what it has no meaning for."""
    if config.memories is not None and config.memory is not None:
        raise InputError("Give either memory or memories: one of memories is in force at any time.")
    if config.memories is not None and config.trigger is not None and not config.memories.allows_restarts:
        raise InputError(
            f"{type(config.memories).__name__} compares memories on the whole history, which does not say when a "
            "trigger restarted: give one of the two, or BanditOverBandit."
        )
    if config.family is not None:
        given_prior(config.prior)
        given = {"memories": config.memories, "advice": config.advice}
        if others := [name for name, piece in given.items() if piece is not None]:
            raise InputError(
                f"Leave out {others[0]} with a family: give a hypothesis its own memory, SurrogateSpec(memory=...)."
            )
        if config.acquisition.num_stages or not config.acquisition.needs_observations:
            raise InputError(
                f"{type(config.acquisition).__name__} does not choose by one posterior, so a family has no meaning "
                "for it: leave out family, or use UpperConfidenceRule or ThompsonRule."
            )
    if config.learning is not None and config.learning.learn_memory and config.memory is None:
        raise InputError(
            "learn_memory=True learns the number of a bandit's one memory, and this one has none, or several to "
            "choose from: give memory=, such as TemporalPrior(0.01), or leave out learn_memory."
        )


def check_outcomes(config: Any) -> None:
    """Refuse outcomes and objectives that have no meaning for the other pieces."""
    if config.objective is not None:
        if config.family is not None:
            raise InputError(
                "A family judges its hypotheses by the reward, so several objectives have no meaning for it: leave "
                "out family or objective."
            )
        if not isinstance(config.acquisition, (OptimisticRule, RandomRule)):
            raise InputError(
                f"{type(config.acquisition).__name__} scores by no value that an objective may have, so several have "
                "no meaning for it: use UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do."
            )
        if REWARD in (each.name for each in config.declared):
            raise InputError(f"{REWARD!r} is what objectives call the reward: give the outcome another name.")
    undecided = [each.name for each in config.declared if each.memory is None]
    if config.memories is not None and undecided:
        raise InputError(
            f"{type(config.memories).__name__} puts one memory after the other in force, by the rewards: say which "
            f"one the outcome {undecided[0]!r} has, Outcome({undecided[0]!r}, memory=...)."
        )


def check_candidates(config: Any) -> None:
    """Refuse a rule that cannot choose among such candidates under such kernels, and kernels that do not fit."""
    candidates = untimed(config.candidates)
    if config.acquisition.num_stages and not candidates.is_finite:
        raise InputError("A choice through stages needs a finite set of actions: give actions instead of bounds.")
    if config.constraints and candidates.is_split:
        raise InputError("Limits on outcomes need all arms in one process: give Arms, or leave out constraints.")
    for memory in config.all_memories:
        now = torch.zeros(1, dtype=torch.float64)
        if not bool(memory.noise(now, 0.0, level := config.start.regularization).isfinite()):
            raise InputError(
                f"{memory!r} drops an observation of noise variance {level:g} as soon as it is made: let the largest "
                "variance be above the regularization."
            )
    if config.batches is not None and config.batches.repeats_points and not config.candidates.is_lasting:
        raise InputError(
            f"{type(config.batches).__name__} plays a point again and again, and each round brings another context, "
            "other actions or a time that the points know: use GlobalBatchRule or LocalBatchRule, or candidates that "
            "stay under a memory that is no prior on time."
        )
    others = [] if config.family is None else [each.kernel for each in config.family.variants]
    for memory in config.all_memories or (None,):
        for kernel in (config.start.kernel, *(other for other in others if other is not None)):
            under = config.kernel_under(memory, kernel)
            check_kernel(under, config.candidates.example)
            if config.acquisition.draws_functions and candidates.is_stored:
                wave_prior(under, config.candidates.example.shape[-1])

"""The words that every named algorithm takes, turned into pieces."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions
from torch_kbandits.candidates.sample import some_points
from torch_kbandits.confidence import (
    ConstantWidth,
    GPTSWidth,
    IGPUCBWidth,
    InformationGain,
    MemoryWidth,
    SelfNormalizedWidth,
    TheoremWidth,
    Width,
    greedy_information_gain,
)
from torch_kbandits.dictionaries import (
    KORS,
    CappedDictionary,
    DictionaryRule,
    Resampling,
    RidgeLeverageSampling,
    WhenFull,
    theoretical_kors_oversampling,
    theoretical_oversampling,
)
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors import LearnedPrior, Prior
from torch_kbandits.priors.families import Variant, of_length_scales
from torch_kbandits.spaces import ParameterSpace

#: What length scales are multiplied by if nobody says it.
_HALVES = (1.0, 0.5, 0.25, 0.125, 0.0625)

#: Points and plays of which the information gain is sought that sets a window: it grows slowly in both.
_GAIN_ARMS, _GAIN_PLAYS = 1_000, 1_000


def resolve_candidates(candidates: Tensor | Candidates | ParameterSpace | None, bounds: Tensor | None) -> Candidates:
    """Return arms or configurations from ``candidates``, or a box from ``bounds``; exactly one must be given."""
    if (candidates is None) == (bounds is None):
        raise InputError("Give either candidates, a tensor of arms (A, d), or bounds of a box, (2, d); one of the two.")
    if bounds is not None:
        return Box(bounds)
    if isinstance(candidates, Candidates):
        return candidates
    if isinstance(candidates, ParameterSpace):
        return Configurations(candidates)
    return Arms(cast(Tensor, candidates))


def resolve_contextual(
    candidates: Tensor | Candidates | ParameterSpace | None,
    bounds: Tensor | None,
    context_dim: int | None,
    action_dim: int | None,
) -> Candidates:
    """Return contextual actions if there is a context, or if each round brings its own actions; else arms or a box."""
    if isinstance(candidates, Candidates) or (context_dim is None and action_dim is None):
        if context_dim is not None or action_dim is not None:
            raise InputError(f"Leave out context_dim and action_dim: {type(candidates).__name__} know them.")
        return resolve_candidates(candidates, bounds)
    if isinstance(candidates, ParameterSpace) and bounds is None and action_dim is None:
        return Configurations(candidates, context_dim=context_dim)
    context_dim = 0 if context_dim is None else context_dim
    return ContextualActions(candidates, context_dim=context_dim, bounds=bounds, action_dim=action_dim)


def rounds_to_remember(
    name: str,
    formula: Callable[..., int],
    horizon: int | None,
    variation_budget: float | None,
    prior: Prior | LearnedPrior,
    candidates: Candidates,
) -> int:
    """Return a theorem's window or period, with the information gain of T greedy plays on up to 1,000 points.

    Args:
        name: of the argument in whose place it stands, such as "window".
        formula: ``window_size`` or ``restart_period``.
        horizon: T.
        variation_budget: P_T, or None where it is not known.
        prior: of which the kernel and λ count.
        candidates: what may be played.

    Raises:
        InputError: if there is no horizon, the prior is not known, or what may be played depends on a context.
    """
    if horizon is None or candidates.is_contextual or not isinstance(prior, Prior):
        raise InputError(
            f"{name} is missing: give it, or without contexts and with a kernel that is known give horizon, the number "
            "of rounds, for the theorem's."
        )
    horizon = checks.positive_integer("horizon", horizon)
    if (arms := candidates.domain.arms) is not None:
        some = arms[:: -(-len(arms) // _GAIN_ARMS)]
    else:
        some = some_points(candidates, _GAIN_ARMS, 0.0, generator_for(0, 0, "information gain"))
    with torch.no_grad():
        gain = greedy_information_gain(prior.kernel, some, min(horizon, _GAIN_PLAYS), prior.regularization)[-1]
    return formula(horizon, variation_budget, gain=float(gain))


def resolve_variants(
    kernel: Kernel,
    scales: Sequence[float] | None,
    kernels: Sequence[Kernel] | None,
    default: Sequence[float] = _HALVES,
) -> tuple[Variant, ...]:
    """Return hypotheses: kernels, or the kernel with its length scales times each of some numbers.

    Args:
        kernel: the prior covariance.
        scales: the numbers; None for the default.
        kernels: one for each hypothesis instead.
        default: the numbers if neither is given.

    Raises:
        InputError: if both are given, or one does not fit.
    """
    if kernels is None:
        return of_length_scales(kernel, default if scales is None else scales)
    if scales is not None:
        raise InputError("Give either scales or kernels: both say what the hypotheses are.")
    if not isinstance(kernels, (tuple, list)):
        raise InputError(f"kernels must be one kernel for each hypothesis, got {checks.describe(kernels)}.")
    for number, each in enumerate(kernels):
        checks.instance(f"kernels[{number}]", each, Kernel, "a GPyTorch kernel")
    return tuple(Variant(kernel=each) for each in kernels)


def refuse_memory(memory: Memory | None, own: str) -> None:
    """Refuse a memory where an algorithm is one itself.

    Args:
        memory: what was given as ``memory``.
        own: the argument that says which observations count.

    Raises:
        InputError: if a memory was given.
    """
    if memory is not None:
        raise InputError(
            f"Leave out memory={checks.shown(memory)}: here {own} says what an observation counts for, and what it "
            "counts for under two memories is not defined. Set that, or take an algorithm without a memory of its own, "
            "such as GPUCB, BKB or EKUCB, with this one."
        )


def resolve_width(
    beta: float | Width | None,
    theory: TheoremWidth | None,
    prior: Prior | LearnedPrior,
    needed: str = "noise_scale and norm_bound",
) -> Width:
    """Return the width that ``beta`` names, or the theorem's.

    Under a prior that is learned no theorem holds, and the width is 2 unless something is said.

    Args:
        beta: a multiplier of the standard deviation, a width, or None for the theorem's.
        theory: the theorem's width, or None if its constants were not given.
        prior: whether it is learned.
        needed: the words that the theorem's width needs, for the error message.
    """
    if beta is None:
        if theory is None and isinstance(prior, LearnedPrior):
            return ConstantWidth(2.0)
        if theory is None:
            raise InputError(f"Without beta the width of the theorem is used, which needs {needed}.")
        return theory
    if isinstance(beta, Width):
        return beta
    return ConstantWidth(beta)


def common(others: CommonWords) -> CommonWords:
    """Return the words that every algorithm hands on to ``Bandit``, whose other words are for the algorithm to choose.

    Raises:
        TypeError: if there is another, as Python does of a word that is not in a signature.
    """
    if strange := sorted(others.keys() - CommonWords.__optional_keys__):
        raise TypeError(f"got an unexpected keyword argument {strange[0]!r}")
    return others


def check_theory(noise_scale: float | None, norm_bound: float | None, failure_probability: float) -> None:
    """Refuse constants of a theorem that make no sense, whether or not they are used."""
    checks.open_unit_interval("failure_probability", failure_probability)
    for name, value in (("noise_scale", noise_scale), ("norm_bound", norm_bound)):
        if value is not None:
            checks.scale(name, value)


def planned(horizon: int | None) -> int | None:
    """Return T as an int, or None where nobody knows it.

    Raises:
        InputError: if it is no whole number of at least 1, whether or not it is used.
    """
    return None if horizon is None else checks.positive_integer("horizon", horizon)


def theorem(
    width: Callable[..., TheoremWidth],
    noise_scale: float | None,
    norm_bound: float | None,
    failure_probability: float,
    **settings: Any,
) -> TheoremWidth | None:
    """Return the width of a theorem that needs R and B, or None if one of them is missing; see ``check_theory``.

    Of its settings those that are None are the width's own.
    """
    check_theory(noise_scale, norm_bound, failure_probability)
    if noise_scale is None or norm_bound is None:
        return None
    given = {name: setting for name, setting in settings.items() if setting is not None}
    return width(noise_scale, norm_bound, failure_probability, **given)


def theorem_at(
    level: float | None,
    width: type[IGPUCBWidth] | type[GPTSWidth],
    noise_scale: float | None,
    norm_bound: float | None,
    failure_probability: float,
    horizon: int | None,
    *,
    gain: InformationGain | None,
    forgets: Memory | bool | None,
    num_bounds: int | None = None,
) -> TheoremWidth | None:
    """Return IGP-UCB's width or GP-TS's where λ is at least 1, and where their proofs fail what theirs are bounds on.

    That is ``SelfNormalizedWidth``, for GP-TS at δ/2 as in its theorem, or ``MemoryWidth`` where it forgets.

    Args:
        level: λ; None where it is fitted.
        width: that of the theorem.
        noise_scale: R.
        norm_bound: B.
        failure_probability: δ.
        horizon: T, for ``MemoryWidth`` alone: its bound is then one for all rounds. None for each round apart.
        gain: what stands for γ; None for the realised one.
        forgets: the memory, or whether observations stop counting.
        num_bounds: how many sets of observations there are, each with a bound of its own; None for T.

    Returns:
        None if R or B is missing.
    """
    horizon, share = planned(horizon), failure_probability
    if level is None or level < 1.0:
        share = share / 2.0 if width is GPTSWidth and isinstance(share, float) else share
        if forgets.forgets if isinstance(forgets, Memory) else forgets is True:
            number = horizon if num_bounds is None else num_bounds
            return theorem(MemoryWidth, noise_scale, norm_bound, share, num_bounds=number, gain=gain)
        return theorem(SelfNormalizedWidth, noise_scale, norm_bound, share, gain=gain)
    return theorem(width, noise_scale, norm_bound, share, gain=gain)


def resolve_dictionary(
    oversampling: float | Literal["theory"],
    failure_probability: float,
    horizon: int | None,
    accuracy: float,
    resampling: Resampling,
    max_dictionary: int | None,
    when_full: WhenFull,
) -> DictionaryRule:
    """Return ridge leverage sampling, capped if there is a cap, with the q̄ given or the theorem's; see ``capped``."""
    horizon = planned(horizon)
    if isinstance(oversampling, str):
        checks.one_of("oversampling, unless it is a number,", oversampling, ["theory"])
        oversampling = theoretical_oversampling(failure_probability, _needed(horizon), accuracy)
    return capped(RidgeLeverageSampling(oversampling, resampling), max_dictionary, when_full)


def resolve_kors(
    oversampling: float | Literal["theory"],
    projection: float | None,
    failure_probability: float,
    horizon: int | None,
) -> KORS:
    """Return KORS with the γ given, or the theorem's, which needs the horizon."""
    horizon = planned(horizon)
    if isinstance(oversampling, str):
        checks.one_of("oversampling, unless it is a number,", oversampling, ["theory"])
        oversampling = theoretical_kors_oversampling(failure_probability, _needed(horizon))
    return KORS(oversampling, projection)


def capped(rule: DictionaryRule, max_dictionary: int | None, when_full: WhenFull) -> DictionaryRule:
    """Return a rule, capped if there is a cap; ``when_full`` is checked in any case."""
    checks.one_of("when_full", when_full, get_args(WhenFull))
    if max_dictionary is None:
        return rule
    return CappedDictionary(rule, checks.positive_integer("max_dictionary", max_dictionary), when_full)


def _needed(horizon: int | None) -> int:
    if horizon is None:
        raise InputError('oversampling="theory" depends on the horizon: give horizon, the number of rounds.')
    return horizon

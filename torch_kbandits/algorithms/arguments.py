"""The words of a named algorithm, checked and turned into pieces."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast, get_args

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.algorithms.words import DEFAULTS
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule
from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions
from torch_kbandits.candidates.timed import some_points
from torch_kbandits.confidence import (
    ConstantWidth,
    GPTSWidth,
    IGPUCBWidth,
    InformationGain,
    MemoryWidth,
    ScaledWidth,
    SelfNormalizedWidth,
    TheoremWidth,
    Width,
    greedy_information_gain,
)
from torch_kbandits.dictionaries import CappedDictionary, DictionaryRule, WhenFull
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors import LearnedPrior, Prior, given_prior, prior_of
from torch_kbandits.priors.families import ModelSpec, of_length_scales
from torch_kbandits.spaces import ParameterSpace

#: What length scales are multiplied by if nobody says it.
_HALVES = (1.0, 0.5, 0.25, 0.125, 0.0625)

#: Points and plays of which the information gain is sought that sets a window: it grows slowly in both.
_GAIN_ARMS, _GAIN_PLAYS = 1_000, 1_000

#: What ``Bandit`` takes as it is, of the words given.
_HANDED_ON = ("seed", "dictionary", "memory", "outcomes", "constraints", "expire_after", "objective")


class Arguments:
    """What was given of the words that algorithms share, checked.

    Args:
        typed: the typed dictionary that the words are of.
        words: those that were given.
        forgets_by: the algorithm's own argument that says which observations count, if it is a memory itself: then
            another is refused.

    Attributes:
        candidates: what may be played.
        noise_scale: R, None if it is not known or no such word is taken; the same holds for the others.
        norm_bound: B.
        failure_probability: δ.
        horizon: T.
        gain: what stands for the information gain.

    Raises:
        TypeError: if a word is strange or missing, as Python says it of one that is in a signature.
        InputError: if one does not fit, whether or not it is used.
    """

    def __init__(self, typed: Any, words: Mapping[str, Any], forgets_by: str | None = None) -> None:
        if strange := sorted(words.keys() - typed.__annotations__.keys()):
            raise TypeError(f"got an unexpected keyword argument {strange[0]!r}")
        if missing := sorted(typed.__required_keys__ - words.keys()):
            raise TypeError(f"missing a required keyword-only argument: {missing[0]!r}")
        self.words: dict[str, Any] = {name: DEFAULTS.get(name) for name in typed.__annotations__} | dict(words)
        memory = self.words["memory"]
        if memory is not None and forgets_by is not None:
            raise InputError(
                f"Leave out memory={checks.shown(memory)}: here {forgets_by} says what an observation counts for, and "
                "what it counts for under two memories is not defined. Set that, or take an algorithm without a memory "
                "of its own, such as GPUCB, BKB or EKUCB, with this one."
            )
        scale, share = checks.optional(checks.scale), self.words.get("failure_probability", 0.1)
        self.noise_scale, self.norm_bound = (
            scale(name, self.words.get(name)) for name in ("noise_scale", "norm_bound")
        )
        self.failure_probability = checks.open_unit_interval("failure_probability", share)
        self.horizon = checks.optional(checks.positive_integer)("horizon", self.words.get("horizon"))
        self.gain: InformationGain | None = self.words.get("gain")
        where = ("candidates", "bounds", "context_dim", "action_dim")
        self.candidates = resolve_candidates(*(self.words[name] for name in where))

    @cached_property
    def prior(self) -> Prior | LearnedPrior:
        """What is assumed of rewards."""
        return prior_of(*(self.words[name] for name in ("prior", "kernel", "regularization", "mean")))

    def pieces(self, **own: Any) -> dict[str, Any]:
        """Return the arguments of ``Bandit``: these words, and the algorithm's own pieces, which come first."""
        given = {name: self.words[name] for name in _HANDED_ON if name in self.words}
        prior = {} if "prior" in own else {"prior": self.prior}
        return {"candidates": self.candidates, **given, **prior, **own}

    def width(self, theory: Width | None, needed: str = "noise_scale and norm_bound") -> Width:
        """Return the width that ``beta`` names, or the theorem's; where the prior is learned, no theorem holds: then 2.

        Args:
            theory: the theorem's width, or None if its constants were not given.
            needed: the words that the theorem's width needs, for the error message.
        """
        beta = self.words["beta"]
        if beta is not None:
            return beta if isinstance(beta, Width) else ConstantWidth(beta)
        if theory is not None:
            return theory
        if isinstance(self.prior, LearnedPrior):
            return ConstantWidth(2.0)
        raise InputError(f"Without beta the width of the theorem is used, which needs {needed}.")

    def theorem(self, width: Callable[..., TheoremWidth], **settings: Any) -> TheoremWidth | None:
        """Return the width of a theorem that needs R and B, or None if one of them is missing.

        Of its settings those that are None are the width's own.
        """
        if self.noise_scale is None or self.norm_bound is None:
            return None
        given = {name: setting for name, setting in settings.items() if setting is not None}
        share = given.pop("failure_probability", self.failure_probability)
        return width(self.noise_scale, self.norm_bound, share, **given)

    def theorem_at(
        self, width: type[IGPUCBWidth] | type[GPTSWidth], *, forgets: bool | None = None, num_bounds: int | None = None
    ) -> TheoremWidth | None:
        """Return IGP-UCB's width or GP-TS's where λ is at least 1, and where their proofs fail what these bound.

        That is ``SelfNormalizedWidth``, for GP-TS at δ/2 as in its theorem, or ``MemoryWidth`` where it forgets.

        Args:
            width: that of the theorem.
            forgets: whether observations stop counting; None if the memory says so.
            num_bounds: how many sets of observations there are, each with a bound of its own; None for T, and without a
                horizon for each round apart.

        Returns:
            None if R or B is missing.
        """
        level = self.prior.regularization
        if level is not None and level >= 1.0:
            return self.theorem(width, gain=self.gain)
        share = self.failure_probability / 2.0 if width is GPTSWidth else self.failure_probability
        memory = self.words["memory"]
        if forgets or (isinstance(memory, Memory) and memory.forgets):
            number = self.horizon if num_bounds is None else num_bounds
            return self.theorem(MemoryWidth, failure_probability=share, num_bounds=number, gain=self.gain)
        return self.theorem(SelfNormalizedWidth, failure_probability=share, gain=self.gain)

    def rounds_to_remember(self, name: str, formula: Callable[..., int], variation_budget: float | None) -> int:
        """Return a theorem's window or period, with the information gain of T greedy plays on up to 1,000 points.

        Args:
            name: of the argument in whose place it stands, such as "window".
            formula: ``window_size`` or ``restart_period``.
            variation_budget: P_T, or None where it is not known.

        Raises:
            InputError: if there is no horizon, the prior is not known, or what may be played depends on a context.
        """
        if self.horizon is None or self.candidates.is_contextual or not isinstance(self.prior, Prior):
            raise InputError(
                f"{name} is missing: give it, or without contexts and with a kernel that is known give horizon, the "
                "number of rounds, for the theorem's."
            )
        if (arms := self.candidates.in_round(None, None, 0.0).arms) is not None:
            some = arms[:: -(-len(arms) // _GAIN_ARMS)]
        else:
            some = some_points(self.candidates, _GAIN_ARMS, 0.0, generator_for(0, 0, "information gain"))
        plays = min(self.horizon, _GAIN_PLAYS)
        with torch.no_grad():
            gain = greedy_information_gain(self.prior.kernel, some, plays, self.prior.regularization)[-1]
        return formula(self.horizon, variation_budget, gain=float(gain))

    def variants(self, default: Sequence[float] = _HALVES) -> tuple[ModelSpec, ...]:
        """Return hypotheses: ``kernels``, or the kernel with its length scales times each of ``scales``.

        Raises:
            InputError: if both are given, one does not fit, or the prior is to be learned.
        """
        kernel, scales, kernels = given_prior(self.prior).kernel, self.words["scales"], self.words["kernels"]
        if kernels is None:
            return of_length_scales(kernel, default if scales is None else scales)
        if scales is not None:
            raise InputError("Give either scales or kernels: both say what the hypotheses are.")
        if not isinstance(kernels, (tuple, list)):
            raise InputError(f"kernels must be one kernel for each hypothesis, got {checks.describe(kernels)}.")
        for number, each in enumerate(kernels):
            checks.instance(f"kernels[{number}]", each, Kernel, "a GPyTorch kernel")
        return tuple(ModelSpec(kernel=each) for each in kernels)

    def oversampling(self, given: Any, theoretical: Callable[..., float], *settings: float) -> float:
        """Return a number as it is, and for "theory" the theorem's, which needs the horizon."""
        if not isinstance(given, str):
            return given
        checks.one_of("oversampling, unless it is a number,", given, ["theory"])
        if self.horizon is None:
            raise InputError('oversampling="theory" depends on the horizon: give horizon, the number of rounds.')
        return theoretical(self.failure_probability, self.horizon, *settings)

    def batch_width(self, theory: Width | None, batches: GlobalBatchRule | LocalBatchRule | None) -> Width:
        """Return the width, the theorem's times √C for the variance that a batch may lose by a factor C."""
        width = self.width(theory)
        if batches is None or self.words["beta"] is not None:
            return width
        return ScaledWidth(width, math.sqrt(batches.threshold))


def resolve_candidates(
    candidates: Tensor | Candidates | ParameterSpace | None,
    bounds: Tensor | None,
    context_dim: int | None,
    action_dim: int | None,
) -> Candidates:
    """Return arms, configurations or a box; contextual actions if there is a context, or each round brings its own."""
    contextual = context_dim is not None or action_dim is not None
    if isinstance(candidates, Candidates) and contextual:
        raise InputError(f"Leave out context_dim and action_dim: {type(candidates).__name__} know them.")
    if isinstance(candidates, ParameterSpace) and bounds is None and action_dim is None:
        return Configurations(candidates, context_dim=context_dim)
    if contextual:
        context_dim = 0 if context_dim is None else context_dim
        return ContextualActions(candidates, context_dim=context_dim, bounds=bounds, action_dim=action_dim)
    if (candidates is None) == (bounds is None):
        raise InputError("Give either candidates, a tensor of arms (A, d), or bounds of a box, (2, d); one of the two.")
    if bounds is not None:
        return Box(bounds)
    return candidates if isinstance(candidates, Candidates) else Arms(cast(Tensor, candidates))


def capped(rule: DictionaryRule, max_dictionary: int | None, when_full: WhenFull) -> DictionaryRule:
    """Return a rule, capped if there is a cap; ``when_full`` is checked in any case."""
    checks.one_of("when_full", when_full, get_args(WhenFull))
    if max_dictionary is None:
        return rule
    return CappedDictionary(rule, checks.positive_integer("max_dictionary", max_dictionary), when_full)

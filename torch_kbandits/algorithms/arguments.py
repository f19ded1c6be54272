"""The words that named algorithms share: their types, defaults and meanings, and how they become pieces."""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Literal, Required, TypedDict, TypeVar, cast, get_args, get_type_hints

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.bandit import Bandit, GlobalBatchRule, LocalBatchRule
from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions
from torch_kbandits.candidates.timed import some_points, untimed
from torch_kbandits.confidence import (
    ConstantWidth,
    InformationGain,
    MartingaleMixtureWidth,
    MemoryWidth,
    RealizedGain,
    ScaledWidth,
    TheoremWidth,
    Width,
    greedy_information_gain,
)
from torch_kbandits.dictionaries import CappedDictionary, DictionaryRule, Resampling, WhenFull
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.ledger import Expiry
from torch_kbandits.outcomes import Fidelity, Limit, Objective, Outcome
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, given_prior, prior_of
from torch_kbandits.priors.families import ModelSpec, of_length_scales
from torch_kbandits.spaces import ParameterSpace

_Kind = TypeVar("_Kind", bound=type[Bandit])


class RunWords(TypedDict, total=False):
    """What may be played, which rewards count, and what ``Bandit`` takes as it is."""

    seed: Required[int]
    candidates: Tensor | Candidates | ParameterSpace | None
    bounds: Tensor | None
    context_dim: int | None
    action_dim: int | None
    memory: Memory | None
    mean: PriorMean | None
    outcomes: Sequence[str | Outcome]
    constraints: Sequence[Limit]
    expire_after: float | Expiry | None
    objective: Objective | None
    fidelity: Fidelity | None
    epsilon: float


class PriorWords(RunWords, total=False):
    """The same, and the prior."""

    kernel: Kernel | None
    regularization: float | None
    prior: Prior | LearnedPrior | None


class WidthWords(PriorWords, total=False):
    """The same, and the width."""

    beta: float | Width | None


class TheoremWords(WidthWords, total=False):
    """The same, and the constants of a theorem."""

    noise_scale: float | None
    norm_bound: float | None
    failure_probability: float


class GainWords(TheoremWords, total=False):
    """The same, for widths that contain the information gain."""

    gain: InformationGain | None


class PlannedWords(GainWords, total=False):
    """The same, for widths that hold in all of T rounds."""

    horizon: int | None


class DictionaryWords(PlannedWords, total=False):
    """The same, for posteriors of any kind."""

    dictionary: DictionaryRule | None


class FamilyWords(DictionaryWords, total=False):
    """The same, and hypotheses that differ in their kernels."""

    scales: Sequence[float] | None
    kernels: Sequence[Kernel] | None


class SketchWords(TheoremWords, total=False):
    """The words of a theorem, and how many points the algorithm's own dictionary may have."""

    horizon: int | None
    max_dictionary: int | None
    when_full: WhenFull


class BKBWords(SketchWords, total=False):
    """The same, and how BKB and its relatives draw the dictionary."""

    oversampling: float | Literal["theory"]
    accuracy: float
    resampling: Resampling


#: What a shared word is unless it is given; None for all others.
DEFAULTS: dict[str, Any] = {
    "failure_probability": 0.1,
    "epsilon": 0.0,
    "outcomes": (),
    "constraints": (),
    "oversampling": 3.0,
    "accuracy": 0.5,
    "resampling": "fresh",
    "when_full": "warn",
    "questions": 6.0,
    "growth": 1.0,
}


def _entries(text: str) -> dict[str, str]:
    """Return the arguments that the lines below "Args:" say, by name, with their lines."""
    return {part.partition(":")[0].strip(): part for part in re.split(r"(?m)^(?= {4}\S)", text) if part.strip()}


#: What a word means in every algorithm whose docstring does not say something else.
MEANINGS = _entries("""
    kernel: the prior covariance, any GPyTorch kernel, in reward units squared; with contexts that of joint points.
    regularization: λ > 0, the noise variance of a fresh observation, in reward units squared.
    mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
        (n, d); see ``Bandit``.
    prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them, which families do not take.
    candidates: arms (A, d), with contexts actions (A, a), a ``ParameterSpace``, or any ``Candidates``.
    bounds: a box (2, d) instead of arms, with contexts (2, a).
    context_dim: c, the number of context columns; without it there is no context.
    action_dim: a, where each round brings its own actions.
    scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis, so give the kernel
        long ones; None for 1, 1/2, 1/4, 1/8 and 1/16.
    kernels: a kernel for each hypothesis instead of ``scales``.
    noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what families reject.
    norm_bound: B > 0, a bound on the RKHS norm of the reward function, at all times.
    failure_probability: δ in (0, 1).
    horizon: T, the planned number of rounds, which a theorem's window or period needs. Under a memory that forgets, and
        at λ < 1, the theorem's width holds in all of them at once; without it, in each.
    variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known, for such a window or period.
    block_size: H, rounds between two choices.
    score_discount: α in (0, 1), the factor by which a score loses weight in a round.
    gain: the information gain γ in the width, and in a window or period of the horizon; by default the realised one of
        the observations that count, and that of greedy plays.
    oversampling: q̄ > 0, or "theory" for the theorem's, which keeps nearly every point. To raise it afterwards,
        ``replay`` the history to a bandit with more; told all but its last reward at once, it selects only once.
    accuracy: ε in (0, 1), the accuracy of the dictionary.
    resampling: "fresh" as in the paper; "coupled" or "growth" for fewer changes of the dictionary, which the theorem
        does not cover: see ``RidgeLeverageSampling``.
    max_dictionary: the most points that the dictionary may have; None for no limit. Theorems know no limit.
    when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
    discretization_size: points of the Sobol set on a box; or, if that has one column and B is given, "theory": those of
        the grid of the theorem of GP-TS.
    dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
    memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
        ``Discount(0.99)``; refused, with the reason, where another argument says it. Theorems are for functions that
        stay.
    beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
        width, which over-explores in practice; then its constants are not needed. Of draws 1 is Thompson sampling.
    seed: addresses all randomness.
    outcomes: what is measured of a play beside its reward, by names or as ``Outcome``s; see ``Bandit``.
    constraints: limits on outcomes, such as ``AtMost("temperature", 80.0)``.
    expire_after: the age at which points that are pending are given up; see ``Bandit``.
    objective: what is sought in place of the reward alone: a ``Scalarization``, ``BudgetPacing`` or ``CostCooling``.
    fidelity: which column of the candidates is a fidelity, such as epochs, at which levels and costs; see ``Fidelity``.
    expert: a function (X, time) → (Y, variance) or None for "not yet"; see ``experts.Expert``. A variance below 1e-6 λ
        counts as that. None where answers are given.
    questions: a number, for ⌈questions · ln t⌉ of them in round t, or a function of t; fewer where past inputs are
        fewer or span less.
    max_questions: how many points the expert may be asked about in all; None for any number.
    growth: how noise grows with age, a ``Growth`` or the rate of λ (rate · age² + 1).
    num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.
    epsilon: with what probability a choice is uniform, so that nothing has a propensity of 0; see ``EpsilonGreedy``.
""")


def described(kind: _Kind) -> _Kind:
    """Decorate a class whose ``__init__`` ends in ``**words: Unpack[...]``: signature and docstring then have them all.

    In the docstring the meanings follow of those words that its own "Args:", if there are any, do not explain.
    """
    made_by: Any = kind.__init__
    own = inspect.signature(made_by)
    *others, words = own.parameters.values()
    (typed,) = get_args(words.annotation)
    hints, defaults = get_type_hints(typed), DEFAULTS | dict.fromkeys(typed.__required_keys__, words.empty)
    shared = [
        words.replace(name=name, kind=words.KEYWORD_ONLY, default=defaults.get(name), annotation=hints[name])
        for name in MEANINGS
        if name in hints
    ]
    made_by.__signature__ = own.replace(parameters=[*others, *shared])
    if kind.__doc__:
        head, _, rest = inspect.cleandoc(kind.__doc__).partition("Args:\n")
        arguments, *tail = re.split(r"\n(?=\n\S)", rest, maxsplit=1)
        said = _entries(arguments + "\n")
        missing = {name: MEANINGS[name] for name in made_by.__signature__.parameters if name not in {"self", *said}}
        entries = "".join({**said, **missing}.values())
        kind.__doc__ = "\n".join([f"{head.rstrip()}\n\nArgs:\n{entries}".rstrip(), *tail])
    return kind


#: What length scales are multiplied by if nobody says it.
_HALVES = (1.0, 0.5, 0.25, 0.125, 0.0625)

#: Points and plays of which the information gain is sought that sets a window: it grows slowly in both.
_GAIN_ARMS, _GAIN_PLAYS = 1_000, 1_000

#: The multiplier of the deviation where the prior is learned: without contexts, and with them, which explore, too.
_ALONE, _IN_CONTEXTS = 2.0, 1.0

#: What ``Bandit`` takes as it is, of the words given.
_HANDED_ON = ("seed", "dictionary", "memory", "outcomes", "constraints", "expire_after", "objective", "fidelity")


class Arguments:
    """What was given of the words that algorithms share, checked.

    Args:
        typed: the typed dictionary that the words are of.
        words: those that were given.
        forgets_by: the algorithm's own argument that says which observations count, if it is a memory itself: then
            another is refused.

    Attributes:
        candidates: what may be played.
        noise_scale: R, None if it is not known or no such word is taken; so are B, T and the gain.
        failure_probability: δ.

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
            advice = "Set that, or take GPUCB, BKB or EKUCB with this memory."
            raise InputError(f"Leave out memory: here {forgets_by} says what an observation counts for. {advice}")
        scale, whole = checks.optional(checks.scale), checks.optional(checks.positive_integer)
        self.noise_scale = scale("noise_scale", self.words.get("noise_scale"))
        self.norm_bound = scale("norm_bound", self.words.get("norm_bound"))
        self.horizon = whole("horizon", self.words.get("horizon"))
        share = self.words.get("failure_probability", DEFAULTS["failure_probability"])
        self.failure_probability = checks.open_unit_interval("failure_probability", share)
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
        if epsilon := checks.unit_interval("epsilon", self.words["epsilon"]):
            own["acquisition"] = EpsilonGreedy(own.get("acquisition", UpperConfidenceRule()), epsilon)
        return {"candidates": self.candidates, **given, **prior, **own}

    def under(
        self, theory: TheoremWidth | None, needed: str = "noise_scale and norm_bound", **own: Any
    ) -> dict[str, Any]:
        """Return the same with the width, ``beta``'s or the theorem's, in batches times √C for the factor C of theirs.

        The theorem's is None if the words were not given that it needs, which an error message names.
        """
        width, batches = self.width(theory, needed), own.get("batches")
        if isinstance(batches, (GlobalBatchRule, LocalBatchRule)) and self.words["beta"] is None:
            width = ScaledWidth(width, math.sqrt(batches.threshold))
        return self.pieces(width=width, theory=theory, **own)

    def width(self, theory: Width | None, needed: str | None = "noise_scale and norm_bound") -> Width:
        """Return the width that ``beta`` names, or the theorem's, which needs something, or is none.

        Where a prior is learned none holds: then 2 or 1.
        """
        beta = self.words["beta"]
        if beta is not None:
            return beta if isinstance(beta, Width) else ConstantWidth(beta)
        if theory is not None:
            return theory
        if isinstance(self.prior, LearnedPrior):
            return ConstantWidth(_IN_CONTEXTS if untimed(self.candidates).context_dim else _ALONE)
        if needed is None:
            raise InputError("No theorem says how wide the bands are to be: give beta, the multiplier of σ.")
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

    def tightest_width(
        self, *, draws: bool = False, forgets: bool | None = None, num_bounds: int | None = None
    ) -> TheoremWidth | None:
        """Return ``MartingaleMixtureWidth``, or ``MemoryWidth`` where observations stop counting; None without R or B.

        Args:
            draws: whether functions are drawn: then it is that at δ/2, as in the theorem of GP-TS.
            forgets: whether observations stop counting; None if the memory says so.
            num_bounds: how many sets of observations there are, each with a bound of its own; None for T, and without a
                horizon for each round apart.
        """
        memory, share = self.words["memory"], self.failure_probability / (2.0 if draws else 1.0)
        if not (forgets or (isinstance(memory, Memory) and memory.forgets)):
            return self.theorem(MartingaleMixtureWidth, failure_probability=share, gain=self.gain)
        number = self.horizon if num_bounds is None else num_bounds
        return self.theorem(MemoryWidth, failure_probability=share, num_bounds=number, gain=self.gain)

    def rounds_to_remember(self, name: str, formula: Callable[..., int], variation_budget: float | None) -> int:
        """Return a theorem's window or period, with the information gain of T greedy plays on up to 1,000 points.

        It stands in the place of the argument of a name. The formula is ``window_size`` or ``restart_period``. Which
        contexts come, and what a prior that is learned will be, nobody knows before: then it is the ``gain`` given.
        """
        if self.gain is not None:
            checks.instance("gain", self.gain, InformationGain, "an information gain such as RateGain(...)")
        if self.horizon is not None and not isinstance(self.gain, RealizedGain | None):
            level = torch.tensor(getattr(self.gain, "regularization", 1.0), dtype=torch.float64)
            plays: Any = SimpleNamespace(num_observations=self.horizon, regularization=level)
            return formula(self.horizon, variation_budget, gain=float(self.gain(plays)))
        if self.horizon is None or self.candidates.is_contextual or not isinstance(self.prior, Prior):
            hint = "give it, or horizon for the theorem's, with contexts or a learned prior also gain, such as RateGain"
            raise InputError(f"{name} is missing: {hint}.")
        if (arms := self.candidates.in_round(None, None, 0.0).arms) is not None:
            some = arms[:: -(-len(arms) // _GAIN_ARMS)]
        else:
            some = some_points(self.candidates, _GAIN_ARMS, 0.0, generator_for(0, 0, "information gain"))
        plays = min(self.horizon, _GAIN_PLAYS)
        with torch.no_grad():
            gain = greedy_information_gain(self.prior.kernel, some, plays, self.prior.regularization)[-1]
        return formula(self.horizon, variation_budget, gain=float(gain))

    def variants(self, default: Sequence[float] = _HALVES) -> tuple[ModelSpec, ...]:
        """Return hypotheses: ``kernels``, or the kernel with its length scales times each of ``scales``."""
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

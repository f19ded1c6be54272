"""The words that named algorithms share: their types, their defaults and what each means, said once for all of them."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict, TypeVar, get_args, get_type_hints

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule, Resampling, WhenFull
from torch_kbandits.memory import Memory
from torch_kbandits.observations.expiry import Expiry
from torch_kbandits.outcomes import Limit, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean
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
    objective: Scalarization | None


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
    """The same, for widths in which the information gain stands."""

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
DEFAULTS: Mapping[str, Any] = {
    "failure_probability": 0.1,
    "outcomes": (),
    "constraints": (),
    "oversampling": 3.0,
    "accuracy": 0.5,
    "resampling": "fresh",
    "when_full": "warn",
}

#: What a word means in every algorithm whose docstring does not say something else.
_MEANINGS = """
    kernel: the prior covariance, any GPyTorch kernel, in reward units squared; with contexts that of joint points.
    regularization: λ > 0, the noise variance of a fresh observation, in reward units squared.
    mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
        (n, d); see ``Bandit``.
    prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
    candidates: arms (A, d), with contexts actions (A, a), a ``ParameterSpace``, or any ``Candidates``.
    bounds: a box (2, d) instead of arms, with contexts (2, a).
    context_dim: c, the number of context columns; without it there is no context.
    action_dim: a, where each round brings its own actions.
    scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis, so give the kernel
        long ones; None for 1, 1/2, 1/4, 1/8 and 1/16.
    kernels: a kernel for each hypothesis instead of ``scales``.
    noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
    norm_bound: B > 0, a bound on the RKHS norm of the reward function, at all times.
    failure_probability: δ in (0, 1).
    horizon: T, the planned number of rounds. Under a memory that forgets, and at λ < 1, the theorem's width holds in
        all of them at once; without it, in each.
    gain: the information gain γ in the width; by default the realised one of the observations that count.
    oversampling: q̄ > 0, or "theory" for the theorem's, which keeps nearly every point.
    accuracy: ε in (0, 1), the accuracy of the dictionary.
    resampling: "fresh" as in the paper; "coupled" or "growth" for fewer changes of the dictionary, which the theorem
        does not cover: see ``RidgeLeverageSampling``.
    max_dictionary: the most points that the dictionary may have; None for no limit. Theorems know no limit.
    when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
    discretization_size: points of the Sobol set on a box.
    dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
    memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
        ``Discount(0.99)``. Theorems are for functions that stay.
    beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
        width, which over-explores in practice; then its constants are not needed.
    seed: addresses all randomness.
    outcomes: what is measured of a play beside its reward, by names or as ``Outcome``s; see ``Bandit``.
    constraints: limits on outcomes, such as ``AtMost("temperature", 80.0)``.
    expire_after: the age at which points that are pending are given up; see ``Bandit``.
    objective: what is sought in place of the reward alone, a ``Scalarization``.
"""


def _entries(text: str) -> dict[str, str]:
    """Return the arguments that the lines below "Args:" say, by name, with their lines."""
    return {part.partition(":")[0].strip(): part for part in re.split(r"(?m)^(?= {4}\S)", text) if part.strip()}


MEANINGS = _entries(_MEANINGS)


def described(kind: _Kind) -> _Kind:
    """Decorate a class whose ``__init__`` ends in ``**words: Unpack[...]``: signature and docstring then have them all.

    In the docstring the line ``**words: ...`` below "Args:" is where the meanings of those words come that the
    docstring itself does not explain.
    """
    made_by: Any = kind.__init__
    own = inspect.signature(made_by)
    *others, words = own.parameters.values()
    (typed,) = get_args(words.annotation)
    hints = get_type_hints(typed)
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in typed.__required_keys__ else DEFAULTS.get(name),
            annotation=hints[name],
        )
        for name in MEANINGS
        if name in hints
    ]
    made_by.__signature__ = own.replace(parameters=[*others, *shared])
    if kind.__doc__:
        head, start, rest = inspect.cleandoc(kind.__doc__).partition("Args:\n")
        arguments, *tail = re.split(r"\n(?=\n\S)", rest, maxsplit=1)
        said = _entries(arguments + "\n")
        del said["**words"]
        names = [name for name in MEANINGS if name in made_by.__signature__.parameters]
        missing = "".join(MEANINGS[name] for name in names if name not in said)
        kind.__doc__ = "\n".join([(head + start + "".join(said.values()) + missing).rstrip("\n"), *tail])
    return kind

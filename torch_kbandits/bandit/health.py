"""Is it well? What predictions, plays, dictionary and calls look like, what the theorem says, and warnings."""

import json
import math
import re
import statistics
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.residuals import BAND, FALSE_ALARM, RECENT, Predictions
from torch_kbandits.bandit.state import State
from torch_kbandits.candidates import ArmSource
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import ConstantWidth, Guarantee, Width
from torch_kbandits.confidence.guarantee import Circumstances, precise
from torch_kbandits.errors import InputError, KernelBanditWarning, TheoryWarning
from torch_kbandits.models import DictionaryQuality
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.observations.history import History
from torch_kbandits.priors import Prior

#: In single precision a regularization below this fraction of the prior variance drowns in rounding.
_FLOAT32_REGULARIZATION = 1e-4
#: So many rewards say whether a prior mean is far off: by more standard deviations than ``_FAR`` all of them.
FIRST_REWARDS, _FAR = 3, 10.0
#: Of so many calls, the latest, the times are kept.
LAST_CALLS = 100
#: Where a dictionary counts as accurate: the factor of BKB's theorem at ε = 1/2.
_ACCURATE = 3.0
#: What begins within so many rounds was so from the start.
_EARLY = 10
#: The share of the range of each column from which on values told of it say what a fitted prior is to be elsewhere.
_ENOUGH_OF_RANGE = 0.5
#: What to do where the past misleads.
_FORGET = "give a memory{}, or trigger=CumulatedTrigger(), or call restart()"

#: So many rewards, the latest, are compared; and by so many nats they have to be more probable with a cause.
_MOST, _CLEAR = 200, 3.0
#: Noise variances that are compared, times λ; and horizons, times the time that they span.
_NOISES, _HORIZONS = np.geomspace(1.0, 64.0, 25), 2.0 ** np.arange(2.0, -8.0, -1.0)
#: The prior variance of a level that all rewards share, in those of the function.
_LEVEL = 10.0

_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def _metric(name: str, meaning: str) -> Any:
    """Return a field that Prometheus is shown under a name, with its meaning as help."""
    return field(metadata={"metric": f"kbandits_{name}", "meaning": meaning})


@dataclass(frozen=True)
class Health:
    """What a bandit looks like at a moment. Residuals are those since the last restart or fit of the prior.

    A residual is z = (y − μ(x)) / √(σ²(x) + λ), with the posterior before the reward was told. If prior, noise and
    memory are right it is standard normal, whatever was played. Seconds are those of a wall clock, over the last 100
    calls. What is None is not known yet, or does not apply.
    """

    round: int = _metric("rounds_total", "the number of the current round.")
    num_observations: int = _metric("rewards_total", "how many rewards were ever told.")
    num_residuals: int = _metric("residuals", "how many residuals there were.")
    residuals_since: int = _metric("residuals_since_round", "the round from which on they count.")
    coverage: float | None = _metric("coverage_ratio", "the share of them within ±1.96: 0.95 if all is right.")
    recent_coverage: float | None = _metric("recent_coverage_ratio", "the same of the last 100.")
    recent_mean: float | None = _metric("recent_residual_mean", "the mean of the last 100: 0 if all is right.")
    recent_spread: float | None = _metric("recent_residual_spread", "their root mean square: 1 if all is right.")
    log_evidence: float = _metric("log_evidence_nats", "ln M of the bet that bands are too narrow, see ``Surprise``.")
    log_threshold: float = _metric("log_threshold_nats", "ln(1/α), α = 0.01, which it passes with probability α, ever.")
    flagged_round: int | None = _metric("flagged_round", "the round in which it first did.")
    rounds_flagged: int | None = _metric("flagged_rounds", "how many rounds were begun since.")
    slack_round: int | None = _metric("slack_round", "the round in which the bet that bands are too wide did.")
    best_share: float | None = _metric("best_share_ratio", "the share of the last 100 plays within √λ of the best.")
    dictionary_size: int = _metric("dictionary_points", "m; of an exact posterior how many points count.")
    variance_ratio_least: float | None = _metric("variance_ratio_least", "see ``DictionaryQuality``, if measured.")
    variance_ratio_largest: float | None = _metric("variance_ratio_largest", "the largest one.")
    num_pending: int = _metric("pending_points", "how many points are pending.")
    oldest_pending: float | None = _metric("oldest_pending_age", "the age of the oldest, in units of ``Bandit.now``.")
    ask_seconds: float | None = _metric("ask_seconds_median", "the median of the calls of ``ask``.")
    ask_seconds_p99: float | None = _metric("ask_seconds_p99", "99 % of them took at most this.")
    tell_seconds: float | None = _metric("tell_seconds_median", "the median of the calls of ``tell``.")
    tell_seconds_p99: float | None = _metric("tell_seconds_p99", "99 % of them took at most this.")
    flags: tuple[str, ...] = _metric("flags", "what is wrong, since when, and what to do; to Prometheus how many.")
    notes: tuple[str, ...] = _metric("notes", "what is odd and may be meant so; to Prometheus how many.")

    @property
    def is_well(self) -> bool:
        """Whether there are no flags."""
        return not self.flags

    def as_dict(self) -> dict[str, Any]:
        """Return numbers, None and lists of strings by name: what JSON has."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def to_json(self) -> str:
        """Return one line of JSON, without its end."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)

    def to_prometheus(self, labels: Mapping[str, str] | None = None) -> str:
        """Return Prometheus' text format 0.0.4, without what is None; labels are those of every metric.

        Raises:
            InputError: if the name of a label is not one.
        """
        pairs = list[str]()
        for label, value in (labels or {}).items():
            if not isinstance(label, str) or not _LABEL.fullmatch(label):
                raise InputError(f"A label of Prometheus has letters, digits and _, and no __ first; got {label!r}.")
            escaped = str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
            pairs.append(f'{label}="{escaped}"')
        shown, lines = f"{{{','.join(pairs)}}}" if pairs else "", list[str]()
        for place in fields(self):
            value, name = getattr(self, place.name), place.metadata["metric"]
            if value is not None:
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP {name} {place.metadata['meaning']}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{shown} {len(value) if isinstance(value, tuple) else value!r}"]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        """Return a line for each flag and note, or one that says that there is none."""
        return "\n".join((*self.flags, *self.notes)) or f"Round {self.round}: nothing is seen to be wrong."


_ATTRIBUTES = "".join(f"\n        {each.name}: {each.metadata['meaning']}" for each in fields(Health))
Health.__doc__ = f"{Health.__doc__}\n    Attributes:{_ATTRIBUTES}"


def examined(
    config: BanditConfig, state: State, seconds: Mapping[str, Sequence[float]], quality: DictionaryQuality | None
) -> Health:
    """Return what a bandit looks like, given the seconds of its last calls and the quality of its dictionary."""
    known, ledger, flags, notes = state.predictions.judged, state.ledger, list[str](), list[str]()
    recent, ages = known.recent, [state.now - time for time in ledger.pending.times]
    names = ["Rewards", *(f"Values of {each.name}" for each in config.declared)]
    parts = [(config, state), *zip(config.of_outcomes, state.outcomes, strict=True)]
    for name, part in zip(names, parts, strict=True):
        each = part[1].predictions.judged
        flags += [_misfit(name, *part)] if each.flagged is not None else []
        if each.slack_since is not None:
            notes.append(
                f"{name} lie nearer to their predictions than the bands say, {_spread(each):.3g} times of late (found "
                f"in round {each.slack_since}): λ is above the noise, or the kernel's variance is too large. Theorems "
                "may want that; else exploration costs more than it need."
            )
    if quality is not None and not quality.is_within(_ACCURATE):
        flags.append(
            f"The dictionary is not accurate: its variance is {quality.least:.3g} to {quality.largest:.3g} times the "
            "exact one. Let it have more points: a larger oversampling, budget or cap."
        )
    quantiles = {
        f"{name}_seconds{end}": float(np.quantile(calls, share, method="inverted_cdf")) if calls else None
        for name, calls in seconds.items()
        for end, share in (("", 0.5), ("_p99", 0.99))
    }
    return Health(
        round=state.round,
        num_observations=ledger.num_observations,
        num_residuals=known.number,
        residuals_since=known.since,
        coverage=known.covered / known.number if known.number else None,
        recent_coverage=sum(abs(z) <= BAND for z in recent) / len(recent) if recent else None,
        recent_mean=statistics.fmean(recent) if recent else None,
        recent_spread=_spread(known) if recent else None,
        log_evidence=known.misfit.log_evidence,
        log_threshold=-math.log(FALSE_ALARM),
        flagged_round=known.flagged,
        rounds_flagged=None if known.flagged is None else state.round - known.flagged,
        slack_round=known.slack_since,
        best_share=_best_share(config, state),
        dictionary_size=len(state.surrogate.inducing_points),
        variance_ratio_least=None if quality is None else quality.least,
        variance_ratio_largest=None if quality is None else quality.largest,
        num_pending=len(ages),
        oldest_pending=max(ages, default=None),
        **quantiles,
        flags=tuple(flags),
        notes=tuple(notes),
    )


def _spread(known: Predictions) -> float:
    """Return the root mean square of the last residuals, of which there are some."""
    return float(np.sqrt(np.mean(np.square(known.recent))))


def _best_share(config: BanditConfig, state: State) -> float | None:
    """Return the share of the last plays at points whose mean is within √λ of the largest of a point played."""
    surrogate, ledger = state.surrogate, state.ledger
    if untimed(config.candidates).is_contextual or not surrogate.num_observations:
        return None
    X = torch.cat([ledger.history_since(max(ledger.num_observations - RECENT, 0)).X, surrogate.recommend()])
    if config.candidates.is_timed:
        X[:, 0] = state.clock.now
    mean = surrogate.moments(X)[0].double()
    return float((mean[:-1] >= mean.max() - surrogate.regularization.double().sqrt()).double().mean())


def _misfit(what: str, config: BanditConfig, state: State) -> str:
    """Say that rewards, or what else a state is of, are not what was predicted, since when, why and what to do."""
    known, level = state.predictions.judged, state.spec.prior.regularization
    noise, share, is_off = _causes(config, state)
    start, mean, spread = known.misfit.leading[1], statistics.fmean(known.recent), _spread(known)
    is_old, is_shifted = start < known.since + _EARLY, abs(mean) > 0.5 * spread
    since = "from the start" if is_old else f"since about round {start}"
    said = "above" if mean > 0.0 else "below"
    if not is_shifted:
        said, since = "further from", f"than the bands say {since}, {spread:.3g} times of late"
    found, fit = list[tuple[str, str]](), "fit the prior, LearnedPrior() or fit_prior"
    if share > 0.0:
        moves = f"the function moves, about {100.0 * share:.2g} % of it in a unit of time"
        found.append((moves, _FORGET.format(f" such as TemporalPrior({share:.2g})")))
    if noise > 1.0:
        still = "" if share else "; the function is not seen to move"
        louder = f"λ is below the noise, of variance about {noise * level:.2g}, or the kernel is too smooth{still}"
        found.append((louder, fit))
    if is_off and not share:
        found.append(("the prior mean is off", "give mean= or a LearnedPrior()"))
    if not found:
        unknown = "whether that is noise, a kernel that is too smooth, or a change in the past cannot be told"
        found.append((unknown, f"{fit}; if the world changes {_FORGET.format('')}"))
    cause, advice = (" and ".join(each) for each in zip(*found, strict=True))
    return (
        f"{what} lie {said} their predictions {since}: {cause}. Then {advice}. Flagged in round {known.flagged}; a "
        f"right model has at most {100.0 * FALSE_ALARM:g} % chance of that, ever."
    )


@torch.no_grad()
def _causes(config: BanditConfig, state: State) -> tuple[float, float, bool]:
    """Return the noise variance in λ, the share ε of the function new in a unit of time, and whether the mean is off.

    They are 1, 0 and False where no other is clear. Compared is how probable the rewards since the last restart are.

    Rewards are N(m, K (1 − ε)^(|t − t'| / 2) + v + c Λ), m the prior mean, v the variance of a level that is not known
    and Λ the diagonal of λ, or of the noise that was told; ε and c are the most probable of a grid. A cause is clear if
    without it, at the best of the others, rewards are less probable by three nats or more.

    Cost: O(n³) for each of eleven ε, n at most 200 of the rewards.
    """
    spec, ledger = state.spec, state.ledger
    told = spec.counted(ledger.history_since(ledger.num_forgotten).rewarded)
    told = told.rows(slice(-_MOST, None))
    times = (told.rounds if told.times is None else told.times).double().cpu().numpy()
    K = gram(config.kernel_under(spec.memory, spec.prior.kernel), told.X).double().cpu().numpy()
    noise = torch.as_tensor(told.noise_or(spec.prior.regularization), dtype=torch.float64).cpu().numpy()
    whitened = np.broadcast_to(noise**-0.5, times.shape)
    Y = whitened * (told.Y - spec.expected(told.X)).double().cpu().numpy()
    apart, level = np.abs(times[:, None] - times), _LEVEL * K.diagonal().mean()
    shares = [0.0, *(-math.expm1(-2.0 / horizon) for horizon in _HORIZONS * apart.max() if horizon > 0.0)]

    def densities(share: float, level: float) -> np.ndarray:
        """Return the log densities of rewards in units of their noise under each c, (c,)."""
        covariance = K * (1.0 - share) ** (0.5 * apart) + level
        variances, directions = np.linalg.eigh(whitened[:, None] * covariance * whitened)
        total = np.maximum(variances, 0.0)[:, None] + _NOISES
        return -0.5 * ((directions.T @ Y)[:, None] ** 2 / total + np.log(total)).sum(0)

    found = np.stack([densities(share, level) for share in shares])
    least = found.max() - _CLEAR
    found = found if found[0].max() < least else found[:1]
    found = found if found[:, 0].max() < least else found[:, :1]
    moved, louder = np.unravel_index(found.argmax(), found.shape)
    without = densities(shares[moved], 0.0)[louder]
    return float(_NOISES[louder]), shares[moved], bool(without < found.max() - _CLEAR)


def guarantee(
    config: BanditConfig, prior: Prior, state: State, ratio: float = 1.0, quality: DictionaryQuality | None = None
) -> Guarantee:
    """Return what the width's theorem says of a state; without a batch rule variances shrink by a ratio."""
    arms, batches = untimed(config.candidates), config.batches
    source: ArmSource | None = getattr(arms, "source", None)
    forgetting = ["a restart"] * (state.ledger.num_forgotten > 0)
    forgetting += [repr(config.trigger)] * (config.trigger is not None)
    forgetting += [repr(memory) for memory in config.all_memories if memory.forgets]
    circumstances = Circumstances(
        num_rewards=state.ledger.num_observations,
        learns_residual=state.surrogate.learns_residual,
        ratio=ratio if batches is None else batches.largest_ratio,
        quality=quality,
        regularization=prior.regularization,
        noise_scale=config.noise_scale,
        dictionary=config.dictionary,
        forgets_by=" and ".join(dict.fromkeys(forgetting)) or None,
        prior="fitted" if config.learns_units else "given" if config.family is None else "one of several",
        num_arms=math.inf if not arms.is_finite else None if source is None else len(source),
        is_staged=config.rule.num_stages > 0,
        theory=config.theory if isinstance(config.width, ConstantWidth) else None,
    )
    of_width = cast(Width, config.width).guarantee(circumstances)
    if config.learns_units:
        return of_width
    example, level = config.candidates.example, config.start.regularization
    is_precise, said = True, f"{example.dtype} is enough for regularization={level:g}."
    if example.dtype != torch.float64:
        with torch.no_grad():
            scale = float(prior_variance(deepcopy(config.start.kernel).to(example), example).max())
        if level < _FLOAT32_REGULARIZATION * scale:
            is_precise, said = False, f"regularization={level:g} drowns in rounding of {example.dtype}: use float64."
    return replace(of_width, assumptions=(*of_width.assumptions, *precise(is_precise, said)))


def warn_of_failing(config: BanditConfig, state: State, stacklevel: int) -> None:
    """Say which assumptions of the theorem the settings break, if any, as many calls above."""
    if (said := guarantee(config, config.start, state).warning) is not None:
        warnings.warn(said, TheoryWarning, stacklevel=stacklevel + 1)


def warn_of_far_rewards(config: BanditConfig, told: History, kernel_bound: Tensor, stacklevel: int) -> None:
    """Say that the first rewards are all far above or below what was expected, if so, as many calls above."""
    told = told.rewarded
    if config.learns_units or not len(told.Y):
        return
    with torch.no_grad():
        expected = config.spec.expected(told.X)
    least, largest = (told.Y - expected).aminmax()
    scale = (float(kernel_bound) + config.start.regularization) ** 0.5
    if max(float(least), -float(largest)) > _FAR * scale:
        said = (
            f"The first {len(told.Y)} rewards are around {float(told.Y.mean()):.4g}, and "
            f"{float(expected.mean()):.4g} ± {scale:.3g} was expected: points not tried look far worse or better "
            "than any other. Give mean=, what is expected of rewards, or subtract it and scale them."
        )
        warnings.warn(said, KernelBanditWarning, stacklevel=stacklevel + 1)


def said_of_clipping(before: State, after: State) -> str | None:
    """Return what to say of rewards that count as if they were higher since a state; None where none does."""
    floor, was_fitted = after.spec.prior.floor, after.last_fit is not before.last_fit
    Y = after.ledger.history_since(0 if was_fitted else before.ledger.num_observations).Y
    if not len(below := Y[floor > Y]):
        return None
    return (
        f"{len(below)} reward(s) lie far below the others, down to {float(below.min()):.6g}, and count as {floor:.6g}, "
        "so that the others can be told apart, as is right for penalties. Of losses whose mean matters say clip=False."
    )


def said_of_corners(config: BanditConfig, before: State, after: State) -> list[str]:
    """Return what to say of limits that are to be kept surely under a prior fitted since a state to a corner."""
    said, names = list[str](), {limit.name for limit in config.constraints if limit.is_safe}
    for outcome, own, old, new in zip(
        config.declared, config.of_outcomes, before.outcomes, after.outcomes, strict=True
    ):
        if outcome.name not in names or new.last_fit is old.last_fit or not new.last_fit.number:
            continue
        X = new.ledger.history_since(new.ledger.num_forgotten).rewarded.X
        least, largest = X[:, own.hidden_columns :].double().aminmax(dim=0)
        if bool(((largest - least) < _ENOUGH_OF_RANGE * own.spans(X)).any()):
            said.append(
                f"{outcome.name!r} is to be kept safely under a prior that was fitted to a small part of what may be "
                "played: elsewhere it may change faster than the bands say, and the limit may be broken. Give its "
                "Outcome a Prior that is known, its kernel's length scales rather short and its variance large, or "
                "tell values from at least half of the range of each column first."
            )
    return said

"""What is known under another spec, a prior that is fitted or a memory that is chosen; and of plays that failed."""

import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch

from torch_kbandits.bandit.adaptation import Past
from torch_kbandits.bandit.background import Background
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec
from torch_kbandits.bandit.residuals import Predictions
from torch_kbandits.bandit.state import ComparedPosterior, State
from torch_kbandits.dictionaries import Selection
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger
from torch_kbandits.priors import LearnedPrior, Prior
from torch_kbandits.priors.learned import NEVER, LastFit
from torch_kbandits.priors.marginal import TrainingData
from torch_kbandits.selection import FeasibilityModel, Surrogate

#: The probability of failure where nothing was played.
_BASE_RATE = 0.1

#: The noise variance of a failure, in prior variances of the function that it is of: a point that failed in its only
#: play fails again with 0.96, one that failed in one of two plays with 0.49.
_NOISE = 0.05
#: From so many rewards on a fit is diagnosed; of fewer much is odd.
_ENOUGH = 50
#: So many rewards, told since a fit in a thread began, are learned under its prior at once; more of them in the thread.
_AT_ONCE = 4


def relearned(config: BanditConfig, state: State) -> State:
    """Return what is known once its spec is another: all that was learned is learned anew; what is pending stays."""
    ledger, now = state.ledger.in_one_part, state.clock.now
    told = ledger.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned))
    surrogate, _ = _believed(config, told, state.spec, now, state.compared, ledger.num_learned)
    failures = failures_in(config, ledger, state.spec, now)
    return changed(state, ledger=ledger, told=surrogate, failures=failures)


def with_chosen_memory(
    config: BanditConfig,
    spec: SurrogateSpec,
    history: History,
    known: tuple[Any, ...] = (),
    compared: tuple[ComparedPosterior, ...] = (),
) -> tuple[SurrogateSpec, tuple[Any, ...], tuple[ComparedPosterior, ...]]:
    """Return a spec with the memory chosen after a history, the summaries of its blocks, and the posteriors compared.

    Known are summaries and posteriors of an earlier part of the history.
    """
    if config.memories is None:
        return spec, (), ()

    def believed(part: History, memory: Memory, now: float) -> Surrogate:
        nonlocal compared
        surrogate, compared = _believed(config, part, replace(spec, memory=memory), now, compared, len(part.X))
        return surrogate

    past = Past(believed, partial(config.candidates.in_round, None, None))
    summaries = config.memories.summaries(history.rewarded, known, past)
    memory = config.memories.choice(summaries, config.seed).memory
    return spec if memory == spec.memory else replace(spec, memory=memory), summaries, compared


def settled(config: BanditConfig, state: State) -> State:
    """Return what is known under priors that are fitted, also before the first fits are due; of outcomes if sought."""
    if config.objective is not None:
        outcomes = tuple(settled(*each) for each in zip(config.of_outcomes, state.outcomes, strict=True))
        state = replace(state, outcomes=outcomes)
    if config.learning is None or state.last_fit.number:
        return state
    after = with_prior(config, state, early=True)
    return state if after is state else relearned(config, after)


def recalled(config: BanditConfig, state: State) -> State:
    """Return what was known when something counted last, if nothing does now: before a restart, or long ago."""
    ledger = state.ledger.in_one_part
    learned = ledger.told[0].rows(slice(ledger.num_learned)).rewarded
    if state.surrogate.num_observations or not len(learned.X):
        return state
    spec, now = state.spec, state.clock.now
    if learned.times is not None and not len(_counting(spec, learned, now).X):
        now = float(learned.times.max())
    told, _ = _believed(config, learned, spec, now, (), ledger.num_learned)
    outcomes = tuple(recalled(*each) for each in zip(config.of_outcomes, state.outcomes, strict=True))
    return replace(state, told=told, answers=(), outcomes=outcomes)


def with_prior(config: BanditConfig, state: State, *, early: bool = False) -> State:
    """Return the same with the prior fitted again, if that is due; what was learned is to be learned anew under it.

    Of few rewards the units alone are fitted, unless this is to be done early.
    """
    if (due := due_fit(config, state, early=early)) is None:
        return state
    counting, last = due
    learning, ledger, spec = cast(LearnedPrior, config.learning), state.ledger, state.spec
    history, now = ledger.in_one_part.told[0], state.clock.now
    memory = config.memory if config.fits_to_all else spec.memory
    steady = memory is None and config.trigger is None
    since = history.rows(slice(ledger.num_forgotten, None if steady else ledger.num_forgotten)).rewarded
    first = [*dict.fromkeys(since.Y.tolist())][: learning.num_initial]
    timed = memory is not None and memory.needs_time_column
    X = counting.X if timed else counting.X[:, config.hidden_columns :]
    prior, memory, diagnostics, end = learning.fitted(
        TrainingData(X, counting.Y, counting.times, now, config.names, counting.noise),
        config.spans(history.X),
        first=history.Y.new_tensor(first),
        expected=None if learning.mean is None else spec.expected(counting.X),
        memory=memory,
        groups=config.length_scales,
        context_dim=config.context_columns,
        seed=seed_for(config.seed, ledger.num_learned, "fit"),
        start=state.last_fit.end if state.last_fit.number > ledger.num_forgotten else (),
        units_only=not (last.number or early),
    )
    # Memories are compared under the prior that is in force, as after a bandit was loaded.
    fitted, summaries, compared = with_chosen_memory(config, config.spec_of(prior, memory), history)
    after = replace(state, spec=fitted, last_fit=last._replace(end=end), summaries=summaries, compared=compared)
    return replace(after, diagnostics=diagnostics if len(counting.X) >= _ENOUGH else ())


def due_fit(config: BanditConfig, state: State, *, early: bool = False) -> tuple[History, LastFit] | None:
    """Return what the prior is to be fitted to, now or early, and what is noted of that; None where it stays."""
    learning, ledger = cast(LearnedPrior, config.learning), state.ledger
    seldom = config.context_columns > 0 or config.memory is not None
    if not early and not learning.is_due(ledger.num_learned, state.last_fit, ledger.num_forgotten, seldom=seldom):
        return None
    learned = ledger.in_one_part.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
    # What a memory should forget shows in what it would forget.
    counting = learned if config.fits_to_all else _counting(state.spec, learned, state.clock.now)
    number, stays = len(counting.X), config.is_prior_known(state.last_fit)  # after a restart what was fitted does
    if number < 2 or (number < learning.num_initial and stays):
        return None
    return counting, NEVER if number < learning.num_initial else LastFit(ledger.num_learned, number)


def with_fit_underway(config: BanditConfig, state: State) -> State:
    """Return the same with a fit that is due begun in a thread, or, once that is over, what is known under its prior.

    What was told since the fit began is learned in a thread, too, as long as less is left each time. A fit that fails
    is noted as if it had been made, and left the prior as it was.
    """
    underway, ledger = state.underway, state.ledger
    if underway is not None and not underway.is_over:
        return state
    fitted, own = None if underway is None else underway.taken(), changed(state, outcomes=(), underway=None)
    if isinstance(fitted, State):
        left = ledger.num_learned - fitted.ledger.num_learned
        if _AT_ONCE < left < cast(Background, underway).left:
            return changed(state, underway=Background(partial(_gone_on, config, fitted, own), left))
        try:
            return changed(_gone_on(config, fitted, own), outcomes=state.outcomes)
        except Exception as error:
            fitted = error
    if (due := due_fit(config, state)) is None:
        return state if underway is None else changed(state, underway=None)
    if fitted is None:
        return changed(state, underway=Background(lambda: relearned(config, with_prior(config, own)), math.inf))
    said = f"The prior could not be fitted in the background, and stays as it was: {fitted!r}"
    return changed(state, underway=None, last_fit=due[1]._replace(end=state.last_fit.end), diagnostics=(said,))


def _gone_on(config: BanditConfig, fitted: State, state: State) -> State:
    """Return what is known under the prior that was fitted in an earlier state: what was told since is learned."""
    ledger, now, at_fit = state.ledger, state.clock.now, fitted.ledger
    history = ledger.told[0] if config.memories is None else ledger.in_one_part.told[0]
    known = fitted.summaries, fitted.compared
    spec, summaries, compared = with_chosen_memory(config, fitted.spec, history, *known)
    words: Any = {"spec": spec, "summaries": summaries, "compared": compared, "predictions": Predictions(state.round)}
    after = changed(state, last_fit=fitted.last_fit, diagnostics=fitted.diagnostics, **words)
    if spec is not fitted.spec:
        return relearned(config, after)
    fitted, new = fitted.at(state.clock), ledger.history_since(at_fit.num_observations)
    told, failures = fitted.told, fitted.failures
    if len((counted := spec.counted(new)).X):
        told = told.learned(counted, config.dictionary_generator(at_fit.num_learned), now)
    if failures is not None or bool(new.lost.any()):
        failures = failures_after(config, failures, ledger, new, spec, now)
    return changed(after, told=told, failures=failures)


def _counting(spec: SurrogateSpec, learned: History, now: float) -> History:
    """Return the observations of a history that count at a time."""
    memory = spec.memory
    if memory is None or learned.times is None:
        return learned
    return learned.rows(memory.noise(learned.times, now, learned.noise_or(spec.prior.regularization)).isfinite())


def _believed(
    config: BanditConfig,
    learned: History,
    spec: SurrogateSpec,
    now: float,
    compared: tuple[ComparedPosterior, ...],
    num_learned: int,
) -> tuple[Surrogate, tuple[ComparedPosterior, ...]]:
    """Return the posterior of the observations that count under a spec, and those to be compared next."""
    told, prior, memory = learned.rewarded._replace(propensities=None), spec.prior, spec.memory
    known = next((each for each in compared if each.goes_on_to(prior, memory, told, now)), None)
    new = told if known is None else told.rows(slice(len(known.told.X), None))
    counting = spec.counted(_counting(spec, new, now))
    if known is None:
        surrogate = config.learned_in_passes(config.surrogate(spec).at(now), counting, num_learned)
    else:
        surrogate = known.surrogate.at(now)
        surrogate = surrogate.learned(counting) if len(counting.X) else surrogate
    if not surrogate.exact:
        return surrogate, ()
    others = (each for each in compared if each.prior is prior and each.memory != memory)
    return surrogate, (*others, ComparedPosterior(prior, memory, now, told, surrogate))


def failures_after(
    config: BanditConfig, known: FeasibilityModel | None, ledger: Ledger, new: History, spec: SurrogateSpec, now: float
) -> FeasibilityModel | None:
    """Return what plays that failed say after a round, in which the first did, or one did before."""
    if known is None:
        return failures_in(config, ledger, spec, now)
    surrogate, marked = known.surrogate, _marked(new)
    if len(marked.X):
        generator = config.dictionary_generator(ledger.num_observations - len(new.X))
        surrogate = surrogate.learned(marked, generator)
    return known.told(new, surrogate.at(now))


def failures_in(
    config: BanditConfig, ledger: Ledger, spec: SurrogateSpec, now: float, dictionary: Selection | None = None
) -> FeasibilityModel | None:
    """Return what the plays of a ledger say that count; None if none failed. Without a dictionary one is chosen."""
    told = ledger.history_since(ledger.num_forgotten)
    if not bool(told.lost.any()):
        return None
    surrogate = config.plain_surrogate(_spec_of_failures(config, spec)).at(now)
    if dictionary is None:
        surrogate = config.learned_in_passes(surrogate, _marked(told), ledger.num_observations)
    else:
        surrogate = surrogate.restored(_marked(told), dictionary)
    return FeasibilityModel(surrogate, config.own_columns, config.candidates.context_dim).told(told, surrogate)


def _marked(told: History) -> History:
    """Return plays that are over, with 1 for those that failed in the place of a reward, 0 for the others."""
    told = told.over
    return told._replace(Y=told.lost.to(told.Y), stages=None, outcomes=None, failed=None, noise=None)


def _spec_of_failures(config: BanditConfig, spec: SurrogateSpec) -> SurrogateSpec:
    """Return what is taken for true of failures: they vary with points as rewards do."""
    level, memory = _NOISE * float(config.plain_surrogate(spec).kernel_bound()), spec.memory
    none = torch.zeros(1, dtype=torch.float64)
    if not level or (memory is not None and not bool(memory.noise(none, 0.0, level).isfinite())):
        level = spec.prior.regularization
    return config.spec_of(Prior(spec.prior.kernel, level, _BASE_RATE), memory)

"""What is known under another hypothesis, a prior that is fitted or a memory that is chosen: all is learned anew."""

from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from torch_kbandits.bandit.config import BanditConfig, ModelSpec
from torch_kbandits.bandit.failing import failures_in
from torch_kbandits.bandit.standing import Rival, Standing
from torch_kbandits.beliefs import Belief
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.ledger import History
from torch_kbandits.priors import LearnedPrior
from torch_kbandits.priors.fitting import column_spans
from torch_kbandits.priors.learned import NEVER, LastFit, Told


def relearned(config: BanditConfig, standing: Standing, hypothesis: ModelSpec) -> Standing:
    """Return what is known under another hypothesis: all that was learned is learned anew; what is pending stays.

    Cost: that of the posterior of what counts, computed afresh unless a rival is.
    """
    ledger, now = standing.ledger.in_one_part, standing.clock.now
    told = ledger.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned))
    belief, _ = _believed(config, told, hypothesis, now, standing.rivals, ledger.num_learned)
    failures = failures_in(config, ledger, hypothesis, now)
    return changed(standing, ledger=ledger, told=belief, hypothesis=hypothesis, failures=failures)


def with_memory(config: BanditConfig, standing: Standing, *, restarts: bool) -> Standing:
    """Return the same with the memory of the next block, and with the posterior that its rewards are to be added to."""
    ledger = standing.ledger.in_one_part
    summaries, rivals = summarised(
        config, standing.hypothesis, ledger.told[0], standing.summaries, rivals=standing.rivals
    )
    hypothesis = hypothesis_after(config, standing.hypothesis, summaries)
    ledger = ledger.restarted if restarts else ledger
    return changed(standing, ledger=ledger, summaries=summaries, hypothesis=hypothesis, rivals=rivals)


def summarised(
    config: BanditConfig,
    hypothesis: ModelSpec,
    history: History,
    known: tuple[Any, ...],
    rivals: tuple[Rival, ...] = (),
) -> tuple[tuple[Any, ...], tuple[Rival, ...]]:
    """Return the summaries of blocks on which the choice of a memory rests, and the posteriors that were compared.

    Args:
        config: of the bandit.
        hypothesis: what is taken for true.
        history: what was told.
        known: the summaries of an earlier part of it.
        rivals: posteriors of earlier parts.
    """
    if config.memories is None:
        return (), ()

    def believed(part: History, memory: Memory, now: float) -> Belief:
        nonlocal rivals
        belief, rivals = _believed(config, part, replace(hypothesis, memory=memory), now, rivals, len(part.X))
        return belief

    return config.memories.summaries(history.rewarded, known, believed), rivals


def hypothesis_after(config: BanditConfig, hypothesis: ModelSpec, summaries: tuple[Any, ...]) -> ModelSpec:
    """Return the hypothesis with the memory that is in force once the blocks so far are summarised."""
    if config.memories is None:
        return hypothesis
    memory = config.memories.choice(summaries, config.seed).memory
    return hypothesis if memory == hypothesis.memory else replace(hypothesis, memory=memory)


def settled(config: BanditConfig, standing: Standing) -> Standing:
    """Return what is known under a prior that is fitted, also before the first fit is due; as it is if it is given."""
    if config.learning is None or standing.last_fit.number:
        return standing
    after = with_prior(config, standing, early=True)
    return standing if after is standing else relearned(config, after, after.hypothesis)


def recalled(config: BanditConfig, standing: Standing) -> Standing:
    """Return what was known when something counted last, if nothing does now: before a restart, or long ago.

    As it is where something counts, or nothing ever did.
    """
    ledger = standing.ledger.in_one_part
    learned = ledger.told[0].rows(slice(ledger.num_learned)).rewarded
    if standing.belief.num_observations or not len(learned.X):
        return standing
    hypothesis, now = standing.hypothesis, standing.clock.now
    if learned.times is not None and not len(_counting(hypothesis, learned, now).X):
        now = float(learned.times.max())
    told, _ = _believed(config, learned, hypothesis, now, (), ledger.num_learned)
    outcomes = tuple(recalled(*each) for each in zip(config.of_outcomes, standing.outcomes, strict=True))
    return replace(standing, told=told, answers=(), outcomes=outcomes)


def with_prior(config: BanditConfig, standing: Standing, *, early: bool = False) -> Standing:
    """Return the same with the prior fitted again; what was learned is to be learned anew under it.

    Of few rewards the units alone are fitted, unless this is to be done early.
    """
    learning, ledger, hypothesis = cast(LearnedPrior, config.learning), standing.ledger, standing.hypothesis
    if (counting := to_fit(config, standing)) is None:
        return standing
    history, now, last = ledger.in_one_part.told[0], standing.clock.now, noted_fit(config, standing, counting)
    # From the same start each time, so that a fit does not depend on those before.
    memory = config.memory if learning.learn_memory else hypothesis.memory
    steady = memory is None and config.trigger is None
    since = history.rows(slice(ledger.num_forgotten, None if steady else ledger.num_forgotten)).rewarded
    hidden, first = config.hidden_columns, [*dict.fromkeys(since.Y.tolist())][: learning.num_initial]
    told = Told(
        X=counting.X if memory is not None and memory.needs_time_column else counting.X[:, hidden:],
        Y=counting.Y,
        expected=None if learning.mean is None else _expected(hypothesis, counting.X),
        spans=column_spans(history.X[:, hidden:], config.ranges, config.groups),
        first=history.Y.new_tensor(first),
        memory=memory,
        times=counting.times,
        now=now,
        groups=config.groups,
        names=config.names,
    )
    seed = seed_for(config.seed, ledger.num_learned, "fit")
    prior, memory, said = learning.fitted(told, seed, units_only=not (last.number or early))
    fitted = config.hypothesis_of(prior, memory)
    # Memories are compared under the prior that is in force, as after a bandit was loaded.
    summaries, rivals = summarised(config, fitted, history, ())
    fitted = hypothesis_after(config, fitted, summaries)
    after = replace(standing, hypothesis=fitted, last_fit=last, summaries=summaries, complaints=said)
    return replace(after, rivals=rivals)


def is_fit_due(config: BanditConfig, standing: Standing) -> bool:
    """Say whether a prior that is learned is to be fitted again."""
    ledger = standing.ledger
    return cast(LearnedPrior, config.learning).is_due(ledger.num_learned, standing.last_fit, ledger.num_forgotten)


def to_fit(config: BanditConfig, standing: Standing) -> History | None:
    """Return what the prior is to be fitted to; None where it stays as it is."""
    learning, ledger = cast(LearnedPrior, config.learning), standing.ledger
    learned = ledger.in_one_part.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
    # What a memory should forget shows in what it would forget.
    counting = learned if learning.learn_memory else _counting(standing.hypothesis, learned, standing.clock.now)
    stays = config.is_prior_known(standing.last_fit)  # after a restart what was fitted does
    few = len(counting.X) < learning.num_initial
    return None if len(counting.X) < 2 or (few and stays) else counting


def noted_fit(config: BanditConfig, standing: Standing, counting: History) -> LastFit:
    """Return what is noted of a fit to what counts."""
    few = len(counting.X) < cast(LearnedPrior, config.learning).num_initial
    return NEVER if few else LastFit(standing.ledger.num_learned, len(counting.X))


def _expected(hypothesis: ModelSpec, X: Tensor) -> Tensor:
    """Return the prior means of points (n, d), (n,)."""
    return X.new_zeros(len(X)) if hypothesis.mean is None else prior_mean(hypothesis.mean, X)


def _counting(hypothesis: ModelSpec, learned: History, now: float) -> History:
    """Return what counts of a history at a time."""
    memory = hypothesis.memory
    if memory is not None and learned.times is not None:
        noise = memory.noise(learned.times, now, hypothesis.regularization)
        learned = learned.rows(noise.isfinite())
    return learned


def _believed(
    config: BanditConfig,
    learned: History,
    hypothesis: ModelSpec,
    now: float,
    rivals: tuple[Rival, ...],
    num_learned: int,
) -> tuple[Belief, tuple[Rival, ...]]:
    """Return the posterior of what counts of a history under a hypothesis at a time, and the rivals with it.

    Args:
        config: of the bandit.
        learned: what may count.
        hypothesis: what is taken for true.
        now: the time.
        rivals: posteriors of parts of the history, from one of which this may go on.
        num_learned: how many rewards were learned in the end of it, counted from the first ever.
    """
    told, prior, memory = learned.rewarded, hypothesis.prior, hypothesis.memory
    known = next((each for each in rivals if each.goes_on_to(prior, memory, told, now)), None)
    if known is None:
        counting = hypothesis.counted(_counting(hypothesis, told, now))
        belief = config.learned_in_passes(config.belief(hypothesis).at(now), counting, num_learned)
    else:
        counting = hypothesis.counted(_counting(hypothesis, told.rows(slice(len(known.told.X), None)), now))
        belief = known.belief.at(now)
        belief = belief.learned(counting, None, None) if len(counting.X) else belief
    if not belief.exact:
        return belief, ()
    others = (each for each in rivals if each.prior is prior and each.memory != memory)
    return belief, (*others, Rival(prior, memory, now, told, belief))

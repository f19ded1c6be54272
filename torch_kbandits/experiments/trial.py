"""A bandit plays an environment; and one run of an experiment, which is recorded."""

import inspect
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

import torch

from torch_kbandits import checks
from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.environments import (
    AnyEnvironment,
    ContextualEnvironment,
    DynamicEnvironment,
    Environment,
)
from torch_kbandits.environments import registry as environments
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.experiments import registry
from torch_kbandits.experiments.references import EnvironmentExpert
from torch_kbandits.experiments.registry import build_gain, build_kernel, build_width
from torch_kbandits.experiments.spec import Trial
from torch_kbandits.experiments.summary import Record, versions
from torch_kbandits.numerics.random import seed_for

#: The δ of a width that is named in a spec which gives none; the default of the algorithms, too.
_FAILURE_PROBABILITY = 0.1


@dataclass(frozen=True)
class Trace:
    """What was measured while a bandit played, after each of the recorded ``rounds``, counted from 1; the last is T.

    Cumulative pseudo-regret, in reward units; cumulative processor seconds of ask and tell; inducing points.
    """

    rounds: list[int]
    regret: list[float]
    seconds: list[float]
    dictionary_size: list[int]


def play(
    bandit: Bandit, environment: AnyEnvironment, rounds: int, *, record_every: int = 1, batch: int | str = 1
) -> Trace:
    """Let a bandit play an environment and measure it.

    Args:
        bandit: told nothing yet; for contexts one with ``ContextualActions``. It is told no times: its clock is its own
            rounds.
        environment: what is played, of so many rounds at least.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        batch: how many points are asked for at a time; "rule" asks for as many as the algorithm's rule allows. The
            rounds of a batch have the context, or the moment of a problem that changes, of the first, and are recorded
            with the seconds and the dictionary after the last.
    """
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(rounds)
    clock, differs = time.process_time, isinstance(environment, ContextualEnvironment | DynamicEnvironment)
    contexts = environment if isinstance(environment, ContextualEnvironment) else None
    trace, regrets, seconds, t = Trace([], [], [], []), [0.0], 0.0, 0
    while t < rounds:
        words: dict[str, Any] = {} if contexts is None else {"context": contexts.context(t)}
        asking = dict(words)
        if contexts is not None and contexts.actions is None:
            asking["candidates"] = contexts.candidates(t)
        if batch != 1:
            asking["q"] = None if batch == "rule" else min(int(batch), rounds - t)
        started = clock()
        x = bandit.ask(**asking)[: rounds - t]
        asked = clock()
        X = x if contexts is None else contexts.joint_points(x, t)
        y = environment.pull(X, t) - environment.center
        pulled = clock()
        bandit.tell(x, y, **words)
        seconds += clock() - pulled + asked - started
        regrets += environment.regret(X, *([t] if differs else [])).double().tolist()
        t += len(X)
        while (due := min((len(trace.rounds) + 1) * record_every, rounds)) <= t and trace.rounds[-1:] != [due]:
            trace.rounds.append(due)
            trace.seconds.append(seconds)
            trace.dictionary_size.append(len(getattr(bandit, "inducing_points", ())))
    trace.regret.extend(torch.tensor(regrets, dtype=torch.float64).cumsum(0)[trace.rounds].tolist())
    return trace


def build_environment(trial: Trial) -> AnyEnvironment:
    """Make the problem of a trial, and see that it has enough rounds."""
    name = trial.environment.name
    environment = environments.build(registry.load(name), seed=trial.seed, **trial.environment.options)
    checks.instance(registry.title(name), environment, get_args(AnyEnvironment), "an environment")
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(trial.rounds)
    return environment


def build_bandit(trial: Trial, environment: AnyEnvironment) -> Bandit:
    """Make the algorithm of a trial from what the environment knows, the settings and the algorithm's own options."""
    given, space = {**trial.settings, **trial.algorithm.options}, _space(environment)
    known = {name: getattr(environment, name) for name in ("kernel", "regularization", "noise_scale", "norm_bound")}
    # No theorem can use a noise scale or a norm of 0. The environment is for players that know the truth.
    known = {key: value for key, value in known.items() if value not in (None, 0.0)}
    words = {"seed": trial.seed, "horizon": trial.rounds, "environment": environment, **known, **given}
    if isinstance(words.get("kernel"), str | Mapping):
        words["kernel"] = build_kernel("kernel", words["kernel"])
    of_width = {"failure_probability": _FAILURE_PROBABILITY, **words, **space}
    if "beta" in words:
        words["beta"] = build_width("beta", words["beta"], of_width)
        # What the environment alone knows would draw a warning that beta is below the theorem's; who gave beta knows.
        words = {key: value for key, value in words.items() if key in given or key not in ("noise_scale", "norm_bound")}
    words |= {key: registry.build(key, key, value, {}) for key, value in words.items() if registry.is_own(value)}
    if "gain" in words:
        words["gain"] = build_gain("gain", words["gain"], of_width)
    title, made_by = registry.title(trial.algorithm.name), registry.load(trial.algorithm.name)
    takes = algorithms.signature(made_by).parameters
    if "expert" in takes:
        words["expert"] = EnvironmentExpert(environment, words.get("expert"), trial.algorithm.batch)
    words = {key: value for key, value in (words | space).items() if key in takes}
    needed = [key for key, word in takes.items() if word.default is inspect.Parameter.empty]
    if "prior" in takes:  # which stands for these
        needed += ["kernel", "regularization"]
    if missing := [key for key in needed if key not in words]:
        raise InputError(
            f"{title} needs {' and '.join(missing)}, which the environment "
            f"{registry.title(trial.environment.name)!r} does not know: give it in the settings."
        )
    bandit = algorithms.build(made_by, **words)
    if not all(callable(getattr(bandit, call, None)) for call in ("ask", "tell")):
        raise InputError(f"{title} must return what has ask() and tell(x, y), got {checks.describe(bandit)}.")
    return bandit


def run_one(trial: Trial) -> tuple[Record, list[str]]:
    """Make one run, with torch's generator left as it was; return its record and the distinct warnings it drew."""
    key, config = trial.key, trial.config()  # of own code as it is now
    threads, recommended = torch.get_num_threads(), None
    torch.set_num_threads(1)  # sums depend on how they are split
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(record=True) as caught:
            torch.manual_seed(seed_for(trial.seed, 0, key))
            warnings.simplefilter("default")
            environment = build_environment(trial)
            bandit = build_bandit(trial, environment)
            words = {"record_every": trial.record_every, "batch": trial.algorithm.batch}
            trace = play(bandit, environment, trial.rounds, **words)
            if isinstance(environment, Environment) and hasattr(bandit, "recommend"):
                with suppress(EmptyHistoryError):
                    recommended = float(environment.mean(bandit.recommend()))
    finally:
        torch.set_num_threads(threads)
    record = Record(
        key=key,
        **config,
        versions=versions(),
        recorded_rounds=trace.rounds,
        cumulative_regret=trace.regret,
        cumulative_seconds=trace.seconds,
        dictionary_size=trace.dictionary_size,
        recommended_mean=recommended,
        best_mean=float(environment.best_mean) if isinstance(environment, Environment) else None,
    )
    return record, list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught))


# ---------------------------------------------------------------- inside


def _space(environment: AnyEnvironment) -> dict[str, Any]:
    """Return the words by which an algorithm is told what may be played."""
    if isinstance(environment, ContextualEnvironment):
        action_dim = None if environment.actions is not None else environment.candidates(0).shape[1]
        words = {"context_dim": environment.context_dim, "action_dim": action_dim}
        return {"candidates": ContextualActions(environment.actions, **words)}
    if isinstance(environment, Environment) and environment.arms is None:
        return {"bounds": environment.bounds}
    return {"candidates": environment.arms}

"""One run: an algorithm on an environment with a seed, and what is measured of it."""

import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.environments import Environment
from torch_kbandits.environments import registry as environments
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.experiments.kernels import build_kernel
from torch_kbandits.experiments.records import Record, versions
from torch_kbandits.experiments.widths import build_gain, build_width
from torch_kbandits.random import seed_for

#: Part of every key: a new number makes recorded runs run again. It changes when a run measures something else.
_MEASURE = 1
#: The δ of a width that is named in a spec which gives none; the default of the algorithms, too.
_FAILURE_PROBABILITY = 0.1
#: Rows whose regret is measured at a time, so that a table of arms is compared with few points at once.
_REGRET_ROWS = 256


@dataclass(frozen=True)
class EnvironmentEntry:
    """An environment by name: its options, and settings for the algorithms that play it."""

    name: str
    label: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm by name: its options, and how many points it is asked for at a time."""

    name: str
    label: str
    options: Mapping[str, Any]
    batch: int | Literal["rule"] = 1


@dataclass(frozen=True)
class Trial:
    """One run to make; a value that can be sent to another process.

    Args:
        environment: the problem.
        algorithm: what plays it.
        settings: what the algorithm is given instead of what the environment knows.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        seed: addresses the problem and the algorithm's randomness.
    """

    environment: EnvironmentEntry
    algorithm: AlgorithmEntry
    settings: Mapping[str, Any]
    rounds: int
    record_every: int
    seed: int

    def config(self) -> dict[str, Any]:
        """Return all that decides the outcome, without labels, as plain values."""
        algorithm, environment = self.algorithm, self.environment
        return {
            "algorithm": {"name": algorithm.name, "options": dict(algorithm.options), "batch": algorithm.batch},
            "environment": {"name": environment.name, "options": dict(environment.options)},
            "settings": dict(self.settings),
            "rounds": self.rounds,
            "record_every": self.record_every,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """A digest of ``config``: equal for runs that must come out equal, whatever they are called."""
        text = json.dumps([_MEASURE, _canonical(self.config())], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def __str__(self) -> str:
        return f"{self.algorithm.label} on {self.environment.label}, seed {self.seed}"


@dataclass(frozen=True)
class Trace:
    """What was measured while a bandit played.

    Args:
        rounds: the recorded rounds, counted from 1; the last is T.
        regret: cumulative pseudo-regret after them, in reward units.
        seconds: cumulative seconds of ask and tell after them; the environment's time is not in it.
        dictionary_size: inducing points after them.
    """

    rounds: list[int]
    regret: list[float]
    seconds: list[float]
    dictionary_size: list[int]


def build_environment(trial: Trial) -> Environment:
    """Make the problem of a trial."""
    return environments.build(trial.environment.name, seed=trial.seed, **trial.environment.options)


def build_bandit(trial: Trial, environment: Environment) -> Bandit:
    """Make the algorithm of a trial from what the environment knows, the settings and the algorithm's own options.

    Raises:
        InputError: if the algorithm needs what none of the three gives.
    """
    words: dict[str, Any] = {
        # No theorem can use a noise scale or a norm of 0.
        "noise_scale": environment.noise_scale or None,
        "norm_bound": environment.norm_bound or None,
        "kernel": environment.kernel,
        "regularization": environment.regularization,
        "horizon": trial.rounds,
        **trial.settings,
        **trial.algorithm.options,
    }
    words = {key: value for key, value in words.items() if value is not None}
    if isinstance(words.get("kernel"), str | Mapping):
        words["kernel"] = build_kernel(words["kernel"])
    space = {"candidates": environment.arms} if environment.arms is not None else {"bounds": environment.bounds}
    known = {"failure_probability": _FAILURE_PROBABILITY, "seed": trial.seed, **words, **space}
    if "beta" in words:
        words["beta"] = build_width(words["beta"], known)
    if "gain" in words:
        words["gain"] = build_gain("gain", words["gain"], known)
    if "beta" in words:
        # What the environment alone knows would draw a warning that beta is below the theorem's; who gave beta knows.
        given = {**trial.settings, **trial.algorithm.options}
        words = {key: value for key, value in words.items() if key in given or key not in ("noise_scale", "norm_bound")}
    takes = algorithms.signature(trial.algorithm.name).parameters
    words = {key: value for key, value in words.items() if key in takes}
    missing = [
        key
        for key, word in takes.items()
        if word.default is inspect.Parameter.empty and key not in (*words, *space, "seed")
    ]
    if missing:
        raise InputError(
            f"{trial.algorithm.name} needs {' and '.join(missing)}, which the environment "
            f"{trial.environment.name!r} does not know: give it in the settings."
        )
    return algorithms.build(trial.algorithm.name, **space, **words, seed=trial.seed)


def play(
    bandit: Bandit, environment: Environment, rounds: int, *, record_every: int = 1, batch: int | str = 1
) -> Trace:
    """Let a bandit play an environment and measure it.

    Args:
        bandit: told nothing yet.
        environment: an ``Environment``.
        rounds: T, the number of plays.
        record_every: rounds between two recorded points.
        batch: how many points are asked for at a time; "rule" asks for as many as the algorithm's rule allows. All
            rounds of a batch are recorded with the seconds and the dictionary after it.

    Cost: that of the bandit and the environment, and about 10 microseconds a round.
    """
    clock = time.perf_counter
    ask, tell, pull, center = bandit.ask, bandit.tell, environment.pull, environment.center
    played: list[Tensor] = []
    recorded: list[int] = []
    spent: list[float] = []
    sizes: list[int] = []
    seconds, t, due = 0.0, 0, min(record_every, rounds)
    while t < rounds:
        started = clock()
        if batch == 1:
            X = ask()
        elif batch == "rule":
            X = ask(q=None)[: rounds - t]
        else:
            X = ask(q=min(int(batch), rounds - t))
        asked = clock()
        y = pull(X, t)
        if center:
            y = y - center
        pulled = clock()
        tell(X, y)
        seconds += asked - started + clock() - pulled
        played.append(X)
        t += len(X)
        while due <= t and len(recorded) < -(-rounds // record_every):
            recorded.append(due)
            spent.append(seconds)
            sizes.append(len(bandit.inducing_points))
            due = min(due + record_every, rounds)
    regret = torch.cat([environment.regret(X) for X in torch.cat(played).split(_REGRET_ROWS)]).double()
    cumulative = regret.cumsum(0)[torch.tensor(recorded) - 1].tolist()
    return Trace(recorded, cumulative, spent, sizes)


def run_one(trial: Trial) -> tuple[Record, list[str]]:
    """Make one run, on one thread of torch and with torch's generator left as it was.

    Returns:
        Its record, and the distinct warnings that it drew.
    """
    with _quiet_thread(trial), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        environment = build_environment(trial)
        bandit = build_bandit(trial, environment)
        trace = play(bandit, environment, trial.rounds, record_every=trial.record_every, batch=trial.algorithm.batch)
        recommended = _recommended_mean(bandit, environment)
    config = trial.config()
    record = Record(
        key=trial.key,
        algorithm={"label": trial.algorithm.label, **config["algorithm"]},
        environment={"label": trial.environment.label, **config["environment"]},
        settings=config["settings"],
        rounds=trial.rounds,
        record_every=trial.record_every,
        seed=trial.seed,
        versions=versions(),
        recorded_rounds=trace.rounds,
        cumulative_regret=trace.regret,
        cumulative_seconds=trace.seconds,
        dictionary_size=trace.dictionary_size,
        recommended_mean=recommended,
        best_mean=float(environment.best_mean),
    )
    return record, list(dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught))


def _recommended_mean(bandit: Bandit, environment: Environment) -> float | None:
    """Return the true mean of the recommended point; None if nothing was learned, as in an unfinished first batch."""
    try:
        return float(environment.mean(bandit.recommend()))
    except EmptyHistoryError:
        return None


@contextmanager
def _quiet_thread(trial: Trial) -> Iterator[None]:
    """One thread, because sums depend on the split, and a global generator that depends on the trial alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(trial.seed, 0, trial.key))
            yield
    finally:
        torch.set_num_threads(threads)


def _canonical(value: Any) -> Any:
    """Return a value in which 2 and 2.0 read the same, as they do to an algorithm."""
    if isinstance(value, Mapping):
        return {key: _canonical(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

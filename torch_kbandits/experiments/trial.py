"""One run: an algorithm on an environment with a seed, and what is measured of it."""

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from torch_kbandits import checks
from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.environments import AnyEnvironment, ContextualEnvironment, DynamicEnvironment, Environment
from torch_kbandits.environments import registry as environments
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.experiments import live, own
from torch_kbandits.experiments.directory import Checkpoint
from torch_kbandits.experiments.live import Report
from torch_kbandits.experiments.loop import PlayState, play
from torch_kbandits.experiments.names import mapped
from torch_kbandits.experiments.pieces import build_gain, build_kernel, build_width
from torch_kbandits.experiments.records import Record, versions
from torch_kbandits.experiments.references import EnvironmentExpert
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.plotting.progress import StatusLine

#: Part of every key: a new number makes recorded runs run again. It changes when a run measures something else.
_MEASURE = 1
#: The δ of a width that is named in a spec which gives none; the default of the algorithms, too.
_FAILURE_PROBABILITY = 0.1


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
        checkpoint_every: rounds between two checkpoints, at which the posterior is computed afresh; None for none.
    """

    environment: EnvironmentEntry
    algorithm: AlgorithmEntry
    settings: Mapping[str, Any]
    rounds: int
    record_every: int
    seed: int
    checkpoint_every: int | None = None

    def config(self) -> dict[str, Any]:
        """Return all that decides the outcome, without labels, as plain values."""
        algorithm, environment = self.algorithm, self.environment
        rounding = {} if self.checkpoint_every is None else {"checkpoint_every": self.checkpoint_every}
        return rounding | own.portable(
            {
                "algorithm": {"name": algorithm.name, "options": dict(algorithm.options), "batch": algorithm.batch},
                "environment": {"name": environment.name, "options": dict(environment.options)},
                "settings": dict(self.settings),
                "rounds": self.rounds,
                "record_every": self.record_every,
                "seed": self.seed,
            }
        )

    @property
    def key(self) -> str:
        """A digest of ``config``: equal for runs that must come out equal, whatever they are called."""

        def plain(value: Any) -> Any:  # 2 and 2.0 are the same to an algorithm
            return int(value) if isinstance(value, float) and value.is_integer() else value

        text = json.dumps([_MEASURE, mapped(self.config(), plain)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def __str__(self) -> str:
        return f"{self.algorithm.label} on {self.environment.label}, seed {self.seed}"


def plays(player: Any) -> bool:
    """Whether an object, or those of a class, can be asked and told."""
    return all(callable(getattr(player, name, None)) for name in ("ask", "tell"))


def build_environment(trial: Trial) -> AnyEnvironment:
    """Make the problem of a trial, and see that it has enough rounds."""
    name = trial.environment.name
    with own.making(name):
        environment = environments.build(own.maker(name), seed=trial.seed, **trial.environment.options)
    checks.instance(own.what(name), environment, get_args(AnyEnvironment), "an environment")
    if isinstance(environment, DynamicEnvironment):
        environment.check_rounds(trial.rounds)
    return environment


def build_bandit(trial: Trial, environment: AnyEnvironment) -> Bandit:
    """Make the algorithm of a trial from what the environment knows, the settings and the algorithm's own options."""
    given = {**trial.settings, **trial.algorithm.options}
    words: dict[str, Any] = {
        # No theorem can use a noise scale or a norm of 0.
        "noise_scale": environment.noise_scale or None,
        "norm_bound": environment.norm_bound or None,
        "kernel": environment.kernel,
        "regularization": environment.regularization,
        "horizon": trial.rounds,
        "environment": environment,  # for players that know the truth
        **given,
    }
    words = {key: value for key, value in words.items() if value is not None}
    if isinstance(words.get("kernel"), str | Mapping):
        words["kernel"] = build_kernel(words["kernel"])
    space = _space(environment)
    known = {"failure_probability": _FAILURE_PROBABILITY, "seed": trial.seed, **words, **space}
    if "beta" in words:
        words["beta"] = build_width(words["beta"], known)
        # What the environment alone knows would draw a warning that beta is below the theorem's; who gave beta knows.
        words = {key: value for key, value in words.items() if key in given or key not in ("noise_scale", "norm_bound")}
    words |= {key: own.build_piece(key, value) for key, value in words.items() if own.is_piece(value)}
    if "gain" in words:
        words["gain"] = build_gain("gain", words["gain"], known)
    name, made_by = own.what(trial.algorithm.name), own.maker(trial.algorithm.name)
    takes = algorithms.signature(made_by).parameters
    if "expert" in takes:
        words["expert"] = _expert(trial, environment, words.pop("expert", None))
    words = {key: value for key, value in {"seed": trial.seed, **words}.items() if key in takes} | space
    missing = [key for key, word in takes.items() if word.default is inspect.Parameter.empty and key not in words]
    if "prior" in takes:  # which stands for these
        missing += [key for key in ("kernel", "regularization") if key not in words]
    if missing:
        raise InputError(
            f"{name} needs {' and '.join(missing)}, which the environment "
            f"{own.what(trial.environment.name)!r} does not know: give it in the settings."
        )
    with own.making(trial.algorithm.name):
        bandit = algorithms.build(made_by, **words)
    if not plays(bandit):
        raise InputError(f"{name} must return what has ask() and tell(x, y), got {checks.describe(bandit)}.")
    if trial.checkpoint_every is not None and not hasattr(bandit, "load_state_dict"):
        raise InputError(
            f"{name} cannot be kept on its way: give it state_dict() and load_state_dict(state), or leave "
            "checkpoint_every out."
        )
    return bandit


def run_one(trial: Trial, directory: Path | None = None, report: Report | None = None) -> tuple[Record, list[str]]:
    """Make one run, or go on with it, on one thread of torch and with torch's generator left as it was.

    Args:
        trial: which run.
        directory: of the experiment, where checkpoints are if the trial keeps any; None to keep none.
        report: called from time to time with how the run is doing.

    Returns:
        Its record, and the distinct warnings that it drew.
    """
    with _quiet_thread(trial), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        environment = build_environment(trial)
        bandit = build_bandit(trial, environment)
        checkpoint = Checkpoint(directory, trial.key)
        state, kept = (PlayState(), []) if trial.checkpoint_every is None else checkpoint.restore(bandit)

        def news() -> list[str]:
            return [*kept, *(" ".join(str(warning.message).split()) for warning in caught)]

        watch: Callable[[int], None] | None = None
        if report is not None and isinstance(bandit, Bandit):
            watch = _watcher(trial, bandit, environment.center, report)
        trace = play(
            bandit,
            environment,
            trial.rounds,
            record_every=trial.record_every,
            batch=trial.algorithm.batch,
            state=state,
            keep_every=trial.checkpoint_every,
            keep=lambda state: checkpoint.keep(bandit, state, news()),
            watch=watch,
        )
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
        best_mean=float(environment.best_mean) if isinstance(environment, Environment) else None,
    )
    return record, list(dict.fromkeys(news()))


def _watcher(trial: Trial, bandit: Bandit, center: float, report: Report) -> Callable[[int], None]:
    """Return what a run calls with the number of rounds that it has played; from time to time that is reported."""
    line = StatusLine(bandit, interval=live.INTERVAL, center=center)

    def watch(played: int) -> None:
        if line.is_due:
            report(live.Status(trial.key, str(trial), played, trial.rounds, line.read()))

    return watch


def _space(environment: AnyEnvironment) -> dict[str, Any]:
    """Return the words by which an algorithm is told what may be played."""
    if isinstance(environment, ContextualEnvironment):
        if environment.actions is not None:
            return {"candidates": ContextualActions(environment.actions, context_dim=environment.context_dim)}
        action_dim = environment.candidates(0).shape[1]
        return {"candidates": ContextualActions(context_dim=environment.context_dim, action_dim=action_dim)}
    if isinstance(environment, Environment) and environment.arms is None:
        return {"bounds": environment.bounds}
    return {"candidates": environment.arms}


def _expert(trial: Trial, environment: AnyEnvironment, noise_scale: Any) -> EnvironmentExpert:
    """Return the environment as its own expert; with its own noise unless another standard deviation is given."""
    if not isinstance(environment, DynamicEnvironment):
        raise InputError(
            f"{trial.algorithm.name} asks an expert about what changes, and {trial.environment.name!r} does not change "
            "with time: play it on moving-peak, abrupt, drift or another environment that does."
        )
    if trial.algorithm.batch == "rule":
        raise InputError(f"{trial.algorithm.name} has no batch rule: give batch a number, or leave it out.")
    noise_scale = environment.noise_scale if noise_scale is None else noise_scale
    return EnvironmentExpert(environment, noise_scale, trial.algorithm.batch)


def _recommended_mean(bandit: Bandit, environment: AnyEnvironment) -> float | None:
    """Return the true mean of the recommended point; None if nothing was learned, as in an unfinished first batch.

    None with contexts and on problems that change, too: what is best depends on them.
    """
    if not isinstance(environment, Environment) or not hasattr(bandit, "recommend"):
        return None
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

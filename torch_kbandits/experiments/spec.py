"""What an experiment is: algorithms × environments × seeds, read from TOML or JSON and checked before anything runs."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from torch_kbandits import checks
from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.environments import AnyEnvironment
from torch_kbandits.environments import registry as environments
from torch_kbandits.environments.options import check_options, parameters, pick
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.names import OWN_FORMS, check_depth, read_plain, table
from torch_kbandits.experiments.pieces import build_kernel, check_gain, check_width
from torch_kbandits.experiments.trial import AlgorithmEntry, EnvironmentEntry, Trial, plays

Entry = TypeVar("Entry", AlgorithmEntry, EnvironmentEntry)

#: What ``settings`` may hold, with the check of each. An algorithm gets those that it takes.
SETTINGS: dict[str, Callable[[str, Any], Any]] = {
    "beta": check_width,
    "gain": check_gain,
    "kernel": lambda where, value: build_kernel(value, where),
    "regularization": checks.positive,
    "noise_scale": checks.positive,
    "norm_bound": checks.positive,
    "failure_probability": checks.open_unit_interval,
    "horizon": checks.positive_integer,
}
#: Beyond these a spec is a mistake: characters of its file, seeds, and rounds of a run.
_LARGEST_FILE, _MOST_SEEDS, _MOST_ROUNDS = 10**6, 10**5, 10**9
_KEYS = ("name", "rounds", "seeds", "record_every", "checkpoint_every", "settings", "environments", "algorithms")


@dataclass(frozen=True)
class ExperimentSpec:
    """An experiment: every algorithm on every environment with every seed.

    Args:
        name: names the experiment and its default directory.
        rounds: T, the number of plays of every run.
        seeds: each addresses one problem (function, arms and noise) and the algorithm's randomness.
        environments: the problems.
        algorithms: what plays them.
        settings: what algorithms are given instead of what the environment knows: see ``SETTINGS``. An environment's
            own settings go before these, an algorithm's own options before both.
        record_every: rounds between two recorded points; the last round is always recorded.
        checkpoint_every: rounds between two checkpoints, from which a killed run goes on; None for none. A run computes
            its posterior afresh at each, killed or not, which may round otherwise than without.
    """

    name: str
    rounds: int
    seeds: tuple[int, ...]
    environments: tuple[EnvironmentEntry, ...]
    algorithms: tuple[AlgorithmEntry, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    record_every: int = 1
    checkpoint_every: int | None = None

    def trials(self) -> Iterator[Trial]:
        """Return every run; those that differ in the algorithm alone are neighbours."""
        for environment in self.environments:
            settings = {**self.settings, **environment.settings}
            for seed in self.seeds:
                for algorithm in self.algorithms:
                    yield Trial(
                        environment, algorithm, settings, self.rounds, self.record_every, seed, self.checkpoint_every
                    )

    def content(self) -> dict[str, Any]:
        """Return the table that ``parse_spec`` takes, of plain values."""
        checkpoints = {} if self.checkpoint_every is None else {"checkpoint_every": self.checkpoint_every}
        return {
            "name": self.name,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "record_every": self.record_every,
            "settings": dict(self.settings),
            "environments": [
                {"name": each.name, "label": each.label, "settings": dict(each.settings), **each.options}
                for each in self.environments
            ],
            "algorithms": [
                {"name": each.name, "label": each.label, "batch": each.batch, **each.options}
                for each in self.algorithms
            ],
            **checkpoints,
        }


def load_spec(path: str | Path) -> ExperimentSpec:
    """Read an experiment from a TOML file, or from a JSON file if its name ends so.

    Raises:
        InputError: if the file is missing or malformed, or names what does not exist; the message says where.
    """
    file = Path(path)
    kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE + 1).decode()
    except FileNotFoundError:
        raise InputError(f"There is no spec file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if len(text) > _LARGEST_FILE:
        raise InputError(f"{path} has more than {_LARGEST_FILE:,} characters: it is no spec.")
    try:
        return parse_spec(read_plain("it", text, kind), default_name=file.stem, folder=file.parent)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid {kind}: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse_spec(
    content: Mapping[str, Any], default_name: str = "experiment", folder: str | Path = "."
) -> ExperimentSpec:
    """Make an experiment from a table and check all of it.

    Args:
        content: ``name``, ``rounds``, ``seeds`` (how many, or a list), ``record_every``, ``checkpoint_every``,
            ``settings``, and lists of tables ``environments`` and ``algorithms``. Each entry has a ``name``, may have a
            ``label`` for tables and figures, and options; an environment may have ``settings``, an algorithm a
            ``batch``: how many points it is asked for at a time, or "rule" for as many as its own rule allows. A name
            is one of a registry, or ``path/to/file.py:Class`` or ``package.module:Class`` of your own code, and so is
            that of a kernel, a width or a memory.
        default_name: the name if none is given.
        folder: what the paths of own code are relative to.

    Raises:
        InputError: if a name, option, key or value is not known or does not fit.
        StateMismatchError: if own code is not that of which the content has a digest.
    """
    check_depth("the spec", content)
    check_options("the spec", "key", table("the spec", content), _KEYS)
    for key in ("rounds", "environments", "algorithms"):
        if key not in content:
            raise InputError(f"The spec needs {key!r}.")
    parts = ("settings", "environments", "algorithms")
    content = {key: own.pinned(key, value, Path(folder)) if key in parts else value for key, value in content.items()}
    name = content.get("name", default_name)
    if not isinstance(name, str) or not name.strip() or "/" in name or "\\" in name:
        raise InputError(f"name must be a word or a few, without slashes, got {name!r}.")
    return ExperimentSpec(
        name=name,
        rounds=parse_rounds("rounds", content["rounds"]),
        seeds=parse_seeds(content.get("seeds", 1)),
        settings=_settings("settings", content.get("settings", {})),
        environments=_entries("environments", content["environments"], _environment),
        algorithms=_entries("algorithms", content["algorithms"], _algorithm),
        record_every=checks.positive_integer("record_every", content.get("record_every", 1)),
        checkpoint_every=checks.optional(checks.positive_integer)("checkpoint_every", content.get("checkpoint_every")),
    )


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Return the seeds: 0, …, n − 1 for a number n, or those of a list."""
    if not isinstance(value, list | tuple):
        number = checks.positive_integer("seeds", value)
        if number > _MOST_SEEDS:
            raise InputError(
                f"seeds must be at most {_MOST_SEEDS:,}, got {checks.shown(number)}: it is how many; for the one of "
                "that number give a list, [5] in a spec or --seeds 5, on the command line."
            )
        return tuple(range(number))
    seeds = tuple(checks.non_negative_integer(f"seeds[{i}]", seed) for i, seed in enumerate(value))
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(
            f"seeds must be how many, or whole numbers that differ from each other, got {checks.shown(value)}."
        )
    return seeds


def parse_rounds(name: str, value: Any) -> int:
    """Return how many rounds a run has, a whole number of at least 1."""
    rounds = checks.positive_integer(name, value)
    if rounds > _MOST_ROUNDS:
        raise InputError(f"{name} must be at most {_MOST_ROUNDS:,}, got {checks.shown(rounds)}.")
    return rounds


def algorithm_options(name: str) -> dict[str, Any]:
    """Return the options of an algorithm with their defaults, ``inspect.Parameter.empty`` where there is none."""
    words = algorithms.signature(own.maker(name)).parameters
    # The others are given by a run.
    return {key: word.default for key, word in words.items() if key not in ("candidates", "bounds", "seed")}


def _entries(kind: str, entries: Any, made: Callable[[str, Mapping[str, Any]], Entry]) -> tuple[Entry, ...]:
    """Return the entries of a list of tables, whose labels differ."""
    if not isinstance(entries, list | tuple) or not entries:
        raise InputError(f"{kind} must be a list of at least one table, got {checks.describe(entries)}.")
    found: dict[str, Entry] = {}
    for i, entry in enumerate(entries):
        where = f"{kind}[{i}]"
        for key in ("name", "label"):
            if not isinstance(table(where, entry).get(key, ""), str) or "name" not in entry:
                raise InputError(f"{where} needs a {key} that is a string, got {entry.get(key)!r}.")
        known = made(where, {"label": own.what(entry["name"]), **entry})
        if known.label in found:
            raise InputError(f"Two {kind} are called {known.label!r}: give each a label of its own.")
        found[known.label] = known
    return tuple(found.values())


def _environment(where: str, entry: Mapping[str, Any]) -> EnvironmentEntry:
    name = entry["name"]
    options = {key: value for key, value in entry.items() if key not in ("name", "label", "settings")}
    if not own.is_own(name):
        pick(where, "environment", name, environments.names(), OWN_FORMS)
    else:
        kind, bases = own.load(where, name), get_args(AnyEnvironment)
        if isinstance(kind, type) and not issubclass(kind, bases):
            raise InputError(
                f"{where}: {own.what(name)} is no environment: it must be a subclass of "
                f"{', '.join(base.__name__ for base in bases[:-1])} or {bases[-1].__name__}, such as FiniteArms, or a "
                "function that returns such an object."
            )
        if "seed" not in parameters(kind):
            raise InputError(
                f"{where}: {own.what(name)} must take seed, which addresses the noise and all else that is random."
            )
    known = environments.describe(own.maker(name))[1]
    check_options(where, f"option of environment {own.what(name)!r}", options, known)
    return EnvironmentEntry(name, entry["label"], options, _settings(f"{where}.settings", entry.get("settings", {})))


def _algorithm(where: str, entry: Mapping[str, Any]) -> AlgorithmEntry:
    name, batch = entry["name"], entry.get("batch", 1)
    options = {key: value for key, value in entry.items() if key not in ("name", "label", "batch")}
    if not own.is_own(name):
        pick(where, "algorithm", name, algorithms.names(), OWN_FORMS)
    elif isinstance(kind := own.load(where, name), type) and not plays(kind):
        raise InputError(
            f"{where}: {own.what(name)} is no algorithm: it must be a Bandit, have methods ask() and tell(x, y), or be "
            "a function that returns such an object."
        )
    check_options(where, f"option of algorithm {own.what(name)!r}", options, set(algorithm_options(name)))
    for key, value in options.items():
        if key in SETTINGS:
            SETTINGS[key](f"{where}.{key}", value)
        elif own.is_piece(value):
            own.check_piece(f"{where}.{key}", value)
    if batch != "rule":
        checks.positive_integer(f"{where}.batch", batch)
    return AlgorithmEntry(name, entry["label"], options, batch)


def _settings(where: str, value: Any) -> dict[str, Any]:
    check_options(where, "setting", table(where, value), SETTINGS)
    for key, setting in value.items():
        SETTINGS[key](f"{where}.{key}", setting)
    return dict(value)

"""What an experiment is: algorithms × environments × seeds, read from TOML or JSON and checked before anything runs."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.catalogue import check_algorithm, check_environment
from torch_kbandits.experiments.inline import read_plain
from torch_kbandits.experiments.kernels import build_kernel
from torch_kbandits.experiments.nearest import check_depth, check_keys, table
from torch_kbandits.experiments.trial import AlgorithmEntry, EnvironmentEntry, Trial
from torch_kbandits.experiments.widths import check_gain, check_width

#: What ``settings`` may hold, with the check of each. An algorithm gets those that it takes.
SETTINGS = {
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
        content: dict[str, Any] = {
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
        }
        if self.checkpoint_every is not None:
            content["checkpoint_every"] = self.checkpoint_every
        return content


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
        content = read_plain(str(path), text, kind)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid {kind}: {error}") from None
    try:
        return parse_spec(content, default_name=file.stem, folder=file.parent)
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
    check_keys("the spec", "key", table("the spec", content), _KEYS)
    for key in ("rounds", "environments", "algorithms"):
        if key not in content:
            raise InputError(f"The spec needs {key!r}.")
    parts = ("settings", "environments", "algorithms")
    content = {key: own.pinned(key, value, Path(folder)) if key in parts else value for key, value in content.items()}
    settings = _settings("settings", content.get("settings", {}))
    environments = [
        _environment(f"environments[{i}]", entry) for i, entry in enumerate(_entries("environments", content))
    ]
    algorithms = [_algorithm(f"algorithms[{i}]", entry) for i, entry in enumerate(_entries("algorithms", content))]
    for kind, entries in (("environments", environments), ("algorithms", algorithms)):
        _distinct(kind, [entry.label for entry in entries])
    name = content.get("name", default_name)
    if not isinstance(name, str) or not name.strip() or "/" in name or "\\" in name:
        raise InputError(f"name must be a word or a few, without slashes, got {name!r}.")
    checkpoints = content.get("checkpoint_every")
    if checkpoints is not None:
        checks.positive_integer("checkpoint_every", checkpoints)
    return ExperimentSpec(
        name=name,
        rounds=parse_rounds("rounds", content["rounds"]),
        seeds=parse_seeds(content.get("seeds", 1)),
        environments=tuple(environments),
        algorithms=tuple(algorithms),
        settings=settings,
        record_every=checks.positive_integer("record_every", content.get("record_every", 1)),
        checkpoint_every=checkpoints,
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
    if not value:
        raise InputError("seeds must be how many, or a list of whole numbers of at least 0, got an empty list.")
    seeds = tuple(checks.non_negative_integer(f"seeds[{i}]", seed) for i, seed in enumerate(value))
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seeds must differ from each other, got {checks.shown(value)}.")
    return seeds


def parse_rounds(name: str, value: Any) -> int:
    """Return how many rounds a run has, a whole number of at least 1."""
    rounds = checks.positive_integer(name, value)
    if rounds > _MOST_ROUNDS:
        raise InputError(f"{name} must be at most {_MOST_ROUNDS:,}, got {checks.shown(rounds)}.")
    return rounds


def _entries(kind: str, content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = content[kind]
    if not isinstance(entries, list | tuple) or not entries:
        raise InputError(f"{kind} must be a list of at least one table, got {checks.describe(entries)}.")
    tables = [table(f"{kind}[{i}]", entry) for i, entry in enumerate(entries)]
    for i, entry in enumerate(tables):
        for key in ("name", "label"):
            if not isinstance(entry.get(key, ""), str) or (key == "name" and "name" not in entry):
                raise InputError(f"{kind}[{i}] needs a {key} that is a string, got {entry.get(key)!r}.")
    return tables


def _environment(where: str, entry: Mapping[str, Any]) -> EnvironmentEntry:
    options = {key: value for key, value in entry.items() if key not in ("name", "label", "settings")}
    check_environment(where, entry["name"], options)
    settings = _settings(f"{where}.settings", entry.get("settings", {}))
    return EnvironmentEntry(entry["name"], entry.get("label", own.what(entry["name"])), options, settings)


def _algorithm(where: str, entry: Mapping[str, Any]) -> AlgorithmEntry:
    options = {key: value for key, value in entry.items() if key not in ("name", "label", "batch")}
    check_algorithm(where, entry["name"], options)
    for key, value in options.items():
        if key in SETTINGS:
            SETTINGS[key](f"{where}.{key}", value)
        elif own.is_piece(value):
            own.check_piece(f"{where}.{key}", value)
    batch = entry.get("batch", 1)
    if batch != "rule":
        checks.positive_integer(f"{where}.batch", batch)
    return AlgorithmEntry(entry["name"], entry.get("label", own.what(entry["name"])), options, batch)


def _settings(where: str, value: Any) -> dict[str, Any]:
    check_keys(where, "setting", table(where, value), SETTINGS)
    for key, setting in value.items():
        SETTINGS[key](f"{where}.{key}", setting)
    return dict(value)


def _distinct(kind: str, labels: list[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InputError(f"Two {kind} are called {twice[0]!r}: give each a label of its own.")

"""What an experiment is: algorithms × environments × seeds, read from TOML or JSON and checked before anything runs."""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from torch_kbandits import checks
from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.environments import registry as environments
from torch_kbandits.environments.options import check_options, pick
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import registry
from torch_kbandits.files import read_whole

#: What ``settings`` may hold. An algorithm gets those that it takes.
SETTINGS = ("beta", "gain", "kernel", "regularization", "noise_scale", "norm_bound", "failure_probability", "horizon")
_KEYS = ("name", "rounds", "seeds", "record_every", "settings", "environments", "algorithms")
_ENTRY_KEYS = {"environments": ("name", "label", "settings"), "algorithms": ("name", "label", "batch")}
#: Part of every key: a new number makes recorded runs run again. It changes when a run measures something else.
_MEASURE = 1


@dataclass(frozen=True)
class Entry:
    """An environment or an algorithm: its name in a registry, or of own code, its label, and what it is made with.

    An environment has ``settings`` for the algorithms that play it; an algorithm is asked for ``batch`` points a time,
    or for as many as its own "rule" allows.
    """

    name: str
    label: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    batch: int | Literal["rule"] = 1


@dataclass(frozen=True)
class Trial:
    """One run to make; a value that can be sent to another process. Its fields are those of ``ExperimentSpec``."""

    environment: Entry
    algorithm: Entry
    settings: Mapping[str, Any]
    rounds: int
    record_every: int
    seed: int

    def config(self) -> dict[str, Any]:
        """Return what is run, as plain values: all that decides the outcome, and the labels, which do not."""
        names = ("label", "name", "options")
        config: dict[str, Any] = vars(self) | {"environment": {key: getattr(self.environment, key) for key in names}}
        config["algorithm"] = {key: getattr(self.algorithm, key) for key in (*names, "batch")}
        return registry.renamed(config, registry.versioned)

    @property
    def key(self) -> str:
        """A digest of ``config`` without labels: equal for runs that must come out equal, whatever they are called."""

        def plain(text: str) -> float:  # 2 and 2.0 are the same to an algorithm
            return int(float(text)) if float(text).is_integer() else float(text)

        config = json.loads(json.dumps(self.config()), parse_float=plain)
        del config["algorithm"]["label"], config["environment"]["label"]
        return hashlib.blake2b(json.dumps([_MEASURE, config], sort_keys=True).encode(), digest_size=12).hexdigest()

    def __str__(self) -> str:
        return f"{self.algorithm.label} on {self.environment.label}, seed {self.seed}"


@dataclass(frozen=True)
class ExperimentSpec:
    """An experiment: every algorithm on every environment with every seed.

    Args:
        name: names the experiment and its default directory.
        rounds: T, the number of plays of every run.
        seeds: each addresses one problem (function, arms and noise) and the algorithm's randomness.
        environments, algorithms: the problems, and what plays them.
        settings: what algorithms are given instead of what the environment knows: see ``SETTINGS``. An environment's
            own settings go before these, an algorithm's own options before both.
        record_every: rounds between two recorded points; the last round is always recorded.
    """

    name: str
    rounds: int
    seeds: tuple[int, ...]
    environments: tuple[Entry, ...]
    algorithms: tuple[Entry, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    record_every: int = 1

    def trials(self) -> Iterator[Trial]:
        """Return every run; those that differ in the algorithm alone are neighbours."""
        for environment, seed, algorithm in product(self.environments, self.seeds, self.algorithms):
            settings = {**self.settings, **environment.settings}
            yield Trial(environment, algorithm, settings, self.rounds, self.record_every, seed)

    def content(self) -> dict[str, Any]:
        """Return the table that ``parse_spec`` takes, of plain values; options stand beside the name of their entry."""
        entries = {
            kind: [{key: getattr(each, key) for key in keys} | dict(each.options) for each in getattr(self, kind)]
            for kind, keys in _ENTRY_KEYS.items()
        }
        return {**vars(self), "seeds": list(self.seeds), **entries}


def load_spec(path: str | Path) -> ExperimentSpec:
    """Read an experiment from a TOML file, or from a JSON file if its name ends so; see ``parse_spec``."""
    file, content = Path(path), read_whole(path)
    kind, read = ("JSON", json.loads) if file.suffix.lower() == ".json" else ("TOML", tomllib.loads)
    try:
        return parse_spec(read(content.decode()), default_name=file.stem, folder=file.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:  # also of numbers with too many digits
        raise InputError(f"{path} is not valid {kind}: {error}") from None


def parse_spec(
    content: Mapping[str, Any], default_name: str = "experiment", folder: str | Path = "."
) -> ExperimentSpec:
    """Make an experiment from a table; ``InputError`` if a name, an option or a key is not known or is missing.

    Args:
        content: as in ``ExperimentSpec``, with ``seeds`` how many or a list, and tables as entries: a ``name``, options
            beside it, and perhaps the other fields of an ``Entry``. A name is one of a registry, or of your own code:
            ``path/to/file.py:Class`` or ``package.module:Class``; so is that of a kernel, a width or a memory.
        default_name: the name if none is given.
        folder: what the paths of own code are relative to.
    """
    check_options("the spec", "key", registry.table("the spec", content), _KEYS)
    if missing := [key for key in ("rounds", "environments", "algorithms") if key not in content]:
        raise InputError(f"The spec needs {missing[0]!r}.")
    content = registry.renamed(content, lambda name: str((Path(folder) / name).resolve()) if ".py:" in name else name)
    name = content.get("name", default_name)
    if not isinstance(name, str) or not name.strip() or "/" in name or "\\" in name:
        raise InputError(f"name must be a word or a few, without slashes, got {name!r}.")
    return ExperimentSpec(
        name=name,
        rounds=checks.positive_integer("rounds", content["rounds"]),
        seeds=parse_seeds(content.get("seeds", 1)),
        settings=_settings("settings", content),
        environments=_entries("environments", content["environments"]),
        algorithms=_entries("algorithms", content["algorithms"]),
        record_every=checks.positive_integer("record_every", content.get("record_every", 1)),
    )


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Return the seeds: 0, …, n − 1 for a number n, or those of a list."""
    if not isinstance(value, list | tuple):
        return tuple(range(checks.size("seeds, unless they are a list,", value)))
    seeds = tuple(checks.non_negative_integer(f"seeds[{i}]", seed) for i, seed in enumerate(value))
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds must be how many, or numbers that differ from each other, got {checks.shown(value)}.")
    return seeds


def parse_entry(text: str, option: str, known: Collection[str]) -> dict[str, Any]:
    """Return the table that ``bkb:oversampling=5,label=large``, typed at an option, stands for; or of own code."""
    name, _, rest = text.partition(":")
    if name not in known and (mine := re.fullmatch(rf"({registry.OWN_NAME.pattern})(?::(.*))?", text, re.DOTALL)):
        name, rest = mine[1], mine[2] or ""
    # Commas in quotes and brackets divide nothing.
    parts = re.findall(r"""(?:"[^"]*"|'[^']*'|\[[^]]*\]|\{(?:[^{}]|\{[^}]*\})*\}|[^,])+""", rest)
    return {"name": name, **dict(parse_assignment(part, option) for part in parts if part.strip())}


def parse_assignment(text: str, option: str) -> tuple[str, Any]:
    """Return the key and the value of KEY=VALUE, as in TOML; a text that means nothing there is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{option}: {text!r} must be KEY=VALUE.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key.strip(), value.strip()


def options_of(kind: str, made_by: str | Callable[..., Any]) -> dict[str, Any]:
    """Return the options of an "environment" or an "algorithm" with their defaults, ``Parameter.empty`` without one."""
    if kind == "environment":
        return environments.describe(made_by)[1]
    words = algorithms.signature(made_by).parameters
    # The others are given by a run.
    return {key: word.default for key, word in words.items() if key not in ("candidates", "bounds", "seed")}


def _entries(kind: str, tables: Any) -> tuple[Entry, ...]:
    """Return the entries of a list of tables, whose labels differ."""
    if not isinstance(tables, list | tuple) or not tables:
        raise InputError(f"{kind} must be a list of at least one table, got {checks.describe(tables)}.")
    found: dict[str, Entry] = {}
    one, known = kind.removesuffix("s"), (environments if kind == "environments" else algorithms).names()
    for i, table in enumerate(tables):
        where = f"{kind}[{i}]"
        name, label, batch = registry.table(where, table).get("name"), table.get("label", ""), table.get("batch", 1)
        if not isinstance(name, str) or not isinstance(label, str):
            raise InputError(f"{where} needs a name, and may have a label, that are strings; got {name!r}, {label!r}.")
        title = registry.title(name)
        if not registry.is_own(name):
            pick(where, one, name, known, registry.OWN_FORMS)
        options = {key: value for key, value in table.items() if key not in _ENTRY_KEYS[kind]}
        taken = options_of(one, registry.load(name, f"{where}.name"))
        # What an algorithm is not given a run may know.
        check_options(where, f"option of {one} {title!r}", options, taken if one == "environment" else set(taken))
        if batch != "rule":
            checks.positive_integer(f"{where}.batch", batch)
        label = label or title
        if label in found:
            raise InputError(f"Two {kind} are called {label!r}: give each a label of its own.")
        found[label] = Entry(name, label, options, _settings(f"{where}.settings", table), batch)
    return tuple(found.values())


def _settings(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(registry.table(where, table.get("settings", {})))
    check_options(where, "setting", settings, SETTINGS)
    return settings

"""The specs that records came from, made again from the records alone."""

import json
from collections.abc import Sequence
from typing import Any

from torch_kbandits.experiments.records import Record


def specs_of(records: Sequence[Record], name: str) -> list[dict[str, Any]]:
    """Return specs, as ``parse_spec`` takes them, whose runs are those of the records and no others.

    One is enough where the records are all algorithms on all environments with all seeds; else they are split by
    seeds, and where that is not enough by environments.

    Args:
        records: finished runs.
        name: of the specs.
    """
    specs = []
    for part in _split(records, lambda record: (record.rounds, record.record_every)):
        grids = [part] if _is_grid(part) else _grids(part)
        specs += [_spec(grid, name) for grid in grids]
    return specs


def spec_text(spec: dict[str, Any]) -> str:
    """Return a spec as JSON, to be saved in a file whose name ends with .json."""
    return json.dumps(spec, indent=2, ensure_ascii=False)


# ---------------------------------------------------------------- inside


def _grids(records: Sequence[Record]) -> list[list[Record]]:
    """Split records into grids: by environment, then by the algorithms that a seed has."""
    grids = []
    for part in _split(records, _environment):
        seeds = _split(part, lambda record: record.seed)
        for same in _split(seeds, lambda runs: sorted(_key(_algorithm(run)) for run in runs)):
            grid = [run for runs in same for run in runs]
            grids += [grid] if _is_grid(grid) else _split(grid, _algorithm)
    return grids


def _is_grid(records: Sequence[Record]) -> bool:
    """Whether these are all algorithms on all environments with all seeds, and labels tell them apart."""
    places = {(_key(_environment(run)), _key(_algorithm(run)), run.seed) for run in records}
    environments, algorithms, seeds = (len({place[i] for place in places}) for i in range(3))
    labels = (len({run.environment["label"] for run in records}), len({run.algorithm["label"] for run in records}))
    return len(places) == environments * algorithms * seeds and labels == (environments, algorithms)


def _split(entries: Sequence[Any], key: Any) -> list[list[Any]]:
    """Return the entries in groups of equal keys, in the order of their first ones."""
    groups: dict[str, list[Any]] = {}
    for entry in entries:
        groups.setdefault(_key(key(entry)), []).append(entry)
    return list(groups.values())


def _spec(records: Sequence[Record], name: str) -> dict[str, Any]:
    first = records[0]
    return {
        "name": name,
        "rounds": first.rounds,
        "seeds": sorted({run.seed for run in records}),
        "record_every": first.record_every,
        "environments": _distinct([_environment(run) for run in records]),
        "algorithms": _distinct([_algorithm(run) for run in records]),
    }


def _environment(record: Record) -> dict[str, Any]:
    known = record.environment
    settings = {"settings": record.settings} if record.settings else {}
    return {"name": known["name"], "label": known["label"], **known["options"], **settings}


def _algorithm(record: Record) -> dict[str, Any]:
    known = record.algorithm
    batch = {} if known["batch"] == 1 else {"batch": known["batch"]}
    return {"name": known["name"], "label": known["label"], **known["options"], **batch}


def _distinct(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({_key(entry): entry for entry in entries}.values())


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)

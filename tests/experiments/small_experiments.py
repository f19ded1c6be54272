"""A problem and experiments small enough for a test."""

import copy
import tomllib
from typing import Any

from torch_kbandits.experiments import Record, parse_spec

# R and B beside a beta below the theorem's width draw a warning.
TOML = """
name = "small"
rounds = 30
seeds = 2
[settings]
beta = 2.0
noise_scale = 0.2
norm_bound = 2.0
[[environments]]
name = "rkhs-function"
label = "smooth"
num_arms = 25
[[algorithms]]
name = "gp-ucb"
[[algorithms]]
name = "bkb"
label = "BKB"
"""
CONTENT: dict[str, Any] = tomllib.loads(TOML)


def content(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(CONTENT) | changes


def small(**changes: Any):
    return parse_spec(content(**changes))


def outcome(record: Record) -> tuple:
    """What must be equal in two runs of one configuration: all but the time."""
    names = ("key", "seed", "recorded_rounds", "cumulative_regret", "dictionary_size", "recommended_mean", "best_mean")
    return tuple(getattr(record, name) for name in names)


def record(seed: int = 0, algorithm: str = "A", **changes: Any) -> Record:
    values: dict[str, Any] = {
        "key": f"{algorithm}{seed}{sorted(changes.items())}",
        "algorithm": {"label": algorithm, "name": "bkb", "options": {"oversampling": algorithm}, "batch": 1},
        "environment": {"label": "E", "name": "rkhs-function", "options": {}},
        "settings": {}, "rounds": 4, "record_every": 2, "seed": seed, "versions": {}, "recorded_rounds": [2, 4],
        "cumulative_regret": [1.0, 2.0], "cumulative_seconds": [0.5, 1.0], "dictionary_size": [1, 2],
        "recommended_mean": 0.5, "best_mean": 1.0,
    }  # fmt: skip
    return Record(**(values | changes))

"""How much memory a round over many arms takes, by each of the ways that ``arm_rounds`` times.

``python -m benchmarks.arm_memory PROBE`` measures in a fresh interpreter and prints the result; PROBE is JSON.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.arm_bandits import BANDITS, OVERSAMPLING, Case, play, problem
from benchmarks.botorch_rounds import exact_blocks, exact_search, observations, variational_blocks
from benchmarks.memory import peak_bytes, resident_bytes
from benchmarks.references import bkb_round
from benchmarks.report import run_module
from torch_kbandits.candidates import Arms
from torch_kbandits.environments import gaussian_bumps
from torch_kbandits.environments.arms import FiniteArms

_TINY = Case(1.0, 5, 10)


@dataclass(frozen=True)
class Probe:
    """What is measured: one of ``PROBES``, and the sizes; ``observations`` is n of the exact models."""

    name: str
    arms: int
    dimension: int
    case: Case
    observations: int


def probe(wanted: Probe) -> dict[str, Any]:
    """Return the extra peak memory of a way, in bytes, measured in a process of its own."""
    measured = json.loads(run_module("benchmarks.arm_memory", json.dumps(asdict(wanted))))
    return {"what": "memory", "name": wanted.name, "arms": wanted.arms, **measured}


def measure(wanted: Probe) -> dict[str, int]:
    """Return by how much a way raises the memory of this process above what was resident before it, in bytes.

    It runs in a tiny size first, which loads libraries; the arms exist before. If making them took more memory than
    the way itself, their peak counts, so the number never understates.
    """
    environment = gaussian_bumps(wanted.arms, wanted.dimension, seed=0)
    few = gaussian_bumps(20, wanted.dimension, seed=0)
    PROBES[wanted.name](few, Probe(wanted.name, 20, wanted.dimension, _TINY, 10))
    before = resident_bytes()
    size = PROBES[wanted.name](environment, wanted)
    return {"size": size, "extra_bytes": peak_bytes() - before}


def _bandit(name: str, column_memory: int | None, environment: FiniteArms, wanted: Probe) -> int:
    arms = Arms(environment.arms) if column_memory is None else Arms(environment.arms, column_memory)
    run = play(BANDITS[name](arms, wanted.case, 0), environment, wanted.case)
    return max(len(each.dictionary) for each in run.rounds)


def _numpy(environment: FiniteArms, wanted: Probe) -> int:
    rows = np.arange(wanted.case.dictionary)
    rewards = environment.means[: len(rows)].numpy()
    bkb_round(problem(environment, wanted.case), rows, rows, rewards, OVERSAMPLING, np.random.default_rng(0))
    return len(rows)


def _search(environment: FiniteArms, wanted: Probe) -> int:
    exact_search(environment.arms, *observations(environment, wanted.observations), wanted.case)()
    return wanted.observations


def _blocks(environment: FiniteArms, wanted: Probe) -> int:
    exact_blocks(environment.arms, *observations(environment, wanted.observations), wanted.case)()
    return wanted.observations


def _variational(environment: FiniteArms, wanted: Probe) -> int:
    variational_blocks(environment.arms, environment.arms[: wanted.case.dictionary].clone(), wanted.case)()
    return wanted.case.dictionary


_Way = Callable[[FiniteArms, Probe], int]

#: The ways over an embedding of all arms. Kernel columns of played arms are kept besides, unless it is said otherwise.
TABLES: dict[str, _Way] = {
    **{name: partial(_bandit, name, None) for name in BANDITS},
    "BKB, growth only, no columns kept": partial(_bandit, "BKB, growth only", 0),
}

#: What can be measured, by name; each returns the number of points that its model had.
PROBES: dict[str, _Way] = {
    **TABLES,
    "NumPy BKB from scratch": _numpy,
    "BoTorch exact GP, optimize_acqf_discrete": _search,
    "BoTorch exact GP, posterior in blocks": _blocks,
    "BoTorch SVGP": _variational,
}


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    print(json.dumps(measure(Probe(**{**fields, "case": Case(**fields["case"])}))))

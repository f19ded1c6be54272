"""What a process takes from its start to its end that imports, helps, or plays rounds with loops compiled or read."""

import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from tqdm import tqdm

from benchmarks.runner import ROOT, Found, Measurement, Table, benchmark, kinds, seconds_of, spread, values

#: Plays rounds of a case.
_ROUNDS = """
import sys, torch
from gpytorch.kernels import RBFKernel
from torch_kbandits.algorithms import BKB, EKUCB, IGPUCB
kernel = RBFKernel().double().initialize(lengthscale=torch.tensor(0.3, dtype=torch.float64))
words = {"kernel": kernel, "regularization": 0.01, "beta": 2.0, "seed": 0}
draw = lambda *shape: torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
if sys.argv[1] == "contexts":
    bandit, now = EKUCB(context_dim=2, action_dim=2, **words), {"context": draw(2)}
else:
    bandit, now = {"few arms": IGPUCB, "many arms": BKB}[sys.argv[1]], {}
    bandit = bandit(candidates=draw(100 if sys.argv[1] == "few arms" else 10_000, 3), **words)
for _ in range(30):
    x = bandit.ask(**now, **({"candidates": draw(10, 2)} if now else {}))
    bandit.tell(x, torch.sin(4.0 * x).sum(), **now)
"""

#: What starts, does next to nothing and ends, and how Python is told to.
_STARTS = {
    "Python": ("-c", ""),
    "import torch_kbandits": ("-c", "import torch_kbandits"),
    "kbandits --help": ("-m", "torch_kbandits.cli", "--help"),
    "kbandits run --help": ("-m", "torch_kbandits.cli", "run", "--help"),
    "kbandits rnu (no such command)": ("-m", "torch_kbandits.cli", "rnu"),
    "kbandits list": ("-m", "torch_kbandits.cli", "list"),
    "import torch": ("-c", "import torch"),
    "import torch, gpytorch, botorch": ("-c", "import torch, gpytorch, botorch"),
}


@benchmark(cases=("few arms",), repeats=1, starts=1)
def first_use(
    cases: tuple[str, ...] = ("few arms", "many arms", "contexts"), repeats: int = 3, starts: int = 7
) -> Found:
    """Start processes; those that play rounds with an empty cache of loops, and again with what is there then."""
    found = list[Measurement]()

    def start(name: str, cache: str, *words: str) -> None:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-W", "ignore", *words]
        seconds = seconds_of(lambda: subprocess.run(command, env=environment, check=False, capture_output=True))
        found.append({"process": name, "seconds": seconds})

    with TemporaryDirectory() as cache:
        for _ in tqdm(range(starts), "first_use"):
            for name, words in _STARTS.items():
                start(name, cache, *words)
    for case in tqdm(cases, "first_use, rounds"):
        for _ in range(repeats):
            with TemporaryDirectory() as cache:
                for state in ("loops compiled", "loops from the cache"):
                    start(f"30 rounds, {case}, {state}", cache, "-c", _ROUNDS, case)
    rows = [[name, spread(values(found, "seconds", process=name))] for name in kinds(found, "process")]
    return [Table(f"Seconds from start to end, median (least–most) of {starts}", ["process", "s"], rows)], found

"""What a process pays before its first choice: imports, loops compiled or read from the cache; and what help takes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from benchmarks.report import ROOT, Report, Table, spread

#: Plays a few rounds in a process of its own, and says how long each part took.
_SCRIPT = """
import json, sys, time
start = time.perf_counter()
import torch, gpytorch, botorch
peers = time.perf_counter()
import torch_kbandits
from torch_kbandits.algorithms import BKB, EKUCB, IGPUCB
imported = time.perf_counter()
torch.manual_seed(0)
kernel = gpytorch.kernels.RBFKernel().double()
kernel.lengthscale = torch.tensor(0.3, dtype=torch.float64)
words = {"kernel": kernel, "regularization": 0.01, "beta": 2.0, "seed": 0}
case = sys.argv[1]
if case == "contexts":
    bandit = EKUCB(context_dim=2, action_dim=2, **words)
else:
    arms = torch.rand(100 if case == "few arms" else 10_000, 3, dtype=torch.float64)
    bandit = (IGPUCB if case == "few arms" else BKB)(candidates=arms, **words)
seconds = []
for t in range(30):
    began = time.perf_counter()
    now = {} if case != "contexts" else {"context": torch.rand(2, dtype=torch.float64)}
    x = bandit.ask(**now, **({"candidates": torch.rand(10, 2, dtype=torch.float64)} if now else {}))
    bandit.tell(x, torch.sin(4.0 * x).sum(), **now)
    seconds.append(time.perf_counter() - began)
print(json.dumps([peers - start, imported - peers, sum(seconds), sum(seconds[-5:]) / 5]))
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
}


@dataclass(frozen=True)
class Sizes:
    """What is run, each in so many processes."""

    cases: tuple[str, ...] = ("few arms", "many arms", "contexts")
    repeats: int = 3
    starts: int = 7


QUICK = Sizes(("few arms",), 1, 1)


def run(quick: bool = False) -> Report:
    """Start processes with an empty cache and with a full one."""
    sizes, measurements = QUICK if quick else Sizes(), list[dict[str, Any]]()
    for case in tqdm(sizes.cases, desc="first_use", unit="case"):
        for _ in range(sizes.repeats):
            with TemporaryDirectory() as folder:
                for state in ("compiled", "read"):
                    measurements.append({"case": case, "loops": state, **_seconds(case, folder)})
    columns = [
        "30 rounds of",
        "loops",
        "torch, GPyTorch, BoTorch, s",
        "torch_kbandits, s",
        "30 rounds, s",
        "a round, ms",
    ]
    rows = []
    for case in sizes.cases:
        for state, words in (("compiled", "compiled now"), ("read", "from the cache")):
            runs = [each for each in measurements if (each["case"], each["loops"]) == (case, state)]
            times = (spread([each[part] for each in runs]) for part in ("peers", "import", "rounds"))
            rows.append([case, words, *times, spread([1e3 * each["round"] for each in runs])])
    title = f"Seconds of a new process, median (least–most) of {sizes.repeats}"
    starts = [{"start": name, "seconds": _start(words)} for _ in range(sizes.starts) for name, words in _STARTS.items()]
    help_rows = [[name, spread([each["seconds"] for each in starts if each["start"] == name])] for name in _STARTS]
    help_title = f"Seconds from start to end, median (least–most) of {sizes.starts}"
    tables = [Table(title, columns, rows), Table(help_title, ["process", "s"], help_rows)]
    return Report("first_use", asdict(sizes), tables, [*measurements, *starts])


def _start(words: tuple[str, ...]) -> float:
    """Return what a process takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", *words], env=_environment(), check=False, capture_output=True)
    return time.perf_counter() - began


def _environment() -> dict[str, str]:
    """Return the environment of processes that import this package from here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def _seconds(case: str, folder: str) -> dict[str, float]:
    """Return what a new process takes."""
    environment = {**_environment(), "NUMBA_CACHE_DIR": folder}
    command = [sys.executable, "-W", "ignore", "-c", _SCRIPT, case]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return dict(zip(("peers", "import", "rounds", "round"), json.loads(said.splitlines()[-1]), strict=True))

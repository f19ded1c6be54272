"""What a process takes from its start to its end that imports, helps or lists; ``rounds`` has README's example."""

import os
import subprocess
import sys

from tqdm import tqdm

from benchmarks.runner import ROOT, Found, Table, benchmark, seconds_of, spread, values

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
    "from torch_kbandits.algorithms import BKB": ("-c", "from torch_kbandits.algorithms import BKB"),
}


@benchmark(starts=1)
def first_use(starts: int = 7) -> Found:
    """Start processes in turns."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    found = []
    for _ in tqdm(range(starts), "first_use"):
        for name, words in _STARTS.items():
            command = [sys.executable, "-W", "ignore", *words]
            given = {"env": {**os.environ, "PYTHONPATH": path}, "check": False, "capture_output": True}
            seconds = seconds_of(lambda command=command, given=given: subprocess.run(command, **given))
            found.append({"process": name, "seconds": seconds})
    rows = [[name, spread(values(found, "seconds", process=name))] for name in _STARTS]
    return [Table(f"Seconds from start to end, median (least–most) of {starts}", ["process", "s"], rows)], found

"""Loops are compiled once, and kept in a folder that was named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from torch_kbandits.loops.compiled import compiled

_PLAYS = """
import torch, gpytorch, torch_kbandits
arms = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
kernel = gpytorch.kernels.RBFKernel().double()
bandit = torch_kbandits.algorithms.IGPUCB(candidates=arms, kernel=kernel, regularization=0.1, beta=2.0, seed=0)
bandit.run(lambda x: x.sum(), 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_writable", [True, False])
def test_loops_are_kept_in_the_folder_named_or_elsewhere(is_writable, tmp_path):
    folder = tmp_path / "cache"
    if not is_writable:
        folder.write_text("")  # a file
    package = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-W", "ignore", "-c", _PLAYS]
    subprocess.run(command, env=os.environ | package, check=True, capture_output=True, cwd=tmp_path)
    assert bool(list(folder.rglob("*.nbc"))) == is_writable


def test_loops_are_compiled_where_no_folder_can_be_written_to(monkeypatch):
    def refused(dispatcher):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(Dispatcher, "enable_caching", refused)
    assert compiled(lambda x: x + 1.0)(1.0) == 2.0

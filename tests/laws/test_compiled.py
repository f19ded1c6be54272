"""Loops are compiled once for a user, and kept in a cache or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PLAYS = """
import torch, gpytorch, torch_kbandits
arms = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
kernel = gpytorch.kernels.RBFKernel().double()
bandit = torch_kbandits.algorithms.IGPUCB(candidates=arms, kernel=kernel, regularization=0.1, beta=2.0, seed=0)
bandit.run(lambda x: x.sum(), 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["a folder", "Numba's", "a file", "nowhere"])
def test_loops_are_kept_in_the_cache_of_the_user_or_not_at_all(place, tmp_path):
    (tmp_path / "file").write_text("")
    caches = {
        "a folder": {"XDG_CACHE_HOME": str(tmp_path)},
        "Numba's": {"XDG_CACHE_HOME": str(tmp_path / "other"), "NUMBA_CACHE_DIR": str(tmp_path)},
        "a file": {"XDG_CACHE_HOME": str(tmp_path / "file")},
        "nowhere": {"XDG_CACHE_HOME": "", "HOME": str(tmp_path / "file" / "such")},
    }[place]
    caches |= {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"} | caches
    command = [sys.executable, "-W", "ignore", "-c", _PLAYS]
    subprocess.run(command, env=environment, check=True, capture_output=True, cwd=tmp_path)
    kept = list((tmp_path / "torch_kbandits").rglob("*.nbc"))
    assert bool(kept) == (place in ("a folder", "Numba's"))

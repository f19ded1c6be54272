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
    root, caches = Path(__file__).resolve().parents[2], {"XDG_CACHE_HOME": str(tmp_path)}
    environment = {**os.environ, "TORCH_KBANDITS_COMPILED": "1", "PYTHONPATH": str(root)}
    environment.pop("NUMBA_CACHE_DIR", None)
    if place == "Numba's":
        caches = {"XDG_CACHE_HOME": str(tmp_path / "other"), "NUMBA_CACHE_DIR": str(tmp_path)}
    elif place == "a file":
        (tmp_path / "taken").write_text("")
        caches = {"XDG_CACHE_HOME": str(tmp_path / "taken")}
    elif place == "nowhere":
        (tmp_path / "none").write_text("")
        caches = {"XDG_CACHE_HOME": "", "HOME": str(tmp_path / "none" / "such")}
    command = [sys.executable, "-W", "ignore", "-c", _PLAYS]
    subprocess.run(command, env=environment | caches, check=True, capture_output=True, cwd=tmp_path)
    kept = list((tmp_path / "torch_kbandits").rglob("*.nbc"))
    assert bool(kept) == (place in ("a folder", "Numba's"))

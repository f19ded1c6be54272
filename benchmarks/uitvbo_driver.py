"""Plays uitvbo on a peak that swings: for a Python of its own, with the PyTorch, GPyTorch and BoTorch of its code.

    PYTHON -m benchmarks.uitvbo_driver < task.json

reads a ``task`` and prints the points that were played after the first ones, and the seconds it took.
"""

import contextlib
import json
import math
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from gpytorch.priors import GammaPrior

ROOT = Path(__file__).resolve().parent.parent

#: A peak that swings on an interval: the length scale of the peak, exp(−(x − c)² / (2ℓ²)), the deviation of the noise,
#: and what is taken off rewards before a model of prior mean zero learns them.
INTERVAL, LENGTHSCALE, NOISE, CENTRE = (-50.0, 50.0), math.sqrt(10.0), 0.1, 1.5


def swing(points: torch.Tensor, round: int) -> torch.Tensor:
    """Return exp(−0.05 (x − 5 sin(0.1 t))²) + 0.5 cos(0.2 x) + 1.5 of points (n, 1): Mauduit et al., 2025, §4.1."""
    x = points[:, 0]
    return torch.exp(-0.05 * (x - 5.0 * math.sin(0.1 * round)) ** 2) + 0.5 * torch.cos(0.2 * x) + 1.5


def play(task: dict[str, Any]) -> dict[str, Any]:
    """Let their time-varying Bayesian optimisation play, in its own loop, with constants that are given.

    Args:
        task: ``folder`` of the checkout; ``seed`` of PyTorch; ``forgetting``, "B2P_OU" or "UI", and
            its ``factor``; the ``first`` points (m, d) and the ``noise`` (T,) of all rounds.
    """
    sys.path.insert(0, task["folder"])
    from src.TVBO import TimeVaryingBOModel  # pyright: ignore[reportMissingImports]

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(task["seed"])
    noise, first = torch.tensor(task["noise"]), torch.tensor(task["first"])

    def reward(points: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        rounds = [int(each) for each in times]
        means = [swing(points[row, None], round) for row, round in enumerate(rounds)]
        return torch.cat(means) - CENTRE + noise[rounds]

    class FromGivenPoints(TimeVaryingBOModel):
        def generate_initial_data(self, n_training_points: int, seed: int, start_time: int = 0) -> Any:
            times = torch.arange(n_training_points)
            self.data_mean, self.data_stdv, self.stable_list = 0.0, 1.0, [True] * n_training_points
            rounds = torch.arange(self.time_horizon)[n_training_points:]
            return torch.cat([first, times[:, None].to(first)], dim=1), reward(first, times), rounds

    player = FromGivenPoints(
        {
            "objective_function": reward,
            "spatio_dimensions": 1,
            "noise_lvl": NOISE,
            "scaling_factors": torch.ones(1),
            "feasible_set": torch.tensor([INTERVAL]).T,
        },
        {
            "constrained_dimensions": [],
            "forgetting_type": task["forgetting"],
            "forgetting_factor": task["factor"],
            "nr_samples": 1,
            "xv_points_per_dim": 1,
            "truncation_bounds": [0, 2],
            "prior_mean": 0.0,
            "lengthscale_constraint": None,
            "lengthscale_hyperprior": GammaPrior(100.0 * LENGTHSCALE, 100.0),  # its mean is taken
        },
        {},
        maximze_acq=True,
        learn_hyper_parameters=False,
        verbose=False,
        dtype=torch.float64,
        normalize=False,
        add_noise=False,
    )
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("results").mkdir()
        start = time.perf_counter()
        player.run_TVBO(len(first), len(noise))
        seconds = time.perf_counter() - start
        (saved,) = Path("results").iterdir()
        points = pickle.loads(saved.read_bytes())["trajectory"]
        os.chdir(ROOT)
    return {"points": points.tolist(), "seconds": seconds}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        played = play(json.load(sys.stdin))
    print(json.dumps(played))

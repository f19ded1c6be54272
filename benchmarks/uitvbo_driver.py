"""Plays uitvbo on a moving box: for a Python of its own, with the PyTorch, GPyTorch and BoTorch that its code needs.

    PYTHON -m benchmarks.uitvbo_driver < task.json

reads a ``task`` and prints the points that were played after the first ones, and the seconds it took.
"""

import contextlib
import json
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from gpytorch.priors import GammaPrior

from benchmarks.moving_boxes import BOXES

ROOT = Path(__file__).resolve().parent.parent


def play(task: dict[str, Any]) -> dict[str, Any]:
    """Let their time-varying Bayesian optimisation play, in its own loop, with constants that are given.

    Args:
        task: ``folder`` of the checkout; ``box`` by name; ``seed`` of PyTorch; ``forgetting``, "B2P_OU" or "UI", and
            its ``factor``; the ``first`` points (m, d) and the ``noise`` (T,) of all rounds.
    """
    sys.path.insert(0, task["folder"])
    from src.TVBO import TimeVaryingBOModel  # pyright: ignore[reportMissingImports]

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(task["seed"])
    box, noise, first = BOXES[task["box"]], torch.tensor(task["noise"]), torch.tensor(task["first"])
    bounds = torch.tensor(box.bounds).T

    def reward(points: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        rounds = [int(each) for each in times]
        means = [box.means(points[row, None], round) for row, round in enumerate(rounds)]
        return torch.cat(means) - box.centre + noise[rounds]

    class FromGivenPoints(TimeVaryingBOModel):
        def generate_initial_data(self, n_training_points: int, seed: int, start_time: int = 0) -> Any:
            times = torch.arange(n_training_points)
            self.data_mean, self.data_stdv, self.stable_list = 0.0, 1.0, [True] * n_training_points
            rounds = torch.arange(self.time_horizon)[n_training_points:]
            return torch.cat([first, times[:, None].to(first)], dim=1), reward(first, times), rounds

    player = FromGivenPoints(
        {
            "objective_function": reward,
            "spatio_dimensions": len(box.bounds),
            "noise_lvl": box.noise,
            "scaling_factors": torch.ones(len(box.bounds)),
            "feasible_set": bounds,
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
            "lengthscale_hyperprior": GammaPrior(100.0 * box.lengthscale, 100.0),  # its mean is taken
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

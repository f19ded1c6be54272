"""GPyTorch kernels beside their dense twins, data to try them on, and rounds to play."""

import atexit
import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
import numpy as np
import oracles
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits import LearnedPrior, UnitCube
from torch_kbandits.integrations.tuning import tuning_bandit

DOUBLE = torch.float64


def in_a_file(arms: Tensor) -> np.memmap:
    """The same arms in a file, which goes with the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    np.save(f"{folder}/arms.npy", arms.numpy())
    return np.load(f"{folder}/arms.npy", mmap_mode="r")


def write(path: Path, *lines: str) -> str:
    """Write lines to a file, and return its path."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


class KernelPair(NamedTuple):
    """A kernel of GPyTorch and the same function in NumPy."""

    make: Callable[[], Kernel]
    dense: oracles.DenseKernel


def exactly(value: float) -> Tensor:
    """GPyTorch rounds Python numbers to single precision on assignment; tensors it takes as they are."""
    return torch.tensor(value, dtype=DOUBLE)


def rbf(lengthscale: float = 0.4, outputscale: float | None = None) -> Kernel:
    base = RBFKernel().double()
    base.lengthscale = exactly(lengthscale)
    return base if outputscale is None else scaled(base, outputscale)


def matern(lengthscale: float = 0.5, outputscale: float = 1.7) -> Kernel:
    base = MaternKernel(nu=2.5).double()
    base.lengthscale = exactly(lengthscale)
    return scaled(base, outputscale)


def linear(variance: float = 0.8) -> Kernel:
    kernel = LinearKernel().double()
    kernel.variance = exactly(variance)
    return kernel


def scaled(base: Kernel, outputscale: float) -> Kernel:
    kernel = ScaleKernel(base).double()
    kernel.outputscale = exactly(outputscale)
    return kernel


KERNELS = {
    "rbf": KernelPair(lambda: rbf(0.4), oracles.rbf(0.4)),
    "scaled rbf": KernelPair(lambda: rbf(0.3, 2.5), oracles.rbf(0.3, 2.5)),
    "matern": KernelPair(lambda: matern(0.5, 1.7), oracles.matern52(0.5, 1.7)),
    "linear": KernelPair(lambda: linear(0.8), oracles.linear(0.8)),
}


def examples(number: int) -> hypothesis.settings:
    """So many examples in the slow suite, and a third of them in the quick one."""
    return hypothesis.settings(max_examples=number * hypothesis.settings.default.max_examples // 30)


def seeded(*address: int) -> torch.Generator:
    """A generator with an address."""
    return torch.Generator().manual_seed(hash(address))


def data(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points in the unit cube (n, d) and rewards (n, 1)."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=DOUBLE)
    noise = 0.1 * torch.randn(n, generator=generator, dtype=DOUBLE)
    return X, (torch.sin(5.0 * X).sum(-1) + noise).unsqueeze(-1)


def dense(*tensors: Tensor) -> list[np.ndarray]:
    """Tensors as float64 arrays."""
    return [tensor.detach().double().numpy() for tensor in tensors]


def difference(ours: Tensor, theirs: Tensor | np.ndarray) -> float:
    """Largest absolute difference; shapes must agree."""
    theirs = torch.tensor(theirs, dtype=DOUBLE) if isinstance(theirs, np.ndarray) else theirs.detach().double()
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float((ours.detach().double() - theirs).abs().max()) if ours.numel() else 0.0


def reward(X):
    """A wave, (q,), at points (q, d)."""
    return torch.sin(5.0 * X).sum(-1)


def on_a_cube(dimension=2, *, algorithm="ek-ucb", seed=0, snap=None, neighbours=None, **words):
    """Return a bandit on the unit cube whose prior is learned; words of ``LearnedPrior`` or of its algorithm."""
    known = {field.name for field in dataclasses.fields(LearnedPrior)} - {"mean", "regularization"}
    prior = LearnedPrior(**{name: words.pop(name) for name in known & words.keys()})
    cube = UnitCube(dimension, snap=snap, neighbours=neighbours)
    return tuning_bandit(algorithm, cube, prior, seed=seed, **words)


def play(bandit, rounds, q=1):
    """Play rounds of q points with a bandit; return what was asked, or None if there were none."""
    asked = []
    for _ in range(rounds):
        X = bandit.ask(q)
        bandit.tell(X, reward(X))
        asked.append(X)
    return torch.cat(asked) if asked else None


def believed(bandit, points):
    """Mean and variance (n,) of a bandit's model at points (n, d) as its kernel sees them."""
    posterior = bandit.model.posterior(points.unsqueeze(-2))
    return posterior.mean.detach().flatten(), posterior.variance.detach().flatten()


class Known:
    """Evidence of a width, with numbers of our choice; others may be said by their name."""

    def __init__(self, num_observations=100, level=0.25, dimension=4.0, gain=3.0, *, norm=0.0, dtype=DOUBLE, **others):
        numbers = {"effective_dimension": dimension, "information_gain": gain, "mean_norm": norm, "kernel_bound": 1.0}
        self.num_observations, self.regularization = num_observations, torch.tensor(level, dtype=dtype)
        for name, value in ({"projection_error": 0.0} | numbers | others).items():
            setattr(self, name, lambda value=value: torch.tensor(value, dtype=dtype))

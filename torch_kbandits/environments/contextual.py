"""Problems with contexts: the three of Zenati et al. (AISTATS 2022) on ten anchor actions, and handwritten digits."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.options import noise_variance, stationary_kernel
from torch_kbandits.environments.problems import Classification, ContextualFunction
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require

#: Ten anchor actions are drawn from these, without replacement.
_GRID = np.arange(0, 1, 0.01)
#: Rewards of the Chessboard by quarter of the context (rows) and of the action (columns).
_BOARD = ((0.0, 0.5, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0), (0.0, 0.5, 0.0, 0.5), (0.0, 0.0, 1.0, 0.0))


def bump(
    *, lengthscale: float = 1.0, noise_scale: float = 0.1, problem_seed: int = 123, seed: int
) -> ContextualFunction:
    """Bump: five context columns, rewards max(0, 1 − |a − a*| − ⟨w*, x − x*⟩) on ten actions in [0, 1).

    Contexts are uniform in [0, 1]^5. a* is one of the actions, x* uniform in [0, 1]^5 and w* in [−1, 1]^5, so the best
    action of every context is a*, and rewards may exceed 1. The kernel is Gaussian on joint points; λ is the square of
    ``noise_scale``, None without noise. ``problem_seed`` addresses the actions (from 0, 0.01, …, 0.99), a*, x* and w*;
    123 is the authors' problem. ``seed`` addresses contexts and noise.

    Source: Zenati et al., AISTATS 2022, §5, and their public code. Differs: regret is noise-free; the kernel's length
    scale is 1 instead of their 0.1, with which nothing is learned from one context for another.
    """
    generator, actions = _anchors(problem_seed)
    best = float(actions[generator.choice(len(actions))])
    context, slopes = (torch.from_numpy(generator.uniform(least, 1, size=5)) for least in (0, -1))
    return _problem(partial(_bump, best, context, slopes), 5, actions, lengthscale, noise_scale, seed)


def _bump(best: float, context: Tensor, slopes: Tensor, X: Tensor) -> Tensor:
    slope = (X[:, :-1] - context.to(X)) @ slopes.to(X)
    return (1.0 - (X[:, -1] - best).abs() - slope).clamp_min(0.0)


def chessboard(
    *, lengthscale: float = 0.1, noise_scale: float = 0.1, problem_seed: int = 123, seed: int
) -> ContextualFunction:
    """Chessboard: rewards 0, 0.5 or 1 by quarter of the context and quarter of the action, on ten actions in [0, 1).

    Contexts are uniform in [0, 1]. Source and arguments are those of ``bump``. Differs: regret is noise-free, and
    against the best action in the context, where theirs is against 1 in every one.
    """
    return _problem(_chessboard, 1, _anchors(problem_seed)[1], lengthscale, noise_scale, seed)


def _chessboard(X: Tensor) -> Tensor:
    rows, columns = (4.0 * X).floor().clamp(0, 3).long().T
    return torch.tensor(_BOARD, dtype=X.dtype, device=X.device)[rows, columns]


def step_diagonal(
    *, lengthscale: float = 0.1, noise_scale: float = 0.1, problem_seed: int = 123, seed: int
) -> ContextualFunction:
    """Step Diagonal: 1 where |x − a − 0.15| < 0.1, 0.5 where |x − a + 0.15| < 0.1, else 0, on ten actions in [0, 1).

    All else is as in ``chessboard``.
    """
    return _problem(_step_diagonal, 1, _anchors(problem_seed)[1], lengthscale, noise_scale, seed)


def _step_diagonal(X: Tensor) -> Tensor:
    context, action = X.T
    upper, lower = (context - (action + 0.15)).abs() < 0.1, (context - (action - 0.15)).abs() < 0.1
    return upper.to(X) + 0.5 * lower.to(X)


def digits(num_components: int = 20, *, lengthscale: float = 4.0, seed: int) -> Classification:
    """Handwritten digits: which of ten labels has this image? 1,797 images of 8 × 8 pixels, a reward of 0 or 1.

    Contexts are the first principal components of the pixels, each scaled to mean 0 and variance 1 over the images.
    The kernel is Gaussian on the context and 1 for equal labels, 0 for others: each label learns alone. λ is 0.25.

    There are 1 to 61 components: three pixels are the same in all images. The seed addresses the order of the images,
    another one in each epoch of 1,797 rounds.

    Source: the test part of Alpaydin and Kaynak's "Optical recognition of handwritten digits" (1998), through
    scikit-learn's ``load_digits``; without it ``MissingExtraError``.
    """
    number = checks.positive_integer("num_components", num_components)
    lengthscale = checks.positive("lengthscale", lengthscale)
    bunch = require("sklearn.datasets").load_digits()
    pixels = torch.from_numpy(bunch.data).double()
    left, values, right = torch.linalg.svd(pixels - pixels.mean(0), full_matrices=False)
    if number > (rank := int((values > 1e-9 * values[0]).sum())):
        raise InputError(f"num_components must be at most {rank}, the rank of the pixels, got {number}.")
    # A component's sign is the solver's choice: its largest loading is made positive.
    largest = right[:number].gather(1, right[:number].abs().argmax(1, keepdim=True)).squeeze(1)
    contexts = left[:, :number] * largest.sign() * len(pixels) ** 0.5
    on_contexts = RBFKernel(active_dims=tuple(range(number))).double()
    on_contexts.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    on_labels = LinearKernel(active_dims=tuple(range(number, number + 10))).double()
    on_labels.variance = torch.tensor(1.0, dtype=torch.float64)
    labels = torch.from_numpy(bunch.target)
    return Classification(contexts, labels, 10, seed, kernel=on_contexts * on_labels, regularization=0.25)


def _anchors(problem_seed: int) -> tuple[np.random.RandomState, np.ndarray]:
    """Return the generator of the problem after its actions were drawn, and those, (10,)."""
    if not 0 <= (number := checks.whole_number("problem_seed", problem_seed)) < 2**32:
        raise InputError(f"problem_seed must be in [0, 2^32), got {problem_seed}.")
    # NumPy's legacy generator, as the authors' code has it, drawn from in their order: so their problem is in reach.
    generator = np.random.RandomState(number)
    return generator, generator.choice(_GRID, size=10, replace=False)


def _problem(
    function: Callable[[Tensor], Tensor], context_dim: int, actions: np.ndarray, length: float, noise: float, seed: int
) -> ContextualFunction:
    kernel = stationary_kernel("rbf", checks.positive("lengthscale", length))
    known = {"kernel": kernel, "regularization": noise_variance(noise)}
    return ContextualFunction(function, context_dim, torch.from_numpy(actions)[:, None], noise, seed, **known)

"""Classification as a contextual bandit: the context is what is to be classified, the action a label."""

from typing import Unpack

import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import ContextualEnvironment, Known, finite_rows, noiseless
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require
from torch_kbandits.numerics.random import generator_for


class Classification(ContextualEnvironment):
    """Labelled examples that come one a round: the action is a label, the reward 1 if it is the right one, else 0.

    Actions are the rows of the identity. Every example comes once in an epoch of n rounds, each epoch in an order of
    its own. Rewards have no noise: what an algorithm takes for noise is that labels are no smooth function of contexts.

    Args:
        contexts: (n, c), the examples.
        labels: (n,) whole numbers in 0, …, L − 1.
        num_labels: L, at least 2.
        seed: addresses the order of the examples.
        noise_scale: R for an algorithm; 0.5 unless given, which holds for every reward in [0, 1].
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
    """

    actions: Tensor

    def __init__(
        self,
        contexts: Tensor,
        labels: Tensor,
        num_labels: int,
        seed: int,
        *,
        noise_scale: float = 0.5,
        **known: Unpack[Known],
    ) -> None:
        super().__init__(noise_scale, seed, noise=noiseless, **known)
        self.contexts = contexts = finite_rows("contexts", contexts, "(n, c) with n >= 1")
        self.labels = torch.tensor(checks.whole_numbers("labels", labels), dtype=torch.long, device=contexts.device)
        number = checks.size("num_labels", num_labels, least=2)
        if len(self.labels) != len(contexts):
            raise InputError(f"labels must be one for each of {len(contexts)} contexts, (n,), got {len(self.labels)}.")
        least, largest = int(self.labels.min()), int(self.labels.max())
        if least < 0 or largest >= number:
            raise InputError(f"labels must be in 0, …, {number - 1}, got {least} to {largest}.")
        self.context_dim = contexts.shape[1]
        self.actions = torch.eye(number, dtype=contexts.dtype, device=contexts.device)
        self._epoch: tuple[int, list[int]] = (0, self._order(0))

    def example(self, round: int) -> int:
        """Return which example comes in a round. Cost: O(n) where the epoch is another one than in the last call."""
        epoch, place = divmod(round, len(self.contexts))
        if self._epoch[0] != epoch:
            self._epoch = epoch, self._order(epoch)
        return self._epoch[1][place]

    def context(self, round: int) -> Tensor:
        """Return the context (c,) of a round."""
        return self.contexts[self.example(round)].clone()

    def mean(self, X: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of joint points X (q, c + L) in a round: 1 for the label of its example, else 0."""
        return (self.positions(X, round) == self.labels[self.example(round)]).to(X)

    def _order(self, epoch: int) -> list[int]:
        generator = generator_for(self.seed, epoch, "order")
        return torch.randperm(len(self.contexts), generator=generator, device="cpu").tolist()


def digits(num_components: int = 20, *, lengthscale: float = 4.0, seed: int) -> Classification:
    """Handwritten digits: which of ten labels has this image? 1,797 images of 8 × 8 pixels, a reward of 0 or 1.

    Contexts are the first principal components of the pixels, each scaled to mean 0 and variance 1 over the images.
    The kernel is Gaussian on the context and 1 for equal labels, 0 for others: each label learns alone. Over 1,200
    images in one order its UCB with λ = 0.25 and β = 1 is right in 69, 75, 81 and 78% of the rounds with length scales
    of 2, 3, 4 and 6.

    Source: the test part of Alpaydin and Kaynak's "Optical recognition of handwritten digits" (1998), through
    scikit-learn's ``load_digits``.

    Args:
        num_components: c, 1 to 61: three pixels are the same in all images.
        lengthscale: of the Gaussian kernel on the context, whose columns have variance 1.
        seed: addresses the order of the images, another one in each epoch of 1,797 rounds.

    Returns:
        Contexts (c,), actions (10, 10); noise scale 0.5 and λ = 0.25.

    Raises:
        MissingExtraError: if scikit-learn is not installed.
        InputError: if an option does not fit.
    """
    number = checks.positive_integer("num_components", num_components)
    lengthscale = checks.positive("lengthscale", lengthscale)
    bunch = require("sklearn.datasets").load_digits()
    contexts = _principal_components(torch.from_numpy(bunch.data).double(), number)
    on_contexts = RBFKernel(active_dims=tuple(range(number))).double()
    on_contexts.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    on_labels = LinearKernel(active_dims=tuple(range(number, number + 10))).double()
    on_labels.variance = torch.tensor(1.0, dtype=torch.float64)
    known = {"kernel": on_contexts * on_labels, "regularization": 0.25}
    return Classification(contexts, torch.from_numpy(bunch.target), 10, seed, **known)


def _principal_components(pixels: Tensor, number: int) -> Tensor:
    """Return the first principal components of pixels (n, p), of mean 0 and variance 1, (n, number)."""
    left, values, right = torch.linalg.svd(pixels - pixels.mean(0), full_matrices=False)
    rank = int((values > 1e-9 * values[0]).sum())
    if number > rank:
        raise InputError(f"num_components must be at most {rank}, the rank of the pixels, got {number}.")
    # A component's sign is the solver's choice: its largest loading is made positive.
    largest = right[:number].gather(1, right[:number].abs().argmax(1, keepdim=True)).squeeze(1)
    return left[:, :number] * largest.sign() * len(pixels) ** 0.5

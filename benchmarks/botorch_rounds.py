"""One round over many arms with BoTorch's own models: what the arm table is compared with."""

from collections.abc import Callable

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from benchmarks.arm_bandits import BETA, REGULARIZATION, Case, kernel
from torch_kbandits.environments.arms import FiniteArms

#: Arms whose posterior is computed at a time: of 512, 2,048 and all, this was the fastest for the exact model.
_BLOCK = 512

#: Returns the arm (1, d) to play next.
BoTorchRound = Callable[[], Tensor]


def observations(environment: FiniteArms, n: int) -> tuple[Tensor, Tensor]:
    """Return noisy rewards (n,) of the first n arms, and these arms (n, d) before them."""
    noise = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return environment.arms[:n].clone(), environment.means[:n] + environment.noise_scale * noise


def exact_search(arms: Tensor, X: Tensor, Y: Tensor, case: Case) -> BoTorchRound:
    """Return a round of the exact GP: condition on X (n, d), Y (n,), then ``optimize_acqf_discrete`` over arms (A, d).

    Hyperparameters are fixed, so nothing is fitted. BoTorch's UCB multiplies the standard deviation by √beta.
    """

    def play() -> Tensor:
        acquisition = UpperConfidenceBound(_exact(X, Y, case), beta=BETA**2)
        best, _ = optimize_acqf_discrete(acquisition, q=1, choices=arms)
        return best

    return play


def exact_blocks(arms: Tensor, X: Tensor, Y: Tensor, case: Case) -> BoTorchRound:
    """Return the same round with the posterior taken in blocks of arms: the fastest way that was found."""
    return lambda: _best_of_blocks(_exact(X, Y, case), arms)


def variational_blocks(arms: Tensor, inducing_points: Tensor, case: Case) -> BoTorchRound:
    """Return a round of the sparse variational GP without its training: only the posterior and UCB of all arms (A, d).

    The variational distribution is left where it starts, since its values do not change what a search costs. What
    depends on the inducing points alone is cached before. ``optimize_acqf_discrete`` is not used: with 350 inducing
    points it solves a system for every single arm and takes a hundred times as long.
    """
    model = SingleTaskVariationalGP(
        inducing_points,
        likelihood=GaussianLikelihood().to(arms),
        covar_module=kernel(case.lengthscale),
        inducing_points=inducing_points,
        learn_inducing_points=False,
        outcome_transform=None,
    ).eval()
    _best_of_blocks(model, arms[:10])
    return lambda: _best_of_blocks(model, arms)


def _exact(X: Tensor, Y: Tensor, case: Case) -> SingleTaskGP:
    train_Y = Y.unsqueeze(-1)
    noise = torch.full_like(train_Y, REGULARIZATION)
    model = SingleTaskGP(X, train_Y, noise, covar_module=kernel(case.lengthscale), outcome_transform=None)
    return model.eval()


@torch.no_grad()
def _best_of_blocks(model: SingleTaskGP | SingleTaskVariationalGP, arms: Tensor) -> Tensor:
    scores = []
    for block in arms.split(_BLOCK):
        posterior = model.posterior(block)
        scores.append(posterior.mean + BETA * posterior.variance.sqrt())
    return arms[torch.cat(scores).argmax(), None]

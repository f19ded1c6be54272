"""What limits on outcomes are compared with: BoTorch's constrained logarithmic expected improvement.

No line is shared with the package.
"""

from collections.abc import Callable

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Tensor

#: Draws of the outcomes, and starts of a search and points among which they are found.
_DRAWS, _STARTS, _RAW = 128, 4, 128


def play(
    objective: Callable[[Tensor], Tensor],
    constraint: Callable[[Tensor], Tensor],
    limit: float,
    bounds_or_arms: Tensor,
    num_rounds: int,
    seed: int,
    first_points: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Maximise an objective where another outcome is at most a limit, as BoTorch's tutorials do.

    Both outcomes have a ``SingleTaskGP`` with BoTorch's default priors and standardisation, fitted in every round. The
    best value to improve on is that of the plays that kept the limit as measured; without any it is the least seen.

    Args:
        objective: takes points (q, d) to what is measured of it, (q,).
        constraint: takes points (q, d) to what is measured of the other outcome, (q,).
        limit: the most that it is to be.
        bounds_or_arms: a box as BoTorch has it, (2, d), lower before upper in each coordinate, or arms (A, d), A > 2.
        num_rounds: after the first points.
        seed: of torch's generator, which is left as it was, and of the draws.
        first_points: played before there is a model, (k, d), k >= 2.

    Returns:
        The points (k + num_rounds, d), and what was measured of objective and constraint, (k + num_rounds,) each.

    Cost of a round: two fits, O(n³) an evaluation, and a search of ``_DRAWS`` draws a point.
    """
    X = first_points.double()
    f, c = objective(X), constraint(X)
    box = bounds_or_arms.double() if len(bounds_or_arms) == 2 else None
    scale = box if box is not None else torch.stack([bounds_or_arms.amin(0), bounds_or_arms.amax(0)]).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for turn in range(num_rounds):
            models = [
                SingleTaskGP(X, y.unsqueeze(-1), input_transform=Normalize(X.shape[-1], bounds=scale)) for y in (f, c)
            ]
            model = ModelListGP(*models)
            fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
            kept = f[c <= limit]
            acquisition = qLogExpectedImprovement(
                model,
                best_f=kept.max() if len(kept) else f.min(),
                sampler=SobolQMCNormalSampler(torch.Size([_DRAWS]), seed=seed + turn),
                objective=GenericMCObjective(lambda Z, X=None: Z[..., 0]),
                constraints=[lambda Z: Z[..., 1] - limit],
            )
            if box is None:
                x, _ = optimize_acqf_discrete(acquisition, q=1, choices=bounds_or_arms.double(), max_batch_size=1024)
            else:
                x, _ = optimize_acqf(acquisition, box, q=1, num_restarts=_STARTS, raw_samples=_RAW)
            X, f, c = torch.cat([X, x]), torch.cat([f, objective(x)]), torch.cat([c, constraint(x)])
    return X, f, c

"""How models are fitted: by the exact likelihood of blocks of observations, then by a bound where that is tight."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import botorch.fit
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.optim.closures import model_closures
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from torch import Tensor

from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.numerics.gram import gram, prior_mean
from torch_kbandits.numerics.linalg import normal_log_density

#: At most so many observations make a block, and so many blocks are used. Of 1,000 in d = 8 blocks of 200 made errors
#: 5 % larger than the likelihood of all, of 334 2 %. Of 3,000 in d = 2 two blocks did as well as eight.
_BLOCK, _MOST_BLOCKS = 400, 5

#: What a dictionary of no more than a block may leave, in nats an observation, for the bound to be maximised: λ comes
#: out too large by twice this share. With 0.02 to 0.2 errors were 1 to 15 % above those of blocks, below 0.01 lower.
_LEFT_OUT = 0.01

#: Given a model and its marginal likelihood, what a fit minimises, (...,).
Loss = Callable[..., Tensor]


def fitted(
    model: Any, mll: MarginalLogLikelihood, *, closure: Callable[..., Any] | None = None, **words: Any
) -> MarginalLogLikelihood:
    """Fit a model as ``fit_gpytorch_mll`` is asked to, and let its rule choose the dictionary again.

    What is maximised is the exact likelihood, or with a dictionary that of blocks of observations: the bound takes what
    a dictionary leaves for noise. Where it leaves next to nothing the fit goes on with the bound of all observations,
    also of those near each other. A closure, or another objective than the marginal likelihood, is optimised as it is.

    Source: Deisenroth and Ng, ICML 2015, §3.1 (blocks, drawn at random); Titsias, AISTATS 2009 (the bound).

    Cost: O(r b²) for each of some hundred evaluations, b = 400 and r = 2,000 or n if that is fewer; then O(n m²).
    """
    if model.num_observations == 0:
        raise EmptyHistoryError("There is nothing to fit: the model has no observations.")

    def minimized(loss: Loss) -> None:
        model._loss = loss
        try:
            fit_gpytorch_mll(mll, closure=closure, **words)
        finally:
            model._loss = None
        model._choose_again()

    if closure is not None or type(mll) is not ExactMarginalLogLikelihood:
        minimized(_loss)
        return mll.eval()
    rows = _blocks(model.num_observations, model._dictionary() is not None)
    minimized(partial(_loss_of_blocks, rows=rows))
    is_small = len(rows) > 1 and model._dictionary().shape[-2] <= _BLOCK
    if is_small and float(model.projection_error().max()) <= 2.0 * _LEFT_OUT * model.num_observations:
        minimized(_loss)
    return mll.eval()


def let_older_botorch_fit(kind: type) -> None:
    """Let BoTorch below 0.18, which looks up by types what fits a model, fit those of a class as it says itself."""
    fits: Any = getattr(botorch.fit, "FitGPyTorchMLL", None)
    losses: Any = getattr(model_closures, "GetLossClosure", None)
    if fits is None or losses is None:
        return

    @fits.register(ExactMarginalLogLikelihood, object, kind)
    def fit(mll: Any, *types: Any, **words: Any) -> MarginalLogLikelihood:
        if mll.model._loss is None:
            return mll.model.custom_fit(mll, **words)
        return fits.dispatch(MarginalLogLikelihood, object, object)(mll, *types, **words)

    @losses.register(ExactMarginalLogLikelihood, object, kind, type(None))
    def loss(mll: Any, *types: Any, **words: Any) -> Callable[..., Tensor]:
        return partial(mll.model._loss or _loss, mll.model, mll)


def _blocks(n: int, is_divided: bool) -> Tensor:
    """Return rows of the observations (K, b): of each K rows one after another a block has one, at random.

    Rows that come later leave most blocks as they are, so that a fit that starts from the last one is short.
    """
    number = -(-n // _BLOCK) if is_divided else 1
    groups = torch.arange(n - n % number).reshape(-1, number)
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(groups.shape, generator=generator, dtype=torch.float64, device="cpu").argsort(-1)
    return groups.gather(-1, order).mT[:_MOST_BLOCKS]


def _loss(model: Any, mll: MarginalLogLikelihood, **words: Any) -> Tensor:
    """Return the negative objective, as BoTorch does."""
    seen = (model.transform_inputs(X) for X in model.train_inputs)
    return -cast(Tensor, mll(model(*model.train_inputs), model.train_targets, *seen, **words))


def _loss_of_blocks(model: Any, mll: MarginalLogLikelihood, *, rows: Tensor, **words: Any) -> Tensor:
    """Return the negative log density of rows (K, b) and of the hyperparameters, an observation, (...,)."""
    X = model.transform_inputs(model.train_inputs[0])
    noise = model.likelihood._shaped_noise_covar(X.shape[:-1], X).diagonal(dim1=-2, dim2=-1)
    residuals = model.train_targets - prior_mean(model.mean_module, X)
    noise, residuals = (part.expand(residuals.shape)[..., rows].movedim(-2, 0) for part in (noise, residuals))
    covariance = gram(model.covar_module, X[..., rows, :].movedim(-3, 0)) + torch.diag_embed(noise)
    density = normal_log_density(covariance.double(), residuals.double()).sum(0)
    for _, module, prior, closure, _ in model.named_priors():
        of_prior = prior.log_prob(closure(module))
        density = density + of_prior.reshape(*of_prior.shape[: density.dim()], -1).sum(-1)
    return -density / rows.numel()

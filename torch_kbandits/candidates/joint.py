"""Joint points of contexts and actions, with a BoTorch model on the whole history."""

import warnings
from dataclasses import replace
from typing import cast

import torch
from botorch.exceptions import BadInitialCandidatesWarning
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, DiscretizedThompsonSampling, Domain, hallucinate
from torch_kbandits.candidates.model_belief import ModelBelief, ModelLookahead
from torch_kbandits.candidates.ties import highest, tie_width
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import InputError
from torch_kbandits.gram import prior_variance
from torch_kbandits.models import NystromGP, OnlineGP


class JointBelief(ModelBelief):
    """A model of rewards at joint points, asked about the actions of one context at a time."""

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float, *, exact: bool) -> None:
        super().__init__(example, kernel, regularization, exact=exact)
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, example).max()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of a played point, 0-dim; for stationary kernels that of all points."""
        return self._kernel_bound

    def update(self, X: Tensor, Y: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        with torch.no_grad():
            bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())
        super().update(X, Y, selection)
        self._kernel_bound = bound

    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor, weights: Tensor | None = None) -> None:
        """Condition the prior on a whole history at a known dictionary."""
        super().restore(X, Y, inducing_points, weights)
        with torch.no_grad():
            self._kernel_bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())

    def lookahead(self, pending: Tensor) -> "JointLookahead":
        """Return the model with points (k, d) pending."""
        return JointLookahead(self, pending)


class JointLookahead(ModelLookahead):
    """The model with points pending, asked about the actions of one round."""

    def __init__(self, belief: JointBelief, pending: Tensor) -> None:
        super().__init__(belief, pending)
        self._belief: JointBelief = belief

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the joint point (1, d) of the highest score; equals are broken by lot."""
        domain = required(domain)
        model, pending = self._belief.posterior_model, self.pending if len(self.pending) else None
        if domain.arms is None:
            return on_box(rule, model, self._belief.num_observations, beta, pending, domain, seed)
        with torch.no_grad():
            scores = rule.on_arms(_Offer(model, pending, domain.arms), beta, seed)
        return domain.arms[best_of(scores, beta, self._belief.kernel_bound(), seed), None].clone()

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the pending points, 0-dim: the contexts to come are not known."""
        before = self._belief.variance(self.pending)
        with torch.no_grad():
            model = cast(NystromGP | OnlineGP, hallucinate(self._belief.posterior_model, self.pending))
            after = model.posterior(self.pending.unsqueeze(-2)).variance.flatten()
        least = torch.finfo(before.dtype).eps * self._belief.kernel_bound()
        return ((before + least) / (after + least)).max()


class _Offer:
    """A model at the actions of a round, as ``ArmPosterior``."""

    def __init__(self, model: NystromGP | OnlineGP, pending: Tensor | None, arms: Tensor) -> None:
        self._model, self._pending, self._arms = model, pending, arms
        self._posterior: GPyTorchPosterior | None = None

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        return self._at_arms().mean.flatten()

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (A,)."""
        if self._pending is None:
            return self._at_arms().variance.flatten()
        ahead = cast(NystromGP | OnlineGP, hallucinate(self._model, self._pending))
        return ahead.posterior(self._arms.unsqueeze(-2)).variance.flatten()

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of an action in this context, 0-dim."""
        return self.mean.max()

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the actions, (A,); equal actions get equal values."""
        draw = DiscretizedThompsonSampling(self._model, self._arms, beta=1.0, seed=seed).draws(1)[0]
        return draw - self.mean

    def _at_arms(self) -> GPyTorchPosterior:
        if self._posterior is None:
            self._posterior = cast(GPyTorchPosterior, self._model.posterior(self._arms.unsqueeze(-2)))
        return self._posterior


def required(domain: Domain | None) -> Domain:
    """Return the domain of a round, without which nothing can be chosen among contextual actions."""
    if domain is None:
        raise InputError("Contextual actions are chosen from in a round: its domain is missing.")
    return domain


def best_of(scores: Tensor, beta: Tensor, kernel_bound: Tensor, seed: int) -> int:
    """Return the position of the highest score (A,); scores that differ by rounding only are broken by lot.

    The lot is the round's: actions differ from round to round, so there is no order of all of them.
    """
    ranks = torch.rand(len(scores), generator=torch.Generator().manual_seed(seed)).to(scores.device)
    return highest(scores, ranks, tie_width(scores.max(), beta, kernel_bound))


def on_box(
    rule: AcquisitionRule,
    model: NystromGP | OnlineGP,
    num_observations: int,
    beta: Tensor,
    pending: Tensor | None,
    domain: Domain,
    seed: int,
) -> Tensor:
    """Return the joint point (1, d) that a rule finds over a box of actions; a uniform one before any reward.

    The search also starts from the action told last, which is no context's optimum but often near one. In a context far
    from all that was seen every action is as good; BoTorch's warning of that is not passed on.
    """
    if rule.needs_observations and num_observations == 0:
        lower, upper = cast(Tensor, domain.bounds)
        uniform = torch.rand(1, len(lower), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return domain.in_context(lower + (upper - lower) * uniform.to(lower))
    last = domain.in_context(model.train_inputs[0][-1:]).clamp(*cast(Tensor, domain.bounds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadInitialCandidatesWarning)
        return rule.on_box(model, beta, pending, replace(domain, starts=last), seed)

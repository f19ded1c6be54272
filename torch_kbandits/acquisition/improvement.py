"""Improvement over the best of what was played, as a BoTorch acquisition function."""

from typing import cast

import torch
from botorch.acquisition.analytic import (
    AnalyticAcquisitionFunction,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor
from typing_extensions import override

from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.pending import PendingPoints, hallucinate
from torch_kbandits.errors import InputError
from torch_kbandits.models.normal import least_variance


class _Unrounded(AnalyticAcquisitionFunction):
    """BoTorch's analytic functions without its least variance, which means nothing where units are the user's."""

    def _mean_and_sigma(
        self, X: Tensor, compute_sigma: bool = True, min_var: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        return super()._mean_and_sigma(X, compute_sigma, least_variance(X.dtype))


class UnroundedLogEI(_Unrounded, LogExpectedImprovement):
    """The logarithm of the expected improvement."""


class UnroundedLogPI(_Unrounded, LogProbabilityOfImprovement):
    """The logarithm of the probability of improvement."""


class ImprovementFunction(PendingPoints):
    """BoTorch's improvement over the largest posterior mean of a point played or pending, 0 before any.

    Pending points count as observed at their posterior means. In a context improvement is over the largest posterior
    mean of the actions.

    Args:
        model: without anything pending.
        X_pending: points pending, (k, d); None for none.
        domain: where the function is maximised.
        kind: of improvement.
        margin: improvements count above this, in reward units.

    Raises:
        InputError: if the domain is a box in a context and has no incumbent.
    """

    def __init__(
        self,
        model: Model,
        X_pending: Tensor | None,
        domain: Domain,
        kind: type[UnroundedLogEI] | type[UnroundedLogPI],
        margin: float = 0.0,
    ) -> None:
        super().__init__(model=model)
        known = cast(tuple[Tensor], model.train_inputs)[0]
        self._round: Domain | None = Domain(context=domain.context, allows=domain.allows)
        if domain.incumbent is not None:
            known = domain.incumbent
        elif domain.arms is not None and domain.context is not None:
            known = domain.arms if domain.allowed is None else domain.arms[domain.allowed]
            self._round = None
        elif domain.context is not None and len(known):
            raise InputError(
                "Improvement on a box of actions beside a context is over the best mean in that context: "
                "Domain.incumbent is missing. Search for the point (1, d) of the largest posterior mean and give that."
            )
        self.register_buffer("_known", known, persistent=False)
        self._known: Tensor
        self._kind, self._margin = kind, margin
        self.set_X_pending(X_pending)

    def forward(self, X: Tensor) -> Tensor:
        """Return the logarithms of the improvement at single points X (b, 1, d), (b,)."""
        if self._made is None:
            with torch.no_grad():
                model = self.model if self.X_pending is None else hallucinate(self.model, self.X_pending)
                self._made = (self._kind(model, best_f=self._incumbent() + self._margin),)
        return self._made[0](X)

    def _incumbent(self) -> Tensor:
        """Return what is to be improved on, 0-dim."""
        known = self._known
        if self.X_pending is not None and self._round is not None:
            known = torch.cat([known, self._round.eligible(self.X_pending)])
        if len(known) == 0:
            return known.new_zeros(())
        return cast(GPyTorchPosterior, self.model.posterior(known.unsqueeze(-2))).mean.max()

    @override
    def _forget_pending(self) -> None:
        # In a tuple, so that it stays out of the module tree and the state_dict.
        self._made: tuple[UnroundedLogEI | UnroundedLogPI] | None = None

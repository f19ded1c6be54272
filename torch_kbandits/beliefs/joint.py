"""Beliefs of models about the actions of one context."""

from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import hallucinate
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.joint_lookahead import JointLookahead
from torch_kbandits.beliefs.model_belief import ModelBelief
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import gram, prior_variance


class JointBelief(ModelBelief):
    """A BoTorch model of rewards at joint points, asked about the actions of one context at a time.

    Args:
        example: points (k, d), k >= 1, whose dtype and device all tensors have.
        kernel: the prior covariance.
        regularization: λ.
        exact: whether the posterior is the exact one.
        online: whether the dictionary rule decides about each point once, when it is told.
        memory: which observations count at a time; None where all do for ever.
        tie_rank: the order in which ties between arms are broken, (A,), if the actions are always the same.
    """

    def __init__(
        self,
        example: Tensor,
        kernel: Kernel,
        regularization: float,
        *,
        exact: bool,
        online: bool = False,
        memory: Memory | None = None,
        tie_rank: Tensor | None = None,
    ) -> None:
        super().__init__(example, kernel, regularization, exact=exact, online=online, memory=memory)
        self.tie_rank = None if tie_rank is None else tie_rank.to(example.device)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> JointLookahead:
        """Return the model with points (k, d) pending."""
        return JointLookahead(self, pending)

    # ---------------------------------------------------------------- the posterior at points, see ``JointPosterior``

    def embed(self, X: Tensor) -> Embedded:
        """Return points (k, d) as the posterior sees them."""
        return Embedded(X, self._model.embed(X), prior_variance(self.kernel, X))

    def mean_at(self, at: Embedded) -> Tensor:
        """Return posterior means, (k,)."""
        return self._model.factors.mean(at.coordinates)

    def variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances, (k,)."""
        return self._model.factors.variance(at.prior_variance, at.coordinates)

    def hallucinated(self, points: Tensor) -> Self:
        """Return the belief conditioned on its mean at points (k, d), which join the dictionary; this one stays."""
        other = copy(self)
        with torch.no_grad():
            other._model = cast(NystromGP | OnlineGP, hallucinate(self._model, points))
        return other

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.kernel, left.points, right.points)
        return prior - self._model.factors.explained(left.coordinates, right.coordinates)

    def remember(self, at: Embedded) -> None:
        """Keep nothing: the model embeds what it is told."""

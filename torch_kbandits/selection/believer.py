"""The posterior once points pending count as told, at values of a function that is drawn from it."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.experts import Answers
from torch_kbandits.selection.base import FantasyPosterior
from torch_kbandits.selection.propensities import Chosen


class BelievedFantasy(FantasyPosterior):
    """A posterior that believes a draw: pending points count as told at the values of one function drawn from it.

    So variances shrink as with other fantasies, and means move, too. The draw follows from the seed and the order of
    the points.

    Args:
        surrogate: without anything pending.
        pending: (k, d).
        seed: of the draw.
    """

    def __init__(self, surrogate: Any, pending: Tensor, seed: int) -> None:
        super().__init__(pending[:0])
        self._before, self._drawn, self._seed = surrogate, surrogate, seed
        #: With the pending points told.
        self.surrogate: Any = surrogate
        for row in range(len(pending)):
            self.add(pending[row : row + 1])

    def _add(self, point: Tensor, times: int, stage: int | None) -> None:
        noise = self.surrogate.regularization.double().reshape(1)
        for number in range(self.num_pending, self.num_pending + times):
            mean, variance = (each.double().cpu() for each in self._drawn.moments(point))
            generator = generator_for(self._seed, number, "believed")
            normal = torch.randn(1, generator=generator, dtype=torch.float64, device="cpu")
            value = (mean + variance.clamp_min(0.0).sqrt() * normal).to(point)
            self._drawn = self._drawn.advised(Answers(point, value, 0.0 * noise))  # which the function has there
            self.surrogate = self.surrogate.advised(Answers(point, value, noise))

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point that a rule chooses with the draws told."""
        return self._ahead().choose(rule, beta, seed, domain)

    def offered(self, domain: Domain) -> Any:
        """Return the posterior with the draws told at what may be played in a round."""
        return self._ahead().offered(domain)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return means at points X (q, d), of what was told in truth, and variances with the draws told, each (q,)."""
        return self._before.moments(X)[0], self.surrogate.moments(X)[1]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._before.fantasized(self.pending).pending_scores()

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio of the variance without and with pending points, 0-dim."""
        return self._before.fantasized(self.pending).variance_ratio()

    def _ahead(self) -> FantasyPosterior:
        return self.surrogate.fantasized(self.pending[:0])

"""The posterior over a box, and the search for the best point of it."""

from dataclasses import replace
from typing import cast

import torch
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, hallucinate
from torch_kbandits.beliefs.model_belief import ModelBelief, ModelLookahead
from torch_kbandits.candidates import Box
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.rows import distinct

#: Points of the box at which the largest prior variance, and the largest change of a variance, are sought.
_PROBES = 512


class BoxBelief(ModelBelief):
    """A model on the whole history, and where in the box its acquisition functions are searched."""

    def __init__(
        self,
        box: Box,
        kernel: Kernel,
        regularization: float,
        seed: int,
        *,
        exact: bool,
        online: bool = False,
        memory: Memory | None = None,
    ) -> None:
        probes = torch.cat([box.bounds, draw_sobol_samples(box.bounds, n=_PROBES, q=1, seed=0).squeeze(-2)])
        super().__init__(probes, kernel, regularization, exact=exact, online=online, memory=memory)
        self.box = box
        self.seed = seed_for(seed, 0, "sobol") % 2**31
        self.probes = probes
        self._known_incumbent = self._model, box.example

    @property
    def domain(self) -> Domain:
        """The box, with the last point learned and the learned point of the largest posterior mean to start from.

        The former is the optimum of the last search, if points were told as asked. Both follow from the history, so a
        loaded bandit searches as the saved one would. Points outside the box are moved to its border. Pending points
        are no starts: where a shrunken deviation raises a score, as it may the probability of improvement, the search
        would stay there.

        The largest mean is sought once for given rewards, at O(n m) for m points in the basis. It may lose a tie to
        rounding, which ``recommend`` does not and the start of a search can afford.
        """
        if self.num_observations == 0:
            return self.box.domain
        model, incumbent = self._known_incumbent
        if model is not self._model:
            incumbent = self._X[self._model.observed_means().argmax(), None]
            self._known_incumbent = self._model, incumbent
        starts = torch.cat([self._X[-1:], incumbent]).clamp(*self.box.bounds)
        return replace(self.box.domain, starts=distinct(starts)[0])

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "BoxLookahead":
        """Return the model with points (k, d) pending."""
        return BoxLookahead(self, pending)


class BoxLookahead(ModelLookahead):
    """The model with points pending, searched over the box."""

    def __init__(self, belief: BoxBelief, pending: Tensor) -> None:
        super().__init__(belief, pending)
        self._belief: BoxBelief = belief

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the point (1, d) that the rule finds; points of a Sobol sequence before any reward."""
        box = self._belief.box
        if rule.needs_observations and self._belief.num_observations == 0:
            number = len(self.pending)
            return draw_sobol_samples(box.bounds, n=number + 1, q=1, seed=self._belief.seed)[number]
        pending = self.pending if len(self.pending) else None
        return rule.on_box(self._belief.posterior_model, beta, pending, self._belief.domain, seed)

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over corners, a Sobol set and the pending points, 0-dim."""
        X = torch.cat([self._belief.probes, self.pending])
        before = self._belief.variance(X)
        with torch.no_grad():
            model = cast(NystromGP | OnlineGP, hallucinate(self._belief.posterior_model, self.pending))
            after = model.posterior(X.unsqueeze(-2)).variance.flatten()
        least = torch.finfo(X.dtype).eps * self._belief.kernel_bound()
        return ((before + least) / (after + least)).max()

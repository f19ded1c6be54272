"""Where in a box the next point is sought."""

from dataclasses import dataclass, replace

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates import Box
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.rows import distinct

#: Points of the box at which the largest prior variance, and the largest change of a variance, are sought.
_PROBES = 512


@dataclass(frozen=True, eq=False)
class BoxSearch:
    """A box, and the points of it that are evaluated first.

    Attributes:
        box: the bounds and the effort of the search.
        seed: of the first points.
        probes: the corners and a Sobol set, (k, d), which stand for all points.
    """

    box: Box
    seed: int
    probes: Tensor

    @classmethod
    def of(cls, box: Box, seed: int) -> "BoxSearch":
        """Return the search in a box by a bandit of a seed."""
        probes = torch.cat([box.bounds, draw_sobol_samples(box.bounds, n=_PROBES, q=1, seed=0).squeeze(-2)])
        return cls(box, seed_for(seed, 0, "sobol") % 2**31, probes)

    def first(self, number: int) -> Tensor:
        """Return the point (1, d) of this number in a Sobol sequence, for before any reward."""
        return draw_sobol_samples(self.box.bounds, n=number + 1, q=1, seed=self.seed)[number]

    def domain(self, latest: Tensor, incumbent: Tensor) -> Domain:
        """Return the box, with the last point learned and that of the largest posterior mean, (1, d), to start from.

        The former is the optimum of the last search, if points were told as asked. Both follow from the history, so a
        loaded bandit searches as the saved one would. Points outside the box are moved to its border. Pending points
        are no starts: where a shrunken deviation raises a score, as it may the probability of improvement, the search
        would stay there.
        """
        starts = torch.cat([latest, incumbent]).clamp(*self.box.bounds)
        return replace(self.box.domain, starts=distinct(starts)[0])

"""How strongly points are to be drawn on a section: as far as they count now, and as far as they are near it."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require
from torch_kbandits.looking.section import Section
from torch_kbandits.numerics.gram import gram, prior_variance

#: What would be drawn more faintly is left out.
FAINTEST = 0.02
#: Points whose kernel values are computed at a time.
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Marks:
    """Points to be drawn on a section.

    Attributes:
        X: points (k, d).
        strength: (k,) in [0, 1], in double precision; 1 for a point on the section that counts in full.
    """

    X: Tensor
    strength: Tensor

    @property
    def drawn(self) -> Tensor:
        """Which are strong enough to be seen, (k,)."""
        return self.strength >= FAINTEST


def nearness(kernel: Kernel, section: Section, X: Tensor) -> Tensor:
    """Return how much points X (q, d) say about the section, (q,) in [0, 1].

    It is the squared prior correlation of the function there and at the point moved onto the section: 1 on the section,
    and 0 for a point beyond the range that is shown. With the time among the fixed coordinates it falls with the age.
    """
    parts = [torch.zeros(0, dtype=torch.float64, device=X.device)]
    with torch.no_grad():
        for block in X.split(_BLOCK):
            moved = section.through(block)
            covariance = gram(kernel, block.unsqueeze(-2), moved.unsqueeze(-2)).flatten()
            # On the section it is 1 exactly, also where the prior variance is 0.
            scale = (prior_variance(kernel, block) * prior_variance(kernel, moved)).clamp_min(torch.finfo(X.dtype).tiny)
            share = torch.where((block == moved).all(-1), torch.ones_like(scale), covariance.square() / scale)
            parts.append(share.double().clamp(0.0, 1.0))
    return torch.cat(parts) * section.covers(X)


def played_marks(bandit: Bandit, section: Section) -> Marks:
    """Return the points played, in the order of ``history``: their weights times their nearness."""
    X = bandit.history.X
    return Marks(X, bandit.weights * nearness(_kernel(bandit), section, X))


def near_marks(bandit: Bandit, section: Section, X: Tensor) -> Marks:
    """Return other points (k, d), such as the dictionary: their nearness."""
    return Marks(X, nearness(_kernel(bandit), section, X))


def faded(colour: str, marks: Marks) -> Any:
    """Return a colour for each of the points that are drawn, as transparent as they are weak, (k, 4)."""
    rgb = require("matplotlib.colors").to_rgb(colour)
    strengths = marks.strength[marks.drawn].tolist()
    return [(*rgb, 0.1 + 0.9 * strength) for strength in strengths]


def _kernel(bandit: Bandit) -> Kernel:
    return cast(Kernel, bandit.model.covar_module)

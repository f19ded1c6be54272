"""Where a search within limits looks first."""

import torch
from problems import DOUBLE, data

from torch_kbandits.beliefs.fenced_cube import BoxCube, FencedCube

BOUNDS = torch.tensor([[-1.0, 0.0], [1.0, 3.0]], dtype=DOUBLE)


def test_a_search_looks_at_what_was_played_and_is_allowed():
    """So what is asked for is no worse than that, however many other points are allowed."""
    likely = BOUNDS[0] + data(9, 2)[0] * (BOUNDS[1] - BOUNDS[0])
    for share in (0.01, 0.3, 0.9, 1.0):
        keeps = lambda X, top=3.0 * share: X[:, 1] <= top  # noqa: E731
        found = FencedCube(BoxCube(BOUNDS), keeps, None, likely, "").sample(1024, torch.Generator().manual_seed(0))
        assert bool(keeps(found).all())
        assert bool((likely[keeps(likely)].unsqueeze(1) == found).all(-1).any(-1).all())

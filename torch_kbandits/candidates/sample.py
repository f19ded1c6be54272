"""Some of the points that may be played, without going through all of them."""

import torch
from torch import Tensor

from torch_kbandits.candidates.arms import Arms
from torch_kbandits.candidates.base import Candidates
from torch_kbandits.candidates.timed import dated, untimed


def some_points(candidates: Candidates, number: int, now: float, generator: torch.Generator) -> Tensor:
    """Return points (k, d), k at most ``number``, some of which may be played at a time.

    Of arms they are drawn with repetition, on a box uniformly, and on a cube they are points of those that a search
    looks at first. None where what may be played depends on a context, or is not read here.

    Args:
        candidates: what may be played.
        number: at least 0.
        now: the time, where points know it.
        generator: all randomness, on the CPU.

    Cost: O(number) arms are read.
    """
    space, example = untimed(candidates), untimed(candidates).example
    X = example[:0]
    if isinstance(space, Arms):
        rows = torch.randint(len(space.source), (number,), generator=generator, device="cpu")
        X = space.source.rows(rows.to(space.device)).cpu()
    elif not space.is_contextual and (bounds := space.domain.bounds) is not None:
        uniforms = torch.rand(number, bounds.shape[-1], generator=generator, dtype=torch.float64, device="cpu")
        X = bounds[0] + (bounds[1] - bounds[0]) * uniforms.to(bounds)
    elif not space.is_contextual and space.domain.cube is not None:
        X = torch.cat(space.domain.initial_points(generator.initial_seed()))
        X = X[torch.randperm(len(X), generator=generator, device="cpu")[:number]]
    return dated(now, X) if candidates.is_timed else X

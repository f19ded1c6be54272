"""The limits on outcomes, as what a bandit knows has them, and what they leave of a round."""

import torch

from torch_kbandits.bandit.learning import Standing
from torch_kbandits.bandit.pieces import Pieces
from torch_kbandits.beliefs import Fence, Watched


def fence_of(pieces: Pieces, standing: Standing, *, plainly: bool = False) -> Fence:
    """Return the limits with the posteriors of their outcomes.

    Args:
        pieces: of the bandit.
        standing: what it knows.
        plainly: whether limits that are kept where they may be count as kept where the posterior mean keeps them.
    """
    watched, names = [], [each.name for each in pieces.declared]
    for limit, safe in zip(pieces.constraints, pieces.known_safe, strict=True):
        place = names.index(limit.name)
        own, known = pieces.of_outcomes[place], standing.outcomes[place]
        beta = limit.width(known.belief)
        watched.append(
            Watched(
                limit=limit,
                belief=known.belief,
                beta=torch.zeros_like(beta) if plainly and not limit.is_safe else beta,
                known=safe,
                is_trusted=own.learning is None or own.learning.is_known or known.last_fit.number > 0,
                dropped=pieces.hidden_columns - own.hidden_columns,
            )
        )
    return Fence(watched, standing.belief.played)

"""The limits on outcomes and what is to be kept away from, as what a bandit knows has them."""

import torch

from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.standing import Standing
from torch_kbandits.beliefs import Fence, Guard, Watched
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.outcomes.streaks import Streaks


def fence_of(config: BanditConfig, standing: Standing, *, plainly: bool = False) -> Fence:
    """Return the limits with the posteriors of their outcomes, and the guard against failures once a play failed.

    Args:
        config: of the bandit.
        standing: what it knows.
        plainly: whether limits that are kept where they may be count as kept where the posterior mean keeps them, and
            nothing waits or has a second chance.
    """
    watched, names = [], [each.name for each in config.declared]
    for limit, safe in zip(config.constraints, config.known_safe, strict=True):
        place = names.index(limit.name)
        own, known = config.of_outcomes[place], standing.outcomes[place]
        beta = limit.width(known.belief)
        watched.append(
            Watched(
                limit=limit,
                belief=known.belief,
                beta=torch.zeros_like(beta) if plainly and not limit.is_safe else beta,
                known=safe,
                is_trusted=own.is_prior_known(known.last_fit),
                dropped=config.hidden_columns - own.hidden_columns,
            )
        )
    return Fence(watched, standing.belief.played, _guard_of(config, standing, plainly=plainly))


def _guard_of(config: BanditConfig, standing: Standing, *, plainly: bool) -> Guard | None:
    known = standing.failures
    if known is None:
        return None
    points, actions = known.points, known.actions
    if plainly:  # what only ever failed is nothing to use
        good = {*row_keys(standing.belief.played[:, config.own_columns :])}
        failing = {key: each._replace(round=standing.round) for key, each in points.known.items() if key not in good}
        points, actions = Streaks(failing), Streaks()
    return Guard(
        belief=known.belief,
        points=points,
        actions=actions,
        round=standing.round,
        own_columns=config.own_columns,
        context_dim=config.candidates.context_dim,
    )

"""What a bandit believes at points, read without changing anything."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.numerics.rows import distinct

#: Points whose posterior is computed at a time.
_BLOCK = 4096
#: Points spread over a box among which the recommended action is sought, beside those played.
_SPREAD = 1024


@dataclass(frozen=True, eq=False)
class Moments:
    """Posterior means (q,) and standard deviations (q,) of the function, in reward units."""

    mean: Tensor
    deviation: Tensor


def moments(bandit: Bandit, X: Tensor) -> Moments:
    """Return what is believed now of points X (q, d), joint ones with contexts. Cost: O(q m²)."""
    if len(X) == 0:
        return Moments(X.new_zeros(0), X.new_zeros(0))
    parts = []
    with torch.no_grad():
        for block in X.split(_BLOCK):
            posterior = bandit.model.posterior(block.unsqueeze(-2).to(bandit.candidates.device))
            parts.append((cast(Tensor, posterior.mean).flatten(), posterior.variance.flatten().clamp_min(0.0).sqrt()))
    means, deviations = zip(*parts, strict=True)
    return Moments(torch.cat(means), torch.cat(deviations))


def recommended_point(bandit: Bandit, context: Any = None, candidates: Any = None) -> Tensor | None:
    """Return the point (1, d) of the largest posterior mean now; None if nothing was learned that may be played.

    It is what ``recommend`` returns, but for boxes with contexts: there it is the best of the actions played and of
    1,024 spread over the box. Where actions differ from round to round and none are given, it is the best of those
    played. ``recommend`` itself may ask an expert, which would be seen in the bandit's state.

    Args:
        bandit: whose.
        context: as in ``recommend``.
        candidates: as in ``recommend``.

    Raises:
        InputError: if the context or the actions do not fit.
    """
    kinds = bandit.candidates
    played = bandit.history.X[bandit.weights > 0.0]
    now, offers = max(bandit.now, 0.0), untimed(kinds)
    if kinds.is_contextual:
        by_round = isinstance(offers, ContextualActions) and offers.set is None and offers.bounds is None
        if by_round and candidates is None:
            if len(played) == 0:
                return None
            candidates = kinds.actions(played)
        domain = kinds.in_round(context, candidates, now).to(kinds.device)
        if domain.arms is not None:
            offered = domain.arms
        elif domain.blocks is not None:
            offered = torch.cat([block[moments(bandit, block).mean.argmax(), None] for block in domain.blocks()])
        elif domain.cube is not None:
            offered = domain.in_context(distinct(played)[0])
        else:
            spread = draw_sobol_samples(cast(Any, offers).bounds, n=_SPREAD, q=1, seed=0).squeeze(-2)
            actions = torch.cat([spread.to(kinds.device), kinds.actions(played)])
            offered = torch.cat([cast(Tensor, domain.context).expand(len(actions), -1), actions], dim=-1)
    else:
        kinds.in_round(context, candidates, now)
        offered = distinct(played)[0]
        offered = offered[kinds.recommends(offered.cpu())]
    if len(played) == 0 or len(offered) == 0:
        return None
    return offered[moments(bandit, offered).mean.argmax(), None].clone()

"""Rewards that a table forgets, in as many numbers as there are points of them."""

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.integrations.ray.course import TakenBack
from torch_kbandits.observations.played import Plays


def taken_back(version: str, left: Plays, gone: Plays, size: int) -> TakenBack:
    """Return what shards are told of rewards taken back; see ``FeatureTable.forgotten``.

    Points of which nothing was taken back stand in the order in which they stood, so only where the others stand now is
    sent.

    Args:
        version: of what is left.
        left: what is left of the played points, whose old places ascend but for those of ``gone``.
        gone: what is taken back.
        size: how many played points there were.
    """
    now = torch.full((size,), -1, device=left.places.device)
    now[left.places] = torch.arange(len(left.places), device=now.device)
    now = now[gone.places]
    sums = torch.where(now >= 0, left.sums[now] if len(left.sums) else torch.zeros_like(gone.sums), 0.0)
    places = torch.stack([gone.places, now, gone.counts.long()])
    return TakenBack(version, places.to(torch.int32).numpy(), torch.stack([gone.sums, sums]).numpy())


def plays_of(step: TakenBack, counts: Tensor, sums: Tensor) -> tuple[Plays, Plays]:
    """Return what is left and what is gone, as ``taken_back`` was given them.

    Args:
        step: what was sent.
        counts: of the rewards of each played point before, (u,).
        sums: of these rewards, (u,).

    Cost: O(u).
    """
    places, now, number = (torch.from_numpy(row.astype(np.int64)).to(counts.device) for row in step.places)
    old, new = torch.from_numpy(np.array(step.sums)).to(sums)
    gone = Plays(places, number.to(counts), old)
    stays = torch.ones_like(counts, dtype=torch.bool)
    stays[places] = False
    remains = now >= 0
    order = places.new_empty(int(stays.sum() + remains.sum()))
    others = torch.ones_like(order, dtype=torch.bool)
    others[now[remains]] = False
    order[now[remains]] = places[remains]
    order[others] = stays.nonzero().squeeze(-1)
    counts = counts.index_add(0, places, -gone.counts)
    sums = sums.index_copy(0, places[remains], new[remains])
    return Plays(order, counts[order], sums[order]), gone

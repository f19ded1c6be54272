"""Candidates whose first column is the time of a play."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits.candidates.contextual import ContextualActions


class TimedActions(ContextualActions):
    """Actions, with or without a context, of points whose first column is the time at which they are played.

    The kernel sees (time, context, action). Give one of ``actions``, ``bounds`` and ``action_dim``.

    Args:
        actions: the set that stays, (A, a), A >= 1.
        context_dim: c, the number of context columns.
        bounds: a box of actions, (2, a).
        action_dim: a, if each round brings its own actions.
        num_restarts: starting points of the search over a box.
        raw_samples: random points from which they are chosen.

    Raises:
        InputError: if an argument does not fit, or not exactly one kind of actions is given.
    """

    is_timed = True

    def __init__(
        self,
        actions: Tensor | None = None,
        *,
        context_dim: int = 0,
        bounds: Tensor | None = None,
        action_dim: int | None = None,
        num_restarts: int = 8,
        raw_samples: int = 128,
    ) -> None:
        super().__init__(
            actions,
            context_dim=1 + context_dim,
            bounds=bounds,
            action_dim=action_dim,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
        )

    def with_time(self, context: Any, now: float) -> Tensor:
        """Return the context, (c,) or (q, c), with the time before it."""
        contexts = self._checked_contexts(context, self.context_dim - 1)
        rows = torch.cat([contexts.new_full((len(contexts), 1), now), contexts], dim=-1)
        return rows if len(rows) != 1 else rows[0]

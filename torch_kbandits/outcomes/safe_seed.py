"""What is known to be safe before anything is told."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates import Box, Candidates, Configurations
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError

#: So many points of a region are looked at.
_SPREAD = 256


@dataclass(frozen=True, eq=False)
class KnownSafe:
    """Actions, a region of actions, or a rule for points, that are safe at any time and in any context.

    Attributes:
        actions: (k, a), some or all of what is safe; none of a rule.
        region: (2, a), the bounds of what is safe; None for the actions alone.
        rule: says of points (n, d), with contexts (context, action), whether they are safe, (n,); or None.
        context_dim: columns of points before the action: of the time and of the context.
        time_dim: columns before what the rule sees, of the time.
    """

    actions: Tensor
    region: Tensor | None = None
    rule: Callable[[Tensor], Tensor] | None = None
    context_dim: int = 0
    time_dim: int = 0

    @classmethod
    def of(cls, given: Any, candidates: Candidates) -> Self:
        """Return what was given, as it is for points of candidates.

        Args:
            given: points (k, a), configurations, a ``Box``, a function, or None for nothing.
            candidates: what may be played.

        Raises:
            InputError: if it does not fit them.
        """
        own, before = untimed(candidates), candidates.context_dim
        example, none = own.example, own.example[:0, own.context_dim :]
        nothing = cls(none, context_dim=before, time_dim=int(candidates.is_timed))
        if given is None:
            return nothing
        if isinstance(given, Box):
            bounds = checks.points("bounds of safe_seed", given.bounds, dimension=none.shape[-1], like=example)
            engine = torch.quasirandom.SobolEngine(none.shape[-1])  # a scrambled one depends on the default dtype
            share = engine.draw(_SPREAD, dtype=torch.float64).to(bounds)
            return replace(nothing, actions=bounds[0] + share * (bounds[1] - bounds[0]), region=bounds.clone())
        if isinstance(own, Configurations) and not isinstance(given, Tensor) and not callable(given):
            given = own.space.encode([given] if isinstance(given, dict) else given).to(example)
        if callable(given):
            return replace(nothing, rule=cast(Callable[[Tensor], Tensor], given))
        given = own.brought("safe_seed", given)
        actions = checks.points("safe_seed", given, dimension=none.shape[-1], like=example).detach().clone()
        if actions.dim() != 2 or not len(actions):
            raise InputError(f"safe_seed must be (k, {none.shape[-1]}) with k >= 1, got {checks.describe(given)}.")
        return replace(nothing, actions=actions)

    def contains(self, X: Tensor) -> Tensor:
        """Say of points (n, d) whether they are known to be safe, (n,)."""
        if self.rule is not None:
            said = self.rule(X[:, self.time_dim :].to(self.actions.dtype))
            if not isinstance(said, Tensor) or said.shape != X.shape[:1] or said.dtype != torch.bool:
                raise InputError(f"safe_seed must return ({len(X)},) bool, got {checks.describe(said)}.")
            return said.to(X.device)
        A = X[:, self.context_dim :]
        if self.region is not None:
            lower, upper = self.region.to(A.device)
            return ((lower <= A) & (upper >= A)).all(-1)
        return (A.unsqueeze(-2) == self.actions.to(A.device)).all(-1).any(-1)

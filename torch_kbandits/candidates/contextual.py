"""Actions and configurations of named parameters, in a context that each round brings or without one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.arms import Arms, ArmSource
from torch_kbandits.candidates.base import Candidates, unknown_ranges, within
from torch_kbandits.candidates.listing import names_of
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.device import to_device
from torch_kbandits.numerics.rows import among
from torch_kbandits.numerics.shallow import made
from torch_kbandits.observations.columns import ColumnSpec, is_pandas
from torch_kbandits.spaces import ParameterSpace


class ContextualActions(Candidates):
    """Actions beside a context that each round brings. The kernel sees joint points: the context, then the action.

    Give one of ``actions``, ``bounds`` and, for sets that each ``ask`` brings, ``action_dim`` (or ``action_columns``).

    Args:
        actions: the set that stays, (A, a), A >= 1, as a tensor, a list, an array or a data frame; rows that
            ``action_columns`` understands if those are given; or an array of a file, as ``Arms`` takes it, or these
            ``Arms``, which is read once: saved bandits have the path and not the actions.
        context_dim: c, the number of context columns; 0 if only the actions differ from round to round.
        bounds: a box of actions, (2, a), lower bounds, then upper bounds above them.
        action_dim: a, if each round brings its own actions.
        context_columns, action_columns: how rows of a data frame, or mappings, become contexts and actions; then c or a
            is its width.
        dtype: of all points where neither actions nor bounds are tensors.
        num_restarts, raw_samples: of the search over a box, as in ``Box``.
    """

    is_contextual = True

    def __init__(
        self,
        actions: Any = None,
        *,
        context_dim: int | None = None,
        bounds: Any = None,
        action_dim: int | None = None,
        context_columns: ColumnSpec | None = None,
        action_columns: ColumnSpec | None = None,
        dtype: torch.dtype = torch.float64,
        num_restarts: int = 8,
        raw_samples: int = 128,
    ) -> None:
        for name, columns in (("context_columns", context_columns), ("action_columns", action_columns)):
            checks.absent_or(name, columns, ColumnSpec, "a ColumnSpec")
        if actions is not None and bounds is not None:
            raise InputError("Give either a finite set of actions or bounds of a box, not both.")
        self._dtype = checks.precision("dtype", dtype)
        self.context_columns, self.action_columns = context_columns, action_columns
        self.table = None if actions is None else self._table(actions)
        self.source = None if self.table is None else self.table.source
        self.set = None if self.source is None else self.source.block(0, len(self.source)).cpu()
        box = None if bounds is None else checks.bounds(bounds).detach()
        self.bounds = None if box is None else box.cpu().clone()
        if (known := box if self.source is None else self.source) is not None:
            self._dtype, self.device = known.dtype, known.device
        said = {"actions": self.source and self.source.dimension, "bounds": None if box is None else box.shape[-1]}
        self.context_dim = _width("context", 0, context_columns=context_columns, context_dim=context_dim)
        self.action_dim = _width("action", 1, **said, action_columns=action_columns, action_dim=action_dim)
        parts = (context_columns, self.context_dim), (action_columns, self.action_dim)
        ranges = [unknown_ranges(width) if columns is None else columns.ranges for columns, width in parts]
        self.example = torch.zeros(1, self.context_dim + self.action_dim, dtype=self._dtype, device="cpu")
        if known is not None:
            ranges[1] = known.ranges if isinstance(known, ArmSource) else known.cpu().double()
            self.example[:, self.context_dim :] = self.bounds[:1] if self.set is None else self.set[:1]  # pyright: ignore
        self.ranges, self.is_finite = torch.cat(ranges, -1), bounds is None
        self.is_lasting = self.context_dim == 0 and known is not None
        if context_columns is not None or action_columns is not None:
            self.groups, self.names = joint_columns(*parts)
        elif self.set is not None and torch.equal(self.set, torch.eye(*self.set.shape).to(self.set)):
            self.groups = [*range(self.context_dim), *[self.context_dim] * self.action_dim]  # one choice among labels
        self.num_restarts = checks.size("num_restarts", num_restarts)
        self.raw_samples = checks.size("raw_samples", raw_samples)

    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return what may be played in a round: joint points (A, c + a), or a box beside the context.

        The context is (c,) or (1, c), or a row that ``context_columns`` understands; candidates are (A, a), if any.
        """
        contexts = self._checked_contexts(context)
        if contexts.shape[0] != 1:
            raise InputError(f"context must be one context, ({self.context_dim},), got {len(contexts)} rows.")
        actions = self.set
        if actions is None and self.bounds is None:
            if candidates is None:
                expected = f"candidates (A, {self.action_dim})"
                raise InputError(f"The actions differ from round to round: give those of this round, {expected}.")
            actions = self._checked_actions("candidates", candidates)
        elif candidates is not None:
            raise InputError("The actions of this bandit are always the same: leave out candidates.")
        if actions is None:
            known = checks.within_reach("context", contexts)[0]
            bounds = torch.cat([torch.stack([known - 1.0, known + 1.0]), self.bounds], dim=-1)  # pyright: ignore
            return Domain(bounds=bounds, num_restarts=self.num_restarts, raw_samples=self.raw_samples, context=known)
        return made(Domain, {"arms": self._joint(contexts, "candidates", actions), "context": contexts.squeeze(0)})

    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the joint points (q, c + a) of actions (q, a) in a context (c,), or each in its own, (q, c)."""
        if x is None:
            raise InputError("x is missing: give the actions that were played, or the ids that ask returned.")
        actions, contexts = self._checked_actions("x", x), self._checked_contexts(context)
        if contexts.shape[0] not in (1, actions.shape[0]):
            raise InputError(f"context must be one for all {len(actions)} action(s) or for each, got {len(contexts)}.")
        return self._joint(contexts, "x", actions)

    def actions(self, X: Tensor) -> Tensor:
        """Return the actions (q, a) of joint points (q, c + a), on the device of the candidates."""
        return to_device(X[:, self.context_dim :], self.device)

    def recommends(self, points: Tensor) -> Tensor:
        """Say of joint points (n, c + a) which are of actions that stay, (n,) bool; of all where others come."""
        actions = points[:, self.context_dim :]
        if self.bounds is not None:
            return within(actions, self.bounds)
        if self.set is not None:
            return among(actions, self.set)
        return torch.ones(len(points), dtype=torch.bool, device=points.device)

    def _joint(self, contexts: Tensor, name: str, actions: Tensor) -> Tensor:
        """Return actions (A, a) beside contexts, (1, c) or (A, c), if all are within reach, which is checked once."""
        joint = torch.cat([contexts.expand(actions.shape[0], -1), actions], dim=-1)
        if not np.abs(joint.numpy()).max() <= checks.REACH[joint.dtype]:  # or NaN
            checks.within_reach("context", contexts)
            checks.within_reach(name, actions)
        return joint

    def _table(self, actions: Any) -> Arms:
        """Return the actions that stay, once read, with their names."""
        if isinstance(actions, (np.memmap, Arms, ArmSource)):
            return actions if isinstance(actions, Arms) else Arms(actions)
        names = names_of(actions)
        if self.action_columns is not None and not isinstance(actions, Tensor):
            actions = self.action_columns.encode(actions, dtype=self._dtype)
        return Arms(ArmSource(checks.points("actions", actions)), names=names)

    def _checked_contexts(self, context: Any) -> Tensor:
        """Return contexts as rows, (k, c), which may not be finite."""
        dim = self.context_dim
        if context is None:
            if dim:
                raise InputError(f"context is missing: give the context of this round, ({dim},).")
            return self.example[:, :0]
        if self.context_columns is not None and not isinstance(context, Tensor):
            context = self.context_columns.encode(context, dtype=self._dtype)
        context = checks.floating_tensor("context", self.brought("context", context), self.example)
        if context.dim() not in (1, 2) or context.shape[-1] != dim:
            raise InputError(f"context must have {dim} column(s), shape ({dim},); got {checks.describe(context)}.")
        checks.same_kind("context", context, self.example)
        context = context.detach() if context.requires_grad else context
        return context if context.dim() == 2 else context.unsqueeze(0)

    def _checked_actions(self, name: str, actions: Any) -> Tensor:
        """Return actions as rows, (A, a), at least one, which may not be finite."""
        if self.action_columns is not None and not isinstance(actions, Tensor):
            actions = self.action_columns.encode(actions, dtype=self._dtype)
        actions = checks.rows(name, self.brought(name, actions), dimension=self.action_dim, like=self.example)
        if actions.dim() != 2 or actions.shape[0] == 0:
            raise InputError(f"{name} must be (A, {self.action_dim}) with A >= 1, got {checks.describe(actions)}.")
        return actions.detach() if actions.requires_grad else actions


def joint_columns(*parts: tuple[ColumnSpec | ParameterSpace | None, int]) -> tuple[list[int], list[str]]:
    """Return ``Candidates.groups`` and ``names`` of parts; where nothing is known each column is a group of its own."""
    groups, names = list[int](), list[str]()
    for known, width in parts:
        start = max(groups, default=-1) + 1
        groups += [start + group for group in (range(width) if known is None else known.groups)]
        names += [""] * width if known is None else known.names
    return groups, names


def _width(what: str, least: int, **said: Any) -> int:
    """Return the number of columns of contexts or actions, on which all must agree that say it."""
    widths = {name: each.width if isinstance(each, ColumnSpec) else each for name, each in said.items()}
    widths = {name: checks.size(name, width, least) for name, width in widths.items() if width is not None}
    if not widths:
        raise InputError(f"The number of {what} columns is missing: give {' or '.join(said)}.")
    if len({*widths.values()}) > 1:
        raise InputError(f"These say how many {what} columns there are and do not agree: {widths}.")
    return next(iter(widths.values()))


class Configurations(Candidates):
    """The configurations of a parameter space, with or without a context that each round brings; in double precision.

    What is asked for is a list of mappings from names to values; what is told, a list of such or one. The kernel sees
    their encodings, (n, d), with a context (context, encoding), and so do ``history``, ``pending`` and
    ``inducing_points``: ``candidates.actions(points)`` are the configurations.

    Args:
        space: of at least one parameter of several values.
        context_dim: c, the number of context columns.
        context_columns: how rows of a data frame, or mappings, become contexts; then c is its width.
    """

    is_finite = False

    def __init__(
        self, space: ParameterSpace, *, context_dim: int | None = None, context_columns: ColumnSpec | None = None
    ) -> None:
        checks.instance("space", space, ParameterSpace, "a ParameterSpace")
        if not space.dimension:
            raise InputError("The parameters of the space have one value each: there is nothing to choose.")
        self.space, self.context_columns = space, context_columns
        size = 0 if context_dim is None and context_columns is None else context_dim
        self._joint = ContextualActions(action_dim=space.dimension, context_dim=size, context_columns=context_columns)
        self.context_dim = known = self._joint.context_dim
        self.is_contextual, self.is_lasting = known > 0, known == 0
        parts = (context_columns, known), (space, space.dimension)
        self.groups, self.names = joint_columns(*parts)
        first = space.sample(1, torch.Generator().manual_seed(0))
        self.example = torch.cat([self._joint.example[:, :known], first], -1)
        unit = torch.tensor([0.0, 1.0], dtype=torch.float64).unsqueeze(-1).expand(2, space.dimension)
        self.ranges = torch.cat([self._joint.ranges[:, :known], unit], -1)

    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return the space, in a round with its context; actions of the round are refused."""
        if candidates is not None:
            raise InputError("A bandit on a parameter space plays its configurations: leave out candidates.")
        self._refuse_context(context)
        if not self.is_contextual:
            return Domain(cube=self.space)
        found = self._joint.in_round(context, self.example[:, self.context_dim :], now)
        return replace(found, arms=None, cube=self.space)

    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the points (q, c + d) of configurations, which are snapped if they are given as encodings (q, d)."""
        if is_pandas(x):
            x = x.to_dict(orient="records") if hasattr(x, "columns") else x.to_dict()
        given = [x] if isinstance(x, Mapping) else x
        if hasattr(x, "shape") or (isinstance(x, (list, tuple)) and x and isinstance(x[0], (list, tuple))):
            like = self.example[:, self.context_dim :]
            X = self.space.snap(checks.points("x", x, dimension=self.space.dimension, like=like))
        elif isinstance(given, Sequence) and given and all(isinstance(each, Mapping) for each in given):
            X = self.space.encode(given)
        else:
            hint = "a configuration, a mapping from names to values, or a list of them, as ask returns, or a data frame"
            raise InputError(f"x must be {hint}; got {checks.describe(x)}.")
        self._refuse_context(context)
        return self._joint.points(X, context, now)

    def actions(self, X: Tensor) -> list[dict[str, Any]]:
        """Return the configurations of points (q, c + d)."""
        return self.space.decode(X[:, self.context_dim :])

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, c + d) which are of configurations that may be played, (n,) bool."""
        actions = points[:, self.context_dim :]
        return among(actions, self.space.playable(actions))

    def _refuse_context(self, context: Any) -> None:
        if context is not None and not self.is_contextual:
            raise InputError("This bandit has no contexts: leave out context, or give it context_dim when it is made.")

"""Configurations of named parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import Candidates
from torch_kbandits.candidates.contextual import ContextualActions, joint_groups, joint_names
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.rows import among
from torch_kbandits.observations.columns import ColumnSpec, is_pandas
from torch_kbandits.spaces import LinearConstraint, ParameterSpace


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
        self.groups, self.names = joint_groups(*parts), joint_names(*parts)
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

    def describe(self) -> dict[str, object]:
        """Return the parameters and constraints, as far as they have words, and what is known of contexts."""
        return {
            "parameters": str({name: _words(parameter) for name, parameter in self.space.parameters.items()}),
            "constraints": str([_words(constraint) for constraint in self.space.constraints]),
            "held": _words(self.space.held),
            "context_dim": self.context_dim,
            "context_columns": repr(self.context_columns),
        }

    def _refuse_context(self, context: Any) -> None:
        if context is not None and not self.is_contextual:
            raise InputError("This bandit has no contexts: leave out context, or give it context_dim when it is made.")


def _words(value: Any) -> str:
    """Return the words of a value, the same in every process: a function is known by its name."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_words, value))}]"
    if isinstance(value, LinearConstraint) or hasattr(value, "when"):
        return f"{type(value).__name__}{_words(vars(value))}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(part)}' for key, part in value.items())}}}"
    return getattr(value, "__qualname__", type(value).__name__)

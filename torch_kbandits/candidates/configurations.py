"""Configurations of named parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import Candidates, unit_ranges
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

    Raises:
        InputError: if an argument does not fit, or no configuration satisfies the constraints.
    """

    is_finite = False

    def __init__(
        self,
        space: ParameterSpace,
        *,
        context_dim: int | None = None,
        context_columns: ColumnSpec | None = None,
    ) -> None:
        checks.instance("space", space, ParameterSpace, "a ParameterSpace")
        if not space.dimension:
            raise InputError("The parameters of the space have one value each: there is nothing to choose.")
        self.space = space
        size = 0 if context_dim is None and context_columns is None else context_dim
        self._joint = ContextualActions(action_dim=space.dimension, context_dim=size, context_columns=context_columns)
        self.context_dim, self.context_columns = self._joint.context_dim, context_columns
        self.is_contextual = self.context_dim > 0
        self.is_lasting = not self.is_contextual
        first = space.sample(1, torch.Generator().manual_seed(0))
        parts = (context_columns, self.context_dim), (space, space.dimension)
        self.groups, self.names = joint_groups(*parts), joint_names(*parts)
        self._example = torch.cat([self._joint.example[:, : self.context_dim], first], -1)

    @property
    def example(self) -> Tensor:
        """The encoding of a configuration, (1, d), in a context of zeros."""
        return self._example

    @property
    def ranges(self) -> Tensor:
        """Those of contexts, as far as they are known, and of encodings, from 0 to 1."""
        return torch.cat([self._joint.ranges[:, : self.context_dim], unit_ranges(self.space.dimension)], -1)

    @property
    def domain(self) -> Domain:
        """The space, to be searched.

        Raises:
            InputError: if there are contexts.
        """
        if self.is_contextual:
            raise InputError("What is best depends on the round: give context=.")
        return Domain(cube=self.space)

    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return the space, in a round with its context.

        Raises:
            InputError: if the context does not fit, or there are actions of the round.
        """
        if candidates is not None:
            raise InputError("A bandit on a parameter space plays its configurations: leave out candidates.")
        context = self._in(context)
        if not self.is_contextual:
            return self.domain
        found = self._joint.in_round(context, self.example[:, self.context_dim :], now)
        return replace(found, arms=None, cube=self.space)

    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the points (q, c + d) of configurations, which are snapped if they are given as encodings (q, d).

        Raises:
            InputError: if they are no configurations of the space, or the context does not fit.
        """
        if is_pandas(x):
            x = x.to_dict(orient="records") if hasattr(x, "columns") else x.to_dict()
        given = [x] if isinstance(x, Mapping) else x
        if hasattr(x, "shape") or (isinstance(x, (list, tuple)) and x and isinstance(x[0], (list, tuple))):
            like = self.example[:, self.context_dim :]
            X = self.space.snap(checks.points("x", x, dimension=self.space.dimension, like=like))
        elif isinstance(given, Sequence) and given and all(isinstance(each, Mapping) for each in given):
            X = self.space.encode(given)
        else:
            raise InputError(
                "x must be a configuration, a mapping from names of parameters to values, or a list of them, as ask "
                f"returns, or a data frame; got {checks.describe(x)}."
            )
        return self._joint.points(X, self._in(context), now)

    def actions(self, X: Tensor) -> list[dict[str, Any]]:
        """Return the configurations of points (q, c + d)."""
        return self.space.decode(X[:, self.context_dim :])

    def offers(self, points: Tensor) -> Tensor:
        """Say of points (n, c + d) which may be played in every round, (n,) bool: none with contexts."""
        return self.recommends(points) & self.is_lasting

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, c + d) which are of configurations that may be played, (n,) bool."""
        actions = points[:, self.context_dim :]
        return among(actions, self.space.playable(actions))

    def describe(self) -> dict[str, object]:
        """Return the parameters and constraints, as far as they have words, and what is known of contexts."""
        words = {name: _words(parameter) for name, parameter in self.space.parameters.items()}
        constraints = [_words(constraint) for constraint in self.space.constraints]
        return {
            "parameters": str(words),
            "constraints": str(constraints),
            "context_dim": self.context_dim,
            "context_columns": repr(self.context_columns),
        }

    def _in(self, context: Any) -> Any:
        if context is not None and not self.is_contextual:
            raise InputError(
                "This bandit has no contexts: give context_dim, the number of their columns, when it is made, or leave "
                "out context."
            )
        return context


def _words(value: Any) -> str:
    """Return the words of a value, the same in every process: a function is known by its name."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_words, value))}]"
    if isinstance(value, LinearConstraint) or hasattr(value, "when"):
        return f"{type(value).__name__}({', '.join(f'{key}={_words(part)}' for key, part in vars(value).items())})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(part)}' for key, part in value.items())}}}"
    return getattr(value, "__qualname__", type(value).__name__)

"""What a bandit was told, and the checks between a saved state and the bandit that loads it."""

import dataclasses
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, StateMismatchError

#: Version of the layout of ``Bandit.state_dict``.
STATE_FORMAT = 1


class History(NamedTuple):
    """What was told, in order.

    Attributes:
        X: played points (n, d).
        Y: rewards (n,).
        rounds: (n,) the round of each, counted from 0; rewards told in one call share a round.
    """

    X: Tensor
    Y: Tensor
    rounds: Tensor

    @property
    def next_round(self) -> int:
        """The round after the last one told."""
        return int(self.rounds[-1]) + 1 if len(self.rounds) else 0


def empty_history(example: Tensor) -> History:
    """Return a history without observations, of the kind of the example point (1, d)."""
    rounds = torch.zeros(0, dtype=torch.long, device=example.device)
    return History(example[:0], example.new_zeros(0), rounds)


def rewards(y: Tensor | float, X: Tensor) -> Tensor:
    """Return rewards as (q,), checked against the points they are for."""
    if not isinstance(y, Tensor):
        if len(X) != 1 or isinstance(y, bool) or not isinstance(y, Real):
            raise InputError(
                f"y must be a tensor of {len(X)} reward(s), or a number for one; got {checks.describe(y)}."
            )
        y = X.new_tensor([float(y)])
    checks.same_kind("y", checks.floating_tensor("y", y), X)
    if len(X) == 1 and y.dim() == 0:
        y = y.unsqueeze(0)
    if tuple(y.shape) not in ((len(X),), (len(X), 1)):
        raise InputError(f"y must have a reward for each of the {len(X)} point(s), got {checks.describe(y)}.")
    return checks.finite("y", y.reshape(-1))


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return the class, the plain settings (such as ``nu``) and the parameters of a kernel and of all its parts."""
    config: dict[str, Any] = {}
    for name, part in kernel.named_modules():
        prefix = f"kernel.{name}" if name else "kernel"
        config[prefix] = type(part).__name__
        for key, value in vars(part).items():
            if key != "training" and not key.startswith("_") and isinstance(value, (bool, int, float, str)):
                config[f"{prefix}.{key}"] = value
    for name, value in kernel.state_dict().items():
        config[f"kernel.{name}"] = str(value.tolist())
    return config


def describe_value(name: str, value: Any, config: dict[str, Any]) -> None:
    """Add a setting under its name; a dataclass becomes its class name and its fields, a tensor its numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        config[name] = type(value).__name__
        for field in dataclasses.fields(value):
            describe_value(f"{name}.{field.name}", getattr(value, field.name), config)
    elif isinstance(value, Tensor):
        config[name] = str(value.tolist())
    elif isinstance(value, (bool, int, float, str, type(None))):
        config[name] = value
    else:
        config[name] = type(value).__name__


def check_format(state: Mapping[str, Any]) -> None:
    """Refuse what is no state of a bandit, or one of another format."""
    missing = {"format", "config", "history", "inducing_points"} - set(state)
    if missing:
        raise StateMismatchError(f"This is no state of a bandit: it lacks {sorted(missing)}.")
    if state["format"] != STATE_FORMAT:
        raise StateMismatchError(
            f"The state has format {state['format']} and this version reads {STATE_FORMAT}: "
            "load it with the version of torch_kbandits that saved it."
        )


def check_config(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse a configuration that differs, naming every difference."""
    differences = [
        f"{key}: saved {saved.get(key, 'nothing')}, here {here.get(key, 'nothing')}"
        for key in sorted({*saved, *here})
        if saved.get(key) != here.get(key)
    ]
    if differences:
        raise StateMismatchError("The state belongs to another configuration. " + "; ".join(differences) + ".")


def check_rounds(history: History) -> None:
    """Refuse a history whose parts do not belong together."""
    if not len(history.X) == len(history.Y) == len(history.rounds):
        raise InputError("The history must have as many points as rewards and rounds.")
    if bool((history.rounds.diff() < 0).any()):
        raise InputError("The rounds of a history must not decrease.")


def saved_tensors(state: Mapping[str, Any], example: Tensor) -> tuple[History, Tensor]:
    """Return copies of the history and of the dictionary of a saved state, checked like what is told."""
    try:
        saved = History(**state["history"])
        X = checks.points("the saved X", saved.X.to(example.device), dimension=example.shape[-1], like=example)
        Y = rewards(saved.Y.to(example.device), X) if len(X) else example.new_zeros(0)
        inducing_points = checks.points(
            "the saved dictionary",
            state["inducing_points"].to(example.device),
            dimension=example.shape[-1],
            like=example,
        )
        check_rounds(saved)
        if (len(X) > 0) != (len(inducing_points) > 0):
            raise InputError(f"{len(X)} points were told and {len(inducing_points)} are in the dictionary.")
    except (InputError, TypeError, AttributeError) as error:
        raise StateMismatchError(f"The state is damaged: {error}") from error
    return History(X.clone(), Y.clone(), saved.rounds.to(example.device).clone()), inducing_points.clone()

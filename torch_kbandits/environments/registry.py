"""The problems that a spec may name."""

import inspect
from collections.abc import Callable
from typing import Any

from torch_kbandits.environments.anchors import bump, chessboard, step_diagonal
from torch_kbandits.environments.base import ContextualEnvironment, DynamicEnvironment, Environment
from torch_kbandits.environments.classification import digits
from torch_kbandits.environments.hpolib import hpolib
from torch_kbandits.environments.options import nearest
from torch_kbandits.environments.peaks import MovingPeak, SeattleWeather
from torch_kbandits.environments.sampled import gaussian_bumps, gp_sample, rkhs_function
from torch_kbandits.environments.sensors import ozone_grid, sensor_replay, sensors
from torch_kbandits.environments.sequences import AbruptSwitches, Drift, Periodic
from torch_kbandits.environments.synthetic import synthetic_function
from torch_kbandits.errors import InputError

#: What an algorithm may play.
AnyEnvironment = Environment | ContextualEnvironment | DynamicEnvironment

_ENVIRONMENTS: dict[str, Callable[..., AnyEnvironment]] = {
    "abrupt": AbruptSwitches,
    "bump": bump,
    "chessboard": chessboard,
    "digits": digits,
    "drift": Drift,
    "gaussian-bumps": gaussian_bumps,
    "gp-sample": gp_sample,
    "hpolib": hpolib,
    "moving-peak": MovingPeak,
    "ozone-grid": ozone_grid,
    "periodic": Periodic,
    "rkhs-function": rkhs_function,
    "seattle-weather": SeattleWeather,
    "sensor-replay": sensor_replay,
    "sensors": sensors,
    "step-diagonal": step_diagonal,
    "test-function": synthetic_function,
}

#: Arguments that are no options: the seed is given apart, and a dtype has no name in a spec.
_NO_OPTIONS = ("seed", "dtype")


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_ENVIRONMENTS)


def build(name: str | Callable[..., AnyEnvironment], *, seed: int, **options: Any) -> AnyEnvironment:
    """Make a problem by its name.

    Args:
        name: one of ``names()``, or a class or a function that makes one.
        seed: addresses the function, the arms and the noise; of contextual problems the contexts and the noise. What
            was measured or stands in a paper is the same for every seed.
        options: as ``describe(name)`` lists them.

    Raises:
        InputError: if there is no such problem or option (the message has the nearest name), one is missing, or a value
            does not fit.
    """
    maker, known = _maker(name), _options(name)
    shown = name if isinstance(name, str) else maker.__name__
    for option in options:
        if option not in known:
            near = f"{nearest(option, known)}; it has {', '.join(known)}"
            raise InputError(f"Environment {shown!r} has no option {option!r}{near}.")
    if missing := [key for key, default in known.items() if default is inspect.Parameter.empty and key not in options]:
        raise InputError(f"Environment {shown!r} needs the option(s) {', '.join(missing)}.")
    return maker(seed=seed, **options)


def describe(name: str | Callable[..., AnyEnvironment]) -> tuple[str, dict[str, Any]]:
    """Return what a problem is, in a line, and its options with their defaults.

    An option that must be given has ``inspect.Parameter.empty``.

    Raises:
        InputError: if there is no such problem.
    """
    return (inspect.getdoc(_maker(name)) or "").partition("\n")[0], _options(name)


def _maker(name: str | Callable[..., AnyEnvironment]) -> Callable[..., AnyEnvironment]:
    if callable(name):
        return name
    if not isinstance(name, str) or name not in _ENVIRONMENTS:
        listed = ", ".join(names())
        raise InputError(f"There is no environment {name!r}{nearest(name, names())}; there are {listed}.")
    return _ENVIRONMENTS[name]


def _options(name: str | Callable[..., AnyEnvironment]) -> dict[str, Any]:
    parameters = inspect.signature(_maker(name)).parameters
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    words = {key: word.default for key, word in parameters.items() if word.kind not in several}
    return {key: default for key, default in words.items() if key not in _NO_OPTIONS}

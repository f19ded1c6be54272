"""The problems that a spec may name."""

import inspect
from collections.abc import Callable
from typing import Any

from torch_kbandits import environments
from torch_kbandits.environments.base import AnyEnvironment
from torch_kbandits.environments.options import check_options, parameters, pick

#: What makes each, in ``torch_kbandits.environments``: a function of that name but for these.
_OTHERS = {"abrupt": "AbruptSwitches", "drift": "Drift", "moving-peak": "MovingPeak"}
_OTHERS |= {"seattle-weather": "SeattleWeather", "test-function": "synthetic_function"}
_FUNCTIONS = """
    bump chessboard digits gaussian-bumps gp-sample hpolib rkhs-function sensor-replay sensors step-diagonal
"""


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted([*_OTHERS, *_FUNCTIONS.split()])


def build(name: str | Callable[..., AnyEnvironment], *, seed: int, **options: Any) -> AnyEnvironment:
    """Make a problem by its name, one of ``names()``, or by a class or a function that makes one.

    The seed addresses the function, the arms and the noise; of contextual problems the contexts and the noise. Options
    are as ``describe(name)`` lists them; ``InputError`` says what does not fit, and the nearest name.
    """
    maker = _maker(name)
    shown = name if isinstance(name, str) else name.__name__
    check_options("environments.build", f"option of environment {shown!r}", options, describe(name)[1])
    return maker(seed=seed, **options)


def describe(name: str | Callable[..., AnyEnvironment]) -> tuple[str, dict[str, Any]]:
    """Return what a problem is, in a line, and its options with their defaults, ``inspect.Parameter.empty`` if none."""
    maker = _maker(name)
    # The seed is given apart, and a dtype has no name in a spec.
    options = {key: default for key, default in parameters(maker).items() if key not in ("seed", "dtype")}
    return (inspect.getdoc(maker) or "").partition("\n")[0], options


def _maker(name: str | Callable[..., AnyEnvironment]) -> Callable[..., AnyEnvironment]:
    if callable(name):
        return name
    name = pick("environments", "environment", name, names())
    return getattr(environments, _OTHERS.get(name, name.replace("-", "_")))

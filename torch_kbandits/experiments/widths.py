"""Widths by name, for specs: ``beta = 2.0`` or ``beta = {width = "igp-ucb", scale = 0.1, gain = "realized"}``."""

import dataclasses
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, cast

from torch_kbandits import checks, confidence
from torch_kbandits.confidence import (
    ConstantGain,
    GreedyGain,
    GuessAndDouble,
    InformationGain,
    RateGain,
    RealizedGain,
    ScaledWidth,
    SumGain,
    TheoremWidth,
    Width,
)
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.nearest import check_keys, pick, table

WIDTHS: dict[str, type[Width]] = {
    "bayesian-gp-ucb": confidence.BayesianGPUCBWidth,
    "bkb": confidence.BKBWidth,
    "constant": confidence.ConstantWidth,
    "ek-ucb": confidence.EKUCBWidth,
    "gp-ts": confidence.GPTSWidth,
    "gp-ucb": confidence.GPUCBWidth,
    "igp-ucb": confidence.IGPUCBWidth,
    "k-ucb": confidence.KUCBWidth,
    "nystrom": confidence.NystromWidth,
    "randomized": confidence.RandomizedWidth,
    "self-normalized": confidence.SelfNormalizedWidth,
}
#: Options of every table: a factor on the width, and whether to double the norm bound while the data contradict it.
_WRAPPERS = ("scale", "double")
GAINS = ("realized", "greedy", "certified-greedy")
_RATE = ("rate", "dimension", "nu", "constant")


def width_options(name: str) -> dict[str, Any]:
    """Return the options of a width with their defaults, ``dataclasses.MISSING`` where there is none."""
    if own.is_own(name):
        known = own.parameters(own.load(name, name))
        return {key: dataclasses.MISSING if value is Parameter.empty else value for key, value in known.items()}
    return {
        field.name: "realized" if field.name == "gain" else field.default
        for field in dataclasses.fields(cast(Any, WIDTHS[name]))
    }


def check_width(where: str, value: Any) -> None:
    """Refuse what names no width: neither a number of at least 0, nor a width's name, nor a table with one."""
    if not isinstance(value, str | Mapping):
        checks.non_negative(where, value)
        return
    name, options = _parts(where, value)
    check_keys(where, f"option of width {own.what(name)!r}", options, [*width_options(name), *_WRAPPERS])
    if "gain" in options:
        check_gain(f"{where}.gain", options["gain"])
    if "scale" in options:
        checks.non_negative(f"{where}.scale", options["scale"])
    if not isinstance(options.get("double", False), bool):
        raise InputError(f"{where}.double must be true or false, got {options['double']!r}.")
    if options.get("double") and "norm_bound" not in width_options(name):
        raise InputError(f"{where}: width {own.what(name)!r} has no norm bound to double.")


def build_width(value: Any, words: Mapping[str, Any], where: str = "beta") -> float | Width:
    """Make the width that a spec names.

    Args:
        value: a number, a width's name, or a table: ``width``, its options, ``scale``, a factor on it, and ``double``,
            whether its ``norm_bound`` is only a first guess. ``gain`` is "realized", "greedy", "certified-greedy", a
            number, a table such as ``{rate = "rbf"}``, or a list of those for a sum of kernels.
        words: what the run knows, such as noise_scale, norm_bound and candidates; used where the table is silent.
        where: how error messages call it.

    Raises:
        InputError: if a name or an option is not known, or a constant of the theorem is missing.
    """
    check_width(where, value)
    if not isinstance(value, str | Mapping):
        return float(value)
    name, options = _parts(where, value)
    if "candidates" in words:
        words = {"num_arms": len(words["candidates"]), **words}
    arguments = {}
    for key, default in width_options(name).items():
        given = options.get(key, words.get(key))
        if key == "gain":
            arguments[key] = build_gain(f"{where}.gain", options.get("gain", words.get("gain", "realized")), words)
        elif given is not None:
            arguments[key] = given
        elif default is dataclasses.MISSING:
            raise InputError(
                f"{where}: width {own.what(name)!r} needs {key}, which the environment does not know; give it."
            )
    width = _made(where, name, arguments)
    if options.get("double"):
        width = GuessAndDouble(cast(TheoremWidth, width))
    return ScaledWidth(width, options["scale"]) if "scale" in options else width


def check_gain(where: str, value: Any) -> None:
    """Refuse what names no information gain; see ``build_width`` for what does."""
    if isinstance(value, str):
        pick(where, "information gain", value, GAINS)
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            check_gain(f"{where}[{i}]", part)
    elif isinstance(value, Mapping):
        check_keys(where, "option of a rate", table(where, value), _RATE)
        if "rate" not in value:
            raise InputError(f'{where} needs a rate, as in {{rate = "rbf"}}; got {dict(value)!r}.')
    else:
        checks.non_negative(where, value)


def build_gain(where: str, value: Any, words: Mapping[str, Any]) -> InformationGain:
    """Make the information gain that a spec names, from what the run knows; see ``build_width``."""
    if value == "realized":
        return RealizedGain()
    if isinstance(value, str):
        needed = ("kernel", "candidates", "horizon", "regularization")
        missing = [key for key in needed if words.get(key) is None]
        if missing:
            raise InputError(f"{where}: the greedy gain needs {' and '.join(missing)}, and the environment has none.")
        return GreedyGain(*(words[key] for key in needed), certified=value == "certified-greedy")
    if isinstance(value, list | tuple):
        return SumGain(tuple(build_gain(f"{where}[{i}]", part, words) for i, part in enumerate(value)))
    if isinstance(value, Mapping):
        space = words["candidates"] if "candidates" in words else words["bounds"]
        options = {"dimension": space.shape[-1], **value}
        return RateGain(options.pop("rate"), **options)
    return ConstantGain(float(value))


def _made(where: str, name: str, arguments: Mapping[str, Any]) -> Width:
    if not own.is_own(name):
        return WIDTHS[name](**arguments)
    width = own.build_piece(where, {"name": name, **arguments})
    checks.instance(where, width, Width, "a Width")
    return width


def _parts(where: str, value: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the width and its options."""
    entry = {"width": value} if isinstance(value, str) else table(where, value)
    if "width" not in entry:
        raise InputError(f"{where} needs a number, or a table with width, one of {', '.join(WIDTHS)}.")
    name = entry["width"] if own.is_own(entry["width"]) else pick(where, "width", entry["width"], WIDTHS, own.FORMS)
    return name, {key: option for key, option in entry.items() if key != "width"}

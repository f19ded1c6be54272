"""Kernels, widths and information gains by name, for specs.

``kernel = {name = "rbf", lengthscale = 0.2, outputscale = 1.0}``; ``beta = 2.0`` or
``beta = {width = "igp-ucb", scale = 0.1, gain = "realized"}``.
"""

import dataclasses
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, LinearKernel

from torch_kbandits import checks, confidence
from torch_kbandits.confidence import InformationGain, TheoremWidth, Width
from torch_kbandits.environments.options import check_options, parameters, pick, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.names import OWN_FORMS, table

#: The names that a kernel table may have, and what each is.
KERNELS = {
    "rbf": "Gaussian, or squared exponential: smooth functions.",
    "matern-2.5": "Matérn, ν = 2.5: twice differentiable functions.",
    "matern-1.5": "Matérn, ν = 1.5: once differentiable functions.",
    "matern-0.5": "Matérn, ν = 0.5: rough, continuous functions.",
    "linear": "Inner product: linear functions through the origin.",
}
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
GAINS = ("realized", "greedy", "certified-greedy")


def kernel_options(name: str) -> dict[str, Any]:
    """Return the options of a kernel with their defaults."""
    return {"outputscale": 1.0} if name == "linear" else {"lengthscale": 1.0, "outputscale": 1.0}


def build_kernel(value: Any, where: str = "kernel") -> Kernel:
    """Make a kernel in double precision from its name or its table; that of own code has the words of its class."""
    if own.is_piece(value):
        return own.build_piece(where, value, Kernel, "a GPyTorch kernel").double()
    entry: Mapping[str, Any] = {"name": value} if isinstance(value, str) else table(where, value)
    if "name" not in entry:
        raise InputError(f"{where} needs a name, one of {', '.join(KERNELS)}.")
    name = pick(where, "kernel", entry["name"], KERNELS, OWN_FORMS)
    check_options(where, f"option of kernel {name!r}", entry, ["name", *kernel_options(name)])
    outputscale = checks.positive(f"{where}.outputscale", entry.get("outputscale", 1.0))
    if name == "linear":
        kernel = LinearKernel().double()
        kernel.variance = torch.tensor(outputscale, dtype=torch.float64)
        return kernel
    lengthscale, place = entry.get("lengthscale", 1.0), f"{where}.lengthscale"
    if not isinstance(lengthscale, list | tuple):
        return stationary_kernel(name, checks.positive(place, lengthscale), outputscale)
    if not lengthscale:
        raise InputError(f"{place} must be a number or a list with one for each input, got an empty list.")
    lengths = [checks.positive(f"{place}[{i}]", part) for i, part in enumerate(lengthscale)]
    return stationary_kernel(name, lengths, outputscale)


def width_options(name: str) -> dict[str, Any]:
    """Return the options of a width with their defaults, ``dataclasses.MISSING`` where there is none."""
    if own.is_own(name):
        known = parameters(own.load(name, name))
        return {key: dataclasses.MISSING if value is Parameter.empty else value for key, value in known.items()}
    known = {field.name: field.default for field in dataclasses.fields(cast(Any, WIDTHS[name]))}
    return known | ({"gain": "realized"} if "gain" in known else {})


def check_width(where: str, value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the name of a width and its options, None for a number of at least 0; refuse what names no width."""
    if not isinstance(value, str | Mapping):
        checks.non_negative(where, value)
        return None
    options = {"width": value} if isinstance(value, str) else dict(table(where, value))
    if "width" not in options:
        raise InputError(f"{where} needs a number, or a table with width, one of {', '.join(WIDTHS)}.")
    if not own.is_own(name := options.pop("width")):
        pick(where, "width", name, WIDTHS, OWN_FORMS)
    known = width_options(name)
    check_options(where, f"option of width {own.what(name)!r}", options, [*known, "scale", "double"])
    if "gain" in options:
        check_gain(f"{where}.gain", options["gain"])
    if "scale" in options:
        checks.non_negative(f"{where}.scale", options["scale"])
    if not isinstance(options.get("double", False), bool):
        raise InputError(f"{where}.double must be true or false, got {options['double']!r}.")
    if options.get("double") and "norm_bound" not in known:
        raise InputError(f"{where}: width {own.what(name)!r} has no norm bound to double.")
    return name, options


def build_width(value: Any, words: Mapping[str, Any], where: str = "beta") -> float | Width:
    """Make the width that a spec names: a number, a name, or a table with ``width`` and its options.

    Of every width: ``scale``, a factor on it, and ``double``, whether its ``norm_bound`` is only a first guess. Where
    the table is silent ``words`` are used: what the run knows, such as noise_scale, norm_bound and candidates.
    """
    if (named := check_width(where, value)) is None:
        return float(value)
    name, options = named
    if "candidates" in words:
        words = {"num_arms": len(words["candidates"]), **words}
    arguments = {}
    for key, default in width_options(name).items():
        given = options.get(key, words.get(key))
        if key == "gain":
            arguments[key] = build_gain(f"{where}.gain", "realized" if given is None else given, words)
        elif given is not None:
            arguments[key] = given
        elif default is dataclasses.MISSING:
            raise InputError(
                f"{where}: width {own.what(name)!r} needs {key}, which the environment does not know; give it."
            )
    if own.is_own(name):
        width = own.build_piece(where, {"name": name, **arguments}, Width, "a Width")
    else:
        width = WIDTHS[name](**arguments)
    if options.get("double"):
        width = confidence.GuessAndDouble(cast(TheoremWidth, width))
    return confidence.ScaledWidth(width, options["scale"]) if "scale" in options else width


def check_gain(where: str, value: Any) -> None:
    """Refuse what is no information gain: a name, a number, a table such as ``{rate = "rbf"}``, or a list of those."""
    if isinstance(value, str):
        pick(where, "information gain", value, GAINS)
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            check_gain(f"{where}[{i}]", part)
    elif isinstance(value, Mapping):
        check_options(where, "option of a rate", table(where, value), ("rate", "dimension", "nu", "constant"))
        if "rate" not in value:
            raise InputError(f'{where} needs a rate, as in {{rate = "rbf"}}; got {dict(value)!r}.')
    else:
        checks.non_negative(where, value)


def build_gain(where: str, value: Any, words: Mapping[str, Any]) -> InformationGain:
    """Make the information gain that a spec names, from what the run knows; of a list it is that of a sum."""
    if value == "realized":
        return confidence.RealizedGain()
    if isinstance(value, str):
        needed = ("kernel", "candidates", "horizon", "regularization")
        if missing := [key for key in needed if words.get(key) is None]:
            raise InputError(f"{where}: the greedy gain needs {' and '.join(missing)}, and the environment has none.")
        return confidence.GreedyGain(*(words[key] for key in needed), certified=value == "certified-greedy")
    if isinstance(value, list | tuple):
        return confidence.SumGain(tuple(build_gain(f"{where}[{i}]", part, words) for i, part in enumerate(value)))
    if isinstance(value, Mapping):
        space = words["candidates"] if "candidates" in words else words["bounds"]
        options = {"dimension": space.shape[-1], **value}
        return confidence.RateGain(options.pop("rate"), **options)
    return confidence.ConstantGain(float(value))

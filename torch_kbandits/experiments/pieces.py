"""Kernels, widths and information gains by name, for specs.

``kernel = {name = "rbf", lengthscale = 0.2, outputscale = 1.0}``; ``beta = 2.0`` or
``beta = {width = "igp-ucb", scale = 0.1, gain = "realized"}``.
"""

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


def build_kernel(where: str, value: Any) -> Kernel:
    """Make a kernel in double precision from its name or its table; that of own code has the words of its class."""
    if own.is_piece(value):
        return own.build_piece(where, value, Kernel, "a GPyTorch kernel").double()
    entry: dict[str, Any] = {"name": value} if isinstance(value, str) else dict(own.table(where, value))
    if "name" not in entry:
        raise InputError(f"{where} needs a name, one of {', '.join(KERNELS)}.")
    name = pick(where, "kernel", entry.pop("name"), KERNELS, own.OWN_FORMS)
    check_options(where, f"option of kernel {name!r}", entry, kernel_options(name))
    outputscale = checks.positive(f"{where}.outputscale", entry.get("outputscale", 1.0))
    if name != "linear":
        return stationary_kernel(name, entry.get("lengthscale", 1.0), outputscale, where=f"{where}.")
    kernel = LinearKernel().double()
    kernel.variance = torch.tensor(outputscale, dtype=torch.float64)
    return kernel


def width_options(name: str) -> dict[str, Any]:
    """Return the options of a width with their defaults, ``inspect.Parameter.empty`` where there is none."""
    known = parameters(own.load(name, name) if own.is_own(name) else WIDTHS[name])
    return known | ({"gain": "realized"} if "gain" in known else {})


def build_width(where: str, value: Any, words: Mapping[str, Any]) -> float | Width:
    """Make the width that a spec names: a number, a name, or a table with ``width`` and its options.

    Of every width: ``scale``, a factor on it, and ``double``, whether its ``norm_bound`` is only a first guess. Where
    the table is silent ``words`` are used: what the run knows, such as noise_scale, norm_bound and candidates.
    """
    if not isinstance(value, str | Mapping):
        return checks.non_negative(where, value)
    options: dict[str, Any] = {"width": value} if isinstance(value, str) else dict(own.table(where, value))
    if "width" not in options:
        raise InputError(f"{where} needs a number, or a table with width, one of {', '.join(WIDTHS)}.")
    name, scale, double = options.pop("width"), options.get("scale"), options.get("double", False)
    if not own.is_own(name):
        pick(where, "width", name, WIDTHS, own.OWN_FORMS)
    known, shown = width_options(name), own.what(name)
    check_options(where, f"option of width {shown!r}", options, [*known, "scale", "double"])
    checks.optional(checks.non_negative)(f"{where}.scale", scale)
    if not isinstance(double, bool) or (double and "norm_bound" not in known):
        raise InputError(f"{where}.double must be true or false, and of a width with a norm_bound, got {double!r}.")
    if "candidates" in words:
        words = {"num_arms": len(words["candidates"]), **words}
    given = {key: value for key, value in {**known, **words, **options}.items() if key in known and value is not None}
    for key in [key for key, value in given.items() if value is Parameter.empty]:
        raise InputError(f"{where}: width {shown!r} needs {key}, which the environment does not know; give it.")
    if "gain" in given:
        given["gain"] = build_gain(f"{where}.gain", given["gain"], words)
    with own.making(name):
        width = (own.load(where, name) if own.is_own(name) else WIDTHS[name])(**given)
    checks.instance(where, width, Width, "a Width")
    if double:
        width = confidence.GuessAndDouble(cast(TheoremWidth, width))
    return width if scale is None else confidence.ScaledWidth(width, scale)


def build_gain(where: str, value: Any, words: Mapping[str, Any]) -> InformationGain:
    """Make the information gain that a spec names, from what the run knows."""
    if isinstance(value, Mapping):
        check_options(where, "option of a rate", own.table(where, value), ("rate", "dimension", "nu", "constant"))
        if "rate" not in value:
            raise InputError(f'{where} needs a rate, as in {{rate = "rbf"}}; got {dict(value)!r}.')
        space = words["candidates"] if "candidates" in words else words["bounds"]
        options = {"dimension": space.shape[-1], **value}
        return confidence.RateGain(options.pop("rate"), **options)
    if not isinstance(value, str):
        return confidence.ConstantGain(checks.non_negative(where, value))
    if pick(where, "information gain", value, GAINS) == "realized":
        return confidence.RealizedGain()
    needed = ("kernel", "candidates", "horizon", "regularization")
    if missing := [key for key in needed if words.get(key) is None]:
        raise InputError(f"{where}: the greedy gain needs {' and '.join(missing)}, and the environment has none.")
    return confidence.GreedyGain(*(words[key] for key in needed), certified=value == "certified-greedy")

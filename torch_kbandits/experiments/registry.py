"""What names in a spec stand for: kernels, widths and information gains, and code of your own.

``kernel = {name = "rbf", lengthscale = 0.2, outputscale = 1.0}``; ``beta = 2.0`` or
``beta = {width = "igp-ucb", scale = 0.1, gain = "realized"}``. Code of your own is ``path/to/file.py:Class`` or
``package.module:Class``, where a name of an algorithm, an environment, a kernel, a width or a memory may stand.
"""

import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, LinearKernel

from torch_kbandits import checks, confidence
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.environments.options import check_options, parameters, pick, stationary_kernel
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.files import read_whole

#: How code of one's own is named, for messages, and as a pattern: its file or module, its class.
OWN_FORMS = "path/to/file.py:Class or package.module:Class"
OWN_NAME = re.compile(r"(.*\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
#: Where a spec may name own code: the keys of tables, and those whose value may be a name instead of a table.
_OWN_KEYS = ("name", "width", "beta", "kernel", "memory")
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
_GAINS = ("realized", "greedy", "certified-greedy")


def kernel_options(name: str) -> dict[str, Any]:
    """Return the options of a kernel with their defaults."""
    return {"outputscale": 1.0} if name == "linear" else {"lengthscale": 1.0, "outputscale": 1.0}


def width_options(name: str) -> dict[str, Any]:
    """Return the options of a width with their defaults, ``inspect.Parameter.empty`` where there is none."""
    known = parameters(WIDTHS.get(name) or load(name))
    return known | ({"gain": "realized"} if "gain" in known else {})


def build_kernel(where: str, value: Any) -> Kernel:
    """Make a kernel in double precision from its name or its table; that of own code has the words of its class."""
    if is_own(value):
        return build_own(where, value, Kernel, "a GPyTorch kernel").double()
    name, entry = _entry(where, "kernel", "name", value, KERNELS)
    check_options(where, f"option of kernel {name!r}", entry, kernel_options(name))
    outputscale = checks.positive(f"{where}.outputscale", entry.get("outputscale", 1.0))
    if name != "linear":
        return stationary_kernel(name, entry.get("lengthscale", 1.0), outputscale, where=f"{where}.")
    kernel = LinearKernel().double()
    kernel.variance = torch.tensor(outputscale, dtype=torch.float64)
    return kernel


def build_width(where: str, value: Any, words: Mapping[str, Any]) -> float | Width:
    """Make the width that a spec names: a number, a name, or a table with ``width`` and its options.

    Of every width: ``scale``, a factor on it, and ``double``, whether its ``norm_bound`` is only a first guess. Where
    the table is silent ``words`` are used: what the run knows, such as noise_scale, norm_bound and candidates.
    """
    if not isinstance(value, str | Mapping):
        return checks.non_negative(where, value)
    name, options = _entry(where, "width", "width", value, WIDTHS)
    scale, double, known = options.get("scale"), options.get("double", False), width_options(name)
    check_options(where, f"option of width {title(name)!r}", options, [*known, "scale", "double"])
    checks.optional(checks.non_negative)(f"{where}.scale", scale)
    if not isinstance(double, bool) or (double and "norm_bound" not in known):
        raise InputError(f"{where}.double must be true or false, and of a width with a norm_bound, got {double!r}.")
    if "candidates" in words:
        words = {"num_arms": len(words["candidates"]), **words}
    given = {key: value for key, value in {**known, **words, **options}.items() if key in known and value is not None}
    if missing := [key for key, value in given.items() if value is Parameter.empty]:
        lack = f"width {title(name)!r} needs {missing[0]}"
        raise InputError(f"{where}: {lack}, which the environment does not know; give it.")
    if "gain" in given:
        given["gain"] = build_gain(f"{where}.gain", given["gain"], words)
    width: Any = (WIDTHS.get(name) or load(name))(**given)
    checks.instance(where, width, Width, "a Width")
    width = confidence.GuessAndDouble(width) if double else width
    return width if scale is None else confidence.ScaledWidth(width, scale)


def build_gain(where: str, value: Any, words: Mapping[str, Any]) -> InformationGain:
    """Make the information gain that a spec names, from what the run knows."""
    if isinstance(value, Mapping):
        check_options(where, "option of a rate", table(where, value), ("rate", "dimension", "nu", "constant"))
        if "rate" not in value:
            raise InputError(f'{where} needs a rate, as in {{rate = "rbf"}}; got {dict(value)!r}.')
        options = {"dimension": words["candidates" if "candidates" in words else "bounds"].shape[-1], **value}
        return confidence.RateGain(options.pop("rate"), **options)
    if not isinstance(value, str):
        return confidence.ConstantGain(checks.non_negative(where, value))
    if pick(where, "information gain", value, _GAINS) == "realized":
        return confidence.RealizedGain()
    needed = ("kernel", "candidates", "horizon", "regularization")
    if missing := [key for key in needed if words.get(key) is None]:
        raise InputError(f"{where}: the greedy gain needs {' and '.join(missing)}, and the environment has none.")
    return confidence.GreedyGain(*(words[key] for key in needed), certified=value == "certified-greedy")


def _entry(where: str, kind: str, key: str, value: Any, known: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name, in a registry or of own code, and the options of a name or a table that has it under a key."""
    options = {key: value} if isinstance(value, str) else dict(table(where, value))
    if key not in options:
        raise InputError(f"{where} needs a {key}, one of {', '.join(known)}.")
    name = options.pop(key)
    return name if is_own(name) else pick(where, kind, name, known, OWN_FORMS), options


# ---------------------------------------------------------------- own code


def is_own(value: Any) -> bool:
    """Whether a value names own code, by itself or in a table with ``name``."""
    name = value.get("name") if isinstance(value, Mapping) else value
    return isinstance(name, str) and OWN_NAME.fullmatch(name) is not None


def title(name: str) -> str:
    """Return the name of the class alone, or a name that is not of own code as it is."""
    return name.rpartition(":")[2] if is_own(name) else name


def renamed(value: Any, rename: Callable[[str], str], key: str = "") -> Any:
    """Return a value of a spec with other names of own code."""
    if isinstance(value, Mapping):
        return {name: renamed(part, rename, name) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(part, rename, key) for part in value]
    return rename(value) if key in _OWN_KEYS and isinstance(value, str) and is_own(value) else value


def versioned(name: str) -> str:
    """Return a name of own code by which its runs are known: without the folder, with a digest of the file now."""
    place, _, kind = name.rpartition(":")
    return f"{Path(place).name if place.endswith('.py') else place}:{kind}@{_digest(read_whole(_found(name, name)[1]))}"


def load(name: str, where: str = "") -> Any:
    """Return the class or the function that a name of own code stands for; another name as it is, for registries."""
    return _found(name, where or name)[0] if is_own(name) else name


def build_own(where: str, value: Any, kind: type = object, hint: str = "") -> Any:
    """Make what a name or a table with ``name`` and the words of its class stands for, of a kind if one is given."""
    words = {"name": value} if isinstance(value, str) else dict(table(where, value))
    name = words.pop("name")
    made_by = load(name, where)
    check_options(where, f"option of {title(name)}", words, parameters(made_by))
    piece = made_by(**words)
    checks.instance(where, piece, kind, hint)
    return piece


def reason(error: BaseException) -> str:
    """Return an error in a line; of one that is not the package's the kind, too, and the file and line that raised."""
    text = " ".join(str(error).split())
    if isinstance(error, KernelBanditError):
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({Path(last.filename).name}, line {last.lineno})" if Path(last.filename).is_file() else ""
    return f"{type(error).__name__}: {text}{place}"


def table(where: str, value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a table: a mapping from names to values."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} must be a table of names and values, got {checks.describe(value)}.")
    return value


def _found(name: str, where: str) -> tuple[Callable[..., Any], str]:
    """Return what a name stands for, and the file that it is from."""
    place, _, kind = name.rpartition(":")
    try:
        module = _module_of_file(place) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{where}: {place!r} cannot be imported: {reason(error)}. Own code is {OWN_FORMS}; modules must be "
            "installed or in a folder of PYTHONPATH."
        ) from error
    made = {each: value for each, value in vars(module).items() if callable(value) and not each.startswith("_")}
    found = made[pick(where, f"class or function of {place!r}", kind, made)]
    file = place if place.endswith(".py") else getattr(sys.modules.get(found.__module__, module), "__file__", None)
    if file is None:
        raise InputError(f"{where}: {name} is in no file, so nobody could say later what was run.")
    return found, file


def _module_of_file(file: str) -> ModuleType:
    """Import a file, once for each content, under a name that every process gives it."""
    name = f"kbandits_own_{_digest(file.encode())}_{_digest(read_whole(file))}"
    if name not in sys.modules:
        spec = cast(Any, spec_from_file_location(name, file))
        sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except (Exception, SystemExit):
            del sys.modules[name]
            raise
    return sys.modules[name]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()

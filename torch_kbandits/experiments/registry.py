"""What names in a spec stand for: kernels, widths and information gains, and code of your own anywhere.

``kernel = {name = "rbf", lengthscale = 0.2}``; ``beta = 2.0`` or ``beta = {width = "igp-ucb", scale = 0.1}``.
"""

import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, LinearKernel
from torch import Tensor

from torch_kbandits import checks, confidence
from torch_kbandits.confidence import InformationGain, Width
from torch_kbandits.environments.options import check_options, parameters, pick, stationary_kernel
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.files import read_whole

#: How code of one's own is named, for messages, and as a pattern: its file or module, its class.
OWN_FORMS = "path/to/file.py:Class or package.module:Class"
OWN_NAME = re.compile(r"(?:.*\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):[^\W\d]\w*")
#: Where a spec may name own code: the keys of tables, and those whose value may be a name instead of a table.
_OWN_KEYS = ("name", "width", "beta", "kernel", "memory")


def _stationary(name: str, summary: str) -> Callable[..., Kernel]:
    def make(lengthscale: Any = 1.0, outputscale: float = 1.0) -> Kernel:
        return stationary_kernel(name, lengthscale, outputscale, where="kernel.")

    make.__doc__ = summary
    return make


def _linear(outputscale: float = 1.0) -> Kernel:
    """Inner product: linear functions through the origin."""
    kernel = LinearKernel().double()
    kernel.variance = torch.tensor(checks.positive("kernel.outputscale", outputscale), dtype=torch.float64)
    return kernel


#: What makes each kernel in double precision.
KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": _stationary("rbf", "Gaussian, or squared exponential: smooth functions."),
    "matern-2.5": _stationary("matern-2.5", "Matérn, ν = 2.5: twice differentiable functions."),
    "matern-1.5": _stationary("matern-1.5", "Matérn, ν = 1.5: once differentiable functions."),
    "matern-0.5": _stationary("matern-0.5", "Matérn, ν = 0.5: rough, continuous functions."),
    "linear": _linear,
}
_CLASSES = {name.lower(): name for name in dir(confidence)}
_WIDTHS = "bayesian-gp-ucb bkb constant ek-ucb gp-ts gp-ucb igp-ucb k-ucb martingale-mixture nystrom randomized"
_WIDTHS += " self-normalized"
#: What makes each width: the class of that name, whatever its case and hyphens.
WIDTHS: dict[str, type[Width]] = {
    name: getattr(confidence, _CLASSES[f"{name.replace('-', '')}width"]) for name in _WIDTHS.split()
}
_GAINS: dict[str, Callable[..., InformationGain]] = {
    "realized": confidence.RealizedGain,
    "greedy": confidence.GreedyGain,
    "certified-greedy": partial(confidence.GreedyGain, certified=True),
}
_RATES = {name: partial(confidence.RateGain, name) for name in ("rbf", "matern", "linear")}


def build(
    where: str,
    kind: str,
    value: Any,
    known: Mapping[str, Callable[..., Any]],
    words: Mapping[str, Any] | None = None,
    key: str = "name",
    also: Sequence[str] = (),
) -> Any:
    """Make what a name, or a table with it, stands for, with what the run knows; options ``also`` are the caller's."""
    options: dict[str, Any] = {key: value} if isinstance(value, str) else dict(table(where, value))
    if key not in options:
        raise InputError(f"{where} needs a {key}, one of {', '.join(known)}.")
    name = options.pop(key)
    made_by = load(name, where) if is_own(name) else known[pick(where, kind, name, known, OWN_FORMS)]
    takes, shown = parameters(made_by), f"{kind} {title(name)!r}"
    check_options(where, f"option of {shown}", options, [*takes, *also])
    words = {} if words is None else words
    given = {each: part for each, part in {**words, **options}.items() if each in takes and part is not None}
    if missing := [each for each, default in takes.items() if default is Parameter.empty and each not in given]:
        raise InputError(
            f"{where}: {shown} needs {' and '.join(missing)}, which the environment does not know; give it."
        )
    if "gain" in given:
        given["gain"] = build_gain(f"{where}.gain", given["gain"], words)
    return made_by(**given)


def build_kernel(where: str, value: Any) -> Kernel:
    """Make a kernel in double precision."""
    kernel = build(where, "kernel", value, KERNELS)
    checks.instance(where, kernel, Kernel, "a GPyTorch kernel")
    return kernel.double()


def build_width(where: str, value: Any, words: Mapping[str, Any]) -> float | Width:
    """Make the width that a spec names: a number, a name, or a table with ``width`` and its options.

    Of every width: ``scale``, a factor on it, and ``double``, whether its ``norm_bound`` is only a first guess.
    """
    if not isinstance(value, str | Mapping):
        return checks.non_negative(where, value)
    if isinstance(arms := words.get("candidates"), Tensor):  # and not contextual actions
        words = {"num_arms": len(arms), **words}
    width = build(where, "width", value, WIDTHS, words, "width", ("scale", "double"))
    checks.instance(where, width, Width, "a Width")
    scale, double = (value.get("scale"), value.get("double", False)) if isinstance(value, Mapping) else (None, False)
    if not isinstance(double, bool) or (double and not hasattr(width, "norm_bound")):
        raise InputError(f"{where}.double must be true or false, and of a width with a norm_bound, got {double!r}.")
    width = confidence.GuessAndDouble(width) if double else width
    return width if scale is None else confidence.ScaledWidth(width, checks.non_negative(f"{where}.scale", scale))


def build_gain(where: str, value: Any, words: Mapping[str, Any]) -> InformationGain:
    """Make the information gain that a spec names, from what the run knows."""
    if isinstance(value, Mapping):
        space = words["candidates" if "candidates" in words else "bounds"]
        known = {"dimension": space.shape[-1]} if isinstance(space, Tensor) else {}
        return build(where, "rate", value, _RATES, known, "rate")
    if not isinstance(value, str):
        return confidence.ConstantGain(checks.non_negative(where, value))
    return build(where, "information gain", value, _GAINS, words)


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

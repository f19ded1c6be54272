"""Code of your own in a spec: ``path/to/file.py:Class`` or ``package.module:Class``, and which version of it is meant.

A name that was checked ends with ``@`` and a digest of the file, and only that content is ever run under it. So runs of
changed code are other runs, wherever they are made.
"""

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditError, StateMismatchError
from torch_kbandits.experiments.nearest import check_keys, table
from torch_kbandits.files import read_whole

#: How own code is named, for messages.
FORMS = "path/to/file.py:Class or package.module:Class"
NAME = re.compile(r"(?P<place>.*\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<what>[^\W\d]\w*)(@(?P<digest>[0-9a-f]{12}))?")
#: Where a spec may name own code: the keys of tables, and those whose value may be a name instead of a table.
_KEYS = ("name", "width", "beta", "kernel", "memory")

#: Files that stand in the traceback of every failed import.
_MACHINERY = (
    __file__,
    import_module.__code__.co_filename,
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)


def is_own(name: Any) -> bool:
    """Whether a name is one of own code."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def what(name: str) -> str:
    """Return the name of the class alone, or a name that is not of own code as it is."""
    return _parts(name)[1] if is_own(name) else name


def pinned(where: str, value: Any, folder: Path) -> Any:
    """Return a value of a spec in which names of own code have the digest of the present code and an absolute path.

    Args:
        where: the place in the spec.
        value: a table, a list, or what they hold.
        folder: what paths are relative to.

    Raises:
        InputError: if there is no such code, or it cannot be imported.
        StateMismatchError: if a name has the digest of another content.
    """
    if isinstance(value, list | tuple):
        return [pinned(f"{where}[{i}]", part, folder) for i, part in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    known = {}
    for key, part in value.items():
        place = f"{where}.{key}"
        known[key] = _pinned(place, part, folder) if key in _KEYS and is_own(part) else pinned(place, part, folder)
    return known


def portable(value: Any) -> Any:
    """Return a value in which names of own code have no folder: the same wherever the file is."""
    if isinstance(value, Mapping):
        return {key: portable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [portable(part) for part in value]
    return Path(value).name if is_own(value) and _parts(value)[0].endswith(".py") else value


def names_in(value: Any) -> dict[str, str]:
    """Return the digests of all names of own code in a value, by the name without it."""
    if isinstance(value, Mapping | list | tuple):
        parts = value.values() if isinstance(value, Mapping) else value
        return {name: digest for part in parts for name, digest in names_in(part).items()}
    place, kind, digest = _parts(value) if is_own(value) else ("", "", None)
    return {f"{place}:{kind}": digest} if digest else {}


def load(where: str, name: str) -> Callable[..., Any]:
    """Return the class or the function of a name.

    Raises:
        InputError: if there is none, its file or module cannot be imported, or it is neither.
        StateMismatchError: if the name has a digest, and the code has another or is gone.
    """
    return _found(where, name)[0]


def parameters(made_by: Callable[..., Any]) -> dict[str, Any]:
    """Return the words of a class or a function with their defaults, ``inspect.Parameter.empty`` without one."""
    words = inspect.signature(made_by).parameters.values()
    return {word.name: word.default for word in words if word.kind not in (word.VAR_KEYWORD, word.VAR_POSITIONAL)}


def check_piece(where: str, value: Any) -> None:
    """Refuse a name or a table of own code whose words do not fit its class."""
    name, words = _entry(where, value)
    known = parameters(load(where, name))
    check_keys(where, f"option of {what(name)}", words, known)
    missing = [key for key, default in known.items() if default is inspect.Parameter.empty and key not in words]
    if missing:
        raise InputError(f"{where}: {what(name)} needs {' and '.join(missing)}.")


def is_piece(value: Any) -> bool:
    """Whether a value names own code, by itself or in a table with ``name``."""
    return is_own(value.get("name") if isinstance(value, Mapping) else value)


def build_piece(where: str, value: Any) -> Any:
    """Make what a name or a table with ``name`` and the words of its class stands for."""
    check_piece(where, value)
    name, words = _entry(where, value)
    with making(name):
        return load(where, name)(**words)


@contextmanager
def making(name: str) -> Iterator[None]:
    """Say of an error that own code raises while it makes something where that was; others pass as they are."""
    try:
        yield
    except KernelBanditError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        raise InputError(f"{what(name)} cannot be made: {_said(error)}") from error


# ---------------------------------------------------------------- inside


def _entry(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    entry = {"name": value} if isinstance(value, str) else dict(table(where, value))
    return entry.pop("name"), entry


def _parts(name: str) -> tuple[str, str, str | None]:
    match = NAME.fullmatch(name)
    assert match is not None
    return match["place"], match["what"], match["digest"]


def _pinned(where: str, name: str, folder: Path) -> str:
    place, kind, digest = _parts(name)
    if place.endswith(".py"):
        place = str((folder / place).resolve())
    known = f"{place}:{kind}"
    return f"{known}@{_found(where, known if digest is None else f'{known}@{digest}')[1]}"


def _found(where: str, name: str) -> tuple[Callable[..., Any], str]:
    """Return what a name stands for, and the digest of the file that it is from."""
    place, kind, pin = _parts(name)
    lost = InputError if pin is None else StateMismatchError
    if place.endswith(".py"):
        try:
            content = read_whole(place)
        except OSError as error:
            raise lost(f"{where}: {error}") from None
        digest = _digest(content)
        _check_pin(where, place, pin, digest)
        found = _member(where, _module_of_file(where, Path(place), digest), kind)
        return found, digest
    try:
        module = import_module(place)
    except (Exception, SystemExit) as error:
        raise lost(
            f"{where}: the module {place!r} cannot be imported: {_said(error)}. Own code is {FORMS}; a module must be "
            "installed or in a folder of PYTHONPATH."
        ) from error
    found = _member(where, module, kind)
    file = getattr(sys.modules.get(getattr(found, "__module__", place), module), "__file__", None)
    if file is None:
        raise InputError(f"{where}: {place}:{kind} is in no file, so nobody could say later what was run.")
    digest = _digest(read_whole(file))
    _check_pin(where, file, pin, digest)
    return found, digest


def _check_pin(where: str, file: str, pin: str | None, digest: str) -> None:
    if pin is not None and pin != digest:
        raise StateMismatchError(
            f"{where}: {file!r} has changed: its digest was {pin} and is {digest}. Put it back as it was to go on, or "
            "make the runs of the changed code: kbandits run SPEC --directory DIRECTORY."
        )


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _module_of_file(where: str, file: Path, digest: str) -> ModuleType:
    """Import a file, once for each content, under a name that every process gives it."""
    name = f"kbandits_own_{_digest(str(file).encode())}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(
            f"{where}: {str(file)!r} cannot be imported: {_said(error)}. What a file imports must be installed or in a "
            "folder of PYTHONPATH."
        ) from error
    return module


def _member(where: str, module: ModuleType, kind: str) -> Callable[..., Any]:
    if not hasattr(module, kind):
        made = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        near = checks.nearest_name(kind, made)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(made)) or 'none'}."
        raise InputError(f"{where}: {module.__file__} has no class {kind!r}; {hint}")
    found = getattr(module, kind)
    if not callable(found):
        raise InputError(f"{where}: {kind} must be a class or a function, got {checks.describe(found)}.")
    return found


def _said(error: BaseException) -> str:
    """Return an error in a line, with the file and the line that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _MACHINERY]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"

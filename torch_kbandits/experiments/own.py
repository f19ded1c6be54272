"""Code of your own in a spec: ``path/to/file.py:Class`` or ``package.module:Class``, and which version of it is meant.

A name that was checked ends with ``@`` and a digest of the file, and only that content is ever run under it. So runs of
changed code are other runs, wherever they are made.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from torch_kbandits import checks
from torch_kbandits.environments.options import check_options, parameters, pick
from torch_kbandits.errors import InputError, KernelBanditError, StateMismatchError
from torch_kbandits.experiments.names import OWN_FORMS, OWN_NAME, mapped, table
from torch_kbandits.files import read_whole

#: Where a spec may name own code: the keys of tables, and those whose value may be a name instead of a table.
_KEYS = ("name", "width", "beta", "kernel", "memory")


def is_own(name: Any) -> bool:
    """Whether a name is one of own code."""
    return isinstance(name, str) and OWN_NAME.fullmatch(name) is not None


def is_piece(value: Any) -> bool:
    """Whether a value names own code, by itself or in a table with ``name``."""
    return is_own(value.get("name") if isinstance(value, Mapping) else value)


def what(name: str) -> str:
    """Return the name of the class alone, or a name that is not of own code as it is."""
    return _parts(name)[1] if is_own(name) else name


def pinned(where: str, value: Any, folder: Path) -> Any:
    """Return a value of a spec in which names of own code have the digest of the code now, and an absolute path.

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
        if key in _KEYS and is_own(part):
            place, kind, digest = _parts(part)
            place = str((folder / place).resolve()) if place.endswith(".py") else place
            name = f"{place}:{kind}" if digest is None else f"{place}:{kind}@{digest}"
            known[key] = f"{place}:{kind}@{_found(f'{where}.{key}', name)[1]}"
        else:
            known[key] = pinned(f"{where}.{key}", part, folder)
    return known


def portable(value: Any) -> Any:
    """Return a value in which names of own code have no folder: the same wherever the file is."""
    return mapped(value, lambda part: Path(part).name if is_own(part) and _parts(part)[0].endswith(".py") else part)


def names_in(value: Any) -> dict[str, str]:
    """Return the digests of all names of own code in a value, by the name without it."""
    if isinstance(value, Mapping | list | tuple):
        parts = value.values() if isinstance(value, Mapping) else value
        return {name: digest for part in parts for name, digest in names_in(part).items()}
    place, kind, digest = _parts(value) if is_own(value) else ("", "", None)
    return {f"{place}:{kind}": digest} if digest else {}


def load(where: str, name: str) -> Callable[..., Any]:
    """Return the class or the function of a name; the errors are those of ``pinned``."""
    return _found(where, name)[0]


def maker(name: str) -> str | Callable[..., Any]:
    """Return what registries take: a name of theirs as it is, and what another name stands for."""
    return load(name, name) if is_own(name) else name


def check_piece(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return a name and the words of its class; refuse words that do not fit it."""
    words = {"name": value} if isinstance(value, str) else dict(table(where, value))
    name = words.pop("name")
    check_options(where, f"option of {what(name)}", words, parameters(load(where, name)))
    return name, words


def build_piece(where: str, value: Any, kind: type | None = None, hint: str = "") -> Any:
    """Make what a name or a table with ``name`` and the words of its class stands for, of a kind if one is given."""
    name, words = check_piece(where, value)
    with making(name):
        piece = load(where, name)(**words)
    if kind is not None:
        checks.instance(where, piece, kind, hint)
    return piece


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
        raise InputError(f"{what(name)} cannot be made: {said(error)}") from error


def said(error: BaseException) -> str:
    """Return an error in a line, with the file and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({Path(last.filename).name}, line {last.lineno})" if Path(last.filename).is_file() else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


# ---------------------------------------------------------------- inside


def _parts(name: str) -> tuple[str, str, str | None]:
    match = OWN_NAME.fullmatch(name)
    assert match is not None
    return match["place"], match["what"], match["digest"]


def _found(where: str, name: str) -> tuple[Callable[..., Any], str]:
    """Return what a name stands for, and the digest of the file that it is from."""
    place, kind, pin = _parts(name)
    lost = InputError if pin is None else StateMismatchError
    try:
        module = _module_of_file(place) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        raise lost(
            f"{where}: {place!r} cannot be imported: {said(error)}. Own code is {OWN_FORMS}; modules must be installed "
            "or in a folder of PYTHONPATH."
        ) from error
    found = getattr(module, kind, None)
    if not callable(found):
        made = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        pick(where, f"class or function of {place!r}", kind, made)
    file = place if place.endswith(".py") else getattr(sys.modules.get(found.__module__, module), "__file__", None)
    if file is None:
        raise InputError(f"{where}: {place}:{kind} is in no file, so nobody could say later what was run.")
    digest = _digest(read_whole(file))
    if pin is not None and pin != digest:
        raise StateMismatchError(
            f"{where}: {file!r} has changed: its digest was {pin} and is {digest}. Put it back as it was to go on, or "
            "make the runs of the changed code: kbandits run SPEC --directory DIRECTORY."
        )
    return cast(Callable[..., Any], found), digest


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _module_of_file(file: str) -> ModuleType:
    """Import a file, once for each content, under a name that every process gives it."""
    name = f"kbandits_own_{_digest(file.encode())}_{_digest(read_whole(file))}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except (Exception, SystemExit):
            del sys.modules[name]
            raise
    return sys.modules[name]

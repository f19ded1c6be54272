"""Code of your own in a spec: ``path/to/file.py:Class`` or ``package.module:Class``, and which version of it is meant.

A name that was checked ends with ``@`` and a digest of the file, and only that content is ever run under it. So runs of
changed code are other runs, wherever they are made.
"""

import hashlib
import json
import re
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
from torch_kbandits.files import read_whole

#: How code of one's own is named, for messages, and as a pattern.
OWN_FORMS = "path/to/file.py:Class or package.module:Class"
OWN_NAME = re.compile(r"(?P<place>.*\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<what>[^\W\d]\w*)(@(?P<digest>[0-9a-f]{12}))?")
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


def table(where: str, value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a table: a mapping from names to values."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} must be a table of names and values, got {checks.describe(value)}.")
    return value


def pinned(where: str, value: Any, folder: Path) -> Any:
    """Return a value of a spec in which names of own code have an absolute path and the digest of the code now.

    Without such code there is an ``InputError``, and where a name has another digest a ``StateMismatchError``.
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


def portable(content: Any) -> Any:
    """Return a content in which pinned names have no folder: the same wherever the file is."""
    return json.loads(re.sub(r'"[^"]*[/\\]([^"/\\]+\.py:\w+@[0-9a-f]{12})"', r'"\1"', json.dumps(content)))


def digests(text: str) -> dict[str, str]:
    """Return the digests of all pinned names in a text of JSON, by the name without it."""
    return dict(re.findall(r'"([^"]+:\w+)@([0-9a-f]{12})"', text))


def load(where: str, name: str) -> Callable[..., Any]:
    """Return the class or the function of a name; the errors are those of ``pinned``."""
    return _found(where, name)[0]


def maker(name: str) -> str | Callable[..., Any]:
    """Return what registries take: a name of theirs as it is, and what another name stands for."""
    return load(name, name) if is_own(name) else name


def build_piece(where: str, value: Any, kind: type = object, hint: str = "") -> Any:
    """Make what a name or a table with ``name`` and the words of its class stands for, of a kind if one is given."""
    words = {"name": value} if isinstance(value, str) else dict(table(where, value))
    name = words.pop("name")
    check_options(where, f"option of {what(name)}", words, parameters(load(where, name)))
    with making(name):
        piece = load(where, name)(**words)
    checks.instance(where, piece, kind, hint)
    return piece


@contextmanager
def making(name: str) -> Iterator[None]:
    """Say of an error that own code raises while it makes something where that was; others pass as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, KernelBanditError) or not is_own(name):
            raise
        raise InputError(f"{what(name)} cannot be made: {said(error)}") from error


def said(error: BaseException) -> str:
    """Return an error in a line, with the file and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({Path(last.filename).name}, line {last.lineno})" if Path(last.filename).is_file() else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def _parts(name: str) -> tuple[str, str, str | None]:
    match = cast(re.Match[str], OWN_NAME.fullmatch(name))
    return match["place"], match["what"], match["digest"]


def _found(where: str, name: str) -> tuple[Callable[..., Any], str]:
    """Return what a name stands for, and the digest of the file that it is from."""
    place, kind, pin = _parts(name)
    try:
        module = _module_of_file(place) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        raise (InputError if pin is None else StateMismatchError)(
            f"{where}: {place!r} cannot be imported: {said(error)}. Own code is {OWN_FORMS}; modules must be installed "
            "or in a folder of PYTHONPATH."
        ) from error
    made = {each: value for each, value in vars(module).items() if callable(value) and not each.startswith("_")}
    found = made[pick(where, f"class or function of {place!r}", kind, made)]
    file = place if place.endswith(".py") else getattr(sys.modules.get(found.__module__, module), "__file__", None)
    if file is None:
        raise InputError(f"{where}: {place}:{kind} is in no file, so nobody could say later what was run.")
    digest = _digest(read_whole(file))
    if pin is not None and pin != digest:
        raise StateMismatchError(
            f"{where}: {file!r} has changed: its digest was {pin} and is {digest}. Put it back as it was to go on, or "
            "make the runs of the changed code: kbandits run SPEC --directory DIRECTORY."
        )
    return found, digest


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


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

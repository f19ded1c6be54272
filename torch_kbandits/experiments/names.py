"""Names and values, in a spec or typed on a command line; what is not known is said with the nearest that is."""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: How code of one's own is named, for messages, and as a pattern: the digest says which version of it is meant.
OWN_FORMS = "path/to/file.py:Class or package.module:Class"
OWN_NAME = re.compile(r"(?P<place>.*\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<what>[^\W\d]\w*)(@(?P<digest>[0-9a-f]{12}))?")
#: Tables and lists within each other, at most; and dots of a key, for which TOML's reader takes their square.
_DEEPEST, _LONG_KEY = 20, re.compile(r"(\w+[ \t]*\.[ \t]*){100}")


def unknown(where: str, kind: str, name: object, valid: Iterable[str], own: str = "") -> InputError:
    """Return the error for a name, at a place such as "algorithms[0]", that is none of the valid ones of a kind.

    It says how something of one's own may be named where that is given.
    """
    known = sorted(valid)
    near = checks.nearest_name(name, known, cutoff=0.4)
    guess = f"did you mean {near!r}? " if near else ""
    listed = f"Known: {', '.join(known)}." if known else "None may be given."
    return InputError(f"{where}: {name!r} is no {kind}; {guess}{listed}{f' Your own is {own}.' if own else ''}")


def pick(where: str, kind: str, name: Any, valid: Iterable[str], own: str = "") -> str:
    """Return ``name`` if it is one of the valid ones; the words are those of ``unknown``."""
    known = list(valid)
    if name not in known:
        raise unknown(where, kind, name, known, own)
    return name


def check_keys(where: str, kind: str, value: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse keys of a table that are none of the valid ones; the first is named."""
    known = set(valid)
    for key in value:
        pick(where, kind, key, known)


def table(where: str, value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a table: a mapping from names to values."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} must be a table of names and values, got {checks.describe(value)}.")
    return value


def check_depth(where: str, value: Any, depth: int = 0) -> None:
    """Refuse tables and lists that are nested so deeply that no spec means it."""
    if depth > _DEEPEST:
        raise InputError(f"{where} is nested too deeply: {_DEEPEST} tables or lists within each other are enough.")
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        check_depth(where, part, depth + 1)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value in which what stands in tables and lists is changed, by a function."""
    if isinstance(value, Mapping):
        return {key: mapped(part, change) for key, part in value.items()}
    return [mapped(part, change) for part in value] if isinstance(value, list | tuple) else change(value)


def parse_entry(text: str, option: str, known: Collection[str]) -> dict[str, Any]:
    """Return the table that ``bkb:oversampling=5,label=large`` or ``mine.py:Mine:share=0.1`` stands for.

    Args:
        text: NAME:KEY=VALUE,…
        option: where it was typed, for error messages.
        known: the names that are not of own code.
    """
    name, _, rest = text.partition(":")
    own = re.fullmatch(rf"(?P<name>{OWN_NAME.pattern})(:(?P<rest>.*))?", text, re.DOTALL)
    if name not in known and own:
        name, rest = own["name"], own["rest"] or ""
    parts: list[str] = []
    for piece in rest.split(",") if rest else ():
        if parts and _is_open(parts[-1]):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return {"name": name, **dict(parse_assignment(part, option) for part in parts if part.strip())}


def _is_open(part: str) -> bool:
    """Say whether a quote or a bracket of a part is not closed yet."""
    outside = re.sub(r"\"[^\"]*\"|'[^']*'", "", part)
    opening, closing = (sum(map(outside.count, signs)) for signs in ("[{", "]}"))
    return opening > closing or '"' in outside or "'" in outside


def parse_assignment(text: str, option: str) -> tuple[str, Any]:
    """Return the key and the value of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{option}: {text!r} must be KEY=VALUE.")
    return key.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Return what a text means in TOML; a text that means nothing there is a string."""
    try:
        return read_plain(checks.shown(text), f"value = {text}", "TOML")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_plain(where: str, text: str, kind: Literal["TOML", "JSON"]) -> Any:
    """Return the content of a text.

    Raises:
        InputError: if it is nested so deeply, or has a number of so many digits, that Python does not read it.
        TOMLDecodeError, JSONDecodeError: if it is not of its kind.
    """
    try:
        if kind == "TOML" and _LONG_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text) if kind == "TOML" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError):
        raise
    except RecursionError:
        raise InputError(
            f"{where} is nested too deeply: give tables and lists as the documentation shows them."
        ) from None
    except ValueError:
        raise InputError(f"{where} has a number of too many digits.") from None

"""What is typed on a command line instead of a spec: ``bkb:oversampling=5,label=large``; values are as in TOML."""

import json
import re
import tomllib
from collections.abc import Collection
from typing import Any, Literal

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own

#: Own code, and what may follow.
_OWN = re.compile(rf"(?P<name>{own.NAME.pattern})(:(?P<rest>.*))?", re.DOTALL)
#: Dots of a key.
_LONGEST_KEY = 100


def parse_entry(text: str, option: str, known: Collection[str]) -> dict[str, Any]:
    """Return the table that NAME:KEY=VALUE,… stands for.

    Args:
        text: such as ``bkb:oversampling=5,label=large`` or ``mine.py:Mine:share=0.1``.
        option: where it was typed, for error messages.
        known: the names that are not of own code.

    Raises:
        InputError: if a part behind the name is not KEY=VALUE.
    """
    name, _, rest = text.partition(":")
    if name not in known and (match := _OWN.fullmatch(text)):
        name, rest = match["name"], match["rest"] or ""
    return {"name": name, **dict(parse_assignment(part, option) for part in _split(rest))}


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

    Args:
        where: how error messages call it.
        text: of the kind.
        kind: of the text.

    Raises:
        InputError: if it is nested so deeply, or has a number of so many digits, that Python does not read it.
        TOMLDecodeError, JSONDecodeError: if it is not of its kind.
    """
    too_deep = InputError(f"{where} is nested too deeply: give tables and lists as the documentation shows them.")
    if kind == "TOML" and _longest_key(text) > _LONGEST_KEY:
        raise too_deep
    try:
        return tomllib.loads(text) if kind == "TOML" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError):
        raise
    except RecursionError:
        raise too_deep from None
    except ValueError:
        raise InputError(f"{where} has a number of too many digits.") from None


def _longest_key(text: str) -> int:
    """Return how many parts a dotted key may have; Python takes the square of that for it."""
    lines = (line.partition("#")[0] for line in text.replace(" ", "").replace("\t", "").splitlines())
    return max((part.count(".") for line in lines for part in re.split(r"[,\[\]{}=]", line)), default=0)


def _split(text: str) -> list[str]:
    """Return the parts between commas, but not those inside brackets, braces or quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]

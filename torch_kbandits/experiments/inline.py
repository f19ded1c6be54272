"""What is typed on a command line instead of a spec: ``bkb:oversampling=5,label=large``; values are as in TOML."""

import tomllib
from typing import Any

from torch_kbandits.errors import InputError


def parse_entry(text: str, option: str) -> dict[str, Any]:
    """Return the table that NAME:KEY=VALUE,… stands for.

    Args:
        text: such as ``bkb:oversampling=5,label=large``.
        option: where it was typed, for error messages.

    Raises:
        InputError: if a part behind the name is not KEY=VALUE.
    """
    name, _, rest = text.partition(":")
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
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


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

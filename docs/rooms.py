"""Draw docs/images/rooms.svg, the rooms of the package and who imports whom: python docs/rooms.py."""

import ast
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "torch_kbandits"
PICTURE = DOCS / "images" / "rooms.svg"

#: What all rooms may import: one box at the bottom, without arrows.
GROUND = ("checks", "errors", "extras", "files", "version")

#: Where a room stands from left to right. How high follows from what it imports.
PLACES = {
    "serving": 1,
    "plotting": 1,
    "evaluation": -1,
    "integrations": 0,
    "observations": 0,
    "spaces": 1,
    "likelihoods": 3,
    "memory": 3,
    "kernels": 3,
    "environments": 4,
}
#: Of all others.
MIDDLE = 2

WIDTH, HEIGHT, ACROSS, DOWN, BEND = 118, 30, 138, 52, 16


@cache
def imports() -> dict[str, set[str]]:
    """Return the rooms that each room imports, but for the ground that all stand on."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__" or room in GROUND:
            continue
        known = found.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch_kbandits."):
                known.add(str(node.module).split(".")[1])
            elif isinstance(node, ast.ImportFrom) and node.module == "torch_kbandits":
                known |= {alias.name for alias in node.names}
    return {room: {other for other in known if other in found and other != room} for room, known in found.items()}


@cache
def below(room: str) -> frozenset[str]:
    """Return all rooms that a room needs, however far down."""
    return frozenset(imports()[room].union(*(below(other) for other in imports()[room])))


@cache
def level(room: str) -> int:
    """Return how many rooms the longest way down from a room has."""
    return 1 + max((level(other) for other in imports()[room]), default=0)


def arrows() -> list[tuple[str, str]]:
    """Return who imports whom, without the arrows that follow from others."""
    return [
        (room, other)
        for room, known in sorted(imports().items())
        for other in sorted(known)
        if not any(other in below(between) for between in known)
    ]


def picture() -> str:
    """Return the picture."""
    top, left = max(map(level, imports())), min(PLACES.values())
    right = max(PLACES.values())
    width, height = ACROSS * (right - left + 1), DOWN * (top + 1)

    def centre(room: str) -> tuple[int, int]:
        across = PLACES.get(room, MIDDLE) - left
        return ACROSS * across + ACROSS // 2, DOWN * (top - level(room)) + DOWN // 2

    if len({centre(room) for room in imports()}) < len(imports()):
        raise ValueError("Two rooms stand in one place: say in PLACES where one of them is.")

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#607d8b"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for room, other in arrows():
        path = way(centre(room), centre(other))
        lines.append(f'<path d="{path}" fill="none" stroke="#607d8b" marker-end="url(#tip)"/>')
    for room in sorted(imports(), key=lambda room: (-level(room), room)):
        lines += box(*centre(room), WIDTH, room, "#eceff1")
    lines += box(width // 2, height - DOWN // 2, width - ACROSS + WIDTH, "known to all: " + ", ".join(GROUND), "white")
    return "\n".join([*lines, "</svg>", ""])


def way(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the way of an arrow between boxes; a long one leaves at the side, so that it crosses no box."""
    (x, y), (to_x, to_y) = start, (end[0], end[1] - HEIGHT // 2)
    if end[1] - y > DOWN and to_x != x:
        side = 1 if to_x > x else -1
        return f"M{x + side * WIDTH // 2} {y} H{to_x - side * BEND} Q{to_x} {y} {to_x} {y + BEND} V{to_y}"
    y += HEIGHT // 2
    half = (to_y - y) // 2
    return f"M{x} {y} C{x} {y + half} {to_x} {to_y - half} {to_x} {to_y}"


def box(x: int, y: int, width: int, text: str, colour: str) -> list[str]:
    """Return a box with a text around a point."""
    return [
        f'<rect x="{x - width // 2}" y="{y - HEIGHT // 2}" width="{width}" height="{HEIGHT}" rx="5" fill="{colour}" '
        'stroke="#607d8b"/>',
        f'<text x="{x}" y="{y + 5}" fill="#263238">{text}</text>',
    ]


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

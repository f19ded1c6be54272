"""Records of benchmarks, and pages rendered from them: ``python -m benchmarks.report`` writes docs/results.md."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from torch_kbandits.files import write_text

ROOT = Path(__file__).resolve().parent.parent
RECORDS, TEMPLATES, DOCS = ROOT / "benchmarks" / "records", ROOT / "benchmarks" / "pages", ROOT / "docs"

#: A block of a template that a table takes the place of: a record and a part of a title, then columns and rows.
BLOCK = re.compile(r"^```record\n(?P<name>[\w-]+)(?:: (?P<title>.+))?\n(?P<options>(?:\w+: .+\n)*)```$", re.MULTILINE)
#: A number of a template that comes from a record.
VALUE = re.compile(r"\{\{(.+?)\}\}")
#: Behind a number on any page: the record, a part of a table's title, a row and a column that it comes from.
MARK = re.compile(r"(?P<number>\S+?)<!-- record: (?P<address>.+?) -->")
_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?")


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """Write ``NAME.json`` with the keys of benchmarks/records/README.md, a row of a table on a line."""
    lines = [f" {json.dumps(key)}: {_json(value)}," for key, value in record.items() if key != "tables"]
    tables = []
    for table in record["tables"]:
        rows = ",\n".join(f"    {_json(row)}" for row in table["rows"])
        head = "".join(f'   "{key}": {_json(table[key])},\n' for key in ("title", "columns"))
        tables.append(f'  {{\n{head}   "rows": [\n{rows}\n   ]\n  }}')
    text = "\n".join(["{", *lines, ' "tables": [', ",\n".join(tables), " ]", "}", ""])
    path = folder / f"{record['name']}.json"
    write_text(path, text)
    return path


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def record(name: str) -> dict[str, Any]:
    """Return a record by its name."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def table(name: str, title: str = "") -> dict[str, Any]:
    """Return the one table of a record whose title begins like this, or else has this part."""
    tables = record(name)["tables"]
    found = [each for each in tables if each["title"].startswith(title)]
    found = found or [each for each in tables if title in each["title"]]
    if len(found) != 1:
        raise LookupError(f"record {name} has {len(found)} tables with {title!r} in the title")
    return found[0]


def is_called(row: list[str], key: str) -> bool:
    """Whether a row has this key: its first cells, joined by commas."""
    return any(", ".join(row[:number]) == key for number in range(1, len(row)))


def value(address: str) -> str:
    """Return the number at an address, ``record :: title :: row :: column``: the first one in that cell."""
    name, title, key, column = (part.strip() for part in address.split("::"))
    found = table(name, title)
    rows = [row for row in found["rows"] if is_called(row, key)]
    if len(rows) != 1 or column not in found["columns"]:
        raise LookupError(f"{address}: {len(rows)} such rows; columns are {', '.join(found['columns'])}")
    number = _NUMBER.search(rows[0][found["columns"].index(column)])
    if number is None:
        raise LookupError(f"{address}: there is no number in this cell")
    return number[0]


def agrees(shown: str, exact: str) -> bool:
    """Whether a number on a page is that of a record, or that rounded to the digits that the page shows."""
    ours, theirs = (text.replace(",", "").replace("−", "-") for text in (shown, exact))
    digits = len(ours.partition(".")[2])
    return f"{float(theirs):.{digits}f}" == ours


def mismatches(text: str) -> list[str]:
    """Return what a page says otherwise than the records that its marks name."""
    found = []
    for mark in MARK.finditer(text):
        number = _NUMBER.findall(mark["number"])
        exact = value(mark["address"])
        if not number or not agrees(number[-1], exact):
            found.append(f"{mark['address']} is {exact}, the page has {mark['number']}")
    return found


def render(template: Path) -> str:
    """Return the page of a template, which says at its end where it is to be edited."""
    text = BLOCK.sub(_shown, template.read_text(encoding="utf-8"))
    origin = template.relative_to(ROOT).as_posix()
    return f"{VALUE.sub(lambda match: value(match[1]), text)}\n<!-- Rendered from {origin}: make bench-report -->\n"


def _shown(block: re.Match[str]) -> str:
    options = dict(line.split(": ", 1) for line in block["options"].splitlines())
    found = table(block["name"], block["title"] or "")
    columns = options["columns"].split("; ") if "columns" in options else found["columns"]
    picked = [found["columns"].index(column) for column in columns]
    keys = options["rows"].split("; ") if "rows" in options else None
    rows = [row for row in found["rows"] if keys is None or any(is_called(row, key) for key in keys)]
    if keys and (missing := [key for key in keys if not any(is_called(row, key) for row in rows)]):
        raise LookupError(f"record {block['name']} has no rows {missing}")
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += ["| " + " | ".join(row[index].rstrip(" ✓✗") for index in picked) + " |" for row in rows]
    origin = record(block["name"])
    source = f"*Record {origin['name']}: {origin['machine'].split(', torch')[0]}, {origin['date']}.*"
    return "\n".join([*lines, "", source])


if __name__ == "__main__":
    for each in TEMPLATES.glob("*.md"):
        write_text(DOCS / each.name, render(each))

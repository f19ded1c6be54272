"""A record of JSON lines, a measurement each: ``python -m benchmarks.tabulate ROWS.jsonl --name NAME ...``."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import RECORDS
from benchmarks.runner import Record, machine, tabulated


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the record of a table: mean ± standard error over all lines that share a row and a column."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabulate", description="Make a record of JSON lines.")
    parser.add_argument("lines", type=Path, help="the file, a JSON object a line")
    parser.add_argument("--name", required=True, help="of the record")
    parser.add_argument("--title", required=True, help="of the table")
    parser.add_argument("--command", required=True, help="what gives these lines")
    parser.add_argument("--row", required=True, help="the entry that names rows, such as player")
    parser.add_argument("--column", help="the entry that names columns, such as problem; else the values do")
    parser.add_argument("--value", required=True, nargs="+", help="the entries to be averaged")
    parser.add_argument("--digits", type=int, default=3)
    parser.add_argument("--sizes", nargs="*", default=[], metavar="SIZE=VALUE", help="rounds, seeds and so on")
    parser.add_argument("--output", type=Path, default=RECORDS, help="the folder of records")
    options = parser.parse_args(arguments)
    lines = options.lines.read_text(encoding="utf-8").splitlines()
    measurements = [json.loads(line) for line in lines if line.strip()]
    table = tabulated(measurements, options.title, options.row, options.column, options.value, options.digits)
    sizes = {"lines": len(measurements)} | dict(size.split("=", 1) for size in options.sizes)
    record = Record(options.name, sizes, [table], measurements)
    print(record.publish(options.output, machine(), options.command))


if __name__ == "__main__":
    main()

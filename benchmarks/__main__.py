import argparse
import ast
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RECORDS
from benchmarks.runner import BENCHMARKS, Parts, load, machine


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks, print their tables and save their records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure torch_kbandits.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all unless given")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    parser.add_argument("--set", nargs="+", default=[], metavar="SIZE=VALUE", help="sizes, values as in Python")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks"), help="folder for NAME.json")
    parser.add_argument("--record", action="store_true", help="write the record that docs/results.md is made of")
    parser.add_argument("--parts", type=Path, help="folder of NAME.jsonl, from which what was stopped goes on")
    options = parser.parse_args(arguments)
    if options.quick and options.record:
        parser.error("--quick measures nothing that could be recorded: leave out one of --quick and --record")
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    here = machine()
    for name in options.names or BENCHMARKS:
        measured = load(name)
        sizes = dict(_size(text, name, measured.sizes, parser) for text in options.set)
        parts = Parts(options.parts / f"{name}.jsonl") if options.parts else None
        record = measured.run(quick=options.quick, parts=parts, **sizes)
        path = record.save(options.output, here)
        if options.record:
            record.publish(RECORDS, here, _command(name, options.set))
        for table in record.tables:
            print(table.markdown())
        print(f"saved {path}")


def _command(name: str, sizes: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "benchmarks", name, *(["--set", *sizes] if sizes else [])])


def _size(text: str, name: str, known: dict[str, Any], parser: argparse.ArgumentParser) -> tuple[str, Any]:
    size, _, value = text.partition("=")
    if size not in known:
        parser.error(f"{name} has no size {size!r}; it has {', '.join(known)}")
    try:
        return size, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return size, value


if __name__ == "__main__":
    main()

"""The glossary of docs/notation.md with who takes each argument, as the site shows it: from the signatures."""

import inspect
import re

from torch_kbandits import algorithms, dictionaries
from torch_kbandits.algorithms import registry

#: A row of the glossary: an argument, what it is, its unit.
ROW = re.compile(r"^\| `(\w+)` \| [^|\n]+ \| [^|\n]+ \|$", re.MULTILINE)
HEAD = re.compile(r"^\| argument \| what it is \| unit \|\n\|---\|---\|---\|$", re.MULTILINE)


def takers() -> dict[str, set[str]]:
    """Return the arguments of each named algorithm, by its name, and of each public dictionary rule, by its class."""
    taken = {name: set(registry.signature(name).parameters) for name in algorithms.names()}
    public = (getattr(dictionaries, name) for name in dictionaries.__all__)
    for kind in public:
        if isinstance(kind, type) and issubclass(kind, dictionaries.DictionaryRule) and not inspect.isabstract(kind):
            taken[kind.__name__] = set(inspect.signature(kind).parameters)
    return taken


def with_takers(page: str) -> str:
    """Return the page with a column more: the algorithms and the dictionary rules that take an argument."""
    taken, names = takers(), set(algorithms.names())

    def who(argument: str) -> str:
        having = {name for name, words in taken.items() if argument in words}
        missing = sorted(names - having)
        shown = sorted(having & names)
        if len(missing) < len(shown):
            all_of = ["all but " + ", ".join(f"`{name}`" for name in missing) if missing else "all"]
        else:
            all_of = [f"`{name}`" for name in shown]
        return ", ".join(all_of + [f"`{name}`" for name in sorted(having - names)])

    page = HEAD.sub("| argument | what it is | unit | taken by |\n|---|---|---|---|", page)
    return ROW.sub(lambda row: f"{row[0]} {who(row[1])} |", page)

"""What the site adds to pages: who takes an argument of the glossary, and index entries of what users search for."""

import inspect
import re

from torch_kbandits import algorithms, dictionaries
from torch_kbandits.algorithms import registry

#: What users search for: each is in a title, a heading or the first paragraph of a page.
SEARCHED = (
    *("non-stationary", "drift", "concept drift", "sliding window", "delayed feedback", "asynchronous", "parallel"),
    *("batch", "pending", "contextual bandit", "warm start", "cold start", "transfer", "heteroscedastic noise"),
    *("large candidate pool", "discrete candidates", "many observations", "sparse GP", "inducing points"),
    *("Thompson sampling", "UCB", "safe optimisation", "constraints", "multi-objective", "hyperparameter tuning"),
    *("off-policy evaluation", "propensity", "counterfactual", "cost-aware", "reproducible", "save and resume"),
)

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


def documented(pages: str) -> list[str]:
    """Return the public names that pages of the reference have; one without a dot is of the current module."""
    names, module = [], ""
    for kind, name in re.findall(r"^\.\. (auto|currentmodule)\w*:: (\S+)", pages, re.MULTILINE):
        if kind == "auto":
            names.append(name if "." in name else f"{module}.{name}")
        else:
            module = name
    return names


def at_the_top(page: str) -> list[str]:
    """Return which of the words users search for are in a heading or in the first paragraph of a page."""
    heads = [*re.findall(r"^#+ (.+)$", page, re.MULTILINE), *re.findall(r"\A# .+\n\n(.+)", page)]
    return [words for words in SEARCHED if words.lower() in "\n".join(heads).lower()]


def with_index(page: str) -> str:
    """Return the page with an entry of the index for each of these words."""
    if not (found := at_the_top(page)):
        return page
    return re.sub(r"\A# .+\n", lambda title: f"{title[0]}\n```{{index}} {', '.join(found)}\n```\n", page)

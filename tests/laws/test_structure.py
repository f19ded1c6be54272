"""How the house is built: what the import contracts in pyproject.toml cannot say."""

import ast
import inspect
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import torch_kbandits

ROOT = Path(torch_kbandits.__file__).parent
LOOSE = {"__init__", "checks", "cli", "errors", "extras", "files", "version"}
#: Where a class says what it is and no other class says otherwise.
FINAL = ("algorithms", "bandit", "beliefs", "posteriors")


def to_come(what):
    """A law that the redesign of the engine is to make true: issue 16."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"the redesign is to come: {what}")


@cache
def trees(room=""):
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / room).rglob("*.py"))
    }


@cache
def classes():
    """Our classes in all modules that need no extra."""
    found = set()
    for module in pkgutil.walk_packages(torch_kbandits.__path__, "torch_kbandits."):
        if not module.name.startswith("torch_kbandits.integrations"):
            found |= {kind for kind in vars(import_module(module.name)).values() if isinstance(kind, type)}
    return sorted((kind for kind in found if is_ours(kind)), key=lambda kind: kind.__qualname__)


def is_ours(kind):
    return kind.__module__.startswith("torch_kbandits.")


def room(kind):
    return kind.__module__.split(".")[1]


def levels(kind):
    return 1 + max((levels(base) for base in kind.__bases__ if is_ours(base)), default=0)


def overridden(kind):
    """Concrete methods of our other classes that a class says anew."""
    for name, member in vars(kind).items():
        if name.startswith("__") or not (inspect.isroutine(member) or isinstance(member, (property, classmethod))):
            continue
        above = [vars(base)[name] for base in kind.__mro__[1:] if is_ours(base) and name in vars(base)]
        if above and not getattr(above[0], "__isabstractmethod__", False):
            yield f"{kind.__qualname__}.{name}"


def test_every_module_says_in_one_line_what_it_is():
    first = {name: (ast.get_docstring(tree) or "").split("\n")[0] for name, tree in trees().items()}
    assert [name for name, line in first.items() if not line.endswith((".", ";", ":"))] == []


def test_no_folder_is_deeper_than_two_and_none_is_for_odds_and_ends():
    assert [name for name in trees() if name.count("/") > 2 or Path(name).stem in ("utils", "helpers", "misc")] == []


@to_come("FittedBandit is a composition")
def test_nothing_else_is_loose_in_the_root():
    assert {Path(name).stem for name in trees() if "/" not in name} - LOOSE == set()


@to_come("beliefs meet engines and candidates")
def test_candidates_know_no_posterior():
    above = tuple(f"torch_kbandits.{room}" for room in ("posteriors", "models", "tables", "beliefs", "dictionaries"))
    found = [
        f"{name}: {node.module}"
        for name, tree in trees("candidates").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(above)
    ]
    assert found == []


@to_come("what a reward carries, and adaptation as a piece")
def test_algorithms_compose_only():
    found = {
        f"{kind.__name__}.{name}"
        for kind in classes()
        if room(kind) == "algorithms" and issubclass(kind, torch_kbandits.Bandit)
        for name, member in vars(kind).items()
        if name != "__init__" and (inspect.isroutine(member) or isinstance(member, (property, classmethod)))
    }
    assert found == set()


@to_come("adaptive bandits are compositions")
def test_no_concrete_method_is_overridden():
    assert [name for kind in classes() if room(kind) in FINAL for name in overridden(kind)] == []


@to_come("tables and beliefs are views of one engine")
def test_classes_are_at_most_three_levels_deep():
    assert [kind.__qualname__ for kind in classes() if levels(kind) > 3] == []


@to_come("one frozen state that is swapped")
def test_nothing_is_restored_by_hand():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees().items()
        if name.startswith(("bandit/", "beliefs/", "candidates/", "posteriors/", "tables/"))
        for node in ast.walk(tree)
        if (isinstance(node, ast.ExceptHandler) and node.type is not None and ast.unparse(node.type) == "BaseException")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "vars(self).update")
    ]
    assert found == []

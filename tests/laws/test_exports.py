"""Public names wait for their first use, and are all there when it comes."""

import ast
import pickle
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import torch_kbandits

ROOMS = ("algorithms", "environments", "experiments", "plotting")
WAITING = ("torch_kbandits", *(f"torch_kbandits.{room}" for room in ROOMS))
HEAVY = ("botorch", "gpytorch", "linear_operator", "matplotlib", "numba", "numpy", "pandas", "rich", "scipy", "torch")


def after(*steps):
    """The modules that a fresh process has after each step of its code."""
    code = "\n".join(f"{step}\nimport sys\nprint(*sys.modules)" for step in steps)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def said(package):
    """Where each name of a package stands, by its source alone: the imports that a type checker sees."""
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in nodes for alias in node.names if alias.asname}


@pytest.mark.parametrize("package", WAITING)
def test_every_name_is_there_and_is_the_one_that_type_checkers_see(package):
    module, expected = import_module(package), said(package)
    expected.pop("__version__", None)
    assert sorted(expected) == module.__all__
    assert set(module.__all__) <= set(dir(module))
    for name, home in expected.items():
        scope = {}
        exec(f"from {home} import {name}", scope)
        assert getattr(module, name) is scope[name]
    star = {}
    exec(f"from {package} import *", star)
    assert set(star) - {"__builtins__"} == set(expected)
    # Python binds a submodule to its name in the package whenever somebody imports it.
    own = {name for name in module.__all__ if getattr(module, name) is not sys.modules.get(f"{package}.{name}")}
    assert own & {each.name for each in pkgutil.iter_modules(module.__path__)} == set()


def test_the_package_alone_brings_nothing_heavy():
    (light,) = after("import torch_kbandits, torch_kbandits.errors")
    assert light.isdisjoint(HEAVY)


@pytest.mark.slow
def test_names_bring_what_they_need_and_no_more():
    named, registered = after(
        "import torch_kbandits as kb\nkb.algorithms.BKB, kb.models.OnlineGP, kb.checks.positive",
        "from torch_kbandits import KernelUCB, DiscretizedThompsonSampling, NystromGP\n"
        "from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY as known\n"
        "assert {KernelUCB, DiscretizedThompsonSampling} <= set(known)",
    )
    assert "torch_kbandits.algorithms.bkb" in named
    assert named.isdisjoint({"torch_kbandits.algorithms.gp", "botorch.acquisition.input_constructors", "scipy.stats"})
    assert "torch_kbandits.acquisition.constructors" in registered


def test_what_is_not_there_is_said_as_python_says_it_and_classes_are_pickled_by_their_names():
    for name in ("Bandits", "_private", "__wrapped__"):
        assert not hasattr(torch_kbandits, name)
    with pytest.raises(AttributeError, match="module 'torch_kbandits' has no attribute 'Bandits'"):
        torch_kbandits.Bandits  # noqa: B018
    for kind in (torch_kbandits.Bandit, torch_kbandits.algorithms.BKB, torch_kbandits.InputError):
        assert pickle.loads(pickle.dumps(kind)) is kind

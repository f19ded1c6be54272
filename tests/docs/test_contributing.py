"""What docs/contributing.md says: its diffs apply and play, its ways through the code are gone, its picture is true."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from functools import cache, partial
from inspect import getfile, isabstract
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import RBFKernel

import torch_kbandits
from torch_kbandits import algorithms, confidence, dictionaries, environments, memory

ROOT = Path(__file__).parents[2]
PACKAGE = Path(torch_kbandits.__file__).parent
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REGISTRIES = ("__init__.py", "registry.py")

#: Who knows a piece beside its own room and the algorithms made of it: loops around one, and the defaults of pieces.
DEFAULTS = {
    "EKUCB": {"fitted.py", "integrations/optuna/sampler.py", "integrations/sklearn/search.py"},
    "Discount": {"bandit/adaptation.py"},
    "SlidingWindow": {"bandit/adaptation.py"},
    "CappedDictionary": {"models/nystrom.py"},
    "RidgeLeverageSampling": {"models/nystrom.py", "integrations/ax/strategy.py"},
}


def section(title):
    return re.split(r"^#+ ", PAGE.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def example(title):
    (diff, code) = FENCE.findall(section(title))
    assert (diff[0], code[0]) == ("diff", "python")
    return diff[1], code[1]


def patches(diff):
    """The files of a unified diff: the name, whether it is new, and the lines that go and come."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        old, new, *lines = part.splitlines()
        changed = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        yield new.removeprefix("+++ b/"), old == "/dev/null", *changed


def copied(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "torch_kbandits", ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images"))
    return tmp_path


def run(code, root):
    """Run code in a fresh process in which the package is that of a folder."""
    here = f"import torch_kbandits\nassert torch_kbandits.__file__.startswith({str(root)!r}), torch_kbandits.__file__\n"
    words = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", here + textwrap.dedent(code)]
    done = subprocess.run(command, cwd=root, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


THINGS = ["A memory", "A width", "A dictionary rule", "An algorithm", "An environment"]


@pytest.mark.parametrize("thing", THINGS)
def test_a_new_piece_touches_its_own_file_its_registry_and_its_page_only(thing):
    files = list(patches(example(thing)[0]))
    ((own, _, _, lines),) = [file for file in files if file[1]]
    (name,) = re.findall(r"^(?:class|def) ([A-Za-z]\w*)", "\n".join(lines), re.MULTILINE)
    for touched, is_new, lost, added in files:
        assert not lost, f"{touched} loses lines"
        called = {name, Path(own).stem, Path(own).stem.replace("_", "-")}
        assert is_new or all(any(map(line.__contains__, called)) for line in added if touched.endswith(".py"))
        is_registry = touched in {f"{Path(own).parent}/{file}" for file in REGISTRIES}
        lines = 1 if touched.startswith(("torch_kbandits/algorithms/", "torch_kbandits/environments/")) else 2
        assert touched == own or (is_registry and len(added) == lines) or (touched.endswith(".md") and len(added) == 1)


@pytest.mark.slow
def test_all_diffs_go_together_are_in_style_and_play(tmp_path):
    root = copied(tmp_path)
    for thing in THINGS:
        diff, _ = example(thing)
        done = subprocess.run(["git", "apply", "-"], input=diff, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"docs/contributing.md, {thing}: {done.stderr}"
    shutil.copy(ROOT / "pyproject.toml", root)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, root], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    run("\n".join(example(thing)[1] for thing in THINGS), root)


@cache
def known():
    """The names of ours that each file of the package uses; what only its prose says is not one."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        found[path.relative_to(PACKAGE).as_posix()] = names
    return found


def pieces():
    rooms = {
        algorithms: torch_kbandits.Bandit,
        memory: memory.Memory,
        dictionaries: dictionaries.DictionaryRule,
        environments: environments.Environment,
    }
    found = [
        kind
        for room, base in rooms.items()
        for kind in map(partial(getattr, room), room.__all__)
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base and not isabstract(kind)
    ]
    widths = [kind for kind in vars(confidence).values() if isinstance(kind, type) and kind.__name__.endswith("Width")]
    wrapped = {"Width", "TheoremWidth", "ConstantWidth", "ScaledWidth"}
    found += [kind for kind in widths if kind.__name__ not in wrapped]
    return [kind for kind in found if kind is not memory.Stationary]


def knowing(name):
    return {file for file, names in known().items() if name in names and Path(file).name not in REGISTRIES}


def test_a_piece_is_known_to_its_room_and_to_algorithms_made_of_it_only():
    assert len(pieces()) >= 50
    for kind in pieces():
        own = Path(getfile(kind)).relative_to(PACKAGE).as_posix()
        room = own.partition("/")[0]
        allowed = {own} | DEFAULTS.get(kind.__name__, set())
        if room != "algorithms":
            allowed |= {file for file in known() if file.startswith((f"{room}/", "algorithms/"))}
        if room == "confidence":
            allowed.add("experiments/registry.py")
        assert knowing(kind.__name__) <= allowed, f"{kind.__name__}: {sorted(knowing(kind.__name__) - allowed)}"


def way(title):
    steps = re.findall(r"^(\d+)\. `([\w/]+\.py)`, `([\w.]+)`: .+\.?$", section(title), re.MULTILINE)
    assert [int(number) for number, _, _ in steps] == list(range(1, 9))
    return [(file, name) for _, file, name in steps]


def test_an_ask_and_a_tell_go_the_way_that_the_page_says():
    arms = torch.rand(600, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bandit = algorithms.BKB(candidates=arms, kernel=RBFKernel(), regularization=0.01, beta=2.0, seed=0)

    def gone(call):
        calls = []

        def note(frame, event, _):
            file = Path(frame.f_code.co_filename)
            if event == "call" and file.is_relative_to(PACKAGE):
                calls.append((file.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname))

        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return calls

    for _ in range(3):
        bandit.tell(bandit.ask(), 0.5)
    asked = gone(bandit.ask)
    told = gone(lambda: bandit.tell(bandit.pending, 0.3))
    for title, calls in (("The way of one ask", asked), ("The way of one tell", told)):
        rest = iter(calls)
        for step in way(title):
            assert step in rest, f"{title}: {step} is not called, or not in this place"


def test_the_picture_is_that_of_the_code():
    drawn = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["picture"](), "draw it again: python docs/rooms.py"


def test_the_laws_name_tests_that_are_there():
    files = re.findall(r"`((?:tests/|pyproject)[\w/.]+)`", section("The laws"))
    assert len(files) >= 20
    assert [file for file in files if not (ROOT / file).exists()] == []

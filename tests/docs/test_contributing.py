"""What docs/contributing.md says: its diffs apply and play, its ways through the code are gone, its picture is true."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from functools import cache, partial
from inspect import getfile, isabstract
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from gpytorch.kernels import RBFKernel

import torch_kbandits
from torch_kbandits import algorithms, confidence, dictionaries, environments, memory

ROOT = Path(__file__).parents[2]
PACKAGE = Path(torch_kbandits.__file__).parent
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
ADDITIONS = sorted((ROOT / "docs" / "additions").glob("*.diff"))
REGISTRIES = ("__init__.py", "registry.py")

#: Who knows a piece beside its own room and the algorithms made of it: loops around one, and the defaults of pieces.
DEFAULTS = {
    "EKUCB": {"fitted.py", "integrations/optuna/sampler.py", "integrations/sklearn/search.py"},
    "Discount": {"bandit/adaptation.py"},
    "SlidingWindow": {"bandit/adaptation.py", "bandit/advice.py"},
    "KDPP": {"bandit/advice.py"},
    "UncertaintyInjection": {"bandit/advice.py"},
    "CappedDictionary": {"models/nystrom.py"},
    "RidgeLeverageSampling": {"models/nystrom.py", "integrations/ax/strategy.py"},
}


def section(title):
    return re.split(r"^#+ ", PAGE.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


class Patch(NamedTuple):
    """What a diff does to a file."""

    file: str
    is_new: bool
    lost: list[str]
    added: list[str]


def patches(diff):
    """The files of a unified diff."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        old, new, *lines = part.splitlines()
        lost, added = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        yield Patch(new.removeprefix("+++ b/"), old == "/dev/null", lost, added)


def name_of(path):
    return path.stem


@pytest.mark.parametrize("addition", ADDITIONS, ids=name_of)
def test_a_new_piece_touches_its_own_file_its_registry_its_pages_and_its_test_only(addition):
    files = list(patches(addition.read_text(encoding="utf-8")))
    own, test = sorted((each for each in files if each.is_new), key=lambda each: each.file.startswith("tests/"))
    assert own.file.startswith("torch_kbandits/")
    assert test.file.startswith("tests/laws/test_")
    (name,) = re.findall(r"^(?:class|def) ([A-Za-z]\w*)", "\n".join(own.added), re.MULTILINE)
    room, called = Path(own.file).parent, {name, Path(own.file).stem, Path(own.file).stem.replace("_", "-")}
    lines = 1 if room.name in ("algorithms", "environments") else 2
    assert not any(each.lost for each in files)
    for each in files:
        is_registry = each.file in {f"{room}/{file}" for file in REGISTRIES}
        is_page = each.file.startswith("docs/") and len(each.added) <= 2
        assert each.is_new or (is_registry and len(each.added) == lines) or is_page
        assert each.is_new or all(any(map(line.__contains__, called)) for line in each.added if line)


def test_the_page_leads_to_every_addition_and_shows_one():
    assert set(re.findall(r"\]\(additions/(\S+)\)", PAGE)) == {path.name for path in ADDITIONS}
    assert re.search(r"^```\{literalinclude\} additions/\S+\n:language: diff\n```$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_all_additions_go_together_are_in_style_and_pass_their_tests(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "torch_kbandits", ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tests = []
    for addition in ADDITIONS:
        run(["git", "apply", "--unidiff-zero", str(addition)], tmp_path)
        files = patches(addition.read_text(encoding="utf-8"))
        tests += [each.file for each in files if each.is_new and each.file.startswith("tests/")]
    for command in (["check"], ["format", "--check"]):
        run([sys.executable, "-m", "ruff", *command, "torch_kbandits", *tests], tmp_path)
    where = "import torch_kbandits; print(torch_kbandits.__file__)"
    assert run([sys.executable, "-c", where], tmp_path).startswith(str(tmp_path))
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], tmp_path)


def run(command, folder):
    """Run a command where the package is that of a folder, and return what it prints."""
    words = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    files = re.findall(r"`(test_\w+\.py)`", section("The laws"))
    assert len(files) >= 12
    assert [file for file in files if not (ROOT / "tests" / "laws" / file).exists()] == []

"""Blocks of the documentation run, output is what is printed, and consoles say what is shown; quick are three pages."""

import ast
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import sys
import textwrap
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import torch_kbandits
from torch_kbandits import algorithms, cli, dictionaries
from torch_kbandits.algorithms import registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: The front page, a guide and an algorithm; a page of an integration takes as long as ten of them.
QUICK = ("README.md", "docs/saving.md", "docs/algorithms/gp-ucb.md")

SKIP = "<!-- not executed -->"

#: A fence may be indented, as inside a list or an admonition; its closing fence is indented alike.
FENCE = re.compile(
    r'^(?P<indent> *)```(?P<kind>python|output|console)(?: title="(?P<file>[^"]+)")?[^\n]*\n'
    r"(?P<code>.*?)^(?P=indent)``` *$",
    re.MULTILINE | re.DOTALL,
)
#: What is drawn around the cells of a table, and says nothing.
DRAWN = re.compile(r"[\s|]*(?:[\s|]|:?-+:?)+")


def blocks(text: str) -> list[tuple[int, str, re.Match[str]]]:
    """Return the blocks to execute, each with the number of its first line, its text and its fence."""
    found = []
    for fence in FENCE.finditer(text):
        before = text[: fence.start()]
        if not before.rstrip().endswith(SKIP):
            found.append((before.count("\n") + 2, textwrap.dedent(fence["code"]), fence))
    return found


def execute(page: Path) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    printed = StringIO()
    for line, code, fence in blocks(page.read_text(encoding="utf-8")):
        if fence["kind"] == "console":
            type_in(code)
            continue
        if fence["kind"] == "output":
            assert words(printed.getvalue()) == words(code), (
                f"the block before line {line} prints\n{printed.getvalue()}"
            )
            continue
        if fence["file"]:
            Path(fence["file"]).write_text(code, encoding="utf-8")
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
    return namespace


def words(text: str) -> str:
    """Return a text without its numbers, which are those of a machine, and what pads them."""
    return re.sub(r" *\d+(\.\d+)?", "…", text.strip())


def type_in(block: str) -> None:
    """Run the commands of a block, each behind "$ ", and compare what they say with the lines that follow."""
    for part in block.removeprefix("$ ").split("\n$ "):
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        name, *words = shlex.split(command)
        assert name == "kbandits"
        said = [line for line in CliRunner().invoke(cli.main, words).output.splitlines() if DRAWN.sub("", line)]
        expected = [line for line in shown.splitlines() if DRAWN.sub("", line)]
        assert len(said) == len(expected), f"{command} says\n" + "\n".join(said)
        for ours, theirs in zip(expected, said, strict=True):
            assert agree(ours, theirs), f"{command} says\n{theirs}\nand the page\n{ours}"


def agree(shown: str, said: str) -> bool:
    """Whether a line is as shown, where … is anything; of a row of a table the name, T, seeds and about the regret."""
    if "±" not in shown or not shown.startswith("|"):
        pattern = ".*".join(map(re.escape, DRAWN.sub(" ", shown).strip().split("…")))
        return re.fullmatch(pattern, DRAWN.sub(" ", said).strip()) is not None
    ours, theirs = ([cell.strip() for cell in line.strip("|").split("|")] for line in (shown, said))
    (mean, error), (other, _) = ([float(part) for part in cells[4].split("±")] for cells in (ours, theirs))
    return ours[:3] == theirs[:3] and len(ours) == len(theirs) and abs(mean - other) <= error


@pytest.fixture
def _scratch(tmp_path, monkeypatch):
    """Pages may save files, and must not leave settings behind. Their problems are too small for several threads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    assert torch.get_default_dtype() == torch.float32, "the page changed the default dtype"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("_scratch")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=[] if name_of(page) in QUICK else pytest.mark.slow) for page in PAGES],
)
def test_code_of_page_runs(page):
    execute(page)


def bound_in(module: str) -> set[str]:
    """Return the names that the source of a module binds at its top; it is not run, as its imports may take seconds."""
    source = importlib.util.find_spec(module)
    assert source is not None, f"there is no {module}"
    assert source.origin is not None
    names = {path.stem for path in Path(source.origin).parent.glob("*") if source.submodule_search_locations}
    for node in ast.walk(ast.parse(Path(source.origin).read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_imports_from_the_package_is_there(page):
    for line, code, fence in blocks(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(code)) if fence["kind"] == "python" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch_kbandits":
                missing = {alias.name for alias in node.names} - bound_in(str(node.module))
                assert not missing, f"{name_of(page)}, block at line {line}: {node.module} has no {sorted(missing)}"


def test_notebooks_are_those_of_the_tutorials():
    written = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))
    for page in written["PAGES"]:
        saved = json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))
        assert saved == written["notebook"](page.read_text(encoding="utf-8")), "write them: python docs/notebooks.py"


def test_every_fence_of_python_is_seen():
    """A block that the pattern misses would go untested in silence."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        opened = len(re.findall(r"^\s*(```|~~~)\s*(python|py|output|console)\b", text, re.MULTILINE))
        assert opened == len(FENCE.findall(text)), page


def test_api_pages_have_every_public_name():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = runpy.run_path(str(ROOT / "docs" / "glossary.py"))["documented"](pages)
    assert len(documented) == len(set(documented)), "a name stands twice"
    public = {f"torch_kbandits.{name}" for name in torch_kbandits.__all__}
    missing = {name for name in public if not any(f"{shown}.".startswith(f"{name}.") for shown in documented)}
    assert not missing, f"docs/api lacks {sorted(missing)}"


#: What pages say of defaults: "**q̄ (`oversampling`): 2 to 10, default 3.**", "`batch_threshold=`, 3 by default".
DEFAULT = re.compile(
    r"\(`(?P<word>\w+)`\): [^\n*]*?\bdefault (?P<value>[\d.,]*\d)"
    r"|`(?P<other>\w+)=?`[^`|\n]{0,20}?[ ,:](?P<number>[\d.,]*\d) by default"
)


def test_documented_defaults_are_those_of_the_signatures():
    checked = 0
    for page in (ROOT / "docs" / "algorithms").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        signatures = [registry.signature(name) for name in algorithms.names() if f"`{name}`" in text]
        for match in DEFAULT.finditer(text):
            word, value = match["word"] or match["other"], float((match["value"] or match["number"]).replace(",", ""))
            defaults = {one.parameters[word].default for one in signatures if word in one.parameters}
            assert value in defaults, f"{page.name} says that the default of {word} is {value}, which is {defaults}"
            checked += 1
    assert checked >= 6, f"only {checked} statements were found: the pages have another form than this test expects"


def takers() -> dict[str, set[str]]:
    """Return the arguments of each named algorithm and of each public dictionary rule."""
    takes = {name: set(registry.signature(name).parameters) for name in algorithms.names()}
    public = (getattr(dictionaries, name) for name in dictionaries.__all__)
    rules = [kind for kind in public if isinstance(kind, type) and issubclass(kind, dictionaries.DictionaryRule)]
    chosen = [kind for kind in rules if kind is not dictionaries.DictionaryRule]
    return takes | {kind.__name__: set(inspect.signature(kind).parameters) for kind in chosen}


def test_the_glossary_has_every_argument_once_and_no_other():
    """In alphabetical order; the site shows beside each all that take it."""
    page = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    shown = runpy.run_path(str(ROOT / "docs" / "glossary.py"))["with_takers"](page)
    rows = re.findall(r"^\| `(\w+)` \| [^|\n]+ \| [^|\n]+ \| ([^|\n]+) \|$", shown, re.MULTILINE)
    takes = takers()
    assert [word for word, _ in rows] == sorted(set().union(*takes.values()))
    for word, where in rows:
        said = set(re.findall(r"`([\w-]+)`", where))
        if where.startswith("all"):
            said ^= set(algorithms.names())
        assert said == {name for name, words in takes.items() if word in words}, word


def test_the_readme_is_a_first_screen_and_its_links_lead_somewhere():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.encode()) <= 6_000
    assert 0 < readme.find("![") < readme.find("```")
    targets = [target for target in re.findall(r"\]\(([^)#]+)", readme) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_a_table_names_every_algorithm():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    missing = [name for name in algorithms.names() if not any(f"`{name}`" in row for row in rows)]
    assert not missing, f"the table of docs/algorithms.md lacks {missing}"

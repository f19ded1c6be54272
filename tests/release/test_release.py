"""What a release is made of: one version, files that a forge reads, wheel and sdist, requirements that go together."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import torch_kbandits

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))

#: A new user's first lines, and what must hold of a wheel without extras.
USE = f"""
import importlib.util
from importlib import metadata, resources

import torch
import torch_kbandits
from gpytorch.kernels import RBFKernel
from torch_kbandits import algorithms

arms = torch.rand(500, 2, dtype=torch.float64)
bandit = algorithms.BKB(candidates=arms, kernel=RBFKernel(), regularization=0.01, beta=2.0, seed=0)
for _ in range(20):
    x = bandit.ask()
    bandit.tell(x, -(x - 0.5).square().sum(-1))
assert len(bandit.history.Y) == 20 and bandit.recommend().shape == (1, 2)

assert not torch_kbandits.__file__.startswith({str(ROOT)!r})
assert torch_kbandits.__version__ == metadata.version("torch-kbandits") == {torch_kbandits.__version__!r}
assert resources.files("torch_kbandits").joinpath("py.typed").is_file()
assert not any(map(importlib.util.find_spec, ("ax", "click", "matplotlib", "optuna", "ray")))
"""


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == torch_kbandits.__version__
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)[1] == torch_kbandits.__version__


def test_the_forge_runs_what_ci_runs_on_every_python_that_is_named():
    jobs = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"test": ["bash .ci/run"], "plain-processor": ["bash .ci/run"], "build": ["make dist"]}
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    assert jobs["plain-processor"]["env"] == {"ATEN_CPU_CAPABILITY": "default"}
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("form", ["bug", "feature", "question"])
def test_forms_of_issues_are_as_a_forge_reads_them(form):
    content = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{form}.yml"))
    assert content.keys() == {"name", "description", "labels", "body"}
    for field in content["body"]:
        assert field.keys() <= {"type", "id", "attributes", "validations"}
        assert field["type"] == "textarea"
        assert field["attributes"].keys() <= {"label", "description", "render"}
    assert len({field["id"] for field in content["body"]}) == len(content["body"])


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_pages_at_the_root_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", read(page)):
        file, _, heading = target.partition("#")
        headings = re.findall(r"^#+ (.+)$", read(file), re.MULTILINE) if heading else []
        anchors = [re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings]
        assert (ROOT / file).exists() or "://" in file, f"{page}: {target}"
        assert not heading or heading in anchors, f"{page}: {target}"


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv(*words, **options):
    return run(sys.executable, "-m", "uv", *words, **options)


@pytest.fixture(scope="module")
def _registry():
    try:
        uv("pip", "compile", "-", "--no-cache", "--quiet", input="hatchling", timeout=60)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"uv reaches no package registry: {error}")


@pytest.fixture(scope="module")
def built(_registry, tmp_path_factory):
    """The folder of the sdist with the wheel made of it, and the wheel made of the tree."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--python", sys.executable, "--out-dir", folder, ROOT)
    uv("build", "--quiet", "--python", sys.executable, "--out-dir", folder / "of-tree", "--wheel", ROOT)
    return folder


def contents(wheel):
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_sdist_makes_the_wheel_of_the_tree_with_every_file_of_the_package(built):
    (of_sdist,), (of_tree,) = (list(folder.glob("*.whl")) for folder in (built, built / "of-tree"))
    packed = contents(of_tree)
    assert contents(of_sdist) == packed
    package = ROOT / "torch_kbandits"
    files = {path.relative_to(ROOT).as_posix() for path in package.rglob("*.*") if "__pycache__" not in path.parts}
    assert {name for name in packed if ".dist-info/" not in name} == files
    licences = {Path(name).name for name in packed if ".dist-info/licenses/" in name}
    assert licences >= {"LICENSE", *(path.name for path in package.glob("environments/data/LICENSE-*"))}


@pytest.mark.slow
def test_the_wheel_plays_in_an_environment_of_its_own_without_extras(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    python = tmp_path / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path)
    run(
        python, "-I", "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel
    )
    run(python, "-I", "-c", USE, cwd=tmp_path)
    run(python, "-I", "-m", "pip", "check")
    said = subprocess.run([tmp_path / "bin" / "kbandits", "list"], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert re.fullmatch(r"kbandits needs the package 'click', .*\[experiments\]'\n", said.stderr)


def floors(extra=None):
    """The lowest version of each package that the package and an extra, which may be made of others, allow."""
    found = {}
    for line in PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == PROJECT["name"]:
            new = [item for other in (None, *requirement.extras) for item in floors(other).items()]
        else:
            new = [(name, Version(each.version)) for each in requirement.specifier if each.operator == ">="]
        for name, floor in new:
            found[name] = max(floor, found.get(name, floor))
    return found


def resolved(python, *words):
    """The version of each package that an environment with all extras would get, from wheels alone."""
    settings = ("--python-version", python, "--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet")
    lines = uv("pip", "compile", "pyproject.toml", "--all-extras", *settings, *words, cwd=ROOT).splitlines()
    return {name: Version(version) for name, _, version in (line.partition("==") for line in lines)}


@pytest.mark.slow
@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize("python", PYTHONS)
def test_all_extras_go_together_at_their_floors_and_at_their_newest_and_as_pinned(python):
    lowest = resolved(python, "--resolution", "lowest-direct")
    for name, floor in floors("dev").items():
        # The first wheels for a newer Python may be of a later version.
        assert lowest[name] == floor or python != PYTHONS[0], f"{name}>={floor}: the lowest to be had is {lowest[name]}"
    resolved(python, "--resolution", "highest")
    resolved(python, "--constraint", "constraints.txt")

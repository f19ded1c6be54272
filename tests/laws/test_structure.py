"""How the house is built: what the import contracts in pyproject.toml cannot say."""

import ast
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import RBFKernel

import torch_kbandits

ROOT = Path(torch_kbandits.__file__).parent
LOOSE = {"__init__", "checks", "cli", "errors", "extras", "files", "version"}
#: What one round of BKB on arms passes, and what the package has; they may fall.
MOST_FILES, MOST_LINES, MOST_CLASSES = 31, 36_000, 401
#: Who undoes something after an interrupt, or fills itself, and why that is no value that is swapped.
BY_HAND = {
    "integrations/ray/workers.py": "actors are ended",
    "observations/experts.py": "counts of questions are taken from a saved state",
}
DEFAULTS = {
    "acquisition": {"AdaptiveDiscretizationRule.on_box", "SobolRule.on_box", "UniformRule.on_box"}
    | {"ProbabilityOfImprovementRule.scaled_to"}
    | {"SoftmaxRule.scaled_to"}
    | {f"{name}.probabilities" for name in ("SoftmaxRule", "ThompsonRule", "UniformRule")},
    "selection": {"CompositeSurrogate.learns_residual", "GaussianSurrogate.learns_residual"},
    "confidence": {"MartingaleMixtureWidth.smallest", "RandomizedWidth.smallest"},
    "memory": {"TemporalPrior.prior", "LinearGrowth.scaled", "UncertaintyInjection.scaled"}
    | {f"{name}.with_horizon" for name in ("TemporalPrior", "Discount", "Restart", "SlidingWindow")}
    | {"UncertaintyInjection.with_horizon"},
    "priors": {"Balancing.kept", "Balancing.leader", "Elimination.kept", "Elimination.offering"}
    | {"Sampling.leader", "Sampling.offering"},
    "spaces": {f"{kind}.{name}" for kind in ("Float", "Integer") for name in ("_cells", "_centres")},
    "posteriors": {"DictionaryPosterior.learns_residual"},
}

#: Private words and phrases for which the field has terms.
PRIVATE = (
    *("Advised", "Belief", "BackToPrior", "Blind", "Course", "Fence", "Gauge", "Hallucinated", "KeepAll", "Lookahead"),
    *("OnlineSample", "Outlook", "Prospects", "Rival", "Standing", "Streaks", "Stretch"),
    *("ToldOtherwise", "Tracked", "Undisturbed", "Watched", "Weighed", "belief", "complaints", "contenders", "sieve"),
    *("by lot", "known beforehand", "looked at", "plain rounds", "spanned to rounding", "taken back"),
    *("the present time", "what counts", "what is believed", "written up"),
)


@cache
def sources():
    """The text of each module, by its place in the package."""
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@cache
def classes():
    """Our classes in all modules that need no extra."""
    found = set()
    for name in sources():
        if not name.startswith("integrations/") and not name.endswith("__init__.py"):
            module = import_module(".".join(["torch_kbandits", *name.removesuffix(".py").split("/")]))
            found |= {kind for kind in vars(module).values() if isinstance(kind, type)}
    return sorted((kind for kind in found if is_ours(kind)), key=lambda kind: kind.__qualname__)


def is_ours(kind):
    return kind.__module__.startswith("torch_kbandits.")


def rooms():
    return sorted({name.removesuffix(".py").split("/")[0] for name in sources()} - {"__init__", "integrations"})


def test_every_module_says_in_one_line_what_it_is_and_is_in_its_place():
    first = {name: text.split("\n")[0] for name, text in sources().items()}
    assert [name for name, line in first.items() if not re.fullmatch(r'"""\S.*[.:;](""")?', line)] == []
    assert [name for name in sources() if name.count("/") > 2 or Path(name).stem in ("utils", "helpers", "misc")] == []
    assert {Path(name).stem for name in sources() if "/" not in name} - LOOSE == set()


def test_candidates_know_no_posterior():
    above = tuple(f"torch_kbandits.{room}" for room in ("posteriors", "models", "tables", "selection", "dictionaries"))
    found = [
        f"{name}: {node.module}"
        for name, text in sources().items()
        if name.startswith("candidates/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(above)
    ]
    assert found == []


def test_algorithms_compose_only():
    found = {
        f"{kind.__name__}.{name}"
        for kind in classes()
        if kind.__module__.startswith("torch_kbandits.algorithms.") and issubclass(kind, torch_kbandits.Bandit)
        for name, member in vars(kind).items()
        if name != "__init__" and (inspect.isroutine(member) or isinstance(member, (property, classmethod)))
    }
    assert found == set()


def overridden(kind):
    """Concrete methods of our other classes that a class says anew."""
    for name, member in vars(kind).items():
        if name.startswith("__") or not (inspect.isroutine(member) or isinstance(member, (property, classmethod))):
            continue
        above = [vars(base)[name] for base in kind.__mro__[1:] if is_ours(base) and name in vars(base)]
        if above and not getattr(above[0], "__isabstractmethod__", False):
            yield f"{kind.__qualname__}.{name}"


def levels(kind):
    return 1 + max((levels(base) for base in kind.__bases__ if is_ours(base)), default=0)


@pytest.mark.parametrize("here", rooms())
def test_no_concrete_method_is_overridden_and_classes_are_at_most_three_levels_deep(here):
    inside = [kind for kind in classes() if kind.__module__.split(".")[1] == here]
    assert {name for kind in inside for name in overridden(kind)} == DEFAULTS.get(here, set())
    assert [kind.__qualname__ for kind in inside if levels(kind) > 3] == []


def test_nothing_is_restored_by_hand_and_the_house_does_not_grow():
    by_hand = re.compile(r"except BaseException|vars\(\w+\)\.update")
    assert {name for name, text in sources().items() if by_hand.search(text)} == set(BY_HAND)
    lines = [line for text in sources().values() for line in text.split("\n")]
    assert len(lines) <= MOST_LINES
    assert sum(line.lstrip().startswith("class ") for line in lines) <= MOST_CLASSES


def test_a_round_passes_few_files():
    """Files of the package whose functions one ask and one tell of BKB on arms call; loops do not count."""
    arms = torch.rand(1000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = RBFKernel().double()
    bandit = torch_kbandits.algorithms.BKB(candidates=arms, kernel=kernel, regularization=0.1, beta=2.0, seed=0)
    passed = set()

    def noted(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and not path.stem.endswith(("loops", "compiled", "device")):
            passed.add(path.relative_to(ROOT).as_posix())

    for number in range(12):
        sys.setprofile(noted if number == 11 else None)
        try:
            x = bandit.ask()
            bandit.tell(x, torch.sin(5.0 * x).sum())
        finally:
            sys.setprofile(None)
    assert 0 < len(passed) <= MOST_FILES, sorted(passed)


def test_names_and_phrases_are_the_fields():
    private = re.compile(rf"\b(?:{'|'.join(PRIVATE)})s?\b")
    assert {name: found for name, text in sources().items() if (found := private.findall(text))} == {}

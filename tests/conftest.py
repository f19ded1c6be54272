import gc
import os
from collections import Counter
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version

import hypothesis
import pytest
from packaging.requirements import Requirement

# Each test process has a core of its own; threads on top of that, be they torch's, NumPy's or a child's, only get in
# each other's way. Another number rounds otherwise, which no law may depend on. Said before NumPy and torch are
# imported, which pytest-xdist's first process needs neither of.
os.environ["OMP_NUM_THREADS"] = os.environ.get("KBANDITS_TEST_THREADS", "1")

# Derandomised: a failure here is a failure everywhere. Deadlines measure the machine, not the code.
for name, examples in {"quick": 10, "thorough": 30}.items():
    hypothesis.settings.register_profile(name, derandomize=True, deadline=None, max_examples=examples, print_blob=True)


def _is_quick(config):
    """Whether the quick suite runs, as in ``make test``."""
    return config.option.markexpr == "not slow"


def pytest_configure(config):
    """Let the quick suite try a third of the examples, unless a test says its number."""
    hypothesis.settings.load_profile("quick" if _is_quick(config) else "thorough")

    config.addinivalue_line("markers", "one_in(number): one case in so many is quick; other tests take other cases")
    # Whether a line search ends abnormally is a matter of rounding, and BoTorch tries again.
    config.addinivalue_line("filterwarnings", "ignore:Optimization failed:RuntimeWarning")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Never look among what was imported and collected for what is no longer needed: that is a fifth of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let cases of dear laws take turns: each law stays quick for a case at least, and each case for some laws."""
    dear = [item for item in items if item.get_closest_marker("one_in") and not item.get_closest_marker("slow")]
    law_of = {item: item.nodeid.partition("[")[0] for item in dear}
    cases, seen, laws = Counter(law_of.values()), Counter(), {}
    for item, law in law_of.items():
        of_file = laws.setdefault(item.path, {})
        turn = min(item.get_closest_marker("one_in").args[0], cases[law])
        if (seen[law] + of_file.setdefault(law, len(of_file))) % turn:
            item.add_marker(pytest.mark.slow)
        seen[law] += 1


def pytest_runtest_setup(item):
    """Skip what needs a newer package than there is, as in ``make test-lowest``."""
    for each in (word for marker in item.iter_markers("needs") for word in marker.args):
        requirement = Requirement(each)
        if version(requirement.name) not in requirement.specifier:
            pytest.skip(f"it needs {each}")


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn, and their files hold a word: for laws of which figures there are, not of what is in them."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **_: file.write(b"figure"))


@pytest.fixture(scope="session", autouse=True)
def _as_tests_need_it():
    """BoTorch limits no threads, which takes 6 ms a search."""
    from botorch.generation import gen
    from botorch.optim.utils import timeout

    with pytest.MonkeyPatch.context() as patch:
        for module in (gen, timeout):
            patch.setattr(module, "threadpool_limits", lambda **_: nullcontext(), raising=False)
        yield


@pytest.fixture(autouse=True)
def _fixed_global_generator():
    """BoTorch draws from torch's global generator; ``torch.manual_seed`` would note the stack of every call."""
    import torch

    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(scope="session")
def quick(request):
    """Whether the quick suite runs."""
    return _is_quick(request.config)


@pytest.fixture
def short_fits(quick, monkeypatch):
    """In the quick suite fits end after a step: for laws that hold whatever a fit finds."""
    if quick:
        end_early(monkeypatch, fits=1)


@pytest.fixture
def short_searches(quick, monkeypatch):
    """In the quick suite BoTorch's searches end after two steps as well: for laws that hold wherever one ends."""
    if quick:
        end_early(monkeypatch, fits=1, searches=2)
    monkeypatch.setattr("torch_kbandits.acquisition.ThompsonRule.num_draws", 8)  # where propensities are counted


@pytest.fixture
def brief_searches(monkeypatch):
    """Both in any suite: for laws over very many combinations."""
    end_early(monkeypatch, fits=1, searches=2)


def end_early(monkeypatch, **steps):
    """Let minimisers end after some steps, whoever calls them."""
    called = {"fits": ["torch_kbandits.priors.marginal.minimize", "botorch.optim.core.minimize_with_timeout"]}
    searches = ("minimize_with_timeout", "fmin_l_bfgs_b_batched")
    called["searches"] = [f"botorch.generation.gen.{name}" for name in searches]
    for kind, number in steps.items():
        for path in called[kind]:
            module, _, name = path.rpartition(".")
            if (minimize := getattr(import_module(module), name, None)) is None:
                continue  # BoTorch has not all of them with each SciPy

            def few_steps(*args, few=number, minimize=minimize, **words):
                if "options" in words:
                    return minimize(*args, **words | {"options": (words["options"] or {}) | {"maxiter": few}})
                return minimize(*args, **words | {"maxiter": few})

            monkeypatch.setattr(f"{module}.{name}", few_steps)

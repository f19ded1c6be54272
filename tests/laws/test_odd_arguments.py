"""Whatever is given for an argument, the call succeeds or raises an error of the package, soon, and changes nothing."""

import inspect
import resource
import signal
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from conftest import is_quick
from problems import DOUBLE, data, rbf

import torch_kbandits as kb
from torch_kbandits import acquisition, algorithms, confidence, dictionaries, kernels, memory, models, priors, spaces
from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import adaptation
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.errors import KernelBanditError
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.priors import families

ARMS = data(20, 2, 3)[0]
X, Y = data(5, 2, 4)
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
WORDS = {"kernel": rbf(0.3), "regularization": 0.1, "seed": 0}


class Rude:
    """What raises whenever it is looked at."""

    def __repr__(self):
        raise RuntimeError("no")

    def __len__(self):
        raise RuntimeError("no")

    def __array__(self, *_, **__):
        raise RuntimeError("no")


def deep(depth):
    nested: Any = 1.0
    for _ in range(depth):
        nested = [nested]
    return nested


def knot():
    lists: list[Any] = []
    lists += [lists, lists]
    return lists


#: What nobody means. Each is made anew, so that no call sees what another did to it.
ODD: dict[str, Callable[[], Any]] = {
    "billion": lambda: 10**9,
    "beyond floats": lambda: 10**400,
    "below floats": lambda: -(10**400),
    "negative": lambda: -1,
    "zero": lambda: 0,
    "true": lambda: True,
    "none": lambda: None,
    "text": lambda: "x",
    "empty text": lambda: "",
    "bytes": lambda: b"x",
    "NaN": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "largest": lambda: 1.7e308,
    "complex": lambda: 1j,
    "decimal": lambda: Decimal("sNaN"),
    "date": lambda: datetime(2026, 1, 1),
    "NumPy's date": lambda: np.datetime64("NaT"),
    "empty list": list,
    "empty dict": dict,
    "set": lambda: {1.0},
    "dict": lambda: {1: "x"},
    "generator": lambda: count(),
    "range": lambda: range(10**9),
    "deep": lambda: deep(80),
    "knot": knot,
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "list of none": lambda: [None, None],
    "list of texts": lambda: ["a", "a"],
    "0-dim array": lambda: np.array(3.0),
    "flags": lambda: np.ones(2, dtype=bool),
    "array": lambda: np.zeros((2, 3, 4)),
    "no rows": lambda: np.zeros((0, 2)),
    "objects": lambda: np.array([object(), None], dtype=object),
    "records": lambda: np.zeros(2, dtype=[("a", float)]),
    "repeated": lambda: np.broadcast_to(np.zeros(1), (10**9, 2)),
    "masked": lambda: np.ma.masked_array([0.5], [True]),
    "0-dim tensor": lambda: torch.tensor(3.0),
    "integers": lambda: torch.zeros(2, 2, dtype=torch.long),
    "complex tensor": lambda: torch.zeros(2, 2, dtype=torch.complex128),
    "sparse": lambda: torch.eye(2, dtype=DOUBLE).to_sparse(),
    "sparse rows": lambda: torch.eye(2, dtype=DOUBLE).to_sparse_csr(),
    "meta": lambda: torch.zeros(2, 2, device="meta", dtype=DOUBLE),
    "meta number": lambda: torch.zeros((), device="meta", dtype=DOUBLE),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]),
    "expanded": lambda: torch.zeros(1, dtype=DOUBLE).expand(10**9, 2),
    "half": lambda: torch.zeros(2, 2, dtype=torch.float16),
    "frame of texts": lambda: pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]}),
    "series of nothing": lambda: pd.Series([pd.NA, None]),
    "rude": Rude,
    "object": object,
    "class": lambda: kb.Bandit,
    "function": lambda: lambda *_, **__: None,
    "module": lambda: torch.nn.Linear(1, 1),
}


def space():
    return kb.ParameterSpace({"x": kb.Float(0.0, 1.0), "kind": kb.Categorical(["a", "b"])})


def family():
    return families.of_length_scales(rbf(), (0.5, 1.0))


#: What the constructors and functions of the package take, by the name of the argument, whoever takes it.
USUAL: dict[str, Any] = {
    "acquisition": acquisition.UpperConfidenceRule(),
    "action_dim": 2,
    "actions": X,
    "arms": ARMS,
    "beta": 1.0,
    "block_size": 5,
    "bounds": UNIT,
    "candidates": ARMS,
    "choices": ["a", "b"],
    "columns": [kb.Number("age")],
    "constant": 1.0,
    "context_dim": 1,
    "covar_module": rbf(0.3),
    "covariance": torch.eye(3, dtype=DOUBLE),
    "dimension": 2,
    "discount": 0.9,
    "discretization": X,
    "exploration": 0.1,
    "failure_probability": 0.1,
    "forgetting": 0.1,
    "growth": memory.Quadratic(1.0),
    "high": 1.0,
    "horizon": 20,
    "inducing_points": X[:2],
    "kernel": rbf(0.3),
    "lengthscale": 0.5,
    "low": 0.0,
    "max_size": 3,
    "memories": (SlidingWindow(5), SlidingWindow(9)),
    "name": "cost",
    "noise_scale": 0.1,
    "norm": 1.0,
    "norm_bound": 1.0,
    "now": 0.0,
    "num_blocks": 2,
    "objectives": {"reward": "maximize", "cost": "minimize"},
    "outcome": "cost",
    "parameters": {"x": kb.Float(0.0, 1.0)},
    "period": 5,
    "points": X,
    "probabilities": (0.5, 0.5),
    "regularization": 0.1,
    "rule": dictionaries.UniformDictionary(5),
    "seed": 0,
    "size": 5,
    "threshold": 2.0,
    "train_X": X,
    "train_Y": Y,
    "value": 1.0,
    "weights": {"x": 1.0},
    "width": ConstantWidth(1.0),
    "window": 5,
    "X": X,
    "accuracy": 0.5,
    "base_kernel": rbf(0.3),
    "bound": 1.0,
    "enabled": True,
    "expert": lambda X, time: None,
    "factor": 2.0,
    "gain": 5.0,
    "groups": [0, 0],
    "lipschitz": 1.0,
    "model": kb.NystromGP(X, Y, inducing_points=X[:2], covar_module=rbf(0.3), regularization=0.1),
    "n": 3,
    "number": 3,
    "num_arms": 5,
    "num_choices": 3,
    "num_options": 3,
    "num_points": 9,
    "offset": 0.5,
    "order": 0,
    "rate": 1.0,
    "round": 3,
    "scale": 1.0,
    "scales": (0.5, 1.0),
    "side": 1.0,
    "space_kernel": rbf(0.3),
    "time_kernel": rbf(0.3),
}
#: Who takes something else under these names, or needs more.
OWN: dict[str, dict[str, Any]] = {
    "ArmBlocks": {"function": lambda number: X + number},
    "Bandit": {"candidates": kb.Arms(ARMS), "width": ConstantWidth(1.0), "kernel": rbf(0.3), "regularization": 0.1},
    "ContextualActions": {"actions": ARMS, "context_dim": 1},
    "GuessAndDouble": {"width": confidence.SelfNormalizedWidth(0.1, 1.0, 0.1)},
    "Integer": {"low": 0, "high": 5},
    "UncertaintyInjectionLikelihood": {"time_column": 0},
    "r-gp-ucb": {"period": 5},
    "sw-gp-ucb": {"window": 5},
    "Category": {"levels": ("a", "b")},
    "Configurations": {"space": space()},
    "KORS": {"oversampling": 1.0},
    "KDPP": {"size": 5},
    "RateGain": {"kernel": "matern", "nu": 1.5},
    "RootOfGain": {"constants": np.ones(2), "slopes": np.ones(2)},
    "Scalarization": {"bounds": None},
    "SlidingWindow": {"unit": "observations"},
    "fit_prior": {"Y": Y.squeeze(-1)},
}
#: What a constructor takes without a word, since it is BoTorch's or GPyTorch's to check, or is called later.
UNCHECKED = {"kwargs", "others", "known", "args"}
MODULES = (kb, acquisition, confidence, dictionaries, kernels, memory, models, priors, families, spaces, adaptation)
#: Bases, results that are returned, parts of the inside, and those that read files or need a posterior.
LEFT_OUT = {
    "AcquisitionRule", "ArmPosterior", "BlindRule", "Choice", "CombinedFunction", "Cube", "DictionaryQuality",
    "DictionaryRule", "Domain",
    "Evidence", "FactoredGP", "Family", "FamilyRule", "Growth", "Guarantee", "History", "Hypothesis",
    "InformationGain", "KnownByGain", "LargestOf", "LeavesInOrder", "Limit", "MappedArms", "Memory", "MemoryChoice",
    "NystromWidth", "Offer", "OnlineRule", "OnlineSample", "OptimisticRule", "Parameter", "PlayedPoints",
    "PosteriorDraws", "PriorMean", "Resampling", "RestartTrigger", "Selection", "SomeOf", "StagedRule", "SumGain",
    "TheoremWidth", "Trials", "Verdict", "WhenFull", "Width", "ages", "at_time", "climb", "draw_nystrom_paths",
    "given_prior", "hallucinate", "leverage_scores", "negligible", "prior_of", "probabilities",
}  # fmt: skip


#: What every bandit is given, though it need not be.
ALWAYS = {*WORDS, "candidates", "beta"}


def takers():
    """Return what is public and takes arguments, by name."""
    found: dict[str, Callable[..., Any]] = {name: registry._find(name) for name in registry.names()}
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            is_error = isinstance(value, type) and issubclass(value, (Exception, Warning))
            if callable(value) and name not in LEFT_OUT and not is_error and not inspect.ismodule(value):
                found.setdefault(name, value)
    return found


def usual(name, taker):
    """Return a call that succeeds: the arguments that must be given."""
    words, is_bandit = {}, isinstance(taker, type) and issubclass(taker, kb.Bandit)
    for word, parameter in registry.signature(taker).parameters.items():
        if word in OWN.get(name, {}):
            words[word] = OWN[name][word]
        elif word in USUAL and (parameter.default is parameter.empty or (word in ALWAYS and is_bandit)):
            words[word] = USUAL[word]
    return words


def told():
    """A bandit at a dictionary with an outcome and a memory, that was told and asked for more."""
    outcome = kb.Outcome("cost", kb.Prior(rbf(0.3), 0.1))
    bandit = algorithms.BKB(candidates=ARMS, beta=1.0, memory=SlidingWindow(20), outcomes=[outcome], **WORDS)
    bandit.tell(ARMS[:4], [0.1, 0.2, 0.3, 0.4], outcomes={"cost": [1.0, 2.0, 3.0, 4.0]})
    bandit.ask(2)
    return bandit


def in_contexts():
    bandit = algorithms.EKUCB(action_dim=1, context_dim=1, beta=1.0, **WORDS)
    bandit.tell(ARMS[:3, :1], [0.1, 0.2, 0.3], context=ARMS[:3, 1:])
    bandit.ask(context=ARMS[0, :1], candidates=ARMS[:5, 1:])
    return bandit


def configured():
    bandit = algorithms.GPUCB(candidates=space(), beta=1.0, **WORDS)
    bandit.tell([{"x": 0.1, "kind": "a"}, {"x": 0.5, "kind": "b"}], [0.1, 0.2])
    return bandit


def online():
    return kb.OnlineGP(X, Y, covar_module=rbf(0.3), regularization=0.1)


def nystrom():
    return kb.NystromGP(X, Y, inducing_points=X[:3], covar_module=rbf(0.3), regularization=0.1)


ACTION = {"context": ARMS[0, :1], "candidates": ARMS[:5, 1:]}
CONFIGURATION = {"x": 0.2, "kind": "a"}
#: Methods, with a maker of what has them and the words of a call that succeeds.
METHODS: list[tuple[Callable[[], Any], str, dict[str, Any]]] = [
    (told, "ask", {}),
    (told, "mark_pending", {"x": ARMS[:2]}),
    (told, "tell", {"x": ARMS[:2], "y": [0.1, 0.2]}),
    (told, "run", {"pull": lambda x: {"y": 0.1, "outcomes": {"cost": 1.0}}, "rounds": 1}),
    (told, "forget", {}),
    (told, "guarantee", {}),
    (told, "dictionary_quality", {"num_points": 5, "max_reference": 10}),
    (told, "told_since", {"number": 1}),
    (told, "outcome_model", {"name": "cost"}),
    (told, "failure_probability", {"x": ARMS[:2]}),
    (told, "acquisition", {}),
    (told, "recommend", {}),
    (told, "health", {}),
    (told, "log_health", {}),
    (told, "load_state_dict", {"state": {}}),
    (told, "save", {"path": "no/such/place"}),
    (told, "load", {"path": "no/such/place"}),
    (told, "replay", {"history": None}),
    (in_contexts, "ask", ACTION),
    (in_contexts, "tell", {"x": ARMS[:2, :1], "y": [0.1, 0.2], "context": ARMS[:2, 1:]}),
    (in_contexts, "mark_pending", {"x": ARMS[:2, :1], "context": ARMS[:2, 1:]}),
    (in_contexts, "recommend", ACTION),
    (configured, "tell", {"x": CONFIGURATION, "y": 0.1}),
    (configured, "mark_pending", {"x": CONFIGURATION}),
    (online, "tell", {"X": X[:2], "Y": Y[:2]}),
    (online, "remove", {"rows": [0]}),
    (online, "condition_on_observations", {"X": X[:2], "Y": Y[:2]}),
    (online, "leave_one_out", {}),
    (nystrom, "tell", {"X": X[:2], "Y": Y[:2]}),
    (nystrom, "remove", {"rows": [0]}),
    (nystrom, "set_dictionary", {"dictionary": X[:2]}),
]
#: Functions of the caller's, whose errors are the caller's.
CALLED = {"pull", "offered", "function", "snap", "neighbours", "questions", "cutoff", "g", "expert"}
FUNCTIONS = {"class", "function", "module"}
#: What is meant: so many rounds.
MEANT = {("run", "rounds", "billion")}


@pytest.fixture
def bounded():
    """Let each call take some seconds and some memory at most, where the system can be asked for that."""
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _too_long(*_):
    raise TimeoutError("the call takes more than ten seconds")


def refused(call, what):
    """Make a call, and say whether it was refused; any error that is not the package's is the test's."""
    signal.alarm(10)
    try:
        call()
    except (KernelBanditError, UnsupportedError):
        return True
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return False


def tried(request, number):
    """Return the odd values that an argument of a number is given: all of them in the slow suite."""
    names = [*ODD]
    return names[number % _TURNS :: _TURNS] if is_quick(request.config) else names


_TURNS = 13


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", takers())
def test_what_is_made_takes_an_argument_or_refuses_it(name, bounded, request):
    taker = takers()[name]
    words = usual(name, taker)
    taker(**words)
    for number, (word, parameter) in enumerate(registry.signature(taker).parameters.items()):
        if word in UNCHECKED or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        for odd in tried(request, number + len(name)):
            if word in CALLED and odd in FUNCTIONS:
                continue
            given = {**words, word: ODD[odd]()}
            refused(lambda: taker(**given), f"{name}({word}={odd})")  # noqa: B023


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "method", "words"), METHODS, ids=[f"{m.__name__}-{n}" for m, n, _ in METHODS])
def test_a_method_takes_an_argument_or_refuses_it_and_changes_nothing(make, method, words, bounded, request):
    one = make()
    before = state_of(one)
    for number, word in enumerate(inspect.signature(getattr(one, method)).parameters):
        for odd in tried(request, number + len(method)) if word != "kwargs" else ():
            if (method, word, odd) in MEANT or (word in CALLED and odd in FUNCTIONS):
                continue
            given = {**words, word: ODD[odd]()}
            was_refused = refused(lambda: getattr(one, method)(**given), f"{method}({word}={odd})")  # noqa: B023
            if not was_refused:
                one = make()
            assert state_of(one) == before, f"{method}({word}={odd})"


def state_of(value):
    return str(value.state_dict())


def test_what_is_missing_is_named():
    with pytest.raises(TypeError, match="seed"):
        algorithms.BKB(candidates=ARMS, kernel=rbf(), regularization=0.1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'seeed'"):
        algorithms.BKB(candidates=ARMS, beta=1.0, seeed=0, **WORDS)

"""Whatever is given for an argument, the call succeeds or raises an error of the package, soon, and changes nothing."""

import inspect
import pkgutil
import resource
import signal
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import count
from types import GenericAlias
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import Kernel
from problems import DOUBLE, data, rbf

import torch_kbandits as kb
from torch_kbandits import acquisition, algorithms, confidence, environments
from torch_kbandits.algorithms import registry
from torch_kbandits.evaluation import Log
from torch_kbandits.memory import QuadraticGrowth, Restart, SlidingWindow

ARMS = data(20, 2, 3)[0]
X, Y = data(6, 2, 4)
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


class Still:
    """A player that always plays the same and learns nothing."""

    def ask(self):
        return X[:1]

    def tell(self, x, y): ...

    def forget(self, x): ...


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
    "number as text": lambda: "0.5",
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
    "far points": lambda: torch.tensor([[0.0, 0.0], [1e200, 1e200]], dtype=DOUBLE),
    "half": lambda: torch.zeros(2, 2, dtype=torch.float16),
    "frame of texts": lambda: pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]}),
    "series of nothing": lambda: pd.Series([pd.NA, None]),
    "rude": Rude,
    "object": object,
    "class": lambda: kb.Bandit,
    "function": lambda: lambda *_, **__: None,
    "module": lambda: torch.nn.Linear(1, 1),
}


#: What is given for an argument of this name, whoever takes it. Floats are sums of few powers of two, so that they are
#: the same number in every kind.
NUMBERS = {
    "budget": 2.0, "per_round": 1.0, "total": 2.0,
    "accuracy": 0.5, "action_dim": 2, "after": 2.0, "batch_threshold": 2.0, "best_mean": 1.0, "beta": 1.5,
    "block_size": 4, "bound": 2.0, "category_distance": 1.0, "center": 0.5, "clip": 2.0, "confidence": 0.5,
    "constant": 2.0, "constraint_beta": 1.5, "context_dim": 1, "count": 2, "cutoff": 4.0, "dimension": 2,
    "discount": 0.5, "discretization_size": 32, "epsilon": 0.25, "every": 2, "expire_after": 2.0, "exploration": 0.25,
    "factor": 0.5, "failure_probability": 0.25, "false_alarm_probability": 0.25, "floor": -2.0, "folds": 3,
    "forgetting": 0.25, "gain": 8.0, "growth": 0.25, "high": 2.0, "horizon": 40, "least_correlation": 0.25,
    "least_weight": 0.25, "lengthscale": 0.5, "lipschitz": 2.0, "low": 0.5, "margin": 0.25, "max_dictionary": 5,
    "max_questions": 5, "max_reference": 5, "max_size": 5, "max_variance": 4.0, "mean": 2.0, "n": 3,
    "mixture": 2.0, "no_better_by": 0.5, "noise_fraction": 0.25, "noise_scale": 0.25, "noise_spread": 2.0, "norm": 2.0,
    "norm_bound": 2.0, "now": 3.0, "nu": 1.5, "num_actions": 6, "num_arms": 6, "num_blocks": 2, "num_bounds": 3,
    "num_bumps": 3, "num_centres": 4, "num_choices": 7, "num_draws": 16, "num_initial": 3, "num_labels": 3,
    "num_options": 3, "num_points": 9, "num_restarts": 2, "num_starting": 2, "num_swaps": 3, "number": 4, "offset": 0.5,
    "order": 3, "origin": 0.5, "oversampling": 2.0, "period": 4, "posterior_noise": 0.25, "problem_seed": 5,
    "projection": 0.5, "questions": 2.0, "rate": 0.5, "raw_samples": 8, "refit_share": 0.5, "regret": 0.5,
    "regularization": 0.5, "round": 5, "rounds": 3, "scale": 0.5, "score_discount": 0.25, "seed": 3, "shrinkage": 0.25,
    "side": 2.0, "size": 4, "step": 1.0, "swing": 0.5, "switches": 5, "temperature": 0.5, "threshold": 2.0,
    "speed": 0.5,
    "time_column": 0, "tolerance": 0.5, "train_fraction": 0.5, "value": 1.5, "variation_budget": 0.5, "window": 4,
    "capacity": 0.5, "decay": 0.5, "depth": 1, "dictionary_size": 5, "gap_decay": 0.25, "length": 3, "max_length": 3,
    "num_columns": 5, "num_parts": 4, "variation": 2.0,
}  # fmt: skip
#: And what is no number.
THINGS: dict[str, Any] = {
    **dict.fromkeys(["X", "actions", "arms", "candidates", "contexts", "discretization", "points", "train_X"], X),
    **dict.fromkeys(["base_kernel", "covar_module", "kernel", "space_kernel", "time_kernel"], rbf()),
    "Y": Y[:, 0],
    "acquisition": acquisition.UpperConfidenceRule(),
    "bounds": UNIT,
    "choices": ["a", "b"],
    "columns": [kb.Number("age")],
    "covariance": torch.eye(3, dtype=DOUBLE),
    "centers": torch.zeros(3, dtype=DOUBLE),
    "spans": torch.ones(3, dtype=DOUBLE),
    "enabled": True,
    "expert": lambda X, time: None,
    "function": lambda X: X.sum(-1),
    "graphs": [networkx.path_graph(3)],
    "groups": [0, 0],
    "inducing_points": X[:2],
    "levels": ("a", "b"),
    "memories": (SlidingWindow(3.0), SlidingWindow(5.0)),
    "model": kb.NystromGP(X, Y, inducing_points=X[:2], covar_module=rbf(), regularization=0.5),
    "name": "cost",
    "objectives": {"reward": "maximize", "cost": "minimize"},
    "outcome": "heat",
    "parameters": {"x": kb.Float(0.0, 1.0)},
    "probabilities": (0.5, 0.5),
    "rule": kb.RidgeLeverageSampling(),
    "scales": (0.5, 1.0),
    "space": kb.ParameterSpace({"x": kb.Float(0.0, 1.0), "kind": kb.Categorical(["a", "b"])}),
    "predictions": torch.zeros(40, 2, dtype=DOUBLE),
    "strings": ["a", ""],
    "train_Y": Y,
    "weights": {"x": 1.0},
    "width": kb.ConstantWidth(1.0),
}
#: Whole numbers where the argument is one, whatever others of its name are.
WHOLE = {("SlidingWindow", "size")} | {("Integer", word) for word in ("low", "high", "step")}
LOG = Log([0, 1, 1, 0] * 10, [0.0, 1.0, 1.0, 0.5] * 10, [0.5] * 40, actions=X[:2])
TABLE = torch.full((40, 2), 0.5, dtype=DOUBLE)
#: Who takes something else under these names, or needs more.
#: ``None`` is not to be given together with the rest.
WITH: dict[str, dict[str, Any]] = {
    "AtLeast": {"outcome": "yield"},
    "BOBGPUCB": {"num_actions": None},
    "Bandit": {"candidates": kb.Arms(ARMS), "kernel": rbf(), "width": kb.ConstantWidth(1.0)},
    "CappedDictionary": {"rule": kb.UniformDictionary(5)},
    "Classification": {"labels": torch.tensor([0, 1, 2, 0, 1, 2])},
    "ContextualActions": {"actions": X, "action_dim": None},
    **{name: {"rule": acquisition.UpperConfidenceRule()} for name in ("EpsilonGreedy", "SoftmaxRule")},
    "FiniteArms": {"means": X[:, 0]},
    "GuessAndDouble": {"width": confidence.SelfNormalizedWidth(0.1, 1.0, 0.1)},
    "Integer": {"low": 0, "high": 5, "step": 1},
    "LearnedPrior": {"mean": None},  # of arrays, too
    "Log": {"rows": [0, 1], "rewards": [0.5, 1.0], "propensities": [0.5, 1.0], "contexts": None, "actions": X[:2]},
    **{name: {"log": LOG, "target_probabilities": TABLE} for name in ("ips", "snips", "direct_method")},
    **{name: {"log": LOG, "target_probabilities": TABLE} for name in ("clipped_ips", "doubly_robust", "switch")},
    "predicted_rewards": {"model": lambda X: X.sum(-1), "log": LOG},
    "cross_fitted_rewards": {"fit": lambda part: lambda X: X.sum(-1), "log": LOG},
    "target_probabilities": {"policy": "uniform", "log": LOG},
    "replay_log": {"bandit": Still(), "log": LOG},
    "LinUCB": {"kernel": None},
    "PhasedEliminationRule": {"lengths": (3, 5)},
    "MiniGPUCB": {"epsilon": None},
    "BudgetPacing": {"total": None, "rounds": None},
    "Fidelity": {"column": 1, "levels": [0.5, 2.0], "target": 2.0},
    "default_kernel": {"context_dim": 0},
    "SharedLinUCB": {"kernel": None},
    "Prior": {"mean": None},
    "RGPUCB": {"period": None},
    "RateGain": {"kernel": "matern"},
    "replayed_arms": {"records": X, "simultaneous": True},
    "SWGPUCB": {"variation_budget": None},
    "SensorReplay": {"readings": torch.stack([X[:, 0], X[:, 1]])},
    "SlidingWindow": {"size": 5, "unit": "observations"},
    "SupKernelUCB": {"num_actions": None},
    "UncertaintyInjection": {"growth": QuadraticGrowth()},
    "UncertaintyInjectionLikelihood": {"growth": QuadraticGrowth()},
    "ModelSpec": {"mean": None},
    "MultiScaleRestarts": {"memories": (Restart(1.0),)},
    **{name: {"beta": 8.0} for name in ("AdaBKB", "BKB", "BBKB", "CBKB", "CBBKB", "EKUCB", "GPTS")},
    "synthetic_function": {"function": "rosenbrock"},
}
#: Bases, results that are returned, parts of the inside, and those that read files or need a posterior.
LEFT_OUT = {
    "AcquisitionRule", "Answers", "ArmPosterior", "BoxPosterior", "Choice", "CombinedFunction", "Cube",
    "DictionaryQuality", "DictionaryRule", "Domain", "Evidence", "Expert", "FactoredGP", "Family", "FamilyRule",
    "Assumption", "Growth", "Guarantee", "Health", "History", "InformationGain", "KnownSafe",
    "Memory", "MemoryChoice", "Offer", "OnlineRule", "OnlineState", "OptimisticRule",
    "Parameter", "PlayedPoints", "PosteriorDraws", "PriorMean", "RandomRule", "Resampling", "RestartTrigger",
    "SeattleWeather", "Selection", "Service", "SomeOf", "Suggestion", "TheoremWidth", "Trials", "WhenFull",
    "Width", "ages", "at_time", "build", "climb", "digits", "draw_nystrom_paths", "fill", "given_prior",
    "hpolib", "negligible", "prior_of", "probabilities", "read_log", "refusal",
    "Estimate", "Replay", "cumulative_regret_bound", "dictionary_size_bound", "require_open",
    "sensor_replay", "sensors",
}  # fmt: skip
INSIDE = {"selection", "experiments", "integrations", "numerics", "plotting", "posteriors", "tables"}
#: Rooms of whose names only those that take numbers are of use to others.
NUMBERS_ALONE = {"bandit", "candidates", "environments", "likelihoods", "observations", "outcomes", "serving"}


def takers():
    """All that the package shows and that takes arguments, by name."""
    found = {}
    rooms = [each.name for each in pkgutil.iter_modules(kb.__path__) if each.ispkg]
    for room in sorted({*rooms, "bandit.adaptation", "priors.families"} - INSIDE):
        here = import_module(f"torch_kbandits.{room}")
        for name in here.__all__:
            taker = getattr(here, name)
            is_error = isinstance(taker, type) and issubclass(taker, (Exception, Warning))
            if not callable(taker) or inspect.isabstract(taker) or name in LEFT_OUT or is_error:
                continue
            if room not in NUMBERS_ALONE or numbers_of(taker):
                found[name] = taker
    return found


@cache
def numbers_of(taker):
    """The arguments that are numbers, and whether each is a whole one."""
    kinds = {}
    for name, parameter in registry.signature(taker).parameters.items():
        parts = {parameter.annotation, *getattr(parameter.annotation, "__args__", ())}
        if {int, float} & parts and not isinstance(parameter.annotation, GenericAlias):
            kinds[name] = float not in parts
    return kinds


TAKERS = takers()
#: What every bandit is given, though it need not be.
ALWAYS = {"kernel", "regularization", "seed", "candidates"}


def words_for(name):
    """A call that succeeds: all numbers, and what else must be given."""
    taker, words = TAKERS[name], {}
    is_bandit = isinstance(taker, type) and issubclass(taker, kb.Bandit)
    for word, parameter in registry.signature(taker).parameters.items():
        if word in NUMBERS and word in numbers_of(taker):
            words[word] = NUMBERS[word]
        elif word in THINGS and (parameter.default is parameter.empty or (is_bandit and word in ALWAYS)):
            words[word] = THINGS[word]
    if is_bandit and "candidates" in words:
        words = {word: value for word, value in words.items() if word not in ("context_dim", "action_dim")}
    return {word: value for word, value in (words | WITH.get(name, {})).items() if value is not None}


def facts(value, seen=()):
    """All that an object holds, its numbers with their types."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.tolist())
    if isinstance(value, Kernel):
        return facts([type(value).__name__, value.state_dict()], seen)
    if isinstance(value, kb.Bandit):
        return facts([value.state_dict(), value.seed, value.regularization], seen)
    if isinstance(value, Mapping):
        return ("mapping", [(str(key), facts(part, seen)) for key, part in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [facts(part, seen) for part in value])
    if isinstance(value, torch.nn.Module):
        return facts([value.state_dict(), {k: v for k, v in vars(value).items() if isinstance(v, (int, float, str))}])
    if hasattr(value, "__dict__") and not callable(value) and id(value) not in seen:
        return (type(value).__name__, facts(vars(value), (*seen, id(value))))
    if value is None or isinstance(value, (bool, int, float, str)):
        return (type(value).__name__, str(value))
    return type(value).__name__


#: The same number as other kinds of numbers: what a float becomes, and what a whole number does.
KINDS = {
    "numpy": (np.float64, np.int64),
    "small numpy": (np.float16, np.uint8),
    "numpy array": (np.array, np.array),
    "fraction": (Fraction, int),
    "decimal": (Decimal, int),
    "tensor": (lambda value: torch.tensor(float(value), dtype=torch.float32), torch.tensor),
    "double tensor": (lambda value: torch.tensor(float(value), dtype=DOUBLE, requires_grad=True), torch.tensor),
    "whole": (lambda value: int(value) if float(value).is_integer() else value, int),
}


def is_whole(name, argument):
    return numbers_of(TAKERS[name])[argument] or (name, argument) in WHOLE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name, taker in TAKERS.items() if numbers_of(taker)])
def test_every_kind_of_number_is_the_number(name, quick):
    """In the quick suite each argument is given as one of the kinds, as another than its neighbours."""
    taker, words = TAKERS[name], words_for(name)
    numbers = {key: value for key, value in words.items() if type(value) in (int, float)}
    expected = facts(taker(**words))
    kinds, first = list(KINDS), [*TAKERS].index(name)
    for turn in range(first, first + (1 if quick else len(kinds))):
        chosen = {key: kinds[(turn + place) % len(kinds)] for place, key in enumerate(numbers)}
        given = {key: KINDS[kind][is_whole(name, key)](numbers[key]) for key, kind in chosen.items()}
        assert facts(taker(**words | given)) == expected, chosen


def test_no_argument_that_is_a_number_is_left_out():
    missing = {
        f"{name}({argument})"
        for name, taker in TAKERS.items()
        for argument in numbers_of(taker)
        if argument not in words_for(name) and argument not in {"action_dim", "context_dim", *WITH.get(name, {})}
    }
    assert missing == set()


# ---------------------------------------------------------------- what is refused


#: BoTorch's or GPyTorch's to check, or called later.
UNCHECKED = {"kwargs", "others", "known", "args", "columns", "column"}
#: What of −1, 0, 1, 1.5 and ∞ an argument refuses, by its name, whoever takes it.
RANGES = {
    "-1 0 inf": "after batch_threshold clip constant expire_after factor gain lengthscale max_variance noise_fraction "
    "mixture noise_scale noise_spread norm norm_bound nu oversampling period projection questions rate refit_share "
    "regularization scale temperature decay variation",
    "-1 inf": "beta constraint_beta cutoff growth margin no_better_by regret shrinkage tolerance value "
    "variation_budget",
    "-1 0 1 1.5 inf": "accuracy confidence failure_probability false_alarm_probability least_correlation least_weight "
    "num_arms num_initial score_discount num_parts",
    "-1 0 1.5 inf": "block_size dimension discount discretization_size every horizon max_dictionary max_reference "
    "max_size n num_bounds num_choices num_draws num_options num_points num_restarts num_starting raw_samples "
    "round size switches length max_length num_columns dictionary_size",
    "-1 1.5 inf": "capacity context_dim depth epsilon exploration max_questions num_swaps number problem_seed",
    "-1 1 1.5 inf": "forgetting gap_decay",
    "-1 0 1 inf": "batch_threshold threshold",
    "1.5 inf": "order seed time_column",
    "inf": "best_mean bound floor mean now origin",
}
#: And who refuses other numbers; other words are about several arguments at once.
OTHER_RANGES = {
    **dict.fromkeys([("Float", "step"), ("Balancing", "step"), ("Drift", "variation_budget")], "-1 0 inf"),
    **dict.fromkeys([("ScaledWidth", "factor")], "-1 inf"),
    **dict.fromkeys([(name, "rate") for name in ("WienerKernel", "LinearGrowth", "QuadraticGrowth")], "-1 inf"),
    **dict.fromkeys([("Integer", "step"), ("ContextualFunction", "context_dim")], "-1 0 1.5 inf"),
    **dict.fromkeys([("Prediction", "score_discount"), ("shrinking_scales", "number")], "-1 0 1.5 inf"),
    **dict.fromkeys([("BayesianGPUCBWidth", "num_arms"), ("MovingPeak", "num_arms")], "-1 0 1.5 inf"),
    ("MovingPeak", "speed"): "-1 inf",
    **dict.fromkeys([(name, "noise_scale") for name in environments.__all__], "-1 inf"),
    **dict.fromkeys([("Restart", "period"), ("SWGPUCB", "window")], "-1 0"),
    ("WSparQGPUCB", "window"): "-1 0 inf",
    **dict.fromkeys([("synthetic_function", "dimension"), ("Drift", "horizon")], "-1 0 1 1.5 inf"),
    **dict.fromkeys([(name, "value") for name in ("AtLeast", "AtMost", "Limit")], "inf"),
    ("RPERP", "period"): "-1 0 1.5 inf",
    ("SlidingWindow", "size"): "-1 0 1.5",
    ("BudgetPacing", "per_round"): "-1 0",
    ("BudgetPacing", "step"): "-1 0 inf",
    ("CostCooling", "budget"): "-1 0 inf",
    ("Fidelity", "column"): "1.5 inf",
    ("Fidelity", "target"): "-1 0 1 1.5 inf",
    ("switch", "threshold"): "-1 inf",
    ("replay_log", "center"): "inf",
    ("cross_fitted_rewards", "folds"): "-1 0 1 1.5 inf",
}
#: An argument that is called otherwise where it is checked.
CHECKED_AS = {"batch_threshold": "threshold", "beta": "beta|value", "growth": "rate|growth", "window": "size|window"}
CHECKED_AS |= {"Y": "[yY]", "features": "kernel"}
RANGE_OF = {word: values for values, words in RANGES.items() for word in words.split()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TAKERS)
def test_what_is_of_another_kind_or_out_of_range_is_refused_by_name_and_no_other_number(name):
    words = words_for(name)
    for word in registry.signature(TAKERS[name]).parameters.keys() - UNCHECKED - {"safe_seed", "variation_budget"}:
        with pytest.raises(kb.InputError, match=CHECKED_AS.get(word, word)):
            TAKERS[name](**words | {word: object()})
    for word in numbers_of(TAKERS[name]).keys() & words.keys() - {"low", "high", "num_labels"}:
        refused = OTHER_RANGES.get((name, word), RANGE_OF.get(word, "")).split()
        for value in ("-1", "0", "1", "1.5", "inf"):
            given = words | {word: float(value) if value in ("1.5", "inf") else int(value)}
            if value not in refused:
                TAKERS[name](**given)
                continue
            with pytest.raises(kb.InputError, match=CHECKED_AS.get(word, word)):
                TAKERS[name](**given)


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
    bandit = algorithms.GPUCB(candidates=THINGS["space"], beta=1.0, **WORDS)
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
    (told, "tell", {"x": ARMS[:2], "y": Y[:2, 0], "outcomes": {"cost": Y[2:4, 0]}}),
    (told, "run", {"pull": lambda x: {"y": 0.1, "outcomes": {"cost": 1.0}}, "rounds": 1}),
    (told, "forget", {}),
    (told, "guarantee", {}),
    (told, "dictionary_quality", {"num_points": 5, "max_reference": 10}),
    (told, "history_since", {"number": 1}),
    (told, "outcome_model", {"name": "cost"}),
    (told, "failure_probability", {"x": ARMS[:2]}),
    (told, "acquisition", {}),
    (told, "recommend", {}),
    (told, "health", {}),
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
    (nystrom, "tell", {"X": X[:2], "Y": Y[:2]}),
    (nystrom, "remove", {"rows": [0]}),
    (nystrom, "set_dictionary", {"dictionary": X[:2]}),
]
#: Functions of the caller's, whose errors are the caller's.
CALLED = {
    "pull",
    "offered",
    "function",
    "snap",
    "neighbours",
    "questions",
    "cutoff",
    "g",
    "expert",
    "policy",
    "fit",
    "model",
    "bandit",
}
FUNCTIONS = {"class", "function", "module"}
#: What is meant: so many rounds, or steps.
MEANT = {("run", "rounds", "billion")}
#: What no argument takes, and what none takes that is a number.
HOPELESS = {"far points", "sparse", "sparse rows", "meta", "meta number", "nested", "complex tensor", "complex"}
HOPELESS |= {"object", "rude"}
NO_NUMBERS = {"text", "empty text", "number as text", "bytes", "true", "NaN", "decimal", "dict", "flags"} | HOPELESS
NO_KERNELS = {"text", "class", "module", "function", "0-dim tensor", "zero"} | HOPELESS
#: What is looked at when it is known of what it is.
CHECKED_LATER = dict.fromkeys(["safe_seed", "variation_budget", "choices", "initial"], ()) | {
    "mean": HOPELESS - {"far points"}
}


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
    pytest.fail("the call takes more than ten seconds")  # which nobody catches as an Exception


def refused(call, what):
    """Make a call, and say whether it was refused; any error that is not the package's is the test's."""
    signal.alarm(10)
    try:
        call()
    except (kb.KernelBanditError, UnsupportedError):
        return True
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return False


def tried(quick, number):
    """The odd values that an argument of a number is given: all of them in the slow suite."""
    turns = 29 if quick else 1
    return [*ODD][number % turns :: turns]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TAKERS)
def test_what_is_made_takes_an_argument_or_refuses_it(name, bounded, quick):
    taker, words = TAKERS[name], words_for(name)
    taker(**words)
    for number, word in enumerate(registry.signature(taker).parameters):
        is_number = word in words and word in numbers_of(taker)
        if word in UNCHECKED:
            continue
        hopeless = NO_NUMBERS if is_number else {"kernel": NO_KERNELS, **CHECKED_LATER}.get(word, HOPELESS)
        for odd in tried(quick, number + len(name)):
            if word in CALLED and odd in FUNCTIONS:
                continue
            if (name, word, odd) in MEANT:
                continue
            given = {**words, word: ODD[odd]()}
            was_refused = refused(lambda: taker(**given), f"{name}({word}={odd})")  # noqa: B023
            assert was_refused or odd not in hopeless, f"{name}({word}={odd})"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "method", "words"), METHODS, ids=[f"{m.__name__}-{n}" for m, n, _ in METHODS])
def test_a_method_takes_an_argument_or_refuses_it_and_changes_nothing(make, method, words, bounded, quick):
    one = make()
    before = str(one.state_dict())
    for number, word in enumerate(inspect.signature(getattr(one, method)).parameters):
        for odd in tried(quick, number + len(method)) if word != "kwargs" else ():
            if (method, word, odd) in MEANT or (word in CALLED and odd in FUNCTIONS):
                continue
            given = {**words, word: ODD[odd]()}
            was_refused = refused(lambda: getattr(one, method)(**given), f"{method}({word}={odd})")  # noqa: B023
            assert was_refused or odd not in HOPELESS, f"{method}({word}={odd})"
            if not was_refused:
                one = make()
            assert str(one.state_dict()) == before, f"{method}({word}={odd})"


def test_what_is_missing_is_named():
    with pytest.raises(TypeError, match="seed"):
        algorithms.BKB(candidates=ARMS, kernel=rbf(), regularization=0.1)

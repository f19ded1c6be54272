"""Wherever a number is taken, every kind of real number is, as the float or the int that it is; all else is refused."""

import inspect
import pkgutil
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from types import GenericAlias
from typing import Unpack, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from conftest import is_quick
from gpytorch.kernels import Kernel
from problems import DOUBLE, data, rbf

import torch_kbandits
from torch_kbandits import Bandit, InputError, checks
from torch_kbandits.bandit.state import describe_kernel
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import RidgeLeverageSampling
from torch_kbandits.errors import KernelBanditError
from torch_kbandits.memory import Quadratic, SlidingWindow
from torch_kbandits.models import OnlineGP

X = data(6, 2)[0]
#: What is given for an argument of this name, whoever takes it. Floats are sums of few powers of two, so that they are
#: the same number in every kind.
NUMBERS = {
    "accuracy": 0.5,
    "action_dim": 2,
    "after": 2.0,
    "augmentation": 0.5,
    "batch_threshold": 2.0,
    "best_mean": 1.0,
    "bound": 2.0,
    "beta": 1.5,
    "block_size": 4,
    "category_distance": 1.0,
    "center": 0.5,
    "column_memory": 128,
    "constant": 2.0,
    "constraint_beta": 1.5,
    "context_dim": 1,
    "count": 2,
    "cutoff": 4.0,
    "dimension": 2,
    "discount": 0.5,
    "discretization_size": 32,
    "expire_after": 2.0,
    "exploration": 0.25,
    "factor": 0.5,
    "failure_probability": 0.25,
    "false_alarm_probability": 0.25,
    "forgetting": 0.25,
    "gain": 8.0,
    "growth": 0.25,
    "high": 2.0,
    "horizon": 40,
    "least_correlation": 0.25,
    "least_weight": 0.25,
    "lengthscale": 0.5,
    "lipschitz": 2.0,
    "low": 0.5,
    "margin": 0.25,
    "max_dictionary": 5,
    "max_questions": 5,
    "mean": 2.0,
    "max_reference": 5,
    "max_size": 5,
    "max_variance": 4.0,
    "n": 3,
    "noise_fraction": 0.25,
    "noise_scale": 0.25,
    "norm": 2.0,
    "norm_bound": 2.0,
    "now": 3.0,
    "nu": 1.5,
    "num_actions": 6,
    "num_arms": 6,
    "num_blocks": 2,
    "num_bounds": 3,
    "num_bumps": 3,
    "num_centres": 4,
    "num_choices": 7,
    "num_initial": 3,
    "num_labels": 3,
    "num_options": 3,
    "num_points": 9,
    "num_starting": 2,
    "num_restarts": 2,
    "num_swaps": 3,
    "offset": 0.5,
    "origin": 0.5,
    "oversampling": 2.0,
    "floor": -2.0,
    "number": 4,
    "order": 3,
    "period": 4,
    "posterior_noise": 0.25,
    "problem_seed": 5,
    "projection": 0.5,
    "questions": 2.0,
    "rate": 0.5,
    "raw_samples": 8,
    "refit_share": 0.5,
    "regularization": 0.5,
    "round": 5,
    "row_memory": 128,
    "rounds": 3,
    "scale": 0.5,
    "score_discount": 0.25,
    "seed": 3,
    "shrinkage": 0.25,
    "side": 2.0,
    "size": 4,
    "step": 1.0,
    "swing": 0.5,
    "switches": 5,
    "threshold": 2.0,
    "time_column": 0,
    "tolerance": 0.5,
    "train_fraction": 0.5,
    "value": 1.5,
    "variation_budget": 0.5,
    "window": 4,
}
#: Whole numbers where the argument is one, whatever others of its name are.
WHOLE = {("SlidingWindow", "size")} | {("Integer", word) for word in ("low", "high", "step")}
#: What else they need, and what is not to be given together.
WITH = {
    "ArmBlocks": {"function": lambda number: X + number},
    "Arms": {"arms": X},
    "AtLeast": {"outcome": "yield"},
    "AtMost": {"outcome": "heat"},
    "Bandit": {"candidates": torch_kbandits.Arms(X), "width": ConstantWidth(1.0)},
    "BanditOverBandit": {"memories": (SlidingWindow(3.0), SlidingWindow(5.0))},
    "BoxFunction": {"function": lambda X: X.sum(-1), "bounds": torch.stack([X.min(0)[0], X.max(0)[0]])},
    "Box": {"bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)},
    "CappedDictionary": {"rule": RidgeLeverageSampling()},
    "Classification": {"contexts": X, "labels": torch.tensor([0, 1, 2, 0, 1, 2])},
    "Configurations": {"space": torch_kbandits.ParameterSpace({"x": torch_kbandits.Float(0.0, 1.0)})},
    "ContextualActions": {"actions": X},
    "TimedActions": {"actions": X},
    "ContextualFunction": {"function": lambda X: X.sum(-1), "actions": X},
    "DiscretizedThompsonSampling": {"discretization": X},
    "DynamicModelSelection": {"memories": (SlidingWindow(3.0), SlidingWindow(5.0))},
    "FiniteArms": {"arms": X, "means": X[:, 0]},
    "GuardedExpert": {"expert": lambda X, time: None},
    "Limit": {"outcome": "heat"},
    "LinearConstraint": {"weights": {"x": 1.0}},
    "Number": {"name": "age"},
    "OnlineGP": {"train_X": X, "train_Y": X[:, :1], "covar_module": rbf()},
    "NystromGP": {"train_X": X, "train_Y": X[:, :1], "covar_module": rbf(), "inducing_points": X[:2]},
    "RateGain": {"kernel": "matern"},
    "ReplayedArms": {"arms": X, "records": X, "simultaneous": True},
    "RootOfGain": {"constants": np.ones(3), "slopes": np.ones(3)},
    "Scalarization": {"objectives": {"reward": "maximize", "cost": "minimize"}},
    "ScaledWidth": {"width": ConstantWidth(1.0)},
    "SensorReplay": {"arms": X, "readings": torch.stack([X[:, 0], X[:, 1]])},
    "SlidingWindow": {"unit": "observations"},
    "SparQGPUCB": {"expert": lambda X, time: None},
    "UncertaintyInjection": {"growth": Quadratic()},
    "UncertaintyInjectionLikelihood": {"growth": Quadratic()},
    "dictionary_quality": {"model": torch_kbandits.NystromGP(X, X[:, :1], covar_module=rbf(), inducing_points=X[:2])},
    "fit_prior": {"X": X, "Y": X[:, 0]},
    "effective_dimension": {"X": X},
    "information_gain": {"X": X},
    "sample_k_dpp": {"points": X, "num_swaps": 0},
    "synthetic_function": {"function": "rosenbrock"},
}
WITHOUT = {
    "BOBGPUCB": {"num_actions"},
    "DMSTVGPUCB": {"forgettings"},
    "LearnedPrior": {"mean"},  # of arrays, too
    "LinUCB": {"kernel"},
    "Prior": {"mean"},
    "RGPUCB": {"variation_budget"},
    "SWGPUCB": {"variation_budget"},
    "SupKernelUCB": {"num_actions"},
    "TimedActions": {"context_dim"},
    "Variant": {"mean"},
}
#: Results that are returned, parts of the inside, and problems that are read from files.
NOT_TAKEN = {
    "Expert",
    "KnownSafe",
    "Trials",
    "AgeingNoise",
    "SeattleWeather",
    "Service",
    "Asked",
    "Category",
    "Choice",
    "DictionaryQuality",
    "Health",
    "Domain",
    "OnlineSample",
    "PlayedPoints",
    "Verdict",
    "at_time",
    "build",
    "fill",
    "digits",
    "fit_prior",
    "hpolib",
    "ozone_grid",
    "given_prior",
    "prior_of",
    "probabilities",
    "refusal",
    "require_open",
    "sensor_replay",
    "sensors",
    "update_with_observation_noise",
}
INSIDE = {"beliefs", "experiments", "integrations", "looking", "numerics", "posteriors", "tables"}


def takers():
    """All that the package shows and that takes numbers, by name."""
    found = {}
    rooms = [each.name for each in pkgutil.iter_modules(torch_kbandits.__path__) if each.ispkg]
    for room in {*rooms, "bandit.adaptation", "priors.families"} - INSIDE:
        here = import_module(f"torch_kbandits.{room}")
        for name in here.__all__:
            taker = getattr(here, name)
            if callable(taker) and not inspect.isabstract(taker) and name not in NOT_TAKEN and numbers_of(taker):
                found[name] = taker
    return found


def annotations_of(taker):
    """The arguments of a taker with their kinds; those that share one name for all, one by one."""
    for name, parameter in inspect.signature(taker).parameters.items():
        if get_origin(parameter.annotation) is Unpack:
            (known,) = get_args(parameter.annotation)
            yield from get_type_hints(known).items()
        else:
            yield name, parameter.annotation


@cache
def numbers_of(taker):
    """The arguments that are numbers, and whether each is a whole one."""
    kinds = {}
    for name, annotation in annotations_of(taker):
        parts = {annotation, *getattr(annotation, "__args__", ())}
        if {int, float} & parts and not isinstance(annotation, GenericAlias):
            kinds[name] = float not in parts
    return kinds


TAKERS = takers()


def words_for(name):
    """Valid arguments of a taker."""
    taker, parameters = TAKERS[name], inspect.signature(TAKERS[name]).parameters
    left_out = WITHOUT.get(name, set())
    words = {key: NUMBERS[key] for key in numbers_of(taker) if key in NUMBERS and key not in left_out}
    for key in words:
        if (name, key) in WHOLE:
            words[key] = int(words[key])
    if name == "RateGain" or "kernel" not in parameters or "kernel" in left_out:
        pass
    elif isinstance(parameters["kernel"].default, str):
        words["kernel"] = "rbf"
    else:
        words["kernel"] = rbf()
    if "candidates" in parameters and name != "Bandit":
        words["candidates"] = X
    if "model" in parameters:
        words["model"] = OnlineGP(X, X[:, :1], covar_module=rbf(), regularization=0.5)
    for key in ("context_dim", "action_dim"):
        if "candidates" in parameters:
            words.pop(key, None)
    if name in ("BKB", "BBKB", "CBKB", "CBBKB", "EKUCB", "GPTS"):
        words["beta"] = 8.0
    return words | WITH.get(name, {})


def facts(value, seen=()):
    """All that an object holds, its numbers with their types."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.tolist())
    if isinstance(value, Kernel):
        return describe_kernel(value)
    if isinstance(value, Bandit):
        return facts([value._config(), value.seed, value.regularization, vars(value._pieces)], (*seen, id(value)))
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


def no_numbers(value, whole):
    """What is no number, though much of it would convert to one."""
    yield from (str(value), str(value).encode(), True, np.bool_(True), complex(value), torch.tensor(complex(value)))
    yield from (torch.tensor(value, device="meta"), torch.tensor(True), object(), float("nan"), Decimal("sNaN"))
    yield from (torch.tensor([value] * 5), np.array([value] * 5), {}, value + 0.5 if whole else 10**5000)


def is_whole(name, argument):
    return numbers_of(TAKERS[name])[argument] or (name, argument) in WHOLE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(TAKERS))
def test_every_kind_of_number_is_the_number(name, request):
    """In the quick suite each argument is given as three of the kinds, as others than its neighbours."""
    taker, words = TAKERS[name], words_for(name)
    numbers = {key: value for key, value in words.items() if type(value) in (int, float)}
    expected = facts(taker(**words))
    kinds, first = list(KINDS), sorted(TAKERS).index(name)
    for turn in range(first, first + (3 if is_quick(request.config) else len(kinds))):
        chosen = {key: kinds[(turn + place) % len(kinds)] for place, key in enumerate(numbers)}
        given = {key: KINDS[kind][is_whole(name, key)](numbers[key]) for key, kind in chosen.items()}
        assert facts(taker(**words | given)) == expected, chosen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(TAKERS))
def test_what_is_no_number_is_refused(name, request):
    """In the quick suite each argument is given a third of it, and its neighbours the rest."""
    taker, words = TAKERS[name], words_for(name)
    numbers = [(key, value) for key, value in words.items() if type(value) in (int, float)]
    for place, (argument, value) in enumerate(numbers, sorted(TAKERS).index(name)):
        some = slice(place % 3, None, 3) if is_quick(request.config) else slice(None)
        for wrong in list(no_numbers(value, is_whole(name, argument)))[some]:
            with pytest.raises(KernelBanditError) as caught:
                taker(**words | {argument: wrong})
            assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("wrong", [np.array([0.5, 0.5]), torch.tensor([0.5, 0.5]), "0.5", "automatic"], ids=repr)
def test_what_is_neither_a_number_nor_the_word_that_may_stand_for_one_is_refused(wrong):
    with pytest.raises(InputError, match="least_correlation"):
        torch_kbandits.algorithms.DMSTVGPUCB(**words_for("DMSTVGPUCB") | {"least_correlation": wrong})


def test_no_argument_that_is_a_number_is_left_out():
    missing = {
        f"{name}({argument})"
        for name, taker in TAKERS.items()
        for argument in numbers_of(taker)
        if argument not in words_for(name) and argument not in WITHOUT.get(name, set()) | {"action_dim", "context_dim"}
    }
    assert missing == set()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (300, 3)])
@pytest.mark.parametrize("bad", [[], [torch.nan], [torch.inf], [-torch.inf], [torch.inf, -torch.inf]])
def test_numbers_are_finite_if_each_is_whatever_their_sum(dtype, shape, bad):
    largest = torch.full(shape, torch.finfo(dtype).max, dtype=dtype)  # several of them sum to infinity
    largest.view(-1)[: len(bad)] = torch.tensor(bad[: largest.numel()], dtype=dtype)
    assert checks.all_finite(largest) == np.isfinite(largest.numpy()).all()

"""Every kind of real number is taken as what it is, and what is no number, tensor or kernel is refused."""

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
from gpytorch.kernels import Kernel, RBFKernel
from kinds import NAMES, make, same
from problems import DOUBLE, data, on_a_cube, play, rbf

import torch_kbandits
from torch_kbandits import (
    Arms,
    Bandit,
    Box,
    ContextualActions,
    FixedDictionary,
    InputError,
    NystromGP,
    algorithms,
    fit_prior,
)
from torch_kbandits.acquisition import DiscretizedThompsonSampling
from torch_kbandits.candidates import TimedActions
from torch_kbandits.confidence import (
    ConstantWidth,
    GreedyGain,
    effective_dimension,
    greedy_information_gain,
    information_gain,
)
from torch_kbandits.dictionaries import RidgeLeverageSampling, sample_k_dpp
from torch_kbandits.errors import KernelBanditError
from torch_kbandits.memory import Quadratic, SlidingWindow
from torch_kbandits.models import OnlineGP

X = data(6, 2)[0]
#: What is given for an argument of this name, whoever takes it. Floats are sums of few powers of two, so that they are
#: the same number in every kind.
NUMBERS = {
    "accuracy": 0.5, "action_dim": 2, "after": 2.0, "augmentation": 0.5, "batch_threshold": 2.0, "best_mean": 1.0,
    "bound": 2.0, "beta": 1.5, "block_size": 4, "category_distance": 1.0, "center": 0.5, "column_memory": 128,
    "constant": 2.0, "constraint_beta": 1.5, "context_dim": 1, "count": 2, "cutoff": 4.0, "dimension": 2,
    "discount": 0.5, "discretization_size": 32, "expire_after": 2.0, "exploration": 0.25, "factor": 0.5,
    "failure_probability": 0.25, "false_alarm_probability": 0.25, "forgetting": 0.25, "gain": 8.0, "growth": 0.25,
    "high": 2.0, "horizon": 40, "least_correlation": 0.25, "least_weight": 0.25, "lengthscale": 0.5, "lipschitz": 2.0,
    "low": 0.5, "margin": 0.25, "max_dictionary": 5, "max_questions": 5, "mean": 2.0, "max_reference": 5,
    "max_size": 5, "max_variance": 4.0, "n": 3, "noise_fraction": 0.25, "noise_scale": 0.25, "norm": 2.0,
    "norm_bound": 2.0, "now": 3.0, "nu": 1.5, "num_actions": 6, "num_arms": 6, "num_blocks": 2, "num_bounds": 3,
    "num_bumps": 3, "num_centres": 4, "num_choices": 7, "num_initial": 3, "num_labels": 3, "num_options": 3,
    "num_points": 9, "num_starting": 2, "num_restarts": 2, "num_swaps": 3, "offset": 0.5, "origin": 0.5,
    "oversampling": 2.0, "floor": -2.0, "number": 4, "order": 3, "period": 4, "posterior_noise": 0.25,
    "problem_seed": 5, "projection": 0.5, "questions": 2.0, "rate": 0.5, "raw_samples": 8, "refit_share": 0.5,
    "regularization": 0.5, "round": 5, "row_memory": 128, "rounds": 3, "scale": 0.5, "score_discount": 0.25,
    "seed": 3, "shrinkage": 0.25, "side": 2.0, "size": 4, "step": 1.0, "swing": 0.5, "switches": 5, "threshold": 2.0,
    "time_column": 0, "tolerance": 0.5, "train_fraction": 0.5, "value": 1.5, "variation_budget": 0.5, "window": 4,
}  # fmt: skip
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
    "Expert", "KnownSafe", "Trials", "AgeingNoise", "SeattleWeather", "Service", "Asked", "Category", "Choice",
    "DictionaryQuality", "Health", "Domain", "OnlineSample", "PlayedPoints", "Verdict", "at_time", "build", "fill",
    "digits", "fit_prior", "hpolib", "ozone_grid", "given_prior", "prior_of", "probabilities", "refusal",
    "require_open", "sensor_replay", "sensors", "update_with_observation_noise",
}  # fmt: skip
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


NUMBER_TAKERS = takers()


def words_for(name):
    """Valid arguments of a taker."""
    taker, parameters = NUMBER_TAKERS[name], inspect.signature(NUMBER_TAKERS[name]).parameters
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
        return facts([type(value).__name__, value.state_dict()], seen)
    if isinstance(value, Bandit):
        return facts([value.state_dict()["config"], value.seed, value.regularization], seen)
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
    return numbers_of(NUMBER_TAKERS[name])[argument] or (name, argument) in WHOLE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(NUMBER_TAKERS))
def test_every_kind_of_number_is_the_number(name, request):
    """In the quick suite each argument is given as three of the kinds, as others than its neighbours."""
    taker, words = NUMBER_TAKERS[name], words_for(name)
    numbers = {key: value for key, value in words.items() if type(value) in (int, float)}
    expected = facts(taker(**words))
    kinds, first = list(KINDS), sorted(NUMBER_TAKERS).index(name)
    for turn in range(first, first + (3 if is_quick(request.config) else len(kinds))):
        chosen = {key: kinds[(turn + place) % len(kinds)] for place, key in enumerate(numbers)}
        given = {key: KINDS[kind][is_whole(name, key)](numbers[key]) for key, kind in chosen.items()}
        assert facts(taker(**words | given)) == expected, chosen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(NUMBER_TAKERS))
def test_what_is_no_number_is_refused(name, request):
    """In the quick suite each argument is given a third of it, and its neighbours the rest."""
    taker, words = NUMBER_TAKERS[name], words_for(name)
    numbers = [(key, value) for key, value in words.items() if type(value) in (int, float)]
    for place, (argument, value) in enumerate(numbers, sorted(NUMBER_TAKERS).index(name)):
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
        for name, taker in NUMBER_TAKERS.items()
        for argument in numbers_of(taker)
        if argument not in words_for(name) and argument not in WITHOUT.get(name, set()) | {"action_dim", "context_dim"}
    }
    assert missing == set()


# ---------------------------------------------------------------- rewards

ARMS = data(20, 2)[0]
#: Each makes a reward of a multiple of 1/4, which all of them hold; whole numbers are rounded.
ONE = {
    "float": float,
    "int": round,
    "Fraction": Fraction,
    "Decimal": Decimal,
    **{f"np.{kind.__name__}": kind for kind in (np.float16, np.float32, np.float64, np.longdouble)},
    **{f"np.{kind.__name__}": lambda v, kind=kind: kind(round(v)) for kind in (np.int8, np.int64)},
    "0-dim array": np.array,
    "0-dim tensor": torch.tensor,
    "0-dim tensor with gradients": lambda v: torch.tensor(v, requires_grad=True),
}
SEVERAL = {
    "list": list,
    "tuple": tuple,
    "rows": lambda v: [[each] for each in v],
    "fractions": lambda v: [Fraction(each) for each in v],
    "tensors": lambda v: [torch.tensor(each, requires_grad=True) for each in v],
    "one of each": lambda v: [
        each(number) for each, number in zip((Decimal, np.float32, torch.tensor), v, strict=True)
    ],
    "array": np.array,
    "column": lambda v: np.array(v)[:, None],
    "array from the other end": lambda v: np.array(v[::-1])[::-1],
    "array of the other byte order": lambda v: np.array(v, dtype=">f4"),
    "array of objects": lambda v: np.array([Fraction(each) for each in v]),
    **{
        str(kind): lambda v, kind=kind: torch.tensor(v).to(kind)
        for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8)
    },
    "tensor (q, 1)": lambda v: torch.tensor(v).unsqueeze(-1),
}
NONE = {
    "complex": 1j,
    "complex array": np.array([1j]),
    "complex tensor": torch.tensor([1j]),
    "text": "0.5",
    "list of texts": ["0.5"],
    "array of texts": np.array(["0.5"]),
    "date": np.datetime64("2020-01-01"),
    "nothing": [None],
    "dict": {0: 0.5},
    "object": object(),
    "ragged": [[0.5], [0.5, 1.0]],
    "masked": np.ma.masked_array([0.5], [True]),
    "NaN": float("nan"),
    "infinite": -np.inf,
    "NaN in a list": [float("nan")],
    "NaN in an array": np.array([np.nan]),
    "infinite tensor": torch.tensor([torch.inf]),
    "NaN of decimals": Decimal("NaN"),
    "signalling NaN": Decimal("sNaN"),
    "int beyond floats": 10**400,
    "fraction beyond floats": Fraction(10**400),
    "long double beyond floats": np.array([np.finfo(np.longdouble).max]),
    "sparse": torch.tensor([0.5]).to_sparse(),
    "nested": torch.nested.nested_tensor([torch.tensor([0.5])], layout=torch.jagged),
    "meta": torch.zeros(1, device="meta"),
    "too many": [0.5, 0.5],
    "too deep": [[[0.5]]],
    "none at all": [],
}
if np.finfo(np.longdouble).max == np.finfo(np.float64).max:  # as on some processors
    del NONE["long double beyond floats"]

VALUES = [0.25, -1.5, 3.0]


WORDS = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.0, "seed": 3}


def fitted():
    """A bandit that has fitted its prior, to rewards far from mean 0 and variance 1."""
    bandit = on_a_cube(1, num_initial=3, clip=False)
    bandit.tell(torch.tensor([[0.1], [0.5], [0.9]], dtype=DOUBLE), 100.0 + 7.0 * torch.arange(3))
    bandit.recommend()
    assert bandit.prior.mean == pytest.approx(107.0)
    return bandit


TOLD = {
    "arms in single precision": (lambda: algorithms.BKB(candidates=ARMS.float(), **WORDS), ARMS[:3].float()),
    "actions": (lambda: algorithms.EKUCB(candidates=ContextualActions(ARMS, context_dim=0), **WORDS), ARMS[:3]),
    "fitted": (fitted, torch.tensor([[0.2], [0.4], [0.7]], dtype=DOUBLE)),
}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::torch_kbandits.KernelBanditWarning")
@pytest.mark.parametrize("name", TOLD)
def test_rewards_may_be_any_real_numbers_and_all_else_changes_nothing(name):
    make, X = TOLD[name]
    bandit = make()
    for kind, given in ONE.items():
        bandit.tell(X[:1], given(VALUES[1]))
        assert float(bandit.history.Y[-1]) == (round(VALUES[1]) if "int" in kind else VALUES[1]), kind
    for kind, given in [*SEVERAL.items()][:: 4 if name == "fitted" else 1]:
        bandit.tell(X, given(VALUES))
        expected = [float(int(value)) for value in VALUES] if "int" in kind else VALUES
        assert bandit.history.Y[-3:].tolist() == expected, kind
    assert bandit.history.Y.dtype == bandit.history.X.dtype
    before = bandit.state_dict()
    for kind, bad in NONE.items():
        with pytest.raises(InputError, match="y must"):
            bandit.tell(X[:1], bad)
        assert same(bandit.state_dict(), before), kind
    if name.startswith("arms"):
        for bad in (1e300, [-1e39], torch.tensor([1e300], dtype=DOUBLE)):
            with pytest.raises(InputError, match=r"within ±3.4e\+38, the range of the points' torch.float32"):
                bandit.tell(X[:1], bad)
    elif name == "fitted":
        with pytest.raises(InputError, match="whose square no double holds: multiply it by a number"):
            fitted().tell(X[:1], -1.7e308)


# ---------------------------------------------------------------- kernels and tensors

NO_KERNELS = {
    "text": "rbf",
    "class": RBFKernel,
    "module": torch.nn.Linear(2, 1),
    "function": lambda x, y: x @ y.mT,
    "tensor": torch.eye(3),
    "number": 1.0,
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_kernel_is_refused(name):
    for wrong in NO_KERNELS.values():
        with pytest.raises(InputError, match="kernel"):
            make(name, kernel=wrong)
        if name in ("r-gp-ucb", "sw-gp-ucb"):  # whose window is computed from it
            with pytest.raises(InputError, match="kernel"):
                make(name, kernel=wrong, horizon=50, **{"period" if name == "r-gp-ucb" else "window": None})


#: What is no dense tensor of real numbers in double or single precision.
NO_TENSORS = {
    "sparse": lambda X: X.to_sparse(),
    "sparse rows": lambda X: X.to_sparse_csr() if X.dim() == 2 else X.to_sparse(),
    "nested": lambda X: torch.nested.nested_tensor([X.reshape(-1), X.reshape(-1)[:1]]),
    "meta": lambda X: X.to("meta"),
    "complex": lambda X: X.to(torch.complex128),
    "text": lambda X: "X",
    "quantized": lambda X: torch.quantize_per_tensor(X.float(), 0.1, 0, torch.qint8),
}
POINTS, REWARDS = data(6, 2)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXT = torch.tensor([0.5], dtype=DOUBLE)


def bandit():
    return algorithms.EKUCB(candidates=ARMS, **WORDS)


def contextual():
    return algorithms.EKUCB(action_dim=2, context_dim=1, **WORDS)


def model():
    return OnlineGP(POINTS, REWARDS, covar_module=rbf(0.3), regularization=0.05)


#: Who takes a tensor, with a valid one.
TAKERS = {
    "arms": (lambda X: Arms(X), POINTS),
    "candidates": (lambda X: algorithms.BKB(candidates=X, **WORDS), POINTS),
    "timed": (lambda X: algorithms.TVGPUCB(candidates=X, **WORDS), POINTS),
    "bounds": (lambda X: algorithms.BKB(bounds=X, **WORDS), BOUNDS),
    "box": (lambda X: Box(X), BOUNDS),
    "actions": (lambda X: ContextualActions(X, context_dim=1), POINTS),
    "timed actions": (lambda X: TimedActions(X), POINTS),
    "tell": (lambda X: bandit().tell(X, torch.zeros(6, dtype=DOUBLE)), POINTS),
    "mark pending": (lambda X: bandit().mark_pending(X), POINTS),
    "forget": (lambda X: bandit().forget(X), POINTS),
    "context": (lambda X: contextual().ask(context=X, candidates=POINTS), CONTEXT),
    "offered": (lambda X: contextual().ask(context=CONTEXT, candidates=X), POINTS),
    "told context": (lambda X: contextual().tell(POINTS[:1], 1.0, context=X), CONTEXT),
    "fixed": (lambda X: FixedDictionary(X), POINTS),
    "greedy gain": (lambda X: GreedyGain(rbf(), X, 5, 0.1), POINTS),
    "gain of plays": (lambda X: greedy_information_gain(rbf(), X, 5, 0.1), POINTS),
    "gain": (lambda X: information_gain(rbf(), X, 0.1), POINTS),
    "dimension": (lambda X: effective_dimension(rbf(), X, 0.1), POINTS),
    "k-dpp": (lambda X: sample_k_dpp(X, rbf(), 3), POINTS),
    "online model": (lambda X: OnlineGP(X, REWARDS, covar_module=rbf(), regularization=0.1), POINTS),
    "online rewards": (lambda Y: OnlineGP(POINTS, Y, covar_module=rbf(), regularization=0.1), REWARDS),
    "inducing": (
        lambda X: NystromGP(POINTS, REWARDS, inducing_points=X, covar_module=rbf(), regularization=0.1),
        POINTS,
    ),
    "model told": (lambda X: model().tell(X, torch.zeros(6, 1, dtype=DOUBLE)), POINTS),
    "discretization": (lambda X: DiscretizedThompsonSampling(model(), X, seed=0), POINTS),
    "fitted": (lambda X: on_a_cube().tell(X, torch.zeros(6, dtype=DOUBLE)), POINTS),
    "prior": (lambda X: fit_prior(X, REWARDS.squeeze(-1)), POINTS),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", TAKERS)
def test_what_is_no_plain_tensor_is_refused(who):
    take, valid = TAKERS[who]
    for what, spoil in NO_TENSORS.items():
        with pytest.raises(KernelBanditError) as caught:
            take(spoil(valid))
        assert len(str(caught.value)) < 1000, what


def test_gradients_of_what_is_given_are_not_kept():
    """Arms, bounds and points that require a gradient are taken as numbers, and play as those without."""
    plain, free = (algorithms.EKUCB(candidates=ARMS.clone().requires_grad_(needs), **WORDS) for needs in (False, True))
    assert torch.equal(play(free, 3), play(plain, 3))
    x = ARMS[:2].clone().requires_grad_()
    free.tell(x, x.sum(-1))
    assert not free.history.X.requires_grad
    assert not free.history.Y.requires_grad
    assert not free.ask().requires_grad
    free.state_dict()
    assert not Box(BOUNDS.clone().requires_grad_()).bounds.requires_grad
    actions = contextual()
    asked = actions.ask(context=CONTEXT.clone().requires_grad_(), candidates=POINTS.clone().requires_grad_())
    assert not asked.requires_grad

"""Points of a batch spread out: what is pending counts as observed at its mean, however one is told of it."""

import pickle
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import oracles
import pytest
import torch
from botorch.acquisition.objective import ExpectationPosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import InputPerturbation
from botorch.optim import optimize_acqf
from problems import DOUBLE, data, dense, difference, exactly, in_a_file, matern
from scipy.stats import norm

import torch_kbandits as kb
from torch_kbandits.memory import SlidingWindow

LAMBDA, MARGIN, BETA, ELL = 1e-4, 0.01, 2.0, 0.2
LINE = torch.linspace(0.0, 1.0, 61, dtype=DOUBLE).unsqueeze(-1)
BOX = exactly([[0.0], [1.0]])
CONTEXT = exactly([0.4])
RULES = {"gp-ei": {}, "gp-pi": {"margin": MARGIN}, "gp-ucb": {"beta": BETA}}


def reward(X):
    return torch.sin(9.0 * X.sum(-1)) + X[..., 0]


# ---------------------------------------------------------------- improvement over what is pending


class Kind(NamedTuple):
    """Candidates, and of which means the best is to be improved on: played, offered, or moved to the context."""

    words: dict[str, Any]
    known: str = "played"
    is_searched: bool = False

    @property
    def in_contexts(self):
        return self.known != "played"


KINDS = {
    "arms": Kind({"candidates": LINE}),
    "arms, dictionary": Kind({"candidates": LINE, "oversampling": 2.0}),
    "arms, file": Kind({"candidates": in_a_file(LINE)}),
    "arms, window": Kind({"candidates": LINE, "memory": SlidingWindow(4)}),
    "arms, mean": Kind({"candidates": LINE, "mean": -3.0}),
    "box": Kind({"bounds": BOX}, is_searched=True),
    "cube": Kind({"candidates": kb.UnitCube(1)}, is_searched=True),
    "contexts": Kind({"candidates": kb.ContextualActions(LINE, context_dim=1)}, "offered"),
    "contexts, dictionary": Kind(
        {"candidates": kb.ContextualActions(LINE, context_dim=1), "oversampling": 2.0}, "offered"
    ),
    "contexts, box": Kind(
        {"candidates": kb.ContextualActions(bounds=BOX, context_dim=1, num_restarts=2, raw_samples=64)},
        "offered moved",
        True,
    ),
    "contexts, cube": Kind(
        {"candidates": kb.Configurations(kb.ParameterSpace({"x": kb.Float(0.0, 1.0)}), context_dim=1)}, "moved", True
    ),
}


def make(name, kind, **others):
    words = {key: value for key, value in kind.words.items() if name == "gp-ei" or key != "oversampling"}
    prior = {"kernel": matern(ELL, 1.0), "regularization": LAMBDA, "seed": 0}
    return kb.algorithms.build(name, **prior, **RULES[name], **words, **others)


def told(bandit, kind, number=6, **outcomes):
    """Tell rewards, in contexts near one, and return with what the bandit is asked."""
    X = data(number, 2 if kind.in_contexts else 1, seed=4)[0]
    words = {"context": 0.3 + 0.2 * X[:, :1]} if kind.in_contexts else {}
    joint = torch.cat([*words.values(), X[:, -1:]], -1)
    actions = [{"x": x} for x in X[:, -1].tolist()] if isinstance(bandit.candidates, kb.Configurations) else X[:, -1:]
    if outcomes:
        words["outcomes"] = {name: f(joint) for name, f in outcomes.items()}
    bandit.tell(actions, reward(joint), **words)
    return {"context": CONTEXT} if kind.in_contexts else {}


def marginals(bandit, kind, points):
    """Dense means at points, and variances once what is pending is observed at its means."""
    counts, shift = bandit.weights > 0.0, kind.words.get("mean", 0.0)
    X, y, T, P = dense(bandit.history.X[counts], bandit.history.Y[counts], points, bandit.pending)
    kernel, noise = oracles.matern52(ELL, 1.0), np.full(len(X), LAMBDA)

    def without(T):
        if bandit.dictionary is None:
            return oracles.exact(kernel, X, y - shift, noise, T)
        return oracles.dtc(kernel, X, y - shift, noise, *dense(bandit.inducing_points), T)

    found = oracles.with_pending(without, T, P, LAMBDA)
    return found.mean + shift, found.variance


def improvement(bandit, kind, points, allows=None):
    """Dense logarithms of the improvement at joint points, or upper bounds."""
    known = torch.cat([bandit.history.X[bandit.weights > 0.0], bandit.pending])
    if allows is not None:
        known = known[allows(known)]
    if "moved" in kind.known:
        known = torch.cat([CONTEXT.expand(len(known), 1), known[:, 1:]], -1)
    if "offered" in kind.known:
        fine = torch.linspace(0.0, 1.0, 1201, dtype=DOUBLE).unsqueeze(-1) if kind.is_searched else LINE
        fine = torch.cat([CONTEXT.expand(len(fine), 1), fine], -1)
        known = torch.cat([known, fine]) if kind.is_searched else fine
    best = marginals(bandit, kind, known)[0].max()
    mean, variance = marginals(bandit, kind, points)
    deviation, margin = np.sqrt(np.maximum(variance, 1e-30)), getattr(bandit.rule, "margin", 0.0)
    if isinstance(bandit, kb.algorithms.GPUCB):
        return mean + BETA * deviation
    ratio = (mean - best - margin) / deviation
    if margin:
        return norm.logcdf(ratio)
    gain = norm.pdf(ratio) + ratio * norm.cdf(ratio)
    return np.log(deviation) + np.log(np.maximum(gain, 1e-300))


def joint_points(kind, actions):
    return torch.cat([CONTEXT.expand(len(actions), 1), actions], -1) if kind.in_contexts else actions


def action_of(bandit, asked):
    return exactly([[each["x"]] for each in asked]) if isinstance(bandit.candidates, kb.Configurations) else asked


@pytest.mark.one_in(16)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
def test_what_is_asked_for_and_to_be_improved_on_takes_in_what_is_pending(name, kind):
    kind = KINDS[kind]
    bandit = make(name, kind)
    words, last = told(bandit, kind), None
    for number in range(4):
        values = improvement(bandit, kind, joint_points(kind, LINE))
        with torch.no_grad():
            shown = bandit.acquisition(**words)(LINE.unsqueeze(-2)).numpy()
        likely = values > -12.0  # below that the formula of EI cancels
        assert likely.sum() >= 4
        np.testing.assert_allclose(shown[likely], values[likely], rtol=1e-4, atol=1e-4)
        before = deepcopy(bandit)
        if kind.known.startswith("offered"):  # what is recommended is the best of these
            means = marginals(bandit, kind, joint_points(kind, torch.cat([bandit.recommend(**words), LINE])))[0]
            assert means[0] >= means.max() - 1e-6
        x = action_of(bandit, bandit.ask(2 if number == 3 else 1, **words))
        assert improvement(before, kind, joint_points(kind, x[:1])) >= values.max() - 1e-4 * (1.0 + abs(values.max()))
        last = x if last is None else torch.cat([last, x])
    again = make(name, kind)
    told(again, kind)
    together = action_of(again, again.ask(5, **words))
    assert difference(together, last) < (0.02 if kind.is_searched else 1e-12)


@pytest.mark.parametrize("name", ["arms", "arms, file", "arms, mean", "arms, window", "box", "contexts, box"])
def test_before_any_reward_and_when_all_is_forgotten_what_is_pending_is_to_be_improved_on(name):
    """Without a reward a prior mean of the points pending is all there is; nothing at all counts as 0."""
    kind = KINDS[name]
    bandit, words = make("gp-ei", kind), {"context": CONTEXT} if kind.in_contexts else {}
    if name == "arms, window":
        bandit.tell(LINE[:1], 3.0, time=0.0)
        words = {"time": 50.0}
    bandit.mark_pending(LINE[[10, 50]], **words)
    with torch.no_grad():
        shown = bandit.acquisition(**words)(LINE.unsqueeze(-2))
    assert difference(shown, torch.from_numpy(improvement(bandit, kind, joint_points(kind, LINE)))) < 1e-6
    if not kind.is_searched:
        assert improvement(deepcopy(bandit), kind, bandit.ask(**words)) >= shown.max().item() - 1e-6


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["gp-ei", "gp-pi"])
@pytest.mark.parametrize("kind", ["arms", "arms, file", "box", "cube"])
def test_points_that_limits_no_longer_allow_are_not_to_be_improved_on(name, kind):
    kind = KINDS[kind]
    heat = kb.Outcome("heat", kb.Prior(matern(ELL, 1.0), LAMBDA))
    bandit = make(name, kind, outcomes=[heat], constraints=[kb.AtMost("heat", 0.0, mode="optimistic", beta=0.0)])
    told(bandit, kind, number=8, heat=lambda X: (X[:, 0] - 0.5) * 4.0)
    bandit.mark_pending(exactly([[0.93], [0.31]]) if kind.is_searched else LINE[[55, 18]])
    model = bandit.outcome_model("heat")

    def allows(X):
        with torch.no_grad():
            return model.posterior(X.unsqueeze(-2)).mean.flatten() <= 0.0

    values, allowed = improvement(bandit, kind, LINE, allows), allows(LINE).numpy()
    assert marginals(bandit, kind, bandit.pending)[0].argmax() == 0
    with torch.no_grad():
        shown = bandit.acquisition()(LINE.unsqueeze(-2)).numpy()
    likely = allowed & (values > -12.0)
    assert likely.sum() >= 4
    np.testing.assert_allclose(shown[likely], values[likely], rtol=1e-4, atol=1e-4)
    assert improvement(deepcopy(bandit), kind, bandit.ask(), allows) >= values[allowed].max() - 1e-3


# ---------------------------------------------------------------- how an acquisition is told of what is pending


PLANE, T = data(14, 2, seed=1)
T = (T - T.mean()) / T.std()
GRID = data(9, 2, seed=2)[0].unsqueeze(-2)
P = exactly([[0.3, 0.5], [0.8, 0.1]])


def online(**words):
    return kb.OnlineGP(PLANE, T, covar_module=matern(0.3, 1.0), **{"regularization": 0.01, **words})


def nystrom(**words):
    words = {"regularization": 0.01, **words}
    return kb.NystromGP(PLANE, T, covar_module=matern(0.3, 1.0), inducing_points=PLANE[:6], **words)


def of_bandit(name, **words):
    def made():
        prior = {} if "prior" in words else {"kernel": matern(0.3, 1.0), "regularization": 0.01}
        bandit = kb.algorithms.build(name, candidates=PLANE, seed=0, **prior, **words)
        outcomes = {"outcomes": {"heat": PLANE[:6, 0]}} if "outcomes" in words else {}
        bandit.tell(PLANE[:6], T[:6, 0], **outcomes)
        return bandit.acquisition()

    return made


def of_contexts(name, **words):
    def made():
        candidates = kb.ContextualActions(bounds=BOX, context_dim=1)
        prior = {"kernel": matern(0.3, 1.0), "regularization": 0.01, "seed": 0}
        bandit = kb.algorithms.build(name, candidates=candidates, **prior, **words)
        bandit.tell(PLANE[:, 1:], T[:, 0], context=PLANE[:, :1])
        return bandit.acquisition(context=CONTEXT)

    return made


HEAT = [kb.Outcome("heat", kb.Prior(matern(0.3, 1.0), 0.01))]
BOTH = {"reward": "maximize", "heat": "minimize"}
FUNCTIONS = {
    "KernelUCB, exact": lambda: kb.KernelUCB(online(), 2.0),
    "KernelUCB, Nyström": lambda: kb.KernelUCB(nystrom(), 2.0),
    "KernelUCB, SingleTaskGP": lambda: kb.KernelUCB(SingleTaskGP(PLANE, T), 2.0),
    "Thompson": lambda: kb.DiscretizedThompsonSampling(online(), GRID.squeeze(-2), seed=0),
    "improvement": of_bandit("gp-ei"),
    "probability": of_bandit("gp-pi"),
    "family": of_bandit("pe-gp-ucb", beta=2.0, scales=[1.0, 0.5]),
    "limits": of_bandit("gp-ucb", beta=2.0, outcomes=HEAT, constraints=[kb.AtMost("heat", 0.7, mode="optimistic")]),
    "objectives": of_bandit("gp-ucb", beta=2.0, outcomes=HEAT, objective=kb.Scalarization(BOTH)),
    "contexts, improvement": of_contexts("gp-ei"),
    "contexts, bound": of_contexts("gp-ucb", beta=2.0),
}


def tried(name, function):
    return (GRID[..., 1:], P[:, 1:]) if "contexts" in name else (GRID, P)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_points_that_are_assigned_count_like_those_that_are_set_and_copies_go_their_own_way(name):
    one, other = FUNCTIONS[name](), FUNCTIONS[name]()
    points, pending = tried(name, one)
    with torch.no_grad():
        plain = one(points)
        one.set_X_pending(pending)
        values = one(points)
        finite = values.isfinite()
        assert difference(values[finite], plain[finite]) > 1e-3
        other.X_pending = pending
        assert torch.equal(other(points), values)
        for nothing in (None, pending[:0]):
            other.X_pending = nothing
            assert torch.equal(other(points), plain)
            assert other.X_pending is None
            other.X_pending = pending
        for copy in (deepcopy(other), pickle.loads(pickle.dumps(other))):
            assert difference(copy(points)[finite], values[finite]) < 1e-12
            copy.X_pending = None
            assert difference(copy(points)[finite], plain[finite]) < 1e-12
            assert torch.equal(other(points), values)


MISFITS = {
    "texts": [["a", "b"]],
    "three columns": torch.ones(4, 3, dtype=DOUBLE),
    "batches": torch.ones(3, 4, 2, dtype=DOUBLE),
    "single precision": torch.ones(4, 2),
    "not a number": torch.full((1, 2), torch.nan, dtype=DOUBLE),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "contexts" not in name])
def test_points_that_do_not_fit_are_refused_and_change_nothing(name):
    function = FUNCTIONS[name]()
    function.X_pending = P
    with torch.no_grad():
        before = function(GRID)
        for misfit in MISFITS.values():
            with pytest.raises(kb.InputError, match="X_pending must"):
                function.set_X_pending(misfit)
            with pytest.raises(kb.InputError, match="X_pending must"):
                function.X_pending = misfit
        assert torch.equal(function(GRID), before)


@pytest.mark.parametrize("make", [online, nystrom])
def test_points_that_do_not_fit_are_told_by_what_was_given_to_a_model(make):
    """The columns that count are those before a transform, whether it was applied already or not."""
    model = make(input_transform=Normalize(2, bounds=exactly([[0.0, 0.0], [2.0, 2.0]])))
    for _ in range(2):
        assert kb.KernelUCB(model, 2.0, X_pending=P)(P.unsqueeze(-2)).isfinite().all()
        with pytest.raises(kb.InputError, match="d = 2 columns"):
            kb.KernelUCB(model, 2.0, X_pending=torch.rand(2, 3, dtype=DOUBLE))
    for misfit in (name for name in MISFITS if name != "batches"):
        with pytest.raises(kb.InputError, match="X must"):
            nystrom().with_pending(MISFITS[misfit])


two = torch.cat([T, T.cos()], -1)
two = (two - two.mean(0)) / two.std(0)
noise = 0.01 + 0.1 * torch.rand(14, 1, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
JOINT = {
    "exact": online,
    "exact, standardized": lambda: online(outcome_transform=Standardize(1), input_transform=Normalize(2)),
    "exact, noise of their own": lambda: online(train_Yvar=noise, regularization=0.5),
    "Nyström": nystrom,
    "Nyström, residual": lambda: nystrom(learns_residual=True),
    "Nyström, noise of their own": lambda: nystrom(train_Yvar=noise, regularization=0.5),
    "exact, two outputs": lambda: kb.OnlineGP(PLANE, two, noise.expand(14, 2), regularization=0.5),
    "SingleTaskGP": lambda: SingleTaskGP(PLANE, T),
    "two outputs": lambda: SingleTaskGP(PLANE, two),
    "list": lambda: ModelListGP(online(train_Yvar=noise, regularization=0.5), SingleTaskGP(PLANE, two[:, 1:])),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("pending", [None, P])
@pytest.mark.parametrize("kind", JOINT)
def test_a_batch_is_worth_its_points_one_after_another(kind, pending):
    """Each is scored with those before it pending: so a joint search has no use for the same point twice."""
    model, X = JOINT[kind](), data(12, 2, seed=3)[0].reshape(4, 3, 2)
    weights = None if model.num_outputs == 1 else ScalarizedPosteriorTransform(exactly([1.0, -0.5]))
    function = kb.KernelUCB(model, 2.0, weights, X_pending=pending)
    with torch.no_grad():
        values, before = function(X), P[:0] if pending is None else pending
        for batch, value in zip(X, values, strict=True):
            wanted = 0.0
            for i in range(3):
                function.set_X_pending(torch.cat([before, batch[:i]]))
                wanted += float(function(batch[i : i + 1]))
            assert float(value) == pytest.approx(wanted, abs=1e-10)


def test_batches_without_one_gaussian_are_refused_by_name():
    perturbed = InputPerturbation(exactly([[0.0, 0.0], [0.05, 0.0]]))
    average = ExpectationPosteriorTransform(n_w=2)
    logarithmic = SingleTaskGP(PLANE, T.exp(), outcome_transform=Log())
    function = kb.KernelUCB(logarithmic, 2.0)
    assert function(GRID).isfinite().all()
    with pytest.raises(UnsupportedError, match="sequential=True"):
        function(GRID.reshape(3, 3, 2))
    for make in (online, nystrom, partial(SingleTaskGP, PLANE, T)):
        nearby, apart = (kb.KernelUCB(make(input_transform=perturbed), 2.0, average, X) for X in (P, None))
        with torch.no_grad():
            assert (nearby(GRID) <= apart(GRID)).all()
            assert (apart(GRID.reshape(3, 3, 2)) <= apart(GRID).reshape(3, 3).sum(-1)).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [online, nystrom])
def test_a_joint_search_spreads_out_and_goes_on_from_points_one_after_another(make):
    X, bounds = data(6, 2, seed=3)[0].reshape(2, 3, 2).requires_grad_(), exactly([[0.0, 0.0], [1.0, 1.0]])
    function = kb.KernelUCB(make(), 3.0, X_pending=P)
    assert torch.autograd.gradcheck(function, (X,))
    torch.manual_seed(0)
    words = {"num_restarts": 2, "raw_samples": 64}
    greedy, _ = optimize_acqf(function, bounds, q=3, sequential=True, **words)
    assert torch.equal(function.X_pending, P)
    together, _ = optimize_acqf(function, bounds, q=3, **words)
    better, value = optimize_acqf(function, bounds, q=3, num_restarts=1, batch_initial_conditions=greedy.unsqueeze(0))
    with torch.no_grad():
        assert float(value) >= float(function(greedy)) - 1e-9
    for batch in (greedy, together, better):
        assert torch.pdist(batch).min() > 0.05


@pytest.mark.parametrize("name", ["KernelUCB, exact", "KernelUCB, Nyström", "Thompson"])
def test_what_is_set_from_outside_is_taken_up(name):
    function = FUNCTIONS[name]()
    with torch.no_grad():
        mean = function.model.posterior(GRID).mean.flatten()
        function.X_pending = P
        one = function(GRID)
        function.beta = 3.0 * function.beta
        assert difference(function(GRID) - mean, 3.0 * (one - mean)) < 1e-9
        function.beta = function.beta / 3.0
        function.maximize = False
        sign = -1.0 if name == "Thompson" else 1.0
        assert difference(function(GRID) + mean, sign * (one - mean)) < 1e-9
        function.maximize = True
        function.model = online(regularization=2.0)
        made = {"KernelUCB": lambda m: kb.KernelUCB(m, 2.0, X_pending=P)}
        made["Thompson"] = lambda m: kb.DiscretizedThompsonSampling(m, GRID.squeeze(-2), seed=0, X_pending=P)
        assert torch.equal(function(GRID), made[name.split(",")[0]](function.model)(GRID))


def test_draws_are_made_anew_for_another_set_or_transform():
    function = kb.DiscretizedThompsonSampling(online(), GRID.squeeze(-2), seed=0)
    function(GRID)
    function.posterior_transform = ScalarizedPosteriorTransform(exactly([2.0]))
    other = kb.DiscretizedThompsonSampling(online(), GRID.squeeze(-2), 1.0, function.posterior_transform, seed=0)
    assert torch.equal(function(GRID), other(GRID))
    function.discretization = PLANE
    other = kb.DiscretizedThompsonSampling(online(), PLANE, 1.0, function.posterior_transform, seed=0)
    assert torch.equal(function.draws(2), other.draws(2))


@pytest.mark.parametrize("name", ["KernelUCB, exact", "KernelUCB, Nyström", "Thompson", "improvement"])
def test_functions_take_what_is_pending_along_to_another_dtype(name):
    function = FUNCTIONS[name]()
    function.X_pending = P
    with torch.no_grad():
        values = function(GRID)
        single = function.to(torch.float32)(GRID.float())
        assert single.dtype == torch.float32
        if name != "Thompson":  # whose draws are others
            assert difference(single.double(), values) < 1e-2
        assert difference(function.to(torch.float64)(GRID), single.double()) < 1e-2

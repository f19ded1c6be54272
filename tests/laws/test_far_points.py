"""What is learned leaves a finite posterior; that points far away are refused is in ``test_odd_arguments``."""

import itertools

import pytest
import torch
from gpytorch.kernels import PolynomialKernel
from problems import DOUBLE, believed, data, difference, linear, matern, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms

ARMS = data(30, 2, 5)[0]
X, Y = data(6, 2, 6)
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
KERNELS = {
    "rbf": lambda: rbf(0.3),
    "matern": matern,
    "linear": linear,
    "polynomial": lambda: PolynomialKernel(power=3).double(),
}
FAR = (1e8, 1e20, 1e40, 1e49, 1e51, 1e77, 1e120, 1e154, 1e200, 1e308)


def words(kernel="rbf", **others):
    return {"kernel": KERNELS[kernel](), "regularization": 0.1, "beta": 2.0, "seed": 0, "candidates": ARMS, **others}


def point(size, dtype=DOUBLE):
    return torch.tensor([[size, -size]], dtype=dtype)


def told(name, kernel="rbf", **others):
    """A bandit that was told of six points."""
    bandit = algorithms.build(name, **words(kernel, **others))
    c = bandit.candidates.context_dim
    where = {"context": X[:, :c]} if c else {}
    where |= {"outcomes": {"cost": Y.squeeze(-1)}} if "cost" in bandit.outcomes else {}
    bandit.tell(X[:, c:], Y.squeeze(-1), **where)
    return bandit


BOX = {"candidates": kb.Box(UNIT, num_restarts=1, raw_samples=4)}
CONTEXTS = {"candidates": kb.ContextualActions(ARMS[:, :1], context_dim=1)}
EACH_ROUND = kb.ContextualActions(action_dim=2, context_dim=0)
COST = {"outcomes": [kb.Outcome("cost", kb.Prior(rbf(0.3), 0.1))]}
#: Bandits, with how a point is told.
BANDITS = {
    "few arms": ("igp-ucb", {}, lambda bandit, x: bandit.tell(x, 1.0)),
    "dictionary": ("bkb", {}, lambda bandit, x: bandit.tell(x, 1.0)),
    "kors": ("ek-ucb", {}, lambda bandit, x: bandit.tell(x, 1.0)),
    "pending": ("igp-ucb", {}, lambda bandit, x: bandit.mark_pending(x)),
    "pending at a dictionary": ("bkb", {}, lambda bandit, x: bandit.mark_pending(x)),
    "box": ("gp-ucb", BOX, lambda bandit, x: bandit.tell(x, 1.0)),
    "context": ("ek-ucb", CONTEXTS, lambda bandit, x: bandit.tell(ARMS[:1, :1], 1.0, context=x[0, :1])),
    "action": ("ek-ucb", CONTEXTS, lambda bandit, x: bandit.tell(x[:, :1], 1.0, context=ARMS[0, 1:])),
    "outcome": ("gp-ucb", COST, lambda bandit, x: bandit.tell(x, 1.0, outcomes={"cost": 1.0})),
    "outcome alone": ("gp-ucb", COST, lambda bandit, x: bandit.tell(x, outcomes={"cost": 1.0})),
}
#: Each kind with every kernel would say little more.
CASES = [*zip(BANDITS, itertools.cycle(KERNELS), strict=False), ("few arms", "linear"), ("kors", "polynomial")]


def is_finite(bandit):
    """Say whether the posterior is finite where it matters, as it is shown and as it chooses."""
    context = {"context": ARMS[0, 1:]} if bandit.candidates.context_dim else {}
    values = bandit.acquisition(**context)(bandit.ask(remember=False, **context).unsqueeze(-2))
    parts = [*believed(bandit, ARMS), values]
    if bandit.outcomes:
        parts.append(bandit.outcome_model("cost").posterior(ARMS).mean)
    return all(bool(part.isfinite().all()) for part in parts)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "kernel"), CASES)
def test_a_bandit_refuses_a_point_or_has_a_finite_posterior(kind, kernel):
    name, others, tell = BANDITS[kind]
    for size in FAR:
        bandit = told(name, kernel, **others)
        before = str(bandit.state_dict())
        try:
            tell(bandit, point(size))
        except kb.KernelBanditError:
            assert str(bandit.state_dict()) == before
            assert size > 1e12
        assert is_finite(bandit), size
    with pytest.raises(kb.InputError, match="within"):
        tell(bandit, point(1e200))


MODELS = {
    "exact": lambda x, y: kb.OnlineGP(x, y, covar_module=rbf(0.3), regularization=0.1),
    "Nyström": lambda x, y: kb.NystromGP(x, y, inducing_points=X[:3], covar_module=rbf(0.3), regularization=0.1),
}


def after_telling(make, x):
    model = make(X, Y)
    model.tell(x, Y[:1])
    return model


WAYS = {
    "construct": lambda make, x: make(torch.cat([X, x]), torch.cat([Y, Y[:1]])),
    "tell": after_telling,
    "condition": lambda make, x: make(X, Y).condition_on_observations(x, Y[:1]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_refuses_a_point_or_has_a_finite_posterior_that_is_as_before_near_by(name, way):
    """Under a kernel that is 0 there, to rounding: sums over all points are no place to lose the digits of others."""
    near = MODELS[name](X, Y).posterior(ARMS)
    for size in (*FAR, 1e6, 1e12, 1e30):
        try:
            model = WAYS[way](MODELS[name], point(size))
        except kb.KernelBanditError:
            assert size > 1e30
            continue
        far = model.posterior(ARMS)
        assert difference(far.mean, near.mean) < 1e-9
        assert difference(far.variance, near.variance) < 1e-9


def test_in_single_precision_points_are_refused_sooner_and_in_a_history_too():
    bandit = algorithms.BKB(**words(candidates=ARMS.float()))
    bandit.tell(point(1e9, torch.float32), 1.0)
    assert bool(bandit.model.posterior(ARMS.float()).mean.isfinite().all())
    with pytest.raises(kb.InputError, match=r"within ±1e\+12"):
        bandit.tell(point(1e20, torch.float32), 1.0)
    history = told("bkb").history
    for size in (1e80, 1e308):
        with pytest.raises(kb.InputError, match="within"):
            algorithms.BKB(**words()).replay(history._replace(X=torch.cat([X[1:], point(size)])))

"""What is learned leaves a finite posterior: a point too far away is refused wherever it comes in, as a reward is."""

import itertools

import pytest
import torch
from gpytorch.kernels import PolynomialKernel
from problems import DOUBLE, data, difference, linear, matern, rbf

from torch_kbandits import (
    Box,
    ContextualActions,
    FixedDictionary,
    InputError,
    KernelBanditError,
    KernelUCB,
    NystromGP,
    OnlineGP,
    Outcome,
    Prior,
    algorithms,
    fit_prior,
)
from torch_kbandits.acquisition import DiscretizedThompsonSampling

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
    return {"kernel": KERNELS[kernel](), "regularization": 0.1, "beta": 2.0, "seed": 0, **others}


def point(size, dtype=DOUBLE):
    return torch.tensor([[size, -size]], dtype=dtype)


def arms(kernel, name, **others):
    bandit = algorithms.build(name, candidates=ARMS, **words(kernel, **others))
    bandit.tell(X, Y.squeeze(-1))
    return bandit


def in_contexts(kernel):
    bandit = algorithms.EKUCB(candidates=ContextualActions(ARMS[:, :1], context_dim=1), **words(kernel))
    bandit.tell(X[:, :1], Y.squeeze(-1), context=X[:, 1:])
    return bandit


def on_a_box(kernel):
    bandit = algorithms.GPUCB(candidates=Box(UNIT, num_restarts=1, raw_samples=4), **words(kernel))
    bandit.tell(X, Y.squeeze(-1))
    return bandit


def with_outcome(kernel):
    cost = Outcome("cost", Prior(KERNELS[kernel](), 0.1))
    bandit = algorithms.GPUCB(candidates=ARMS, outcomes=[cost], **words(kernel))
    bandit.tell(X, Y.squeeze(-1), outcomes={"cost": Y.squeeze(-1)})
    return bandit


#: Bandits, with how a point is told.
BANDITS = {
    "few arms": (lambda kernel: arms(kernel, "igp-ucb"), lambda bandit, x: bandit.tell(x, 1.0)),
    "dictionary": (lambda kernel: arms(kernel, "bkb"), lambda bandit, x: bandit.tell(x, 1.0)),
    "kors": (lambda kernel: arms(kernel, "ek-ucb"), lambda bandit, x: bandit.tell(x, 1.0)),
    "pending": (lambda kernel: arms(kernel, "igp-ucb"), lambda bandit, x: bandit.mark_pending(x)),
    "pending at a dictionary": (lambda kernel: arms(kernel, "bkb"), lambda bandit, x: bandit.mark_pending(x)),
    "box": (on_a_box, lambda bandit, x: bandit.tell(x, 1.0)),
    "context": (in_contexts, lambda bandit, x: bandit.tell(ARMS[:1, :1], 1.0, context=x[0, :1])),
    "action": (in_contexts, lambda bandit, x: bandit.tell(x[:, :1], 1.0, context=ARMS[0, 1:])),
    "outcome": (with_outcome, lambda bandit, x: bandit.tell(x, 1.0, outcomes={"cost": 1.0})),
    "outcome alone": (with_outcome, lambda bandit, x: bandit.tell(x, outcomes={"cost": 1.0})),
}
#: Each kind with every kernel would say little more.
CASES = [*zip(BANDITS, itertools.cycle(KERNELS), strict=False), ("few arms", "linear"), ("kors", "polynomial")]


def is_finite(bandit):
    """Say whether the posterior is finite where it matters, as it is shown and as it chooses."""
    context = {"context": ARMS[0, 1:]} if bandit.candidates.context_dim else {}
    posterior = bandit.model.posterior(ARMS)
    values = bandit.acquisition(**context)(bandit.ask(remember=False, **context).unsqueeze(-2))
    parts = [posterior.mean, posterior.variance, values]
    if bandit.outcomes:
        parts.append(bandit.outcome_model("cost").posterior(ARMS).mean)
    return all(bool(part.isfinite().all()) for part in parts)


@pytest.mark.parametrize(("kind", "kernel"), CASES)
def test_a_bandit_refuses_a_point_or_has_a_finite_posterior(kind, kernel):
    make, tell = BANDITS[kind]
    for size in FAR:
        bandit = make(kernel)
        before = str(bandit.state_dict())
        try:
            tell(bandit, point(size))
        except KernelBanditError:
            assert str(bandit.state_dict()) == before
            assert size > 1e12
        assert is_finite(bandit), size
    with pytest.raises(InputError, match="within"):
        tell(bandit, point(1e200))


MODELS = {
    "exact": lambda x, y: OnlineGP(x, y, covar_module=rbf(0.3), regularization=0.1),
    "Nyström": lambda x, y: NystromGP(x, y, inducing_points=X[:3], covar_module=rbf(0.3), regularization=0.1),
}
WAYS = {
    "construct": lambda make, x: make(torch.cat([X, x]), torch.cat([Y, Y[:1]])),
    "tell": lambda make, x: told(make(X, Y), x),
    "condition": lambda make, x: make(X, Y).condition_on_observations(x, Y[:1]),
}


def told(model, x):
    model.tell(x, Y[:1])
    return model


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_refuses_a_point_or_has_a_finite_posterior(name, way):
    for size in FAR:
        try:
            model = WAYS[way](MODELS[name], point(size))
        except KernelBanditError:
            assert size > 1e12
            continue
        posterior = model.posterior(ARMS)
        assert bool(posterior.mean.isfinite().all())
        assert bool(posterior.variance.isfinite().all())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_far_says_nothing_of_what_is_near(name, way):
    """Under a kernel that is 0 there, to rounding: sums over all points are no place to lose the digits of others."""
    near = MODELS[name](X, Y).posterior(ARMS)
    for size in (1e6, 1e12, 1e30):
        far = WAYS[way](MODELS[name], point(size)).posterior(ARMS)
        assert difference(far.mean, near.mean) < 1e-9
        assert difference(far.variance, near.variance) < 1e-9


def model():
    return MODELS["exact"](X, Y)


REFUSED = {
    "arms": lambda x: algorithms.BKB(candidates=torch.cat([ARMS, x]), **words()),
    "bounds": lambda x: algorithms.GPUCB(bounds=torch.cat([-x.abs(), x.abs()]), **words()),
    "actions": lambda x: ContextualActions(torch.cat([ARMS, x]), context_dim=1),
    "asked in a context": lambda x: in_contexts("rbf").ask(context=x[0, :1]),
    "offered": lambda x: algorithms.EKUCB(action_dim=2, **words()).ask(candidates=torch.cat([ARMS, x])),
    "inducing points": lambda x: NystromGP(X, Y, inducing_points=x, covar_module=rbf(), regularization=0.1),
    "dictionary": lambda x: FixedDictionary(x),
    "X_pending": lambda x: KernelUCB(model(), 2.0, X_pending=x),
    "X_pending set": lambda x: KernelUCB(model(), 2.0).set_X_pending(x),
    "discretization": lambda x: DiscretizedThompsonSampling(model(), x),
    "fit_prior": lambda x: fit_prior(torch.cat([X, x]), torch.cat([Y, Y[:1]])),
    "replay": lambda x: replayed(x),
    "failure_probability": lambda x: arms("rbf", "bkb").failure_probability(x),
}


def replayed(x):
    bandit = algorithms.BKB(candidates=ARMS, **words())
    bandit.replay(bandit_of(x).history._replace(X=torch.cat([X, x])))


def bandit_of(x):
    bandit = algorithms.BKB(candidates=ARMS, **words())
    bandit.tell(torch.cat([X, ARMS[:1]]), [0.0] * (len(X) + len(x)))
    return bandit


@pytest.mark.parametrize("way", REFUSED)
def test_a_point_far_away_is_refused_in_every_way_in(way):
    for size in (1e80, 1e200, 1e308):
        with pytest.raises(InputError, match="within"):
            REFUSED[way](point(size))


def test_in_single_precision_points_are_refused_sooner():
    bandit = algorithms.BKB(candidates=ARMS.float(), **words())
    bandit.tell(point(1e9, torch.float32), 1.0)
    assert bool(bandit.model.posterior(ARMS.float()).mean.isfinite().all())
    with pytest.raises(InputError, match=r"within ±1e\+12"):
        bandit.tell(point(1e20, torch.float32), 1.0)

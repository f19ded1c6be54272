"""What would make a posterior NaN is refused by every way into a model, and changes nothing."""

import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, data, difference, rbf

from torch_kbandits import KernelBanditError, NystromGP, OnlineGP

X, Y = data(8, 2)
T, _ = data(5, 2, seed=1)
POINT, REWARD = T[:1], Y[:1]


def make(model, X=X, Y=Y, kernel=None, **kwargs):
    Z = {"inducing_points": X} if model is NystromGP and "inducing_points" not in kwargs else {}
    return model(X, Y, covar_module=kernel or rbf(0.4), regularization=1e-3, **kwargs, **Z)


WAYS = {
    "tell": lambda model, x, y: model.tell(x, y, **({"add_to_dictionary": True} if type(model) is NystromGP else {})),
    "condition": lambda model, x, y: model.condition_on_observations(x, y).posterior(T),
    "fantasy model": lambda model, x, y: model.get_fantasy_model(x, y.squeeze(-1)).posterior(T),
    "build": lambda model, x, y: make(type(model), torch.cat([X, x]), torch.cat([Y, y])).posterior(T),
}
WHAT = {
    "a point": (POINT * 1e160, REWARD),  # whose squared distances are not finite
    "rewards": (torch.cat([X[:1], X[:1]]), torch.full((2, 1), 1.7e308, dtype=DOUBLE)),  # whose sum is not
}


@pytest.mark.parametrize(("x", "y"), WHAT.values(), ids=WHAT)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("model", [OnlineGP, NystromGP])
def test_numbers_too_large_are_refused_and_change_nothing(model, way, x, y):
    told = make(model)
    before = told.posterior(T)
    with pytest.raises(KernelBanditError, match=r"within|add up to more"):
        way(told, x, y)
    after = told.posterior(T)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)
    assert told.num_observations == 8
    told.tell(POINT, REWARD)
    told.remove([8])
    assert difference(told.posterior(T).mean, before.mean) < 1e-7


class Failing(RBFKernel):
    """A kernel whose values near one corner are NaN, as a faulty one's may be."""

    def forward(self, x1, x2, diag=False, **params):
        bad = torch.where((x1 < 0.0).any(-1), torch.nan, 0.0)
        other = torch.where((x2 < 0.0).any(-1), torch.nan, 0.0)
        values = super().forward(x1, x2, diag=diag, **params)
        return values + (bad if diag else bad.unsqueeze(-1) + other.unsqueeze(-2))


@pytest.mark.parametrize("model", [OnlineGP, NystromGP])
def test_kernel_values_that_are_not_finite_are_refused_and_change_nothing(model):
    told = make(model, kernel=Failing().double())
    before = told.posterior(T).mean
    changes = [lambda: told.tell(-POINT, REWARD)]
    if model is NystromGP:
        changes += [
            lambda: told.tell(-POINT, REWARD, add_to_dictionary=True),
            lambda: told.set_dictionary(-POINT),
            lambda: told.set_dictionary(torch.cat([X, -POINT])),
        ]
    for change in changes:
        with pytest.raises(KernelBanditError, match=r"not finite|NaN or infinite"):
            change()
        assert torch.equal(told.posterior(T).mean, before)
        assert told.num_observations == 8


@pytest.mark.parametrize("model", [OnlineGP, NystromGP])
def test_a_reward_whose_square_is_too_large_is_learned(model):
    """Only squares of it are too large, which no posterior has: the norm of the mean is taken in parts."""
    told, other = make(model), make(model)
    told.tell(X[:1], torch.full((1, 1), 1e160, dtype=DOUBLE))
    other.tell(X[:1], torch.full((1, 1), 1e60, dtype=DOUBLE))
    assert difference(told.posterior(T).mean / 1e160, other.posterior(T).mean / 1e60) < 1e-7
    assert float(told.mean_norm()) / 1e160 == pytest.approx(float(other.mean_norm()) / 1e60)

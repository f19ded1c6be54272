"""Input transforms whose points have other columns than those given, such as codes of choices."""

from functools import partial

import numpy as np
import oracles
import pytest
import torch
from botorch.models.transforms.input import NumericToCategoricalEncoding
from problems import DOUBLE, rbf
from torch.nn.functional import one_hot

from torch_kbandits import InputError, NystromGP, OnlineGP

LAMBDA = 0.05
RNG = np.random.default_rng(0)


def points(n):
    return torch.tensor(np.column_stack([RNG.uniform(size=n), RNG.integers(0, 3, n)]), dtype=DOUBLE)


def coded(X):
    return np.column_stack([X[:, :1].numpy(), np.eye(3)[X[:, 1].long().numpy()]])


def model_of(kind, X, Y):
    code = NumericToCategoricalEncoding(2, {1: 3}, {1: partial(one_hot, num_classes=3)})
    dictionary = {"inducing_points": X} if kind is NystromGP else {}
    return kind(X, Y, covar_module=rbf(0.7), regularization=LAMBDA, input_transform=code, **dictionary)


def told(model, X, Y):
    model.tell(X, Y)
    return model


def joined(model, X, Y):
    model.tell(X[:2], Y[:2], add_to_dictionary=True)
    model.set_dictionary(torch.cat([model.inducing_points, X[2:]]))
    model.tell(X[2:], Y[2:])
    return model


WAYS = {
    "nystrom": (NystromGP, lambda model, X, Y: model.condition_on_observations(X, Y)),
    "exact": (OnlineGP, lambda model, X, Y: model.condition_on_observations(X, Y)),
    "told": (OnlineGP, told),
    "nystrom, told": (NystromGP, joined),
}


@pytest.mark.parametrize("name", WAYS)
def test_more_observations_are_taken_in_the_columns_given_and_no_others(name):
    kind, extend = WAYS[name]
    X, Y, T = points(12), torch.tensor(RNG.normal(size=(12, 1))), points(5)
    model = extend(model_of(kind, X[:8], Y[:8]), X[8:], Y[8:])
    dense = oracles.exact(oracles.rbf(0.7), coded(X), Y.squeeze(-1).numpy(), np.full(12, LAMBDA), coded(T))
    with torch.no_grad():
        posterior = model.posterior(T.unsqueeze(-2))
    np.testing.assert_allclose(posterior.mean.flatten(), dense.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(posterior.variance.flatten(), dense.variance, rtol=1e-6, atol=1e-8)
    with pytest.raises(InputError, match="X must"):  # in the columns of the kernel
        extend(model_of(kind, X[:8], Y[:8]), torch.tensor(coded(X[8:])), Y[8:])

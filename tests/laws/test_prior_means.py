"""A prior mean moves the posterior mean and nothing else: rewards less their prior means are what is learned."""

from functools import partial

import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean, LinearMean
from problems import DOUBLE, difference, in_a_file, rbf
from product import ARMS, LAMBDA, reward

import torch_kbandits as kb
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.memory import Stationary

SLOPE = 7.0


def profile(points):
    """What is expected of points (n, d), with contexts of (context, action)."""
    return 3.0 + SLOPE * points.sum(-1) + torch.cos(points[:, 0])


def season(points, time):
    """What is expected of points (n, d) at times (n,)."""
    return 3.0 + SLOPE * torch.sin(2.0 * points[:, -1] + 0.8 * time)


def bandit(candidates, mean, **words):
    words |= {"candidates": candidates, "kernel": rbf(0.3), "regularization": LAMBDA, "width": kb.ConstantWidth(1.0)}
    return kb.Bandit(**words, mean=mean, seed=0)


def linear_mean():
    mean = LinearMean(2, bias=True).double()
    mean.weights.data, mean.bias.data = torch.full((2, 1), SLOPE, dtype=DOUBLE), torch.full((1,), 3.0, dtype=DOUBLE)
    return mean


def constant_mean():
    mean = ConstantMean().double()
    mean.initialize(constant=4.0)
    return mean


VALUES = 3.0 + SLOPE * ARMS.sum(-1)
#: What is the same for all arms.
MEANS = [
    lambda X: 3.0 + SLOPE * X.sum(-1),
    lambda X: 3.0 + SLOPE * X.numpy().sum(-1),
    lambda X: 3.0 + SLOPE * X.sum(-1, keepdim=True),
    VALUES,
    VALUES.numpy(),
    VALUES.tolist(),
    linear_mean(),
]


def test_a_mean_may_be_given_in_many_ways():
    """Before any reward the arm of the largest is played."""
    on_time = season, partial(season), lambda X, *, time: season(X, time).numpy()
    for means, best in ((MEANS, ARMS[ARMS.sum(-1).argmax()]), ((4, constant_mean()), None), (on_time, None)):
        shown = []
        for mean in means:
            it = bandit(kb.Arms(ARMS), mean)
            assert best is None or torch.equal(it.ask()[0], best)
            it.tell(ARMS[:2], [0.0, 1.0])
            points = torch.cat([ARMS[:, :1], ARMS], -1) if means is on_time else ARMS
            shown.append(it.model.posterior(points.unsqueeze(-2)).mean)
        assert all(difference(each, shown[0]) < 1e-9 for each in shown)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rewards_far_from_what_was_expected_are_said_to_be(one_by_one, sign):
    def told(mean, Y):
        ours = bandit(kb.Arms(ARMS), mean)
        for part in torch.arange(len(Y)).split(1 if one_by_one else len(Y)):
            ours.tell(ARMS[part], Y[part])

    Y = sign * 1000.0 + torch.arange(5.0)
    with pytest.warns(KernelBanditWarning, match=r"around -?[19].*and 0 ± 1.05 was expected.*Give mean="):
        told(0.0, Y)
    told(sign * 1000.0, Y)  # pytest makes errors of warnings
    told(0.0, 0.01 * Y)
    told(0.0, torch.cat([Y[:2], -Y[:2]]))
    told(0.0, Y[:2])


STORED = kb.Arms(in_a_file(ARMS))


@pytest.mark.parametrize(
    ("candidates", "mean", "message"),
    [
        (kb.Arms(ARMS), torch.zeros(3), "needs as many arms in memory"),
        (kb.Arms(ARMS), torch.full((20,), np.nan), "finite"),
        (kb.Arms(ARMS), np.inf, "finite"),
        (kb.Arms(ARMS), ["a", "b"], "numbers"),
        (kb.Arms(ARMS), torch.ones(20, dtype=torch.complex64), "real numbers"),
        (kb.Arms(ARMS), lambda _: torch.zeros(7), "for each of 1 points"),
        (kb.Arms(ARMS), lambda X: X.sum(-1) / 0.0, "finite number for each"),
        (kb.Arms(torch.cat([ARMS, ARMS[:1]])), torch.arange(21.0), "the same at equal arms"),
        (STORED, torch.zeros(20), "needs as many arms in memory"),
        (kb.ContextualActions(ARMS, context_dim=1), torch.zeros(20), "needs as many arms in memory"),
    ],
)
def test_what_is_no_mean_is_refused(candidates, mean, message):
    with pytest.raises(kb.InputError, match=message):
        bandit(candidates, mean)


@pytest.mark.usefixtures("short_fits")
def test_a_prior_is_learned_around_a_mean_on_time():
    """What is fitted is what rewards less their means at their times say."""
    ours, theirs = (
        kb.Bandit(
            candidates=kb.Arms(ARMS),
            prior=kb.LearnedPrior(mean=mean),
            width=kb.ConstantWidth(1.0),
            memory=memory,
            seed=0,
        )
        for mean, memory in ((season, None), (0.0, Stationary()))
    )
    for number in range(10):
        X = ARMS[2 * number : 2 * number + 1]
        ours.tell(X, reward(X) + season(X, float(number)))
        theirs.tell(X, reward(X))
    assert ours.regularization == pytest.approx(theirs.regularization, rel=1e-6)
    assert difference(ours.prior.kernel(ARMS).to_dense(), theirs.prior.kernel(ARMS).to_dense()) < 1e-6

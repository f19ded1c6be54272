"""A prior mean moves the posterior mean and nothing else: rewards less their prior means are what is learned."""

from functools import partial

import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean, LinearMean
from problems import DOUBLE, data, difference, in_a_file, rbf
from product import AGEING, ARMS, DICTIONARIES, KEEPING, LAMBDA, MEMORIES, Combination, Loop, reward

import torch_kbandits as kb
from torch_kbandits.errors import KernelBanditWarning, StateMismatchError
from torch_kbandits.memory import Stationary

SLOPE = 7.0


def profile(points):
    """What is expected of points (n, d), with contexts of (context, action)."""
    return 3.0 + SLOPE * points.sum(-1) + torch.cos(points[:, 0])


def assert_moved(ours, theirs, expected):
    """Means and variances of the model that is shown."""
    shown, plain = (loop.bandit.model.posterior(loop.probes.unsqueeze(-2)) for loop in (ours, theirs))
    assert difference(shown.mean.flatten(), plain.mean.flatten() + expected) < 1e-8
    assert difference(shown.variance, plain.variance) < 1e-8


def season(points, time):
    """What is expected of points (n, d) at times (n,)."""
    return 3.0 + SLOPE * torch.sin(2.0 * points[:, -1] + 0.8 * time)


@pytest.mark.one_in(25)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("memory", ["none", "window of observations", "discount", "prior on time"])
@pytest.mark.parametrize("dictionary", ["none", "coupled", "kors"])
@pytest.mark.parametrize("space", ["arms", "many arms", "arms in a file", "box", "actions in a context"])
@pytest.mark.parametrize("mean", [profile, season])
def test_what_is_learned_is_what_was_not_expected(mean, space, dictionary, memory, tmp_path):
    """Also under a mean on time, which points then know, and by who loads or replays."""
    it = Combination(space, "rbf", dictionary, memory, "upper bound", "none", "constant")
    means = (mean, 0.0 if mean is profile else lambda points, time: 0.0 * time)
    ours, theirs = (Loop(it, it.bandit(tmp_path, mean=each)) for each in means)
    points = data(9, ARMS.shape[-1] - it.where.context_dim, 5)[0] if it.where.actions is None else it.where.actions[:9]
    for now, part in enumerate((points[:3], points[3:8], points[7:])):
        for loop, moved in ((ours, 0.0), (theirs, 1.0)):
            loop.turn += 1
            where = loop.context()
            inputs = part if not where else torch.cat([where["context"].expand(len(part), -1), part], dim=-1)
            expected = profile(inputs) if mean is profile else season(inputs, float(now))
            loop.bandit.tell(part, reward(inputs) - moved * expected, **where)
    probes = ours.probes[:, 1:] if ours.bandit.candidates.is_timed else ours.probes
    assert_moved(ours, theirs, profile(probes) if mean is profile else season(probes, ours.probes[:, 0]))
    again, loaded = (Loop(it, it.bandit(tmp_path, mean=mean), ours.turn) for _ in range(2))
    again.bandit.replay(ours.bandit.history)
    ours.bandit.save(tmp_path / "state.kb")
    kb.Bandit.load(tmp_path / "state.kb", into=loaded.bandit)
    for other in (again, loaded):
        assert_moved(other, ours, 0.0)


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
    for means, best in ((MEANS, ARMS[ARMS.sum(-1).argmax()]), ((4, constant_mean()), None)):
        shown = []
        for mean in means:
            it = bandit(kb.Arms(ARMS), mean)
            assert best is None or torch.equal(it.ask()[0], best)
            it.tell(ARMS[:2], [0.0, 1.0])
            shown.append(it.model.posterior(ARMS.unsqueeze(-2)).mean)
        assert all(difference(each, shown[0]) < 1e-9 for each in shown)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mean", [2.5, VALUES, profile], ids=["number", "values", "function"])
def test_a_saved_state_belongs_to_its_mean_and_a_file_has_one_of_numbers(mean, tmp_path):
    def made(mean):
        return bandit(kb.Arms(ARMS), mean, memory=MEMORIES["discount"], dictionary=DICTIONARIES["kors"])

    ours = made(mean)
    ours.run(lambda x: reward(x) + 5.0, 4)
    ours.save(tmp_path / "state.pt")
    again = kb.Bandit.load(tmp_path / "state.pt", into=made(mean) if mean is profile else None)
    assert torch.equal(ours.ask(3), again.ask(3))
    for other in (0.0, 2.0, torch.ones(20, dtype=DOUBLE)):
        with pytest.raises(StateMismatchError, match="mean"):
            kb.Bandit.load(tmp_path / "state.pt", into=made(other))


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


@pytest.mark.one_in(10)
@pytest.mark.parametrize("memory", ["none", *KEEPING, *AGEING])
@pytest.mark.parametrize("mean", [season, partial(season), lambda X, *, time: season(X, time).numpy()])
def test_a_mean_on_time_moves_what_is_learned_of_the_rest(mean, memory):
    """The posterior is that of a bandit without a mean, told rewards less what was expected then, moved by now's."""
    ours = bandit(kb.Arms(ARMS), mean, memory=MEMORIES[memory])
    theirs = bandit(kb.Arms(ARMS), 0.0, memory=MEMORIES[memory] or Stationary())
    for turn, rows in enumerate(([3, 4], [3], [9, 0, 3], [5], [4])):
        now = {"time": 0.6 * turn}
        expected = season(ARMS, torch.full((20,), 0.6 * turn, dtype=DOUBLE))
        scores = theirs.acquisition(**now)(ARMS.unsqueeze(-2)) + expected
        assert difference(ours.acquisition(**now)(ARMS.unsqueeze(-2)), scores) < 1e-8
        assert torch.equal(ours.ask(remember=False, **now)[0], ARMS[scores.argmax()])
        ours.tell(ARMS[rows], reward(ARMS[rows]) + expected[rows], **now)
        theirs.tell(ARMS[rows], reward(ARMS[rows]), **now)


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

"""State is a function of configuration, seed and history; a failed call changes nothing."""

import io
import math
import subprocess
import sys
import warnings
from copy import deepcopy
from functools import cache

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from hypothesis import given
from problems import DOUBLE, data, difference, matern, rbf, scaled

from torch_kbandits import (
    Arms,
    Bandit,
    BKBWidth,
    Box,
    CappedDictionary,
    ConstantWidth,
    GreedyDictionary,
    History,
    InputError,
    KernelUCB,
    NumericalError,
    NystromGP,
    RidgeLeverageSampling,
    ScaledWidth,
    StateMismatchError,
    TheoryWarning,
    UniformDictionary,
    algorithms,
    environments,
)

ARMS = data(60, 2)[0]
BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 2.0]], dtype=DOUBLE)


def bkb(domain="arms", **kwargs):
    settings = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 2.0, "seed": 3}
    settings |= {"candidates": ARMS} if domain == "arms" else {"bounds": BOUNDS}
    return algorithms.BKB(**(settings | kwargs))


def composed(dictionary, domain="arms", **kwargs):
    candidates = Arms(ARMS) if domain == "arms" else Box(BOUNDS, num_restarts=2, raw_samples=16)
    return Bandit(
        candidates=candidates, kernel=matern(), regularization=0.05, dictionary=dictionary,
        width=ConstantWidth(1.5), seed=3, **kwargs,
    )  # fmt: skip


MAKERS = {
    "bkb on arms": bkb,
    "bkb on a box": lambda: composed(RidgeLeverageSampling(2.0), "box"),
    "greedy on arms": lambda: composed(GreedyDictionary(6)),
    "uniform on arms": lambda: composed(UniformDictionary(6)),
    "coupled on a box": lambda: composed(RidgeLeverageSampling(2.0, "coupled"), "box"),
    "coupled and capped on arms": lambda: composed(CappedDictionary(RidgeLeverageSampling(2.0, "coupled"), 6, "stop")),
    "growing on arms": lambda: composed(RidgeLeverageSampling(2.0, "growth")),
    "uniform on a box": lambda: composed(UniformDictionary(6), "box"),
}


def reward(X):
    return torch.sin(5.0 * X).sum(-1)


def play(bandit, rounds, q=1):
    """Ask and tell; return the points asked, one tensor a round."""
    asked = []
    for _ in range(rounds):
        X = bandit.ask(q)
        bandit.tell(X, reward(X))
        asked.append(X)
    return asked


def same(asked, others):
    return len(asked) == len(others) and all(torch.equal(a, b) for a, b in zip(asked, others, strict=True))


@pytest.mark.one_in(30)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize("q", [1, 3])
def test_replaying_the_history_gives_the_same_next_points(name, q):
    bandit = MAKERS[name]()
    play(bandit, 8 if "arms" in name else 3, q)
    twin = MAKERS[name]()
    twin.replay(bandit.history)
    rounds = 2 if "arms" in name else 1
    assert same(play(bandit, rounds, q), play(twin, rounds, q))


@pytest.mark.one_in(6)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_looking_changes_nothing(name):
    curious, calm = MAKERS[name](), MAKERS[name]()
    for _ in range(6 if "arms" in name else 2):
        for q in (1, 3, 2) if "arms" in name else (2,):
            assert torch.equal(curious.ask(q, remember=False), curious.ask(q, remember=False))
        assert curious.pending.shape == (0, 2)
        curious.ask(3)
        curious.forget()
        assert same(play(curious, 1), play(calm, 1))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_asking_leaves_the_global_generator_alone(name):
    bandit = MAKERS[name]()
    play(bandit, 2)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    bandit.ask()
    bandit.tell(bandit.candidates.example, 0.5)
    assert torch.equal(torch.rand(3), expected)


def indistinguishable(bandit):
    """Return how far apart points of a box may be whose scores differ by the rounding ρ of the posterior alone.

    A loaded posterior is computed in another order, so scores are off by ρ, which grows with the condition number of
    K + λI. Near a maximum of curvature h no search can tell points apart that are within √(2ρ/h); here h > 1.
    """
    X = bandit.history.X.numpy()
    condition = np.linalg.cond(oracles.matern52(0.5, 1.7)(X, X) + bandit.regularization * np.eye(len(X)))
    return math.sqrt(2.0 * oracles.rounding(len(X), condition, scale=1.7))


@pytest.mark.one_in(9)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_loaded_state_continues_identically(name):
    """On arms; on a box, where scores are climbed, as far as rounding lets them be told apart."""
    bandit = MAKERS[name]()
    play(bandit, 8 if "arms" in name else 4)
    file = io.BytesIO()
    torch.save(bandit.state_dict(), file)
    file.seek(0)
    twin = MAKERS[name]()
    play(twin, 2)  # what it knew is replaced
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert twin.round == bandit.round
    asked, others = (torch.cat(play(each, 8 if "arms" in name else 3)) for each in (bandit, twin))
    assert difference(asked, others) <= (0.0 if "arms" in name else indistinguishable(bandit))


@pytest.mark.slow
def test_a_new_process_continues_identically(tmp_path):
    bandit = bkb()
    play(bandit, 25)
    torch.save(bandit.state_dict(), tmp_path / "state.pt")
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[1])\n"
        "from laws.test_bandits import bkb, play\n"
        "bandit = bkb(); bandit.load_state_dict(torch.load(sys.argv[2] + '/state.pt', weights_only=True))\n"
        "torch.save(play(bandit, 20), sys.argv[2] + '/next.pt')\n"
    )
    tests = str(__import__("pathlib").Path(__file__).parents[1])
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, tests, str(tmp_path)], check=True, timeout=120)
    assert same(play(bandit, 20), torch.load(tmp_path / "next.pt", weights_only=True))


@given(seed=st.integers(0, 10_000), rounds=st.integers(1, 6), q=st.integers(1, 3))
def test_the_table_and_the_model_believe_the_same(seed, rounds, q):
    bandit = bkb(seed=seed)
    play(bandit, rounds, q)
    posterior = bandit.model.posterior(ARMS.unsqueeze(-2))
    assert difference(bandit._belief.mean, posterior.mean.flatten()) < 1e-7
    acquisition = bandit.acquisition()
    best = float(acquisition(ARMS.unsqueeze(-2)).detach().max())
    assert float(acquisition(bandit.ask().unsqueeze(0)).detach()) == pytest.approx(best, abs=1e-7)


def test_seeds_give_different_runs_and_equal_seeds_equal_ones():
    assert same(play(bkb(seed=1), 10), play(bkb(seed=1), 10))
    assert not same(play(bkb(seed=1), 10), play(bkb(seed=2), 10))


def test_bkb_finds_the_best_arm():
    env = environments.gaussian_bumps(300, 2, seed=0)
    bandit = algorithms.BKB(candidates=env.arms, kernel=rbf(0.5), regularization=0.01, beta=2.0, seed=0)
    regrets = []
    for number in range(80):
        X = bandit.ask()
        regrets.append(float(env.regret(X)))
        bandit.tell(X, env.pull(X, number))
    assert sum(regrets[-30:]) / 30 < 0.03
    assert sum(regrets[:10]) / 10 > 0.1
    assert len(bandit.inducing_points) < 60


def test_bkb_finds_the_peak_of_a_box():
    bandit = bkb("box", kernel=rbf(0.8), seed=0)
    for _ in range(12):
        X = bandit.ask()
        assert bool(((BOUNDS[0] <= X) & (BOUNDS[1] >= X)).all())
        bandit.tell(X, -(X - torch.tensor([0.4, 0.7], dtype=DOUBLE)).square().sum(-1))
    best = bandit.history.X[bandit.model.posterior(bandit.history.X).mean.argmax()]
    assert difference(best, torch.tensor([0.4, 0.7])) < 0.1


def test_the_public_face():
    bandit = bkb(noise_scale=0.1, norm_bound=0.01, horizon=100)
    X = bandit.ask()
    assert X.shape == (1, 2)
    assert bandit.ask(q=4).shape == (4, 2)
    bandit.tell(X, torch.tensor([0.5], dtype=DOUBLE))
    bandit.tell(X, torch.tensor([[0.7]], dtype=DOUBLE))
    bandit.tell(bandit.ask(q=3), torch.zeros(3, 1, dtype=DOUBLE))
    bandit.tell(torch.rand(1, 2, dtype=DOUBLE), torch.tensor(0.1, dtype=DOUBLE))  # never asked, and no arm
    assert bandit.history.X.shape == (6, 2)
    assert bandit.history.Y.tolist() == [0.5, 0.7, 0.0, 0.0, 0.0, 0.1]
    assert bandit.history.rounds.tolist() == [0, 1, 2, 2, 2, 3]
    assert bandit.round == 4
    assert bandit.beta.shape == ()
    assert isinstance(bandit.model, NystromGP)
    assert isinstance(bandit.acquisition(), KernelUCB)
    assert torch.equal(bandit.inducing_points, bandit.model.inducing_points)
    assert all(bool((z == bandit.history.X).all(-1).any()) for z in bandit.inducing_points)
    assert repr(bandit) == (
        "BKB(kernel=RBFKernel, regularization=0.05, "
        "dictionary=RidgeLeverageSampling(oversampling=3.0, resampling='fresh'), "
        "width=ConstantWidth(value=2.0), seed=3, round=4)"
    )


def test_asking_and_inspecting_before_any_reward():
    for domain in ("arms", "box"):
        bandit = bkb(domain)
        assert bandit.ask(q=3).shape == (3, 2)
        assert bandit.history.X.shape == (0, 2)
        assert bandit.inducing_points.shape == (0, 2)
        assert bandit.model.posterior(ARMS[:4]).mean.shape == (4, 1)


def test_telling_before_asking_is_a_warm_start():
    bandit = bkb()
    bandit.tell(ARMS[:30], reward(ARMS[:30]))
    assert bandit.round == 1
    assert float(reward(bandit.ask())) > float(reward(ARMS).quantile(0.7))


def test_constant_rewards_and_duplicate_arms_work():
    bandit = bkb(candidates=ARMS[:3].repeat(4, 1))
    for _ in range(30):
        bandit.tell(bandit.ask(), 0.0)
    assert len(bandit.inducing_points) <= 3
    assert float(bandit._belief.mean.abs().max()) == 0.0


def test_nearly_equal_arms_work():
    arms = ARMS[:3].repeat(5, 1) + 1e-9 * torch.randn(15, 2, dtype=DOUBLE)
    bandit = bkb(candidates=arms, oversampling=1e6)
    asked = play(bandit, 60)
    assert bool(torch.isfinite(bandit._belief.mean).all())
    assert len(asked) == 60


def test_the_widths_of_the_theorem_and_of_the_user():
    theory = bkb(beta=None, noise_scale=0.1, norm_bound=1.0)
    assert isinstance(theory.width, BKBWidth)
    assert isinstance(bkb(beta=ScaledWidth(theory.width, 0.1)).width, ScaledWidth)
    assert float(bkb(beta=1.25).beta) == 1.25
    play(theory, 5)
    assert float(theory.beta) == pytest.approx(float(theory.width(theory.model)), rel=1e-8)
    with pytest.raises(InputError, match="needs noise_scale and norm_bound"):
        bkb(beta=None, noise_scale=0.1)


def test_settings_that_void_the_theory_are_said_once():
    with pytest.warns(TheoryWarning, match="below the theorem's width") as caught:
        bandit = bkb(beta=2.0, noise_scale=0.1, norm_bound=1.0)
    assert len(caught) == 1
    play(bandit, 3)  # any further warning is an error
    with pytest.warns(TheoryWarning, match="float32"):
        bkb(candidates=ARMS.float(), regularization=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bkb(beta=1e6, noise_scale=0.1, norm_bound=1.0)
        bkb(candidates=ARMS.float(), regularization=0.05)


def test_the_oversampling_of_the_theorem():
    assert bkb(oversampling="theory", horizon=100).dictionary.oversampling > 400
    with pytest.raises(InputError, match="give horizon"):
        bkb(oversampling="theory")


def test_the_registry():
    assert "bkb" in algorithms.names()
    bandit = algorithms.build("bkb", candidates=ARMS, kernel=rbf(), regularization=0.1, beta=1.0, seed=0)
    assert isinstance(bandit, algorithms.BKB)
    with pytest.raises(InputError, match="did you mean 'bkb'"):
        algorithms.build("BKb")
    with pytest.raises(
        InputError,
        match="there are bbkb, bkb, bob-gp-ucb, cbbkb, cbkb, dms-gp-ucb, dms-tv-gp-ucb, ek-ucb, et-gp-ucb, gp-ei",
    ):
        algorithms.build("thompson")
    with pytest.raises(InputError, match="BKB takes other arguments: missing a required argument: 'seed'"):
        algorithms.build("bkb", candidates=ARMS)
    with pytest.raises(InputError, match="unexpected keyword argument 'kernels'"):
        algorithms.build("bkb", candidates=ARMS, kernel=rbf(), kernels=rbf(), regularization=0.1, seed=0)


def test_later_changes_of_the_callers_objects_do_not_reach_the_bandit():
    arms, kernel = ARMS.clone(), RBFKernel().double()
    bandit, twin = bkb(candidates=arms, kernel=kernel), bkb(candidates=ARMS, kernel=RBFKernel().double())
    arms.zero_()
    kernel.lengthscale = 50.0
    X = bandit.ask()
    y = torch.ones(1, dtype=DOUBLE)
    bandit.tell(X, y)
    y.zero_()
    twin.tell(X, 1.0)
    assert bandit.history.Y.tolist() == [1.0]
    assert torch.equal(bandit.ask(), twin.ask())
    twin.load_state_dict(bandit.state_dict())


BAD_TELLS = {
    "NaN in x": (torch.tensor([[float("nan"), 0.0]], dtype=DOUBLE), 0.0, "x must be finite: 1 of 2"),
    "infinite x": (torch.tensor([[0.0, float("inf")]], dtype=DOUBLE), 0.0, r"the first at index \(0, 1\)"),
    "NaN reward": (ARMS[:1], float("nan"), "y must be finite"),
    "infinite reward": (ARMS[:1], torch.tensor([float("inf")], dtype=DOUBLE), "y must be finite"),
    "wrong d": (torch.zeros(1, 3, dtype=DOUBLE), 0.0, "x must have d = 2 columns"),
    "1-D x": (ARMS[0], 0.0, r"x.reshape\(1, -1\)"),
    "3-D x": (ARMS[None, :2], torch.zeros(2, dtype=DOUBLE), r"x must be \(q, d\)"),
    "no points": (ARMS[:0], torch.zeros(0, dtype=DOUBLE), "q >= 1"),
    "other dtype of x": (ARMS[:1].float(), 0.0, "x must have dtype torch.float64"),
    "integers in x": (torch.zeros(1, 2, dtype=torch.long), 0.0, "x must have a floating dtype"),
    "half precision": (ARMS[:1].half(), 0.0, "float64 or float32, got torch.float16"),
    "a list": ([[0.0, 0.0]], 0.0, "x must be a torch tensor"),
    "an array": (ARMS[:1].numpy(), 0.0, r"got a ndarray of shape \(1, 2\); convert it"),
    "one 0-dim reward for many": (ARMS[:3], torch.tensor(0.0, dtype=DOUBLE), "a reward for each of the 3 point"),
    "too many rewards": (ARMS[:1], torch.zeros(2, dtype=DOUBLE), "a reward for each of the 1 point"),
    "too few rewards": (ARMS[:3], torch.zeros(1, 3, dtype=DOUBLE), "a reward for each of the 3 point"),
    "one number for many": (ARMS[:3], 0.5, "a reward for each of the 3 point"),
    "text": (ARMS[:1], "good", "y must be a number, got .good."),
}


@cache
def four_rounds(domain):
    """A bandit after four rounds, and what it asks in the next."""
    bandit = composed(RidgeLeverageSampling(2.0), domain)
    play(bandit, 4)
    return bandit, play(deepcopy(bandit), 1)


@pytest.mark.one_in(10)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", sorted(BAD_TELLS))
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_a_bad_tell_is_named_and_changes_nothing(name, domain):
    x, y, message = BAD_TELLS[name]
    bandit, expected = four_rounds(domain)
    bandit = deepcopy(bandit)
    with pytest.raises(InputError, match=message):
        bandit.tell(x, y)
    assert bandit.round == 4
    assert len(bandit.history.X) == 4
    assert same(play(bandit, 1), expected)


class _Broken(RidgeLeverageSampling):
    """A rule that fails from a given round on."""

    def select(self, played, generator=None):
        if played.size > 5:
            raise RuntimeError("out of luck")
        return super().select(played, generator)


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_an_error_below_changes_nothing_either(domain):
    bandit, twin = composed(_Broken(1e6), domain), composed(_Broken(1e6), domain)
    for number in range(5):
        for each in (bandit, twin):
            each.tell(ARMS[number, None], float(number))
    for point in (ARMS[9, None], torch.full((1, 2), 0.123, dtype=DOUBLE)):
        with pytest.raises(RuntimeError, match="out of luck"):
            bandit.tell(point, 0.0)
    assert bandit.round == 5
    assert torch.equal(bandit.ask(), twin.ask())


BAD_CONFIGURATIONS = {
    "no candidates": ({"candidates": None}, "Give either candidates"),
    "candidates and bounds": ({"bounds": BOUNDS}, "one of the two"),
    "empty candidates": ({"candidates": ARMS[:0]}, "at least one arm"),
    "NaN candidates": ({"candidates": ARMS * float("nan")}, "candidates must be finite"),
    "integer candidates": ({"candidates": torch.arange(6).reshape(3, 2)}, "floating dtype"),
    "1-D candidates": ({"candidates": ARMS[0]}, "candidates must have a row for each point"),
    "upside-down bounds": ({"candidates": None, "bounds": BOUNDS.flip(0)}, r"not so in column\(s\) \[0, 1\]"),
    "infinite bounds": ({"candidates": None, "bounds": BOUNDS * float("inf")}, "bounds must be finite"),
    "bounds as columns": ({"candidates": None, "bounds": torch.zeros(3, 2)}, r"shape \(2, d\)"),
    "zero regularization": ({"regularization": 0.0}, "regularization must be a finite number above 0"),
    "negative regularization": ({"regularization": -0.1}, "regularization"),
    "text as regularization": ({"regularization": "small"}, "regularization must be a number"),
    "negative noise": ({"noise_scale": -0.1, "norm_bound": 1.0}, "noise_scale"),
    "zero norm": ({"noise_scale": 0.1, "norm_bound": 0.0}, "norm_bound"),
    "impossible probability": (
        {"noise_scale": 0.1, "norm_bound": 1.0, "failure_probability": 1.5}, "strictly between 0 and 1"
    ),
    "negative noise beside beta": ({"noise_scale": -0.1}, "noise_scale"),
    "zero norm beside beta": ({"norm_bound": 0.0}, "norm_bound"),
    "impossible probability beside beta": ({"failure_probability": 1.5}, "failure_probability"),
    "impossible accuracy beside beta": ({"accuracy": 7.0}, "accuracy"),
    "negative horizon": ({"horizon": -5}, "horizon"),
    "a truth value as seed": ({"seed": True}, "seed must be a whole number"),
    "zero oversampling": ({"oversampling": 0.0}, "oversampling"),
    "negative beta": ({"beta": -1.0}, "value must be a finite number of at least 0"),
    "a fractional seed": ({"seed": 0.5}, "seed must be a whole number"),
    "a kernel that is none": ({"kernel": lambda x: x}, "must be a GPyTorch kernel"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BAD_CONFIGURATIONS))
def test_a_bad_configuration_is_named(name):
    settings, message = BAD_CONFIGURATIONS[name]
    with pytest.raises(InputError, match=message):
        bkb(**settings)


@pytest.mark.parametrize("piece", ["candidates", "kernel", "dictionary", "width"])
def test_a_piece_of_another_kind_is_named(piece):
    pieces = {"candidates": Arms(ARMS), "kernel": rbf(), "dictionary": GreedyDictionary(3), "width": ConstantWidth(1.0)}
    with pytest.raises(InputError, match=f"{piece} must be .*, got 7 of type int"):
        Bandit(regularization=0.1, seed=0, **(pieces | {piece: 7}))


@pytest.mark.parametrize("q", [0, -1, 1.5, True, "2"])
def test_a_bad_q_is_named(q):
    with pytest.raises(InputError, match="q must be a whole number of at least 1"):
        bkb().ask(q)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"seed": 4}, "seed: saved 3, here 4"),
        ({"regularization": 0.06}, "regularization: saved 0.05, here 0.06"),
        ({"candidates": ARMS + 1.0}, r"candidates.arms: saved \(60, 2\)"),
        ({"candidates": None, "bounds": BOUNDS}, "candidates.bounds: saved nothing"),
        ({"kernel": rbf(0.4)}, "kernel.raw_lengthscale"),
        ({"kernel": matern()}, "kernel: saved RBFKernel, here ScaleKernel"),
        ({"kernel": MaternKernel(nu=0.5).double()}, "kernel.nu: saved nothing, here 0.5"),
        ({"kernel": scaled(matern(), 1.0)}, "kernel.base_kernel: saved nothing"),
        ({"beta": 2.5}, "width.value: saved 2.0, here 2.5"),
        ({"oversampling": 4.0}, "dictionary.oversampling: saved 3.0, here 4.0"),
        ({"resampling": "coupled"}, "dictionary.resampling: saved fresh, here coupled"),
        ({"max_dictionary": 9}, "dictionary.max_size: saved nothing, here 9"),
    ],
)
def test_a_state_of_another_configuration_is_refused(other, difference):
    bandit, stranger = bkb(), bkb(**other)
    bandit.tell(ARMS[:3], reward(ARMS[:3]))
    stranger.tell(ARMS[:1], 0.1)
    with pytest.raises(StateMismatchError, match=difference):
        stranger.load_state_dict(bandit.state_dict())
    assert stranger.round == 1


def test_what_is_no_state_is_refused():
    with pytest.raises(StateMismatchError, match="it lacks"):
        bkb().load_state_dict({"weights": 1})
    with pytest.raises(StateMismatchError, match="format 99 and this version reads 5"):
        bkb().load_state_dict(bkb().state_dict() | {"format": 99})


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state["history"]["Y"].fill_(float("inf")),
        lambda state: state["history"].pop("Y"),
        lambda state: state["history"].update(Y=state["history"]["Y"][:1]),
        lambda state: state["history"].update(rounds=state["history"]["rounds"][:1]),
        lambda state: state["history"]["rounds"].copy_(torch.tensor([0, 2, 1])),
        lambda state: state.update(inducing_points=state["inducing_points"][:0]),
    ],
)
def test_a_damaged_state_is_refused(damage):
    bandit, twin = bkb(), bkb()
    play(bandit, 3)
    state = bandit.state_dict()
    damage(state)
    with pytest.raises(StateMismatchError, match="damaged"):
        twin.load_state_dict(state)
    assert twin.round == 0


def test_what_is_shown_is_a_copy():
    for domain in ("arms", "box"):
        bandit = bkb(domain)
        play(bandit, 2)
        expected = bandit.state_dict()
        bandit.history.Y.zero_()
        bandit.history.X.zero_()
        bandit.inducing_points.zero_()
        assert torch.equal(bandit.state_dict()["history"]["Y"], expected["history"]["Y"])
        assert torch.equal(bandit.state_dict()["inducing_points"], expected["inducing_points"])


def test_the_model_follows_what_is_told_and_loaded():
    bandit, other = bkb(), bkb()
    bandit.tell(ARMS[:1], 1.0)
    assert bandit.model.num_observations == 1
    bandit.tell(ARMS[1:3], torch.ones(2, dtype=DOUBLE))
    assert bandit.model.num_observations == 3
    assert other.model.num_observations == 0
    other.load_state_dict(bandit.state_dict())
    assert other.model.num_observations == 3


def test_each_round_draws_a_dictionary_of_its_own():
    bandit, drawn = composed(UniformDictionary(3)), []
    bandit.tell(ARMS[:40], reward(ARMS[:40]))
    for _ in range(5):
        bandit.tell(ARMS[:1], 0.0)
        drawn.append(bandit.inducing_points)
    assert len({tuple(points.flatten().tolist()) for points in drawn}) == 5


@pytest.mark.parametrize("domain", ["arms", pytest.param("box", marks=pytest.mark.slow)])
def test_rewards_that_overflow_are_named(domain):
    bandit = bkb(domain)
    bandit.tell(ARMS[:1], 1e300)
    with pytest.raises(NumericalError, match="not finite"):
        bandit.tell(ARMS[:1].expand(30, 2), torch.full((30,), 1e308, dtype=DOUBLE))
    assert bandit.round == 1
    bandit.ask()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBFKernel(ard_num_dims=3), "cannot be evaluated at points of 2 columns"),
        (RBFKernel(active_dims=[5]), "cannot be evaluated at points of 2 columns"),
        (RBFKernel(batch_shape=torch.Size([2])), "Kernels with a batch shape do not fit"),
        (scaled(matern(outputscale=1e200), 1e200), "finite number"),
    ],
)
def test_a_kernel_that_does_not_fit_is_named(kernel, message):
    with pytest.raises(InputError, match=message):
        bkb(kernel=kernel.double())


def test_replay_wants_an_empty_bandit_and_a_whole_history():
    bandit, twin = bkb(), bkb()
    play(bandit, 3)
    history = bandit.history
    with pytest.raises(InputError, match=r"told 3 round"):
        bandit.replay(history)
    with pytest.raises(InputError, match="as many points as rewards"):
        twin.replay(History(history.X, history.Y[:1], history.rounds))
    with pytest.raises(InputError, match="y must be finite"):
        twin.replay(History(history.X, history.Y * torch.tensor([1.0, float("inf"), 1.0]), history.rounds))
    with pytest.raises(InputError, match="must not decrease"):
        twin.replay(History(history.X, history.Y, torch.tensor([0, 1, 0])))
    assert twin.round == 0
    assert twin.history.X.shape == (0, 2)
    twin.replay(history)
    assert torch.equal(twin.ask(), bandit.ask())

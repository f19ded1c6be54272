"""Limits on outcomes: what is played keeps them by dense formulas, and is the best of what does."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, linear, matern, rbf
from scipy.stats import norm

from torch_kbandits import (
    ArmBlocks,
    Arms,
    AtLeast,
    AtMost,
    Bandit,
    Box,
    Categorical,
    Configurations,
    ConstantWidth,
    ContextualActions,
    Float,
    InfeasibleError,
    InputError,
    LearnedPrior,
    Outcome,
    ParameterSpace,
    Prior,
    UnitCube,
    algorithms,
)
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.confidence import SelfNormalizedWidth
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow

ARMS = data(60, 2, 3)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXTS = data(80, 1, 4)[0]
KERNEL, LEVEL = oracles.rbf(0.4), 0.02
HEAT = Outcome("heat", Prior(rbf(0.4), LEVEL))
COOL = torch.tensor([[0.05, 0.05]], dtype=DOUBLE)
SEEDED = torch.cat([COOL, ARMS])


def heat(X):
    """What is limited: it rises with both columns; (q, 2) to (q,)."""
    return 1.6 * X.sum(-1) - 1.2


def reward(X):
    return torch.sin(4.0 * X[..., 0]) + X[..., 1]


def make(candidates, limit, seed=0, **words):
    words = {"kernel": matern(), "regularization": 0.05, "width": ConstantWidth(2.0)} | words
    return Bandit(candidates=candidates, constraints=[limit], seed=seed, **words)


def bounds(X, Y, at, beta):
    """Lower and upper bounds of the outcome by dense formulas, and what rounding may take from them."""
    if not len(X):
        return -beta * np.ones(len(at)), beta * np.ones(len(at)), 1e-12
    K = KERNEL(X.numpy(), X.numpy()) + LEVEL * np.eye(len(X))
    cross, tolerance = KERNEL(at.numpy(), X.numpy()), oracles.rounding(len(X), np.linalg.cond(K))
    mean = cross @ np.linalg.solve(K, Y.numpy())
    deviation = np.sqrt(np.maximum(1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T)), 0.0))
    return mean - beta * deviation, mean + beta * deviation, max(tolerance, 1e-6)


def noisy(values, turn):
    return values + 0.05 * torch.randn(values.shape, generator=torch.Generator().manual_seed(turn), dtype=DOUBLE)


def play(bandit, number, check=None, start=0):
    """Ask and tell; ``check`` sees the history before each play, and the play."""
    for turn in range(start, start + number):
        x = bandit.ask()
        if check is not None:
            check(bandit.history, x)
        bandit.tell(x, noisy(reward(x), turn), outcomes={"heat": noisy(heat(x), 1000 + turn)})
    return bandit


def keeps(limit, safe=True):
    """A check that a play keeps a limit by the dense bounds."""

    def check(history, x):
        column = torch.zeros(0, dtype=DOUBLE) if history.outcomes is None else history.outcomes[:, 0]
        lower, upper, rounding = bounds(history.X, column, x, float(limit.width.value))
        if safe:
            assert bool((x == COOL).all()) or upper[0] <= limit.value + rounding, (x, upper)
        else:
            assert lower[0] <= limit.value + rounding, (x, lower)

    return check


PLACES = {
    "arms": lambda: Arms(SEEDED),
    "actions": lambda: ContextualActions(SEEDED, context_dim=0),
    "box": lambda: Box(BOX),
    "cube": lambda: UnitCube(2),
}
RULES = {
    "upper bound": UpperConfidenceRule(),
    "improvement": ExpectedImprovementRule(),
    "Thompson": ThompsonRule(64),
    "uniform": UniformRule(),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("place", PLACES)
def test_every_play_keeps_the_limit_by_dense_bounds(place, rule, mode):
    limit = AtMost(HEAT, 0.6, mode, beta=2.0, safe_seed=COOL if mode == "safe" else None)
    bandit = make(PLACES[place](), limit, acquisition=RULES[rule])
    play(bandit, 4 if (place, rule) == ("box", "Thompson") else 10, keeps(limit, mode == "safe"))
    if mode == "safe":
        assert len(bandit.history.X.unique(dim=0)) > 1  # more than the seed was played


def test_at_least_is_at_most_turned_round():
    low = Outcome("cold", Prior(rbf(0.4), LEVEL))
    most, least = AtMost(HEAT, 0.6, safe_seed=COOL), AtLeast(low, -0.6, safe_seed=COOL)
    ours, theirs = make(Arms(SEEDED), most), make(Arms(SEEDED), least)
    for turn in range(12):
        x, other = ours.ask(), theirs.ask()
        assert torch.equal(x, other)
        warm = noisy(heat(x), turn)
        ours.tell(x, reward(x), outcomes={"heat": warm})
        theirs.tell(x, reward(x), outcomes={"cold": -warm})


def test_among_hopeful_arms_the_one_of_the_highest_bound_is_played():
    """The law of the optimistic mode: the largest μ + βσ of the reward where the lower bound of the outcome allows."""
    limit = AtMost(HEAT, 0.3, "optimistic", beta=1.0)
    rewards = oracles.matern52(0.5, 1.7)
    num_other = 0

    def check(history, x):
        nonlocal num_other
        if not len(history.X):
            return
        lower, _, rounding = bounds(history.X, history.outcomes[:, 0], SEEDED, 1.0)
        X, K = history.X.numpy(), rewards(history.X.numpy(), history.X.numpy()) + 0.05 * np.eye(len(history.X))
        cross = rewards(SEEDED.numpy(), X)
        mean = cross @ np.linalg.solve(K, history.Y.numpy())
        score = mean + 2.0 * np.sqrt(1.7 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T)))
        mine = score[(x == SEEDED).all(-1).numpy()][0]
        assert mine >= score[lower <= 0.3 - rounding].max() - 1e-6
        num_other += int(score.max() > mine + 1e-6)

    play(make(Arms(SEEDED), limit), 25, check)
    assert num_other > 3  # the limit mattered


@pytest.mark.parametrize("place", PLACES)
def test_ask_maximises_the_acquisition_where_the_limit_allows(place):
    bandit = play(make(PLACES[place](), AtMost(HEAT, 0.4, "optimistic", beta=1.0)), 8)
    for _ in range(2):  # the second time with a point pending
        acquisition, x = bandit.acquisition(), bandit.ask(remember=False)
        values = acquisition(SEEDED.unsqueeze(-2))
        assert bool((values == -torch.inf).any())
        assert bool(values.isfinite().any())
        assert float(acquisition(x.unsqueeze(-2))) >= float(values.max()) - 1e-6
        bandit.ask()


LINE = torch.linspace(0.0, 1.0, 201, dtype=DOUBLE).unsqueeze(-1)
IN_CONTEXTS = {
    "actions": lambda: ContextualActions(LINE, context_dim=1),
    "box": lambda: ContextualActions(bounds=BOX[:, :1], context_dim=1),
    "time": lambda: Arms(ArmBlocks(ARMS.split(20).__getitem__, 3)),
}


@pytest.mark.parametrize("place", IN_CONTEXTS)
def test_in_a_context_improvement_is_over_the_best_that_the_limit_allows_there(place):
    """By dense formulas, where all that was played and what promises the largest reward are too hot."""
    limit, rule, played = (
        AtMost(HEAT, 0.4, "optimistic", beta=1.0),
        ProbabilityOfImprovementRule(0.01),
        1.0 - ARMS[:3] / 2.0,
    )
    c, words, at, memory, kernel = 0, {}, ARMS, BackToPrior(0.02), oracles.in_time(oracles.matern52(0.5, 1.7), 0.02)
    X, T = (torch.cat([torch.full_like(part[:, :1], time), part], -1) for time, part in enumerate((played, at)))
    if place != "time":
        c, words, memory, kernel = 1, {"context": torch.ones(1, dtype=DOUBLE)}, None, oracles.matern52(0.5, 1.7)
        X, T = (torch.cat([torch.ones_like(part), part], -1) for part in (played[:, 1:], LINE))
        at = T
    bandit = make(IN_CONTEXTS[place](), limit, acquisition=rule, memory=memory)
    bandit.tell(played[:, c:], 3.0 * played[:, 1], outcomes={"heat": 3.0 * played[:, 1]}, **words)
    function = bandit.acquisition(**words)
    values, chosen = (function(x.unsqueeze(-2)).detach().numpy() for x in (at[:, c:], bandit.ask(**words)))
    mean, variance = oracles.exact(kernel, *dense(X, 3.0 * played[:, 1]), np.full(3, 0.05), T.numpy())[:2]
    within = np.isfinite(values)
    best = mean[within].max()
    assert best < mean.max() - 0.1
    assert not bool(function(played[:, c:].unsqueeze(-2)).isfinite().any())
    expected = norm.logcdf((mean - best - rule.margin) / np.sqrt(variance))
    # On a box it is the best of 1,024 points that are spread, which a mean of this slope misses by less than 0.01.
    assert np.abs(values - expected)[within].max() < (0.05 if place == "box" else 1e-8)
    assert chosen[0] >= values.max() - (1e-6 if place == "box" else 1e-8)


def test_on_a_line_what_is_asked_for_is_at_the_border_where_more_would_be_better():
    """Before the outcome's prior is fitted only what is known to be safe is played. A search halves its last step."""
    limit = AtMost(Outcome("heat", LearnedPrior(num_initial=9)), 0.6, safe_seed=lambda X: X[:, 0] <= 0.6)
    bandit = make(Box(BOX[:, :1]), limit, kernel=linear())
    X = torch.tensor([[0.2], [0.4]], dtype=DOUBLE)
    bandit.tell(X, X, outcomes={"heat": X[:, 0]})
    assert 0.6 - 1e-6 < float(bandit.ask()) <= 0.6


def test_safe_play_goes_beyond_the_seed_and_finds_what_is_safe_and_best():
    limit = AtMost(HEAT, 0.5, beta=2.0, safe_seed=COOL)
    bandit = play(make(Arms(SEEDED), limit), 60, keeps(limit))
    allowed = heat(SEEDED) <= 0.5
    best = reward(SEEDED)[allowed].max()
    assert float(reward(bandit.recommend())) >= float(best) - 0.25
    assert bool((heat(bandit.history.X) <= 0.5).all())


def test_nothing_to_start_from_is_said_and_nothing_changes():
    bandit = make(Arms(ARMS), AtMost(HEAT, 0.5))
    before = bandit.state_dict()
    with pytest.raises(InfeasibleError, match="Give the limit safe_seed="):
        bandit.ask()
    assert bandit.pending_ids == tuple(before["pending_ids"]) == ()
    bandit.tell(ARMS[:1], reward(ARMS[:1]), outcomes={"heat": [-3.0]})  # a play that was made elsewhere
    x = bandit.ask()
    assert bounds(ARMS[:1], torch.tensor([-3.0], dtype=DOUBLE), x, 3.0)[1][0] <= 0.5 + 1e-9


def test_a_prior_mean_within_the_limit_needs_no_seed():
    bandit = make(Arms(ARMS), AtMost(Outcome("heat", Prior(rbf(0.4, 0.01), LEVEL, -2.0)), 0.5))
    assert len(bandit.ask()) == 1


@pytest.mark.parametrize("place", PLACES)
def test_infeasibility_is_declared_with_its_confidence(place):
    bandit = make(PLACES[place](), AtMost(HEAT, -2.0, "optimistic", beta=2.0))
    X = data(40, 2, 9)[0]
    bandit.tell(X, reward(X), outcomes={"heat": heat(X).abs() + 1.0})
    with pytest.raises(InfeasibleError, match=r"heat, with a confidence of 2 deviations: the problem is infeasible"):
        bandit.ask()
    theory = AtMost(HEAT, -30.0, "optimistic", beta=SelfNormalizedWidth(0.1, 1.0, 0.05))
    bandit = make(Arms(ARMS), theory)
    bandit.tell(X, reward(X), outcomes={"heat": heat(X).abs()})
    with pytest.raises(InfeasibleError, match=r"confidence of probability 0.95"):
        bandit.ask()


def test_a_learned_prior_is_trusted_once_it_was_fitted():
    prior = LearnedPrior(num_initial=5)
    seed = torch.cat([COOL, COOL + 0.1, COOL + 0.2])
    limit = AtMost(Outcome("heat", prior), 0.6, safe_seed=seed)
    bandit = make(Arms(torch.cat([seed, ARMS])), limit)
    play(bandit, 5, lambda _, x: bool((x == seed).all(-1).any()) or pytest.fail("a play beyond the seed"))
    play(bandit, 20, start=5)
    assert not all(bool((x == seed).all(-1).any()) for x in bandit.history.X)


SEEDS = {
    "points": (COOL, True),
    "a region": (Box(torch.tensor([[0.0, 0.0], [0.1, 0.1]], dtype=DOUBLE)), True),
    "a rule": (lambda X: (X < 0.1).all(-1), True),
}


@pytest.mark.parametrize("given", SEEDS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_safe_may_be_said_in_any_form(place, given):
    seed = SEEDS[given][0]
    x = make(PLACES[place](), AtMost(HEAT, 0.5, safe_seed=seed)).ask()
    assert bool((x <= 0.1).all())


def test_a_seed_of_configurations():
    space = ParameterSpace({"power": Float(0.0, 1.0), "mode": Categorical(["slow", "fast"])})
    known = {"power": 0.1, "mode": "slow"}
    bandit = make(Configurations(space), AtMost(HEAT, 0.5, safe_seed=[known]), kernel=rbf())
    (asked,) = bandit.ask()
    assert asked["mode"] == "slow"
    assert asked["power"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"outcome": 3, "value": 1.0}, "outcome must be a name"),
        ({"outcome": "heat", "value": float("nan")}, "value"),
        ({"outcome": "heat", "value": 1.0, "mode": "sfae"}, "mode"),
        ({"outcome": "heat", "value": 1.0, "beta": -1.0}, "must be"),
        ({"outcome": "heat", "value": 1.0, "mode": "optimistic", "safe_seed": COOL}, "leave it out"),
    ],
)
def test_what_is_no_limit_is_refused(words, says):
    with pytest.raises(InputError, match=says):
        AtMost(**words)


@pytest.mark.parametrize("seed", [torch.zeros(1, 3, dtype=DOUBLE), torch.zeros(0, 2, dtype=DOUBLE), "cold", [1.0]])
def test_a_seed_that_does_not_fit_is_refused(seed):
    with pytest.raises(InputError, match="safe_seed"):
        make(Arms(ARMS), AtMost(HEAT, 0.5, safe_seed=seed))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bounds_too", [False, True], ids=["actions", "a box"])
@pytest.mark.parametrize("memory", [None, SlidingWindow(20.0), Discount(0.9), BackToPrior(0.02)], ids=repr)
def test_limits_in_contexts_and_in_time(bounds_too, memory):
    """The bounds are those of the outcome's model, in the context and at the time of the play."""
    actions = torch.linspace(0.0, 1.0, 15, dtype=DOUBLE).unsqueeze(-1)
    where = {"bounds": BOX[:, :1]} if bounds_too else {"actions": actions}
    limit = AtMost(HEAT, 0.7, beta=2.0, safe_seed=actions[:1])
    bandit = make(ContextualActions(context_dim=1, **where), limit, memory=memory)
    for turn in range(20):
        context = CONTEXTS[turn]
        x = bandit.ask(context=context)
        model = bandit.outcome_model("heat")
        point = bandit.candidates.points(x, context, bandit.now)
        posterior = model.posterior(point)
        upper = float(posterior.mean + 2.0 * posterior.variance.sqrt())
        assert upper <= 0.7 + 1e-5 or bool((x == 0.0).all())
        joint = torch.cat([context, x[0]])
        bandit.tell(x, reward(joint), context=context, outcomes={"heat": noisy(heat(joint), turn)})
    assert not bool((bandit.candidates.actions(bandit.history.X) == 0.0).all())
    assert len(bandit.recommend(context=CONTEXTS[30])) == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sup-kernel-ucb", "pe-gp-ucb", "lb-gp-ucb", "hp-gp-ts", "bbkb", "mini-gp-ucb"])
def test_limits_under_algorithms_that_choose_in_their_own_way(name):
    words = {"horizon": 20} if name == "sup-kernel-ucb" else {}
    takes = algorithms.registry.signature(name).parameters
    words |= {"beta": 2.0} if "beta" in takes else {"noise_scale": 0.1, "norm_bound": 1.0}
    limit = AtMost(HEAT, 0.6, beta=2.0, safe_seed=COOL)
    bandit = algorithms.build(
        name, candidates=SEEDED, kernel=matern(), regularization=0.05, seed=0, constraints=[limit], **words
    )
    play(bandit, 10, keeps(limit))


def test_several_points_are_each_safe_by_what_was_told():
    limit = AtMost(HEAT, 0.6, beta=2.0, safe_seed=COOL)
    bandit = play(make(Arms(SEEDED), limit), 6)
    for x in bandit.ask(5).split(1):
        keeps(limit)(bandit.history, x)


def test_both_kinds_of_limits_at_once():
    most, least = AtMost(HEAT, 0.6, beta=2.0, safe_seed=COOL), AtLeast("heat", -0.9, "optimistic")
    bandit = Bandit(
        candidates=Arms(SEEDED), kernel=matern(), regularization=0.05, width=ConstantWidth(2.0), seed=0,
        constraints=[most, least],
    )  # fmt: skip

    def check(history, x):
        keeps(most)(history, x)
        if history.outcomes is not None and len(history.X):
            assert bounds(history.X, history.outcomes[:, 0], x, 2.0)[1][0] >= -0.9 - 1e-6

    play(bandit, 12, check)


def test_what_is_recommended_keeps_the_limit_by_its_mean():
    bandit = play(make(Arms(SEEDED), AtMost(HEAT, 0.2, "optimistic", beta=1.0)), 25)
    best = bandit.recommend()
    assert float(bandit.outcome_model("heat").posterior(best).mean) <= 0.2 + 1e-9
    means = bandit.model.posterior(bandit.history.X).mean.flatten()
    assert float(bandit.model.posterior(best).mean) < float(means.max())  # another was better and too hot


def test_nothing_played_that_keeps_the_limit_is_said():
    bandit = make(Arms(SEEDED), AtMost(HEAT, -5.0, "optimistic", beta=9.0))
    bandit.tell(SEEDED[:2], reward(SEEDED[:2]), outcomes={"heat": heat(SEEDED[:2])})
    with pytest.raises(InfeasibleError, match="of the points played none is within the limits on heat"):
        bandit.recommend()


def test_a_region_is_the_same_whatever_the_default_dtype():
    """So a saved bandit can be loaded where another default is set."""
    limit, states = AtMost(HEAT, 0.5, safe_seed=SEEDS["a region"][0]), []
    for dtype in (torch.float32, DOUBLE):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            states.append(make(Arms(ARMS), limit).state_dict()["config"])
        finally:
            torch.set_default_dtype(before)
    assert states[0] == states[1]

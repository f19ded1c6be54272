"""A prior that is learned goes with everything, and its bandit stays a function of its history and of nothing else."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.means import Mean
from gpytorch.priors import LogNormalPrior
from problems import DOUBLE, believed, data, difference, rbf
from product import ARMS, DICTIONARIES, MEMORIES, Combination, Loop

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.algorithms.registry import signature
from torch_kbandits.bandit import GlobalBatchRule
from torch_kbandits.bandit.adaptation import ResidualTrigger
from torch_kbandits.memory import Discount, LinearGrowth, Restart, SlidingWindow, TemporalPrior, UncertaintyInjection
from torch_kbandits.priors import default_kernel

#: LinUCB and its relative have kernels of their own, a family kernels that are given, and SparQ needs λ.
FAMILIES = ("lb-gp-ucb", "pe-gp-ucb", "pe-gp-ts", "hp-gp-ts")
WITHOUT = ("lin-ucb", "shared-lin-ucb", "sparq-gp-ucb", "w-sparq-gp-ucb", *FAMILIES)
NAMES = [name for name in algorithms.names() if name not in WITHOUT]


def learning(space="arms", memory="none"):
    return Combination(space, "learned", "none", memory, "upper bound", "none", "constant")


def learner(prior, memory=None, candidates=None, **words):
    words = {"width": kb.ConstantWidth(1.5), "seed": 0} | words
    return kb.Bandit(candidates=candidates or kb.Arms(ARMS), prior=prior, memory=memory, **words)


def bandit_of(combination, folder, **words):
    """A bandit that learns its prior from six rewards on."""
    prior = kb.LearnedPrior(**{"num_initial": 6} | words)
    return learner(prior, MEMORIES[combination.memory], combination.where.make(folder))


def wavy(x):
    """A reward between 0 and 2 for each point, (q,)."""
    return 1.0 + torch.sin(5.0 * x[:, -1]) * torch.cos(3.0 * x[:, 0])


def played(bandit, combination, rounds, factor=1.0, shift=0.0, start=0):
    """Play some rounds and return what was played, (rounds, d)."""
    loop, chosen = Loop(combination, bandit, start), []
    for _ in range(rounds):
        loop.turn += 1
        x = bandit.ask(**loop.words())
        bandit.tell(x, factor * wavy(x) + shift, **loop.context())
        chosen.append(x)
    return torch.cat(chosen)


@pytest.mark.one_in(12)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("factor", "shift"), [(1e6, -3e7), (2.0**-20, 0.0)])
@pytest.mark.parametrize("memory", ["none", "discount", "prior on time"])
@pytest.mark.parametrize("space", ["arms", "actions in a context"])
def test_units_of_rewards_change_no_choice(space, memory, factor, shift, tmp_path):
    it = learning(space, memory=memory)
    ours = played(bandit_of(it, tmp_path), it, 14)
    assert torch.equal(ours, played(bandit_of(it, tmp_path), it, 14, factor, shift))


@pytest.mark.one_in(10)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("memory", ["none", "window of observations", "discount", "prior on time"])
@pytest.mark.parametrize("space", ["arms", "many arms", "box", "actions in a context", "arms in a file"])
def test_the_posterior_is_that_of_the_prior_in_force(space, memory, tmp_path):
    it = learning(space, memory=memory)
    ours = bandit_of(it, tmp_path)
    played(ours, it, 13)
    theirs = learner(ours.prior, MEMORIES[memory], it.where.make(tmp_path), seed=1)
    theirs.replay(ours.history)
    probes = data(7, ours.candidates.example.shape[-1], 3)[0]
    scale = float(ours.prior.kernel(probes[:1, -2:]).to_dense())
    for mine, other in zip(believed(ours, probes), believed(theirs, probes), strict=True):
        assert difference(mine, other) < 1e-7 * max(scale, 1.0)
    assert theirs.prior.mean == ours.prior.mean


def test_what_is_fitted_is_what_fit_prior_finds(tmp_path):
    it, kernel = learning("arms"), default_kernel(2)  # which sees points as they are
    ours = bandit_of(it, tmp_path, kernel=kernel)
    played(ours, it, 6)
    X, Y = ours.history.X, ours.history.Y
    expected = kb.fit_prior(X, Y, kernel, seed=3)
    assert ours.prior.mean == pytest.approx(expected.mean)
    assert ours.regularization == pytest.approx(expected.regularization, rel=1e-3)
    assert difference(ours.prior.kernel(X).to_dense(), expected.kernel(X).to_dense()) < 1e-3 * float(Y.var())


@pytest.mark.usefixtures("short_fits")
def test_fits_are_made_at_numbers_that_grow(tmp_path):
    it, numbers = learning("arms"), []
    ours = bandit_of(it, tmp_path, num_initial=8)
    for number in range(1, 41):
        before = ours.prior.kernel.base_kernel.lengthscale
        played(ours, it, 1, start=number)
        if not torch.equal(ours.prior.kernel.base_kernel.lengthscale, before):
            numbers.append(number)
    assert numbers == [8, 9, 10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37]


def test_a_state_is_refused_where_other_parameters_of_the_kernel_are_free():
    scale, length = "raw_outputscale", "base_kernel.raw_lengthscale"

    def bandit(known):
        kernel = default_kernel(2)
        for name, parameter in kernel.named_parameters():
            parameter.requires_grad_(name not in known)
        return learner(kb.LearnedPrior(kernel))

    for saved, here, said in (
        ([scale], [], f"prior.kernel.{scale}.requires_grad: saved False, here True"),
        ([], [length], f"prior.kernel.{length}.requires_grad: saved True, here False"),
    ):
        state = bandit(saved).state_dict()
        bandit(saved).load_state_dict(state)
        with pytest.raises(kb.StateMismatchError, match=said):
            bandit(here).load_state_dict(state)


@pytest.mark.one_in(9)
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    "words",
    [
        {},
        {"memory": SlidingWindow(3.0)},  # too few for a fit, always
        {"memory": SlidingWindow(9.0)},
        {"memory": Restart(8.0)},
        {"memory": TemporalPrior(0.1), "learn_memory": True},
        {"memory": Discount(0.7), "learn_memory": True, "dictionary": DICTIONARIES["kors"]},
        {"memory": UncertaintyInjection(LinearGrowth(0.01), 0.5)},
        {"trigger": ResidualTrigger()},
        {"batches": GlobalBatchRule(1.5)},
    ],
    ids=str,
)
def test_a_replay_makes_the_same_fits(words, monkeypatch):
    fits, own = [], kb.LearnedPrior.fitted
    monkeypatch.setattr(kb.LearnedPrior, "fitted", lambda *args, **rest: (fits.append(1), own(*args, **rest))[1])
    prior = kb.LearnedPrior(num_initial=6, learn_memory=words.get("learn_memory", False))
    words = {name: word for name, word in words.items() if name != "learn_memory"}
    ours, replayed = (learner(prior, **words) for _ in range(2))
    for _ in range(14):
        x = ours.ask()
        ours.tell(x, wavy(x))
    made = len(fits)
    replayed.replay(ours.history)
    assert made > 4
    assert len(fits) == 2 * made
    known = replayed.state_dict()
    assert str(known) == str(ours.state_dict() | {name: known[name] for name in ("num_asked", "clock", "checksum")})
    assert torch.equal(replayed.ask(3), ours.ask(3))


# ---------------------------------------------------------------- the first points


@pytest.mark.parametrize("number", [100, 2_500, 62_208])
def test_the_first_points_of_an_ordered_list_are_far_apart(number):
    """Of 10 of a list none is closer to another than a quarter of what a lattice of 10 leaves."""
    prices = torch.linspace(0.0, 1.0, number, dtype=DOUBLE).unsqueeze(-1)
    for seed in range(20):
        bandit = algorithms.GPUCB(candidates=prices, prior=kb.LearnedPrior(), seed=seed)
        first = bandit.ask(10).flatten().sort().values
        assert first.diff().min() > 0.025


@pytest.mark.usefixtures("short_searches")
def test_until_a_fit_points_are_spread_and_no_function_is_maximised(tmp_path):
    it = learning("arms")
    assert len(played(bandit_of(it, tmp_path, num_initial=20), it, 20).unique(dim=0)) == len(ARMS)
    box = torch.tensor([[0.0, 10.0], [2.0, 20.0]], dtype=DOUBLE)
    ours = learner(kb.LearnedPrior(num_initial=4), candidates=kb.Box(box))
    first = ours.ask(4)
    quarters = ((first - box[0]) / (box[1] - box[0]) * 2.0).floor()
    assert len(quarters[:, 0].unique()) == len(quarters[:, 1].unique()) == 2
    with pytest.raises(kb.InputError, match="until a prior is fitted"):
        ours.acquisition()
    ours.tell(first, wavy(first))
    x = ours.ask(remember=False)
    assert float(ours.acquisition()(x)) >= float(ours.acquisition()(first.unsqueeze(1)).max()) - 1e-9


# ---------------------------------------------------------------- what is known stays


def fixed(kernel):
    return kernel.requires_grad_(False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_a_kernel_of_which_nothing_is_free_is_in_reward_units(factor, tmp_path):
    it, kernel = learning("arms"), fixed(rbf(0.3, factor**2))
    ours = bandit_of(it, tmp_path, kernel=kernel)
    played(ours, it, 14, factor)
    assert torch.equal(ours.prior.kernel(ARMS).to_dense(), kernel(ARMS).to_dense())
    # λ and the mean are what makes the rewards most probable under that kernel, λ with its prior in units of theirs.
    X, Y = ours.history.X[:13], ours.history.Y[:13]
    assert ours.prior.mean == pytest.approx(float(Y.mean()))

    def density(level):
        K = oracles.rbf(0.3, factor**2)(X.numpy(), X.numpy()) + level * np.eye(len(X))
        own = LogNormalPrior(-4.0, 1.0).log_prob(torch.tensor(level / float(Y.var()), dtype=DOUBLE))
        return oracles.log_density((Y - Y.mean()).numpy(), K) + float(own)

    least = torch.linspace(-12.0, 2.0, 281, dtype=DOUBLE).exp() * factor**2
    best = max(least.tolist(), key=density)
    assert ours.regularization == pytest.approx(best, rel=0.06)


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("memory", [TemporalPrior(0.3), Discount(0.6), SlidingWindow(9)])
@pytest.mark.parametrize("mean", [0.0, 50.0])
def test_where_only_the_number_of_a_memory_is_unknown_the_prior_is_played_from_the_first_round(memory, mean):
    """As a bandit that is given all of it, until a fit; then as one that is given the memory fitted."""
    kernel = fixed(rbf(0.3, 100.0))
    prior, given = kb.LearnedPrior(kernel, 4.0, mean, learn_memory=True, num_initial=6), kb.Prior(kernel, 4.0, mean)
    ours, theirs = learner(prior, memory), learner(given, memory)
    assert torch.equal(ours.ask(3, remember=False), theirs.ask(3, remember=False))
    for number in range(6):
        assert ours.memory == memory
        x = ours.ask()
        assert torch.equal(x, theirs.ask())
        assert torch.equal(ours.acquisition()(x), theirs.acquisition()(x))
        for bandit in (ours, theirs):
            bandit.tell(x, mean + 20.0 * wavy(x) * (-1.0) ** (number // 3))
    assert ours.memory != memory
    assert type(ours.memory) is type(memory)
    assert (ours.regularization, ours.prior.mean, ours.prior.floor) == (4.0, mean, -math.inf)
    assert torch.equal(ours.prior.kernel(ARMS).to_dense(), kernel(ARMS).to_dense())
    again = learner(given, ours.memory)
    again.replay(ours.history)
    probes = data(7, 2, 3)[0]
    probes = probes if ours.candidates.example.shape[-1] == 2 else torch.cat([probes[:, :1] + 6.0, probes], dim=-1)
    for mine, its in zip(believed(ours, probes), believed(again, probes), strict=True):
        assert difference(mine, its) < 1e-8 * 100.0


def profile_of(points):
    return -40.0 * (points - ARMS[5]).square().sum(-1)


class Profile(Mean):
    def forward(self, x):
        return profile_of(x)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.1)], ids=["no memory", "prior on time"])
@pytest.mark.parametrize("mean", [profile_of, profile_of(ARMS), Profile()], ids=["function", "values", "module"])
def test_a_mean_that_says_where_to_look_is_heard_from_the_first_round_on(mean, memory):
    """Where it is right, the best arm is played first, and none of the worst half among the first ten."""
    ours = learner(kb.LearnedPrior(mean=mean), memory, width=kb.ConstantWidth(1.0))
    values, ranks = profile_of(ARMS), []
    for _ in range(10):
        x = ours.ask()
        ranks.append(int((values > profile_of(x)).sum()))
        ours.tell(x, profile_of(x))
    assert ranks[0] == 0
    assert max(ranks) < len(ARMS) // 2


def test_a_prior_is_given_once():
    for words, message in (
        ({"prior": kb.LearnedPrior(), "kernel": rbf()}, "either prior or kernel"),
        ({"prior": kb.Prior(rbf(), 0.1), "mean": 2.0, "regularization": 0.1}, "regularization and mean"),
        ({"prior": None}, r"kernel and regularization must be given, or prior=LearnedPrior\(\)"),
        ({"prior": None, "kernel": rbf()}, "^regularization must be given"),
        ({"prior": rbf()}, "prior must be a Prior or a LearnedPrior"),
        ({"prior": kb.LearnedPrior(learn_memory=True)}, "and this one has none"),
    ):
        with pytest.raises(kb.InputError, match=message):
            learner(**words)


@pytest.mark.one_in(13)
@pytest.mark.filterwarnings("ignore:Takeno:torch_kbandits.TheoryWarning")
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_takes_it(name):
    needed = {"horizon": 30, "period": 9, "window": 9, "growth": LinearGrowth(0.1)}
    taken = signature(name).parameters
    words = {word: value for word, value in needed.items() if word in taken}
    bandit = algorithms.build(name, candidates=kb.Arms(ARMS), prior=kb.LearnedPrior(num_initial=4), seed=0, **words)
    for _ in range(9):
        x = bandit.ask()
        bandit.tell(x, 300.0 + 20.0 * wavy(x))
    assert 290.0 < bandit.prior.mean < 350.0
    assert math.isfinite(float(bandit.beta))
    assert len(bandit.recommend()) == 1


# ---------------------------------------------------------------- columns of which something is known

VISITS = kb.ColumnSpec([kb.Number("hour", 0, 24), kb.Category("device", ["phone", "tablet", "desktop"], other=True)])
OFFERS = kb.ColumnSpec([kb.Category("banner", ["plain", "bold"]), kb.Number("price", 5, 80, log=True)])
SPACE = kb.ParameterSpace({"colour": kb.Categorical(["red", "green", "blue"]), "size": kb.Float(0.0, 1.0)})
DEVICES = ["device=phone", "device=tablet", "device=desktop"]
BANNERS = ["banner=plain", "banner=bold"]


def test_candidates_know_what_their_columns_are():
    offered, colours = kb.ContextualActions, ["colour 1", "colour 2", "colour 3"]
    visits, offers = {"context_columns": VISITS}, {"action_columns": OFFERS}
    for candidates, groups, names in (
        (offered(action_dim=2, context_dim=1), None, None),
        (offered(action_dim=2, **visits), [0, 1, 1, 1, 2, 3], ["hour", *DEVICES, "", ""]),
        (offered(**offers, context_dim=2), [0, 1, 2, 2, 3], ["", "", *BANNERS, "price"]),
        (offered(**offers, **visits), [0, 1, 1, 1, 2, 2, 3], ["hour", *DEVICES, *BANNERS, "price"]),
        (kb.Configurations(SPACE), [0, 0, 0, 1], [*colours, "size"]),
        (kb.Configurations(SPACE, **visits), [0, 1, 1, 1, 2, 2, 2, 3], ["hour", *DEVICES, *colours, "size"]),
        (kb.Configurations(SPACE, context_dim=1), [0, 1, 1, 1, 2], ["", *colours, "size"]),
    ):
        assert candidates.groups == groups
        assert candidates.names == names


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.01)])
def test_a_category_of_contexts_has_one_length_scale(memory):
    """Also where points know the time for the sake of a memory."""
    offers = kb.ContextualActions([{"banner": "plain", "price": 9}], context_columns=VISITS, action_columns=OFFERS)
    bandit = learner(kb.LearnedPrior(num_initial=4), memory, offers)
    for hour, device in enumerate(["phone", "tablet", "desktop", "tv"]):
        bandit.tell([{"banner": "bold", "price": 10 + hour}], 0.1 * hour**2, context={"hour": hour, "device": device})
    of_contexts, of_actions = bandit.prior.kernel.base_kernel.base_kernel.kernels
    near = of_contexts.kernels[1].base_kernel
    assert near.groups == (0, 1, 1, 1)
    assert near.lengthscale.shape == of_actions.lengthscale.shape == (1, 2)
    assert of_actions.groups == (0, 0, 1)


@pytest.mark.parametrize("is_noisy", [True, False])
def test_the_noise_of_rewards_of_0_and_1_is_bernoullis_where_they_are_drawn_and_small_where_labels_say_them(is_noisy):
    """λ of draws is within a third of the mean of p (1 − p); of what contexts decide it is less than a third of it."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn(120, 2, generator=generator, dtype=DOUBLE)
    actions = torch.randint(2, (120,), generator=generator)
    which = contexts.argmax(-1) == actions
    probabilities = 0.2 + 0.4 * which if is_noisy else which.to(DOUBLE)
    Y = (torch.rand(120, generator=generator, dtype=DOUBLE) < probabilities).to(DOUBLE)
    bandit = kb.algorithms.KUCB(
        candidates=torch.eye(2, dtype=DOUBLE), context_dim=2, prior=kb.LearnedPrior(num_initial=120), seed=0
    )
    bandit.tell(torch.eye(2, dtype=DOUBLE)[actions], Y, context=contexts)
    expected = float((probabilities * (1.0 - probabilities)).mean()) if is_noisy else 0.0
    share = bandit.prior.regularization / (expected or float(Y.var()))
    assert (2 / 3 < share < 4 / 3) if is_noisy else share < 1 / 3


def test_a_warning_has_the_name_of_the_column():
    """Of kinds of things that are numbered as if they were near each other."""
    generator = torch.Generator().manual_seed(0)
    effects = (1.0 + torch.rand(25, generator=generator, dtype=DOUBLE)) * torch.tensor([1.0, -1.0]).repeat(13)[:25]
    spec = kb.ColumnSpec([kb.Number("hour", 0, 24), kb.Number("shop", 0, 24)])
    offers = kb.ContextualActions(torch.rand(9, 1, dtype=DOUBLE), context_columns=spec)
    shops = torch.randint(25, (60,), generator=generator).tolist()
    rows = [{"hour": 24.0 * number / 60.0, "shop": shop} for number, shop in enumerate(shops)]
    X = torch.rand(60, 1, generator=generator, dtype=DOUBLE)
    y = X.squeeze(-1) + effects[shops] + 0.2 * torch.randn(60, generator=generator, dtype=DOUBLE)
    with pytest.warns(kb.KernelBanditWarning, match=r"of column 'shop' \(1 from 0\) is short"):
        learner(kb.LearnedPrior(), candidates=offers).tell(X, y, context=spec.encode(rows))

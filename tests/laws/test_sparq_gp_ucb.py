"""SparQ- and W-SparQ-GP-UCB against dense formulas; what becomes of answers, failures and repeated questions."""

import math

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.errors import ExpertWarning
from torch_kbandits.memory import UncertaintyInjection

LAMBDA, LENGTH, BETA = 0.04, 0.3, 1.5
ARMS = data(40, 2, seed=5)[0]
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def moving(X, time):
    """A wave (q,) that moves with the round."""
    return torch.sin(5.0 * X[:, :2] + 0.2 * time).sum(-1)


class Oracle:
    """Answers with the wave and a noise that no two calls share; keeps what it was asked."""

    def __init__(self):
        self.asked, self.generator = [], torch.Generator().manual_seed(1)

    def __call__(self, X, time):
        Y = moving(X, time) + 0.1 * torch.randn(len(X), generator=self.generator, dtype=DOUBLE).to(X)
        self.asked.append((X.clone(), time, Y))
        return Y, 0.01


def make(expert, candidates=ARMS, **settings):
    words = {"kernel": rbf(LENGTH), "regularization": LAMBDA, "beta": BETA, "seed": 2} | settings
    return algorithms.SparQGPUCB(expert=expert, candidates=candidates, **words)


def play(bandit, rounds):
    return bandit.run(lambda x: moving(x, bandit.round), rounds)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("arms", ["scattered", "twice", "nearly on a line"])
@pytest.mark.parametrize("cutoff", ["log", 30.0])
def test_a_round_is_that_of_the_dense_formulas(arms, cutoff):
    X = {
        "scattered": ARMS,
        "twice": torch.cat([ARMS[:15], ARMS[:15]]),
        "nearly on a line": torch.linspace(0.0, 1.0, 30, dtype=DOUBLE)[:, None] * torch.tensor([1.0, 1.0 + 1e-9]),
    }[arms].to(DOUBLE)
    kernel, expert = oracles.rbf(LENGTH), Oracle()
    words = {"questions": 2.0} | ({} if cutoff == "log" else {"cutoff": cutoff})
    bandit = make(expert, X, beta=None, norm_bound=1.3, failure_probability=0.2, **words)
    played, rewards = np.zeros((0, 2)), np.zeros(0)
    for t in range(1, 11):  # from the 8th on ln t lets one reward count
        before = len(expert.asked)
        x = bandit.ask()
        asked, answered = np.zeros((0, 2)), np.zeros(0)
        if t > 1:
            assert len(expert.asked) == before + 1
            asked, answered = dense(expert.asked[-1][0], expert.asked[-1][2])
            assert expert.asked[-1][1] == t - 1
        noise = LAMBDA * (np.arange(len(rewards), 0, -1.0) ** 2 + 1.0)
        counts = noise <= LAMBDA * (math.log(t) if cutoff == "log" else cutoff)
        known, values = np.concatenate([asked, played[counts]]), np.concatenate([answered, rewards[counts]])
        noises = np.concatenate([np.full(len(asked), 0.01), noise[counts]])
        expected = oracles.exact(kernel, known, values, noises, X.numpy())
        posterior = bandit.model.posterior(X.unsqueeze(-2))
        assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
        assert difference(posterior.variance.flatten(), np.maximum(expected.variance, 1e-10)) < expected.rounding
        gain = 0.5 * np.linalg.slogdet(np.eye(len(known)) + kernel(known, known) / noises[:, None])[1]
        beta = 1.3 + math.sqrt(2.0 * gain + 2.0 * math.log(2.0 / 0.2))
        assert float(bandit.beta) == pytest.approx(beta, abs=1e-8)
        scores = expected.mean + beta * np.sqrt(np.maximum(expected.variance, 0.0))
        chosen = int((x == X).all(-1).nonzero()[0])
        assert scores[chosen] > scores.max() - 2.0 * expected.upper_rounding(beta)
        bandit.tell(x, y := moving(x, t))
        played, rewards = np.concatenate([played, x.numpy()]), np.concatenate([rewards, y.numpy()])
    assert len(expert.asked) == 9


def test_questions_are_distinct_past_inputs_as_many_as_the_theorem_says():
    for t in (2, 9, 19, 20, 29):
        expert, past = Oracle(), ARMS[torch.arange(t - 1) % 25]
        bandit = make(expert)
        bandit.replay(kb.History(past, moving(past, 0), torch.arange(t - 1), times=torch.arange(t - 1, dtype=DOUBLE)))
        bandit.ask()
        asked = expert.asked[0][0]
        assert len(asked.unique(dim=0)) == len(asked) == min(math.ceil(6.0 * math.log(t)), t - 1, 25)
        assert all((past == row).all(-1).any() for row in asked)
    few = Oracle()
    play(make(few, questions=lambda t: 2 if t % 3 == 0 else 0), 6)
    assert [time for _, time, _ in few.asked] == [2, 5]
    assert len(few.asked[1][0]) == 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("variance", [0.0, 1e-12])
def test_answers_without_noise_are_believed_and_break_nothing(variance):
    bandit = make(lambda X, time: (moving(X, time), variance))
    play(bandit, 9)
    bandit.ask()
    X = bandit.inducing_points[:3]
    assert difference(bandit.model.posterior(X.unsqueeze(-2)).mean.flatten(), moving(X, 9)) < 1e-4


def test_answers_that_add_up_to_too_much_are_refused_by_name():
    """Warnings are errors in these tests, so no overflow may be said in another way."""
    bandit = make(lambda X, time: (torch.full((len(X),), 1e305, dtype=DOUBLE), 1e-9 * LAMBDA))
    for number in range(3):
        bandit.tell(ARMS[number : number + 1], 0.5)
    told = str(bandit.history)
    with pytest.raises(kb.NumericalError, match="not finite"):
        bandit.ask()
    assert str(bandit.history) == told
    assert bandit.num_asked == 0


def failing(X, time):
    raise RuntimeError("the simulator is down")


def pair(expert, growth, limit, candidates):
    """A bandit with an expert, and uncertainty injection with a cut-off, which it is without one."""
    words = {"kernel": rbf(LENGTH), "regularization": LAMBDA, "width": kb.ConstantWidth(BETA), "seed": 2}
    plain = kb.Bandit(candidates=candidates, memory=UncertaintyInjection(growth, max_variance=limit * LAMBDA), **words)
    return make(expert, candidates, growth=growth, cutoff=limit), plain


@pytest.mark.one_in(2)
@pytest.mark.parametrize("growth", [kb.QuadraticGrowth(1.0), kb.LinearGrowth(0.01)])
def test_an_expert_that_always_fails_leaves_uncertainty_injection_with_a_cut_off(growth):
    bandit, plain = pair(failing, growth, 20.0, kb.Arms(ARMS))
    with pytest.warns(ExpertWarning, match="raised RuntimeError: the simulator is down") as said:
        ours = play(bandit, 9)
    assert len(said) == 1
    assert torch.equal(ours, play(plain, 9))
    assert float(bandit.beta) == float(plain.beta)
    assert difference(bandit.model.posterior(ARMS).mean, plain.model.posterior(ARMS).mean) < 1e-10
    assert bandit.expert.num_failures == 8


@pytest.mark.usefixtures("short_searches")
def test_an_expert_that_is_late_is_not_asked_again_in_its_round_and_leaves_the_same_on_a_box_and_with_contexts():
    calls = []
    bandit, plain = pair(lambda X, time: calls.append(time), kb.QuadraticGrowth(1.0), 6.0, kb.Box(BOUNDS))
    assert difference(play(bandit, 4), play(plain, 4)) < 1e-3  # the third last reward counts no longer
    for _ in range(3):
        bandit.ask()
    assert calls == [1, 2, 3, 4]
    assert bandit.expert.num_late == 4
    bandits = pair(lambda X, time: None, kb.QuadraticGrowth(1.0), 6.0, kb.ContextualActions(ARMS[:, :1], context_dim=1))
    for t in range(6):
        context = torch.tensor([0.1 * (t % 4)], dtype=DOUBLE)
        x, y = (each.ask(context=context) for each in bandits)
        assert torch.equal(x, y)
        for each in bandits:
            each.tell(x, float(x.sum()), context=context)


def test_the_expert_is_asked_once_a_round():
    bandit = make(expert := Oracle())
    play(bandit, 6)
    looked = bandit.ask(4, remember=False)
    acquisition = bandit.acquisition()
    bandit.recommend()
    first = bandit.ask(2)
    assert difference(acquisition(ARMS.unsqueeze(-2)).max(), acquisition(looked[:1].unsqueeze(0)).max()) < 1e-9
    assert torch.equal(torch.cat([first, bandit.ask(2)]), looked)
    bandit.tell(looked, moving(looked, 6))
    assert [time for _, time, _ in expert.asked] == [1, 2, 3, 4, 5, 6]
    bandit.ask()
    assert expert.asked[-1][1] == 7


def test_times_are_passed_on_and_each_is_asked_about_once():
    """Also by a saved and loaded bandit, whose expert may not be asked."""
    bandit, loaded = make(expert := Oracle()), make(pytest.fail)
    for t in (0.5, 2.0, 2.0, 7.25):
        bandit.tell(bandit.ask(time=t), 0.1)
    later = bandit.ask(time=9.0, remember=False)
    sooner = bandit.ask(time=8.0, remember=False)
    assert torch.equal(bandit.ask(time=9.0, remember=False), later)
    assert torch.equal(bandit.ask(time=8.0), sooner)
    x = bandit.ask(time=9.0)
    loaded.load_state_dict(bandit.state_dict())
    loaded.forget(ids=loaded.pending_ids[-1])
    assert torch.equal(loaded.ask(time=9.0), x)
    assert [time for _, time, _ in expert.asked] == [2.0, 2.0, 7.25, 9.0, 8.0]
    with pytest.raises(kb.InputError, match="Time must not go backwards"):
        bandit.ask(time=1.0)


def test_answers_are_no_rewards_and_a_restart_forgets_them_and_the_inputs():
    expert = Oracle()
    bandit = make(expert)
    played = play(bandit, 8)
    x = bandit.ask()
    assert torch.equal(bandit.history.X, played)
    assert bandit.model.num_observations > 1  # λ ln 9 lets one reward count
    bandit.tell(x, 0.0)
    assert bandit.model.num_observations == 1
    assert torch.equal(bandit.inducing_points, x)
    bandit.ask()
    calls = len(expert.asked)
    bandit.restart()
    bandit.forget()
    bandit.ask()
    assert len(expert.asked) == calls
    assert bandit.model.num_observations == 0
    bandit.forget()
    play(bandit, 3)
    assert len(expert.asked[-1][0]) == 2


def test_with_contexts_the_expert_is_asked_about_joint_points():
    bandit = make(expert := Oracle(), kb.ContextualActions(ARMS[:, :1], context_dim=1))
    for t in range(8):
        context = torch.tensor([0.25 * (t % 3)], dtype=DOUBLE)
        bandit.tell(bandit.ask(context=context), 0.2, context=context)
    assert all((row == bandit.history.X).all(-1).any() for X, _, _ in expert.asked for row in X)
    assert len(expert.asked) == 7


def test_a_budget_is_never_exceeded():
    bandit, none = make(expert := Oracle(), max_questions=17), make(failing, max_questions=0)
    with pytest.warns(ExpertWarning, match="All 17 questions") as said:
        play(bandit, 9)
    assert sum(len(X) for X, _, _ in expert.asked) == bandit.expert.num_questions == 17
    assert len(said) == 1
    with pytest.warns(ExpertWarning, match="All 0 questions"):
        play(none, 4)
    assert none.expert.counts() == {"num_questions": 0, "num_failures": 0, "num_late": 0}


def test_a_failure_costs_the_answers_of_its_round_and_an_interrupt_leaves_the_bandit_as_it_was():
    expert, sizes, stop = Oracle(), [], []

    def moody(X, time):
        if stop:
            raise KeyboardInterrupt
        return (torch.full((len(X),), torch.nan), 0.1) if time == 6 else expert(X, time)

    def pull(x):
        sizes.append(bandit.model.num_observations)
        return moving(x, bandit.round)

    bandit = make(moody)
    with pytest.warns(ExpertWarning, match="must be finite") as said:
        bandit.run(pull, 9)
    assert len(said) == 1
    assert sizes[6] == 0
    assert min(sizes[3:6] + sizes[7:]) > 1
    assert bandit.expert.num_failures == 1
    before = bandit.state_dict()
    stop.append(True)
    for call in (bandit.ask, bandit.acquisition, bandit.recommend):
        with pytest.raises(KeyboardInterrupt):
            call()
    assert str(bandit.state_dict()) == str(before)
    stop.clear()
    assert torch.equal(bandit.ask(), bandit.pending)


def test_without_beta_the_norm_must_be_bounded():
    with pytest.raises(kb.InputError, match="which needs norm_bound"):
        make(Oracle(), beta=None)


def windowed(expert, window, candidates=ARMS, **settings):
    words = {"kernel": rbf(LENGTH), "regularization": LAMBDA, "beta": BETA, "seed": 2} | settings
    return algorithms.WSparQGPUCB(expert=expert, window=window, candidates=candidates, **words)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("growth", [0.0, 0.7, kb.LinearGrowth(0.02), kb.ExponentialGrowth(0.6)], ids=str)
@pytest.mark.parametrize("window", [1.0, 3.0, lambda t: 1.0 + t // 4])
def test_in_a_window_answers_and_rewards_count_with_the_noise_of_their_age(growth, window):
    bandit, (played, rewards) = windowed(expert := Oracle(), window, questions=2.0, growth=growth), ([], [])
    injected = {
        "0.0": lambda age: 0.0 * age,
        "0.7": lambda age: LAMBDA * 0.7 * age**2,
        "LinearGrowth(rate=0.02)": lambda age: 0.02 * age,
        "ExponentialGrowth(discount=0.6)": lambda age: LAMBDA * (0.6**-age - 1.0),
    }[str(growth)]
    asked_at, width = [], 0.0
    for t in range(12):
        size = window(t + 1) if callable(window) else window
        before, is_due = len(expert.asked), t > 0 and (not asked_at or t >= asked_at[-1] + width)
        x = bandit.ask()
        assert len(expert.asked) == before + is_due
        if is_due:
            asked_at.append(t)
            width = size
        ages = np.arange(len(rewards), 0, -1.0)
        counts = ages <= size
        known, values = np.array(played).reshape(-1, 2)[counts], np.array(rewards)[counts]
        noises = (LAMBDA + injected(ages))[counts]
        if asked_at:
            X, _, Y = expert.asked[-1]
            known, values = np.concatenate([X.numpy(), known]), np.concatenate([Y.numpy(), values])
            noises = np.concatenate([np.full(len(X), 0.01 + injected(float(t - asked_at[-1]))), noises])
        expected = oracles.exact(oracles.rbf(LENGTH), known, values, noises, ARMS.numpy())
        posterior = bandit.model.posterior(ARMS.unsqueeze(-2))
        assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
        assert difference(posterior.variance.flatten(), np.maximum(expected.variance, 1e-10)) < expected.rounding
        bandit.tell(x, y := moving(x, t))
        played, rewards = [*played, x[0].numpy()], [*rewards, float(y)]
    assert len(asked_at) == {1.0: 11, 3.0: 4}.get(window, len(asked_at)) < 12


def test_a_window_of_one_round_is_sparq_with_the_cut_off_at_age_one():
    plain = make(first := Oracle(), cutoff=2.0)
    assert torch.equal(play(windowed(second := Oracle(), 1.0), 9), play(plain, 9))
    assert len(first.asked) == len(second.asked) == 8


def test_an_expert_that_is_late_is_asked_again_in_the_next_round_of_the_window():
    expert = Oracle()
    bandit = windowed(lambda X, time: expert(X, time) if time > 3 else None, 4.0)
    play(bandit, 9)
    assert ([time for _, time, _ in expert.asked], bandit.expert.num_late) == ([4, 8], 3)


def test_answers_of_a_window_are_saved_and_a_restart_forgets_them():
    bandit, loaded = windowed(expert := Oracle(), 5.0), windowed(pytest.fail, 5.0)
    play(bandit, 4)
    loaded.load_state_dict(bandit.state_dict())
    for t in (4, 5):
        x = bandit.ask()
        assert torch.equal(loaded.ask(), x)
        bandit.tell(x, moving(x, t))
        loaded.tell(x, moving(x, t))
    assert [time for _, time, _ in expert.asked] == [1]
    bandit.restart()
    play(bandit, 2)
    assert [time for _, time, _ in expert.asked] == [1, 7]


@pytest.mark.parametrize("built", [make, lambda expert: windowed(expert, 4.0)], ids=["sparq", "w-sparq"])
def test_answers_that_are_given_are_as_those_of_an_expert_that_is_asked(built):
    given, asking = built(None), built(expert := Oracle())
    assert given.expert is None
    for t in range(10):
        x = asking.ask()
        questions = given.questions()
        if len(questions):
            X, time, Y = expert.asked[-1]
            assert (torch.equal(X, questions), time) == (True, t)
            given.answer(questions, Y, 0.01)
            assert len(given.questions()) == 0
        assert torch.equal(given.ask(), x)
        for each in (given, asking):
            each.tell(x, moving(x, t))
    assert given.num_asked == 10


def test_answers_of_several_who_look_add_up_and_faulty_ones_change_nothing():
    bandit, twin = windowed(None, 4.0), windowed(None, 4.0)
    for each in (bandit, twin):
        each.tell(ARMS[:5], moving(ARMS[:5], 0))
    for row in range(5):
        bandit.answer(ARMS[row : row + 1], moving(ARMS[row : row + 1], 1), 0.01)
    twin.answer(ARMS[:5], moving(ARMS[:5], 1), torch.full((5,), 0.01, dtype=DOUBLE))
    moments = bandit.model.posterior(ARMS.unsqueeze(-2))
    assert difference(moments.mean, twin.model.posterior(ARMS.unsqueeze(-2)).mean) < 1e-12
    before = str(twin.state_dict())
    for X, Y, variance, message in [
        (ARMS[:2], [0.5], 0.1, "one for each of the 2 points"),
        (ARMS[:1], [math.nan], 0.1, "must be finite"),
        (ARMS[:1], [0.5], -0.1, "at least 0"),
        (ARMS[:1, :1], [0.5], 0.1, "2 columns"),
    ]:
        with pytest.raises(kb.InputError, match=message):
            twin.answer(X, Y, variance)
    assert str(twin.state_dict()) == before
    for other in (make(Oracle()), algorithms.GPUCB(candidates=ARMS, prior=kb.LearnedPrior(), seed=0)):
        with pytest.raises(kb.InputError, match="expert=None"):
            other.questions()
    with pytest.raises(kb.InputError, match="max_questions"):
        make(None, max_questions=3)


@pytest.mark.parametrize("built", [make, lambda expert, **words: windowed(expert, 6.0, **words)])
def test_a_dictionary_of_all_that_counts_changes_nothing_and_answers_join_a_small_one(built):
    exact, sparse = built(Oracle()), built(Oracle(), dictionary=kb.GreedyDictionary(100))
    small = built(expert := Oracle(), dictionary=kb.GreedyDictionary(2))
    for t in range(8):
        x, _, _ = exact.ask(), sparse.ask(), small.ask()
        assert difference(sparse.acquisition()(ARMS.unsqueeze(-2)), exact.acquisition()(ARMS.unsqueeze(-2))) < 1e-5
        for each in (exact, sparse, small):
            each.tell(x, moving(x, t))
        assert len(small.inducing_points) <= 2 + (len(expert.asked[-1][0]) if expert.asked else 0)

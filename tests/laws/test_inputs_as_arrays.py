"""Numbers are taken in any form wherever they stand for numbers: what comes of them is what comes of tensors."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from problems import DOUBLE, data, on_a_cube, play, rbf, reward
from test_odd_arguments import METHODS, facts, words_for
from test_odd_arguments import TAKERS as ALL

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.environments import BoxFunction, FiniteArms
from torch_kbandits.evaluation import Log, ips, replay_log
from torch_kbandits.serving import Service

ARMS, REWARDS = data(12, 2, 1)
REWARDS = REWARDS.squeeze(-1)
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
WORDS = {"kernel": rbf(0.4), "regularization": 0.1, "beta": 2.0, "seed": 0}

#: Forms of a tensor in double precision.
FORMS = {
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())) if X.dim() == 2 else tuple(X.tolist()),
    "array": lambda X: X.numpy(),
    "array that is not written to": lambda X: _locked(X.numpy()),
    "array of the other byte order": lambda X: X.numpy().astype(">f8"),
    "columns first": lambda X: np.asfortranarray(X.numpy()),
    "objects": lambda X: X.numpy().astype(object),
    "rows of arrays": lambda X: [*X.numpy()],
    "rows of tensors": lambda X: [*X],
    "frame": lambda X: pd.DataFrame(X.numpy()).rename(columns="column {}".format) if X.dim() == 2 else pd.Series(X),
    "nullable frame": lambda X: FORMS["frame"](X).astype("Float64"),
}


def _locked(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def bandit(candidates=ARMS, **words):
    return algorithms.EKUCB(candidates=candidates, **{**WORDS, **words})


def measuring(name):
    return bandit(outcomes=[kb.Outcome(name, kb.Prior(rbf(), 0.1))])


def state(bandit):
    return str(bandit.state_dict())


def told(bandit, *args, **words):
    bandit.tell(*args, **words)
    return bandit


def logged(form):
    rows = [0, 1, 2] * (len(REWARDS) // 3)
    log = Log(rows, form(REWARDS), form(torch.ones(len(rows), dtype=DOUBLE)), form(ARMS), actions=form(ARMS[:3]))
    player = bandit(kb.ContextualActions(log.actions, context_dim=2))
    found = ips(log=log, target_probabilities=form(torch.ones(len(rows), 3, dtype=DOUBLE) / 3))
    return found.value, replay_log(player, log, seed=0).rows.tolist()


def numbers(value):
    """What comes of a call, in numbers; of a model its posterior."""
    if isinstance(value, kb.OnlineGP | kb.NystromGP):
        found = value.posterior(ARMS)
        return found.mean.tolist(), found.variance.tolist()
    return facts(value)


def in_form(words, form):
    """Words whose tensors are given in a form, those in mappings too."""
    return {
        word: form(value) if type(value) is torch.Tensor and value.is_floating_point()
        else in_form(value, form) if isinstance(value, dict) else value
        for word, value in words.items()
    }  # fmt: skip


def called(make, method, words):
    one = make()
    return numbers(getattr(one, method)(**words)), state(one)


MODEL = words_for("KernelUCB")["model"]
TRUTH = torch.tensor([0.0, 1.0, 0.0]).bool()
#: What takes numbers, given in a form, and what comes of it.
TAKERS = {
    **{
        name: lambda form, name=name: numbers(ALL[name](**in_form(words_for(name), form)))
        for name in ALL
        if any(type(value) is torch.Tensor for value in words_for(name).values())
    },
    **{
        f"{call[1]} of {call[0].__name__}": lambda form, call=call: called(*call[:2], in_form(call[2], form))
        for call in METHODS
        if any(type(value) is torch.Tensor for value in call[2].values())
    },
    "bounds": lambda form: algorithms.GPUCB(bounds=form(UNIT), **WORDS).candidates.domain.bounds,
    "box of actions": lambda form: kb.ContextualActions(bounds=form(UNIT), context_dim=1).bounds,
    "tell a failure": lambda form: told(bandit(), ARMS[:3], [1.0, None, 2.0], failed=form(TRUTH)).history.Y.isnan(),
    "prior mean": lambda form: bandit(mean=form(REWARDS)).model.posterior(ARMS).mean,
    "cube": lambda form: state(told(algorithms.GPUCB(candidates=kb.UnitCube(2), **WORDS), form(ARMS), REWARDS)),
    "safe seed": lambda form: bandit(constraints=[kb.AtMost("cost", 1.0, safe_seed=form(ARMS[:2]))]).ask(),
    "X_pending": lambda form: kb.KernelUCB(MODEL, 2.0, X_pending=form(ARMS[6:8]))(ARMS.unsqueeze(-2)),
    "discretization": lambda form: kb.DiscretizedThompsonSampling(MODEL, form(ARMS), seed=0).maximizers(),
    "environment": lambda form: FiniteArms(form(ARMS), form(REWARDS), 0.1, seed=0).pull(form(ARMS[:2]), 0),
    "box function": lambda form: BoxFunction(reward, form(UNIT), 2.0, 0.1, seed=0).pull(form(ARMS[:2]), 0),
    "logs": logged,
}
#: Forms that say less than there is to say: of rows, and of what is no number.
NOT_SO = {("tell a failure", "nullable frame"), ("tell a failure", "array of the other byte order")}


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", TAKERS)
def test_what_comes_of_numbers_does_not_depend_on_their_form(who, quick):
    """In the quick suite each is given one form, as another than its neighbours."""
    take, turn = TAKERS[who], [*TAKERS].index(who) % len(FORMS)
    expected = take(lambda X: X)
    for what in [*FORMS][turn : turn + 1] if quick else FORMS:
        if (who, what) in NOT_SO:
            continue
        found = take(FORMS[what])
        same = torch.equal(found, expected) if isinstance(expected, torch.Tensor) else found == expected
        assert same, what


def test_what_is_converted_has_the_kind_of_the_rest():
    assert algorithms.BKB(candidates=ARMS.numpy().astype(np.float32), **WORDS).candidates.example.dtype == torch.float32
    assert algorithms.BKB(candidates=[[0], [1]], **WORDS).candidates.example.dtype == DOUBLE
    single = bandit(candidates=ARMS.float())
    single.tell(ARMS[:2].numpy(), [1, 0])
    assert single.history.X.dtype == single.history.Y.dtype == torch.float32
    assert torch.equal(single.history.X, ARMS[:2].float())
    double = bandit()
    double.tell(ARMS[:2].float().numpy(), [1, 0])
    assert torch.equal(double.history.X, ARMS[:2].float().double())


BOOLEANS = [True, np.bool_(True), [True], np.array([True]), torch.tensor([True]), torch.tensor(True)]
BOOLEANS += [pd.Series([True]), pd.Series([True], dtype="boolean"), [[True]]]


def test_a_click_is_a_reward_of_one():
    one = state(told(measuring("bought"), ARMS[:1], 1.0, outcomes={"bought": 1.0}))
    for click in BOOLEANS:
        assert state(told(measuring("bought"), ARMS[:1], click, outcomes={"bought": click})) == one, click
    mixed = told(bandit(), ARMS[:3], [True, 0.5, False])
    mixed.run(lambda x: True, 3)
    assert mixed.history.Y.tolist() == [1.0, 0.5, 0.0, 1.0, 1.0, 1.0]


def test_a_click_told_over_http_is_a_reward_of_one(tmp_path):
    measuring("bought").save(tmp_path / "bandit")
    served = Service.open(tmp_path / "bandit")
    try:
        ids = served.answer("ask", {"q": 2})["ids"]
        served.answer("tell", {"ids": ids, "y": [True, False], "outcomes": {"bought": [False, True]}})
        assert served.bandit.history.Y.tolist() == [1.0, 0.0]
        assert served.bandit.history.outcomes.flatten().tolist() == [0.0, 1.0]
    finally:
        served.close()


#: Each makes a reward of a multiple of 1/4, which all of them hold; whole numbers are rounded.
ONE = {
    **{kind.__name__: kind for kind in (float, Fraction, Decimal, np.float16, np.float32, np.longdouble)},
    **{kind.__name__: lambda v, kind=kind: kind(round(v)) for kind in (int, np.int8, np.int64)},
    "0-dim array": np.array,
    "0-dim tensor with gradients": lambda v: torch.tensor(v, requires_grad=True),
}
#: Beside ``FORMS``.
SEVERAL = {
    "one of each": lambda v: [Fraction(v[0]), np.float32(v[1]), torch.tensor(v[2], requires_grad=True)],
    "column": lambda v: np.array(v)[:, None],
    "array from the other end": lambda v: np.array(v[::-1])[::-1],
    **{str(kind): lambda v, kind=kind: torch.tensor(v).to(kind) for kind in (torch.bfloat16, torch.int64, torch.int8)},
}
NAN, INF = float("nan"), float("inf")
NONE = [1j, "0.5", {0: 0.5}, object(), NAN, -INF, np.datetime64("2020-01-01"), 10**400, Fraction(10**400), []]
NONE += [Decimal("NaN"), Decimal("sNaN"), ["0.5"], [None], [NAN], [0.5, 0.5], [[0.5], [0.5, 1.0]], [[[0.5]]]]
NONE += [np.array([1j]), np.array(["0.5"]), np.array([NAN]), np.ma.masked_array([0.5], [True])]
NONE += [torch.tensor([1j]), torch.tensor([INF]), torch.tensor([0.5]).to_sparse(), torch.zeros(1, device="meta")]
NONE += [torch.nested.nested_tensor([torch.tensor([0.5])], layout=torch.jagged)]
if np.finfo(np.longdouble).max > np.finfo(np.float64).max:  # not so on some processors
    NONE.append(np.array([np.finfo(np.longdouble).max]))


def test_rewards_may_be_any_real_numbers_and_all_else_changes_nothing():
    one, single, values = bandit(), bandit(ARMS.float()), [0.25, -1.5, 3.0]
    for kind, given in ONE.items():
        one.tell(ARMS[:1], given(values[1]))
        assert float(one.history.Y[-1]) == (round(values[1]) if "int" in kind else values[1]), kind
    for kind, given in SEVERAL.items():
        one.tell(ARMS[:3], given(values))
        expected = [float(int(value)) for value in values] if "int" in kind else values
        assert one.history.Y[-3:].tolist() == expected, kind
    before = state(one)
    for number, bad in enumerate(NONE):
        with pytest.raises(kb.InputError, match="y must"):
            one.tell(ARMS[:1], bad)
        assert state(one) == before, number
    for bad in (1e300, [-1e39], torch.tensor([1e300], dtype=DOUBLE)):
        with pytest.raises(kb.InputError, match=r"within ±3.4e\+38, the range of the points' torch.float32"):
            single.tell(ARMS[:1].float(), bad)
    learning = on_a_cube(num_initial=3, clip=False)
    learning.tell(ARMS[:3], [100.0, 107.0, 114.0])
    with pytest.raises(kb.InputError, match="whose square no double holds: multiply it by a number"):
        learning.tell(ARMS[:1], -1.7e308)


def test_gradients_of_what_is_given_are_not_kept():
    """Arms, bounds and points that require a gradient are taken as numbers, and play as those without."""
    plain, free = (bandit(ARMS.clone().requires_grad_(needs)) for needs in (False, True))
    assert torch.equal(play(free, 3), play(plain, 3))
    x = ARMS[:2].clone().requires_grad_()
    told(free, x, x.sum(-1))
    offers = algorithms.EKUCB(action_dim=2, context_dim=1, **WORDS)
    asked = offers.ask(context=ARMS[0, :1].clone().requires_grad_(), candidates=ARMS.clone().requires_grad_())
    box = kb.Box(UNIT.clone().requires_grad_())
    assert not any(each.requires_grad for each in (free.history.X, free.history.Y, free.ask(), asked, box.bounds))
    assert state(free)


def test_ids_are_taken_in_any_form():
    for form in (list, tuple, np.array, torch.tensor, pd.Series, pd.Index):
        one = bandit()
        ids = one.ask(3, details=True).ids
        one.tell(ids=form(ids[1:]), y=[0.1, 0.2])
        one.forget(ids=form(ids[:1]))
        assert (one.num_observations, one.pending_ids) == (2, ())


def test_configurations_come_as_data_frames():
    space = kb.ParameterSpace({"rate": kb.Float(0.0, 1.0), "depth": kb.Integer(1, 9)})
    rows = [{"rate": 0.25, "depth": 3}, {"rate": 0.5, "depth": 7}]
    forms = rows, pd.DataFrame(rows), space.encode(rows), space.encode(rows).numpy(), space.encode(rows).tolist()
    all_told = [told(algorithms.GPUCB(candidates=space, **WORDS), form, [0.1, 0.2]) for form in forms]
    assert len({state(one) for one in all_told}) == 1
    one = told(all_told[0], pd.DataFrame(rows, dtype=object).iloc[0], 0.3)
    assert one.candidates.actions(one.history.X[-1:]) == rows[:1]


def test_what_is_no_point_is_refused_and_changes_nothing():
    one = bandit()
    before = state(one)
    for given in (
        *(pd.DataFrame({"a": [odd], "b": [1.0]}) for odd in ("x", pd.Timestamp("2026-01-01"), None)),
        *([["x", 1.0]], [[1.0], [1.0, 2.0]], {"a": 1.0, "b": 2.0}),
        *(np.array([[1j, 0.0]]), np.zeros((1, 3)), np.array([[np.nan, 0.0]])),
    ):
        with pytest.raises(kb.InputError, match="x must"):
            one.tell(given, 1.0)
    assert state(one) == before

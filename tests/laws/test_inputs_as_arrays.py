"""Numbers are taken in any form wherever they stand for numbers: what comes of them is what comes of tensors."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import is_quick
from problems import DOUBLE, data, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.acquisition import DiscretizedThompsonSampling
from torch_kbandits.candidates import TimedActions
from torch_kbandits.confidence import GreedyGain, effective_dimension, greedy_information_gain, information_gain
from torch_kbandits.dictionaries import sample_k_dpp
from torch_kbandits.environments import BoxFunction, FiniteArms, LoggedInteractions
from torch_kbandits.experiments import replay_log
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


def bandit(**words):
    return algorithms.EKUCB(**{"candidates": ARMS, **WORDS, **words})


def measuring(name):
    return bandit(outcomes=[kb.Outcome(name, kb.Prior(rbf(), 0.1))])


def told(bandit, *args, **words):
    bandit.tell(*args, **words)
    return bandit


def in_contexts():
    return algorithms.EKUCB(action_dim=2, context_dim=2, **WORDS)


def model():
    return kb.OnlineGP(ARMS[:5], REWARDS[:5, None], covar_module=rbf(0.4), regularization=0.1)


def state(bandit):
    return str(bandit.state_dict())


def posterior(model):
    values = model.posterior(ARMS)
    return torch.cat([values.mean, values.variance])


def logged(contexts, actions, rewards):
    log = LoggedInteractions(contexts, actions, rewards, propensities=torch.ones(len(rewards), dtype=DOUBLE))
    player = algorithms.EKUCB(candidates=kb.ContextualActions(log.action_set, context_dim=2), **WORDS)
    return replay_log(player, log, seed=0).mean


CONTEXT = ARMS[3]
#: What takes numbers, given in a form, and what comes of it.
TAKERS = {
    "arms": lambda form: kb.Arms(form(ARMS)).domain.arms,
    "candidates": lambda form: bandit(candidates=form(ARMS)).candidates.domain.arms,
    "bounds": lambda form: algorithms.GPUCB(bounds=form(UNIT), **WORDS).candidates.domain.bounds,
    "box": lambda form: kb.Box(form(UNIT)).bounds,
    "actions": lambda form: kb.ContextualActions(form(ARMS), context_dim=1).set,
    "box of actions": lambda form: kb.ContextualActions(bounds=form(UNIT), context_dim=1).bounds,
    "timed actions": lambda form: TimedActions(form(ARMS)).untimed.set,
    "blocks": lambda form: kb.Arms(kb.ArmBlocks(lambda number: form(ARMS[4 * number : 4 * number + 4]), 3)).source.rows(
        torch.arange(12)
    ),
    "tell x": lambda form: state(told(bandit(), form(ARMS[:3]), REWARDS[:3])),
    "tell y": lambda form: state(told(bandit(), ARMS[:3], form(REWARDS[:3]))),
    "tell outcomes": lambda form: (
        told(
            bandit(outcomes=[kb.Outcome("cost", kb.Prior(rbf(), 0.1))]),
            ARMS[:3],
            REWARDS[:3],
            outcomes={"cost": form(ARMS[:3, 0])},
        ).history.outcomes
    ),
    "tell a failure": lambda form: told(
        bandit(), ARMS[:3], [1.0, None, 2.0], failed=form(torch.tensor([0.0, 1.0, 0.0]).bool())
    ).history.Y.isnan(),
    "tell in contexts": lambda form: state(told(in_contexts(), form(ARMS[:3]), REWARDS[:3], context=form(ARMS[3:6]))),
    "mark pending": lambda form: marked(bandit(), form),
    "forget": lambda form: forgotten(bandit(), form),
    "ask in a context": lambda form: in_contexts().ask(context=form(CONTEXT), candidates=form(ARMS)),
    "recommend in a context": lambda form: told(in_contexts(), ARMS[:3], REWARDS[:3], context=ARMS[3:6]).recommend(
        context=form(CONTEXT), candidates=form(ARMS)
    ),
    "acquisition in a context": lambda form: in_contexts().acquisition(context=form(CONTEXT), candidates=form(ARMS))(
        ARMS.unsqueeze(-2)
    ),
    "failure probability": lambda form: told(bandit(), ARMS[:2], failed=True).failure_probability(form(ARMS)),
    "known rewards": lambda form: bandit().run(form(ARMS @ ARMS.T)),
    "prior mean": lambda form: bandit(mean=form(REWARDS)).model.posterior(ARMS).mean,
    "cube": lambda form: state(told(algorithms.GPUCB(candidates=kb.UnitCube(2), **WORDS), form(ARMS), REWARDS)),
    "safe seed": lambda form: bandit(constraints=[kb.AtMost("cost", 1.0, safe_seed=form(ARMS[:2]))]).ask(),
    "models": lambda form: posterior(
        kb.NystromGP(
            form(ARMS[:5]), form(ARMS[:5, :1]), inducing_points=form(ARMS[:2]), covar_module=rbf(), regularization=0.1
        )
    ),
    "model told": lambda form: posterior(told(model(), form(ARMS[:2]), form(ARMS[:2, :1]))),
    "model conditioned": lambda form: posterior(model().condition_on_observations(form(ARMS[:2]), form(ARMS[:2, :1]))),
    "X_pending": lambda form: kb.KernelUCB(model(), 2.0, X_pending=form(ARMS[6:8]))(ARMS.unsqueeze(-2)),
    "discretization": lambda form: DiscretizedThompsonSampling(model(), form(ARMS), seed=0).maximizers(),
    "fixed": lambda form: kb.FixedDictionary(form(ARMS)).points,
    "gains": lambda form: torch.stack(
        [
            information_gain(rbf(), form(ARMS), 0.1),
            effective_dimension(rbf(), form(ARMS), 0.1),
            greedy_information_gain(rbf(), form(ARMS), 3, 0.1)[-1],
        ]
    ),
    "gain": lambda form: GreedyGain(rbf(), form(ARMS), 5, 0.1).candidates,
    "k-dpp": lambda form: sample_k_dpp(form(ARMS), rbf(), 3, generator=torch.Generator().manual_seed(0)),
    "prior": lambda form: str(kb.fit_prior(form(ARMS), form(REWARDS)).kernel.state_dict()),
    "environment": lambda form: FiniteArms(form(ARMS), form(REWARDS), 0.1, seed=0).pull(form(ARMS[:2]), 0),
    "box function": lambda form: BoxFunction(lambda X: X.sum(-1), form(UNIT), 2.0, 0.1, seed=0).pull(form(ARMS[:2]), 0),
    "replay_log": lambda form: logged(form(ARMS), form(ARMS.round()), form(REWARDS)),
}
#: Forms that say less than there is to say: of rows, and of what is no number.
NOT_SO = {("tell a failure", "nullable frame"), ("tell a failure", "array of the other byte order")}


def marked(bandit, form):
    bandit.mark_pending(form(ARMS[:2]))
    return state(bandit)


def forgotten(bandit, form):
    bandit.mark_pending(ARMS[:3])
    bandit.forget(form(ARMS[1:2]))
    return state(bandit)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", TAKERS)
def test_what_comes_of_numbers_does_not_depend_on_their_form(who, request):
    take, turn = TAKERS[who], [*TAKERS].index(who) % 3
    expected = take(lambda X: X)
    for what in [*FORMS][turn::3] if is_quick(request.config) else FORMS:
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


BOOLEANS = {
    "True": True,
    "NumPy's": np.bool_(True),
    "list": [True],
    "array": np.array([True]),
    "tensor": torch.tensor([True]),
    "0-dim tensor": torch.tensor(True),
    "series": pd.Series([True]),
    "nullable series": pd.Series([True], dtype="boolean"),
    "column": [[True]],
}


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_click_is_a_reward_of_one(name):
    clicked, one = (measuring("bought") for _ in range(2))
    clicked.tell(ARMS[:1], BOOLEANS[name], outcomes={"bought": BOOLEANS[name]})
    one.tell(ARMS[:1], 1.0, outcomes={"bought": 1.0})
    assert state(clicked) == state(one)


def test_rows_of_rewards_and_truths_may_be_mixed():
    mixed = bandit()
    mixed.tell(ARMS[:3], [True, 0.5, False])
    assert mixed.history.Y.tolist() == [1.0, 0.5, 0.0]
    mixed.run(lambda x: True, 3)
    assert mixed.history.Y[3:].tolist() == [1.0, 1.0, 1.0]


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


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor, pd.Series, pd.Index])
def test_ids_are_taken_in_any_form(form):
    one = bandit()
    ids = one.ask(3, return_ids=True).ids
    one.tell(ids=form(ids[1:]), y=[0.1, 0.2])
    one.forget(ids=form(ids[:1]))
    assert one.num_told == 2
    assert not one.pending_ids


def test_configurations_come_as_data_frames():
    space = kb.ParameterSpace({"rate": kb.Float(0.0, 1.0), "depth": kb.Integer(1, 9)})
    rows = [{"rate": 0.25, "depth": 3}, {"rate": 0.5, "depth": 7}]
    forms = rows, pd.DataFrame(rows), space.encode(rows), space.encode(rows).numpy(), space.encode(rows).tolist()
    states = set()
    for form in forms:
        one = algorithms.GPUCB(candidates=space, **WORDS)
        one.tell(form, [0.1, 0.2])
        states.add(state(one))
    assert len(states) == 1
    one.tell(pd.DataFrame(rows, dtype=object).iloc[0], 0.3)
    assert one.candidates.actions(one.history.X[-1:]) == rows[:1]


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"a": ["x"], "b": [1.0]}),
        pd.DataFrame({"a": [pd.Timestamp("2026-01-01")], "b": [1.0]}),
        pd.DataFrame({"a": [None], "b": [1.0]}),
        [["x", 1.0]],
        [[1.0], [1.0, 2.0]],
        np.array([[1j, 0.0]]),
        np.zeros((1, 3)),
        np.array([[np.nan, 0.0]]),
        {"a": 1.0, "b": 2.0},
    ],
)
def test_what_is_no_point_is_refused_and_changes_nothing(given):
    one = bandit()
    before = state(one)
    with pytest.raises(kb.InputError, match="x must"):
        one.tell(given, 1.0)
    assert state(one) == before

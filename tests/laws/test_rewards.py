"""Rewards in every form: converted at the edge, by bandits that know their prior and by those that fit it."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from problems import DOUBLE, data, on_a_cube, rbf

from torch_kbandits import ContextualActions, InputError, UnitCube, algorithms

ARMS = data(20, 2)[0]

#: Each makes a reward of a multiple of 1/4, which all of them hold; whole numbers are rounded.
ONE = {
    "float": float,
    "int": round,
    "Fraction": Fraction,
    "Decimal": Decimal,
    **{f"np.{kind.__name__}": kind for kind in (np.float16, np.float32, np.float64, np.longdouble)},
    **{f"np.{kind.__name__}": lambda v, kind=kind: kind(round(v)) for kind in (np.int8, np.int64)},
    "0-dim array": np.array,
    "0-dim tensor": torch.tensor,
    "0-dim tensor with gradients": lambda v: torch.tensor(v, requires_grad=True),
}
SEVERAL = {
    "list": list,
    "tuple": tuple,
    "rows": lambda v: [[each] for each in v],
    "fractions": lambda v: [Fraction(each) for each in v],
    "tensors": lambda v: [torch.tensor(each, requires_grad=True) for each in v],
    "one of each": lambda v: [
        each(number) for each, number in zip((Decimal, np.float32, torch.tensor), v, strict=True)
    ],
    "array": np.array,
    "column": lambda v: np.array(v)[:, None],
    "array from the other end": lambda v: np.array(v[::-1])[::-1],
    "array of the other byte order": lambda v: np.array(v, dtype=">f4"),
    "array of objects": lambda v: np.array([Fraction(each) for each in v]),
    **{
        str(kind): lambda v, kind=kind: torch.tensor(v).to(kind)
        for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8)
    },
    "tensor (q, 1)": lambda v: torch.tensor(v).unsqueeze(-1),
}
NONE = {
    "complex": 1j,
    "complex array": np.array([1j]),
    "complex tensor": torch.tensor([1j]),
    "text": "0.5",
    "list of texts": ["0.5"],
    "array of texts": np.array(["0.5"]),
    "date": np.datetime64("2020-01-01"),
    "nothing": [None],
    "dict": {0: 0.5},
    "object": object(),
    "ragged": [[0.5], [0.5, 1.0]],
    "masked": np.ma.masked_array([0.5], [True]),
    "NaN": float("nan"),
    "infinite": -np.inf,
    "NaN in a list": [float("nan")],
    "NaN in an array": np.array([np.nan]),
    "infinite tensor": torch.tensor([torch.inf]),
    "NaN of decimals": Decimal("NaN"),
    "signalling NaN": Decimal("sNaN"),
    "int beyond floats": 10**400,
    "fraction beyond floats": Fraction(10**400),
    "long double beyond floats": np.array([np.finfo(np.longdouble).max]),
    "sparse": torch.tensor([0.5]).to_sparse(),
    "nested": torch.nested.nested_tensor([torch.tensor([0.5])], layout=torch.jagged),
    "meta": torch.zeros(1, device="meta"),
    "too many": [0.5, 0.5],
    "too deep": [[[0.5]]],
    "none at all": [],
}
if np.finfo(np.longdouble).max == np.finfo(np.float64).max:  # as on some processors
    del NONE["long double beyond floats"]

VALUES = [0.25, -1.5, 3.0]


def fitted():
    """A bandit that has fitted its prior, to rewards far from mean 0 and variance 1."""
    bandit = on_a_cube(1, num_initial=3, clip=False)
    bandit.tell(torch.tensor([[0.1], [0.5], [0.9]], dtype=DOUBLE), 100.0 + 7.0 * torch.arange(3))
    bandit.recommend()
    assert bandit.prior.mean == pytest.approx(107.0)
    return bandit


def known(**words):
    return algorithms.build(
        **({"name": "ek-ucb", "kernel": rbf(), "regularization": 0.1, "beta": 2.0, "seed": 0} | words)
    )


MAKERS = {
    "arms": lambda: known(name="bkb", candidates=ARMS),
    "arms in single precision": lambda: known(name="bkb", candidates=ARMS.float()),
    "box": lambda: known(name="igp-ucb", bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)),
    "actions": lambda: known(candidates=ContextualActions(ARMS, context_dim=0)),
    "fitted": fitted,
}


def points(bandit, q):
    """Points that this bandit can be told."""
    on_cube = isinstance(bandit.candidates, UnitCube)
    return torch.linspace(0.2, 0.7, q, dtype=DOUBLE).unsqueeze(-1) if on_cube else bandit.ask(q)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_rewards_may_be_any_real_numbers(name):
    bandit = MAKERS[name]()
    X = points(bandit, 3)
    for kind, make in ONE.items():
        for value in VALUES:
            bandit.tell(X[:1], make(value))
            assert float(bandit.history.Y[-1]) == (round(value) if "int" in kind else value), kind
    for kind, make in SEVERAL.items():
        bandit.tell(X, make(VALUES))
        expected = [float(int(value)) for value in VALUES] if "int" in kind else VALUES
        assert bandit.history.Y[-3:].tolist() == expected, kind
    assert bandit.history.Y.dtype == bandit.history.X.dtype


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["arms", "arms in single precision", "fitted"])
def test_what_is_no_reward_is_refused_and_changes_nothing(name):
    bandit = MAKERS[name]()
    x, before = points(bandit, 1), str(bandit.state_dict())
    for kind, bad in NONE.items():
        with pytest.raises(InputError, match="y must"):
            bandit.tell(x, bad)
        assert str(bandit.state_dict()) == before, kind


def test_rewards_beyond_the_dtype_of_the_points_are_refused():
    bandit = MAKERS["arms in single precision"]()
    for bad in (1e300, [-1e39], torch.tensor([1e300], dtype=DOUBLE)):
        with pytest.raises(InputError, match=r"within ±3.4e\+38, the range of the points' torch.float32"):
            bandit.tell(ARMS[:1].float(), bad)
    bandit.tell(ARMS[:1].float(), 1e-300)
    assert bandit.history.Y.tolist() == [0.0]
    with pytest.raises(InputError, match="whose square no double holds: multiply it by a number"):
        fitted().tell(torch.zeros(1, 1, dtype=DOUBLE), -1.7e308)


@pytest.mark.parametrize("name", ["arms", "fitted"])
def test_histories_may_have_rewards_of_any_kind(name):
    played, bandit = (on_a_cube(1) if name == "fitted" else MAKERS[name]() for _ in range(2))
    played.tell(points(played, 3), VALUES)
    bandit.replay(played.history._replace(Y=played.history.Y.to(torch.float16)))
    assert torch.equal(bandit.history.Y, played.history.Y)

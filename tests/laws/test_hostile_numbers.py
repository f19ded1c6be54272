"""A reward may be any kind of real number, and nothing else; gradients of what is given are not kept."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from kinds import same
from problems import DOUBLE, data, on_a_cube, play, rbf

from torch_kbandits import Box, ContextualActions, InputError, algorithms

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
    "one of each": lambda v: [Decimal(v[0]), np.float32(v[1]), torch.tensor(v[2])],
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
NAN, INF = float("nan"), float("inf")
NONE = [1j, "0.5", {0: 0.5}, object(), NAN, -INF, np.datetime64("2020-01-01"), 10**400, Fraction(10**400), []]
NONE += [Decimal("NaN"), Decimal("sNaN"), ["0.5"], [None], [NAN], [0.5, 0.5], [[0.5], [0.5, 1.0]], [[[0.5]]]]
NONE += [np.array([1j]), np.array(["0.5"]), np.array([NAN]), np.ma.masked_array([0.5], [True])]
NONE += [torch.tensor([1j]), torch.tensor([INF]), torch.tensor([0.5]).to_sparse(), torch.zeros(1, device="meta")]
NONE += [torch.nested.nested_tensor([torch.tensor([0.5])], layout=torch.jagged)]
if np.finfo(np.longdouble).max > np.finfo(np.float64).max:  # not so on some processors
    NONE.append(np.array([np.finfo(np.longdouble).max]))
VALUES = [0.25, -1.5, 3.0]


WORDS = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.0, "seed": 3}


def fitted():
    """A bandit that has fitted its prior, to rewards far from mean 0 and variance 1."""
    bandit = on_a_cube(1, num_initial=3, clip=False)
    bandit.tell(torch.tensor([[0.1], [0.5], [0.9]], dtype=DOUBLE), 100.0 + 7.0 * torch.arange(3))
    bandit.recommend()
    assert bandit.prior.mean == pytest.approx(107.0)
    return bandit


TOLD = {
    "arms in single precision": (lambda: algorithms.BKB(candidates=ARMS.float(), **WORDS), ARMS[:3].float()),
    "actions": (lambda: algorithms.EKUCB(candidates=ContextualActions(ARMS, context_dim=0), **WORDS), ARMS[:3]),
    "fitted": (fitted, torch.tensor([[0.2], [0.4], [0.7]], dtype=DOUBLE)),
}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::torch_kbandits.KernelBanditWarning")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TOLD)
def test_rewards_may_be_any_real_numbers_and_all_else_changes_nothing(name):
    make, X = TOLD[name]
    bandit = make()
    for kind, given in ONE.items():
        bandit.tell(X[:1], given(VALUES[1]))
        assert float(bandit.history.Y[-1]) == (round(VALUES[1]) if "int" in kind else VALUES[1]), kind
    for kind, given in [*SEVERAL.items()][:: 4 if name == "fitted" else 1]:
        bandit.tell(X, given(VALUES))
        expected = [float(int(value)) for value in VALUES] if "int" in kind else VALUES
        assert bandit.history.Y[-3:].tolist() == expected, kind
    assert bandit.history.Y.dtype == bandit.history.X.dtype
    before = bandit.state_dict()
    for number, bad in enumerate(NONE):
        with pytest.raises(InputError, match="y must"):
            bandit.tell(X[:1], bad)
        assert same(bandit.state_dict(), before), number
    if name.startswith("arms"):
        for bad in (1e300, [-1e39], torch.tensor([1e300], dtype=DOUBLE)):
            with pytest.raises(InputError, match=r"within ±3.4e\+38, the range of the points' torch.float32"):
                bandit.tell(X[:1], bad)
    elif name == "fitted":
        with pytest.raises(InputError, match="whose square no double holds: multiply it by a number"):
            fitted().tell(X[:1], -1.7e308)


def test_gradients_of_what_is_given_are_not_kept():
    """Arms, bounds and points that require a gradient are taken as numbers, and play as those without."""
    plain, free = (algorithms.EKUCB(candidates=ARMS.clone().requires_grad_(needs), **WORDS) for needs in (False, True))
    assert torch.equal(play(free, 3), play(plain, 3))
    x = ARMS[:2].clone().requires_grad_()
    free.tell(x, x.sum(-1))
    assert not free.history.X.requires_grad
    assert not free.history.Y.requires_grad
    assert not free.ask().requires_grad
    free.state_dict()
    assert not Box(torch.stack([ARMS.amin(0), ARMS.amax(0)]).requires_grad_()).bounds.requires_grad
    actions = algorithms.EKUCB(action_dim=2, context_dim=1, **WORDS)
    asked = actions.ask(context=ARMS[0, :1].clone().requires_grad_(), candidates=ARMS.clone().requires_grad_())
    assert not asked.requires_grad

"""What is recommended may be played, whatever was told: logged points beyond the candidates are learned from alone."""

import pytest
import torch
from problems import DOUBLE, rbf

import torch_kbandits as kb
from torch_kbandits.algorithms import registry
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.spaces import LinearConstraint

WORDS = {"kernel": rbf(0.5), "regularization": 0.01, "beta": 1.5, "seed": 0}
ROW = torch.linspace(0.0, 1.0, 11, dtype=DOUBLE).unsqueeze(-1)
UNIT = torch.tensor([[0.0], [1.0]], dtype=DOUBLE)


SPACE = kb.ParameterSpace({"x": kb.Float(0.0, 1.0)}, [LinearConstraint({"x": 1.0}, 0.6)])


def tenths(points):
    return (10.0 * points).round() / 10.0


def is_inside(x):
    return bool(((x >= 0.0) & (x <= 1.0)).all())


#: Candidates that are not in the product, a logged point that may not be played, and whether one may be.
KINDS = {
    "arms": (lambda: kb.Arms(ROW), 0.43, lambda x: bool((x == ROW).all(-1).any())),
    "arms in single precision": (lambda: kb.Arms(ROW.float()), 0.43, lambda x: bool((ROW.float() == x).any())),
    "cube": (lambda: kb.UnitCube(1), 1.2, is_inside),
    "cube of tenths": (lambda: kb.UnitCube(1, snap=tenths), 0.43, lambda x: is_inside(x) and torch.equal(tenths(x), x)),
    "configurations": (lambda: kb.Configurations(SPACE), {"x": 0.9}, lambda x: x["x"] <= 0.6),
}
#: What else a bandit may have.
SETTINGS = {
    "gp-ucb": {},
    "gp-ei": {"prior": kb.LearnedPrior(num_initial=3), "kernel": None, "regularization": None},
    "gp-ts": {"memory": TemporalPrior(0.01)},
    "igp-ucb": {"constraints": [kb.AtMost("cost", 5.0, mode="optimistic")]},
    "random": {"objective": kb.Scalarization({"reward": "maximize", "cost": "minimize"})},
}


def made(kind, name="gp-ucb"):
    words = {"candidates": KINDS[kind][0](), **WORDS, **SETTINGS[name]}
    known = registry.signature(name).parameters
    return registry.build(name, **{word: value for word, value in words.items() if word in known})


def told(bandit, x, y):
    """Tell a play, with the outcome if there is one."""
    dtype = bandit.candidates.example.dtype
    x = torch.tensor([[x]], dtype=dtype) if isinstance(x, float) else x
    bandit.tell(x, y, outcomes={"cost": 0.1 * y} if bandit.outcomes else None)


CASES = [(kind, name) for number, kind in enumerate(KINDS) for name in [*SETTINGS][number % 2 :: 2]]


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_is_recommended_may_be_played(kind, name):
    bandit, (_, beyond, may_be_played) = made(kind, name), KINDS[kind]
    told(bandit, beyond, 3.0)
    if name == "igp-ucb":  # of what may be played nothing is known to be within its limit
        with pytest.raises(kb.InfeasibleError, match="and may be played"):
            bandit.recommend()
    else:
        assert may_be_played(bandit.recommend())
    for y in (0.3, 0.1, 0.2):
        told(bandit, bandit.ask(), y)
        assert may_be_played(bandit.recommend())
    told(bandit, beyond, 3.0)
    assert may_be_played(bandit.recommend())


@pytest.mark.parametrize("kind", ["arms", "cube", "cube of tenths"])
def test_of_what_was_played_and_may_be_it_is_the_one_of_the_largest_mean(kind):
    """A play that failed changes nothing of that."""
    bandit = made(kind)
    for x, y in ((KINDS[kind][1], 3.0), (0.4, 0.2), (0.1, -0.3), (0.9, 0.1)):
        told(bandit, x, y)
    bandit.tell(ROW[:1], failed=True)
    may = ROW[[4, 1, 9]]
    best = may[bandit.model.posterior(may).mean.argmax()]
    assert torch.equal(bandit.recommend(), best.unsqueeze(0))

"""Units of inputs: with a prior that is learned, multiplying a column by a number or adding one changes no choice."""

from itertools import cycle, product

import pytest
import torch
from problems import DOUBLE, in_a_file
from torch import Tensor

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.memory import BackToPrior

U = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)

#: What each of the two columns is multiplied by, and what is added then.
UNITS = {
    "of atoms and stars": ((1e-10, 1e10), (0.0, 0.0)),
    "within the unit interval": ((4e-10, 9.9e-3), (3e-10, 0.99)),
    "far from zero": ((1e-3, 1e5), (7.0, -1e7)),
}

#: Of each kind of candidates how it is made of the two columns and their ends, and whether the first is of a context.
CANDIDATES = {
    "arms": (lambda X, ends: kb.Arms(X), False),
    "arms in a file": (lambda X, ends: kb.Arms(in_a_file(X)), False),
    "box": (lambda X, ends: kb.Box(ends), False),
    "actions in a context": (lambda X, ends: kb.ContextualActions(X[:, 1:], context_dim=1), True),
    "box in a context": (lambda X, ends: kb.ContextualActions(bounds=ends[:, 1:], context_dim=1), True),
    "actions of a round": (lambda X, ends: kb.ContextualActions(action_dim=1, context_dim=1), True),
}


def value(u: Tensor) -> Tensor:
    """Rewards (q,) of points in shares of the columns, (q, 2)."""
    return torch.sin(7.0 * u[:, 0]) * torch.cos(3.0 * u[:, 1]) + 0.3 * u[:, 1]


def choices(kind, factors=(1.0, 1.0), shifts=(0.0, 0.0), rounds=14, algorithm="gp-ucb", **words):
    """Return what is played in some rounds, and then recommended, in shares of the columns, (rounds + 1, 2)."""
    factor, shift = torch.tensor(factors, dtype=DOUBLE), torch.tensor(shifts, dtype=DOUBLE)
    make, in_context = CANDIDATES[kind]
    candidates = make(U * factor + shift, torch.stack([shift, shift + factor]))
    prior, generator = kb.LearnedPrior(num_initial=5), torch.Generator().manual_seed(1)
    bandit, chosen = algorithms.build(algorithm, candidates=candidates, prior=prior, seed=0, **words), []
    for number in range(rounds + 1):
        drawn = torch.rand(31, 1, generator=generator, dtype=DOUBLE)
        given = {"context": drawn[0] * factor[0] + shift[0]} if in_context else {}
        offered = {"candidates": drawn[1:] * factor[1] + shift[1]} if kind == "actions of a round" else {}
        x = (bandit.ask if number < rounds else bandit.recommend)(**given, **offered)
        point = torch.cat([given["context"].unsqueeze(0), x], -1) if in_context else x
        chosen.append((point - shift) / factor)
        if number < rounds:
            bandit.tell(x, value(chosen[-1]), **given)
    return torch.cat(chosen)


#: Each kind of candidates is played in each way, in units that take turns.
WAYS = [{}, {"memory": BackToPrior(0.02)}, {"algorithm": "gp-ei"}, {"algorithm": "bkb"}]


@pytest.mark.one_in(13)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("kind", "words", "units"), [(*c, u) for c, u in zip(product(CANDIDATES, WAYS), cycle(UNITS), strict=False)]
)
def test_units_of_columns_change_no_choice(kind, words, units):
    ours, theirs = choices(kind, **words), choices(kind, *UNITS[units], **words)
    assert len(ours.unique(dim=0)) > 6
    assert torch.allclose(ours, theirs, rtol=0.0, atol=1e-3 if "box" in kind else 1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("units", UNITS)
def test_a_fit_is_the_same_in_any_units(units):
    factor, shift = torch.tensor(UNITS[units], dtype=DOUBLE)
    Y = value(U) + 0.1 * torch.randn(len(U), generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    ours, theirs = kb.fit_prior(U, Y), kb.fit_prior(U * factor + shift, Y)
    assert 0.003 < ours.regularization < 0.03  # 0.01 is true
    assert theirs.regularization == pytest.approx(ours.regularization, rel=1e-3)
    scales = theirs.kernel.base_kernel.lengthscale / factor
    assert torch.allclose(scales, ours.kernel.base_kernel.lengthscale, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::torch_kbandits.KernelBanditWarning")
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("constant", [0.0, 3e-10, -1e9, 0.3])
def test_a_column_that_is_constant_but_for_rounding_says_nothing(constant):
    column = torch.full((50, 1), constant, dtype=DOUBLE)
    X = torch.cat([U, column], -1)
    if constant:
        column[::2] = column[::2].nextafter(column.new_tensor(torch.inf))
    told = torch.cat([U, column], -1)
    kernel = kb.fit_prior(told, value(U)).kernel
    assert torch.allclose(kernel(told).to_dense(), kernel(X).to_dense(), rtol=1e-9)


@pytest.mark.usefixtures("short_fits")
def test_what_may_be_played_says_how_far_columns_go():
    """A log of a part of a box shrinks no column, and a point far outside stretches none; nor do specs of columns."""
    unit, beyond = U.new_tensor([[0.0, 0.0], [1.0, 1.0]]), U.new_tensor([[0.5, 1e4]])
    for log in (0.01 * U[:8], torch.cat([U[:8], beyond])):
        bandit = algorithms.GPUCB(candidates=kb.Box(unit), prior=kb.LearnedPrior(), seed=0)
        bandit.tell(log, value(log))
        scales = bandit.prior.kernel.base_kernel.lengthscale
        assert torch.allclose(scales, scales.new_tensor(0.5**0.5))  # until the first fit
    columns = kb.ColumnSpec([kb.Number("hour", 0, 24), kb.Number("load"), kb.Category("device", ["phone", "tablet"])])
    ranges = kb.ContextualActions(action_dim=1, context_columns=columns).ranges
    assert ranges.tolist() == [[0.0, torch.inf, 0.0, 0.0, torch.inf], [1.0, -torch.inf, 1.0, 1.0, -torch.inf]]

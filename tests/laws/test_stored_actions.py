"""Actions beside a context may come from a file."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from torch_kbandits import Bandit, Category, ColumnSpec, ContextualActions, StateMismatchError, algorithms
from torch_kbandits.candidates import MappedArms

ACTIONS = torch.rand(3_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "actions.npy", ACTIONS.numpy())
    return tmp_path / "actions.npy"


def bandit_on(actions, **words):
    bandit = algorithms.EKUCB(
        candidates=ContextualActions(actions, context_dim=1, **words),
        kernel=RBFKernel().double(),
        regularization=0.1,
        beta=2.0,
        seed=0,
    )
    for number in range(5):
        context = torch.tensor([number / 5.0], dtype=bandit.history.X.dtype)
        x = bandit.ask(context=context)
        bandit.tell(x, float(x.sum()), context=context)
    return bandit


def test_they_are_played_as_a_tensor_is(path):
    from_file, from_memory = bandit_on(MappedArms(path)), bandit_on(ACTIONS)
    assert torch.equal(from_file.history.X, from_memory.history.X)
    assert from_file.candidates.describe() == from_memory.candidates.describe()
    assert bandit_on(MappedArms(path, dtype=torch.float32)).history.X.dtype == torch.float32


def test_columns_may_have_names(path):
    spec = ColumnSpec([Category("banner", ["plain", "bold", "blinking"])])
    assert bandit_on(MappedArms(path), action_columns=spec).candidates.groups == [0, 1, 1, 1]


def test_a_saved_bandit_has_their_path(path, tmp_path):
    """Its file is small, it goes on as before, and not with other actions."""
    bandit, context = bandit_on(MappedArms(path)), torch.tensor([0.5], dtype=torch.float64)
    bandit.save(tmp_path / "small.kb")
    bandit_on(ACTIONS).save(tmp_path / "large.kb")
    sizes = [(tmp_path / name).stat().st_size for name in ("small.kb", "large.kb")]
    assert sizes[0] + ACTIONS.numel() * 8 < sizes[1] + 4_096
    again = Bandit.load(tmp_path / "small.kb")
    assert torch.equal(again.ask(context=context), bandit.ask(context=context))
    np.save(path, ACTIONS.flip(0).numpy())
    with pytest.raises(StateMismatchError, match=r"candidates\.actions"):
        Bandit.load(tmp_path / "small.kb")

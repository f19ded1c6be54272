"""What is no kernel, and what is no plain tensor of numbers, is refused by name wherever it is given."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, data, on_a_cube, play, rbf
from test_algorithms import ARMS, NAMES, make

from torch_kbandits import (
    Arms,
    Bandit,
    Box,
    ContextualActions,
    FixedDictionary,
    InputError,
    KernelBanditError,
    NystromGP,
    OnlineGP,
    algorithms,
    fit_prior,
)
from torch_kbandits.acquisition import DiscretizedThompsonSampling
from torch_kbandits.candidates import TimedActions
from torch_kbandits.confidence import GreedyGain, effective_dimension, greedy_information_gain, information_gain
from torch_kbandits.dictionaries import sample_k_dpp

NO_KERNELS = {
    "text": "rbf",
    "class": RBFKernel,
    "module": torch.nn.Linear(2, 1),
    "function": lambda x, y: x @ y.mT,
    "tensor": torch.eye(3),
    "number": 1.0,
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_kernel_is_refused(name):
    for wrong in NO_KERNELS.values():
        with pytest.raises(InputError, match="kernel"):
            make(name, kernel=wrong)


@pytest.mark.parametrize("name", ["r-gp-ucb", "sw-gp-ucb"])
def test_what_is_no_kernel_is_refused_where_a_window_is_computed_from_it(name):
    given = {"r-gp-ucb": "period", "sw-gp-ucb": "window"}
    for wrong in NO_KERNELS.values():
        with pytest.raises(InputError, match="kernel"):
            make(name, kernel=wrong, horizon=50, **{given[name]: None})


#: What is no dense tensor of real numbers in double or single precision.
NO_TENSORS = {
    "sparse": lambda X: X.to_sparse(),
    "sparse rows": lambda X: X.to_sparse_csr() if X.dim() == 2 else X.to_sparse(),
    "nested": lambda X: torch.nested.nested_tensor([X.reshape(-1), X.reshape(-1)[:1]]),
    "meta": lambda X: X.to("meta"),
    "complex": lambda X: X.to(torch.complex128),
    "integers": lambda X: X.long(),
    "booleans": lambda X: X.bool(),
    "half": lambda X: X.half(),
    "objects": lambda X: np.full(X.shape, "X", dtype=object),
    "text": lambda X: "X",
    "none": lambda X: None,
    "quantized": lambda X: torch.quantize_per_tensor(X.float(), 0.1, 0, torch.qint8),
}
POINTS, REWARDS = data(6, 2)[0], data(6, 2)[1]
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXT = torch.tensor([0.5], dtype=DOUBLE)
WORDS = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.0, "seed": 3}


def bandit():
    return algorithms.EKUCB(candidates=ARMS, **WORDS)


def contextual():
    return algorithms.EKUCB(action_dim=2, context_dim=1, **WORDS)


def model():
    return OnlineGP(POINTS, REWARDS, covar_module=rbf(0.3), regularization=0.05)


#: Who takes a tensor, with a valid one.
TAKERS = {
    "arms": (lambda X: Arms(X), POINTS),
    "candidates": (lambda X: algorithms.BKB(candidates=X, **WORDS), POINTS),
    "timed": (lambda X: algorithms.TVGPUCB(candidates=X, **WORDS), POINTS),
    "bounds": (lambda X: algorithms.BKB(bounds=X, **WORDS), BOUNDS),
    "box": (lambda X: Box(X), BOUNDS),
    "actions": (lambda X: ContextualActions(X, context_dim=1), POINTS),
    "timed actions": (lambda X: TimedActions(X), POINTS),
    "tell": (lambda X: bandit().tell(X, torch.zeros(6, dtype=DOUBLE)), POINTS),
    "mark pending": (lambda X: bandit().mark_pending(X), POINTS),
    "forget": (lambda X: bandit().forget(X), POINTS),
    "context": (lambda X: contextual().ask(context=X, candidates=POINTS), CONTEXT),
    "offered": (lambda X: contextual().ask(context=CONTEXT, candidates=X), POINTS),
    "told context": (lambda X: contextual().tell(POINTS[:1], 1.0, context=X), CONTEXT),
    "fixed": (lambda X: FixedDictionary(X), POINTS),
    "greedy gain": (lambda X: GreedyGain(rbf(), X, 5, 0.1), POINTS),
    "gain of plays": (lambda X: greedy_information_gain(rbf(), X, 5, 0.1), POINTS),
    "gain": (lambda X: information_gain(rbf(), X, 0.1), POINTS),
    "dimension": (lambda X: effective_dimension(rbf(), X, 0.1), POINTS),
    "k-dpp": (lambda X: sample_k_dpp(X, rbf(), 3), POINTS),
    "online model": (lambda X: OnlineGP(X, REWARDS, covar_module=rbf(), regularization=0.1), POINTS),
    "online rewards": (lambda Y: OnlineGP(POINTS, Y, covar_module=rbf(), regularization=0.1), REWARDS),
    "inducing": (
        lambda X: NystromGP(POINTS, REWARDS, inducing_points=X, covar_module=rbf(), regularization=0.1),
        POINTS,
    ),
    "model told": (lambda X: model().tell(X, torch.zeros(6, 1, dtype=DOUBLE)), POINTS),
    "discretization": (lambda X: DiscretizedThompsonSampling(model(), X, seed=0), POINTS),
    "fitted": (lambda X: on_a_cube().tell(X, torch.zeros(6, dtype=DOUBLE)), POINTS),
    "prior": (lambda X: fit_prior(X, REWARDS.squeeze(-1)), POINTS),
}
#: What means something there: all points pending, what is given in each round, and the dictionary by default.
MEANT = {("forget", "none"), ("actions", "none"), ("timed actions", "none"), ("inducing", "none")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", TAKERS)
def test_what_is_no_plain_tensor_is_refused(who):
    take, valid = TAKERS[who]
    for what, spoil in NO_TENSORS.items():
        if (who, what) in MEANT:
            continue
        with pytest.raises(KernelBanditError) as caught:
            take(spoil(valid))
        assert len(str(caught.value)) < 1000, what


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
    assert not Box(BOUNDS.clone().requires_grad_()).bounds.requires_grad
    actions = contextual()
    asked = actions.ask(context=CONTEXT.clone().requires_grad_(), candidates=POINTS.clone().requires_grad_())
    assert not asked.requires_grad


def test_a_bandit_composed_by_hand_refuses_what_is_no_kernel():
    for wrong in NO_KERNELS.values():
        with pytest.raises(InputError, match="kernel must be a GPyTorch kernel"):
            Bandit(candidates=Arms(POINTS), kernel=wrong, regularization=0.1, seed=0)

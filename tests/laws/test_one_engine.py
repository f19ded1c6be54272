"""One posterior engine under every kind of candidates: a reward costs what it changes, whatever may be played."""

from typing import ClassVar

import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, data

from torch_kbandits import (
    KORS,
    Arms,
    Bandit,
    Box,
    CappedDictionary,
    ConstantWidth,
    ContextualActions,
    FixedDictionary,
    RidgeLeverageSampling,
)
from torch_kbandits.memory import Discount, Quadratic, Restart, SlidingWindow, UncertaintyInjection

POINTS = data(30, 2)[0]
BOX = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=DOUBLE)
CANDIDATES = {
    "arms": lambda: Arms(POINTS),
    "box": lambda: Box(BOX),
    "actions": lambda: ContextualActions(POINTS, context_dim=0),
    "actions in a context": lambda: ContextualActions(POINTS[:, :1], context_dim=1),
    "box in a context": lambda: ContextualActions(bounds=BOX[:, :1], context_dim=1),
}
DICTIONARIES = {
    "exact": None,
    "kors": KORS(oversampling=2.0),
    "capped": CappedDictionary(KORS(oversampling=2.0), 8, "stop"),
    "growth": RidgeLeverageSampling(oversampling=3.0, resampling="growth"),
    "fixed": FixedDictionary(POINTS[:12]),
}
MEMORIES = {
    "all": None,
    "window": SlidingWindow(24),
    "restart": Restart(60),
    "discount": Discount(0.95),
    "injection": UncertaintyInjection(Quadratic(0.02), 2.0),
}


class Counted(RBFKernel):
    """A kernel that knows between how many points it was evaluated: in a full fit, between most of them."""

    calls: ClassVar[list[int]] = []

    def forward(self, x1, x2, diag=False, **words):
        if not diag:
            self.calls.append(min(x1.shape[-2], x2.shape[-2]))
        return super().forward(x1, x2, diag=diag, **words)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_twenty_rewards_make_at_most_one_full_fit(candidates, dictionary, memory):
    """No point is nearly spanned by others here: what such points cost is in ``test_nearly_singular``."""
    kernel = Counted().double()
    kernel.lengthscale = 0.2
    bandit = Bandit(
        candidates=CANDIDATES[candidates](),
        kernel=kernel,
        regularization=0.1,
        dictionary=DICTIONARIES[dictionary],
        width=ConstantWidth(2.0),
        memory=MEMORIES[memory],
        seed=0,
    )
    X, Y = data(44, 2, 1)
    if candidates in ("arms", "actions"):
        X = POINTS[torch.arange(44) % 30]

    def tell(rows):
        joint = {"x": X[rows, 1:], "context": X[rows, :1]} if "context" in candidates else {"x": X[rows]}
        bandit.tell(**joint, y=Y[rows])

    tell(slice(24))
    half, full_fits = len(bandit.inducing_points) // 2, 0
    for row in range(24, 44):
        Counted.calls.clear()
        tell(slice(row, row + 1))
        full_fits += any(calls >= half for calls in Counted.calls)
    assert full_fits <= 1

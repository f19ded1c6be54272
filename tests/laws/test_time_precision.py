"""Times stay in double precision wherever they go: candidates in single precision lose nothing of dates."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import LinearMean
from problems import DOUBLE, rbf

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.candidates import Timed
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel, WienerKernel
from torch_kbandits.likelihoods import UncertaintyInjectionLikelihood
from torch_kbandits.memory import LinearGrowth, SlidingWindow, Stationary, TemporalPrior

START, MINUTE, SHARE, NOISE = datetime(2026, 11, 27), 60.0, 0.05, 0.05
MEMORY = TemporalPrior(-np.expm1(np.log1p(-SHARE) / MINUTE))  # a share of 1/20 each minute
KERNEL = oracles.in_time(oracles.rbf(0.4), SHARE)
X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float32)


COST = kb.Outcome("cost", memory=Stationary())
BOTH = kb.Scalarization({"reward": "maximize", "cost": "minimize"})


def wavy(x):
    return torch.sin(7.0 * x[:, 0].double()) * torch.cos(5.0 * x[:, -1].double())


def at(number):
    return START + timedelta(minutes=number)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("kind", ["arms", "actions", "know the time", "round"])
def test_ages_of_minutes_count_at_dates_of_today(kind, dtype):
    arms = X.to(dtype)
    candidates = {
        "arms": kb.Arms(arms),
        "actions": kb.ContextualActions(arms, context_dim=0),
        "know the time": Timed(kb.ContextualActions(arms, context_dim=0)),
        "round": kb.ContextualActions(action_dim=2, context_dim=0, dtype=dtype),
    }[kind]
    offered = {"candidates": arms} if kind == "round" else {}
    words = {"kernel": rbf(0.4), "regularization": NOISE, "beta": 2.0, "memory": MEMORY, "seed": 0}
    if kind == "know the time":
        words |= {"kernel": SpaceTimeKernel(rbf(0.4), ForgettingKernel(MEMORY.forgetting)), "memory": None}
    bandit = algorithms.GPUCB(candidates=candidates, **words)
    rows, y = [], []
    for number in range(10):
        values = bandit.acquisition(time=at(number), **offered)(arms.unsqueeze(-2)).detach().double().numpy()
        x = bandit.ask(time=at(number), **offered)
        assert x.dtype == dtype
        row = int((arms == x).all(-1).nonzero()[0])
        if rows:
            everywhere, at_minutes = X.double().numpy(), np.arange(float(number))[:, None]
            told, points = np.hstack([at_minutes, everywhere[rows]]), np.insert(everywhere, 0, number, axis=1)
            found = oracles.exact(KERNEL, told, np.array(y), np.full(number, NOISE), points)
            bounds = found.mean + 2.0 * np.sqrt(found.variance)
            assert bounds[row] > bounds.max() - 1e-5
            assert np.abs(values - bounds).max() < 1e-5
        rows.append(row)
        y.append(float(wavy(x) + 0.3 * (-1.0) ** number))
        bandit.tell(x, torch.tensor(y[-1:], dtype=dtype))
        assert not len(bandit.pending)
    assert torch.equal(bandit.history.times.diff(), torch.full((9,), MINUTE, dtype=DOUBLE))


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("box", {}),
        ("arms", {"mean": X.double().sum(-1)}),
        ("arms", {"mean": lambda points: points @ torch.ones(2, dtype=points.dtype)}),
        ("arms", {"mean": lambda points, time: torch.sin(time / 100.0) + points[:, 0], "memory": SlidingWindow(1e6)}),
        ("arms", {"mean": LinearMean(2)}),
        ("arms", {"constraints": [kb.AtMost("cost", 0.8, mode="optimistic")]}),
        ("arms", {"constraints": [kb.AtMost(COST, 0.8, mode="safe", safe_seed=X[:4])]}),
        ("arms", {"outcomes": [COST], "objective": BOTH}),
        ("context", {}),
    ],
    ids=["box", "table", "function", "of time", "linear", "limit", "safe seed", "objectives", "dictionary"],
)
def test_single_precision_chooses_as_double_does(kind, words):
    words, name, played = {"memory": MEMORY} | words, "bkb" if kind == "context" else "gp-ucb", []
    for dtype in (torch.float32, DOUBLE):
        arms, box = X.to(dtype), torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=dtype)
        candidates = kb.Arms(arms) if kind == "arms" else kb.Box(box)
        if kind == "context":
            candidates = kb.ContextualActions(arms[:, 1:], context_dim=1)
        if limits := [each for each in words.get("constraints", ()) if each.safe_seed is not None]:
            words["constraints"] = [replace(each, safe_seed=X[:4].to(dtype)) for each in limits]
        given = {"kernel": RBFKernel(), "regularization": NOISE, "beta": 2.0, "seed": 0} | words
        bandit, again = (algorithms.build(name, candidates=candidates, **given) for _ in range(2))
        chosen = []
        for number in range(8):
            context = {"context": arms[number, :1]} if kind == "context" else {}
            x = bandit.ask(time=at(number), **context)
            outcomes = {"outcomes": {"cost": x[:, 0]}} if bandit.outcomes else {}
            bandit.tell(x, wavy(x), **context, **outcomes)
            assert not len(bandit.pending)
            chosen.append(x.double())
        again.load_state_dict(bandit.state_dict())
        asked = [each.ask(time=at(9), **context) for each in (bandit, again)]
        assert torch.allclose(*asked, atol=1e-4)
        played.append(torch.cat(chosen))
    assert torch.allclose(*played, atol=1e-2 if kind == "box" else 1e-6)


@pytest.mark.parametrize("kernel", [ForgettingKernel(0.1), WienerKernel(0.1)])
def test_columns_of_dates_in_single_precision_are_refused(kernel):
    dates = torch.tensor([[1.8e9], [1.8e9 + 60.0]], dtype=DOUBLE)
    assert torch.isfinite(kernel(dates).to_dense()).all()
    with pytest.raises(kb.InputError, match="128 apart in single precision"):
        kernel(dates.float()).to_dense()
    likelihood = UncertaintyInjectionLikelihood(
        LinearGrowth(0.01), regularization=NOISE, now=1.8e9 + 60.0, time_column=0
    )
    assert torch.isfinite(likelihood.observation_noise(dates)).all()
    with pytest.raises(kb.InputError, match="128 apart in single precision"):
        likelihood.observation_noise(dates.float())

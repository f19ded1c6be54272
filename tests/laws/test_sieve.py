"""Among thousands of actions the one of the highest score is found by looking closely at few of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from torch_kbandits import ContextualActions, algorithms
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.beliefs import joint_lookahead, sieve
from torch_kbandits.memory import BackToPrior, SlidingWindow

CONTEXT, BETA, NOISE = torch.tensor([0.3, 0.6], dtype=torch.float64), 2.0, 0.05
ACTIONS = torch.rand(3_000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def kernel():
    """Length scales 0.5; variance 1."""
    own = RBFKernel().double()
    own.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    return own


def gram(X, Z):
    """The same by its formula."""
    return np.exp(-((X[:, None, :] - Z[None, :, :]) ** 2).sum(-1) / (2.0 * 0.5**2))


def told(algorithm, number=30, dtype=torch.float64, **words):
    """A bandit that was told some rewards in as many contexts, and points and rewards."""
    generator = torch.Generator().manual_seed(2)
    candidates = ContextualActions(ACTIONS.to(dtype), context_dim=2)
    bandit = algorithm(candidates=candidates, kernel=kernel(), regularization=NOISE, beta=BETA, seed=0, **words)
    for row in torch.randint(len(ACTIONS), (number,), generator=generator).tolist():
        context = torch.rand(2, generator=generator, dtype=torch.float64).to(dtype)
        x = ACTIONS[row, None].to(dtype)
        bandit.tell(x, float(torch.sin(5.0 * x.sum() + context[0])), context=context)
    return bandit


def dense_scores(X, y, pending, mean):
    """UCB scores of all actions in the context by dense formulas, the variances with points pending."""
    points = np.hstack([np.tile(CONTEXT.numpy(), (len(ACTIONS), 1)), ACTIONS.numpy()])
    solved = np.linalg.solve(gram(X, X) + NOISE * np.eye(len(X)), gram(X, points))
    seen = np.vstack([X, pending])
    cross = gram(seen, points)
    variance = 1.0 - (cross * np.linalg.solve(gram(seen, seen) + NOISE * np.eye(len(seen)), cross)).sum(0)
    return mean + (y - mean) @ solved + BETA * np.sqrt(variance)


@pytest.mark.parametrize("number_pending", [0, 3])
@pytest.mark.parametrize("mean", [0.0, 0.7])
@pytest.mark.parametrize("memory", [None, SlidingWindow(20, "observations")])
def test_the_choice_is_the_best_by_dense_formulas_and_few_are_looked_at(number_pending, mean, memory):
    bandit = told(algorithms.KUCB, memory=memory, mean=mean)
    for row in range(number_pending):
        bandit.mark_pending(ACTIONS[row, None], context=torch.tensor([0.1 * row, 0.5], dtype=torch.float64))
    pending, last = bandit.pending.numpy(), 0 if memory is None else -20
    X, y = bandit.history.X.numpy()[last:], bandit.history.Y.numpy()[last:]
    scores = dense_scores(X, y, pending, mean)
    x = bandit.ask(context=CONTEXT)
    (row,) = (x == ACTIONS).all(-1).nonzero().flatten().tolist()
    assert scores[row] >= scores.max() - 1e-9  # the Gram matrix has a condition number below 1e4
    assert bandit.visited_share < 0.05


class TestBounds:
    """Scores of all actions against the bounds of them."""

    def both(self, bandit, points=None):
        """The bounds, and the scores without them."""
        standing = bandit._standing
        ahead = standing.belief.lookahead(bandit.pending)
        domain = bandit.candidates.in_round(CONTEXT.to(bandit.history.X), None, standing.clock.now)
        arms = domain.arms if points is None else domain.arms[:points]
        rule, beta = UpperConfidenceRule(), torch.tensor(BETA, dtype=torch.float64)

        def score(mean, variance):
            return mean + BETA * variance.sqrt()

        with torch.no_grad():
            bounds = sieve.score_bounds(ahead._posterior, arms, score)
            offer = joint_lookahead._Offer(ahead, replace(domain, arms=arms))
            return bounds, rule.on_arms(offer, beta, 0)

    @pytest.mark.parametrize(
        ("algorithm", "words"),
        [
            (algorithms.KUCB, {}),
            (algorithms.EKUCB, {"max_dictionary": 8, "when_full": "stop"}),
            (algorithms.CBKB, {"resampling": "fresh", "oversampling": 0.5}),  # points leave and come back
            (algorithms.EKUCB, {"memory": BackToPrior(0.02)}),
        ],
    )
    @pytest.mark.parametrize("number_pending", [0, 2])
    def test_no_score_is_above_its_bound(self, algorithm, words, number_pending):
        bandit = told(algorithm, **words)
        for row in range(number_pending):
            bandit.mark_pending(ACTIONS[row, None], context=CONTEXT)
        bounds, scores = self.both(bandit)
        assert (bounds >= scores - 1e-9).all()
        assert (bounds - scores).max() < 0.5 * BETA  # far below that of the prior

    def test_in_single_precision_too(self):
        bounds, scores = self.both(told(algorithms.EKUCB, dtype=torch.float32))
        assert (bounds >= scores - 1e-4).all()
        assert (bounds - scores).max() < 0.5 * BETA

    def test_a_bound_is_the_score_where_the_bounding_points_span_the_dictionary(self):
        """Six observations have six coordinates, and 32 actions in general position span them."""
        bounds, scores = self.both(told(algorithms.KUCB, number=6))
        torch.testing.assert_close(bounds, scores.double(), rtol=0.0, atol=1e-5)
        wide = self.both(told(algorithms.KUCB, number=30))
        assert (wide[0] - wide[1]).max() > 1e-5  # and not where they do not


def test_bounds_that_rounding_puts_below_the_scores_hide_no_arm(monkeypatch):
    """In single precision kernel values depend on how many are computed at once."""
    bandit = told(algorithms.KUCB)
    best = bandit.ask(context=CONTEXT, remember=False)
    right = joint_lookahead.score_bounds

    def off(*words):
        bounds = right(*words)
        share = torch.rand(len(bounds), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return bounds - 0.01 * (1.0 + share)

    monkeypatch.setattr(joint_lookahead, "score_bounds", off)
    assert torch.equal(bandit.ask(context=CONTEXT), best)
    assert bandit.visited_share < 0.5


def peaks(points):
    """A prior mean with the same height at five actions, far above all others."""
    return torch.stack([(points[:, 2:] == ACTIONS[row]).all(-1) for row in range(0, 2_500, 500)]).any(0).double() * 9.0


@pytest.mark.parametrize("number", [0, 3])
def test_ties_are_broken_as_if_all_were_looked_at(number, monkeypatch):
    """By the lot of the round, over all actions."""

    def played(worthwhile):
        monkeypatch.setattr(joint_lookahead, "WORTHWHILE", worthwhile)
        chosen = []
        for seed in range(4):
            bandit = algorithms.KUCB(
                candidates=ContextualActions(ACTIONS, context_dim=2),
                kernel=kernel(),
                regularization=NOISE,
                mean=peaks,
                beta=0.0,
                seed=seed,
            )
            for x in ACTIONS[1 : 1 + number].unsqueeze(1):
                bandit.tell(x, 0.0, context=CONTEXT)  # as expected, so that means stay
            chosen.append(bandit.ask(context=CONTEXT))
            assert (bandit.visited_share < 0.05) == (worthwhile < len(ACTIONS))
        return torch.cat(chosen)

    few, all_of_them = played(2_048), played(10**6)
    assert torch.equal(few, all_of_them)
    assert len(few.unique(dim=0)) > 1

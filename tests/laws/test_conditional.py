"""What points observed at their posterior means take from variances: nothing rises, and nothing falls beyond bounds."""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, dense, difference, examples, rbf

from torch_kbandits import NystromGP, UncertaintyInjectionLikelihood, use_compiled
from torch_kbandits.beliefs import FeatureTable
from torch_kbandits.dictionaries import FixedDictionary
from torch_kbandits.memory import Linear
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.tables import hallucinated, store
from torch_kbandits.tables.hallucinated import HallucinatedArms
from torch_kbandits.tables.store import FeatureStore

LAMBDA = 0.05
KERNEL = oracles.rbf(0.4)
ARMS = data(60, 2)[0]
X, Y = data(30, 2, seed=1)


def table():
    """A posterior over the arms at a dictionary of few of the points played."""
    belief = FeatureTable(ARMS, rbf(0.4), LAMBDA, 0)
    return belief.updated(X, Y.squeeze(-1), FixedDictionary(X[:8]).select(belief.preview(X)))


def model(**words):
    return NystromGP(X, Y, inducing_points=X[:8], covar_module=rbf(0.4), regularization=LAMBDA, **words)


def variances(where, pending):
    """Of the arms given points pending, by a table or a model."""
    if where == "table":
        return TABLE.lookahead(pending).variance
    return variance(MODELS[where].hallucinated(pending), ARMS)


def variance(model, points):
    """Of a model at points (k, d), each alone, (k,)."""
    with torch.no_grad():
        return model.posterior(points.unsqueeze(-2)).variance.flatten()


def some_points(seed, k):
    """Points to be pending: some twice, some beside others, some played."""
    generator = torch.Generator().manual_seed(seed)
    P = torch.cat([torch.rand(k, 2, generator=generator, dtype=DOUBLE), X[:3], ARMS[:3]])
    P = P[torch.randint(len(P), (k,), generator=generator)]
    return P + torch.where(torch.rand(k, 1, generator=generator) < 0.5, 0.0, 1e-8)


@pytest.mark.parametrize("where", ["table", "plain", "learned"])
@examples(25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 7))
def test_no_variance_rises_and_none_falls_by_more_than_the_bounds(where, seed, k):
    """A point at a time: by 1 + its variance over λ at most; and by 1 + the sum of those before any, in all."""
    P = some_points(seed, k)
    start = before = MODELS["learned" if where == "learned" else "plain"]
    first = now = variances(where, P[:0])
    scores, product = variance(start, P) / LAMBDA, 1.0
    for number in range(k):
        product *= 1.0 + float(variance(before, P[number, None])) / LAMBDA
        before, after = start.hallucinated(P[: number + 1]), variances(where, P[: number + 1])
        assert bool((after <= now + 1e-12).all())
        assert float((first / after).max()) <= product * (1.0 + 1e-9)
        now = after
    assert float((first / now).max()) <= (1.0 + float(scores.sum())) * (1.0 + 1e-9)


@pytest.mark.parametrize("where", ["table", "plain", "learned"])
@examples(25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 7))
def test_points_are_taken_in_at_once_one_by_one_or_in_any_order(where, seed, k):
    P = some_points(seed, k)
    expected, order = variances(where, P), torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    assert difference(variances(where, P[order]), expected) < 1e-10
    if where == "table":
        ahead = TABLE.lookahead(P[:0])
        for number in range(k):
            ahead.add(P[number, None])
            if number % 2:
                assert bool((ahead.variance >= 0.0).all())
        assert difference(ahead.variance, expected) < 1e-10
    else:
        by_parts = MODELS[where].hallucinated(P[:1]).hallucinated(P[1:])
        assert difference(variance(by_parts, ARMS), expected) < 1e-10


def test_tables_and_models_have_the_dense_conditional():
    P = some_points(3, 6)
    posterior = partial(oracles.dtc, KERNEL, *dense(X, Y.squeeze(-1)), np.full(len(X), LAMBDA), *dense(X[:8]))
    wanted = oracles.with_pending(posterior, *dense(ARMS, P), LAMBDA)
    assert difference(variances("table", P), wanted.variance) < wanted.rounding
    assert difference(variances("plain", P), wanted.variance) < wanted.rounding
    found = MODELS["plain"].hallucinated(P).posterior(ARMS)
    assert difference(found.distribution.covariance_matrix.detach(), wanted.covariance) < wanted.rounding
    assert difference(found.mean.flatten().detach(), wanted.mean) < wanted.rounding


def test_a_point_counts_as_often_as_it_is_pending():
    ahead = TABLE.lookahead(ARMS[:0])
    ahead.add(ARMS[:1], 40)
    assert difference(ahead.variance, variances("table", ARMS[:1].expand(40, 2))) < 1e-12


def test_gradients_are_those_of_the_conditional():
    conditioned, x = MODELS["learned"].hallucinated(some_points(5, 4)), ARMS[:4].clone().unsqueeze(-2)
    assert torch.autograd.gradcheck(lambda x: conditioned.posterior(x).variance, x.requires_grad_(True))


@pytest.mark.parametrize("q", [1, 3])
def test_models_with_batch_dimensions_and_outputs_are_conditioned_one_by_one(q):
    P, T, other = some_points(6, 4), ARMS[:6].view(6 // q, 1, q, 2), 2.0 * Y + 1.0
    words = {"inducing_points": X[:8], "covar_module": rbf(0.4), "regularization": LAMBDA}
    single = [NystromGP(X, y, **words).hallucinated(P).posterior(T) for y in (Y, other)]
    batch = NystromGP(X.expand(2, -1, -1), torch.stack([Y, other]), **words).hallucinated(P).posterior(T)
    outputs = NystromGP(X, torch.cat([Y, other], -1), **words).hallucinated(P).posterior(T)
    for number, alone in enumerate(single):
        assert difference(batch.variance[:, number, None], alone.variance) < 1e-12
        assert difference(batch.mean[:, number, None], alone.mean) < 1e-12
        assert difference(outputs.variance[..., number, None], alone.variance) < 1e-12


@pytest.mark.parametrize("in_a_column", [False, True])
def test_where_observations_age_a_pending_one_is_fresh(in_a_column):
    times = torch.arange(30.0, dtype=DOUBLE)
    stamp = torch.full((3, 1), 30.0, dtype=DOUBLE)
    own = {"time_column": 2} if in_a_column else {"times": times}
    likelihood = UncertaintyInjectionLikelihood(Linear(0.01), regularization=LAMBDA, now=30.0, **own)
    kernel = rbf(0.4)
    kernel.active_dims = torch.tensor([0, 1])
    told, P = (
        (torch.cat([X, times.unsqueeze(-1)], -1), torch.cat([ARMS[:3], stamp], -1)) if in_a_column else (X, ARMS[:3])
    )
    ageing = NystromGP(told, Y, inducing_points=told[:8], covar_module=kernel, likelihood=likelihood)
    C = ageing.posterior(P).distribution.covariance_matrix.detach()
    wanted = (C - C @ torch.linalg.solve(C + LAMBDA * torch.eye(3, dtype=DOUBLE), C)).diagonal()
    assert difference(variance(ageing.hallucinated(P), P), wanted) < 1e-10


def test_a_conditioned_model_follows_what_it_is_told():
    conditioned, plain, P = model().hallucinated(ARMS[:2]), model(), ARMS[:2]
    for each in (conditioned, plain):
        each.tell(ARMS[5:9], Y[:4])
    assert difference(variance(conditioned, ARMS), variance(plain.hallucinated(P), ARMS)) < 1e-12


TABLE, MODELS = table(), {"plain": model(), "learned": model(learns_residual=True)}


def test_those_who_look_ahead_from_one_lookahead_do_not_disturb_each_other():
    """Two go on from the same points pending, each with its own, in turns; each is as if it were alone."""
    P, known = some_points(5, 6), TABLE.lookahead(some_points(5, 2))
    assert known.variance.shape == (60,)
    first, second = shallow_copy(known), shallow_copy(known)
    for mine, others in ((P[2], P[3]), (P[4], P[5])):
        for ahead, point in ((first, mine), (second, others)):
            ahead.add(point[None])
            assert ahead.variance.shape == (60,)
    start = some_points(5, 2)
    assert difference(first.variance, TABLE.lookahead(torch.cat([start, P[[2, 4]]])).variance) < 1e-12
    assert difference(second.variance, TABLE.lookahead(torch.cat([start, P[[3, 5]]])).variance) < 1e-12
    assert difference(known.variance, TABLE.lookahead(start).variance) < 1e-12


class Taken(NamedTuple):
    """Points of random coordinates, k of which are observed at their means, and what these take from the others.

    Attributes:
        parts: how many points are observed together.
        learns_residual: whether ``roots`` are not all 1.
        coordinates: of all points, (m, k + N).
        explained: what K⁻¹ leaves of them, z − K⁻¹z.
        roots: (k + N,).
        values: kernel values, (k + N, k + N).
        told: covariance of the k points with their noise, (k, k).
        wanted: ‖F‖² of the others, (N,).
        rounding: what may be lost of it in double precision.
    """

    parts: list[int]
    learns_residual: bool
    noise: float
    coordinates: np.ndarray
    explained: np.ndarray
    roots: np.ndarray
    values: np.ndarray
    told: np.ndarray
    wanted: np.ndarray
    rounding: float

    def seen(self, block, dtype=DOUBLE):
        roots = torch.tensor(self.roots[block], dtype=dtype) if self.learns_residual else None
        return Seen(torch.tensor(self.coordinates[:, block]), roots)

    def conditionals(self):
        """Of none of the points, then of one part after another."""
        known, first = Conditional.none(len(self.coordinates), torch.zeros((), dtype=DOUBLE)), 0
        if self.learns_residual:
            known = Conditional.none(len(self.coordinates), known.own, learns_residual=True)
        yield known
        for part in self.parts:
            some, first = slice(first, first + part), first + part
            own, inside = (torch.tensor(each[:, some]) for each in (self.explained, self.coordinates))
            among, noise = torch.tensor(self.values[:first, some]), torch.full((part,), self.noise, dtype=DOUBLE)
            known = known.given(self.seen(some), own, inside if self.learns_residual else None, among, noise)
            yield known


@st.composite
def takings(draw):
    """Any ``Taken``, in m coordinates, where some points are observed twice."""
    seed, m, number, outside = (draw(st.integers(0, most)) for most in (1000, 12, 9, 11))
    parts, noise = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)), draw(st.sampled_from([1e-6, 0.1]))
    learns_residual, rng, k = draw(st.booleans()), np.random.default_rng(seed), sum(parts)
    coordinates, rest = rng.standard_normal((m, k + number)), rng.standard_normal((outside, k + number))
    coordinates[:, k // 2 : k], rest[:, k // 2 : k] = coordinates[:, : k - k // 2], rest[:, : k - k // 2]
    root = rng.standard_normal((m, m))
    inverse = np.linalg.inv(np.eye(m) + root @ root.T)
    roots = rng.uniform(0.1, 1.0, k + number) if learns_residual else np.ones(k + number)
    spanned = coordinates.T @ coordinates
    values = spanned + rest.T @ rest
    covariance = values - spanned + coordinates.T @ inverse @ coordinates
    covariance -= (1.0 - np.outer(roots, roots)) * (values - spanned)
    told, cross = covariance[:k, :k] + noise * np.eye(k), covariance[:k, k:]
    wanted = (cross * np.linalg.solve(told, cross)).sum(0)
    rounding = 1e-13 * np.linalg.cond(told) * max(1.0, covariance.max(initial=0.0))
    explained = coordinates - inverse @ coordinates
    return Taken(parts, learns_residual, noise, coordinates, explained, roots, values, told, wanted, rounding)


@examples(40)
@given(it=takings())
def test_what_points_take_is_the_dense_formula_by_loops_and_by_pytorch(it):
    k = len(it.told)
    for enabled in (True, False):
        with use_compiled(enabled):
            *_, known = it.conditionals()
            at = torch.tensor(it.values[:k, k:]), it.seen(slice(k, None))
            assert difference(known.taken(*at), it.wanted) <= it.rounding
            assert difference(known.rows(*at).square().sum(0), it.wanted) <= it.rounding
            assert difference(known.factor @ known.factor.mT, it.told) <= it.rounding


@pytest.fixture
def _small_pieces(monkeypatch):
    """Segments and pieces whose borders a handful of arms crosses."""
    for module, name, number in ((store, "_SEGMENT", 3), (store, "_LEAST_SEGMENT", 4), (hallucinated, "_NUMBERS", 6)):
        monkeypatch.setattr(module, name, number)


@pytest.mark.usefixtures("_small_pieces")
@examples(40)
@given(it=takings(), is_single=st.booleans(), passes=st.sets(st.integers(0, 3)))
def test_passes_over_arms_find_the_dense_formula_by_loops_and_by_pytorch(it, is_single, passes):
    """In either precision, where a pass takes in several parts of points or one."""
    k, dtype = len(it.told), torch.float32 if is_single else DOUBLE
    m, number = it.coordinates[:, k:].shape
    arms, rounding = slice(k, None), it.rounding * (1e9 if is_single else 1.0)
    values = torch.tensor(it.values[:k, arms], dtype=dtype)
    columns: Any = SimpleNamespace(over_arms=lambda rows, block, keep: values[rows][:, block])
    features = torch.tensor(it.coordinates[:, arms], dtype=dtype)
    held = FeatureStore.holding([(slice(0, number), features)], number, m, features.new_empty(0))
    roots = it.seen(arms, dtype).roots
    for enabled in (True, False):
        with use_compiled(enabled):
            first, *more = it.conditionals()
            known = HallucinatedArms(features.new_zeros(number), first, torch.arange(0))
            for place, each in enumerate(more):
                known = known.given(each, torch.arange(len(each)))
                if place in passes:
                    known.of_all(held, columns, roots)
            assert difference(known.of_all(held, columns, roots), it.wanted) <= rounding
            assert len(known.rows) == k

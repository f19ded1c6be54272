"""The models' laws: whatever they are told, forget or span, they are the dense formulas, and go with BoTorch's ways."""

import copy
import itertools
import pickle

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from botorch import cross_validation
from botorch import settings as botorch_settings
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.settings import prior_mode
from hypothesis import given
from problems import DOUBLE, KERNELS, data, dense, difference, exactly, examples, matern, rbf

from torch_kbandits import InputError, KernelBanditError, KernelUCB, NystromGP, OnlineGP, RidgeLeverageSampling
from torch_kbandits.dictionaries import GreedyDictionary
from torch_kbandits.errors import NumericalError

LAMBDA = 0.01
T = data(6, 2, seed=1)[0]
NONE = torch.empty(0, 2, dtype=DOUBLE), torch.empty(0, 1, dtype=DOUBLE)
#: OnlineGP; NystromGP whose points all join; and at a dictionary of every third point, or another that is given.
KINDS = ["exact", "all points", "dictionary"]
over_models = pytest.mark.parametrize("kind", KINDS)
SOME_NOISE = 0.01 + 0.2 * torch.rand(60, 1, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)


def make(kind, X, Y, Yvar=None, *, kernel="matern", **words):
    if Yvar is None and "likelihood" not in words:
        words.setdefault("regularization", LAMBDA)
    words.setdefault("outcome_transform", None)
    words["covar_module"] = KERNELS[kernel].make() if isinstance(kernel, str) else kernel
    if kind == "exact":
        words.pop("inducing_points", None)
        return OnlineGP(X, Y, Yvar, **words)
    words.setdefault("inducing_points", X if kind == "all points" else X[..., ::3, :])
    return NystromGP(X, Y, Yvar, **words)


def tell(kind, model, *what):
    model.tell(*what, **({"add_to_dictionary": True} if kind == "all points" else {}))


def posterior(kind, model, X, Y, noise, T, kernel="matern"):
    """The dense one, of observations with these noise variances (n,)."""
    known = KERNELS[kernel].dense, *dense(X, Y[:, 0], noise)
    if kind == "dictionary" and len(X):
        return oracles.dtc(*known, *dense(model.inducing_points, T))
    return oracles.exact(*known, *dense(T))


def assert_dense(kind, model, X, Y, noise, T=T, kernel="matern"):
    """Means, covariances and what widths read are those of the dense formulas."""
    expected = posterior(kind, model, X, Y, noise, T, kernel)
    joint, alone = model.posterior(T), model.posterior(T.unsqueeze(-2))
    assert difference(joint.mean.flatten(), expected.mean) < expected.rounding
    assert difference(joint.distribution.covariance_matrix, expected.covariance) < expected.rounding
    assert difference(alone.mean.flatten(), expected.mean) < expected.rounding
    assert difference(alone.variance.flatten(), expected.variance) < expected.rounding
    if model.is_untransformed:
        mean, variance = model.marginals(T)
        assert torch.equal(mean, alone.mean.flatten())
        assert torch.equal(variance, alone.variance.flatten())
    assert model.num_observations == len(X)
    if not len(X):
        return
    Z = dense(model.inducing_points)[0] if kind == "dictionary" else None
    read = oracles.evidence(KERNELS[kernel].dense, *dense(X, Y[:, 0], noise), Z)
    lost = len(X) * expected.rounding / float(noise.min())
    for name, value in read.items():
        assert float(getattr(model, name)()) == pytest.approx(value, rel=1e-6, abs=max(lost, 1e-7)), name
    if kind == "exact":
        assert model.num_distinct == len(torch.unique(X + 0.0, dim=0))


def assert_same(one, other, T=T, tolerance=1e-9):
    one, other = one.posterior(T), other.posterior(T)
    assert difference(one.mean, other.mean) < tolerance
    assert difference(one.variance, other.variance) < tolerance
    if T.shape[-2] > 1:
        assert difference(one.distribution.covariance_matrix, other.distribution.covariance_matrix) < tolerance


# -------------------------------------------------------------------- whatever they are told

STEPS = st.lists(
    st.tuples(st.sampled_from(["tell", "tell", "remove", "condition", "extend", "choose", "copy"]), st.integers(0, 9)),
    max_size=9,
)


class Walk:
    """A model that is told and made to forget, and what is left of what it was told."""

    def __init__(self, kind, d, seed, kernel, has_noise, m=4):
        self.kind, self.kernel, self.draw = kind, kernel, np.random.default_rng(seed)
        self.pool, self.has_noise = data(10, d, seed)[0], has_noise
        self.X, self.Y, self.noise = self.pool[:0], self.pool[:0, :1], self.pool[:0, :1]
        words = {"inducing_points": self.pool[:0] if kind == "all points" else self.pool[:m], "regularization": LAMBDA}
        self.model = make(kind, self.X, self.Y, self.Y if has_noise else None, kernel=kernel, **words)

    def take(self, step, k):
        if step in ("tell", "condition"):
            X = self.pool[self.draw.integers(10, size=k)]
            Y = torch.sin(5.0 * X).sum(-1, keepdim=True) + torch.as_tensor(self.draw.normal(size=(k, 1)))
            noise = torch.as_tensor(self.draw.uniform(0.01, 0.5, size=(k, 1))) if self.has_noise else None
            if step == "tell":
                tell(self.kind, self.model, X, Y, noise)
            elif k:
                before = self.model.posterior(self.pool).mean
                was, self.model = self.model, self.model.condition_on_observations(X, Y, noise)
                assert torch.equal(was.posterior(self.pool).mean, before)
            noise = torch.full_like(Y, LAMBDA) if noise is None else noise
            self.X, self.Y, self.noise = torch.cat([self.X, X]), torch.cat([self.Y, Y]), torch.cat([self.noise, noise])
        elif step == "remove":
            rows = self.draw.permutation(len(self.X))[:k]
            self.model.remove(rows.tolist())
            kept = np.delete(np.arange(len(self.X)), rows)
            self.X, self.Y, self.noise = self.X[kept], self.Y[kept], self.noise[kept]
        elif step == "copy":
            self.model = copy.deepcopy(self.model)
        elif self.kind == "dictionary" and step == "extend":
            self.model.set_dictionary(torch.unique(torch.cat([self.model.inducing_points, self.pool[:k]]), dim=0))
        elif self.kind == "dictionary" and len(self.X):
            self.model.set_dictionary(GreedyDictionary(4))

    def check(self, T):
        points = self.model.inducing_points if self.kind != "exact" else T[:0]
        if self.kind == "dictionary" and len(points) > len(torch.unique(points, dim=0)):
            self.model.set_dictionary(torch.unique(points, dim=0))  # conditioning adds a point that was there
        assert_dense(self.kind, self.model, self.X, self.Y, self.noise[:, 0], T, self.kernel)
        assert torch.equal(self.model.train_inputs[0], self.X)
        assert torch.equal(self.model.train_targets, self.Y[:, 0])


@examples(30)
@given(
    kernel=st.sampled_from(sorted(KERNELS)), d=st.integers(1, 3), seed=st.integers(0, 10_000), has_noise=st.booleans(),
    steps=STEPS,
)  # fmt: skip
@over_models
def test_any_walk_is_the_dense_posterior(kind, kernel, d, seed, has_noise, steps):
    """Repeats, many at once and none; emptied; conditioned copies, of which the first stays as it was."""
    walk = Walk(kind, d, seed, kernel, has_noise, m=min(d, 2) if kernel == "linear" else 4)
    if kind == "dictionary" and kernel == "linear":  # which any points in general position span
        steps = [step for step in steps if step[0] not in ("extend", "choose", "condition")]
    for step in steps:
        walk.take(*step)
    walk.check(data(5, d, seed + 1)[0])


@pytest.mark.parametrize("rounds", [20, pytest.param(2_000, marks=pytest.mark.slow)])
@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_noise", [False, True])
@over_models
def test_many_changes_leave_no_drift(kind, has_noise, rounds):
    """Windows that roll on, and more or less in them: seen is 3e-12 at most after 2,000 changes."""
    walk = Walk(kind, 2, 0, "matern", has_noise)
    for number in range(rounds):
        walk.take("tell", int(walk.draw.integers(1, 4)))
        while len(walk.X) > 20 + number % 30:
            walk.take("remove", 2)
    walk.check(T)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["exact", "dictionary"])
def test_a_window_of_single_precision_stays_close(kind):
    """After 60 rounds: 5e-3 of the rewards' unit in the mean, 1e-3 of 1.7 in the variance."""
    (X, Y), w = data(100, 2), 40
    X[1::3] = X[::3][:33]
    model = make(kind, X[:w].float(), Y[:w].float(), inducing_points=X[:12:2].float())
    for row in range(w, 100):
        tell(kind, model, X[row, None].float(), Y[row, None].float())
        model.remove([0])
    Z = {"inducing_points": model.inducing_points.double()} if kind != "exact" else {}
    double, single = make(kind, X[-w:], Y[-w:], **Z).posterior(T), model.posterior(T.float())
    assert single.mean.dtype == single.variance.dtype == torch.float32
    assert difference(single.mean, double.mean) < 5e-3
    assert difference(single.variance, double.variance) < 1e-3


@examples(30)
@given(
    n=st.integers(1, 12), d=st.integers(1, 4), copies=st.integers(0, 6), seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3]), kernel=st.sampled_from(sorted(KERNELS)),
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS[:2])
def test_duplicates_and_nearly_collinear_points_stay_exact(kind, n, d, copies, spread, kernel, seed):
    """Singular dictionaries: the jitter costs at most about 1e-9 of the prior variance over λ."""
    X, generator = data(n, d, seed)[0], torch.Generator().manual_seed(seed)
    again = X[torch.randint(n, (copies,), generator=generator)]
    X = torch.cat([X, again + spread * torch.randn(copies, d, generator=generator, dtype=DOUBLE)])
    Y, T = torch.sin(3.0 * X.sum(-1, keepdim=True)), data(5, d, seed + 1)[0].unsqueeze(-2)
    told = make(kind, X[:1], Y[:1], kernel=kernel)
    tell(kind, told, X[1:], Y[1:])
    expected = posterior("exact", told, X, Y, torch.full((len(X),), LAMBDA, dtype=DOUBLE), T[:, 0], kernel)
    jitter = 1e-9 * max(1.0, float(KERNELS[kernel].dense(*dense(X, X)).max()))
    for model in (told, make(kind, X, Y, kernel=kernel)):
        assert difference(model.posterior(T).mean.flatten(), expected.mean) < jitter / LAMBDA
        assert difference(model.posterior(T).variance.flatten(), np.maximum(expected.variance, 1e-10)) < jitter / LAMBDA


def test_precise_observations_leave_no_error_behind():
    """150 that count 3e5 times as much go one by one: what stays has not their rounding, 2e-8 of the mean."""
    X, Y = data(40, 2)
    noise = torch.cat([torch.ones(40, 1), torch.full((150, 1), 3e-6)]).double()
    everything = torch.cat([X, X[:5].repeat(30, 1)]), torch.cat([Y, Y[:5].repeat(30, 1)])
    for kind in ("exact", "dictionary"):
        model = make(kind, *everything, noise, inducing_points=X[:10])
        for _ in range(150):
            model.remove([40])
        assert_dense(kind, model, X, Y, noise[:40, 0])


class Counting(RBFKernel):
    """Counts the kernel values that it computes."""

    computed = 0

    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        Counting.computed += values.numel()
        return values


@over_models
def test_a_change_costs_what_it_changes(kind):
    """One more of 400 observations of 20 points, or one less, evaluates no more than the 20 points."""
    X, Y = data(20, 2)
    kernel = Counting().double()
    model = make(kind, X.repeat(20, 1), Y.repeat(20, 1), kernel=kernel, inducing_points=X)
    model.posterior(T)
    Counting.computed = 0
    tell(kind, model, X[:1], Y[:1])
    model.remove([7])
    assert Counting.computed < 6 * 20


# -------------------------------------------------------------------- noise of their own


@pytest.mark.one_in(2)
@pytest.mark.parametrize("made_with", ["regularization", "train_Yvar", "a likelihood"])
@over_models
def test_each_observation_may_have_noise_of_its_own_whatever_the_model_was_made_with(kind, made_with):
    X, Y = data(14, 2)
    X[12:] = X[:2]
    given, noise = SOME_NOISE[8:12], torch.full((14,), LAMBDA, dtype=DOUBLE)
    noise[8:12] = given[:, 0]
    words = {"regularization": LAMBDA}
    if made_with == "a likelihood":
        words = {"likelihood": make("exact", X, Y).likelihood}
    model = make(kind, X[:8], Y[:8], torch.full_like(Y[:8], LAMBDA) if made_with == "train_Yvar" else None, **words)
    conditioned = model.condition_on_observations(X[8:12], Y[8:12], noise=given)
    if kind != "dictionary":
        assert_dense(kind, conditioned, X[:12], Y[:12], noise[:12])
    tell(kind, model, X[8:12], Y[8:12], given)
    tell(kind, model, X[12:], Y[12:])
    assert_dense(kind, model, X, Y, noise)
    assert float(model.regularization) == pytest.approx(LAMBDA)
    predicted = model.posterior(T, observation_noise=True).variance - model.posterior(T).variance
    assert difference(predicted, torch.full_like(predicted, LAMBDA)) < 1e-12
    model.remove([0, 9, 13])
    kept = [*range(1, 9), 10, 11, 12]
    assert_dense(kind, model, X[kept], Y[kept], noise[kept])


@over_models
def test_without_noise_later_observations_have_the_regularization_or_the_mean(kind):
    X, Y = data(12, 2)
    for own in (None, 0.3):
        noise = SOME_NOISE[:12].clone()
        model = make(kind, X[:6], Y[:6], noise[:6], regularization=own)
        noise[6:9] = noise[:6].mean() if own is None else own
        tell(kind, model, X[6:9], Y[6:9])
        tell(kind, model, X[9:], Y[9:], noise[9:])
        assert difference(model.likelihood.noise, noise[:, 0]) < 1e-15
        assert_dense(kind, model, X, Y, noise[:, 0])


@over_models
def test_tiny_variances_are_rounded_up_and_a_likelihood_asked_without_inputs_does_not_guess(kind):
    """BoTorch's loo_cv would take λ for all: what is meant must be said."""
    X, Y = data(12, 2)
    model = make(kind, X[:8], Y[:8])
    with pytest.warns(match="Rounding small noise"):
        tell(kind, model, X[8:10], Y[8:10], torch.zeros_like(Y[8:10]))
    assert_dense(kind, model, X[:10], Y[:10], torch.tensor([LAMBDA] * 8 + [1e-6] * 2, dtype=DOUBLE))
    model.tell(X[8:], Y[8:], SOME_NOISE[8:12])
    with pytest.raises(InputError, match="Observations have noise of their own"):
        model.likelihood(model(T))
    predicted = model.likelihood(model(T), T).variance - model(T).variance
    assert difference(predicted, torch.full_like(predicted, LAMBDA)) < 1e-12


def test_noise_that_nothing_tells_is_asked_for():
    """The default is the mean of the variances there are, and here there are none."""
    X, Y = data(8, 2)
    for start in (0, 2):
        model = make("exact", X[:start], Y[:start], Y[:start].abs(), regularization=None)
        model.remove(list(range(start)))
        for change in (model.tell, model.condition_on_observations):
            with pytest.raises(InputError, match="give it, or make the model with a regularization"):
                change(X, Y)


# -------------------------------------------------------------------- the dictionary


def test_the_variance_does_not_starve_away_from_the_dictionary_and_shrinks_where_points_join():
    (X, Y), far, zero = data(20, 2), torch.full((1, 2), 9.0, dtype=DOUBLE), torch.zeros(1, 1, dtype=DOUBLE)
    model = make("dictionary", X, Y, kernel="rbf")
    assert float(model.posterior(far).variance.detach()) == pytest.approx(1.0, abs=1e-12)
    conditioned = model.condition_on_observations(far, zero)
    model.tell(far, zero)
    assert float(model.posterior(far).variance.detach()) > 0.99
    model.remove([20])
    model.tell(far, zero, add_to_dictionary=True)
    for each in (model, conditioned):
        assert float(each.posterior(far).variance.detach()) == pytest.approx(LAMBDA / (1.0 + LAMBDA), rel=1e-6)
    spanned, rows = make("all points", *NONE, kernel="linear"), [0, 0, 1, 2, *range(20)]
    for told in (rows[:4], *([row] for row in rows[4:])):
        spanned.tell(X[told], Y[told], add_to_dictionary=True)
    assert torch.equal(spanned.inducing_points, X[:2])  # two features: what is spanned does not join
    assert_dense("all points", spanned, X[rows], Y[rows], torch.full((24,), LAMBDA, dtype=DOUBLE), kernel="linear")


class Seeing(GreedyDictionary):
    """Keeps what it is shown."""

    def select(self, played, generator=None):
        type(self).seen = played
        return super().select(played, generator)


def test_a_rule_chooses_by_the_present_posterior():
    X, Y = data(40, 2)
    X[30:] = X[:10]
    model = make("dictionary", X[:20], Y[:20], inducing_points=X[:5])
    model.tell(X[20:], Y[20:])
    model.remove([3, 33])  # the point is gone for good
    points = torch.cat([X[:3], X[4:30]])
    scores = model.posterior(points.unsqueeze(-2)).variance.detach().flatten() / LAMBDA
    model.set_dictionary(Seeing(11))
    played = Seeing.seen
    assert torch.equal(played.points, points)
    assert played.counts.tolist() == [2.0 if row < 9 else 1.0 for row in range(29)]
    assert difference(played.leverage_scores, scores) < 1e-9
    assert played.in_dictionary.tolist() == [row < 4 for row in range(29)]
    assert len(model.inducing_points) == 11
    everything = [0, 1, 2, *range(4, 33), *range(34, 40)]
    for _ in range(2):
        assert_dense("dictionary", model, X[everything], Y[everything], torch.full((38,), LAMBDA, dtype=DOUBLE))
        model.set_dictionary(RidgeLeverageSampling(), torch.Generator().manual_seed(3))


# -------------------------------------------------------------------- shapes and gradients


@over_models
def test_t_batches_equal_one_at_a_time_and_have_gradients(kind):
    """Also where points are pending."""
    X, Y = data(20, 2)
    model = make(kind, X, Y)
    tell(kind, model, X[15:], Y[15:])
    for q, t_shape in ((1, (3,)), (4, (2, 3))):
        T = torch.rand(*t_shape, q, 2, dtype=DOUBLE)
        batched = model.posterior(T)
        assert batched.mean.shape == (*t_shape, q, 1)
        for index in itertools.product(*map(range, t_shape)):
            assert difference(batched.mean[index], model.posterior(T[index]).mean) < 1e-12
            joint = batched.distribution.covariance_matrix[index]
            assert difference(joint, model.posterior(T[index]).distribution.covariance_matrix) < 1e-12
    T = torch.rand(2, 3, 2, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda T: (model.posterior(T).mean, model.posterior(T).variance), (T,))
    assert torch.autograd.gradcheck(KernelUCB(model, beta=2.0, X_pending=X[:3] + 0.1), (T[0].unsqueeze(-2),))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("outputs", [1, 2])
@over_models
def test_a_batch_of_models_equals_its_members(kind, outputs):
    X, Y = (torch.stack(parts) for parts in zip(*(data(12, 2, seed) for seed in range(3)), strict=True))
    if kind == "exact":
        X[:, 1] = X[:, 0]  # in batches repeats are not merged, and do no harm
    Y = torch.cat([Y, Y.square()], -1)[..., :outputs]
    new, values, shared = torch.rand(3, 2, 2, dtype=DOUBLE), Y[:, :2], torch.rand(7, 1, 2, 2, dtype=DOUBLE)
    batch = make(kind, X, Y)
    conditioned = batch.condition_on_observations(new, values)
    assert batch.posterior(shared).mean.shape == (7, 3, 2, outputs)
    for b in range(3):
        alone = make(kind, X[b], Y[b])
        more = alone.condition_on_observations(new[b], values[b])
        for ours, theirs in ((batch, alone), (conditioned, more)):
            ours, theirs = ours.posterior(shared), theirs.posterior(shared[:, 0])
            assert difference(ours.mean[:, b], theirs.mean) < 1e-9
            assert difference(ours.variance[:, b], theirs.variance) < 1e-9
        assert difference(batch.information_gain()[b], alone.information_gain()) < 1e-9
    for change in (lambda: batch.tell(X[0], Y[0]), lambda: batch.remove([0])):
        with pytest.raises(InputError, match=r"without batch dimensions.*Use condition_on_observations"):
            change()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_noise", [False, True])
@over_models
@pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized")
def test_outputs_equal_models_of_their_own(kind, has_noise):
    X, Y = data(15, 2)
    X[12:] = X[:3]
    Y, noise = torch.cat([Y, Y.square(), -Y], dim=-1), SOME_NOISE[:45].reshape(15, 3)

    def told(columns):
        parts = [noise[rows][:, columns] if has_noise else None for rows in (slice(9), slice(9, None))]
        words = {"kernel": None, "regularization": LAMBDA, "outcome_transform": Standardize(m=len(columns))}
        model = make(kind, X[:9], Y[:9, columns], parts[0], **words)
        tell(kind, model, X[9:], Y[9:, columns], parts[1])
        model.remove([1, 11, 10, 3])
        return model

    joint = told([0, 1, 2])
    for o in range(3):
        T, alone = torch.rand(4, 1 + o, 2, dtype=DOUBLE), told([o])
        assert difference(joint.posterior(T).mean[..., o, None], alone.posterior(T).mean) < 1e-9
        assert difference(joint.posterior(T).variance[..., o, None], alone.posterior(T).variance) < 1e-9
        for name in ("leverage_scores", "information_gain", "mean_norm", "effective_dimension", "projection_error"):
            assert difference(getattr(joint, name)()[o], getattr(alone, name)()) < 1e-9
        conditioned, expected = (each.condition_on_observations(X[:2], Y[:2, c] + 1.0) for each, c in
                                 ((joint, [0, 1, 2]), (alone, [o])))  # fmt: skip
        assert difference(conditioned.posterior(T).mean[..., o, None], expected.posterior(T).mean) < 1e-9
    subset = joint.subset_output([0, 2])
    for model, columns in ((subset, [0, 2]), (joint, [0, 1, 2])):
        tell(kind, model, X[:2], Y[:2, columns], noise[:2, columns] if has_noise else None)
    assert difference(subset.posterior(T).mean, joint.posterior(T).mean[..., [0, 2]]) < 1e-9


def test_autograd_through_played_points_and_rewards_equals_botorchs():
    """Repeats too: each has a gradient of its own, so they are not merged while one is asked for."""
    X, Y = data(12, 2)
    X[8:] = X[:4]
    gradients = []
    for is_ours in (True, False):
        points, rewards = X.clone().requires_grad_(), Y.clone().requires_grad_()
        words = {"covar_module": matern(), "mean_module": ZeroMean(), "outcome_transform": None}
        noise = torch.full_like(Y, LAMBDA)
        model = make("exact", points, rewards) if is_ours else SingleTaskGP(points, rewards, noise, **words)
        with botorch_settings.propagate_grads(True):
            found = model.posterior(X[:3] + 0.1)
            (found.mean.sum() + found.variance.square().sum()).backward()
        gradients.append((points.grad, rewards.grad))
    for ours, theirs in zip(*gradients, strict=True):
        assert float(ours.abs().min()) > 1e-6
        assert difference(ours, theirs) < 1e-8


@pytest.mark.one_in(2)
@pytest.mark.parametrize("used", [False, True])
@over_models
def test_hyperparameter_gradients_flow_when_asked(kind, used):
    """Also where factors with a graph were kept when the model was told; then they hold none."""
    X, Y = data(12, 2)
    found, Z = [], {"inducing_points": X[:5]} if kind == "dictionary" else {}
    for told in (True, False):
        model = make(kind, *((X[:10], Y[:10]) if told else (X, Y)), kernel=matern(), **Z)
        with botorch_settings.propagate_grads(True):
            if used:
                model.posterior(T)
            if told:
                tell(kind, model, X[10:], Y[10:])
            for _ in range(2):
                model.covar_module.zero_grad()
                model.train()
                at = model.posterior(T)
                (at.mean.sum() + at.variance.sum()).backward()
        found.append(model.covar_module.base_kernel.raw_lengthscale.grad)
    assert float(found[0].abs().min()) > 1e-3
    assert difference(*found) < 1e-8


# -------------------------------------------------------------------- transforms, states, copies


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", [pytest.param("train", marks=pytest.mark.needs("botorch>=0.18")), "eval"])
@pytest.mark.parametrize("has_noise", [False, True])
@over_models
def test_transforms_and_means_are_kept_when_told(kind, has_noise, mode):
    """As built by hand in transformed units, with the bounds and scales of the first observations."""
    X, Y = data(20, 2)
    X, Y, noise = 10.0 * X - 3.0, 5.0 * Y + 100.0, 20.0 * SOME_NOISE[:20]
    low, span = X[:10].amin(0), X[:10].amax(0) - X[:10].amin(0)
    centre, scale, mean = Y[:10].mean(), Y[:10].std(), ConstantMean().double()
    mean.constant = exactly(0.7)
    words = {"input_transform": Normalize(d=2), "outcome_transform": Standardize(m=1), "mean_module": mean}
    model = make(kind, X[:10], Y[:10], noise[:10] if has_noise else None, **words)
    model.train(mode == "train")
    tell(kind, model, X[10:], Y[10:], noise[10:] if has_noise else None)
    tell(kind, model, X[:2], Y[:2], noise[:2] if has_noise else None)
    model.remove([0, 12])
    rows = [*range(1, 12), *range(13, 20), 0, 1]
    if kind == "dictionary":
        model.set_dictionary(torch.cat([model.inducing_points, X[15:17]]))
    Z = {} if kind == "exact" else {"inducing_points": (model.inducing_points - low) / span}
    own = noise[rows] / scale**2 if has_noise else None
    by_hand = make(kind, (X[rows] - low) / span, (Y[rows] - centre) / scale - 0.7, own, **Z)
    test = 10.0 * T - 3.0
    new = torch.rand(2, 2, dtype=DOUBLE), torch.full((2, 1), 101.0, dtype=DOUBLE)
    copies = (
        model.condition_on_observations(*new),
        by_hand.condition_on_observations((new[0] - low) / span, (new[1] - centre) / scale - 0.7),
    )
    for ours, theirs in ((model, by_hand), copies):
        ours, theirs = ours.posterior(test), theirs.posterior((test - low) / span)
        assert difference(ours.mean, (theirs.mean + 0.7) * scale + centre) < 1e-8
        assert difference(ours.variance, theirs.variance * scale**2) < 1e-8
    if kind == "dictionary":
        model.set_dictionary(RidgeLeverageSampling())
        assert bool((model.inducing_points[:, None] == X).all(-1).any(-1).all())  # as told, not as transformed


def told(kind):
    """A model that was told, whose transforms are its first observations'."""
    X, Y = data(20, 2)
    words = {"input_transform": Normalize(d=2), "outcome_transform": Standardize(m=1)}
    model = make(kind, X[:12], Y[:12], SOME_NOISE[:12], **words)
    tell(kind, model, X[10:], Y[10:], SOME_NOISE[10:20])
    model.remove([2])
    model.posterior(T)
    return model


@pytest.mark.one_in(2)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
@over_models
def test_copies_are_equal_and_independent(kind, duplicate):
    model = told(kind)
    other, before = duplicate(model), model.posterior(T).mean
    assert_same(other, model, tolerance=1e-12)
    tell(kind, other, T, T[:, :1])
    assert torch.equal(model.posterior(T).mean, before)
    tell(kind, model, T, T[:, :1])
    assert_same(other, model)


@over_models
def test_casts_and_new_data_leave_no_stale_factors(kind):
    model = told(kind)
    single = copy.deepcopy(model).to(torch.float32)
    for _ in range(2):
        assert difference(single.posterior(T.float()).mean, model.posterior(T).mean) < 2e-3
        single.tell(T.float(), T[:, :1].float())
        model.tell(T, T[:, :1])
    X, Y = data(12, 2)
    plain = make(kind, X, Y)
    plain.tell(X, Y)
    plain.set_train_data(X[:5], Y[:5, 0], strict=False)
    plain.tell(X[3:7], Y[3:7])
    rows = [0, 1, 2, 3, 4, 3, 4, 5, 6]
    Z = {} if kind == "exact" else {"inducing_points": plain.inducing_points}
    assert_same(plain, make(kind, X[rows], Y[rows], **Z))


@over_models
def test_fantasies_and_model_lists_condition_as_models_do(kind):
    """Shapes of fantasies are in BoTorch's own cases."""
    X, Y = data(12, 2)
    model, new, sampler = make(kind, X, Y), torch.rand(3, 2, 2, dtype=DOUBLE), IIDNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(new, sampler)
    by_hand = model.condition_on_observations(new, fantasies.train_targets[2, ..., -2:].unsqueeze(-1).detach())
    found, expected = fantasies.posterior(T), by_hand.posterior(T)
    assert difference(found.mean[2], expected.mean) < 1e-9
    assert difference(found.variance[2].expand_as(expected.variance), expected.variance) < 1e-9
    assert difference(fantasies.train().eval().posterior(T).mean, found.mean) < 1e-8  # from scratch
    listed, noise = ModelListGP(model, make(kind, X, -Y)).eval(), SOME_NOISE[:4].reshape(2, 2)
    listed.posterior(T)
    conditioned = listed.condition_on_observations([new[0]] * 2, Y[:2].expand(2, 2), noise=noise)
    for o, part in enumerate(listed.models):
        alone = part.condition_on_observations(new[0], Y[:2], noise=noise[:, o, None]).posterior(T)
        assert difference(conditioned.posterior(T).mean[:, o, None], alone.mean) < 1e-9
        assert difference(conditioned.posterior(T).variance[:, o, None], alone.variance) < 1e-9


# -------------------------------------------------------------------- fitting and leaving out


def evidence_of(model):
    """What a fit maximises, of all observations."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    return model.train_targets.shape[-1] * mll(model(*model.train_inputs), model.train_targets, *model.train_inputs)


@pytest.mark.parametrize("m", [1, 6, 25])
def test_fitting_maximises_the_collapsed_bound(m):
    """Of each output, by transforms not learned from the dictionary; at all points it is the exact likelihood."""
    X, Y = data(25, 2)
    X, Y = 4.0 * X + 1.0, torch.cat([Y, Y.square()], -1)
    unit = (X - X.amin(0)) / (X.amax(0) - X.amin(0))
    for Yvar in (None, torch.full_like(Y, LAMBDA)):
        model = make("dictionary", X, Y, Yvar, inducing_points=X[:m], input_transform=Normalize(d=2)).train()
        bounds = evidence_of(model).detach()
        for o in range(2):
            known = dense(unit, Y[:, o])
            expected = oracles.collapsed_bound(KERNELS["matern"].dense, *known, LAMBDA, *dense(unit[:m]))
            assert float(bounds[o]) == pytest.approx(expected, rel=1e-7)


@over_models
def test_fitting_knows_noise_that_was_given(kind):
    X, Y = data(25, 2)
    learning = make(kind, X[:8], Y[:8], likelihood=make("exact", X, Y).likelihood)
    learning.tell(X[8:], Y[8:], SOME_NOISE[8:25])
    learning.likelihood.noise_covar.raw_noise.requires_grad_(True)
    noise = torch.cat([torch.full((8, 1), LAMBDA, dtype=DOUBLE), SOME_NOISE[8:25]])
    Z = {} if kind == "exact" else {"inducing_points": learning.inducing_points}
    value = evidence_of(learning)
    assert float(value.detach()) == pytest.approx(float(evidence_of(make(kind, X, Y, noise, **Z)).detach()))
    value.backward()
    assert float(learning.likelihood.noise_covar.raw_noise.grad) != 0.0


@pytest.mark.needs("botorch>=0.18")
def test_a_nystrom_posterior_is_none_of_the_prior_and_the_observations_alone():
    model = make("dictionary", *data(14, 2), kernel=rbf(0.5)).eval()
    with pytest.raises(UnsupportedError, match=r"prior_mode\(\): model\(X\).*remove rows"):
        cross_validation.loo_cv(model)
    with prior_mode():
        assert difference(model(T).variance, torch.ones(len(T), dtype=DOUBLE)) < 1e-12


# -------------------------------------------------------------------- bad input: everything or nothing

X, Y = data(8, 2)
NAN = float("nan")
BAD_TELLS = [
    ((X * NAN, Y), "X must be finite"),
    ((X, Y / 0.0), "Y must be finite"),
    (([["a", "b"]], Y), "X must be real numbers"),
    ((torch.cat([X, X], -1), Y), "X must have d = 2 columns"),
    ((X.float(), Y), "X must have dtype torch.float64"),
    ((X, Y[:3]), r"X must be \(k, d\) and Y \(k, 1\)"),
    ((X.expand(2, 8, 2), Y.expand(2, 8, 1)), r"X must be \(k, d\)"),
    ((X, Y, -Y.abs()), "Yvar must not be negative, its least"),
    ((X, Y, Y[:2].abs()), r"the shape of Y, \(8, 1\)"),
    ((torch.cat([X[:1], X[:1]]), torch.full((2, 1), 1.7e308, dtype=DOUBLE)), "add up to more"),
]
BAD_ROWS = [
    *((rows, "distinct rows of the 8 observations") for rows in ([0, 8], [-1], [1, 1])),
    (torch.tensor([True, False]), "rows must be one or more whole numbers"),
]
BAD_DICTIONARIES = [
    ([["a", "b"]], "dictionary must be real numbers"),
    (RidgeLeverageSampling, "dictionary must be"),
    (X[:, :1], "dictionary must have d = 2 columns"),
    (X[:0], r"dictionary must be points \(m, d\), at least one"),
    (X.expand(2, 8, 2), r"dictionary must be points \(m, d\)"),
]


def state_of(model):
    noise, found = model.likelihood.noise.clone(), model.posterior(X + 0.03)
    now = [model.train_inputs[0].clone(), model.train_targets.clone(), noise, found.mean.detach(), found.variance]
    return [*now, getattr(model, "inducing_points", X).clone()]


def assert_unchanged(model, before):
    for ours, theirs in zip(state_of(model), before, strict=True):
        assert torch.equal(ours, theirs)
    model.tell(X[:2], Y[:2])
    assert bool(torch.isfinite(model.posterior(X).mean).all())


@over_models
def test_what_is_bad_is_named_and_changes_nothing(kind):
    model = make(kind, X, Y, Y.abs())
    before = state_of(model)
    wrong = [(tell, (kind, model, *arguments), message) for arguments, message in BAD_TELLS]
    wrong += [(type(model).remove, (model, rows), message) for rows, message in BAD_ROWS]
    if kind == "dictionary":
        wrong += [(type(model).set_dictionary, (model, Z), message) for Z, message in BAD_DICTIONARIES]
    for call, arguments, message in wrong:
        with pytest.raises(KernelBanditError, match=message):
            call(*arguments)
    assert_unchanged(model, before)
    model.tell(X[:0], Y[:0])
    model.remove([])
    assert model.num_observations == 10


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_reward_whose_square_is_too_large_is_learned_and_whose_sum_is_refused_in_all_ways(kind):
    """Only squares of it are too large, which no posterior has: the norm of the mean is taken in parts."""
    large, other = make(kind, X, Y), make(kind, X, Y)
    large.tell(X[:1], torch.full((1, 1), 1e160, dtype=DOUBLE))
    other.tell(X[:1], torch.full((1, 1), 1e60, dtype=DOUBLE))
    assert difference(large.posterior(T).mean / 1e160, other.posterior(T).mean / 1e60) < 1e-7
    assert float(large.mean_norm()) / 1e160 == pytest.approx(float(other.mean_norm()) / 1e60)
    (x, y), model = BAD_TELLS[-1][0], make(kind, X, Y)
    for way in (
        lambda: model.condition_on_observations(x, y).posterior(T),
        lambda: model.get_fantasy_model(x, y.squeeze(-1)).posterior(T),
        lambda: make(kind, torch.cat([X, x]), torch.cat([Y, y])).posterior(T),
    ):
        with pytest.raises(KernelBanditError, match=r"NaN or infinite|add up to more"):
            way()


class Breaking(RBFKernel):
    """Raises, or returns no covariance, when told to."""

    broken = None

    def forward(self, x1, x2, diag=False, **params):
        if self.broken == "raises":
            raise RuntimeError("the kernel is broken")
        return super().forward(x1, x2, diag=diag, **params) * {"indefinite": -1.0, "NaN": NAN}.get(self.broken, 1.0)


CHANGES = {
    "tell": lambda kind, model: tell(kind, model, torch.cat([X[:1], X + 0.5]), torch.cat([Y[:1], Y])),
    "set_dictionary": lambda _, model: model.set_dictionary(X[3:]),
    "choose": lambda _, model: model.set_dictionary(GreedyDictionary(6)),
}
CHANGED = [*((kind, "tell") for kind in KINDS), ("dictionary", "set_dictionary"), ("dictionary", "choose")]


@pytest.mark.parametrize(("kind", "change"), CHANGED)
def test_a_broken_kernel_changes_nothing(kind, change):
    for broken in ("raises", "NaN", "indefinite"):
        if (kind, change, broken) == ("dictionary", "tell", "indefinite"):
            continue  # cross-covariances alone do not show that they are no covariances
        kernel = Breaking().double()
        model = make(kind, X, Y, kernel=kernel)
        before = state_of(model)
        kernel.broken = broken
        with pytest.raises((RuntimeError, NumericalError)):
            CHANGES[change](kind, model)
        kernel.broken = None
        assert_unchanged(model, before)

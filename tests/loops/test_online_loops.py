"""OnlineGP, told or built, inside the loops that BoTorch users already have: what SingleTaskGP gives there."""

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from problems import DOUBLE, data, difference, exactly, matern, rbf

from torch_kbandits import ConstantWidth, KernelUCB, OnlineGP

X, Y = data(40, 2)
X[30:] = X[:10]  # repeats
NOISE, BOUNDS = 0.05, torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)


def built(n=40, train_Yvar=None, **words):
    words = {"covar_module": matern()} | ({} if train_Yvar is not None else {"regularization": NOISE}) | words
    return OnlineGP(X[:n], Y[:n], None if train_Yvar is None else train_Yvar[:n], **words)


def told(train_Yvar=None, **words):
    """The same observations, most of them told, and some told that are removed again."""
    model = built(25, train_Yvar, **words)
    for part in torch.arange(25, 40).split(4):
        model.tell(X[part], Y[part], None if train_Yvar is None else train_Yvar[part])
    model.tell(X[:3] + 0.3, Y[:3])
    model.remove([40, 42, 41])
    return model


def exact(**words):
    words = {"covar_module": matern(), "mean_module": ZeroMean(), "outcome_transform": None} | words
    return SingleTaskGP(X, Y, torch.full_like(Y, NOISE), **words)


either = pytest.mark.parametrize("make", [built, told])
ACQUISITIONS = {
    "KernelUCB": lambda m: KernelUCB(m, beta=2.0),
    "UpperConfidenceBound": lambda m: UpperConfidenceBound(m, beta=4.0),
    "LogExpectedImprovement": lambda m: LogExpectedImprovement(m, best_f=Y.max().item()),
    "qLogNEI": lambda m: qLogNoisyExpectedImprovement(
        m, X[:10], sampler=SobolQMCNormalSampler(torch.Size([64]), seed=0)
    ),
}


@either
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_values_and_gradients_equal_those_of_botorchs_model(name, make):
    values, gradients = [], []
    for m in (make(), exact()):
        T = torch.rand(20, 1, 2, generator=torch.Generator().manual_seed(1), dtype=DOUBLE).requires_grad_()
        values.append(ACQUISITIONS[name](m)(T))
        gradients.append(torch.autograd.grad(values[-1].sum(), T)[0])
    assert difference(*values) < 1e-6
    assert difference(*gradients) < 1e-5


@either
def test_kernel_ucb_is_botorchs_ucb_with_the_square_root_taken(make):
    T = torch.rand(50, 1, 2, dtype=DOUBLE)
    expected = UpperConfidenceBound(exact(), beta=4.0)(T)
    assert difference(KernelUCB(make(), beta=2.0)(T), expected) < 1e-8
    assert difference(KernelUCB(make(), beta=ConstantWidth(2.0))(T), expected) < 1e-8


@pytest.mark.one_in(2)
@either
@pytest.mark.parametrize("used", [False, True])
def test_knowledge_gradients_equal_botorchs(make, used):
    results = []
    for m in (make(), exact()):
        if used:
            with torch.no_grad():
                m.posterior(X[:2])
        sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
        acquisition = qKnowledgeGradient(m, num_fantasies=4, sampler=sampler)
        T = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(2), dtype=DOUBLE).requires_grad_()
        for _ in range(2):  # a second time over kept factors
            value = acquisition(T)
            gradient = torch.autograd.grad(value.sum(), T)[0]
        results.append((value, gradient))
    assert difference(results[0][0], results[1][0]) < 1e-8
    assert difference(results[0][1], results[1][1]) < 1e-7
    assert float(results[0][1][:, 0].abs().max()) > 1e-3


@pytest.mark.one_in(2)
@either
@pytest.mark.parametrize("noise", [None, torch.full_like(Y, NOISE)], ids=["learned", "given"])
def test_fitting_equals_botorchs_and_the_fitted_model_goes_on(noise, make):
    words = {"covar_module": ScaleKernel(RBFKernel()), "mean_module": ZeroMean(), "outcome_transform": None}
    ours = make(noise, covar_module=ScaleKernel(RBFKernel()), regularization=None) if make is told else built(
        40, noise, covar_module=ScaleKernel(RBFKernel()), regularization=None)  # fmt: skip
    theirs = SingleTaskGP(X, Y, noise, **words)
    before, T = ours.posterior(X).mean, torch.rand(6, 2, dtype=DOUBLE)
    for m in (ours, theirs):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    assert difference(ours.posterior(X).mean, before) > 1e-3
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert difference(one, other) < 1e-4
    theirs.load_state_dict(ours.state_dict())
    theirs.train()
    assert difference(ours.posterior(T).mean, theirs.posterior(T).mean) < 1e-8
    assert difference(ours.posterior(T).variance, theirs.posterior(T).variance) < 1e-8
    expected = ours.condition_on_observations(T, T[:, :1]).posterior(X)
    ours.tell(T, T[:, :1])
    assert difference(ours.posterior(X).mean, expected.mean) < 1e-9


def test_paths_honour_the_prior_mean_the_noise_and_the_inputs():
    """2,000 paths of 2,048 features, with inputs off the unit cube, a prior mean of 50 and much noise.

    4.5 standard errors are 0.10 σ of the mean and 0.142 σ² of the variance; features about 0.03 of the prior variance.
    """
    wide, mean = 30.0 * X - 7.0, ConstantMean().double()
    mean.constant = exactly(50.0)
    words = {"covar_module": rbf(0.35), "regularization": 3.0, "mean_module": mean, "input_transform": Normalize(d=2)}
    m = OnlineGP(wide[:12], Y[:12] + 50.0, **words)
    m.tell(wide[8:15], Y[8:15] + 50.0)
    T = 30.0 * torch.rand(6, 2, dtype=DOUBLE) - 7.0
    posterior = m.posterior(T.unsqueeze(-2))
    drawn = draw_matheron_paths(m, torch.Size([2_000]))(T).detach().reshape(2_000, 6)
    expected = posterior.variance.flatten().detach()
    assert float(expected.min()) > 0.1
    error = (drawn.mean(0) - posterior.mean.flatten().detach()).abs()
    assert bool((error < 0.10 * expected.sqrt() + 0.05).all())
    assert bool(((drawn.var(0) - expected).abs() < 0.142 * expected + 0.05).all())

"""Kernels of bits, counts and strings are their formulas, positive semi-definite, and play in every bandit."""

import keyword

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, difference
from sklearn.datasets import load_digits
from torch.autograd import gradcheck

from torch_kbandits import InputError, NystromGP, algorithms
from torch_kbandits.kernels import SpectrumKernel, TanimotoKernel, encode_strings
from torch_kbandits.numerics.formulas import formula, frozen
from torch_kbandits.numerics.gram import gram

WORDS = [*keyword.kwlist, "", "aa", "aaaa"]


def overlap(A, B):
    """Oracle: Σ min / Σ max, 1 of two empty ones."""
    least = np.minimum(A[:, None], B[None]).sum(-1)
    most = np.maximum(A[:, None], B[None]).sum(-1)
    return np.where(most > 0, least / np.where(most > 0, most, 1.0), 1.0)


def spectrum(words, others, length, decay):
    """Oracle: substrings counted one by one in a dictionary."""

    def counted(word):
        found = {} if word else {None: 1.0}
        for size in range(1, length + 1):
            for start in range(len(word) - size + 1):
                part = word[start : start + size]
                found[part] = found.get(part, 0.0) + decay ** (size / 2)
        return found

    def product(a, b):
        return sum(a[each] * b[each] for each in a.keys() & b.keys())

    features, more = [counted(each) for each in words], [counted(each) for each in others]
    return np.array([[product(a, b) / np.sqrt(product(a, a) * product(b, b)) for b in more] for a in features])


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=2, max_size=8), st.booleans())
def test_tanimoto_is_its_formula_compiled_or_not(counts, are_bits):
    X = torch.tensor(counts, dtype=DOUBLE)
    X = X.clamp_max(1.0) if are_bits else X
    kernel = TanimotoKernel(active_dims=(0, 2, 3))
    truth = overlap(X[:, [0, 2, 3]].numpy(), X[1:, [0, 2, 3]].numpy())
    assert difference(kernel(X, X[1:]).to_dense(), truth) < 1e-14
    assert difference(gram(frozen(kernel), X, X[1:]), truth) < 1e-14  # in a loop, as kernels that stay are
    assert kernel(X, diag=True).tolist() == [1.0] * len(X)
    assert float(torch.linalg.eigvalsh(kernel(X).to_dense()).min()) > -1e-12
    model = NystromGP(X, X[:, :1], inducing_points=X[:1], covar_module=kernel, regularization=0.1)
    posterior = model.posterior(X).mvn
    dtc = oracles.dtc(
        lambda A, B: overlap(A[:, [0, 2, 3]], B[:, [0, 2, 3]]),
        X.numpy(), X[:, 0].numpy(), np.full(len(X), 0.1), X[:1].numpy(), X.numpy(),
    )  # fmt: skip
    assert difference(posterior.mean, dtc.mean) < 1e-10
    assert difference(posterior.covariance_matrix, dtc.covariance) < 1e-10


@pytest.mark.parametrize(("length", "decay"), [(1, 1.0), (3, 0.5), (30, 2.0)])
def test_spectrum_is_its_formula(length, decay):
    X = encode_strings(WORDS)
    kernel = SpectrumKernel(length, decay).double()
    values = kernel(X, X[5:]).to_dense()
    assert difference(values, spectrum(WORDS, WORDS[5:], length, decay)) < 1e-12
    assert difference(kernel(X, diag=True), np.ones(len(X))) < 1e-12
    assert float(torch.linalg.eigvalsh(kernel(X).to_dense().detach()).min()) > -1e-12
    assert ["".join(chr(int(each)) for each in row if each >= 0) for row in X.tolist()] == WORDS
    longer = encode_strings(WORDS, length=20)
    assert difference(kernel(longer, longer[5:]).to_dense(), values) < 1e-14


@pytest.mark.parametrize("make", [TanimotoKernel, lambda **words: SpectrumKernel(2, 0.7, **words)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_are_their_members_in_either_precision(make, dtype):
    X = encode_strings(WORDS[:6]).clamp_min(0.0).reshape(2, 3, -1).to(dtype)
    kernel = make().to(dtype)
    both = kernel(X, X[:1]).to_dense()
    assert both.dtype == dtype
    assert both.shape == (2, 3, 3)
    rounding = 1e2 * torch.finfo(dtype).eps
    for i in range(2):
        assert difference(both[i], kernel(X[i], X[0]).to_dense()) < rounding
    two = make(batch_shape=torch.Size([2])).to(dtype)
    assert difference(two(X, X[:1]).to_dense(), both) < rounding
    assert difference(two(X[0]).to_dense()[1], kernel(X[0]).to_dense()) < rounding
    assert two(X[0], diag=True).shape == (2, 3)
    assert difference(two[1](X[0]).to_dense(), kernel(X[0]).to_dense()) < rounding


def test_gradients_are_those_of_the_formulas():
    X = encode_strings(WORDS[:5])
    kernel = SpectrumKernel(3).double()

    def values(raw):
        return torch.func.functional_call(kernel, {"raw_decay": raw}, (X, X)).to_dense()

    raw = torch.full((1, 1), 0.3, dtype=DOUBLE, requires_grad=True)
    assert gradcheck(values, raw)
    counts = torch.rand(3, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert gradcheck(lambda x: TanimotoKernel()(x, x[1:] + 0.1).to_dense(), counts)


def test_bandits_play_handwritten_bits_and_words():
    images, digits = load_digits(return_X_y=True)
    arms = torch.as_tensor(images[:300] > 8.0, dtype=DOUBLE)
    assert formula(TanimotoKernel(), 64) is not None
    kernel = ScaleKernel(TanimotoKernel())
    found = plays(arms, torch.as_tensor(digits[:300] == 3, dtype=DOUBLE), kernel)
    assert float(found[-5:].mean()) > 0.9
    words = [word for word in WORDS if word]
    vowels = torch.tensor([sum(each in "aeiou" for each in word) / len(word) for word in words], dtype=DOUBLE)
    assert float(plays(encode_strings(words), vowels, SpectrumKernel(2))[-5:].mean()) > 0.8 * float(vowels.max())


def plays(arms, rewards, kernel):
    """Rewards of thirty rounds."""
    bandit = algorithms.BKB(candidates=arms, kernel=kernel, regularization=0.01, beta=1.0, seed=0)
    found = []
    for _ in range(30):
        x = bandit.ask()
        found.append(rewards[(arms == x).all(-1)][0])
        bandit.tell(x, found[-1])
    return torch.stack(found)


def test_what_is_no_count_and_no_letter_is_named():
    with pytest.raises(InputError, match="at least 0, got -1"):
        TanimotoKernel()(torch.tensor([[-1.0, 0.0]])).to_dense()
    with pytest.raises(InputError, match="whole numbers"):
        SpectrumKernel(2)(torch.tensor([[0.5, 1.0]])).to_dense()
    with pytest.raises(InputError, match="longest string, 3"):
        encode_strings(["abc"], length=2)
    with pytest.raises(InputError, match="max_length"):
        SpectrumKernel(0)
    with pytest.raises(InputError, match="decay"):
        SpectrumKernel(2, decay=-1.0)

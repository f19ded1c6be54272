"""Kernels of bits, counts, strings and graphs are their formulas, positive semi-definite, and play in every bandit."""

import keyword
from collections import Counter
from itertools import combinations

import networkx as nx
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
from torch_kbandits.kernels import SpectrumKernel, TanimotoKernel, count_subtrees, encode_strings
from torch_kbandits.numerics.formulas import formula, frozen
from torch_kbandits.numerics.gram import gram

WORDS = [*keyword.kwlist, "", "aa", "aaaa"]


def overlap(A, B):
    """Oracle: Σ min / Σ max, 1 of two empty ones."""
    least = np.minimum(A[:, None], B[None]).sum(-1)
    most = np.maximum(A[:, None], B[None]).sum(-1)
    return np.where(most > 0, least / np.where(most > 0, most, 1.0), 1.0)


def spectrum(words, others, length, decay, gap_decay=0.0):
    """Oracle: substrings or subsequences counted one by one in a dictionary."""

    def counted(word):
        found = {} if word else {None: 1.0}
        for size in range(1, length + 1):
            for places in combinations(range(len(word)), size):
                part, gaps = "".join(word[place] for place in places), places[-1] - places[0] + 1 - size
                found[part] = found.get(part, 0.0) + decay ** (size / 2) * gap_decay**gaps
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


@pytest.mark.parametrize(
    ("length", "decay", "gap_decay"), [(1, 1.0, 0.0), (3, 0.3, 0.0), (30, 2.0, 0.0), (3, 0.3, 0.7), (30, 2.0, 0.01)]
)
def test_spectrum_is_its_formula(length, decay, gap_decay):
    X = encode_strings(WORDS)
    kernel = SpectrumKernel(length, decay, gap_decay=gap_decay).double()
    values = kernel(X, X[5:]).to_dense()
    assert difference(values, spectrum(WORDS, WORDS[5:], length, decay, gap_decay)) < 1e-12
    assert difference(kernel(X, diag=True), np.ones(len(X))) < 1e-12
    assert float(torch.linalg.eigvalsh(kernel(X).to_dense().detach()).min()) > -1e-12
    assert ["".join(chr(int(each)) for each in row if each >= 0) for row in X.tolist()] == WORDS
    longer = encode_strings(WORDS, length=20)
    assert difference(kernel(longer, longer[5:]).to_dense(), values) < 1e-14


def test_the_subsequence_kernel_is_that_of_lodhi_et_al():
    """Their example, car and cat, and the letters as well: λ² for each that both have, λ⁴ for "ca", λ⁶ for "c r"."""
    rate = 0.6
    kernel = SpectrumKernel(2, rate**2, gap_decay=rate).double()
    value = kernel(encode_strings(["car"]), encode_strings(["cat"])).to_dense().item()
    assert value == pytest.approx((2 * rate**2 + rate**4) / (3 * rate**2 + 2 * rate**4 + rate**6), rel=1e-12)


def neighbourhoods(graph, depth):
    """Oracle: the neighbourhood of a node as a tree of tuples, counted."""
    sides = (graph.succ, graph.pred) if graph.is_directed() else (graph.adj,)

    def tree(node, left):
        own = graph.nodes[node]["atom"]
        if not left:
            return own
        grown = [
            sorted((side[node][other]["bond"], repr(tree(other, left - 1))) for other in side[node]) for side in sides
        ]
        return (tree(node, left - 1), *map(tuple, grown))

    return Counter((left, tree(node, left)) for node in graph for left in range(depth + 1))


EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from("-=")), max_size=7)


@given(
    st.lists(st.tuples(EDGES, st.text("CN", min_size=5, max_size=5)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.booleans(),
)
def test_subtrees_are_counted_wherever_nodes_are(drawn, depth, is_directed):
    graphs = []
    for edges, atoms in drawn:
        graphs.append(nx.DiGraph() if is_directed else nx.Graph())
        graphs[-1].add_nodes_from((node, {"atom": atom}) for node, atom in enumerate(atoms))
        graphs[-1].add_edges_from((start, end, {"bond": bond}) for start, end, bond in edges)
    words = {"depth": depth, "node_label": "atom", "edge_label": "bond"}
    counts = count_subtrees(graphs, **words)
    oracle = [neighbourhoods(graph, depth) for graph in graphs]
    truth = np.array([[sum(a[each] * b[each] for each in a) for b in oracle] for a in oracle], dtype=float)
    assert difference(counts @ counts.mT, truth) == 0.0
    assert counts.sum(-1).tolist() == [5.0 * (depth + 1)] * len(graphs)
    moved = [nx.relabel_nodes(graph, {node: -node for node in graph}) for graph in reversed(graphs)]
    assert torch.equal(count_subtrees(moved, **words), counts.flip(0))
    hashed = count_subtrees(graphs, **words, num_columns=50)
    assert torch.equal(torch.cat([count_subtrees([graph], **words, num_columns=50) for graph in graphs]), hashed)
    similar = TanimotoKernel()(counts).to_dense()
    assert float(torch.linalg.eigvalsh(similar).min()) > -1e-12


@pytest.mark.parametrize(
    "make",
    [
        TanimotoKernel,
        lambda **words: SpectrumKernel(2, 0.7, **words),
        lambda **words: SpectrumKernel(3, 0.7, gap_decay=0.5, **words),
    ],
)
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
    for kernel in (SpectrumKernel(3).double(), SpectrumKernel(3, gap_decay=0.4).double()):
        given = {name: each.detach().clone().requires_grad_() for name, each in kernel.named_parameters()}

        def values(*raw, kernel=kernel, names=tuple(given)):
            return torch.func.functional_call(kernel, dict(zip(names, raw, strict=True)), (X, X)).to_dense()

        assert gradcheck(values, tuple(given.values()))
    counts = torch.rand(3, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert gradcheck(lambda x: TanimotoKernel()(x, x[1:] + 0.1).to_dense(), counts)


def test_bandits_play_handwritten_bits_words_and_graphs():
    images, digits = load_digits(return_X_y=True)
    arms = torch.as_tensor(images[:300] > 8.0, dtype=DOUBLE)
    assert formula(TanimotoKernel(), 64) is not None
    kernel = ScaleKernel(TanimotoKernel())
    found = plays(arms, torch.as_tensor(digits[:300] == 3, dtype=DOUBLE), kernel)
    assert float(found[-5:].mean()) > 0.9
    words = [word for word in WORDS if word]
    vowels = torch.tensor([sum(each in "aeiou" for each in word) / len(word) for word in words], dtype=DOUBLE)
    assert float(plays(encode_strings(words), vowels, SpectrumKernel(2))[-5:].mean()) > 0.8 * float(vowels.max())
    with_gaps = plays(encode_strings(words), vowels, SpectrumKernel(2, gap_decay=0.5))
    assert float(with_gaps[-5:].mean()) > 1.5 * float(vowels.mean())
    graphs = nx.graph_atlas_g()[1:209]  # those of up to six nodes
    triangles = torch.tensor([nx.transitivity(graph) for graph in graphs], dtype=DOUBLE)
    assert float(plays(count_subtrees(graphs), triangles, TanimotoKernel())[-5:].mean()) > 0.8


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
    with pytest.raises(InputError, match="gap_decay must be at least 0 and below 1"):
        SpectrumKernel(2, gap_decay=1.0)
    with pytest.raises(InputError, match="no multigraph, got"):
        count_subtrees([nx.path_graph(3), nx.MultiGraph()])
    with pytest.raises(InputError, match="attributes of all; one has no 'atom'"):
        count_subtrees([nx.path_graph(3)], node_label="atom")

"""Kernels on discrete structures: sets and counts, such as fingerprints of molecules, strings and graphs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.kernels.composed import BatchedKernel
from torch_kbandits.loops.kernel_loops import OVERLAP
from torch_kbandits.numerics.formulas import FORMULAS, factor


class TanimotoKernel(BatchedKernel):
    """The Tanimoto or Jaccard similarity of bit vectors, and of counts the min-max kernel: from 0 to 1.

        k(x, x') = Σ min(x_j, x'_j) / Σ max(x_j, x'_j),   and 1 of two points without any

    Of bits that is how many both have, of those that either has. Fingerprints of molecules, by whatever package, are
    such points; so are sets, and bags of words. A ``ScaleKernel`` around it learns a factor::

        images, digits = sklearn.datasets.load_digits(return_X_y=True)  # handwritten
        arms = torch.as_tensor(images > 8.0, dtype=torch.float64)
        bandit = algorithms.BKB(candidates=arms, kernel=TanimotoKernel(), regularization=0.01, beta=2.0, seed=0)

    Source: Ralaivola et al., Neural Networks 2005, where positive semi-definiteness is proved; Ioffe, ICDM 2010, of
    counts.

    Args:
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if a number is negative.

    Cost: O(n m d) for n points against m.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the similarity of points x1 (..., n, d) and x2 (..., m, d), (..., n, m), or (..., n) with ``diag``."""
        for X in (x1, x2):
            if bool((X < 0.0).any()):
                raise InputError(f"Bits and counts must be at least 0, got {float(X.detach().min()):.6g}.")
        if diag:
            apart, total = (x1 - x2).abs().sum(-1), x1.sum(-1) + x2.sum(-1)
        else:
            apart = torch.cdist(x1, x2, p=1.0)
            total = x1.sum(-1).unsqueeze(-1) + x2.sum(-1).unsqueeze(-2)
        # The smaller of two numbers is half of their sum less their distance, the larger half of the sum of both.
        has_any = total > 0.0
        return self.in_batch(
            torch.where(has_any, (total - apart) / torch.where(has_any, total + apart, 1.0), 1.0), diag
        )


class SpectrumKernel(Kernel):
    """The blended spectrum kernel of strings: how often they have the same substrings, of up to p letters.

        k(s, t) = ⟨φ(s), φ(t)⟩ / (‖φ(s)‖ ‖φ(t)‖),   φ_u(s) = decay^(|u| / 2) · (how often u is in s),   1 <= |u| <= p

    With ``gap_decay`` other letters may lie between those of u, each of which is a factor of the count: the subsequence
    kernel, for typing errors and insertions. At decay = gap_decay² it is that of Lodhi et al., of all lengths together.
    Strings are rows of whole numbers, one a letter, with negative numbers after their end: see ``encode_strings``. Two
    without a letter have 1, one beside another 0. DNA, words and SMILES are such strings::

        arms = encode_strings(keyword.kwlist)  # the words of Python
        bandit = algorithms.BKB(candidates=arms, kernel=SpectrumKernel(3), regularization=0.01, beta=2.0, seed=0)
        word = keyword.kwlist[bandit.ask(details=True).rows[0]]

    Source: Leslie, Eskin and Noble, PSB 2002; Lodhi et al., JMLR 2002; Shawe-Taylor and Cristianini, 2004, §11.2.

    Args:
        max_length: p >= 1, of substrings.
        decay: > 0, the weight of a substring for each of its letters; above 1 long ones count for more. Learned,
            and kept in double precision until ``.to`` or a model casts it.
        decay_constraint: of it; ``Positive()`` unless given.
        gap_decay: at least 0 and below 1; 0 allows no gaps, and above it is learned as well.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if a letter is no whole number.

    Cost: of n and m strings of L letters, V substrings: O(p (n + m) L log(n + m) + n m V); with gaps O(p n m L³).
    """

    def __init__(
        self,
        max_length: int,
        decay: float = 1.0,
        decay_constraint: Interval | None = None,
        gap_decay: float = 0.0,
        **kwargs: Any,
    ) -> None:
        checks.absent_or("decay_constraint", decay_constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        self.max_length = checks.positive_integer("max_length", max_length)
        self._learn("decay", checks.positive("decay", decay), decay_constraint or Positive())
        if checks.share("gap_decay", gap_decay):
            self._learn("gap_decay", float(gap_decay), Interval(0.0, 1.0))

    def _learn(self, name: str, value: float, constraint: Interval) -> None:
        self.register_parameter(f"raw_{name}", Parameter(torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)))
        self.register_constraint(f"raw_{name}", constraint)
        self._set(name, value)

    def _of(self, name: str) -> Tensor:
        return getattr(self, f"raw_{name}_constraint").transform(getattr(self, f"raw_{name}"))

    def _set(self, name: str, value: float | Tensor) -> None:
        exact = torch.as_tensor(value, dtype=torch.float64).to(getattr(self, f"raw_{name}"))
        self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(exact)})

    decay = property(lambda self: self._of("decay"), lambda self, value: self._set("decay", value), doc="(..., 1, 1).")
    gap_decay = property(lambda self: self._of("gap_decay"), lambda self, value: self._set("gap_decay", value))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of strings x1 (..., n, L) and x2 (..., m, L), (..., n, m), or its diagonal."""
        for X in (x1, x2):
            if not bool((X.round() == X).all()):
                raise InputError("Letters must be whole numbers, negative after the end of a string: encode_strings.")
        if not hasattr(self, "raw_gap_decay"):
            first, second = self._features(x1, x2)
            return (first * second).sum(-1) if diag else first @ second.mT
        rows, columns = x1.unsqueeze(-2), x2.unsqueeze(-2)
        own, others = self._products(rows, rows), self._products(columns, columns)  # (..., n, 1) and (..., m, 1)
        if diag:
            return (self._products(rows, columns) / (own * others).sqrt()).squeeze(-1)
        return self._products(rows, x2.unsqueeze(-3)) / (own * others.mT).sqrt()

    def _features(self, *sets: Tensor) -> list[Tensor]:
        """Return φ(s) / ‖φ(s)‖ of the strings of each set (..., n, L), (..., n, V), for V substrings among all."""
        decay = self.decay.to(sets[0])
        parts = [[(X[..., :1] < 0.0) * torch.ones_like(decay)] for X in sets]  # no letter is a substring of its own
        for length in range(1, min(self.max_length, sets[0].shape[-1]) + 1):
            windows = [X.detach().unfold(-1, length, 1) for X in sets]
            known, places = torch.cat([each.flatten(0, -2) for each in windows]).unique(dim=0, return_inverse=True)
            owners = places.split([each[..., 0].numel() for each in windows])
            for part, each, own in zip(parts, windows, owners, strict=True):
                is_whole = (each >= 0.0).all(-1).to(each)
                none = each.new_zeros(*is_whole.shape[:-1], len(known))
                part.append(decay ** (length / 2.0) * none.scatter_add(-1, own.view_as(is_whole), is_whole))
        joined = [torch.cat(part, -1) for part in parts]
        return [each / each.norm(dim=-1, keepdim=True) for each in joined]

    def _products(self, X: Tensor, others: Tensor) -> Tensor:
        """Return ⟨φ(s), φ(t)⟩ with gaps of strings (..., n, 1, L) and (..., n or 1, m, L), (..., n, m)."""
        decay, gap_decay = (each.to(X).unsqueeze(-1) for each in (self.decay, self.gap_decay))
        places = torch.arange(X.shape[-1], dtype=X.dtype, device=X.device)
        gaps = places - places.unsqueeze(-1) - 1.0
        after = torch.where(gaps < 0.0, 0.0, gap_decay ** gaps.clamp_min(0.0))  # (..., 1, L, L)
        products = ((X[..., 0] < 0.0) & (others[..., 0] < 0.0)).to(X) * torch.ones_like(decay[..., 0])
        # Of equal subsequences of 1, 2, ... letters, by where in t they end: those that end before a letter of s.
        ended = [torch.zeros_like(others) * products.unsqueeze(-1)] * (min(self.max_length, X.shape[-1]) - 1)
        for letter in X.unbind(-1):
            same = decay * ((others == letter.unsqueeze(-1)) & (letter.unsqueeze(-1) >= 0.0))
            ending = [same, *(same * (each @ after) for each in ended)]
            ended = [gap_decay * each + new for each, new in zip(ended, ending, strict=False)]
            products = products + torch.stack(ending).sum((0, -1))
        return products


def encode_strings(strings: Sequence[str], length: int | None = None) -> Tensor:
    """Return strings as ``SpectrumKernel`` takes them: a row of code points each, −1 after the end, (n, length).

    Args:
        strings: n of them.
        length: of all rows; that of the longest string unless given, at least 1.

    Raises:
        InputError: if one is no string, or longer.
    """
    checks.instance("strings", strings, (list, tuple), "a list of strings")
    for each in strings:
        checks.instance("each of strings", each, str, "a string")
    longest = max(map(len, strings), default=0)
    length = max(longest, 1) if length is None else checks.size("length", length)
    if longest > length:
        raise InputError(f"length must be that of the longest string, {longest}, at least; got {length}.")
    rows = torch.full((len(strings), length), -1.0, dtype=torch.float64)
    for row, each in zip(rows, strings, strict=True):
        row[: len(each)] = torch.tensor([*map(ord, each)])
    return rows


def count_subtrees(
    graphs: Sequence[Any],
    depth: int = 2,
    node_label: str | None = None,
    edge_label: str | None = None,
    num_columns: int | None = None,
) -> Tensor:
    """Return how often each neighbourhood is in each graph, as ``TanimotoKernel`` takes it, (n, columns).

    A node has one up to 0, 1, ..., ``depth`` edges, which the Weisfeiler–Lehman test tells apart by its label, those of
    its neighbours, and so on; in directed graphs, such as networks' architectures, of successors and of predecessors.
    GPyTorch's ``LinearKernel`` of these counts is the Weisfeiler–Lehman subtree kernel::

        graphs = networkx.graph_atlas_g()[1:]  # those of up to seven nodes
        arms = count_subtrees(graphs)
        bandit = algorithms.BKB(candidates=arms, kernel=TanimotoKernel(), regularization=0.01, beta=2.0, seed=0)
        graph = graphs[bandit.ask(details=True).rows[0]]

    Source: Shervashidze et al., JMLR 2011.

    Args:
        graphs: n graphs of networkx, no multigraphs.
        depth: from 0 to 100.
        node_label: the attribute that is the label of a node, compared as text; unless given all are alike.
        edge_label: and of an edge.
        num_columns: to which neighbourhoods are hashed, so that later graphs have the same; one for each unless given.

    Raises:
        InputError: if one is no such graph, or a node or an edge has no label.

    Cost: O(depth E log E) for E edges.
    """
    if (depth := checks.non_negative_integer("depth", depth)) > 100:
        raise InputError(f"depth must be at most 100, got {depth}: neighbourhoods so large are whole graphs.")
    checks.absent_or("node_label", node_label, str, "the name of an attribute")
    checks.absent_or("edge_label", edge_label, str, "the name of an attribute")
    size = checks.optional(checks.size)("num_columns", num_columns)
    found = [Counter(_subtrees(graph, depth, node_label, edge_label)) for graph in checks.entries("graphs", graphs)]
    known = sorted(set[int]().union(*found))
    columns = {each: column if size is None else each % size for column, each in enumerate(known)}
    rows = torch.zeros(len(found), size or max(1, len(known)), dtype=torch.float64)
    for row, counts in zip(rows, found, strict=True):
        for each, count in counts.items():
            row[columns[each]] += count
    return rows


def _subtrees(graph: Any, depth: int, node_label: str | None, edge_label: str | None) -> Iterator[int]:
    """Yield a number for the neighbourhood of each node up to 0, 1, ... edges, the same wherever it is alike."""
    if not hasattr(graph, "is_multigraph") or graph.is_multigraph():
        raise InputError(f"Each of graphs must be one of networkx and no multigraph, got {checks.describe(graph)}.")

    def text(name: str | None, attributes: Any) -> str:
        if name is not None and name not in attributes:
            raise InputError(f"node_label and edge_label must be attributes of all; one has no {name!r}.")
        return "" if name is None else str(attributes[name])

    def number(content: object) -> int:
        return int.from_bytes(blake2b(repr(content).encode(), digest_size=8).digest())

    sides = [graph.succ, graph.pred] if graph.is_directed() else [graph.adj]
    near = {
        node: [[(text(edge_label, data), to) for to, data in side[node].items()] for side in sides] for node in graph
    }
    numbers = {node: number(text(node_label, data)) for node, data in graph.nodes.items()}
    yield from numbers.values()
    for _ in range(depth):
        numbers = {
            node: number((own, [sorted((kind, numbers[to]) for kind, to in side) for side in near[node]]))
            for node, own in numbers.items()
        }
        yield from numbers.values()


FORMULAS[TanimotoKernel] = lambda kernel, columns: [(1.0, [factor(OVERLAP, 1.0, columns)])]

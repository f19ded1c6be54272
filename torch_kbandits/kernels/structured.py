"""Kernels on discrete structures: sets and counts, such as fingerprints of molecules, and strings."""

from collections.abc import Sequence
from typing import Any, cast

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

    Strings are rows of whole numbers, one a letter, with negative numbers after their end: see ``encode_strings``. Two
    without a letter have 1, one beside another 0. DNA, words and SMILES are such strings::

        arms = encode_strings(keyword.kwlist)  # the words of Python
        bandit = algorithms.BKB(candidates=arms, kernel=SpectrumKernel(3), regularization=0.01, beta=2.0, seed=0)
        word = keyword.kwlist[bandit.ask(details=True).rows[0]]

    Source: Leslie, Eskin and Noble, PSB 2002; Shawe-Taylor and Cristianini, 2004, §11.2, of several lengths.

    Args:
        max_length: p >= 1, of substrings.
        decay: > 0, the weight of a substring for each of its letters; above 1 long ones count for more. Learned,
            and kept in double precision until ``.to`` or a model casts it.
        decay_constraint: of it; ``Positive()`` unless given.
        kwargs: of every GPyTorch kernel: ``active_dims``, ``batch_shape``.

    Raises:
        InputError: if a letter is no whole number.

    Cost: for n and m strings of L letters with V substrings among them O(p (n + m) L log(n + m) + n m V).
    """

    raw_decay: Parameter

    def __init__(
        self, max_length: int, decay: float = 1.0, decay_constraint: Interval | None = None, **kwargs: Any
    ) -> None:
        checks.absent_or("decay_constraint", decay_constraint, Interval, "a GPyTorch constraint")
        super().__init__(**kwargs)
        self.max_length = checks.positive_integer("max_length", max_length)
        self.register_parameter("raw_decay", Parameter(torch.zeros(*self.batch_shape, 1, 1, dtype=torch.float64)))
        self.register_constraint("raw_decay", decay_constraint or Positive())
        self.decay = checks.positive("decay", decay)

    @property
    def decay(self) -> Tensor:
        """The weight of a letter, (..., 1, 1)."""
        return cast(Interval, self.raw_decay_constraint).transform(self.raw_decay)

    @decay.setter
    def decay(self, value: float | Tensor) -> None:
        exact = torch.as_tensor(value).to(self.raw_decay)
        self.initialize(raw_decay=cast(Interval, self.raw_decay_constraint).inverse_transform(exact))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance of strings x1 (..., n, L) and x2 (..., m, L), (..., n, m), or its diagonal."""
        for X in (x1, x2):
            if not bool((X.round() == X).all()):
                raise InputError("Letters must be whole numbers, negative after the end of a string: encode_strings.")
        first, second = self._features(x1, x2)
        return (first * second).sum(-1) if diag else first @ second.mT

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


FORMULAS[TanimotoKernel] = lambda kernel, columns: [(1.0, [factor(OVERLAP, 1.0, columns)])]

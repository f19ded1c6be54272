"""Draws that points keep for good, by which a dictionary is drawn again."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.dictionaries import ridge_loops

#: Kept uniforms are drawn so many at a time; another number would be another sequence of draws.
_BLOCK = 1024

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class KeptDraws:
    """How it is known, without selecting, that the dictionary of the last round is drawn again.

    Attributes:
        oversampling: q̄.
        stay: whether points of the dictionary are drawn in any case.
        max_size: the size from which on points are exchanged in place of drawn; None for none.
        may_be_full: whether a dictionary of that size stays where the point played last is not drawn, without a word.
    """

    oversampling: float
    stay: bool
    max_size: int | None = None
    may_be_full: bool = False

    def uniforms(self, number: int, generator: torch.Generator | None) -> Array:
        """Return the uniforms that so many points keep, or some more points, (n,)."""
        return kept_uniforms(_BLOCK * -(-number // _BLOCK), generator).numpy()

    def are_of(self, size: int) -> bool:
        """Say whether a dictionary of so many points is drawn, or stays as ``may_be_full`` says."""
        return self.max_size is None or size < self.max_size or (size == self.max_size and self.may_be_full)

    def again(
        self, held: Mask, variance: Array, counts: Array, noise: float, uniforms: Array, place: int | None = None
    ) -> bool:
        """Say whether the dictionary that there is would be drawn, by a loop.

        Args:
            held: which played points are in the dictionary, (u,), some of them.
            variance: of the function at them, (u,); no more than rounding made one negative.
            counts: how often each was played, (u,).
            noise: λ.
            uniforms: those that the points keep, (u,) or more.
            place: where the point stands that was played last, of a dictionary that is full: only that is exchanged for
                another. None for one that is not.

        Cost: O(u).
        """
        if place is not None:
            one = slice(place, place + 1)
            held, variance, counts, uniforms = held[one], variance[one], counts[one], uniforms[one]
        return ridge_loops.keeps(held, self.stay, variance, counts, noise, uniforms, self.oversampling)


def kept_uniforms(number: int, generator: torch.Generator | None) -> Tensor:
    """Return the first uniforms (number,) of a sequence that the generator determines, however many are asked for.

    Whole blocks are drawn, since nothing promises that a shorter draw is the beginning of a longer one.
    """
    count = -(-number // _BLOCK)
    blocks = [torch.rand(_BLOCK, generator=generator, dtype=torch.float64, device="cpu") for _ in range(count)]
    return (blocks[0] if count == 1 else torch.cat(blocks))[:number]

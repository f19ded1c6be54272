"""CBBKB, batched BKB with contexts."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, BKBWords, described
from torch_kbandits.algorithms.bkb import bkb_pieces
from torch_kbandits.bandit import Bandit, GlobalBatchRule


@described
class CBBKB(Bandit):
    """CBBKB, contextual batched BKB: the dictionary is resampled from all joint points played, after each batch.

    A dictionary that is drawn afresh, as the paper's, needs the scores of all points played after each batch; with
    resampling "growth" only the points that join it do. ``EKUCB`` offers each point once.

    Source: Calandriello et al., ICML 2020; the contextual variant is the baseline of Zenati et al., AISTATS 2022, App.
    F.1. Differs: what differs in ``BBKB``.

    Args:
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: it ends when 1 + Σ τ̃ of its points
            exceeds C. The paper tries 3, 10 and 30.
        **words: see ``BKBWords``.

    Cost of a round with A actions and n points that count: O(A m²); of a batch O(m² + n m) for each reward and for each
    point that joins or leaves the dictionary, in all at most O(n m²); memory O(n m).
    """

    def __init__(self, *, batch_threshold: float = 3.0, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words), GlobalBatchRule(batch_threshold)))

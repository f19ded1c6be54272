"""CBKB, BKB with contexts."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, BKBWords, described
from torch_kbandits.algorithms.bkb import bkb_pieces
from torch_kbandits.bandit import Bandit


@described
class CBKB(Bandit):
    """CBKB, contextual BKB: the dictionary is resampled from all joint points played, in every round.

    A dictionary that is drawn afresh, as the paper's, needs the scores of all points played in every round; with
    resampling "growth" only the points that join it do. ``EKUCB`` offers each point once.

    Source: Calandriello et al., COLT 2019; the contextual variant is the baseline of Zenati et al., AISTATS 2022, App.
    F.1. Differs: what differs in ``BKB``.

    Args:
        **words: see ``BKBWords``.

    Cost of a round with A actions and n points that count: O(A m²), and O(m² + n m) for the reward and for each point
    that joins or leaves the dictionary, in all at most O(n m²); memory O(n m).
    """

    def __init__(self, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words)))

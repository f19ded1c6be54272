"""BBKB, batched BKB."""

from typing import Literal, Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, BKBWords, described
from torch_kbandits.algorithms.bkb import bkb_pieces
from torch_kbandits.bandit import Bandit, GlobalBatchRule, LocalBatchRule


@described
class BBKB(Bandit):
    """Batched BKB: means and dictionary stay for a batch, whose size adapts; then the dictionary is resampled.

    Within a batch only variances change, by the points played. ``ask(q=None)`` returns the batch that the rule allows,
    which grows with what is known. Rewards told one by one are kept aside until the batch is complete.

    Source: Calandriello, Carratino, Lazaric, Valko and Rosasco, "Near-linear time Gaussian process optimization with
    adaptive batching and resparsification", ICML 2020. Differs: variances are the exact conditional given the points
    of a batch, so that what the dictionary does not span of them shrinks, too, where the paper's stays; the width is
    BKB's times √C, which makes up for the variance that a batch has lost; and what differs in ``BKB``.

    Args:
        batch_threshold: C > 1, the factor by which variances may shrink in a batch; the larger, the longer the batches
            and the more regret.
        batch_rule: "global" sums leverage scores; "local" watches the variances themselves and allows longer batches.
        **words: see ``BKBWords``.

    Cost on A arms: O(A m) a point, O(A m²) a batch; memory O(A m).
    """

    def __init__(
        self,
        *,
        batch_threshold: float = 1.2,
        batch_rule: Literal["global", "local"] = "global",
        **words: Unpack[BKBWords],
    ) -> None:
        checks.one_of("batch_rule", batch_rule, ("global", "local"))
        rule = GlobalBatchRule if batch_rule == "global" else LocalBatchRule
        super().__init__(**bkb_pieces(Arguments(BKBWords, words), rule(batch_threshold)))

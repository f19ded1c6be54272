"""EK-UCB, kernel UCB on a dictionary that grows."""

from typing import Literal, Unpack

from torch_kbandits.algorithms.arguments import Arguments, SketchWords, capped, described
from torch_kbandits.bandit import Bandit, GlobalBatchRule
from torch_kbandits.confidence import EKUCBWidth
from torch_kbandits.dictionaries import KORS, theoretical_kors_oversampling


@described
class EKUCB(Bandit):
    """EK-UCB, efficient kernel UCB: K-UCB at the cost of a dictionary that KORS grows, incremental throughout.

    A round costs the same however many were played, except where a point joins the dictionary.

    Source: Zenati, Bietti, Diemert, Mairal, Martin and Gaillard, "Efficient kernel UCB for contextual bandits",
    AISTATS 2022, Alg. 2. Differs: see ``KORS`` and ``EKUCBWidth``; the first action is chosen as all others are, not
    drawn; batches, which the paper leaves to future work; several points may be pending, given which variances are
    conditional also where the dictionary does not span.

    Args:
        oversampling: γ > 0, KORS's budget, or "theory" for the theorem's, which keeps nearly every point.
        projection: μ > 0, the scale below which KORS drops directions, in reward units squared; λ unless given, which
            balances regret and time: a larger one is faster and regrets more.
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: means and dictionary stay, as in
            BBKB, until 1 + Σ τ̃ of its points exceeds C; the theorem's width is then √C times wider. None: rewards are
            learned at once.
        **words: see ``SketchWords``.

    Cost of a round with A actions: O(A m²), and O(n m) when a point joins; memory O(n m).
    """

    def __init__(
        self,
        *,
        oversampling: float | Literal["theory"] = 1.0,
        projection: float | None = None,
        batch_threshold: float | None = None,
        **words: Unpack[SketchWords],
    ) -> None:
        given = Arguments(SketchWords, words)
        rule = KORS(given.oversampling(oversampling, theoretical_kors_oversampling), projection)
        theory = given.theorem(EKUCBWidth, projection=projection)
        batches = None if batch_threshold is None else GlobalBatchRule(batch_threshold)
        dictionary = capped(rule, given.words["max_dictionary"], given.words["when_full"])
        super().__init__(**given.under(theory, dictionary=dictionary, batches=batches))

"""BKB, the budgeted kernelized bandit, in batches and with contexts."""

from typing import Any, Literal, Unpack

from torch_kbandits import checks
from torch_kbandits.acquisition import AdaptiveDiscretizationRule
from torch_kbandits.algorithms.arguments import Arguments, BKBWords, capped, described
from torch_kbandits.bandit import Bandit, GlobalBatchRule, LocalBatchRule
from torch_kbandits.confidence import BKBWidth
from torch_kbandits.dictionaries import RidgeLeverageSampling, theoretical_oversampling


@described
class BKB(Bandit):
    """Budgeted kernelized bandit: GP-UCB at the cost of a dictionary that follows the effective dimension.

    The composition: DTC posterior, dictionary resampled by ridge leverage scores in every round, BKB's width, UCB.

    Source: Calandriello et al., COLT 2019. Differs: the first arm is drawn among equals rather than uniformly; the
    width's guard at small t (see ``BKBWidth``); the default oversampling is the practical one.

    Cost of a round on A arms: O(A m²), O(A m) when the dictionary stays; memory O(A m).
    """

    def __init__(self, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words)))


def bkb_pieces(given: Arguments, batches: GlobalBatchRule | LocalBatchRule | None = None, **own: Any) -> dict[str, Any]:
    """Return the pieces of BKB and its relatives, and an algorithm's own ones."""
    accuracy = checks.open_unit_interval("accuracy", given.words["accuracy"])
    oversampling = given.oversampling(given.words["oversampling"], theoretical_oversampling, accuracy)
    rule = RidgeLeverageSampling(oversampling, given.words["resampling"])
    dictionary = capped(rule, given.words["max_dictionary"], given.words["when_full"])
    theory = given.theorem(BKBWidth, accuracy=accuracy)
    return given.under(theory, dictionary=dictionary, batches=batches, **own)


@described
class BBKB(Bandit):
    """Batched BKB: means and dictionary stay for a batch, whose size adapts; then the dictionary is resampled.

    Within a batch only variances change, by the points played. ``ask(q=None)`` returns the batch that the rule allows,
    which grows with what is known. Rewards told one by one are kept aside until the batch is complete.

    Source: Calandriello et al., ICML 2020. Differs: variances are the exact conditional given the points of a batch, so
    that what the dictionary does not span of them shrinks, too; the width is BKB's times √C, which makes up for the
    variance that a batch has lost; and what differs in ``BKB``.

    Args:
        batch_threshold: C > 1, the factor by which variances may shrink in a batch; the larger, the longer the batches
            and the more regret.
        batch_rule: "global" sums leverage scores; "local" watches the variances themselves and allows longer batches.

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


@described
class CBKB(Bandit):
    """CBKB, contextual BKB: the dictionary is resampled from all joint points played, in every round.

    With resampling "growth" the scores of the points that join it are enough. ``EKUCB`` offers each point once.

    Source: Calandriello et al., COLT 2019, and Zenati et al., AISTATS 2022, App. F.1. Differs: what differs in ``BKB``.

    Cost of a round with A actions and n points that count: O(A m²), and O(m² + n m) for the reward and for each point
    that joins or leaves the dictionary, in all at most O(n m²); memory O(n m).
    """

    def __init__(self, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words)))


@described
class CBBKB(Bandit):
    """CBBKB, contextual batched BKB: the dictionary is resampled from all joint points played, after each batch.

    With resampling "growth" the scores of the points that join it are enough. ``EKUCB`` offers each point once.

    Source: Calandriello et al., ICML 2020, and Zenati et al., AISTATS 2022, App. F.1. Differs: what differs in
    ``BBKB``.

    Args:
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: it ends when 1 + Σ τ̃ of its points
            exceeds C. The paper tries 3, 10 and 30.

    Cost of a round with A actions and n points that count: O(A m²); of a batch O(m² + n m) for each reward and for each
    point that joins or leaves the dictionary, in all at most O(n m²); memory O(n m).
    """

    def __init__(self, *, batch_threshold: float = 3.0, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words), GlobalBatchRule(batch_threshold)))


@described
class AdaBKB(Bandit):
    """Ada-BKB: BKB on a box that is divided where more is known, without a search by gradients.

    On arms and parameter spaces it is ``BKB``.

    Source: Rando et al., AISTATS 2022. Differs: as ``AdaptiveDiscretizationRule`` and ``BKB`` do.

    Args:
        variation: F > 0: the function differs by at most F d_k between two points; unless given ``norm_bound``, or else
            the multiplier of the width. The smaller, the sooner cells are passed over, for good if it is no bound.
        num_parts: N >= 2, into how many parts a cell is divided along its longest side.

    Cost of a round: O(m²) for each of at most 4,096 cells, often a few hundred, and what ``BKB`` does for a reward.
    """

    def __init__(self, *, variation: float | None = None, num_parts: int = 3, **words: Unpack[BKBWords]) -> None:
        given = Arguments(BKBWords, words)
        bound = given.norm_bound if variation is None else variation
        super().__init__(**bkb_pieces(given, acquisition=AdaptiveDiscretizationRule(bound, num_parts)))

"""ET-GP-UCB, which restarts when a reward is a surprise."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import ResidualTrigger
from torch_kbandits.confidence import IGPUCBWidth


@described
class ETGPUCB(Bandit):
    """ET-GP-UCB, event-triggered GP-UCB: GP-UCB that forgets everything when a reward leaves its confidence band.

    It needs no rate of change. The reward that triggered a restart counts after it.

    Source: Brunzema, von Rohr, Solowjow and Trimpe, "Event-triggered time-varying Bayesian optimization", TMLR 2025.
    Differs: the default width of the choice is as for ``SWGPUCB``; on arms theirs is
    ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``. Rewards may be told several at a time, see
    ``ResidualTrigger``; a trigger for functions of an RKHS is ``Bandit(trigger=ResidualTrigger(width=...))``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Its scale sets which change is a
            surprise: with too large a one changes go unnoticed, with too small a one restarts never end.
        false_alarm_probability: δ of the trigger in (0, 1): on a function that stays, the probability of a restart
            before the next change is at most this.
        noise_scale: R > 0, the standard deviation of the noise, in reward units; the trigger takes √λ unless given.
        failure_probability: δ of the width in (0, 1).
        memory: which observations count at a time, beside the restarts; None for all since the last.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one. The trigger's probability is proved for
            the exact one.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed. The trigger has a width of its own.
        **words: see ``DictionaryWords``.

    Cost of a round: as GP-UCB with the observations since the last restart.
    """

    def __init__(self, *, false_alarm_probability: float = 0.1, **words: Unpack[DictionaryWords]) -> None:
        given = Arguments(DictionaryWords, words)
        trigger = ResidualTrigger(false_alarm_probability, given.noise_scale)
        theory = given.theorem_at(IGPUCBWidth, forgets=True)
        super().__init__(**given.under(theory, trigger=trigger))

"""Choosing through stages, each with a posterior of its own."""

from dataclasses import dataclass
from typing import NamedTuple

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.kernel_ucb import KernelUCB
from torch_kbandits.acquisition.rules import AcquisitionRule, ArmPosterior
from torch_kbandits.errors import InputError


class Verdict(NamedTuple):
    """What a stage says of the actions that came to it.

    Attributes:
        scores: (A,), of which the highest is played; None if the next stage decides.
        stage: the stage that learns the reward, counted from 1; 0 for none.
        kept: (A,) bool, the actions that go on to the next stage.
    """

    scores: Tensor | None
    stage: int
    kept: Tensor


@dataclass(frozen=True)
class StagedRule(AcquisitionRule):
    """Look at the actions stage by stage, each conditioned on its own rounds only, until one of them decides.

    In stage s, with widths w = β σ and bounds u = μ + w of the actions left:

    - if all widths are at most 1/√T, play the action of the highest bound, and no stage learns the reward;
    - else if all are at most 2⁻ˢ, keep the actions with u >= max u − 2¹⁻ˢ and go on to stage s + 1;
    - else play the action of the largest width, and stage s learns the reward.

    So what a stage learns from was chosen by widths and by other stages, never by the rewards that it knows.

    The posteriors may be any of this package: with a dictionary of its own each, a memory, batches, arms in files. The
    regret bound is for exact ones of rewards that all count and are learned at once.

    Source: Valko et al., UAI 2013, SupKernelUCB; Auer, JMLR 2002. Differs: of the actions wider than 2⁻ˢ, any of which
    may be played, it is the widest; there are no stages that cannot be reached.

    Args:
        horizon: T, the planned number of rounds.
    """

    horizon: int

    uses_width = True

    def __post_init__(self) -> None:
        checks.keep(self, horizon=checks.positive_integer)
        # S = ⌈½ log₂ T⌉, at least 1: there 2⁻ˢ is at most 1/√T, and one of the two ways to play applies.
        object.__setattr__(self, "num_stages", max(1, ((self.horizon - 1).bit_length() + 1) // 2))

    def verdict(self, stage: int, mean: Tensor, width: Tensor) -> Verdict:
        """Return what a stage says of actions with posterior means (A,) and widths (A,).

        Args:
            stage: from 1 to ``num_stages``.
            mean: (A,), in reward units.
            width: β σ, (A,), in reward units.
        """
        bounds, widest = mean + width, float(width.max())
        if widest <= self.horizon**-0.5:
            return Verdict(bounds, 0, bounds == bounds.max())
        if widest <= 2.0**-stage:
            return Verdict(None, 0, bounds >= bounds.max() - 2.0 ** (1 - stage))
        return Verdict(width, stage, width > 2.0**-stage)

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return μ + β σ, (A,), of a posterior that is that of no stage."""
        return KernelUCB.score(posterior.mean, posterior.variance, beta)

    def function(
        self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int
    ) -> AcquisitionFunction:
        """Raise: no one function is maximised."""
        raise InputError("A choice through stages maximises no acquisition function.")

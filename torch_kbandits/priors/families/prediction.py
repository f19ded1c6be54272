"""Dynamic model selection among hypotheses: the one that predicted best of late."""

from dataclasses import dataclass

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.priors.families.base import FamilyRule, Trials


@dataclass(frozen=True)
class Prediction(FamilyRule):
    """Play by the hypothesis whose predictions were best, those of each earlier round counting α times as much.

        u_t = argmax_u Σ_s α^(t − s) log p_u(y_s | what was told before s)

    Every reward scores every hypothesis, whichever chose its point: none need play in order to be judged. It goes
    with kernels, means, λ and memories alike. Before any reward the first plays.

    Source: Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010: model probabilities with forgetting factor α, of which the largest is taken (dynamic model
    selection). Differs: a round is what is told in one call. No regret bound is known.

    Args:
        score_discount: α in (0, 1], the factor by which a score loses weight in a round; 1 where the function does not
            change.
    """

    score_discount: float = 1.0

    def __post_init__(self) -> None:
        checks.keep(self, score_discount=checks.discount)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return all, (K,) bool."""
        return trials.active

    def weights(self, trials: Trials) -> Tensor:
        """Return the probabilities, (K,)."""
        return trials.probabilities

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis that predicted best."""
        return trials.likeliest

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the leader alone."""
        return (self.leader(trials),)

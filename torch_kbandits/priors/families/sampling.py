"""Hyperposterior sampling: a hypothesis is drawn by how well it explains the rewards."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.priors.families.base import FamilyRule, Trials, drawn


@dataclass(frozen=True)
class Sampling(FamilyRule):
    """Draw a hypothesis from P(u | data) ∝ P(u) p(data | u) for each point, which that one chooses.

    With Thompson sampling as the rule of acquisition it is HP-GP-TS: a draw of the hypothesis, and then of its
    function, is a draw of what is believed of the function. The leader is the most probable hypothesis.

    log p(data | u) is the sum of what was predicted: of each reward, or of all that were told together, given those
    before. For exact posteriors of rewards that all count it is the log marginal likelihood. With a dictionary or a
    memory it is what that posterior predicted, and rewards told together are predicted each on its own, unless they
    are the first.

    Source: Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson sampling",
    2025, HP-GP-TS. Differs: any posterior, memory and rule of acquisition. The regret bound is for functions drawn from
    the prior of a hypothesis that was drawn from P; nothing is rejected, so a family without the truth in it still
    converges to what predicts best.

    Args:
        probabilities: P(u) > 0 for each hypothesis, in proportion; None for the same for all.
    """

    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.probabilities is not None:
            if not isinstance(self.probabilities, (tuple, list)) or not self.probabilities:
                raise InputError(
                    f"probabilities must be a number for each hypothesis, got {checks.describe(self.probabilities)}."
                )
            numbers = tuple(
                checks.positive(f"probabilities[{place}]", each) for place, each in enumerate(self.probabilities)
            )
            object.__setattr__(self, "probabilities", numbers)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return all, (K,) bool."""
        return trials.active

    def weights(self, trials: Trials) -> Tensor:
        """Return P(u | data), (K,).

        Raises:
            InputError: if there are not as many probabilities as hypotheses.
        """
        if self.probabilities is None:
            return trials.probabilities
        if len(self.probabilities) != len(trials.plays):
            raise InputError(
                f"probabilities must have a number for each of {len(trials.plays)} hypotheses: {self.probabilities}."
            )
        scores = trials.scores + torch.tensor(self.probabilities, dtype=torch.float64).log()
        return torch.softmax(scores - scores.max(), 0)

    def leader(self, trials: Trials) -> int:
        """Return the most probable hypothesis."""
        return int(self.weights(trials).argmax())

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the hypothesis that is drawn."""
        return (drawn(self.weights(trials), seed),)

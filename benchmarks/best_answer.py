"""A player for specs that asks an expert and has no model: beside it SparQ-GP-UCB shows what its posterior is worth."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.confidence import sparq_questions
from torch_kbandits.numerics.random import generator_for


class BestAnswer:
    """Asks the expert about ⌈questions · ln t⌉ arms at random in round t, at least one, and plays the best answer.

    The seed addresses the arms that are asked about. Cost of a round: the means of as many arms.
    """

    def __init__(
        self, *, candidates: Tensor, expert: Callable[[Tensor, float], Any], seed: int, questions: float = 6.0
    ) -> None:
        self.arms, self.expert, self.seed, self.questions, self.round = candidates, expert, seed, questions, 0

    def ask(self) -> Tensor:
        """Return the arm (1, d) with the best answer."""
        number = min(max(1, sparq_questions(self.round + 1, self.questions)), len(self.arms))
        generator = generator_for(self.seed, self.round, "questions")
        rows = torch.randperm(len(self.arms), generator=generator, device="cpu")[:number]
        asked = self.arms[rows.to(self.arms.device)]
        return asked[int(self.expert(asked, self.round)[0].argmax()), None].clone()

    def tell(self, x: Tensor, y: Tensor) -> None:
        """Learn nothing; a round is over."""
        self.round += len(y)

"""Players of contextual problems that are not kernelized: what a loop asks and tells can be counted on them."""

from typing import Any

import torch
from torch import Tensor


class Rotation:
    """Plays the actions in turn, by the number of rewards told; pending asks count, too. Remembers every call.

    It takes the words of an algorithm and has its calls: ``ask``, ``tell``, ``forget``.
    """

    def __init__(self, *, candidates: Any, seed: int = 0, kernel: Any = None, noise_scale: float | None = None) -> None:
        self.actions: Tensor | None = candidates.actions
        self.words = {"candidates": candidates, "kernel": kernel, "noise_scale": noise_scale, "seed": seed}
        self.told: list[tuple[Tensor, Tensor, Tensor]] = []
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.offered: list[Tensor] = []

    def ask(self, q: int | None = 1, *, context: Tensor, candidates: Tensor | None = None) -> Tensor:
        actions = self.actions if candidates is None else candidates
        self.offered.append(actions)
        first = sum(len(actions) for _, actions, _ in self.told) + len(self.pending)
        chosen = actions[[(first + i) % len(actions) for i in range(4 if q is None else q)]]
        self.pending += [(context, action) for action in chosen]
        return chosen

    def tell(self, x: Tensor, y: Tensor, *, context: Tensor) -> None:
        self.told.append((context, x, y))
        for action in x:
            self._drop(context, action)

    def forget(self, x: Tensor, *, context: Tensor) -> None:
        for action in x:
            assert self._drop(context, action), "forgotten without having been asked"

    @property
    def inducing_points(self) -> Tensor:
        return torch.zeros(sum(len(actions) for _, actions, _ in self.told), 1)

    def _drop(self, context: Tensor, action: Tensor) -> bool:
        for i, (asked_in, asked) in enumerate(self.pending):
            if torch.equal(asked_in, context) and torch.equal(asked, action):
                del self.pending[i]
                return True
        return False


class Policy:
    """Plays action ``choice[x]`` in context x, a whole number; learns nothing."""

    def __init__(self, actions: Tensor, choice: list[int]) -> None:
        self.actions, self.choice = actions, choice

    def ask(self, *, context: Tensor) -> Tensor:
        number = self.choice[int(context)]
        return self.actions[number : number + 1]

    def tell(self, x: Tensor, y: Tensor, *, context: Tensor) -> None:
        pass

    def forget(self, x: Tensor, *, context: Tensor) -> None:
        pass

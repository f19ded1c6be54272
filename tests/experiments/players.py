"""Players that are not kernelized: what a loop asks and tells can be counted on them."""

import torch
from torch import Tensor


class Rotation:
    """Plays the actions in turn, by the number of rewards told; pending asks count, too. Remembers every call.

    It takes the words of an algorithm and has its calls; of a time it knows nothing, so that one would be an error.
    """

    def __init__(self, *, candidates, seed=0, kernel=None, noise_scale=None):
        self.actions = getattr(candidates, "actions", candidates)
        self.words = {"candidates": candidates, "kernel": kernel, "noise_scale": noise_scale, "seed": seed}
        self.told, self.pending, self.offered = [], [], []

    def ask(self, q: int | None = 1, *, context=None, candidates=None) -> Tensor:
        actions = self.actions if candidates is None else candidates
        self.offered.append(actions)
        first = self.num_observations + len(self.pending)
        chosen = actions[[(first + i) % len(actions) for i in range(4 if q is None else q)]]
        self.pending += [(context, action) for action in chosen]
        return chosen

    def tell(self, x, y, *, context=None):
        self.told.append((context, x, y))
        for action in x:
            self._drop(context, action)

    def forget(self, x, *, context=None):
        for action in x:
            assert self._drop(context, action), "forgotten without having been asked"

    @property
    def num_observations(self):
        return sum(len(x) for _, x, _ in self.told)

    @property
    def inducing_points(self) -> Tensor:
        return torch.zeros(self.num_observations, 1)

    def _drop(self, context, action):
        for i, (asked_in, asked) in enumerate(self.pending):
            if (context is asked_in or torch.equal(asked_in, context)) and torch.equal(asked, action):
                del self.pending[i]
                return True
        return False

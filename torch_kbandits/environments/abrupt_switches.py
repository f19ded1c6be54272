"""Functions that change all at once."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.rkhs_functions import RKHSFunctions
from torch_kbandits.errors import InputError


class AbruptSwitches(DynamicEnvironment):
    """A function of a kernel's RKHS that gives way to a new one, all at once, in some rounds.

    Between switches the problem is stationary. Each switch costs about √2 ρ of the variation budget.

    Args:
        num_arms: as in ``RKHSFunctions``, like the words that follow.
        dimension: d.
        switches: a number: a new function every so many rounds; a list: in these rounds, increasing and from 1.
        kernel: its name.
        lengthscale: of the kernel.
        num_centres: m.
        norm: ρ.
        noise_scale: standard deviation of the noise.
        seed: addresses arms, centres, functions and noise.

    Raises:
        InputError: if an argument does not fit.
    """

    def __init__(
        self,
        num_arms: int = 100,
        dimension: int = 1,
        *,
        switches: int | Sequence[int] = 100,
        kernel: str = "rbf",
        lengthscale: float = 0.2,
        num_centres: int = 50,
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        self.switches = _switches(switches)
        self._functions = RKHSFunctions(num_arms, dimension, kernel, lengthscale, num_centres, norm, seed)
        self.centres = self._functions.centres
        super().__init__(**self._functions.words(self.weights, noise_scale))

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._functions.on_arms(self.weights(round))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""
        past = round // self.switches if isinstance(self.switches, int) else bisect_right(self.switches, round)
        return self._functions.random(past)


def _switches(value: int | Sequence[int]) -> int | tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return checks.positive_integer("switches, unless it is a list of rounds,", value)
    rounds = tuple(checks.positive_integer(f"switches[{i}]", round) for i, round in enumerate(value))
    for i, (sooner, later) in enumerate(pairwise(rounds)):
        if later <= sooner:
            raise InputError(f"switches must increase; after {sooner} comes switches[{i + 1}] = {later}.")
    return rounds

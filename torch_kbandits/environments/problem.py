"""What all problems with known means share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, runtime_checkable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.numerics.random import first_normals, generator_for

#: Of how many rounds noise is drawn at once, at most, where they are played one after the other.
_ROUNDS_AT_ONCE = 256

#: Returns the rewards (q,) of points X (q, d), given X, their means (q,) and the round.
Noise = Callable[[Tensor, Tensor, int], Tensor]


class Known(TypedDict, total=False):
    """What is known of a problem, for the algorithms that play it; see ``Environment`` for each."""

    kernel: Kernel | None
    regularization: float | None
    norm_bound: float | None
    center: float


@dataclass(frozen=True)
class _Noise:
    """The noise of rounds in a row that have one play each.

    Args:
        source: all that it depends on: seed, scale and dtype.
        first: of the rounds.
        values: one a round.
    """

    source: tuple[Any, ...]
    first: int
    values: list[float]


@runtime_checkable
class KnownBeforehand(Protocol):
    """A problem on fixed arms that says what each of them would return."""

    arms: Tensor

    def rewards_of_arms(self, rounds: range) -> Tensor | None:
        """Return the reward that each arm would have if it were the one that is played in a round, (r, A).

        None where that is not known beforehand.
        """
        ...


class Problem:
    """What every bandit problem with known means has: rewards, and what it tells algorithms; see ``Environment``."""

    def __init__(
        self,
        noise_scale: float,
        seed: int,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        norm_bound: float | None = None,
        center: float = 0.0,
        noise: Noise | None = None,
    ) -> None:
        if kernel is not None:
            checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        self.noise_scale = checks.non_negative("noise_scale", noise_scale)
        self.seed = checks.whole_number("seed", seed)
        self.kernel = kernel
        self.regularization = None if regularization is None else checks.positive("regularization", regularization)
        self.norm_bound = None if norm_bound is None else checks.non_negative("norm_bound", norm_bound)
        self.center = checks.finite_number("center", center)
        self._noise = noise
        self._drawn = _Noise((), 0, [])

    def rewards(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        """Return the rewards (q,) of points X (q, d) with means (q,) in a round."""
        if self._noise is not None:
            return self._noise(X, means, round)
        number = means.shape[0]
        if number == 1:
            return means + self._noise_of_one(round, means.dtype)
        noise = torch.randn(
            number, generator=generator_for(self.seed, round, "noise"), dtype=torch.float64, device="cpu"
        )
        return means + self.noise_scale * noise.to(means)

    def _with_noise(self, means: Tensor, rounds: range) -> Tensor | None:
        """Return the rewards (r, A) of arms of which one is played in each round, given their means, (A,) or (r, A)."""
        if self._noise is noiseless:
            return means.expand(len(rounds), -1)
        if self._noise is not None:
            return None
        noise = [self._noise_of_one(round, means.dtype) for round in rounds]
        return means + torch.tensor(noise, dtype=means.dtype, device=means.device).unsqueeze(-1)

    def _has_methods_of(self, kind: type["Problem"]) -> bool:
        """Say whether what decides rewards is that of a class."""
        return all(getattr(type(self), name) is getattr(kind, name) for name in ("pull", "mean", "rewards"))

    def _noise_of_one(self, round: int, dtype: torch.dtype) -> float:
        """Return the noise of a round with one play; that of the next ones is drawn with it if rounds come in a row."""
        source, drawn = (self.seed, self.noise_scale, dtype), self._drawn
        ahead = round - drawn.first
        if drawn.source != source or not 0 <= ahead < len(drawn.values):
            number = min(2 * ahead, _ROUNDS_AT_ONCE) if ahead == len(drawn.values) and drawn.source == source else 1
            normals = torch.tensor(
                first_normals(self.seed, range(round, round + number), "noise"), dtype=torch.float64, device="cpu"
            )
            drawn = self._drawn = _Noise(source, round, (self.noise_scale * normals.to(dtype)).tolist())
        return drawn.values[round - drawn.first]


def noiseless(X: Tensor, means: Tensor, round: int) -> Tensor:
    """Return the means: rewards without noise, whatever ``noise_scale`` algorithms are told."""
    return means

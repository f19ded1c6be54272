"""Which plays failed last, and how often in a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits.numerics.rows import row_keys

#: A wait does not double more often: it would outlast any run.
_MOST_DOUBLED = 40

#: Of so many rounds at most one goes to second chances, while failures go on.
_ROUNDS_PER_CHANCE = 20


class FailureStreak(NamedTuple):
    """Failures in a row at one point, the latest of its plays.

    Attributes:
        point: (d,).
        count: how many, at least 1.
        round: of the latest.
    """

    point: Tensor
    count: int
    round: int

    @property
    def over(self) -> int:
        """The first round in which the point may be asked for again: 2^k − 1 are left out after k failures."""
        return self.round + 2 ** min(self.count, _MOST_DOUBLED)


@dataclass(frozen=True, eq=False)
class ConsecutiveFailures:
    """The points whose latest play failed. A value.

    Attributes:
        known: the streak of each, by its key.
    """

    known: Mapping[bytes, FailureStreak] = field(default_factory=dict)

    def told(self, X: Tensor, failed: Tensor, rounds: Sequence[int]) -> Self:
        """Return what is known after more plays at points (q, d) that failed or did not, (q,), in rounds (q,).

        Cost: O(q + the number of streaks).
        """
        known = dict(self.known)
        for row, (key, lost, number) in enumerate(zip(row_keys(X), failed.tolist(), rounds, strict=True)):
            before = known.pop(key, None)
            if lost:
                known[key] = FailureStreak(X[row], 1 if before is None else before.count + 1, number)
        return type(self)(known)

    def waiting(self, now: int) -> list[FailureStreak]:
        """Return the streaks whose points are not to be asked for in a round."""
        return [each for each in self.known.values() if each.over > now]

    def second_chances(self, now: int) -> list[FailureStreak]:
        """Return the streaks whose points may be tried again in a round, however likely it is that they fail.

        With B streaks that is 20 B 2^(k − 1) rounds after the k-th failure of a point. So one round in 20 at most is
        lost to points that always fail, and fewer and fewer; and what failed by chance comes back.
        """
        least = _ROUNDS_PER_CHANCE * len(self.known)
        return [
            each for each in self.known.values() if now - each.round >= least * 2 ** min(each.count - 1, _MOST_DOUBLED)
        ]


def among(X: Tensor, points: Sequence[Tensor], reach: Tensor | None = None) -> Tensor:
    """Say of points (n, d) whether one of others, (d,) each, is the same, (n,).

    Args:
        X: (n, d).
        points: the others.
        reach: by how much the same points may differ in each column, (d,); None: not at all.
    """
    found = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for point in (each.to(X.device) for each in points):
        found |= ((point == X) if reach is None else ((X - point).abs() <= reach)).all(-1)
    return found

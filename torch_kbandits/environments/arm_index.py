"""Where rows stand among the arms, found by value."""

from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


class ArmIndex:
    """A look-up of arms by their values: of equal arms, the first.

    Args:
        arms: (A, d), A >= 1.

    Attributes:
        repeated: the positions (first, later) of arms that stand twice.

    Raises:
        InputError: if the arms are no finite (A, d) of floats.

    Cost: O(A d) time and memory once; then O(d) a row, whatever A.
    """

    def __init__(self, arms: Tensor) -> None:
        self.arms = arms = checks.points("arms", arms)
        if arms.dim() != 2 or len(arms) == 0:
            raise InputError(f"arms must be (A, d) with A >= 1, got {checks.describe(arms)}.")
        # Rows as tuples of Python floats: the look-up of a single row costs less than any tensor operation.
        self._first: dict[tuple[float, ...], int] = {}
        self.repeated: list[tuple[int, int]] = []
        for i, row in enumerate(arms.tolist()):
            first = self._first.setdefault(tuple(row), i)
            if first != i:
                self.repeated.append((first, i))

    def find(self, X: Tensor) -> list[int]:
        """Return the positions among the arms of the rows of X (q, d).

        Raises:
            InputError: if a row is no arm.
        """
        if not (isinstance(X, Tensor) and X.dtype == self.arms.dtype):
            X = checks.points("X", X, like=self.arms)
        if X.dim() != 2:
            checks.rows("X", X)
            raise InputError(f"X must have shape (q, {self.arms.shape[1]}), got {checks.describe(X)}.")
        try:
            return [self._first[tuple(row)] for row in X.tolist()]
        except KeyError:
            checks.points("X", X, dimension=self.arms.shape[1])
            unknown = [i for i, row in enumerate(X.tolist()) if tuple(row) not in self._first]
            raise InputError(f"Row(s) {unknown} of X are no arms.") from None

    def checked_means(self, means: Any) -> Tensor:
        """Return means as a tensor if they are (A,), finite and equal where arms are.

        Raises:
            InputError: if they do not fit.
        """
        means = checks.floating_tensor("means", means, self.arms)
        checks.finite("means", checks.same_kind("means", means, self.arms))
        if means.shape != self.arms.shape[:1]:
            raise InputError(
                "arms must be (A, d) with A >= 1 and means (A,); "
                f"got {checks.describe(self.arms)} and {checks.describe(means)}."
            )
        for first, later in self.repeated:
            if bool(means[first] != means[later]):
                raise InputError(
                    f"Arms {first} and {later} are the same point but have means {float(means[first])} and "
                    f"{float(means[later])}."
                )
        return means


def rows_of(values: Tensor, indices: list[int]) -> Tensor:
    """Return the entries (q,) of values (A,) at some positions, as a copy."""
    if len(indices) == 1:  # this takes a third of the time of an indexing
        return values.narrow_copy(0, indices[0], 1)
    return values[torch.tensor(indices, dtype=torch.long, device=values.device)]

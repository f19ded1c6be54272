"""Parameters as the kernel sees them: points of the unit cube, where unordered choices have no order."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.input_constructors.input_transforms import input_transform_argparse
from botorch.models.transforms.input import InputTransform
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor


class UnitCube(InputTransform):
    """From the numbers that Ax hands over, one a parameter, to points of the unit cube.

    Ranges and ordered choices are scaled by their bounds. Any two values of an unordered choice are at distance 1,
    wherever they are in its list: two values are the ends of one column, more have a column each, 1/√2 for the value
    taken and 0 otherwise. So they are in ``ParameterSpace``.

    Only the kernel sees these columns. Trials, candidates and dictionaries stay in Ax's numbers, so its search, which
    goes from choice to choice, never stands between two of them.

    Args:
        names: of the d parameters.
        bounds: the least and the largest number of each.
        choices: the numbers that unordered choices may take, by position.
    """

    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    lower: Tensor
    span: Tensor

    def __init__(
        self,
        names: Sequence[str],
        bounds: Sequence[tuple[float, float]],
        choices: Mapping[int, Sequence[float]],
    ) -> None:
        super().__init__()
        ends = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2)
        self.register_buffer("lower", ends[:, 0])
        self.register_buffer("span", ends[:, 1] - ends[:, 0])
        self.names = list(names)
        self.several = [position for position in sorted(choices) if len(choices[position]) > 2]
        for position in self.several:
            self.register_buffer(f"values_{position}", torch.tensor(choices[position], dtype=torch.float64))

    @property
    def columns(self) -> list[str]:
        """What each column of the cube is."""
        columns = []
        for position, name in enumerate(self.names):
            if position in self.several:
                columns += [f"{name}, choice {number}" for number in range(len(self._values(position)))]
            else:
                columns.append(name)
        return columns

    @property
    def groups(self) -> list[int]:
        """Of each column of the cube the position of its parameter; see ``GroupedKernel``."""
        widths = [len(self._values(place)) if place in self.several else 1 for place in range(len(self.names))]
        return [place for place, width in enumerate(widths) for _ in range(width)]

    def transform(self, X: Tensor) -> Tensor:
        """Return points (..., n, D) of the cube from numbers (..., n, d). Cost: O(n D)."""
        scaled = (X - self.lower) / self.span
        if not self.several:
            return scaled
        blocks = [
            self._codes(X[..., position], position) if position in self.several else scaled[..., position, None]
            for position in range(len(self.names))
        ]
        return torch.cat(blocks, dim=-1)

    def _codes(self, numbers: Tensor, position: int) -> Tensor:
        """Return the codes (..., k) of numbers (...) of one choice of k values."""
        values = self._values(position)
        nearest = (numbers.unsqueeze(-1) - values).abs().argmin(-1)
        return torch.nn.functional.one_hot(nearest, len(values)).to(values) * math.sqrt(0.5)

    def _values(self, position: int) -> Tensor:
        return self.get_buffer(f"values_{position}")


@input_transform_argparse.register(UnitCube)
def _arguments(
    input_transform_class: type[UnitCube],
    dataset: SupervisedDataset,
    search_space_digest: SearchSpaceDigest,
    input_transform_options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments of the transform; Ax calls this by name."""
    digest = search_space_digest
    return {
        "names": digest.feature_names,
        "bounds": digest.bounds,
        "choices": {position: digest.discrete_choices[position] for position in digest.categorical_features},
    }

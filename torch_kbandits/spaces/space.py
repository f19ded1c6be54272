"""Search spaces of named parameters, and how their configurations become points of the unit cube and come back."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces.kinds import Float, Integer, Parameter
from torch_kbandits.spaces.slots import RADIUS, Slot, rolled, unrolled

#: Of so many configurations one at least must satisfy the constraints; a sample of more is sought among four times as
#: many as it is to have.
_TRIED = 2**14

#: So many times the values of parameters are drawn that are there only since another one was exchanged.
_BRANCHES = 8

#: Points near one, of each kind, that may take its place where there are constraints.
_NEARER, _RADII = 3, (0.1, 0.03, 0.01, 0.003)


#: Sums are compared up to this share of their terms, since decimal fractions are rounded.
_ROUNDING = 1e-12

#: Says of a configuration whether it may be played.
Constraint = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class LinearConstraint:
    """Σ weight · value <= bound, up to rounding. A parameter that is not there counts as 0.

    Args:
        weights: of numbers, by name, at least one; those of other parameters are 0.
        bound: what the sum may be at most; for a least one negate both.
    """

    weights: Mapping[str, float]
    bound: float

    def __post_init__(self) -> None:
        checks.instance("weights", self.weights, Mapping, "a mapping from names of parameters to numbers")
        if not self.weights:
            raise InputError("weights must have at least one entry, got none.")
        weights = {name: checks.finite_number(f"the weight of {name!r}", w) for name, w in self.weights.items()}
        object.__setattr__(self, "weights", weights)
        checks.keep(self, bound=checks.finite_number)

    def __call__(self, configuration: Mapping[str, Any]) -> bool:
        """Say whether a configuration may be played."""
        terms = [weight * configuration[name] for name, weight in self.weights.items() if name in configuration]
        size = math.fsum(map(abs, terms)) + abs(self.bound)
        return math.fsum(terms) <= self.bound + _ROUNDING * size


@dataclass(frozen=True)
class ParameterSpace:
    """Named parameters, in order. A configuration is a mapping from names to values, its encoding a point of [0, 1]^d.

    Every playable configuration has one encoding, ``decode`` gives it back exactly, and ``snap`` takes any point to
    the encoding of the nearest one. Between the ends of a continuous parameter there are 2^40 playable values, or as
    many as its numbers can tell apart. Parameters of a single value take no coordinate.

    A parameter may be there only when others have certain values, which come before it:
    ``"depth": Integer(1, 12, when={"model": ["forest", "trees"]})``. If several are named, all must have one of theirs.
    These may depend on others in turn. Configurations lack what is not there. In encodings a number that is not always
    there lies on an arc and a choice on axes of its own, both around 0, which stands for its absence; see ``Slot``. So
    a kernel of distances knows a branch from another by a constant, and shares between them what both have.

    Args:
        parameters: of each name, ``Float``, ``Integer`` or ``Categorical``.
        constraints: which configurations may be played: ``LinearConstraint``, or functions of a configuration that
            return True or False, always the same. Points are drawn until they satisfy them, so a part of all
            configurations should, and more than a thousandth.
    """

    parameters: Mapping[str, Parameter]
    constraints: Sequence[Constraint] = ()
    _slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.instance("parameters", self.parameters, Mapping, "a mapping from names to parameters")
        if not self.parameters:
            raise InputError("parameters must have at least one entry, got none.")
        slots: dict[str, Slot] = {}
        start = 0
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Parameter):
                got = f"{name!r} is {checks.describe(parameter)}"
                raise InputError(f"parameters must map names to Float, Integer or Categorical; {got}.")
            slots[name] = Slot(name, parameter, start, _conditions(name, parameter, list(slots.values())))
            start += slots[name].width
        object.__setattr__(self, "parameters", dict(self.parameters))
        object.__setattr__(self, "constraints", _checked(self.constraints, self.parameters))
        object.__setattr__(self, "_slots", tuple(slots.values()))

    # ---------------------------------------------------------------- coordinates

    @property
    def dimension(self) -> int:
        """The number of coordinates, d; 0 where every parameter has a single value."""
        return sum(slot.width for slot in self._slots)

    @property
    def names(self) -> list[str]:
        """Of each coordinate the name of its parameter, with a number where that takes several, (d,)."""
        numbered = [(slot, number) for slot in self._slots for number in range(1, slot.width + 1)]
        return [slot.name if slot.width == 1 else f"{slot.name} {number}" for slot, number in numbered]

    @property
    def groups(self) -> list[int]:
        """Of each coordinate the number of its parameter among those that take some, (d,); see ``GroupedKernel``."""
        return [number for number, place in enumerate(self._several) for _ in range(self._slots[place].width)]

    @property
    def continuous(self) -> list[int]:
        """The coordinates of floats without a step, which may take any value but for rounding; see ``unrolled``."""
        return [slot.start for slot in self._slots if slot.is_continuous]

    @property
    def is_restricted(self) -> bool:
        """Whether there are constraints."""
        return bool(self.constraints)

    @property
    def has_exchanges(self) -> bool:
        """Whether a search should look at ``exchanges``: not all coordinates are continuous and free."""
        return self.is_restricted or not all(slot.is_continuous for slot in self._slots if slot.width)

    # ---------------------------------------------------------------- configurations to points and back

    def encode(self, configurations: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return n configurations as points (n, d), in double precision.

        Names that are no parameters are left out, and so are parameters that are not there; none may be missing.
        """
        numbers = torch.full((len(configurations), len(self._slots)), torch.nan, dtype=torch.float64)
        for place, slot in enumerate(self._slots):
            rows = slot.is_there(numbers).nonzero().flatten().tolist()
            for row in rows:
                if slot.name not in configurations[row]:
                    where = f"configuration {row}: {dict(configurations[row])!r}"
                    raise InputError(f"parameter {slot.name!r} is missing in {where}.")
            numbers[rows, place] = slot.parameter.encode(slot.name, [configurations[row][slot.name] for row in rows])
        return self._written(numbers)

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d)."""
        found: list[dict[str, Any]] = [{} for _ in range(len(points))]
        numbers = self._settled(self._read(points))
        for place, slot in enumerate(self._slots):
            rows = (~numbers[:, place].isnan()).nonzero().flatten().tolist()
            for row, value in zip(rows, slot.parameter.decode(numbers[rows, place]), strict=True):
                found[row][slot.name] = value
        return found

    def snap(self, points: Tensor) -> Tensor:
        """Return the encodings (..., d) of the configurations nearest to points (..., d), whatever constraints say."""
        flat = points.reshape(math.prod(points.shape[:-1]), self.dimension)
        return self._written(self._settled(self._read(flat))).reshape(points.shape)

    # ---------------------------------------------------------------- what may be played

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) whether constraints let the nearest configurations be played, (n,)."""
        allowed = torch.ones(len(points), dtype=torch.bool)
        for row, configuration in enumerate(self.decode(points) if self.constraints else ()):
            for constraint in self.constraints:
                answer = constraint(configuration)
                if not isinstance(answer, (bool, np.bool_)):
                    raise InputError(f"a constraint must return True or False, got {answer!r} of {configuration!r}.")
                allowed[row] = bool(answer)
                if not answer:
                    break
        return allowed

    def playable(self, points: Tensor) -> Tensor:
        """Return the encodings (m, d) of the configurations nearest to points (n, d), but for those not allowed."""
        return self._allowed(self.snap(points))

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return the encodings (n, d) of n configurations, uniform and evenly spread (scrambled Sobol points).

        Each parameter is uniform on its scale: logarithmic ones in the logarithm. Where few of all configurations
        satisfy the constraints there may be fewer, one at least. So many points of the sequence are left out first.
        """
        wanted, found, tried, known = first + n, [], 0, 0
        for drawn in self._drawn(wanted, generator):
            found.append(self._placed(drawn))
            tried, known = tried + len(drawn), known + len(found[-1])
            if known >= wanted or (tried >= _TRIED and (known or tried >= 4 * wanted)):
                break
        if not known:
            raise InputError(f"Of {tried} configurations none satisfies the constraints: widen them, or narrow ranges.")
        return torch.cat(found)[first:wanted] if known >= wanted else torch.cat(found)[-n:]

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return playable points (m, d), m <= 3 size r, near an encoding, (1, d), by moves of r radii; see ``near``."""
        return self._placed(self._near(point, radii, size, generator))

    def neighbours(self, points: Tensor) -> Tensor:
        """Return encodings (k, d) of configurations that differ from one of the points (n, d) in one parameter.

        Choices are exchanged for any other, of more than 256 for so many, spread evenly; numbers on steps for any other
        where they are few and for those 1, 2, 4, … steps away where they are many. Continuous parameters stay.
        Parameters that are there only since another was exchanged take several values.
        """
        return self._placed(self._exchanged(points))

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return the neighbours of a point (1, d), and with constraints points near it, by which a search moves on."""
        latents = self._exchanged(point)
        if self.constraints:
            latents = torch.cat([latents, self._near(point, _RADII, _NEARER, generator)])
        return self._placed(latents)

    # ---------------------------------------------------------------- arcs

    def unrolled(self, points: Tensor) -> Tensor:
        """Return encodings (..., d) in which each continuous number on an arc has its place on it and 0 or 1.

        A search along gradients moves the former, and leaves the latter: whether the number is there.
        """
        first = self._rolled
        if not len(first):
            return points
        pairs = torch.stack([points[..., first], points[..., first + 1]], -1)
        return _with_pairs(points, first, unrolled(pairs), (pairs.norm(dim=-1) > 0.5 * RADIUS).to(points))

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, of points (..., d), differentiably."""
        first = self._rolled
        if not len(first):
            return points
        pairs = rolled(points[..., first]) * points[..., first + 1].unsqueeze(-1)
        return _with_pairs(points, first, *pairs.unbind(-1))

    # ---------------------------------------------------------------- inside
    # Numbers (n, S) of parameters are NaN where they are not there; latents (n, P) those of several values.

    @property
    def _several(self) -> list[int]:
        """The places of parameters of several values."""
        return [place for place, slot in enumerate(self._slots) if slot.width]

    @property
    def _rolled(self) -> Tensor:
        """The first of the two columns of each continuous number on an arc."""
        return torch.tensor([slot.start for slot in self._slots if slot.is_continuous and slot.is_rolled]).long()

    def _read(self, points: Tensor) -> Tensor:
        """Return the numbers at points (n, d), which need not be those of values, nor there."""
        return torch.stack([slot.read(points) for slot in self._slots], -1)

    def _settled(self, numbers: Tensor) -> Tensor:
        """Return the numbers of the values nearest to numbers, where they are there."""
        settled = torch.full_like(numbers, torch.nan)
        for place, slot in enumerate(self._slots):
            there = slot.is_there(settled)
            settled[there, place] = slot.parameter.snap(numbers[there, place])
        return settled

    def _written(self, numbers: Tensor) -> Tensor:
        """Return the encodings (n, d) of the numbers of values."""
        return torch.cat([slot.written(numbers[:, place]) for place, slot in enumerate(self._slots)], -1)

    def _allowed(self, encodings: Tensor) -> Tensor:
        return encodings[self.allows(encodings)] if self.constraints else encodings

    def _meant(self, latents: Tensor) -> Tensor:
        """Return the numbers of the configurations that latents, all of them there, stand for."""
        numbers = latents.new_full((len(latents), len(self._slots)), 0.5)
        numbers[:, self._several] = latents
        return self._settled(numbers)

    def _placed(self, latents: Tensor) -> Tensor:
        """Return the encodings (m, d) of the configurations that latents stand for, but for those not allowed."""
        return self._allowed(self._written(self._meant(latents)))

    def _near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        ordered = torch.tensor([self._slots[place].parameter.is_ordered for place in self._several]).bool()
        return near(self._settled(self._read(point))[:, self._several], ordered, radii, size, generator)

    def _exchanged(self, points: Tensor) -> Tensor:
        """Return latents (k, P) that stand for configurations which differ from points (n, d) in one parameter."""
        latents = self._settled(self._read(points))[:, self._several]
        parts = [latents[:0]]
        for numbers in latents:
            for place in (~numbers.isnan()).nonzero().flatten().tolist():
                others = self._slots[self._several[place]].parameter.others(numbers[place])
                changed = numbers.repeat(len(others), 1)
                changed[:, place] = others
                parts.append(changed)
        moved = torch.cat(parts)
        missing = moved.isnan()
        if not bool(missing.any()):
            return moved
        filled = moved.nan_to_num(0.5)
        new = (missing & ~self._meant(filled)[:, self._several].isnan()).any(-1)
        # The first point of the sequence is 0.
        size = min(filled.shape[-1], SobolEngine.MAXDIM)
        drawn = SobolEngine(size).draw(_BRANCHES + 1, dtype=torch.float64)[1:].repeat(1, -(-filled.shape[-1] // size))
        branches = torch.where(missing[new].unsqueeze(1), drawn[:, : filled.shape[-1]], moved[new].unsqueeze(1))
        return torch.cat([filled[~new], branches.reshape(-1, filled.shape[-1])])

    def _drawn(self, wanted: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield latents (k, P) of a scrambled Sobol sequence, or beyond its dimensions at random, more each time."""
        size, chunk, engine = len(self._several), wanted, None
        if 0 < size <= SobolEngine.MAXDIM:
            seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
            engine = SobolEngine(size, scramble=True, seed=seed)
        while True:
            if engine is None:
                yield torch.rand(chunk, size, generator=generator, dtype=torch.float64, device="cpu")
            else:
                yield engine.draw(chunk, dtype=torch.float64)
            chunk = max(chunk, 64)


def near(numbers: Tensor, ordered: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
    """Return numbers (3 size r, P) in [0, 1] near some, (1, P): all moved a little, a few, and a few drawn anew.

    Numbers without an order are drawn anew where a few others move. NaN stands for a number that is not there, and is
    drawn, in case it will be.

    There are so many of each of the three kinds for each of the radii (r,), the deviations of moves.
    """
    shape = 3 * size * len(radii), numbers.shape[-1]
    kind: Any = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    radius = torch.tensor(radii, dtype=torch.float64).repeat_interleave(3 * size).unsqueeze(-1)
    moved = torch.where(ordered, numbers + radius * torch.randn(shape, **kind), numbers)
    drawn = torch.rand(shape, **kind)
    few = torch.rand(shape, **kind) < max(0.2, 1.0 / max(1, shape[1]))
    part = (torch.arange(shape[0]) // size % 3).unsqueeze(-1)
    found = torch.where((part == 0) | ((part == 1) & few), moved, numbers)
    found = torch.where((part > 0) & few & ((part == 2) | ~ordered), drawn, found)
    return torch.where(found.isnan(), drawn, found).clamp(0.0, 1.0)


def _checked(constraints: Any, parameters: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """Return constraints on parameters of these names as a tuple, or refuse what is none."""
    checks.instance("constraints", constraints, (list, tuple), "a list")
    for constraint in constraints:
        if not callable(constraint):
            hint = "LinearConstraint(weights, bound) or functions of a configuration that return True or False"
            raise InputError(f"constraints must be {hint}, got {checks.describe(constraint)}.")
        for name in constraint.weights if isinstance(constraint, LinearConstraint) else ():
            if not isinstance(parameters.get(name), (Float, Integer)):
                raise InputError(f"a LinearConstraint has a weight of {name!r}, which is no Float or Integer.")
    return tuple(constraints)


def _conditions(name: str, parameter: Parameter, before: Sequence[Slot]) -> tuple[tuple[int, Tensor], ...]:
    """Return what a parameter depends on: other parameters before it, with steps, and numbers of their values."""
    found, names = [], [slot.name for slot in before]
    for other, values in parameter.when:
        if other not in names or before[names.index(other)].is_continuous:
            hint = f"a choice or a number on steps that comes before it; there are {names} before"
            raise InputError(f"parameter {name!r} depends on {other!r}, which must be {hint}.")
        place = names.index(other)
        found.append((place, before[place].parameter.encode(other, values)))
    return tuple(found)


def _with_pairs(points: Tensor, first: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Return points (..., d) with others in columns (k,) and in those after each, (..., k)."""
    return points.index_copy(-1, first, one).index_copy(-1, first + 1, other)

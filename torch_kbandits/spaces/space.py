"""Search spaces of named parameters, and how their configurations become points of the unit cube and come back."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.rows import with_owners
from torch_kbandits.spaces.kinds import Float, Integer, LinearConstraint, Parameter

#: Of so many configurations one at least must satisfy the constraints; a sample of more is sought among four times as
#: many as it is to have.
_TRIED = 2**14
#: So many times the values of parameters are drawn that are there only since another one was exchanged.
_BRANCHES = 8
#: Points near one, of each kind, that may take its place where there are constraints.
_NEARER, _RADII = 3, (0.1, 0.03, 0.01, 0.003)
#: The ends of the arc are at distance 1, as any two choices are; the centre is at this distance from all of it.
_RADIUS = math.sqrt(0.5)
#: tan(π/8): half of half of a right angle.
_END = math.sqrt(2.0) - 1.0

#: Says of a configuration whether it may be played.
Constraint = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, eq=False)
class Slot:
    """The columns of one parameter.

    One that is always there has a column for its number; of two choices the column is 0 or 1, of more each has one,
    1/√2 for the choice taken. One that is not always there lies on a sphere around 0, which stands for its absence:
    numbers on an arc, choices on an axis each. So a point without it is as far from all points with it, by 1/√2, and
    the ends of a range, as any two choices, are at distance 1.

    Conditions are the places of slots that it depends on, and the numbers (v,) of the values with which it is there.
    One that is held has one number, (), wherever it is there.
    """

    name: str
    parameter: Parameter
    start: int
    conditions: tuple[tuple[int, Tensor], ...]
    held: Tensor | None

    @property
    def is_continuous(self) -> bool:
        """Whether it may take any number of a range."""
        return self.parameter.count == math.inf

    @property
    def is_rolled(self) -> bool:
        """Whether it is a number on an arc."""
        return bool(self.conditions) and self.parameter.is_ordered and self.parameter.count > 1

    @property
    def width(self) -> int:
        """The number of columns; none where there is a single value."""
        if self.parameter.count == 1:
            return 0
        if self.parameter.is_ordered:
            return 2 if self.conditions else 1
        return 1 if self.parameter.count == 2 and not self.conditions else int(self.parameter.count)

    def read(self, points: Tensor) -> Tensor:
        """Return the numbers of the parameter at points (n, d), (n,), which need not be those of values."""
        block = points[:, self.start : self.start + self.width]
        if not self.width:
            return points.new_full((len(points),), 0.5)
        if self.parameter.is_ordered:
            return _unrolled(block) if self.is_rolled else block.squeeze(-1)
        choice = block[:, 0] >= 0.5 if self.width == 1 else block.argmax(-1)
        return (choice.double() + 0.5) / self.parameter.count

    def written(self, numbers: Tensor) -> Tensor:
        """Return the columns (n, width) of numbers of values (n,), NaN where the parameter is not there."""
        if not self.width or (self.width == 1 and self.parameter.is_ordered):
            return numbers.unsqueeze(-1)[:, : self.width]
        there, numbers = ~numbers.isnan().unsqueeze(-1), numbers.nan_to_num(0.5)
        if self.is_rolled:
            return torch.where(there, _rolled(numbers), 0.0)
        choice = (numbers * self.parameter.count).long().unsqueeze(-1)
        if self.width == 1:
            return choice.double()
        return torch.where(there, numbers.new_zeros(len(numbers), self.width).scatter_(1, choice, _RADIUS), 0.0)

    def is_there(self, numbers: Tensor) -> Tensor:
        """Say of the numbers (n, S) of values of all slots, NaN of those before that are not there, whether it is."""
        found = torch.ones(len(numbers), dtype=torch.bool)
        for place, wanted in self.conditions:
            found = found & torch.isin(numbers[:, place], wanted)
        return found


@dataclass(frozen=True)
class ParameterSpace:
    """Named parameters, in order. A configuration is a mapping from names to values, its encoding a point of [0, 1]^d.

    Every playable configuration has one encoding, ``decode`` gives it back exactly, and ``snap`` takes any point to
    the encoding of the nearest one. Between the ends of a continuous parameter there are 2^40 playable values, or as
    many as its numbers can tell apart. Parameters of a single value take no coordinate.

    A parameter may be there only when others, which come before it, have certain values:
    ``"depth": Integer(1, 12, when={"model": ["forest", "trees"]})``. Configurations lack what is not there. In
    encodings a number that is not always there lies on an arc and a choice on axes of its own, both around 0, which
    stands for its absence; see ``Slot``. So a kernel of distances knows a branch from another by a constant, and shares
    between them what both have.

    Args:
        parameters: of each name, ``Float``, ``Integer`` or ``Categorical``.
        constraints: which configurations may be played: ``LinearConstraint``, or functions of a configuration that
            return True or False, always the same. Points are drawn until they satisfy them, so a part of all
            configurations should, and more than a thousandth.
        held: of some parameters, by name, the one value with which they may be played now, such as a context;
            encodings stay what they are, also of other values.
    """

    parameters: Mapping[str, Parameter]
    constraints: Sequence[Constraint] = ()
    held: Mapping[str, Any] = field(default_factory=dict)
    _slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.parameters, Mapping) and self.parameters):
            hint = "a mapping from names to parameters with at least one entry"
            raise InputError(f"parameters must be {hint}, got {checks.describe(self.parameters)}.")
        checks.instance("held", self.held, Mapping, "a mapping from names to values")
        slots: list[Slot] = []
        start = 0
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Parameter):
                got = f"{name!r} is {checks.describe(parameter)}"
                raise InputError(f"parameters must map names to Float, Integer or Categorical; {got}.")
            held = parameter.encode(name, [self.held[name]])[0] if name in self.held else None
            slots.append(Slot(name, parameter, start, _conditions(name, parameter, slots), held))
            start += slots[-1].width
        object.__setattr__(self, "parameters", dict(self.parameters))
        object.__setattr__(self, "constraints", _checked(self.constraints, self.parameters))
        object.__setattr__(self, "_slots", tuple(slots))

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
        widths = [slot.width for slot in self._slots if slot.width]
        return [number for number, width in enumerate(widths) for _ in range(width)]

    @property
    def continuous(self) -> list[int]:
        """The coordinates of floats without a step, which may take any value but for rounding; see ``unrolled``."""
        return [slot.start for slot in self._slots if slot.is_continuous and slot.held is None]

    @property
    def is_restricted(self) -> bool:
        """Whether there are constraints."""
        return bool(self.constraints)

    @property
    def has_exchanges(self) -> bool:
        """Whether a search should look at ``exchanges``: not all that it may change is continuous and unconstrained."""
        return self.is_restricted or not all(self._slots[place].is_continuous for place in self._searched)

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
                allowed[row] &= bool(answer)
        return allowed

    def playable(self, points: Tensor) -> Tensor:
        """Return the encodings (m, d) of the configurations nearest to points (n, d), but for those not allowed."""
        snapped = self.snap(points)
        return snapped[self.allows(snapped)]

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return the encodings (n, d) of n configurations, uniform and evenly spread (scrambled Sobol points).

        Each parameter is uniform on its scale: logarithmic ones in the logarithm. Where few of all configurations
        satisfy the constraints there may be fewer, one at least. So many points of the sequence are left out first.
        """
        wanted, found, tried, known = first + n, [], 0, 0
        size, seed = len(self._searched), int(torch.randint(2**31, (), generator=generator, device="cpu"))
        engine = SobolEngine(max(1, size), scramble=True, seed=seed)
        while known < wanted and (tried < _TRIED or not (known or tried >= 4 * wanted)):
            drawn = engine.draw(max(wanted, 64) if tried else wanted, dtype=torch.float64)
            found.append(self._placed(drawn[:, :size]))
            tried, known = tried + len(drawn), known + len(found[-1])
        if not known:
            raise InputError(f"Of {tried} configurations none satisfies the constraints: widen them, or narrow ranges.")
        return torch.cat(found)[first:wanted] if known >= wanted else torch.cat(found)[-n:]

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return playable points (m, d), m <= 3 size r, near an encoding, (1, d), by moves of r radii; see ``near``."""
        ordered = torch.tensor([self._slots[place].parameter.is_ordered for place in self._searched]).bool()
        return self._placed(near(self._latents(point), ordered, radii, size, generator))

    def neighbours(self, points: Tensor) -> Tensor:
        """Return encodings (k, d) of configurations that differ from one of the points (n, d) in one parameter.

        Choices are exchanged for any other, of more than 256 for so many, spread evenly; numbers on steps for any other
        where they are few and for those 1, 2, 4, … steps away where they are many. Continuous parameters stay.
        Parameters that are there only since another was exchanged take several values.
        """
        return self._neighbours(points)[0]

    def exchanges(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return points (k, d) by which a search moves on from points (n, d), and from which of them, (k,).

        They are their ``neighbours``, and with constraints points near them.
        """
        found = self._neighbours(points)
        if not self.constraints:
            return found
        nearer = with_owners([self.near(point, _RADII, _NEARER, generator) for point in points.split(1)], points)
        return torch.cat([found[0], nearer[0]]), torch.cat([found[1], nearer[1]])

    def _neighbours(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the neighbours (k, d) of points (n, d), and of which they are, (k,)."""
        moved, own = list[Tensor](), self._latents(points)
        for latents in own:
            parts = [latents.unsqueeze(0)[:0]]
            for place in (~latents.isnan()).nonzero().flatten().tolist():
                others = self._slots[self._searched[place]].parameter.others(latents[place])
                changed = latents.repeat(len(others), 1)
                changed[:, place] = others
                parts.append(changed)
            moved.append(torch.cat(parts))
        moved, owners = with_owners(moved, own)
        filled, missing = moved.nan_to_num(0.5), moved.isnan()
        if bool(missing.any()):
            new = (missing & ~self._meant(filled)[:, self._searched].isnan()).any(-1)
            # The first point of the sequence is 0.
            drawn = SobolEngine(moved.shape[-1]).draw(_BRANCHES + 1, dtype=torch.float64)[1:]
            branches = torch.where(missing[new].unsqueeze(1), drawn, moved[new].unsqueeze(1))
            filled = torch.cat([filled[~new], branches.flatten(0, 1)])
            owners = torch.cat([owners[~new], owners[new].repeat_interleave(_BRANCHES)])
        encodings = self._written(self._meant(filled))
        allowed = self.allows(encodings)
        return encodings[allowed], owners[allowed]

    # ---------------------------------------------------------------- arcs

    def unrolled(self, points: Tensor) -> Tensor:
        """Return encodings (..., d) in which each continuous number on an arc has its place on it and 0 or 1.

        A search along gradients moves the former, and leaves the latter: whether the number is there.
        """
        arcs = self._arcs
        if not len(arcs):
            return points
        pairs = torch.stack([points[..., arcs], points[..., arcs + 1]], -1)
        is_there = (pairs.norm(dim=-1) > 0.5 * _RADIUS).to(points)
        return points.index_copy(-1, arcs, _unrolled(pairs)).index_copy(-1, arcs + 1, is_there)

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, of points (..., d), differentiably."""
        arcs = self._arcs
        if not len(arcs):
            return points
        pairs = _rolled(points[..., arcs]) * points[..., arcs + 1].unsqueeze(-1)
        return points.index_copy(-1, arcs, pairs[..., 0]).index_copy(-1, arcs + 1, pairs[..., 1])

    # ---------------------------------------------------------------- inside
    # Numbers (n, S) of parameters are NaN where they are not there; latents (n, P) those of several values, not held.

    @property
    def _searched(self) -> list[int]:
        """The places of parameters of several values that are not held."""
        return [place for place, slot in enumerate(self._slots) if slot.width and slot.held is None]

    @property
    def _arcs(self) -> Tensor:
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
            settled[there, place] = slot.parameter.snap(numbers[there, place]) if slot.held is None else slot.held
        return settled

    def _written(self, numbers: Tensor) -> Tensor:
        """Return the encodings (n, d) of the numbers of values."""
        return torch.cat([slot.written(numbers[:, place]) for place, slot in enumerate(self._slots)], -1)

    def _latents(self, points: Tensor) -> Tensor:
        """Return the latents (n, P) of the configurations nearest to points (n, d)."""
        return self._settled(self._read(points))[:, self._searched]

    def _meant(self, latents: Tensor) -> Tensor:
        """Return the numbers of the configurations that latents, all of them there, stand for."""
        numbers = latents.new_full((len(latents), len(self._slots)), 0.5)
        numbers[:, self._searched] = latents
        return self._settled(numbers)

    def _placed(self, latents: Tensor) -> Tensor:
        """Return the encodings (m, d) of the configurations that latents stand for, but for those not allowed."""
        encodings = self._written(self._meant(latents))
        return encodings[self.allows(encodings)]


def _rolled(numbers: Tensor) -> Tensor:
    """Return points (..., 2) of a quarter of a circle, in [0, 1]², for numbers (...,) in [0, 1].

    Source: Swersky et al., "Raiders of the lost architecture", 2013, the arc kernel, whose points are at angles
    proportional to the number. Differs: the tangent of half the angle from the middle is, within 17 % of that speed; of
    sums, products and quotients alone the same number has the same bits wherever it stands in a tensor.
    """
    tangent = _END * (2.0 * numbers - 1.0)
    square = tangent * tangent
    across, along = (1.0 - square) / (1.0 + square), 2.0 * tangent / (1.0 + square)
    return (0.5 * torch.stack([across - along, across + along], -1)).clamp(0.0, 1.0)


def _unrolled(points: Tensor) -> Tensor:
    """Return the numbers (...,) of the nearest points of the arc to points (..., 2) of [0, 1]²; 1/2 at the centre."""
    first, second = points.unbind(-1)
    across, along = second + first, second - first
    away = (across * across + along * along).sqrt() + across
    tangent = torch.where(away > 0.0, along / away, 0.0)
    return (0.5 * (tangent / _END + 1.0)).clamp(0.0, 1.0)


def near(numbers: Tensor, ordered: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
    """Return numbers (3 size r, P) in [0, 1] near some, (1, P): all moved a little, a few, and a few drawn anew.

    Numbers without an order are drawn anew where a few others move. NaN stands for a number that is not there, and is
    drawn, in case it will be. There are so many of each of the three kinds for each of the radii (r,), the deviations
    of moves.
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
        hint = "LinearConstraint(weights, bound) or functions of a configuration that return True or False"
        checks.instance("constraints", constraint, Callable, hint)
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

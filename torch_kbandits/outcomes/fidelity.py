"""A column of the candidates that says how much of an evaluation is made, at what cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_kbandits import checks
from torch_kbandits.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """A column of the candidates as fidelity: epochs, a share of the data, how fine a mesh is; multi-fidelity BO.

    The best point at one of the levels, the target, is sought. A point is chosen by its upper confidence bound there,
    and played at the cheapest level z that still tells something of it: where its posterior variance v satisfies

        v(x, z) / k(z, z) > (1 − ρ²) (c(z) / c(target))^(2q),  ρ² = k(z, target)² / (k(z, z) k(target, target)),

    with the prior covariance k between levels at x, the costs c of a play, and q = 1/(D + 2) for points of D columns.
    If there is none it is played at the target. So it is at levels that cost no less than that, and where, with this
    play, more would be spent below the target since it was played last than a play there costs. The first points of a
    learned prior are spread over all levels, for as much at each.

    ``regret_bound`` and ``recommend`` are at the target; the latter is of all points played, at whatever level, the one
    of the largest mean less one deviation there.

    The kernel couples levels: under ``LearnedPrior`` the column has a length scale of its own; of a ``Prior`` the
    kernel sees it as a column like others. Levels that are ratios, such as epochs, are best given as their logarithms,
    or as a parameter of a ``ParameterSpace`` with ``log=True``, and their ``costs`` apart.

    Source: Kandasamy et al., "Multi-fidelity Bayesian optimisation with continuous approximations", ICML 2017 (BOCA);
    the threshold is its γ(z), squared, for any kernel. Differs: levels are listed, so that none need be left out for
    being too close to the target; a learned prior is fitted as elsewhere.

    Args:
        column: which column of points, with contexts of actions: its number, or the name of a parameter.
        levels: the values that it may have, at least two, all different, in its units.
        costs: what a play at each costs, above 0; None for the levels themselves.
        target: the level at which the best point is sought; None for the last.

    Raises:
        InputError: if an argument does not fit.
    """

    column: int | str
    levels: Sequence[float]
    costs: Sequence[float] | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            checks.keep(self, column=checks.whole_number)
        checks.keep(self, levels=_numbers, target=checks.optional(checks.finite_number))
        if len({*self.levels}) < max(len(self.levels), 2):
            raise InputError(f"levels must be at least two different numbers, got {checks.shown(self.levels)}.")
        if self.costs is None and min(self.levels) <= 0.0:
            raise InputError("The levels are the costs unless costs= are given, and must then be above 0: give costs.")
        checks.keep(self, costs=checks.optional(_numbers))
        if self.costs is not None and (len(self.costs) != len(self.levels) or min(self.costs) <= 0.0):
            got = checks.shown(self.costs)
            raise InputError(f"costs must be one number above 0 for each of the {len(self.levels)} levels, got {got}.")
        if self.target is not None and self.target not in self.levels:
            raise InputError(f"target must be one of the levels {self.levels}, got {self.target!r}.")

    @property
    def price(self) -> tuple[float, ...]:
        """What a play at each level costs."""
        return tuple(self.levels if self.costs is None else self.costs)

    @property
    def goal(self) -> int:
        """Which of the levels is the target."""
        return len(self.levels) - 1 if self.target is None else [*self.levels].index(self.target)


def _numbers(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return finite numbers as a tuple."""
    return tuple(
        checks.finite_number(f"{name}[{place}]", each) for place, each in enumerate(checks.entries(name, values))
    )

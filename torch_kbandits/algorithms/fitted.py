"""Ask and tell where nobody knows the kernel: it is fitted to what was told."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import climb
from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Asked
from torch_kbandits.bandit.saving import loaded, save
from torch_kbandits.bandit.state import check_config, check_format
from torch_kbandits.bandit.undisturbed import Undisturbed
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.confidence import Width
from torch_kbandits.errors import EmptyHistoryError, InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for, seed_for
from torch_kbandits.observations.ledger import History
from torch_kbandits.priors import LearnedPrior, Prior, default_kernel

#: The most points of a dictionary, whose square is what a round costs; where the noise is small it would grow without
#: end. Large, because a full one knows little about what is played later: with 30 points in place of 55 and 59, which
#: 140 rounds of Hartmann's function called for at two seeds, the regret of the last 40 was 0.30 and 0.63, not 0.04 and
#: 0.34.
_LARGEST_DICTIONARY = 400

#: Points of the cube at which the kernel is compared with the one that a file makes.
_COMPARED = 16

#: Points of the cube, and near the best point played, at which a search looks first.
_SPREAD, _NEAR = 2048, 256

#: From so many of the best of both it goes on, and looks at so many points near each where nobody says which.
_STARTS, _NEARER = 6, 16

#: Deviation of the points near the best one, step by step, in units of the cube.
_RADII = (0.1, 0.03, 0.01, 0.003)

#: Of so many of the points played the search considers the surroundings.
_PLAYED = 256

#: Words that bandits take elsewhere, and what to do instead of giving them.
_OTHERWISE = {
    "regularization": "It fits λ, the variance of the noise, itself: leave it out.",
    "mean": "It fits the mean of the rewards itself: leave it out.",
} | dict.fromkeys(
    ("candidates", "bounds", "context", "context_dim", "action_dim"),
    "It plays on the unit cube, without contexts. Say with snap which points of it can be played. For contexts or "
    "candidates of your own give prior=LearnedPrior() to a named algorithm.",
)


class FittedBandit(Undisturbed):
    """A bandit on the unit cube that needs neither kernel nor noise: both, and the units of rewards, are fitted.

    The first points fill the cube evenly; from then on a named algorithm plays with a prior that is learned, see
    ``LearnedPrior``. Points are chosen among some thousands that cover the cube and crowd around the best one played,
    and then by a search from the best of these, see ``climb``. So whatever ``snap`` calls playable can be played:
    numbers, whole numbers, choices.

    As for every bandit its state is a function of the configuration, the seed, the history and the points pending.

    Args:
        dimension: d, the number of coordinates.
        snap: takes points (n, d) of the cube to the nearest playable ones, (n, d); None where all are playable.
        continuous: the coordinates that ``snap`` leaves as they are but for rounding, along which a search climbs; none
            unless given where there is a ``snap``, else all.
        neighbours: takes a point (1, d) to playable ones (k, d) that a search tries in its place, such as those of
            which one choice is another: ``ParameterSpace.neighbours``. Unless given, points drawn near it.
        algorithm: a registry name of an algorithm that takes ``ContextualActions``, such as "ek-ucb" or "gp-ts".
        kernel: any GPyTorch kernel whose free parameters are fitted; ``fitting.default_kernel`` unless given.
        beta: as in the algorithms; 2 unless given, where the algorithm takes one.
        memory: as in ``Bandit``. Then fits use the latest rewards that count, as if the function had not changed
            meanwhile. Under a prior on time the points of ``history`` and ``pending`` have the time as their first
            column.
        clip: whether rewards far below the others count as less far below, so that a penalty for what fails does not
            become the unit in which all others are equal; see ``fitting.floor_below``, of the first ``num_initial``
            different rewards. A warning says so the first time. Rare losses lose weight in a mean by that. With a
            memory nothing is clipped, since the level of rewards may change.
        num_initial: rewards before the first fit, at least 2; 10 unless given.
        seed: addresses all randomness.
        settings: further words of the algorithm. A dictionary that can be capped stops at 400 points, without a word,
            unless ``max_dictionary`` (None for no cap) and ``when_full`` say otherwise.

    Raises:
        InputError: if an argument does not fit.

    Cost of a round: O(m²) for thousands of candidates where the algorithm is EK-UCB, m its dictionary; of fits that of
    ``LearnedPrior``.
    """

    def __init__(
        self,
        *,
        dimension: int,
        snap: Callable[[Tensor], Tensor] | None = None,
        continuous: Sequence[int] | None = None,
        neighbours: Callable[[Tensor], Tensor] | None = None,
        algorithm: str = "ek-ucb",
        kernel: Kernel | None = None,
        beta: float | Width | None = None,
        memory: Memory | None = None,
        clip: bool = True,
        num_initial: int = 10,
        seed: int,
        **settings: Any,
    ) -> None:
        _refuse("FittedBandit", settings)
        self.dimension = checks.positive_integer("dimension", dimension)
        if (num_initial := checks.positive_integer("num_initial", num_initial)) < 2:
            raise InputError(f"num_initial must be at least 2, since a fit needs two rewards; got {num_initial}.")
        self.num_initial = num_initial
        if kernel is not None:
            checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel().double()")
        for name, function in (("snap", snap), ("neighbours", neighbours)):
            if function is not None and not callable(function):
                raise InputError(f"{name} must be a function of points (n, d), got {checks.describe(function)}.")
        checks.instance("clip", clip, bool, "True or False")
        self.algorithm = algorithm
        self.clip = clip
        self.seed = checks.whole_number("seed", seed)
        known = registry.signature(algorithm).parameters
        if beta is None and "beta" in known:
            beta = 2.0
        if "max_dictionary" in known and "when_full" in known:
            settings = {"max_dictionary": _LARGEST_DICTIONARY, "when_full": "stop"} | settings
        if beta is not None and not isinstance(beta, Width):
            beta = checks.non_negative("beta", beta)
        given = {"beta": beta, "memory": memory}
        self._settings = settings | {word: value for word, value in given.items() if value is not None}
        self._kernel = default_kernel(dimension) if kernel is None else deepcopy(kernel)
        self._snap, self._neighbours = snap, neighbours
        self._continuous = tuple(range(dimension) if continuous is None and snap is None else continuous or ())
        if not {*self._continuous} <= {*range(dimension)}:
            raise InputError(f"continuous must be coordinates from 0 to {dimension - 1}, got {continuous!r}.")
        self._memory = memory
        self.bandit = registry.build(
            algorithm,
            candidates=ContextualActions(action_dim=dimension, context_dim=0),
            prior=LearnedPrior(kernel=self._kernel, clip=clip, num_initial=num_initial),
            seed=seed,
            **self._settings,
        )

    # ---------------------------------------------------------------- the loop

    @overload
    def ask(self, q: int = 1, *, time: Any = None, return_ids: Literal[False] = False) -> Tensor: ...

    @overload
    def ask(self, q: int = 1, *, time: Any = None, return_ids: Literal[True]) -> Asked: ...

    def ask(self, q: int = 1, *, time: Any = None, return_ids: bool = False, **other: Any) -> Tensor | Asked:
        """Return the next q points to play, (q, d); they are pending until they are told or forgotten.

        Args:
            q: number of points.
            time: as in ``Bandit.ask``.
            return_ids: whether to return the numbers of the points as well, by which they can be told.
            other: nothing; words of ``Bandit.ask`` that make no sense here are refused by name.

        Raises:
            InputError: if q or the time does not fit, or ``snap`` returns no points.

        After an error the points chosen meanwhile are forgotten. A point whose evaluation fails would be asked for
        again if it were forgotten, too: tell it a reward as bad as any instead.
        """
        _refuse("ask", other)
        q = checks.positive_integer("q", q)
        known = self.bandit.num_asked
        try:
            asked = [self._next(time) for _ in range(q)]
            X = torch.cat([each.actions for each in asked])
            result = Asked(X, tuple(number for each in asked for number in each.ids)) if return_ids else X
        except BaseException:
            if new := [number for number in self.pending_ids if number >= known]:
                self.bandit.forget(ids=new)
            raise
        return result

    def tell(
        self,
        x: Tensor | None = None,
        y: Any = None,
        *,
        time: Any = None,
        ids: int | Sequence[int] | None = None,
        **other: Any,
    ) -> None:
        """Learn rewards y (q,) at points x (q, d), or at those that ``ids`` stand for; see ``Bandit.tell``.

        Raises:
            InputError: if they do not fit; then nothing changes.
        """
        _refuse("tell", other)
        self.bandit.tell(x, y, time=time, ids=ids)

    def mark_pending(self, x: Tensor, *, time: Any = None, **other: Any) -> tuple[int, ...]:
        """Make points (q, d) pending that others chose and evaluate; return their ids. See ``Bandit.mark_pending``."""
        _refuse("mark_pending", other)
        return self.bandit.mark_pending(x, time=time)

    def forget(self, x: Tensor | None = None, *, ids: int | Sequence[int] | None = None, **other: Any) -> None:
        """Drop pending points that will not be told; all of them if none are given. See ``Bandit.forget``."""
        _refuse("forget", other)
        self.bandit.forget(x, ids=ids)

    # ---------------------------------------------------------------- what is believed

    @property
    def prior(self) -> Prior:
        """What is assumed of rewards now, as fitted last; before the first fit the kernel given and their units."""
        return self.bandit.prior

    @property
    def num_told(self) -> int:
        """How many rewards were told."""
        return self.bandit.num_told

    @property
    def history(self) -> History:
        """All that was told, in order; a copy."""
        return self.bandit.history

    @property
    def pending(self) -> Tensor:
        """The points asked for or marked and not yet told, (k, d), in order; a copy."""
        return self.bandit.pending

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Their ids."""
        return self.bandit.pending_ids

    def recommend(self, *, time: Any = None, **other: Any) -> Tensor:
        """Return the point (1, d) to use in the end: of those told the one of the largest posterior mean.

        Raises:
            EmptyHistoryError: if nothing was told yet.
        """
        _refuse("recommend", other)
        played = self.bandit.candidates.actions(self.history.X).unique(dim=0)
        return self.bandit.recommend(candidates=played if len(played) else self._spread(1), time=time)

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: tensors, numbers and strings, which ``torch.load(weights_only=True)`` reads."""
        return self.bandit.state_dict() | {"config": self._config()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a bandit of the same configuration was saved; what this one knew is replaced.

        ``snap`` is not part of the state: give the same.

        Raises:
            StateMismatchError: if the state is of another format or configuration.

        After an error the bandit is as it was.
        """
        check_format(state)
        check_config(state["config"], self._config())
        self.bandit.load_state_dict({**state, "config": self.bandit._config()})

    def save(self, path: str | PathLike[str]) -> None:
        """Write this bandit to one file, from which ``load`` makes it again; see ``Bandit.save``.

        Raises:
            FileError: if the file cannot be written; then an old one of that name is as it was.
        """
        words = {"dimension": self.dimension, "algorithm": self.algorithm, "num_initial": self.num_initial}
        words |= {"kernel": self._kernel, "snap": self._snap}
        words |= {"continuous": self._continuous, "neighbours": self._neighbours}
        words |= {"clip": self.clip, "seed": self.seed}
        save(self, path, words | self._settings, self._spread(_COMPARED))

    @classmethod
    def load(cls, path: str | PathLike[str], *, into: Self | None = None) -> Self:
        """Return the bandit that ``save`` wrote; it goes on where that one was. See ``Bandit.load``.

        Args:
            path: of the file.
            into: a bandit of the same configuration, to take the state and be returned: needed where there is a
                ``snap`` or a kernel of your own, which no file holds.

        Raises:
            FileError: if the file cannot be read.
            DamagedFileError: if it is cut, changed or no bandit's.
            StateMismatchError: if it is of a newer format, of another configuration than ``into``, or of a bandit that
                cannot be made again.

        After an error ``into`` is as it was.
        """
        return loaded(cls, path, into, None)

    @classmethod
    def _made_of(cls, words: dict[str, Any]) -> Self:
        return cls(**words)

    def replay(self, history: History) -> None:
        """Tell a recorded history, rewards in their own units, to a bandit that was told nothing yet.

        Raises:
            InputError: if something was told or asked already, or the history does not fit; then nothing changes.
        """
        if self.pending_ids:
            raise InputError("replay needs a bandit that was asked nothing; some points are pending.")
        self.bandit.replay(history)

    # ---------------------------------------------------------------- inside

    def _next(self, time: Any) -> Asked:
        """Choose one point."""
        if self.num_told < self.num_initial:
            x = self._playable(self._spread(1, first=self.num_told + len(self.pending_ids)))
            return Asked(x, self.mark_pending(x, time=time))
        bandit = self.bandit
        number = self.num_told + len(bandit.pending_ids)
        generator = generator_for(self.seed, number, "search")
        told = bandit.history
        recent = slice(-_PLAYED, None) if self._memory is not None else told.Y.argsort(descending=True)[:_PLAYED]
        parts = [self._spread(_SPREAD, number)]
        try:
            played = bandit.candidates.actions(told.X[recent]).unique(dim=0)
            best = bandit.recommend(candidates=played, time=time)
            near = (self._near(best, radius, generator, _NEAR) for radius in _RADII)
            parts.append(torch.cat([best, *near]))
        except EmptyHistoryError:  # all is forgotten by now
            pass
        points = self._playable(torch.cat(parts))
        if bandit.rule.grows_with_mean_and_variance:
            function = bandit.acquisition(candidates=points, time=time)
            starts = torch.cat([_highest(function, self._playable(part)) for part in parts])
            found = climb(function, starts, continuous=self._continuous, neighbours=self._exchanges(generator))
            points = self._playable(torch.cat([starts, found]))
        return bandit.ask(candidates=points, time=time, return_ids=True)

    def _exchanges(self, generator: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """Return what takes a point (1, d) to those that may take its place; None where all coordinates climb."""
        given = self._neighbours
        if given is not None:
            return lambda x: checks.points("what neighbours returns", given(x), dimension=self.dimension, like=x)
        if len(self._continuous) == self.dimension:
            return None
        return lambda x: self._playable(torch.cat([self._near(x, r, generator, _NEARER) for r in _RADII]))

    def _spread(self, size: int, number: int = 0, *, first: int = 0) -> Tensor:
        """Return points (size, d) that cover the cube evenly, of the Sobol sequence that a number scrambles."""
        seed = seed_for(self.seed, number, "spread")
        engine = torch.quasirandom.SobolEngine(self.dimension, scramble=True, seed=seed)
        return engine.fast_forward(first).draw(size, dtype=torch.float64)

    def _near(self, x: Tensor, radius: float, generator: torch.Generator, size: int) -> Tensor:
        """Return points (3 size, d) near x (1, d): all coordinates moved a little, a few, and a few drawn anew."""
        kind = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
        moved = x + radius * torch.randn(3 * size, self.dimension, **kind)
        drawn = torch.rand(3 * size, self.dimension, **kind)
        few = torch.rand(3 * size, self.dimension, **kind) < max(0.2, 1.0 / self.dimension)
        parts = torch.arange(3 * size).unsqueeze(-1) // size
        near = torch.where((parts == 0) | ((parts == 1) & few), moved, x.expand_as(moved))
        return torch.where((parts == 2) & few, drawn, near).clamp(0.0, 1.0)

    def _playable(self, points: Tensor) -> Tensor:
        """Return the playable points nearest to some of the cube, each once."""
        if self._snap is not None:
            points = checks.points("what snap returns", self._snap(points), dimension=self.dimension, like=points)
        return torch.from_numpy(np.unique(points.detach().numpy(), axis=0))  # torch's takes four times as long

    def _config(self) -> dict[str, Any]:
        """Return what a saved state must agree with beyond the configuration of the bandit that plays."""
        start = {"dimension": self.dimension, "algorithm": self.algorithm}
        return start | {f"bandit.{name}": value for name, value in self.bandit._config().items()}


def _highest(function: AcquisitionFunction, points: Tensor) -> Tensor:
    """Return the points (k, d) from which a search goes on: those that score highest."""
    with torch.no_grad():
        return points[function(points.unsqueeze(-2)).topk(min(_STARTS, len(points))).indices]


def _refuse(what: str, words: Mapping[str, Any]) -> None:
    """Refuse words that are not for a ``FittedBandit``; all those of its methods, which name what they take."""
    for word in words:
        if word in _OTHERWISE:
            raise InputError(f"FittedBandit takes no {word}. {_OTHERWISE[word]}")
        if what != "FittedBandit":
            raise InputError(f"FittedBandit.{what} takes no {word!r}.")

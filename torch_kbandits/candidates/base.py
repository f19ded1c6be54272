"""What every kind of candidates offers, and what every belief about them is asked."""

from abc import ABC, abstractmethod
from copy import copy, deepcopy
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule
from torch_kbandits.dictionaries import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.errors import EmptyHistoryError, InputError, NumericalError
from torch_kbandits.memory import Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.observations.ledger import History


class Located(NamedTuple):
    """Where points told stand among the unique played ones.

    Attributes:
        positions: of each point, as they will be once the points are added.
        fresh: rows of the points that are played for the first time, each point once.
    """

    positions: list[int]
    fresh: list[int]


class Lookahead(ABC):
    """The posterior with points pending, from which the next is chosen. Telling makes it out of date.

    Args:
        pending: (k, d).
    """

    def __init__(self, pending: Tensor) -> None:
        self._pending = [pending]

    @property
    def pending(self) -> Tensor:
        """The points pending, (k, d), in the order added."""
        self._pending = [torch.cat(self._pending)]
        return self._pending[0]

    @property
    def stages(self) -> Tensor | None:
        """The stage that chose each of the pending points, (k,), 0 for none; None where there are no stages."""
        return None

    @abstractmethod
    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the point (1, d) that a rule chooses.

        Args:
            rule: how to choose.
            beta: the multiplier of σ, 0-dim.
            seed: all randomness of the choice.
            domain: what may be played in this round; None where that is the same in every round.
        """

    def add(self, point: Tensor, times: int = 1) -> None:
        """Make a point (1, d) pending, as often as is said."""
        self._pending = [*self._pending, point.expand(times, -1)]  # copies of this object share the old list

    @abstractmethod
    def pending_scores(self) -> Tensor:
        """Return the ridge leverage scores of the pending points without anything pending, (k,)."""

    @abstractmethod
    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the candidates of the variance without and with pending points, 0-dim."""


class Belief(ABC):
    """The posterior of a bandit in the form that suits its candidates, and the search for the best of them.

    A belief is also the ``Evidence`` that confidence widths read. It checks nothing that ``Bandit`` has checked.

    Args:
        example: a point (1, d) whose dtype and device all tensors have.
        kernel: the prior covariance; a copy is kept.
        regularization: λ.
        exact: whether the posterior is the exact one; else it is the Nyström–DTC one at a selected dictionary.
    """

    #: The share of the candidates that was looked at for the last choice.
    visited_share: float = 1.0

    #: The order in which ties between arms are broken, (A,); None where a lot of the round decides.
    tie_rank: Tensor | None = None

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float, *, exact: bool) -> None:
        self.exact = exact
        self.kernel = deepcopy(kernel).to(example).requires_grad_(False).eval()
        self.regularization = example.new_tensor(regularization)

    def model(self, X: Tensor, Y: Tensor, inducing_points: Tensor, noise: Tensor | None = None) -> NystromGP | OnlineGP:
        """Return the BoTorch model of rewards Y (n,) at X (n, d), with this prior and noise.

        Without an exact posterior it has the dictionary (m, d). With ``noise`` (n,) the observations have these noise
        variances and λ is that of the next ones.
        """
        prior: dict[str, Any] = {
            "covar_module": deepcopy(self.kernel),
            "regularization": float(self.regularization),
        }
        if noise is not None:  # the constructor rounds small ones up, with a warning, so they are set afterwards
            prior["train_Yvar"] = noise.clamp_min(min_fixed_noise.value(noise.dtype) or 0.0).unsqueeze(-1)
        if self.exact:
            model = OnlineGP(X, Y.unsqueeze(-1), **prior)
        else:
            model = NystromGP(X, Y.unsqueeze(-1), inducing_points=inducing_points, **prior)
        if noise is not None:
            likelihood: Any = model.likelihood
            likelihood.noise_covar.noise = noise
        return model

    @property
    @abstractmethod
    def num_observations(self) -> int:
        """Number t of observations."""

    @property
    @abstractmethod
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d)."""

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return None

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Σ_s τ̃(x_s), 0-dim."""

    @abstractmethod
    def information_gain(self) -> Tensor:
        """½ log det V, 0-dim, in nats."""

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """The largest k(x, x) known of, 0-dim."""

    @abstractmethod
    def mean_norm(self) -> Tensor:
        """The RKHS norm of the posterior mean, 0-dim, in reward units."""

    @abstractmethod
    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""

    def recommend_in(self, domain: Domain | None) -> Tensor:
        """Return the point (1, d) of the largest posterior mean: of a round's domain, or of those played without one.

        Raises:
            EmptyHistoryError: if there is no observation.
        """
        if self.num_observations == 0:
            raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")
        if domain is None:
            return self.recommend()
        ahead, nothing = self.lookahead(self.inducing_points[:0]), torch.zeros_like(self.regularization)
        return ahead.choose(UpperConfidenceRule(), nothing, 0, domain)

    @abstractmethod
    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances of the function at points X (q, d), each (q,)."""

    @abstractmethod
    def learn(self, X: Tensor, Y: Tensor, rule: DictionaryRule | None, generator: torch.Generator | None) -> None:
        """Condition on rewards Y (q,) at X (q, d), with the dictionary that a rule chooses; everything or nothing.

        Args:
            X: (q, d).
            Y: (q,).
            rule: None for the exact posterior.
            generator: all randomness of the rule.
        """

    @abstractmethod
    def restore(self, X: Tensor, Y: Tensor, dictionary: Selection) -> None:
        """Condition the empty belief on a whole history at a known dictionary; everything or nothing.

        Args:
            X: (n, d).
            Y: (n,).
            dictionary: points, and weights if its rule has any; no indices.
        """

    @abstractmethod
    def lookahead(self, pending: Tensor) -> Lookahead:
        """Return the posterior with points (k, d) pending."""

    # What a bandit calls: it also hands over which stage chose each point and when, which few beliefs have to know.

    def learn_history(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> None:
        """Do as ``learn`` with rewards of which stages and times are known, where the bandit has any."""
        self.learn(told.X, told.Y, rule, generator)

    def restore_history(self, told: History, dictionary: Selection) -> None:
        """Do as ``restore`` with a history of which stages and times are known, where the bandit has any."""
        self.restore(told.X, told.Y, dictionary)

    def lookahead_in_stages(self, pending: Tensor, stages: Tensor | None) -> Lookahead:
        """Do as ``lookahead`` with points that stages (k,) chose; None where there are no stages."""
        return self.lookahead(pending)

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one: itself if it has no memory."""
        return self

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.model(told.X, told.Y, self.inducing_points)


class SelectingBelief(Belief):
    """A belief whose dictionary is chosen anew from all played points whenever something is learned."""

    def learn(self, X: Tensor, Y: Tensor, rule: DictionaryRule | None, generator: torch.Generator | None) -> None:
        """Condition on rewards Y (q,) at X (q, d), with the dictionary that a rule chooses; everything or nothing."""
        self.update(X, Y, None if rule is None else rule.select(self.preview(X), generator))

    @abstractmethod
    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X (q, d), scored by the posterior before X is told."""

    @abstractmethod
    def update(self, X: Tensor, Y: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the dictionary selected from ``preview(X)``.

        Without a selection the posterior is the exact one, or must become it: all played points are in the dictionary.
        Either everything is done or, if an error is raised, nothing.
        """


class Candidates(ABC):
    """What may be played. A value: the belief over it is another object.

    Points are what the kernel sees. Where a round brings a context they are (context, action), and what is asked for
    and told is the action.
    """

    #: Whether a round brings a context, or actions of its own.
    is_contextual: bool = False

    #: Whether points know when they are played, so that the kernel sees it.
    is_timed: bool = False

    @property
    @abstractmethod
    def example(self) -> Tensor:
        """One point (1, d) that has the dtype, device and dimension of all."""

    @abstractmethod
    def belief(
        self,
        kernel: Kernel,
        regularization: float,
        seed: int,
        *,
        exact: bool,
        online: bool = False,
        memory: Memory | None = None,
    ) -> Belief:
        """Return the belief before any observation.

        Args:
            kernel: the prior covariance.
            regularization: λ.
            seed: addresses what is drawn once.
            exact: whether the posterior is the exact one.
            online: whether the dictionary rule decides about each point once, when it is told.
            memory: which observations count at a time; None where all do for ever.
        """

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """Where BoTorch acquisition functions are maximised."""

    def in_round(self, context: Any, candidates: Any) -> Domain:
        """Return what may be played in a round.

        Args:
            context: what is known before the choice; None where there is no context.
            candidates: the actions of this round; None where they are always the same.

        Raises:
            InputError: if something is missing or does not fit.
        """
        if context is not None or candidates is not None:
            raise _no_context(self)
        return self.domain

    def points(self, x: Any, context: Any) -> Tensor:
        """Return the points (q, d) that were played, from what was asked for and the context.

        Raises:
            InputError: if something is missing or does not fit.
        """
        if context is not None:
            raise _no_context(self)
        X = checks.points("x", x, dimension=self.example.shape[-1], like=self.example)
        if X.dim() != 2 or len(X) == 0:
            raise InputError(f"x must be (q, d) with q >= 1, got {checks.describe(x)}.")
        return X

    def with_time(self, context: Any, now: float) -> Any:
        """Return the context together with the time, where points know when they are played."""
        return context

    def actions(self, X: Tensor) -> Tensor:
        """Return what is asked for, given the points (q, d) that the kernel sees."""
        return X

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return what tells these candidates from others, for saved states."""


def _no_context(candidates: Candidates) -> InputError:
    return InputError(
        f"{type(candidates).__name__} have neither contexts nor actions that differ by round: give the bandit "
        "candidates=ContextualActions(...), or leave out context and candidates."
    )


class Plays(NamedTuple):
    """Rewards of some of the unique played points.

    Attributes:
        places: of the points, (k,).
        counts: how many there are of each, (k,), in double precision like the next.
        sums: of the rewards of each, (k,).
    """

    places: Tensor
    counts: Tensor
    sums: Tensor


class PlayedLog:
    """The unique played points with how often each was played and the sum of its rewards, in order of first play.

    Counts and sums are in double precision, so that a million plays add up.
    """

    def __init__(self, example: Tensor) -> None:
        self.points = example[:0]
        self.counts = example.new_zeros(0, dtype=torch.float64)
        self.sums = example.new_zeros(0, dtype=torch.float64)
        self._positions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.points)

    def locate(self, X: Tensor) -> Located:
        """Return where the rows of X (q, d) stand.

        New points get the positions that they will have once they are added. Points are equal when all their
        numbers are (so 0 and -0 are one point).
        """
        new: dict[bytes, int] = {}
        positions, fresh = [], []
        for row, key in enumerate(row_keys(X)):
            position = self._positions.get(key, new.get(key))
            if position is None:
                position = new[key] = len(self) + len(new)
                fresh.append(row)
            positions.append(position)
        return Located(positions, fresh)

    def points_with(self, X: Tensor, located: Located) -> tuple[Tensor, Tensor]:
        """Return the unique points and their counts as they will be once X (q, d) is added."""
        return self._points_with(X, located), self._added(self.counts, torch.ones_like(X[:, 0]), located)

    def sums_with(self, Y: Tensor, located: Located) -> Tensor:
        """Return the sums of rewards as they will be once rewards Y (q,) are added."""
        return self._added(self.sums, Y, located)

    def new_counts(self, X: Tensor, located: Located) -> Tensor:
        """Return how many rows of X (q, d) are each of the unique points as they will be once X is added, (u,)."""
        return self._added(torch.zeros_like(self.counts), X.new_ones(len(X)), located)

    def weights_of(self, selection: Selection | None) -> Tensor | None:
        """Return what a rule wants handed back, (u,), 0 where a point was not selected; None if nothing.

        The selection is of points that are in the log.
        """
        if selection is None or selection.weights is None:
            return None
        indices = selection.indices
        if indices is None:
            indices = torch.tensor(self.locate(selection.points).positions, device=self.points.device)
        weights = selection.weights
        return weights.new_zeros(len(self)).index_copy(0, indices, weights)

    def with_rewards(self, X: Tensor, Y: Tensor, located: Located, weights: Tensor | None = None) -> Self:
        """Return the log with rewards Y (q,) at X (q, d) added; this one stays as it is. Cost: O(u).

        With weights (q,) each counts so many times.
        """
        other = copy(self)
        other.counts = self._added(self.counts, torch.ones_like(Y) if weights is None else weights, located)
        other.sums = self.sums_with(Y if weights is None else Y * weights, located)
        other.points = self._points_with(X, located)
        if located.fresh:
            other._positions = self._positions | dict(zip(row_keys(X), located.positions, strict=True))
        return other

    def recounted(self, places: Tensor, counts: Tensor, sums: Tensor) -> Self:
        """Return the log of the points at these places alone, in this order, with other rewards. Cost: O(u)."""
        other = copy(self)
        other.points, other.counts, other.sums = self.points[places], counts, sums
        keys = list(self._positions)  # in the order in which they came, which is that of the positions
        other._positions = {keys[old]: new for new, old in enumerate(places.tolist())}
        return other

    def _points_with(self, X: Tensor, located: Located) -> Tensor:
        return torch.cat([self.points, X[located.fresh]]) if located.fresh else self.points

    def _added(self, old: Tensor, new: Tensor, located: Located) -> Tensor:
        positions = torch.tensor(located.positions, dtype=torch.long, device=new.device)
        new = new.to(old)
        grown = torch.cat([old, old.new_zeros(len(located.fresh))]) if located.fresh else old
        return grown.index_add(0, positions, new)


def padded(values: Tensor | None, size: int) -> Tensor | None:
    """Return values (k,) with zeros appended, (size,); None as it is."""
    return values if values is None else torch.nn.functional.pad(values, (0, size - len(values)))


def require_finite(*values: Tensor) -> None:
    """Refuse a posterior that has values which are not finite."""
    if not all(bool(torch.isfinite(value).all()) for value in values):
        raise NumericalError("The posterior is not finite: rewards or hyperparameters are too large for the dtype.")

"""The posterior of other numbers told of the same plays, by the features and variances of another belief."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, cast

import torch
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.base import Belief, BeliefOf, Lookahead, Offered
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.table import ArmLookahead
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.places import beside
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.counted import Counted
from torch_kbandits.observations.ledger import History

#: The beliefs whose features others may use.
Host = FeatureTable | CountedBelief


class ToldOtherwise(BeliefOf):
    """The posterior of numbers of which one was told for each that another belief, the host, was told, at its points.

    Both have one kernel, λ, memory and dictionary rule. Neither variances nor a dictionary depend on what was measured,
    so those of the host are meant, and the mean alone is computed: with features z(x) and V of the host

        μ(x) = m(x) + wᵀz(x),    w = V⁻¹ Σ_s z(x_s) (y_s − m(x_s)) / λ_s.

    A value, which belongs to one state of the host: see ``beside``.

    Args:
        host: what has plays, dictionary, features and variances; of it nothing was told otherwise yet.
        mean: the prior mean of these numbers; None for zero.

    Cost of a round: O(1), and where the mean is asked for O(u m + m²) for u played points and m features, no kernel
    value, and O(A m) at A arms. Memory: a number for each point played, or for each play under a memory that forgets,
    and O(A) for a prior mean and where means of all arms are asked for.
    """

    def __init__(self, host: Host, mean: Mean | None) -> None:
        table = table_of(host)
        super().__init__(table.no_points, host.kernel, float(host.regularization), exact=host.exact, mean=mean)
        self._host, self._expected = host, table.means_under(mean)
        nothing = table.no_points.new_zeros(0, dtype=torch.float64)
        self._sums = nothing  # of what was told less its prior mean, by point, where nothing is forgotten
        # What was told, and the same less its prior mean, where something is forgotten.
        self._each = Rows(table.no_points.new_zeros(0)), Rows(nothing)
        self._known: _Learned | None = None

    # ---------------------------------------------------------------- what is told

    def beside(self, host: Host, told: History | None = None) -> Self:
        """Return the belief beside another state of the host; this one stays as it is.

        Args:
            host: as it is at another time, or once it learned as many rewards.
            told: what it learned, with the numbers that are told here in the place of its rewards; None for nothing.
        """
        if host is self._host and told is None:
            return self
        other = shallow_copy(self)
        other._host, other._known = host, None
        if told is not None:
            other._take(told)
        return other

    def _take(self, told: History) -> None:
        rest = told.Y.double()
        if self.prior_mean is not None:
            with torch.no_grad():
                rest = rest - prior_mean(self.prior_mean, told.X).double()
        if self._counted is not None:
            self._each = self._each[0].followed(told.Y), self._each[1].followed(rest)
        else:
            table = table_of(self._host)
            sums = torch.nn.functional.pad(self._sums, (0, len(table.played) - len(self._sums)))
            self._sums = sums.index_add(0, table.places_of(told.X), rest)

    @property
    def _counted(self) -> Counted | None:
        """What counts; None where that is all for ever."""
        host = self._host
        return host.counted if isinstance(host, CountedBelief) and host.forgets else None

    @property
    def _learned(self) -> "_Learned":
        """What was learned of the mean. Cost: O(n) where something is forgotten."""
        if self._known is None:
            sums, counted = self._sums, self._counted
            if counted is not None:
                numbers, weights, places = (beside(e, sums) for e in (counted.numbers, counted.weights, counted.places))
                values = self._each[1].tensor[numbers] * weights
                sums = sums.new_zeros(len(self._host.played)).index_add(0, places, values)
            self._known = _Learned(table_of(self._host), sums)
        return self._known

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more numbers, beside a host that was told them as well."""
        return self.beside(self._host.learned(told, rule, generator), told)

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned on a whole history, beside a host that was told it as well."""
        return self.beside(self._host.restored(told, dictionary), told)

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one."""
        return self.beside(self._host.at(now))

    # ---------------------------------------------------------------- what is known

    @property
    def posterior(self) -> Belief:
        """The host, which has all but the mean."""
        return self._host

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return self._host.num_observations

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d)."""
        return self._host.inducing_points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._host.dictionary_weights

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        learned = self._learned.at_arms
        return learned if self._expected is None else learned + self._expected

    def mean_at(self, X: Tensor) -> Tensor:
        """Return posterior means at points X (k, d), (k,)."""
        with torch.no_grad():
            mean = beside(self._learned.weights @ self._learned.table.coordinates(X), X)
            if self.prior_mean is not None:
                mean = mean + prior_mean(self.prior_mean, X).double()
            return mean.to(X)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in the units of the numbers."""
        return self._learned.weights.norm().to(self.regularization)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        return self.mean_at(X), self._host.moments(X)[1]

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        return self.played[self.mean_at(self.played).argmax(), None].clone()

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "OtherLookahead":
        """Return the posterior with points (k, d) pending."""
        return OtherLookahead(self, self._host.lookahead(pending, stages))

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        counted = self._counted
        if counted is None:
            return self.model(told.X, told.Y, self.inducing_points)
        noise = cast(CountedBelief, self._host).noise
        numbers = beside(counted.numbers, counted.X)
        return self.model(counted.X, self._each[0].tensor[numbers], self.inducing_points, noise)


def table_of(host: Host) -> FeatureTable:
    """Return the features of a belief."""
    return cast(FeatureTable, host.posterior) if isinstance(host, CountedBelief) else host


@dataclass(frozen=True, eq=False)
class _Learned:
    """What was learned of a mean, computed once it is asked for.

    Attributes:
        table: the features.
        sums: of what was told less its prior mean, each as often as it counts, by point, (u,).
    """

    table: FeatureTable
    sums: Tensor

    @cached_property
    def weights(self) -> Tensor:
        """The weights w of the features, (m,)."""
        return self.table.weights_of(self.sums / self.table.regularization.double())

    @cached_property
    def at_arms(self) -> Tensor:
        """Posterior less prior means of the arms, (A,)."""
        return self.table.at_arms(self.weights)


class OtherLookahead(Lookahead):
    """The posterior of what was told otherwise with points pending: the means stay, variances are those of the host."""

    def __init__(self, belief: ToldOtherwise, ahead: Lookahead) -> None:
        super().__init__(ahead.pending)
        self._belief, self._ahead = belief, ahead

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Raise: points are chosen by rewards."""
        raise NotImplementedError("An outcome says what may be played; what is played, rewards do.")

    def offered(self, domain: Domain | None) -> "_Offer":
        """Return the posterior at what may be played in a round, if that is finite."""
        return _Offer(self._belief, self._ahead, self._ahead.offered(domain), domain)

    def _add(self, point: Tensor, times: int) -> None:
        self._ahead.add(point, times)

    def pending_scores(self) -> Tensor:
        """Return the ridge leverage scores of the pending points without anything pending, (k,)."""
        return self._ahead.pending_scores()

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the candidates of the variance without and with pending points, 0-dim."""
        return self._ahead.variance_ratio()


@dataclass(frozen=True, eq=False)
class _Offer:
    """The posterior at the candidates of a round, of which there are finitely many.

    Attributes:
        belief: that has the means.
        ahead: of its host.
        offer: what the host says of the candidates.
        domain: of the round; None where there are always the same arms.
    """

    belief: ToldOtherwise
    ahead: Lookahead
    offer: Offered
    domain: Domain | None

    @property
    def mean(self) -> Tensor:
        """Posterior means, (A,)."""
        if isinstance(self.ahead, ArmLookahead) or self.domain is None:
            return self.belief.mean
        return torch.cat([self.belief.mean_at(block) for block in self.domain.parts()])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with pending points hallucinated, (A,)."""
        return self.offer.variance

    def chosen(self, row: int) -> Tensor:
        """Return the candidate of a row, (1, d), which is chosen."""
        return self.offer.chosen(row)

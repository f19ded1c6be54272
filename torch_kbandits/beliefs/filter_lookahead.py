"""What is chosen next among few arms under a filter, with points pending."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.base import Lookahead, best_of, required
from torch_kbandits.numerics.linalg import covariance_root
from torch_kbandits.numerics.rows import distinct

if TYPE_CHECKING:
    from torch_kbandits.beliefs.filtered import FilteredArms


class FilterLookahead(Lookahead):
    """The posterior over the arms with some pending: their variance shrinks, the means stay."""

    def __init__(self, belief: "FilteredArms", pending: Tensor) -> None:
        super().__init__(pending)
        self.belief, self.tie_rank = belief, belief.ranks
        self._ahead = belief, 0  # with so many of the pending points

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, 1 + d) of the highest score."""
        domain = required(domain)
        if rule.needs_incumbent:
            rule = rule.scaled_to(self.belief)
        offer, ranks = _Offer(self, domain, domain.allowed), self.belief.ranks
        with torch.no_grad():
            scores = rule.on_arms(offer, beta, seed)
            ranks = ranks if domain.allowed is None else ranks[domain.allowed]
            row, self.best_score = best_of(scores, beta, self.belief.kernel_bound(), seed, ranks)
        return offer.chosen(row)

    def offered(self, domain: Domain | None) -> "_Offer":
        """Return the posterior at the arms in a round."""
        return _Offer(self, required(domain))

    def _add(self, point: Tensor, times: int) -> None:
        """Do nothing: points are taken in when a variance is asked for."""

    def taken_in(self) -> "FilteredArms":
        """Return the belief with the pending points hallucinated."""
        belief, number = self._ahead
        if number < self.num_pending:
            self._ahead = belief.hallucinated(self.pending[number:]), self.num_pending
        return self._ahead[0]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self.belief.moments(self.pending)[1] / self.belief.regularization

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the pending points, 0-dim: at what time others are played is not known."""
        before, after = (each.moments(self.pending)[1] for each in (self.belief, self.taken_in()))
        least = torch.finfo(torch.float64).eps * self.belief.kernel_bound()
        return ((before + least) / (after + least)).max()


class _Offer:
    """The posterior at the arms in a round, as ``ArmPosterior``.

    Args:
        ahead: with points pending.
        domain: of the round.
        rows: which arms, (k,); None for all.
    """

    def __init__(self, ahead: FilterLookahead, domain: Domain, rows: Tensor | None = None) -> None:
        self._ahead, self._domain, self._rows = ahead, domain, rows
        self._arms, self._time = cast(Tensor, domain.arms), float(cast(Tensor, domain.context)[0])

    def _some(self, values: Tensor) -> Tensor:
        return values if self._rows is None else values[self._rows]

    def chosen(self, row: int | Tensor) -> Tensor:
        """Return the arm of a row, (1, 1 + d)."""
        row = int(row if self._rows is None else self._rows[row])
        return self._arms[row : row + 1].clone()

    @property
    def mean(self) -> Tensor:
        """Posterior means, (k,)."""
        return self._some(self._ahead.belief.at_arms(self._arms, self._time)[0])

    @property
    def variance(self) -> Tensor:
        """Posterior variances with the pending points hallucinated, (k,)."""
        return self._some(self._ahead.taken_in().at_arms(self._arms, self._time)[1])

    @property
    def incumbent(self) -> Tensor:
        """What is to be improved on, 0-dim: the largest mean of these arms, unless the round says a point."""
        best = self._domain.incumbent
        return self.mean.max() if best is None else self._ahead.belief.moments(best)[0].squeeze(0)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior, (k,); equal arms get equal values."""
        points, places = distinct(self._some(self._arms))
        order = torch.arange(len(places), device=places.device)
        first = order.new_full((len(points),), len(places)).scatter_reduce(0, places, order, "amin")
        first = first if self._rows is None else self._rows[first]
        root = covariance_root(self._ahead.belief.covariance_at(self._time)[first][:, first])
        generator = torch.Generator().manual_seed(seed)
        normals = torch.randn(len(points), generator=generator, dtype=torch.float64, device="cpu")
        return (root @ normals.to(root))[places]

"""Which candidates the limits on outcomes allow, as the posteriors of the outcomes have it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_kbandits.acquisition import CombinedFunction, Domain
from torch_kbandits.beliefs.base import Belief
from torch_kbandits.beliefs.feasibility import FeasibilityModel
from torch_kbandits.outcomes import KnownSafe, Limit


@dataclass(frozen=True, eq=False)
class ConstrainedOutcome:
    """A limit, and the posterior of its outcome.

    Attributes:
        limit: what the outcome must keep.
        belief: its posterior, without points pending.
        beta: the multiplier of its deviation, 0-dim.
        known: what is safe whatever is believed.
        is_trusted: whether the prior is given or was fitted; else what is believed says nothing yet.
        dropped: how many columns of points, the first, its posterior does not know.
    """

    limit: Limit
    belief: Belief
    beta: Tensor
    known: KnownSafe
    is_trusted: bool
    dropped: int = 0

    def own_points(self, X: Tensor) -> Tensor:
        """Return points (n, d) as the posterior has them."""
        return X[:, self.dropped :].to(self.belief.regularization.dtype)

    def own_domain(self, domain: Domain) -> Domain:
        """Return a round's domain of arms as the posterior has it."""
        return domain.without_first(self.dropped, self.belief.regularization.dtype)

    def at(self, X: Tensor, *, surely: bool) -> Tensor:
        """Say of points (n, d) whether they are within the limit by the worse bound, or by the better, (n,)."""
        if not self.is_trusted:
            return self.known.contains(X) if surely else torch.ones(len(X), dtype=torch.bool, device=X.device)
        mean, variance = self.belief.moments(self.own_points(X))
        within = self.limit.excess(mean, variance, self.beta, surely=surely) <= 0.0
        return within | self.known.contains(X) if surely else within

    def excess(self, X: Tensor) -> Tensor:
        """Return by how much points (n, d) are beyond the limit by the better bound, in prior deviations, (n,)."""
        mean, variance = self.belief.moments(self.own_points(X))
        return self.limit.excess(mean, variance, self.beta, surely=False) / self.scale

    @property
    def scale(self) -> Tensor:
        """The prior deviation of the outcome, 0-dim."""
        bound = self.belief.kernel_bound()
        return bound.clamp_min(torch.finfo(bound.dtype).tiny).sqrt()

    def missing(self, domain: Domain) -> Tensor:
        """Return by how much the arms of a round are beyond the limit by the worse bound, in prior deviations, (A,)."""
        return self._excess_on(domain, surely=True) / self.scale

    def on(self, domain: Domain, *, surely: bool) -> Tensor:
        """Say the same of the arms of a round, (A,), of which an offer has mean and variance."""
        if not self.is_trusted:
            return torch.cat([self.at(block, surely=surely) for block in domain.parts()])
        within = self._excess_on(domain, surely=surely) <= 0.0
        if not surely:
            return within
        return within | torch.cat([self.known.contains(block) for block in domain.parts()])

    def _excess_on(self, domain: Domain, *, surely: bool) -> Tensor:
        offer = self.belief.fantasized(self.belief.inducing_points[:0]).offered(self.own_domain(domain))
        return self.limit.excess(offer.mean, offer.variance, self.beta, surely=surely)


@dataclass(frozen=True, eq=False)
class ConstraintSet:
    """All limits at once.

    Attributes:
        outcomes: at least one, unless there is a model of failures.
        likely: points (n, d) that were played, near which a search looks for what is allowed.
        feasibility: what keeps away from points that fail; None while none did.
    """

    outcomes: Sequence[ConstrainedOutcome]
    likely: Tensor
    feasibility: FeasibilityModel | None = None

    @property
    def limits(self) -> "ConstraintSet | None":
        """The limits without the model of failures; None if there is none."""
        return replace(self, feasibility=None) if self.outcomes else None

    @property
    def is_safe(self) -> bool:
        """Whether a limit allows only what is surely within it."""
        return any(each.limit.is_safe for each in self.outcomes)

    def allows(self, X: Tensor, *, hopefully: bool = False) -> Tensor:
        """Say of points (n, d) whether they may be played, (n,).

        Args:
            X: (n, d).
            hopefully: whether limits that are to be kept surely count as kept where they may be.
        """
        with torch.no_grad():
            known = X.cpu()
            kept = [each.at(known, surely=each.limit.is_safe and not hopefully) for each in self.outcomes]
            kept += [] if self.feasibility is None else [self.feasibility.keeps(known)]
        return torch.stack(kept).all(0).to(X.device)

    def rows(self, domain: Domain, *, hopefully: bool = False) -> Tensor:
        """Say the same of the arms of a round, (A,)."""
        with torch.no_grad():
            kept = [each.on(domain, surely=each.limit.is_safe and not hopefully) for each in self.outcomes]
            kept += [] if self.feasibility is None else [self.feasibility.rows(domain)]
        return torch.stack(kept).all(0)

    def excess(self, X: Tensor) -> Tensor:
        """Return by how much points (n, d) are beyond the limits by the better bounds, the largest of each, (n,)."""
        found = [each.excess(X) for each in self.outcomes]
        found += [] if self.feasibility is None else [self.feasibility.excess(X)]
        return torch.stack(found).amax(0)


class ConstrainedAcquisition(CombinedFunction):
    """An acquisition function of single points that is minus infinity where the limits do not allow a point.

    Args:
        function: of (b, 1, d).
        constraints: the limits.
    """

    def __init__(self, function: AcquisitionFunction, constraints: ConstraintSet) -> None:
        super().__init__([function])
        self._constraints = constraints

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the values at points X (b, 1, d), (b,)."""
        allowed = self._constraints.allows(X.detach().reshape(-1, X.shape[-1])).reshape(X.shape[:-2])
        return self.functions[0](X).masked_fill(~allowed, -torch.inf)

"""Several objectives, each with a posterior of its own, and the points at which they are best when weighed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_kbandits.acquisition import CombinedFunction, Domain
from torch_kbandits.beliefs.base import Belief
from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.outcomes import Scalarization

#: By so much of the range of the front the reference lies below its worst.
_MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class ObjectivePosterior:
    """An objective and its posterior. Its values are in prior deviations, and much of them is sought.

    Attributes:
        name: of the objective.
        maximize: whether much of it is sought in its own units.
        belief: the posterior, without points pending.
        beta: the multiplier of its deviation, 0-dim.
        pending: points (k, d) of which it is not told yet.
        place: 0 for the reward; else the number of its outcome, counted from 1.
        dropped: how many columns of points, the first, its posterior does not know.
    """

    name: str
    maximize: bool
    belief: Belief
    beta: Tensor
    pending: Tensor
    place: int = 0
    dropped: int = 0

    def own_points(self, X: Tensor) -> Tensor:
        """Return points (..., d) as the posterior has them."""
        return X[..., self.dropped :].to(self.belief.regularization.dtype)

    def own_domain(self, domain: Domain) -> Domain:
        """Return a round's domain of arms as the posterior has it."""
        return domain.without_first(self.dropped, self.belief.regularization.dtype)

    def own_seed(self, seed: int) -> int:
        """Return the seed of its draws in a choice: that of the choice for the reward."""
        return seed_for(seed, self.place, "objective") if self.place else seed

    @property
    def sign(self) -> float:
        """1 where much is sought, −1 where little is."""
        return 1.0 if self.maximize else -1.0

    @cached_property
    def scale(self) -> Tensor:
        """The largest prior deviation at a point played, 0-dim; before any that at what may be played."""
        played = self.belief.played
        with torch.no_grad():
            known = prior_variance(self.belief.kernel, played).max() if len(played) else self.belief.kernel_bound()
            return known.clamp_min(torch.finfo(known.dtype).tiny).sqrt()

    def means(self, X: Tensor) -> Tensor:
        """Return the posterior means at points (n, d), (n,)."""
        return self.sign * self.belief.moments(self.own_points(X))[0] / self.scale


@dataclass(frozen=True, eq=False)
class ObjectiveSet:
    """The objectives of a bandit as they are known at a moment.

    Attributes:
        scalarization: how they are weighed.
        members: those of a weight above 0, (k,).
        reward: the posterior of the reward, whether it is one of them or not.
    """

    scalarization: Scalarization
    members: Sequence[ObjectivePosterior]
    reward: Belief

    @property
    def is_reward_alone(self) -> bool:
        """Whether nothing but the reward is sought."""
        return len(self.members) == 1 and self.members[0].place == 0 and self.members[0].maximize

    @property
    def is_told(self) -> bool:
        """Whether anything is known of the reward or of an objective."""
        return any(belief.num_observations for belief in (self.reward, *(member.belief for member in self.members)))

    def means(self, X: Tensor) -> Tensor:
        """Return the posterior means of the objectives at points (n, d), (k, n)."""
        return torch.stack([member.means(X).to(X) for member in self.members])

    @cached_property
    def reference(self) -> Tensor:
        """What is not worth having of each objective, (k,): see ``Scalarization``. 0 before any play.

        Cost: the posterior means at all points played.
        """
        played = self.reward.played
        if not len(played):
            return played.new_zeros(len(self.members))
        means = self.means(played)
        front = means[:, is_non_dominated(means.mT)]
        return front.amin(-1) - _MARGIN * (front.amax(-1) - front.amin(-1))

    def value(self, values: Tensor, weights: Tensor) -> Tensor:
        """Return scalarised values (k, ...) of the objectives, (...,)."""
        return self.scalarization.value(values, weights, self.reference)

    def best_played(
        self, weights: Tensor, domain: Domain, keeps: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor | None:
        """Return the point (1, d) of the largest scalarised mean of those played, put into the round's context.

        Args:
            weights: (k,).
            domain: of the round.
            keeps: says of points (n, d) whether they are considered, (n,); None where all are.

        Returns:
            None if there is none.
        """
        played = self.reward.played
        known = distinct(domain.in_context(played))[0] if domain.context is not None else played
        known = known if keeps is None or not len(known) else known[keeps(known)]
        if not len(known):
            return None
        return known[self.value(self.means(known), weights).argmax(), None].clone()


class ScalarizedAcquisition(CombinedFunction):
    """The scalarised values of acquisition functions of single points, one for each objective.

    Args:
        functions: of (b, 1, d), each without the columns that it does not know; much of each is sought.
        objectives: the objectives.
        weights: (k,).
    """

    def __init__(self, functions: Sequence[AcquisitionFunction], objectives: ObjectiveSet, weights: Tensor) -> None:
        super().__init__(functions, [member.own_points for member in objectives.members])
        self._objectives, self._weights = objectives, weights

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the values at points X (b, 1, d), (b,)."""
        parts = zip(self.functions, self.own_points(X), self._objectives.members, strict=True)
        values = [function(own) / member.scale.to(own) for function, own, member in parts]
        return self._objectives.value(torch.stack(values), self._weights)

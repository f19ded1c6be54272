"""One posterior for each stage of a choice, and one of everything told."""

from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, StagedRule, hallucinate
from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.joint_belief import JointBelief
from torch_kbandits.beliefs.joint_lookahead import best_of, required
from torch_kbandits.dictionaries import DictionaryRule, Selection
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import PlayedLog


class StagedBelief(Belief):
    """An exact posterior for each stage, conditioned on the rounds in which that stage chose, and one of all rounds.

    Actions are chosen by the stages. The posterior of all rounds serves ``recommend``, and widths that read the
    evidence: its gain and its effective dimension are at least those of every stage. It is brought up to date when it
    is asked for.

    Args:
        example: a point (1, d) whose dtype and device all tensors have.
        kernel: the prior covariance; a copy is kept.
        regularization: λ.
        num_stages: S.

    Cost of a reward: O(u²) for the u distinct points of its stage, and a copy of its factor.
    """

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float, num_stages: int) -> None:
        super().__init__(example, kernel, regularization, exact=True)
        empty = example[:0]
        self._stages = tuple(cast(OnlineGP, self.model(empty, empty.new_zeros(0), empty)) for _ in range(num_stages))
        self._log = PlayedLog(example)
        self._X, self._Y = empty, empty.new_zeros(0)
        self._everything = JointBelief(example, kernel, regularization, exact=True)
        self._kernel_bound = self._everything.kernel_bound()

    @property
    def num_observations(self) -> int:
        """Number t of observations, in all stages and in none."""
        return len(self._X)

    @property
    def inducing_points(self) -> Tensor:
        """All played points, (u, d)."""
        return self._log.points

    @property
    def everything(self) -> JointBelief:
        """The posterior of all that was told. Cost: O(u²) for each reward since it was last asked for."""
        known = self._everything.num_observations
        if known < len(self._X):
            since = History(self._X[known:], self._Y[known:], torch.zeros_like(self._Y[known:]).long())
            self._everything = self._everything.learned(since, None, None)
        return self._everything

    @property
    def dictionary_weights(self) -> None:
        """Nothing: there is no dictionary rule."""

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) of all rounds, 0-dim."""
        return self.everything.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V of all rounds, 0-dim, in nats."""
        return self.everything.information_gain()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of a played point, 0-dim; for stationary kernels that of all points."""
        return self._kernel_bound

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean of all rounds, 0-dim."""
        return self.everything.mean_norm()

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        return self.everything.recommend()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d) given all rounds, each (q,)."""
        return self.everything.moments(X)

    def stage_model(self, stage: int) -> OnlineGP:
        """Return the model of a stage, counted from 1."""
        return self._stages[stage - 1]

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief with more rewards, each in the stage that chose its point, if any."""
        X, Y, stages, other = told.X, told.Y, told.stages, copy(self)
        models = list(self._stages)
        for stage in [] if stages is None else stages[stages > 0].unique().tolist():
            rows = stages == stage
            models[stage - 1] = copy(models[stage - 1])  # what it knows is replaced and never written into
            models[stage - 1].tell(X[rows], Y[rows].unsqueeze(-1))
        with torch.no_grad():
            other._kernel_bound = torch.maximum(self._kernel_bound, prior_variance(self.kernel, X).max())
        other._log = self._log.with_rewards(X, Y, self._log.locate(X))
        other._X, other._Y, other._stages = torch.cat([self._X, X]), torch.cat([self._Y, Y]), tuple(models)
        return other

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief with a whole history."""
        return self.learned(told, None, None)

    def at(self, now: float) -> Self:
        """Return this belief: what it learned counts at any time."""
        return self

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.model(told.X, told.Y, self.inducing_points)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "StagedLookahead":
        """Return the posterior with points (k, d) pending that stages (k,) chose; no stage chose any without them."""
        none = torch.zeros(len(pending), dtype=torch.long, device=pending.device)
        return StagedLookahead(self, pending, none if stages is None else stages)


class StagedLookahead(Lookahead):
    """The stages with points pending; each takes those that it chose as if they had returned their posterior mean."""

    def __init__(self, belief: StagedBelief, pending: Tensor, stages: Tensor) -> None:
        super().__init__(pending)
        self._belief = belief
        self.stages: Tensor = stages
        self._chosen_in = 0

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the point (1, d) that the stages choose; equals are broken by lot.

        Another rule than a ``StagedRule`` chooses by the posterior of everything told, without what is pending.
        """
        if not isinstance(rule, StagedRule):
            return self._belief.everything.lookahead(self.pending[:0]).choose(rule, beta, seed, domain)
        arms, stage = cast(Tensor, required(domain).arms), 1
        with torch.no_grad():
            verdict = rule.verdict(stage, *self._bounds(stage, arms, beta))
            while verdict.scores is None:
                arms, stage = arms[verdict.kept], stage + 1
                verdict = rule.verdict(stage, *self._bounds(stage, arms, beta))
            row = best_of(verdict.scores, beta, self._belief.kernel_bound(), seed)
        self._chosen_in = verdict.stage
        return arms[row, None].clone()

    def _add(self, point: Tensor, times: int) -> None:
        """Note the stage of the point, which is the one chosen last."""
        self.stages = torch.cat([self.stages, self.stages.new_full((times,), self._chosen_in)])

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points under the posterior of everything told, (k,)."""
        return self._belief.everything.lookahead(self.pending).pending_scores()

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio under the posterior of everything told, 0-dim."""
        return self._belief.everything.lookahead(self.pending).variance_ratio()

    def _bounds(self, stage: int, arms: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and the widths of arms (A, d) in a stage, each (A,)."""
        model = self._belief.stage_model(stage)
        posterior = model.posterior(arms.unsqueeze(-2))
        own = self.pending[self.stages == stage]
        ahead = cast(OnlineGP, hallucinate(model, own)).posterior(arms.unsqueeze(-2)) if len(own) else posterior
        return cast(Tensor, posterior.mean).flatten(), beta * ahead.variance.flatten().sqrt()

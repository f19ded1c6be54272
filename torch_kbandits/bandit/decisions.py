"""What a bandit would choose, play in what proportion and use in the end, and how much better anything can be."""

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import CombinedFunction, Domain, RandomRule
from torch_kbandits.bandit.choices import constraints_of, fantasized, objectives_of, playable_of, rule_in, with_chosen
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.relearning import recalled, settled
from torch_kbandits.bandit.reports import synchronize
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.stopping import largest_expected_improvement, regret_bound
from torch_kbandits.bandit.suggestions import Slate
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.outcomes import REWARD, CostObjective, Scalarization
from torch_kbandits.selection import (
    BelievedFantasy,
    FantasyPosterior,
    ScalarizedFantasy,
    Surrogate,
    offering,
    recommended,
)


class BanditDecisions:
    """What a bandit would do, without doing it."""

    candidates: Candidates
    width: Width
    _config: BanditConfig
    _state: State
    _ahead_of: Callable[[State], FantasyPosterior]
    _model_of: Callable[[Surrogate], NystromGP | OnlineGP]
    _now: Callable[[Any, Any, Any], tuple[State, Domain]]
    _there: Callable[[Tensor], Tensor]

    def acquisition(self, *, context: Any = None, candidates: Any = None, time: Any = None) -> AcquisitionFunction:
        """Return the acquisition function that ``ask`` maximises, given what is pending, as a BoTorch one on ``model``.

        Of a family it is that of the hypothesis that plays next; where several offer their points the largest of
        theirs. With a context it is a function of the action alone. Draws of Thompson sampling are its own. Arguments
        are as in ``ask``.
        """
        state, domain = self._now(time, context, candidates)
        rule, objective, ledger = rule_in(self._config, state), self._config.objective, state.ledger
        offer, outstanding = playable_of(self._config, state, domain, rule), self._there(ledger.outstanding)
        domain, pending = offer.domain.to(self.candidates.device), outstanding if len(outstanding) else None
        seed, surrogate = seed_for(self._config.seed, state.round, f"ask {len(outstanding)}"), state.surrogate
        if isinstance(believed := fantasized(self._config, state), BelievedFantasy):
            surrogate, pending = believed.surrogate, None
        if objective is not None and not isinstance(rule, RandomRule):
            objectives = objectives_of(self._config, state, objective)
            models = [self._model_of(member.surrogate) for member in objectives.members]
            ahead = state.surrogate.fantasized(ledger.outstanding, ledger.outstanding_stages)
            functions = [ScalarizedFantasy(objectives, ahead).function(rule, models, seed, domain)]
        else:
            functions = [
                (rule.scaled_to(part) if rule.needs_incumbent else rule).function(
                    self._model_of(part), self.width(part), pending, domain, own_seed
                )
                for part, own_seed in offering(surrogate, seed)
            ]
        function = (functions[0] if len(functions) == 1 else CombinedFunction(functions)).to(self.candidates.device)
        function = function if offer.constraints is None else offer.constraints.limited(function)
        return domain.of_action(function, self.candidates.example.shape[-1])

    def propensities(
        self, *, context: Any = None, candidates: Any = None, time: Any = None, exclude: Any = None
    ) -> Tensor:
        """Return with what probability ``ask`` plays each candidate next, (A,), a row for each, in double precision.

        Of a rule that draws nothing the best has 1, equals share it. By Thompson sampling they are counted in draws,
        exact for two actions; see ``ThompsonRule.probabilities``. What limits or failures keep from being played has 0,
        and with ``EpsilonGreedy`` nothing else. They are of the next point alone, given what is pending, and follow
        from the seed like the choice. Arguments are as in ``ask``; nothing changes.

        Raises:
            InputError: if candidates are not listed, as on a box, where every point has probability 0.
        """
        state, domain = self._now(time, context, candidates)
        if self._config.fidelity is not None:
            raise InputError("With a fidelity a point is chosen, then its level, and no probability is noted of both.")
        if not domain.is_listed:
            hint = "give arms or actions, such as a grid of the box"
            raise InputError(f"Propensities are probabilities of candidates that are listed in one process: {hint}.")
        slate = Slate(exclude)
        domain = slate.begun(self.candidates, domain, candidates)
        with_chosen(self._config, state, domain, self._ahead_of(state), 1, slate)
        return self._there(cast(Tensor, slate.probabilities))

    def recommend(self, *, context: Any = None, candidates: Any = None, time: Any = None) -> Any:
        """Return the point (1, d) to use if the run ended now: of those learned the one of the largest posterior mean.

        It is one that may be played; if none of those learned may, the best of the candidates. Of several objectives it
        is that of the scalarised means, with equal weights where they are random. With a context it is the action
        (1, a) of the largest posterior mean in it, played or not; on a box the best of a search. A learned prior that
        was not fitted yet is, for this once. Where nothing counts any more, as just after a restart, it is that of what
        was learned before. With a fidelity it is at the target, see ``Fidelity``. The arguments are as in ``ask``.

        Raises:
            EmptyHistoryError: if nothing was learned yet.
        """
        state, domain = self._now(time, context, candidates)
        state = recalled(self._config, settled(self._config, state))
        constraints = constraints_of(self._config, state, plainly=True)
        objective, keeps = self._config.objective, self.candidates.recommends
        objective = None if isinstance(objective, CostObjective) and objective.seeks_best else objective
        if self._config.levels is not None:
            best = self._config.levels.recommended(state.surrogate, domain, constraints)
        elif objective is None and constraints is None:
            best = state.surrogate.recommend_in(domain, keeps)
        else:
            objective = objective or Scalarization({REWARD: "maximize"}, kind="linear")
            best = recommended(objectives_of(self._config, state, objective), domain, constraints, keeps)
        found = self.candidates.actions(best)
        return found[0] if isinstance(found, list) else found

    def regret_bound(
        self,
        x: Any = None,
        *,
        beta: float | None = None,
        confidence: float | None = None,
        context: Any = None,
        candidates: Any = None,
        time: Any = None,
    ) -> float:
        """Return how much better than a point anything that may be played now is at most, in reward units: its regret.

        It is max_x (μ + β σ)(x) − (μ − β σ)(x̂), with the width β in force: at most so much with probability 1 − δ
        where the width's theorem holds, see ``guarantee``; elsewhere an estimate. Infinite until a prior is known or
        fitted and a reward counts. Of a family it is under the hypothesis that leads; within limits, over what they
        leave. On a box the maximum is what a search finds.

        Args:
            x: the point (1, d), as in ``tell``; None for ``recommend``.
            beta: another multiplier of σ, at least 0.
            confidence: instead the quantile, in (0, 1), of the regret over 256 draws of the posterior: of a finite set.
            context: as in ``ask``.
            candidates: the same.
            time: the same.

        Cost: that of an ``ask``, or of 256 of Thompson sampling.
        """
        self._require_reward_alone()
        asked = {"context": context, "candidates": candidates, "time": time}
        multiplier = None if beta is None else checks.non_negative("beta", beta)
        share = None if confidence is None else checks.open_unit_interval("confidence", confidence)
        if x is None and not self._state.surrogate.num_observations:
            return math.inf
        x = self.recommend(**asked) if x is None else x
        state, domain = self._now(time, context, candidates)
        point = self.candidates.points([x] if isinstance(x, Mapping) else x, context, state.clock.now)
        if len(point) != 1:
            raise InputError(f"x must be one point, got {len(point)}.")
        return regret_bound(self._config, state, domain, point, multiplier, share)

    def largest_expected_improvement(self, *, context: Any = None, candidates: Any = None, time: Any = None) -> float:
        """Return by how much any candidate is expected to be better than ``recommend`` at most, in reward units.

        Infinite until a prior is known or fitted and a reward counts. Arguments and cost are those of ``ask``.
        """
        self._require_reward_alone()
        if self._config.fidelity is not None:
            raise InputError("Improvement is counted from all that was played, at whatever fidelity: use regret_bound.")
        state, domain = self._now(time, context, candidates)
        return largest_expected_improvement(self._config, state, domain)

    def _require_reward_alone(self) -> None:
        """Refuse an objective beside the reward, by whose regret nobody would know when to stop."""
        if self._config.objective is not None:
            name = type(self._config.objective).__name__
            raise InputError(f"Regret and improvement are of the reward alone, and {name} seeks more: stop by rounds.")

    def failure_probability(self, x: Any, *, context: Any = None, time: Any = None) -> Tensor:
        """Return how likely plays are to fail, (q,), in [0, 1]; 0 while none failed, else 0.1 where nothing is known.

        It is a regression of 1 for a play that failed and 0 for another under kernel, memory and dictionary of rewards.
        What has 1/2 or more is not asked for while there is anything else. Arguments are as in ``tell``.
        """
        clock = self._state.clock.moved_to(time, self._state.round)
        X, failures = self.candidates.points(x, context, clock.now), self._state.at(clock).failures
        return self._there(X.new_zeros(len(X)) if failures is None else failures.probability(X))


synchronize(BanditDecisions)

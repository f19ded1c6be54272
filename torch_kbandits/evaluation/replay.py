"""A bandit plays the rounds of a log on which it agrees with the policy that made it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.evaluation.estimate import Estimate
from torch_kbandits.evaluation.log import Log, require_rewards
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True, eq=False)
class Replay:
    """What a replay found.

    Args:
        rewards, rows: (m,), of the rounds that the bandit played, and the rows of the log that they are from.
        accepted: of how many rows the bandit was asked.
        estimate: of the mean reward, None without rounds; its error is right for a bandit that has stopped learning.
    """

    rewards: Tensor
    rows: Tensor
    accepted: int
    estimate: Estimate | None


def replay_log(bandit: Any, log: Log, *, seed: int, center: float = 0.0) -> Replay:
    """Let a bandit play the rounds of a log on which it agrees with the logging policy, and learn from these.

    The bandit is asked in the context, and among the actions, of the round. If it chooses the action of the log it is
    told the reward, which is a round of its own; otherwise the ask is forgotten. A row of propensity p is accepted with
    probability p₀ / p, where p₀ is the smallest propensity of the log: then any action matches with probability p₀, and
    the rounds are as good as rounds played in the world, if contexts and rewards are drawn independently.

    Source: Li, Chu, Langford and Wang, WSDM 2011, Alg. 2, for uniform logs. Differs: the acceptance step, for logs that
    are not uniform; about p₀ of the log is played, 1 / A of a uniform one.

    Args:
        bandit: with ``log.actions`` as its actions, or of those of each round, given as ``candidates=``; or what has
            its ask, tell and forget.
        log: with the features of the actions.
        seed: addresses which rows are accepted, by their position in the log.
        center: constant to subtract from rewards before they are told.

    Cost: an ask for each row that is accepted, a tell for each round.
    """
    require_rewards(log)
    if not all(callable(getattr(bandit, call, None)) for call in ("ask", "tell", "forget")):
        raise InputError(f"bandit must have ask, tell and forget, as a Bandit has, got {checks.describe(bandit)}.")
    seed, center = checks.whole_number("seed", seed), checks.finite_number("center", center)
    uniform = torch.rand(len(log), generator=generator_for(seed, 0, "acceptance"), dtype=torch.float64, device="cpu")
    accepted = (uniform * log.propensities < float(log.propensities.min())).nonzero().flatten().tolist()
    played, matched = log.played, list[int]()
    for row in accepted:
        brought = {} if log.contexts is None else {"context": log.contexts[row]}
        asking = {"candidates": log.actions[row]} if isinstance(log.actions, tuple) else {}
        chosen = bandit.ask(**brought, **asking)
        if torch.equal(chosen, played[row : row + 1]):
            bandit.tell(chosen, log.rewards[row : row + 1] - center, **brought)
            matched.append(row)
        else:
            bandit.forget(chosen, **brought)
    rows = torch.tensor(matched, dtype=torch.int64)
    rewards = log.rewards[rows]
    if not matched:
        return Replay(rewards, rows, len(accepted), None)
    span = float(log.rewards.max() - log.rewards.min())
    return Replay(rewards, rows, len(accepted), Estimate(rewards, torch.ones_like(rewards), None, span))

"""What an algorithm would have earned, from the log of another policy: rejection-sampling replay."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.environments import LoggedInteractions
from torch_kbandits.errors import InputError
from torch_kbandits.experiments.summary import Estimate, estimate
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True, eq=False)
class Replay:
    """What a replay found.

    Args:
        rewards: (m,), those of the rounds that the bandit played, in order.
        rows: (m,), the interactions of the log that they come from, from 0.
        offered: the interactions that were gone through.
        accepted: those of them on which the bandit was asked; the others were left out to make up for uneven logging.
        mean: the mean of the rewards and its standard error; None if no interaction matched. The error is that of
            independent rewards, right for a bandit that has stopped learning, a guide for one that learns.
    """

    rewards: Tensor
    rows: Tensor
    offered: int
    accepted: int
    mean: Estimate | None


def replay_log(
    bandit: Bandit,
    log: LoggedInteractions,
    *,
    seed: int,
    rounds: int | None = None,
    lowest_propensity: float | None = None,
    center: float = 0.0,
) -> Replay:
    """Let a bandit play the interactions of a log on which it agrees with the logging policy.

    The bandit is asked in the logged context. If it chooses the logged action it is told the reward, which is a round;
    otherwise the ask is forgotten and the next interaction comes. Of actions that the logging policy preferred too many
    would match, so an interaction of propensity p is accepted with probability p₀ / p, where p₀ is a propensity that no
    action ever falls below. Then an action matches with probability p₀ whatever it and its context are, and the rounds
    are as good as rounds played in the world, if its contexts and rewards are drawn independently.

    Source: Li, Chu, Langford and Wang, "Unbiased offline evaluation of contextual-bandit-based news article
    recommendation algorithms", WSDM 2011, Alg. 2, for uniform logs. Differs: the acceptance step, for logs that are not
    uniform; about p₀ of the log is played, 1 / A of a uniform one.

    Args:
        bandit: made with ``log.action_set`` as its actions.
        log: as it was played.
        seed: addresses which interactions are accepted, by their position in the log.
        rounds: stop after so many rounds; None: at the end of the log.
        lowest_propensity: p₀, in (0, 1], at most the smallest propensity of the log, as by default.
        center: constant to subtract from rewards before they are told.

    Cost: an ask for each accepted interaction, a tell for each round.
    """
    checks.instance("log", log, LoggedInteractions, "a LoggedInteractions")
    seed, center = checks.whole_number("seed", seed), checks.finite_number("center", center)
    rounds = checks.optional(checks.positive_integer)("rounds", rounds)
    least = float(log.propensities.min())
    lowest = least if lowest_propensity is None else checks.positive("lowest_propensity", lowest_propensity)
    if least < lowest:
        row = int(log.propensities.argmin())
        raise InputError(f"lowest_propensity is {lowest:g} and row {row} of the log has a propensity of {least:g}.")
    uniform = torch.rand(len(log), generator=generator_for(seed, 0, "acceptance"), dtype=torch.float64, device="cpu")
    accepts = (uniform * log.propensities.double().cpu() < lowest).tolist()
    actions, matched, offered = log.action_rows, list[int](), 0
    while offered < len(log) and len(matched) != rounds:
        row, offered = offered, offered + 1
        if accepts[row]:
            context = log.contexts[row]
            chosen = bandit.ask(context=context)
            if torch.equal(chosen, actions[row : row + 1]):
                bandit.tell(chosen, log.rewards[row : row + 1] - center, context=context)
                matched.append(row)
            else:
                bandit.forget(chosen, context=context)
    rows = torch.tensor(matched, dtype=torch.int64, device=log.rewards.device)
    rewards = log.rewards[rows]
    return Replay(rewards, rows, offered, sum(accepts[:offered]), estimate(rewards.tolist()) if matched else None)

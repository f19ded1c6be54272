"""The objectives, as what a bandit knows has them."""

from dataclasses import replace
from typing import cast

from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.relearning import settled
from torch_kbandits.bandit.standing import Standing
from torch_kbandits.beliefs import Aim, Goals
from torch_kbandits.confidence import Width
from torch_kbandits.outcomes import REWARD, Scalarization


def goals_of(config: BanditConfig, standing: Standing, objective: Scalarization) -> Goals:
    """Return the objectives with their posteriors.

    Args:
        config: of the bandit.
        standing: what it knows.
        objective: of the bandit.
    """
    aims, names = [], [each.name for each in config.declared]
    for name in objective.names:
        place = 0 if name == REWARD else 1 + names.index(name)
        belief = standing.outcomes[place - 1].belief if place else standing.belief
        aims.append(
            Aim(
                name=name,
                maximize=objective.objectives[name] == "maximize",
                belief=belief,
                beta=cast(Width, config.width)(belief),
                pending=standing.ledger.pending.points if place else standing.ledger.outstanding,
                place=place,
                dropped=config.hidden_columns - config.of_outcomes[place - 1].hidden_columns if place else 0,
            )
        )
    return Goals(objective, aims, standing.belief)


def are_fitted(config: BanditConfig, standing: Standing, objective: Scalarization) -> bool:
    """Say whether the priors of all objectives are given, or were fitted to enough that was told."""
    parts = {each.name: number for number, each in enumerate(config.declared)}
    known = [
        (config, standing) if name == REWARD else (config.of_outcomes[parts[name]], standing.outcomes[parts[name]])
        for name in objective.names
    ]
    return all(own.is_fitted(each.ledger.num_learned) for own, each in known)


def all_settled(config: BanditConfig, standing: Standing) -> Standing:
    """Return what is known under priors that are fitted, also before the first fits are due; see ``settled``."""
    standing = settled(config, standing)
    outcomes = tuple(settled(own, known) for own, known in zip(config.of_outcomes, standing.outcomes, strict=True))
    return replace(standing, outcomes=outcomes)

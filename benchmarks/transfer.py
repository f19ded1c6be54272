"""What past runs are worth, and what they cost where they mislead: priors and families of them, on recorded rewards.

Fixed before the stretches that judge were played, on those for choosing: the guard is ``Family.from_runs`` with its
rule as it is unless given. Over all replays,

(a) with a past as recorded it has less regret than a bandit that fits its prior from nothing, in the mean;
(b) with a past that misleads, its signs flipped or its arms exchanged, it has at most 1.5 times that bandit's.
"""

import warnings
from collections.abc import Callable
from functools import partial

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from benchmarks.replay_data import Replay, stretches_of
from benchmarks.replays import play, relative_regret
from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, kinds, mark, values
from torch_kbandits import Arms, Bandit, ConstantWidth, LearnedPrior, Prior, algorithms
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.experiments.summary import summary_of
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.families import Balancing, Elimination, Family, FamilyRule, Prediction, Sampling

#: Multiplier of the deviation, runs that the past is cut into, and what (b) allows.
_BETA, _RUNS, _ALLOWED = 2.0, 3, 1.5

_REPLAYS = "employment, months", "nitrogen oxides, days", "pedestrians, days", "networks, trainings"

Run = tuple[Tensor, Tensor]

#: What a past becomes: rewards less their mean, and arms, of which a number is chosen.
_PASTS: dict[str, tuple[float, bool]] = {
    "as recorded": (1.0, False),
    "signs flipped": (-1.0, False),
    "arms exchanged": (1.0, True),
}
_RULES: dict[str, Callable[[], FamilyRule]] = {
    "sampling": Sampling,
    "prediction": Prediction,
    "balancing": Balancing,
    "elimination": Elimination,
}
_NOTHING, _GUARD = "no past", "guarded, prediction"


def past_runs(replay: Replay, sign: float, exchanged: bool) -> list[Run]:
    """Return the part of a replay that is known as runs, one reward of a random arm a round."""
    rounds, size = replay.train.rewards, len(replay.arms)
    generator = generator_for(replay.seed, 0, "runs")
    played = torch.randint(size, (len(rounds),), generator=generator)
    Y = rounds.gather(1, played.unsqueeze(-1)).squeeze(-1)
    others = torch.randperm(size, generator=generator) if exchanged else torch.arange(size)
    number = 2 if replay.arms.shape[1] > 1 else _RUNS  # of networks these are two data sets
    runs = zip(replay.arms[others[played]].chunk(number), Y.chunk(number), strict=True)
    return [(X, y.mean() + sign * (y - y.mean())) for X, y in runs]


def _kernel(replay: Replay) -> Kernel | None:
    """Return a kernel of arms that have nothing in common but a level, or the default one of what arms are."""
    if replay.arms.shape[1] > 1:
        return None
    return ScaleKernel(PrecomputedKernel(torch.eye(len(replay.arms), dtype=torch.float64))).double()


def _plain(prior: Prior | LearnedPrior, replay: Replay) -> Bandit:
    return algorithms.GPUCB(candidates=replay.arms, prior=prior, beta=_BETA, seed=replay.seed)


def _guarded(family: Family, prior: Prior, replay: Replay) -> Bandit:
    words = {"family": family, "prior": prior, "width": ConstantWidth(_BETA), "seed": replay.seed}
    return Bandit(candidates=Arms(replay.arms), **words)


def _measured(make: Callable[[], Bandit], replay: Replay) -> Measurement:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelBanditWarning)  # that a kernel explains nothing of some stretch
        return {"regret": relative_regret(replay.play, play(make(), replay))}


@benchmark(replays=("employment, months",), stretches=1, rules=("prediction",))
def transfer(
    parts: Parts,
    replays: tuple[str, ...] = _REPLAYS,
    stretches: int = 12,
    rules: tuple[str, ...] = tuple(_RULES),
    choosing: bool = False,
) -> Found:
    """Play with pasts of each kind, or none, on every stretch of each replay, or on those for choosing."""
    found = list[Measurement]()
    for key, replay in stretches_of(replays, stretches, choosing):
        kernel = _kernel(replay)
        nothing = partial(_plain, LearnedPrior(kernel), replay)
        found.append(parts.measured(key | {"past": "none", "player": _NOTHING}, partial(_measured, nothing, replay)))
        best = replay.play.means.mean(0).argmax().expand(len(replay.play.rewards))
        regret = relative_regret(replay.play, best)
        found.append(key | {"past": "none", "player": "best arm in hindsight", "regret": regret})
        for past, (sign, exchanged) in _PASTS.items():
            runs = past_runs(replay, sign, exchanged)
            family = Family.from_runs(runs, kernel, seed=key["stretch"])
            told, alone, _ = (
                Prior(each.kernel, each.regularization, each.mean)  # pyright: ignore[reportArgumentType]
                for each in family.variants
            )
            players = {"prior of the past": partial(_plain, told, replay)}
            players["its kernel and λ alone"] = partial(_plain, alone, replay)
            for rule in rules:
                guard = Family(family.variants, _RULES[rule]())
                players[f"guarded, {rule}"] = partial(_guarded, guard, told, replay)
            for player, make in players.items():
                measure = partial(_measured, make, replay)
                found.append(parts.measured(key | {"past": past, "player": player}, measure))
            chosen_arm = torch.stack([_mean_of(runs, arm) for arm in replay.arms]).argmax()
            regret = relative_regret(replay.play, chosen_arm.expand(len(replay.play.rewards)))
            found.append(key | {"past": past, "player": "best arm of the past", "regret": regret})
    return [_claims(found), *(_table(found, name) for name in replays)], found


def _mean_of(runs: list[Run], arm: Tensor) -> Tensor:
    """Return the mean reward of an arm over runs, less those of the runs; −∞ where it was not played."""
    rest = torch.cat([(Y - Y.mean())[(arm == X).all(-1)] for X, Y in runs])
    return rest.mean() if len(rest) else torch.tensor(-torch.inf, dtype=torch.float64)


def _claims(found: list[Measurement]) -> Table:
    rows, nothing = list[list[str]](), summary_of(values(found, "regret", player=_NOTHING)).mean
    for past in _PASTS:
        mine = summary_of(values(found, "regret", player=_GUARD, past=past)).mean
        holds = mine < nothing if past == "as recorded" else mine <= _ALLOWED * nothing
        rows.append([past, f"{mine:.2f}", f"{nothing:.2f}", f"{mine / nothing:.2f}", mark(holds)])
    return Table("What was claimed, over all", ["past", _GUARD, _NOTHING, "ratio", "holds"], rows)


def _table(found: list[Measurement], name: str) -> Table:
    here = chosen(found, replay=name)
    rows = []
    for player in kinds(here, "player"):
        mine = [values(here, "regret", player=player, past=past) for past in ("none", *_PASTS)]
        rows.append([player, *(f"{summary_of(each).mean:.2f}" if each else "" for each in mine)])
    stretches = len(chosen(here, player=_NOTHING))
    title = f"{name.capitalize()}: mean regret over that of random play, {stretches} stretches, by the past"
    return Table(title, ["player", "none", *_PASTS], rows)

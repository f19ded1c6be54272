"""Every kind of bandit, and what its rounds bring: for laws that hold of all of them."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import torch
from problems import DOUBLE, believed, data, in_a_file, matern, rbf, reward
from torch import Tensor

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.acquisition import (
    EpsilonGreedy,
    ExpectedImprovementRule,
    SoftmaxRule,
    StagedRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule
from torch_kbandits.bandit.adaptation import BanditOverBandit, CumulatedTrigger, ResidualTrigger
from torch_kbandits.memory import Discount, LinearGrowth, SlidingWindow, TemporalPrior, UncertaintyInjection

ARMS = data(60, 2)[0]
MANY = data(600, 2)[0]
LEVELED = torch.stack([ARMS[:, 0], torch.tensor([0.25, 1.0], dtype=DOUBLE).repeat_interleave(30)], -1)
STORED = in_a_file(MANY)
BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 2.0]], dtype=DOUBLE)
SMALL_BOX = kb.Box(BOUNDS, num_restarts=2, raw_samples=16)
CONTEXTS = data(60, 1, seed=12)[0]
NAMES = algorithms.names()
#: What algorithms need beside a kernel, a noise variance and a seed.
NEEDED = {
    "bob-gp-ucb": {"horizon": 200, "block_size": 3},
    **{name: {"horizon": 200} for name in ("bpe", "mvr")},
    "dms-gp-ucb": {"block_size": 3},
    "master-gp-ucb": {"block_size": 3},
    **{name: {"scales": (2.0, 1.0, 0.5)} for name in ("hp-gp-ts", "lb-gp-ucb", "pe-gp-ts", "pe-gp-ucb")},
    "r-gp-ucb": {"period": 25.0},
    "r-perp": {"period": 25},
    "sparq-gp-ucb": {"expert": lambda X, time: (reward(X), 0.05)},
    "w-sparq-gp-ucb": {"expert": lambda X, time: (reward(X), 0.05), "window": 3.0},
    "sup-kernel-ucb": {"horizon": 200},
    "sw-gp-ucb": {"window": 12.0},
    "ui-gp-ucb": {"growth": 0.01},
}


def words_of(name: str, **settings: Any) -> dict[str, Any]:
    """Words of a named algorithm on sixty arms, or on other candidates."""
    takes = algorithms.registry.signature(name).parameters
    words = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": 0.05, "seed": 3}
    words |= ({"beta": 1.5} if "beta" in takes else {}) | NEEDED.get(name, {})
    if name.endswith("gp-ts") and isinstance(settings.get("candidates"), kb.Box):
        words["discretization_size"] = 64
    words |= settings
    if name == "lin-ucb":
        words["features"] = words.pop("kernel")
    if name == "shared-lin-ucb":
        del words["kernel"]
    return words


def make(name: str, **settings: Any) -> kb.Bandit:
    return algorithms.build(name, **words_of(name, **settings))


def composed(**settings: Any) -> kb.Bandit:
    words = {"candidates": kb.Arms(ARMS), "kernel": matern(), "regularization": 0.05, "width": kb.ConstantWidth(1.5)}
    return kb.Bandit(**(words | {"seed": 3} | settings))


def nothing(number: int) -> dict[str, Any]:
    return {}


def rewarded(X: Tensor, number: int) -> dict[str, Any]:
    return {"y": reward(X[:, -2:])}


def jumping(X: Tensor, number: int) -> dict[str, Any]:
    """A reward that changes its sign every five rounds, which is found at once."""
    return {"y": (3.0 if number // 5 % 2 else -3.0) * torch.cos(X[:, -2:].sum(-1))}


def measured(X: Tensor, number: int) -> dict[str, Any]:
    """Rewards, of which every fifth round's are lost, and outcomes, of which every third round's are not there."""
    told = {"failed": True} if number % 5 == 4 else rewarded(X, number)
    heat = {} if number % 3 == 2 else {"heat": torch.sin(3.0 * X[:, -2:].sum(-1))}
    return told | {"outcomes": heat | {"cost": 40.0 + X[:, -1]}}


def noisy(X: Tensor, number: int) -> dict[str, Any]:
    """Rewards of which the noise is known in two of three rounds, of the first in every second one."""
    sems = [None if row + number % 2 else 0.1 * 2.0 ** (number % 5) for row in range(len(X))]
    return rewarded(X, number) | ({} if number % 3 == 1 else {"sem": sems} if number % 2 else {"noise": 0.3})


class Kind(NamedTuple):
    """How a bandit is made, what a round brings, what is told of points (q, d), and how it is compared."""

    make: Callable[[], kb.Bandit]
    words: Callable[[int], dict[str, Any]] = nothing
    told: Callable[[Tensor, int], dict[str, Any]] = rewarded
    rounds: int = 8  # few where a round takes long
    tolerance: float = 0.0  # of points that are searched for by gradients, which amplify rounding
    loads: bool = True  # whether a file has all that it is made of
    replays: bool = True  # whether a history says all of its times, and no answers count for longer than a round


def on_a_box(made: Callable[[], kb.Bandit], rounds: int = 3, **words: Any) -> Kind:
    return Kind(made, rounds=rounds, tolerance=1e-3, **words)


def dated(number: int) -> dict[str, Any]:
    return {"time": datetime(2026, 3, 1) + timedelta(hours=number)}


def in_context(number: int) -> dict[str, Any]:
    return {"context": CONTEXTS[number]}


def of_each_round(number: int) -> dict[str, Any]:
    return in_context(number) | {"candidates": ARMS[number : number + 3 + number % 5, :1]}


SPACE = kb.ParameterSpace(
    {
        "x": kb.Float(0.0, 1.0),
        "kind": kb.Categorical(["a", "b"]),
        "C": kb.Float(1e-3, 1e3, log=True, when={"kind": "a"}),
    }
)
HEAT, COST = (
    kb.Outcome("heat", kb.Prior(rbf(0.3), 0.05, 0.2)),
    kb.Outcome("cost", kb.LearnedPrior(num_initial=4, refit_share=0.8)),
)
MEMORY_CHOICE = BanditOverBandit((SlidingWindow(4, "observations"), Discount(0.9), SlidingWindow(math.inf)), 3, 0.6)
COUPLED = kb.RidgeLeverageSampling(2.0, "coupled")
LEARNED = kb.LearnedPrior(num_initial=5, refit_share=0.6)
BY_PRIOR = {"kernel": None, "regularization": None, "prior": LEARNED}
ACTIONS = kb.ContextualActions(ARMS[:9, :1], context_dim=1)
CHANGING = kb.ContextualActions(action_dim=1, context_dim=1)

KINDS = {
    **{
        name: Kind(lambda name=name: make(name), loads="sparq" not in name, replays=name != "w-sparq-gp-ucb")
        for name in NAMES
    },
    **{
        f"{name}, box": on_a_box(lambda name=name: make(name, candidates=SMALL_BOX))
        for name in ("ada-bkb", "bkb", "gp-ei", "gp-ts", "gp-ucb")
    },
    **{
        f"{name}, contexts": Kind(lambda name=name: make(name, candidates=ACTIONS), in_context)
        for name in ("ek-ucb", "k-ucb", "cbkb", "gp-ts", "gp-ei", "et-gp-ucb")
    },
    **{
        f"{name}, sets of each round": Kind(lambda name=name: make(name, candidates=CHANGING), of_each_round)
        for name in ("ek-ucb", "cbbkb", "random")
    },
    "box in contexts": on_a_box(
        lambda: make("ek-ucb", candidates=kb.ContextualActions(bounds=BOUNDS[:, :1], context_dim=1, num_restarts=2)),
        words=in_context,
    ),
    "many arms": Kind(lambda: make("gp-ts", candidates=MANY)),
    "arms in a file": Kind(lambda: make("bkb", candidates=kb.Arms(STORED), memory=Discount(0.9))),
    "few features": Kind(lambda: make("bkb", oversampling=0.3, candidates=MANY)),
    "uniform": Kind(lambda: composed(dictionary=kb.UniformDictionary(6))),
    "greedy": Kind(lambda: composed(dictionary=kb.GreedyDictionary(6))),
    "capped": Kind(lambda: composed(dictionary=kb.CappedDictionary(COUPLED, 6, "stop"))),
    "growing": Kind(lambda: composed(dictionary=kb.RidgeLeverageSampling(2.0, "growth"))),
    "means": Kind(lambda: composed(mean=3.0 + ARMS.sum(-1), memory=Discount(0.9), dictionary=kb.KORS(3.0))),
    "mean that is a function": Kind(lambda: composed(mean=lambda X: 3.0 + X.sum(-1)), loads=False),
    "rule that draws": Kind(
        lambda: composed(acquisition=EpsilonGreedy(SoftmaxRule(UpperConfidenceRule(), 0.4), 0.1), candidates=ACTIONS),
        in_context,
    ),
    "dates": Kind(lambda: make("bkb", memory=SlidingWindow(5 * 3600.0)), dated, replays=False),
    "ageing": Kind(lambda: composed(memory=UncertaintyInjection(LinearGrowth(0.05), 0.5), dictionary=kb.KORS(3.0))),
    "prior on time": Kind(lambda: composed(memory=TemporalPrior(0.1, 0.3), batches=GlobalBatchRule(2.0))),
    "trigger": Kind(lambda: composed(trigger=ResidualTrigger(0.3), memories=MEMORY_CHOICE), told=jumping),
    "slow trigger in batches": Kind(
        lambda: composed(trigger=CumulatedTrigger(0.3), batches=LocalBatchRule(2.0), dictionary=kb.GreedyDictionary(9)),
        told=jumping,
    ),
    "memories in contexts": Kind(lambda: make("bob-gp-ucb", candidates=ACTIONS), in_context, jumping),
    "stages": Kind(
        lambda: composed(
            acquisition=StagedRule(60), dictionary=kb.KORS(3.0), batches=GlobalBatchRule(3.0),
            width=kb.ConstantWidth(0.5), memory=SlidingWindow(9, "observations"),
        )
    ),
    "family": Kind(
        lambda: make("lb-gp-ucb", dictionary=kb.RidgeLeverageSampling(1.0), memory=SlidingWindow(9, "observations"))
    ),
    "learned prior": Kind(lambda: make("bkb", **BY_PRIOR)),
    "learned prior, contexts": Kind(lambda: make("ek-ucb", candidates=ACTIONS, **BY_PRIOR), in_context),
    "learned prior and memory": Kind(
        lambda: composed(**BY_PRIOR | {"prior": replace(LEARNED, learn_memory=True)}, memory=Discount(0.7))
    ),
    "outcomes": Kind(
        lambda: composed(
            outcomes=[HEAT, kb.Outcome("cost")], constraints=[kb.AtMost("heat", 0.9, "optimistic", beta=1.0)],
            memory=Discount(0.9), dictionary=kb.RidgeLeverageSampling(0.5),
        ),
        told=measured,
    ),
    "outcomes in batches": Kind(
        lambda: composed(outcomes=[HEAT, COST], batches=GlobalBatchRule(1.5), memory=TemporalPrior(0.05)), told=measured
    ),
    "safe": Kind(
        lambda: composed(constraints=[kb.AtLeast(HEAT, -0.5, safe_seed=ARMS[:9])], dictionary=COUPLED),
        told=lambda X, n: rewarded(X, n) | {"outcomes": {"heat": torch.cos(X.sum(-1))}},
    ),
    "objectives": Kind(
        lambda: make("gp-ucb", outcomes=[HEAT], objective=kb.Scalarization({"reward": "maximize", "heat": "minimize"})),
        told=lambda X, n: rewarded(X, n) | {"outcomes": {"heat": torch.cos(X.sum(-1))}},
    ),
    "budget": Kind(
        lambda: make("gp-ucb", outcomes=[HEAT], objective=kb.BudgetPacing(per_round=0.4, cost="heat")),
        told=lambda X, n: rewarded(X, n) | {"outcomes": {"heat": torch.cos(X.sum(-1)).abs()}},
    ),
    "cooled cost": Kind(
        lambda: composed(
            acquisition=ExpectedImprovementRule(), outcomes=[HEAT], objective=kb.CostCooling(budget=9.0, cost="heat")
        ),
        told=lambda X, n: rewarded(X, n) | {"outcomes": {"heat": torch.cos(X.sum(-1)).abs()}},
    ),
    "fidelity": Kind(
        lambda: composed(
            candidates=kb.Arms(LEVELED),
            dictionary=kb.RidgeLeverageSampling(2.0),
            fidelity=kb.Fidelity(column=1, levels=(0.25, 1.0)),
        )
    ),
    "configurations": on_a_box(lambda: make("ek-ucb", candidates=kb.Configurations(SPACE), kernel=rbf(0.7)), rounds=2),
    "noise told": Kind(lambda: composed(dictionary=kb.RidgeLeverageSampling(2.0)), told=noisy),
    "noise told, ageing": Kind(lambda: composed(memory=Discount(0.9, 0.4), dictionary=kb.KORS(3.0)), told=noisy),
    "noise told, learned prior": Kind(lambda: make("gp-ei", **BY_PRIOR), told=noisy),
    "noise told, outcomes": Kind(
        lambda: composed(outcomes=[HEAT, kb.Outcome("cost")]),
        told=lambda X, n: measured(X, n) | ({"noise": 0.01} if n > 3 else {}),
    ),
}  # fmt: skip


def play(kind: Kind, bandit: kb.Bandit, rounds: int, first: int = 0) -> list[Any]:
    """Ask for one point or two, and tell all that are pending, the youngest first, in two of three rounds."""
    asked = []
    for number in range(first, first + rounds):
        asked.append(bandit.ask(1 + number % 2, **kind.words(number)))
        if number % 3 != 2:
            bandit.tell(ids=bandit.pending_ids[::-1], **kind.told(bandit.pending.flip(0), number))
    return asked


def started(kind: Kind) -> kb.Bandit:
    """A bandit that has played and waits for some rewards."""
    bandit = kind.make()
    play(kind, bandit, kind.rounds)
    bandit.ask(2, **kind.words(kind.rounds))
    return bandit


def known(kind: Kind, bandit: kb.Bandit) -> Tensor:
    """What is believed of rewards at some points, of outcomes and of failures, (n,)."""
    X = bandit.history.X[:4]
    parts = [*believed(bandit, X), bandit.beta.reshape(1)]
    if kind.told is measured:
        parts.append(bandit.failure_probability(X[:, -2:]))
        parts += [bandit.outcome_model(name).posterior(X).mean.detach().flatten() for name in bandit.outcomes]
    return torch.cat(parts)


def points(asked: Any) -> Tensor:
    """What was asked for, as numbers."""
    return SPACE.encode(asked) if isinstance(asked, list) else asked


def future(kind: Kind, bandit: kb.Bandit) -> Tensor:
    """What it asks for in two rounds more than ``started``, as numbers."""
    return torch.cat([points(each) for each in play(kind, bandit, 2, kind.rounds + 1)])


def same(ours: Any, theirs: Any) -> bool:
    """Whether two states have the same values, NaN being itself."""
    if isinstance(ours, Tensor):
        alike = isinstance(theirs, Tensor) and ours.dtype == theirs.dtype
        return alike and torch.equal(ours.nan_to_num(1e99), theirs.nan_to_num(1e99))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs or ours is theirs or (ours != ours and theirs != theirs)

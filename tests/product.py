"""Combinations of the pieces of a bandit, drawn at random and played: which work, and which are refused and why."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, RQKernel
from problems import DOUBLE, data, difference, exactly, in_a_file, linear, matern, rbf, reward
from torch import Tensor

import torch_kbandits as kb
from torch_kbandits import acquisition as rules
from torch_kbandits.bandit import GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.candidates import Candidates, Timed
from torch_kbandits.confidence import EKUCBWidth, IGPUCBWidth, KUCBWidth
from torch_kbandits.memory import Discount, Restart, SlidingWindow, Stationary, TemporalPrior, UncertaintyInjection
from torch_kbandits.priors.families import Balancing, Elimination, Family, ModelSpec, Prediction, Sampling

LAMBDA = 0.1
#: What bounds of outcomes may be off by, from one way of computing them to another.
ROUNDING = 1e-5
ARMS, BOX = data(20, 2, 31)[0], torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
MANY = data(600, 2, 32)[0]  # more than those of which all covariances are kept
CONTEXTS = data(40, 1, 33)[0]
SEARCH = {"num_restarts": 1, "raw_samples": 4}


class Space(NamedTuple):
    """What may be played: arms or actions (A, a), a box where there are none, and what a round brings."""

    make: Callable[[Path], Candidates]
    actions: Tensor | None = None
    stored: bool = False  # the arms are not in memory
    context_dim: int = 0
    each_round: bool = False  # a round brings its actions
    timed: bool = False  # points know when they are played

    @property
    def is_contextual(self) -> bool:
        return self.context_dim > 0 or self.each_round or self.timed


def sets(kind: Callable[..., Candidates], **about: bool) -> dict[str, Space]:
    """A set that stays, one that each round brings, and a box; each alone and in a context."""
    title, found = "timed " if about else "", {}
    for c, where in enumerate(("", " in a context")):

        def made(_: Path, kind: Any = kind, **words: Any) -> Candidates:
            return kind(**words)

        given = {
            "actions": {"actions": ARMS[:, c:]},
            "actions of each round": {"action_dim": 2 - c},
            "box of actions": {"bounds": BOX[:, c:], **SEARCH},
        }
        for name, words in given.items():
            actions, each_round = None if "bounds" in words else ARMS[:, c:], "action_dim" in words
            found[f"{title}{name}{where}"] = Space(
                partial(made, context_dim=c, **words), actions, False, c, each_round, **about
            )
    return found


SPACES = {
    "arms": Space(lambda _: kb.Arms(ARMS), ARMS),
    "many arms": Space(lambda _: kb.Arms(MANY), MANY),
    "arms in a file": Space(lambda _: kb.Arms(in_a_file(ARMS)), ARMS, stored=True),
    "many arms in a file": Space(lambda _: kb.Arms(in_a_file(MANY)), MANY, stored=True),
    "box": Space(lambda _: kb.Box(BOX, **SEARCH)),
    **sets(kb.ContextualActions),
    **sets(lambda **words: Timed(kb.ContextualActions(**words)), timed=True),
}


def rational_quadratic() -> Kernel:
    return RQKernel().double().initialize(lengthscale=exactly(0.4))


KERNELS = {"rbf": rbf, "matern": matern, "rational quadratic": rational_quadratic, "linear": linear, "learned": None}
WITH_WAVES = ("rbf", "matern", "learned")
DICTIONARIES = {
    "none": None,
    "fresh": kb.RidgeLeverageSampling(2.0),
    "coupled": kb.RidgeLeverageSampling(2.0, "coupled"),
    "growth": kb.RidgeLeverageSampling(2.0, "growth"),
    "kors": kb.KORS(),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(3.0), 3, "stop"),
    "capped kors": kb.CappedDictionary(kb.KORS(3.0), 3, "stop"),
    "fixed": kb.FixedDictionary(ARMS[:5]),
    "uniform": kb.UniformDictionary(3),
    "greedy": kb.GreedyDictionary(3),
    "k-dpp": kb.KDPP(3, num_swaps=10),
}
#: Memories under which observations keep their noise, those under which they age, and priors on time.
KEEPING = {
    "keep all": Stationary(),
    "window": SlidingWindow(3.0),
    "window of observations": SlidingWindow(4, "observations"),
    "restart": Restart(5.0),
}
AGEING = {
    "discount": Discount(0.8),
    "discount to a limit": Discount(0.7, 0.2),
    "quadratic": UncertaintyInjection(kb.QuadraticGrowth(0.5)),
    "linear": UncertaintyInjection(kb.LinearGrowth(0.05)),
    "exponential to a limit": UncertaintyInjection(kb.ExponentialGrowth(0.7), 0.5),
}
PRIORS_ON_TIME = {"prior on time": TemporalPrior(0.1), "prior on time to a limit": TemporalPrior(0.2, 0.5)}
MEMORIES = {"none": None, **KEEPING, **AGEING, **PRIORS_ON_TIME}
RULES = {
    "upper bound": rules.UpperConfidenceRule(),
    "expected improvement": rules.ExpectedImprovementRule(),
    "probability of improvement": rules.ProbabilityOfImprovementRule(),
    "Thompson": rules.ThompsonRule(discretization_size=32, num_draws=8),
    "uniform": rules.UniformRule(),
    "stages": rules.StagedRule(30),
    "softmax": rules.SoftmaxRule(rules.UpperConfidenceRule(), 0.5),
    "epsilon": rules.EpsilonGreedy(rules.ThompsonRule(discretization_size=32, num_draws=8), 0.5),
}
#: They maximise no function, or choose by no one posterior; these draw, and their choice is not the largest value.
FUNCTIONLESS, DRAWING = ("uniform", "stages", "softmax"), ("Thompson", "epsilon")
BATCHES = {"none": None, "global": GlobalBatchRule(2.0), "local": LocalBatchRule(1.5), "stay": StayRule(1.69)}
#: Rules between two hypotheses, of which the second is like none that plays alone.
FAMILIES = {
    "none": None,
    "balancing": Balancing(),
    "elimination": Elimination(),
    "sampling": Sampling(),
    "prediction": Prediction(0.9),
}


def cool(X: Tensor) -> Tensor:
    """What is known to be safe: a part of every set of actions."""
    return X[:, -1] <= 0.6


def heat(x: Tensor) -> Tensor:
    """What is limited, of actions (q, a), (q,)."""
    return torch.sin(4.0 * x[:, -1]) + 0.3 * x[:, 0]


#: Limits on an outcome: a posterior that is given, and one that is learned.
LIMITS = {
    "none": (),
    "safe": (kb.AtMost(kb.Outcome("heat", kb.Prior(matern(), LAMBDA)), 0.9, beta=1.0, safe_seed=cool),),
    "optimistic": (kb.AtLeast(kb.Outcome("heat", kb.Prior(rbf(), LAMBDA)), 0.2, "optimistic", beta=1.5),),
    "both": (
        kb.AtMost(kb.Outcome("heat", kb.LearnedPrior(num_initial=3, refit_share=1.0)), 1.2, safe_seed=cool),
        kb.AtLeast("heat", -0.5, "optimistic"),
    ),
}
_ASSUMED = {"noise_scale": 0.3, "norm_bound": 1.0, "failure_probability": 0.1}
WIDTHS = {
    "constant": kb.ConstantWidth(1.5),
    "gain": IGPUCBWidth(**_ASSUMED),
    "dimension": EKUCBWidth(**_ASSUMED),
    "dimension, exact": KUCBWidth(**_ASSUMED),
}


@dataclass(frozen=True)
class Combination:
    """The names of the pieces, and whether who asks and tells says at what times."""

    space: str
    kernel: str
    dictionary: str
    memory: str
    rule: str
    batches: str
    width: str
    family: str = "none"
    limits: str = "none"
    dated: bool = False

    @property
    def where(self) -> Space:
        return SPACES[self.space]

    @property
    def has_clock(self) -> bool:
        return self.memory != "none" or self.where.timed

    def bandit(self, folder: Path, seed: int = 0, mean: Any = 0.0) -> kb.Bandit:
        """Compose it by hand."""
        dictionary, rule, kernel = DICTIONARIES[self.dictionary], RULES[self.rule], KERNELS[self.kernel]
        family = FAMILIES[self.family]
        if (self.where.timed or self.memory in PRIORS_ON_TIME) and isinstance(dictionary, kb.FixedDictionary):
            dictionary = kb.FixedDictionary(
                torch.cat([torch.arange(5.0, dtype=DOUBLE).unsqueeze(-1), ARMS[:5]], dim=-1)
            )
        return kb.Bandit(
            candidates=self.where.make(folder),
            prior=kb.LearnedPrior(num_initial=3, refit_share=1.0)
            if kernel is None
            else kb.Prior(kernel(), LAMBDA, mean),
            dictionary=dictionary,
            width=WIDTHS[self.width] if getattr(rule, "rule", rule).uses_width else None,
            acquisition=rule,
            batches=BATCHES[self.batches],
            memory=MEMORIES[self.memory],
            seed=seed,
            constraints=LIMITS[self.limits],
            family=family and Family((ModelSpec(), ModelSpec(regularization=2.0 * LAMBDA, mean=0.3)), family),
        )


def drawn(seed: int, number: int) -> list[Combination]:
    """So many combinations, each from a number of its own; about half leave out what may be left out."""

    def one(draw: Random) -> Combination:
        def name(pieces: dict[str, object]) -> str:
            return "none" if "none" in pieces and draw.random() < 0.4 else draw.choice([*pieces])

        kinds = (SPACES, KERNELS, DICTIONARIES, MEMORIES, RULES, BATCHES, WIDTHS, FAMILIES, LIMITS)
        names = [name(pieces) for pieces in kinds]
        return Combination(*names, dated=draw.random() < 0.5)

    return [one(Random(1_000_003 * seed + count)) for count in range(number)]


class Reason(NamedTuple):
    """Which combinations are refused for a reason, and words of the message."""

    holds: Callable[[Combination], bool]
    says: str


#: What mathematics demands, or a kernel: a point is not the same in another round; a draw whose value at an arm does
#: not depend on its block is made of waves; stages leave some of finitely many actions.
RIGHTLY = {
    "repetition of a point that is another in each round": Reason(
        lambda it: it.batches == "stay" and (it.where.is_contextual or it.memory in PRIORS_ON_TIME),
        "plays a point again and again",
    ),
    "Thompson sampling by a kernel without waves on stored arms": Reason(
        lambda it: it.rule in DRAWING and it.where.stored and it.kernel not in WITH_WAVES,
        "draws a sum of random waves",
    ),
    "hypotheses where no one posterior chooses": Reason(
        lambda it: it.family != "none" and it.rule in ("uniform", "stages"), "does not choose by one posterior"
    ),
    "a family of priors that are learned": Reason(
        lambda it: it.family != "none" and it.kernel == "learned", "A family has hypotheses that are given"
    ),
    "a floor under propensities of a point that is played again": Reason(
        lambda it: it.batches == "stay" and it.rule == "epsilon", "leave out EpsilonGreedy"
    ),
    "a softmax on a box": Reason(lambda it: it.rule == "softmax" and it.where.actions is None, "give arms or actions"),
    "stages on a box": Reason(lambda it: it.rule == "stages" and it.where.actions is None, "finite set of actions"),
}


def reasons(combination: Combination) -> list[str]:
    """Why a combination should be refused."""
    return [name for name, reason in RIGHTLY.items() if reason.holds(combination)]


class Refused(NamedTuple):
    """What is said, and whether only by the first ``ask``."""

    message: str
    at_ask: bool


def played(combination: Combination, folder: Path, turns: int = 1) -> Refused | None:
    """Play a combination for a few rounds, of which ``turns`` are in another order, or return how it is refused.

    Whatever is raised later or is no ``InputError`` is raised.
    """
    loop = None
    try:
        loop = Loop(combination, combination.bandit(folder))
        x = loop.ask()
    except kb.InputError as error:
        return Refused(str(error), at_ask=loop is not None)
    bandit, run = loop.bandit, Loop(combination, combination.bandit(folder))
    loop.tell(x)
    asked = torch.cat([x, *(loop.round() for _ in range(2))])
    assert torch.equal(run.bandit.run(run.pull, 3, offered=run.offers), asked)
    loop.compare(run)
    for _ in range(turns):
        several = bandit.ask(3, details=True, **loop.words())
        bandit.mark_pending(loop.some, **loop.context(), **loop.date())
        loop.ask(remember=False)
        bandit.tell(ids=several.ids[1:], **loop.date(), **loop.pull(several.x[1:]))
        loop.look()
        bandit.forget(ids=several.ids[0])
    loop.tell(loop.some + 0.01)
    loop.look()
    if bandit.batches is not None:
        bandit.forget()
        loop.tell(loop.ask(None))
    loop.ask()
    twin = combination.bandit(folder)
    twin.load_state_dict(bandit.state_dict())
    loop.compare(Loop(combination, twin, loop.turn))
    if combination.dated:
        loop.turn += 400  # by then nothing may count
        loop.ask()
        loop.look()
    bandit.restart()
    loop.tell(loop.ask())
    return None


class Loop:
    """A bandit, and what its rounds bring: a context, actions, a time."""

    def __init__(self, combination: Combination, bandit: kb.Bandit, turn: int = 0) -> None:
        self.of, self.space, self.bandit, self.turn = combination, combination.where, bandit, turn

    def context(self) -> dict[str, object]:
        return {"context": CONTEXTS[self.turn % 40]} if self.space.context_dim else {}

    def date(self) -> dict[str, object]:
        return {"time": 0.7 * self.turn} if self.of.dated and self.of.has_clock else {}

    @property
    def offered(self) -> Tensor | None:
        """What may be played in this round, (A, a); None on a box."""
        actions = self.space.actions
        return actions[self.turn % 5 : self.turn % 5 + 9] if self.space.each_round else actions

    @property
    def some(self) -> Tensor:
        """Two points that may be played."""
        return BOX[:, self.space.context_dim :].clone() if self.offered is None else self.offered[1:3]

    def words(self) -> dict[str, object]:
        return self.context() | self.date() | ({"candidates": self.offered} if self.space.each_round else {})

    def ask(self, q: int | None = 1, *, remember: bool = True) -> Tensor:
        """Ask in the next round."""
        self.turn += 1
        x = self.bandit.ask(q, remember=remember, **self.words())
        assert q is None or len(x) == q
        self.check_playable(x)
        if remember or not self.date():  # else the model that is shown is of an earlier time
            self.check_limits(x)
        return x

    def round(self) -> Tensor:
        """Ask and tell."""
        x = self.ask()
        self.tell(x)
        return x

    def offers(self, number: int) -> dict[str, object]:
        """What a round of ``run`` brings."""
        self.turn += 1
        return self.words()

    def pull(self, x: Tensor) -> dict[str, object]:
        """What is told of a play, beside where and when."""
        return {"y": reward(x)} | ({} if self.of.limits == "none" else {"outcomes": {"heat": heat(x)}})

    def check_limits(self, x: Tensor) -> None:
        """What is asked for keeps the limits by the model of the outcome, as far as that says something."""
        bandit, of = self.bandit, self.of.limits
        if of in ("none", "both"):
            return
        (limit,), model = LIMITS[of], bandit.outcome_model("heat")
        X = bandit.candidates.points(x, self.context().get("context"), bandit.now)
        posterior = model.posterior(X[:, -model.train_inputs[0].shape[-1] :].unsqueeze(-2))
        mean, deviation = posterior.mean.flatten(), posterior.variance.flatten().sqrt()
        if of == "safe":
            within = mean + deviation <= limit.value + ROUNDING
            assert bool((within | cool(x)).all()), (x, mean, deviation)
        else:
            assert bool((mean + 1.5 * deviation >= limit.value - ROUNDING).all()), (x, mean, deviation)

    def check_playable(self, x: Tensor) -> None:
        if self.offered is None:
            lower, upper = BOX[:, self.space.context_dim :]
            assert bool(((x >= lower) & (x <= upper)).all()), x
        else:
            assert bool((x.unsqueeze(1) == self.offered).all(-1).any(-1).all()), x

    def tell(self, x: Tensor) -> None:
        self.bandit.tell(x, **self.context(), **self.date(), **self.pull(x))

    def look(self) -> None:
        """Read all that is believed: it is finite."""
        bandit, words = self.bandit, self.words()
        if self.of.rule not in FUNCTIONLESS and not self.space.stored and not isinstance(bandit.rule, rules.SobolRule):
            values = bandit.acquisition(**words)(self.some.unsqueeze(-2))
            allowed = values > -torch.inf if self.of.limits != "none" else torch.ones_like(values, dtype=torch.bool)
            assert bool((values.isfinite() == allowed).all()), values
            self.check_largest(words)
        posterior = bandit.model.posterior(self.probes.unsqueeze(-2))
        for values in (posterior.mean, posterior.variance, bandit.beta, bandit.weights, bandit.inducing_points):
            assert bool(values.isfinite().all()), values
        assert bool((posterior.variance >= 0.0).all())
        try:
            best = bandit.recommend(**words)
        except kb.InfeasibleError:
            assert self.of.limits != "none"
            return
        except kb.EmptyHistoryError:
            assert not (bandit.weights > 0.0).any()
            return
        self.check_playable(best)  # whatever else was told

    def check_largest(self, words: dict[str, object]) -> None:
        """What is asked for has the largest value of all of a set; a safe limit also asks for what shows more."""
        if self.offered is None or self.of.batches == "stay" or self.of.rule in (*DRAWING, "softmax"):
            return
        if self.of.limits in ("none", "optimistic"):
            function, x = self.bandit.acquisition(**words), self.bandit.ask(remember=False, **words)
            value = float(function(x.unsqueeze(-2)).detach())
            assert value >= float(function(self.offered.unsqueeze(-2)).detach().max()) - 1e-8 * max(1.0, abs(value))

    @property
    def probes(self) -> Tensor:
        """Points as the kernel sees them."""
        example = self.bandit.candidates.example
        return data(7, example.shape[-1], 34)[0]

    def compare(self, other: "Loop") -> None:
        """Both have learned the same and go on alike; on a box the search amplifies rounding."""
        ours, theirs = (each.bandit.model.posterior(self.probes) for each in (self, other))
        assert difference(ours.mean, theirs.mean) < 1e-8
        assert difference(ours.covariance_matrix, theirs.covariance_matrix) < 1e-8
        assert torch.equal(self.bandit.pending, other.bandit.pending)
        chosen = [each.ask(remember=False) for each in (self, other)]
        assert self.space.actions is None or self.draws_anew or torch.equal(*chosen), chosen

    @property
    def draws_anew(self) -> bool:
        """Whether a loaded bandit draws otherwise today: a law of test_state.py."""
        return self.of.rule in DRAWING and self.of.kernel == "linear" and self.of.dictionary != "none"


def says_what_to_do(message: str) -> bool:
    """Whether a message ends in an imperative."""
    return re.search(r"(?i)(: |\. |or |and )(give|use|take|leave out) ", message) is not None

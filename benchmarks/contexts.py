"""EK-UCB as it comes, with ``LearnedPrior()``, on data sets that become bandits, beside what is used; what fits cost.

Defaults and what peers are tuned by were chosen on digits, diamonds, diabetes, interactions and clicks, seeds 0 to 3:
λ = 1, α = 0.25 of LinUCB, 0.1 of linear and 0.25 of logistic Thompson sampling, ε = 0.02 of boosted trees. The others
judge, each change once on fresh seeds: 10 to 14; the level of each action 30 to 34; fits that start anew at a bound 40
to 42; a length scale of a context that grows with the root of its columns 50 to 54, chosen on nine others, see the
record, which says what else was tried.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from sklearn import datasets
from sklearn.ensemble import GradientBoostingRegressor
from tqdm import tqdm
from typing_extensions import override

from benchmarks.references import Array, Rows
from benchmarks.replay_data import data_frame
from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, kinds, mean_and_error, spread, values
from torch_kbandits import LearnedPrior, algorithms


class Problem(NamedTuple):
    """Contexts (n, c), actions (A, a) and their mean rewards (n, A); rewards are drawn 0 or 1, or are their means."""

    contexts: Array
    actions: Array
    means: Array
    is_drawn: bool = False


def labels(contexts: Any, names: Any) -> Problem:
    """Return a problem in which an action names a class, with a reward of 1 for the right one."""
    places = np.unique(np.asarray(names, dtype=str), return_inverse=True)[1]
    eye = np.eye(places.max() + 1)
    return Problem(_standardized(contexts), eye, eye[places])


def levels(contexts: Any, numbers: Any) -> Problem:
    """Return a problem in which an action is one of five levels of a number, which costs what it is off."""
    numbers = _standardized(numbers)
    actions = np.quantile(numbers, (np.arange(5) + 0.5) / 5)
    return Problem(_standardized(contexts), actions[:, None], -np.abs(numbers[:, None] - actions))


def interactions(seed: int) -> Problem:
    """Return draws of 0 or 1 whose chances are linear in the context, for each action in its own way."""
    generator = np.random.default_rng(900 + seed)
    contexts = generator.normal(size=(4_000, 5))
    slopes = generator.normal(size=(5, 6)) / 5**0.5
    heights = contexts @ slopes + 0.5 * generator.normal(size=6)
    return Problem(contexts, np.eye(6), np.clip(0.5 + 0.25 * heights, 0.05, 0.95), True)


def clicks(seed: int) -> Problem:
    """Return draws of 0 or 1, about 0.1 of them 1, logistic in the context and in what three kinds of actions like."""
    generator = np.random.default_rng(700 + seed)
    contexts = generator.normal(size=(4_000, 8))
    tastes, kinds_of = generator.normal(size=(8, 3)) / 8**0.5, generator.normal(size=(8, 3))
    common = contexts @ generator.normal(size=8) / 8**0.5
    heights = 0.6 * common[:, None] + 1.35 * contexts @ tastes @ kinds_of.T / 3**0.5
    heights = heights - 2.9 + 0.3 * generator.normal(size=8)
    return Problem(contexts, np.eye(8), 1.0 / (1.0 + np.exp(-heights)), True)


def _standardized(columns: Any) -> Array:
    columns = np.asarray(columns, dtype=np.float64)
    spread = columns.std(0)
    return (columns - columns.mean(0)) / np.where(spread > 0.0, spread, 1.0)


def _frame(package: str, item: str, target: str, most: int = 6_000) -> tuple[Array, Any]:
    """Return a data set of R as numbers, categories as columns of 0 and 1, and the column that is to be told."""
    import pandas

    frame = data_frame(package, item).dropna()
    frame = frame.sample(min(most, len(frame)), random_state=0)
    return pandas.get_dummies(frame.drop(columns=target)).to_numpy(np.float64), frame[target].to_numpy()


def _digits() -> Problem:
    images, names = map(np.asarray, datasets.load_digits(return_X_y=True))
    pixels = images - images.mean(0)
    return labels(pixels @ np.linalg.svd(pixels, full_matrices=False)[2][:20].T, names)


def _wages() -> Problem:
    contexts, wages = _frame("AER", "CPS1988", "wage")
    return levels(contexts, np.log(wages))


def _spam() -> Problem:
    shares, names = _frame("DAAG", "spam7", "yesno")
    return labels(np.log1p(shares), names)


TUNED = ("digits", "diamonds", "diabetes", "interactions", "clicks")

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "digits": _digits,
    "diamonds": lambda: labels(*_frame("ggplot2", "diamonds", "cut")),
    "diabetes": lambda: levels(*datasets.load_diabetes(return_X_y=True)),
    "wine": lambda: labels(*datasets.load_wine(return_X_y=True)),
    "glass": lambda: labels(*_frame("MASS", "fgl", "type")),
    "wages": _wages,
    "spam": _spam,
    "votes": lambda: labels(*_frame("carData", "Chile", "vote")),
    "breast cancer": lambda: labels(*datasets.load_breast_cancer(return_X_y=True)),
}
DRAWN = {"interactions": interactions, "clicks": clicks}

_made = cache(lambda name: PROBLEMS[name]())


class Player(Protocol):
    """Plays one action in a context (c,), and is told its reward."""

    def ask(self, context: Array) -> int:
        """Return the place of an action."""
        ...

    def tell(self, context: Array, action: int, reward: float) -> None:
        """Learn a reward."""
        ...


class Stream(NamedTuple):
    """Rounds of a problem: contexts (T, c), and of each action its mean reward and what it brings, (T, A)."""

    problem: Problem
    contexts: Array
    means: Array
    rewards: Array

    def regret(self, chosen: Rows) -> float:
        """Return the regret of actions (T,) as a share of what random play expects."""
        best = self.means.max(1)
        lost = best - np.take_along_axis(self.means, chosen[:, None], 1)[:, 0]
        return float(lost.sum() / (best - self.means.mean(1)).sum())


def stream_of(name: str, seed: int, rounds: int) -> Stream:
    """Return rounds of a problem in random order, none of which comes again before all others did."""
    problem = DRAWN[name](seed) if name in DRAWN else _made(name)
    generator, number = np.random.default_rng(1_000 + seed), len(problem.contexts)
    order = np.concatenate([generator.permutation(number) for _ in range(-(-rounds // number))])[:rounds]
    means = problem.means[order]
    rewards = (generator.random(means.shape) < means).astype(np.float64) if problem.is_drawn else means
    return Stream(problem, problem.contexts[order], means, rewards)


def played(player: Player, stream: Stream, clock: Callable[[], float]) -> tuple[Rows, Array]:
    """Return the actions (T,) of a player that is told their rewards, and its seconds of ask and tell, (T, 2)."""
    number = len(stream.contexts)
    chosen, seconds = np.empty(number, dtype=np.int64), np.empty((number, 2))
    for t, context in enumerate(stream.contexts):
        began = clock()
        chosen[t] = player.ask(context)
        asked = clock()
        player.tell(context, int(chosen[t]), float(stream.rewards[t, chosen[t]]))
        seconds[t] = asked - began, clock() - asked
    return chosen, seconds


# ---------------------------------------------------------------- players


class Ours(Player):
    """A bandit on the actions of a problem."""

    def __init__(self, problem: Problem, seed: int, name: str = "ek-ucb", **words: Any) -> None:
        self._actions, dimension = torch.from_numpy(problem.actions), problem.contexts.shape[1]
        words = words or {"prior": LearnedPrior()}
        self.bandit = algorithms.build(name, candidates=self._actions, context_dim=dimension, seed=seed, **words)

    @override
    def ask(self, context: Array) -> int:
        action = self.bandit.ask(context=torch.from_numpy(context))
        return int((self._actions == action).all(-1).nonzero()[0])

    @override
    def tell(self, context: Array, action: int, reward: float) -> None:
        self.bandit.tell(self._actions[action, None], reward, context=torch.from_numpy(context))


class Linear(Player):
    """Ridge regressions on (1, context) with λ = 1, one for each action: LinUCB or Thompson sampling."""

    def __init__(self, problem: Problem, seed: int, width: float, *, is_drawn: bool = False) -> None:
        number, size = len(problem.actions), problem.contexts.shape[1] + 1
        self.width, self.is_drawn, self._random = width, is_drawn, np.random.default_rng(seed)
        self.covariances, self.sums = np.tile(np.eye(size), (number, 1, 1)), np.zeros((number, size))

    @override
    def ask(self, context: Array) -> int:
        x = np.append(1.0, context)
        means = np.einsum("acd,ad->ac", self.covariances, self.sums) @ x
        widths = self.width * np.sqrt(np.einsum("c,acd,d->a", x, self.covariances, x))
        scores = means + widths * (self._random.normal(size=len(means)) if self.is_drawn else 1.0)
        return int(self._random.choice(np.flatnonzero(scores >= scores.max() - 1e-12)))

    @override
    def tell(self, context: Array, action: int, reward: float) -> None:
        x = np.append(1.0, context)
        moved = self.covariances[action] @ x
        self.covariances[action] -= np.outer(moved, moved) / (1.0 + x @ moved)
        self.sums[action] += reward * x


class Logistic(Linear):
    """Thompson sampling of a logistic regression for each action, by Laplace's approximation, one reward at a time."""

    def __init__(self, problem: Problem, seed: int, width: float) -> None:
        super().__init__(problem, seed, width, is_drawn=True)
        self.weights = np.zeros_like(self.sums)

    @override
    def ask(self, context: Array) -> int:
        x = np.append(1.0, context)
        deviations = np.sqrt(np.einsum("c,acd,d->a", x, self.covariances, x))
        return int((self.weights @ x + self.width * deviations * self._random.normal(size=len(deviations))).argmax())

    @override
    def tell(self, context: Array, action: int, reward: float) -> None:
        x = np.append(1.0, context)
        moved, before = self.covariances[action] @ x, float(self.weights[action] @ x)
        variance, height = float(x @ moved), before
        for _ in range(20):  # Newton's steps along the one direction in which the reward moves the weights
            chance = 1.0 / (1.0 + np.exp(-height))
            slope = (height - before) / variance + chance - reward
            height -= slope / (1.0 / variance + chance * (1.0 - chance))
        chance = 1.0 / (1.0 + np.exp(-height))
        self.weights[action] += moved * (height - before) / variance
        curvature = chance * (1.0 - chance)
        self.covariances[action] -= curvature * np.outer(moved, moved) / (1.0 + curvature * variance)


class Boosted(Player):
    """Boosted trees on context and action, fitted again after every seventh more rewards; else, with ε, at random."""

    def __init__(self, problem: Problem, seed: int, share: float) -> None:
        self._actions, self._seed, self._share = problem.actions, seed, share
        self._random, self._model, self._next = np.random.default_rng(seed), None, 20
        self._points, self._rewards = list[Array](), list[float]()

    @override
    def ask(self, context: Array) -> int:
        if self._model is None or self._random.random() < self._share:
            return int(self._random.integers(len(self._actions)))
        scores = self._model.predict(np.stack([np.append(context, action) for action in self._actions]))
        return int(self._random.choice(np.flatnonzero(scores >= scores.max() - 1e-12)))

    @override
    def tell(self, context: Array, action: int, reward: float) -> None:
        self._points.append(np.append(context, self._actions[action]))
        self._rewards.append(reward)
        if len(self._rewards) >= self._next:
            model = GradientBoostingRegressor(n_estimators=60, max_depth=3, random_state=self._seed)
            self._model = model.fit(np.stack(self._points), self._rewards)
            self._next = int(1.15 * self._next) + 5


def _squared(problem: Problem) -> Problem:
    """Return a problem in which numbers as actions have their squares beside them, since rewards bend there."""
    actions = problem.actions
    return problem if actions.shape[1] > 1 else problem._replace(actions=np.concatenate([actions, actions**2], axis=1))


PLAYERS: dict[str, Callable[[Problem, int], Player]] = {
    "EK-UCB, LearnedPrior()": Ours,
    "LinUCB": lambda problem, seed: Linear(problem, seed, 0.25),
    "LinUCB, shared": lambda problem, seed: Ours(_squared(problem), seed, "shared-lin-ucb", beta=0.25),
    "linear TS": lambda problem, seed: Linear(problem, seed, 0.1, is_drawn=True),
    "logistic TS": lambda problem, seed: Logistic(problem, seed, 0.25),
    "boosted trees": lambda problem, seed: Boosted(problem, seed, 0.02),
}
_FIXED = "best fixed action"


@benchmark(problems=("wine",), rounds=25, seeds=(0, 1))
def contexts(
    parts: Parts,
    problems: Sequence[str] = ("wine", "glass", "wages", "spam", "votes", "breast cancer"),
    rounds: int = 500,
    seeds: Sequence[int] = (50, 51, 52, 53, 54),
) -> Found:
    """Measure the regret of each player as a share of that of random play; seeds come last, so that a run may stop."""
    players = (*PLAYERS, _FIXED)
    found = [
        parts.measured({"problem": name, "seed": seed, "player": player}, partial(_share, name, seed, player, rounds))
        for seed, name, player in tqdm([*product(seeds, problems, players)], "contexts")
    ]
    there, rows = kinds(found, "problem"), [list[list[str]]() for _ in range(3)]
    for player in players:
        regrets, ours = ([values(found, "regret", problem=p, player=q) for p in there] for q in (player, players[0]))
        for each in (regrets, ours):
            each.append(np.mean(each, axis=0).tolist())
        less = [np.subtract(*pair).tolist() for pair in zip(ours, regrets, strict=True)]
        times = [values(found, "seconds", problem=each, player=player) for each in there]
        rows[0].append([player, *(mean_and_error(each, 3) for each in regrets)])
        rows[1].append([player, *(mean_and_error(each, 3) for each in less)])
        rows[2].append([player, *(f"{1e3 * np.mean(each) / rounds:.2f}" for each in times)])
    titles = (
        f"Regret of {rounds} rounds as a share of random play's",
        f"{players[0]} less each, paired by seeds",
        "Processor milliseconds a round",
    )
    heads = [["player", *there, "all"]] * 2 + [["player", *there]]
    return [Table(*each) for each in zip(titles, heads, rows, strict=True)], found


def _share(name: str, seed: int, player: str, rounds: int) -> Measurement:
    """Return the regret of a player in some rounds, as a share of what random play expects, and its seconds."""
    stream = stream_of(name, seed, rounds)
    if player == _FIXED:
        chosen, seconds = np.full(rounds, stream.means.mean(0).argmax()), np.zeros(1)
    else:
        chosen, seconds = played(PLAYERS[player](stream.problem, seed), stream, time.process_time)
    return {"regret": stream.regret(chosen), "seconds": float(seconds.sum())}


# ---------------------------------------------------------------- what fits cost

#: How the prior is had; the known one is what was fitted in the end where each fit was in a ``tell``.
_PRIORS = {"fits in tell": LearnedPrior(), "fits in a thread": LearnedPrior(background=True), "known": None}


@benchmark(problems=("clicks",), rounds=14, seeds=1)
def context_fits(
    problems: Sequence[str] = ("digits", "diamonds", "clicks"), rounds: int = 1_000, seeds: int = 3
) -> Found:
    """Measure the rounds of EK-UCB with fits in ``tell``, in a thread, and without; nothing else should run."""
    found = list[Measurement]()
    for name, seed in tqdm([*product(problems, range(seeds))], "context_fits"):
        stream, known = stream_of(name, seed, rounds), None
        for which, prior in _PRIORS.items():
            player = Ours(stream.problem, seed, prior=prior or known, beta=1.0)
            chosen, seconds = played(player, stream, time.perf_counter)
            known = known or player.bandit.prior
            tells, whole = 1e3 * seconds[:, 1], 1e3 * seconds.sum(1)
            times = {"mean of a round": whole.mean(), "median of a round": np.median(whole)}
            times |= {"p99 of a tell": np.percentile(tells, 99), "largest of a tell": tells.max()}
            found.append({"problem": name, "seed": seed, "prior": which, "regret": stream.regret(chosen)} | times)
    columns = [entry for entry in found[0] if entry not in ("problem", "seed", "prior")]
    rows = [
        [name, prior, *(spread(values(found, column, problem=name, prior=prior)) for column in columns)]
        for name, prior in product(problems, _PRIORS)
    ]
    return [Table(f"Milliseconds of {rounds:,} rounds of EK-UCB", ["problem", "prior", *columns], rows)], found

"""Milliseconds of a round, an ask and the tell of its reward, by what is believed and what may be played.

    python -m benchmarks rounds --set against=../other-checkout only=BKB most_arms=1_000_000

plays the cases that have this in their names here and, in turns, with the package of another checkout in a process of
its own, and leaves blank what that cannot play. Nothing else should run.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

import torch_kbandits
from benchmarks.arm_bandits import BETA, OVERSAMPLING, REGULARIZATION, kernel
from benchmarks.runner import ROOT, Found, Measurement, Table, benchmark, chosen, kinds, product_ms, seconds_of, spread
from torch_kbandits import Arms, Bandit, Box, ConstantWidth, LearnedPrior, Outcome, Prior
from torch_kbandits.algorithms import BBKB, EKUCB
from torch_kbandits.bandit import GlobalBatchRule
from torch_kbandits.dictionaries import FixedDictionary, RidgeLeverageSampling
from torch_kbandits.memory import SlidingWindow

#: Of which rounds a row is, by what they did to the dictionary.
ANY, STAYS, GAINS, LOSES = CHANGES = ("any", "stays", "gains a point", "loses points")

#: Measures cases with the package of a folder; ``benchmarks`` are those of this checkout.
_SERVE = "import sys, benchmarks; sys.path.insert(0, sys.argv[1]); from benchmarks.rounds import serve; serve()"


#: The milliseconds of each round, and what returns the points that the model is at then.
Steps = Iterator[tuple[float, Callable[[], Any]]]


@dataclass(frozen=True)
class Case:
    """Rounds to time: what plays them, and how many do not count.

    Where the package keeps a table of ``arms``, a round is put beside the product of one, of a dtype, with a vector.
    """

    steps: Callable[[], Steps]
    first: int = 1
    arms: int = 0
    dtype: torch.dtype = torch.float64


@benchmark(arms=(10, 30, 40), most_arms=200, first=2, rounds=4, replays=(5, 10), example=False, repeats=2)
def rounds(
    arms: tuple[int, int, int] = (100, 2_000, 10_000),
    most_arms: int = 0,
    first: int = 300,
    rounds: int = 300,
    replays: tuple[int, ...] = (4_000, 16_000),
    example: bool = True,
    repeats: int = 3,
    against: str | None = None,
    only: str = "",
) -> Found:
    """Play the cases with names that contain ``only``, here and maybe with another checkout in turns.

    In contexts ten times as many rounds come before those that count, on a box a tenth is played; ten times as many
    rewards are told at once. Without ``most_arms`` single precision is left out.
    """
    sizes = {"arms": arms, "most_arms": most_arms, "first": first, "rounds": rounds}
    sizes |= {"replays": replays, "example": example}
    threads, found = torch.get_num_threads(), list[Measurement]()
    played = {name: case for name, case in cases(**sizes).items() if only in name}
    torch.set_num_threads(2)
    try:
        with nullcontext(lambda _: None) if against is None else _other(Path(against), sizes) as there:
            for name, _ in tqdm([*product(played, range(repeats))], "rounds"):
                found.append({"case": name, "here": measure(played[name]), "there": there(name)})
    finally:
        torch.set_num_threads(threads)
    return [_table(found, against is not None)], found


# -------------------------------------------------------------------- what is played


def cases(
    arms: Sequence[int], most_arms: int, first: int, rounds: int, replays: Sequence[int], example: bool
) -> dict[str, Case]:
    """Return what the package plays, by name."""
    few, some, many = map(_uniform, arms)
    found, on_few, on_many = dict[str, Case](), f"{len(few)} arms", f"{len(many):,} arms"

    def add(name: str, make: Callable[[], Bandit], arms: int = 0, first: int = first) -> None:
        found[name] = Case(partial(_rounds, make, first + rounds), first, arms)

    exact = partial(_bandit, Arms(few), 0.2)
    bkb = partial(_bandit, Arms(many), 0.12, dictionary=RidgeLeverageSampling(OVERSAMPLING))
    window = partial(exact, memory=SlidingWindow(len(few)))
    fresh = f"BKB, {on_many}, fresh, length scale 0.12"
    for name, make in ((f"exact, {on_few}", exact), (f"window of {len(few)}, {on_few}", window), (fresh, bkb)):
        add(name, make)
        add(f"{name}, LearnedPrior", partial(make, prior=LearnedPrior()))
        add(f"{name}, an outcome", partial(make, outcomes=[Outcome("cost", _prior(make.args[1]))]))
        add(f"{name}, in batches", partial(make, batches=GlobalBatchRule()))
    for scale, resampling in product((0.12, 0.025), ("fresh", "coupled", "growth")):
        make = partial(_bandit, Arms(many), scale, dictionary=RidgeLeverageSampling(OVERSAMPLING, resampling))
        add(f"BKB, {on_many}, {resampling}, length scale {scale}", make, len(many))
    words: dict[str, Any] = {"regularization": REGULARIZATION, "beta": BETA, "seed": 0}
    add(f"BBKB, {len(some):,} arms", partial(BBKB, candidates=some, kernel=kernel(0.1), **words), len(some))
    box, tenth = Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)), max(1, rounds // 10)
    found["exact, on a box"] = Case(partial(_rounds, partial(_bandit, box, 0.2), 2 * tenth), tenth)
    for scale in (1.2, 0.7):
        words |= {"regularization": 1.0, "beta": 0.1, "kernel": kernel(scale)}
        make = partial(EKUCB, context_dim=3, action_dim=3, **words)
        add(f"EK-UCB, 10 actions, length scale {scale}", make, first=10 * first)
    told = partial(_told, bkb, many, 10 * rounds)
    found[f"{10 * rounds:,} rewards told at once, BKB, {on_many}"] = Case(told)
    for number in replays:
        found[f"a round of {number:,} replayed, exact, {on_few}"] = Case(partial(_replayed, exact, number), 0)
    for state, starts in (("empty", 1), ("warm", 2)) if example else ():
        found[f"README's first example, a process, {state} cache of loops"] = Case(partial(_example, starts), 0)
    if most_arms:
        steps = partial(_rounds, partial(_in_single_precision, most_arms), 2 * tenth)
        found[f"100 points, {most_arms:,} arms, single"] = Case(steps, tenth, most_arms, torch.float32)
    return found


def reward(X: Tensor, context: Tensor | None = None) -> Tensor:
    """Return mean rewards (q,) of arms X (q, d), or of actions X (q, c) in a context (c,)."""
    return torch.sin(7.0 * X).sum(-1) if context is None else torch.exp(-(context - X).square().sum(-1))


def offered(t: int) -> dict[str, Tensor]:
    """Return the context (3,) and the ten actions (10, 3) of a round."""
    drawn = torch.rand(11, 3, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
    return {"context": drawn[0], "candidates": drawn[1:]}


def _uniform(number: int) -> Tensor:
    return torch.rand(number, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _prior(lengthscale: float, dtype: torch.dtype = torch.float64) -> Prior:
    return Prior(kernel(lengthscale, dtype), REGULARIZATION)


def _bandit(candidates: Any, lengthscale: float, **words: Any) -> Bandit:
    words = {"prior": _prior(lengthscale), "width": ConstantWidth(BETA), "seed": 0} | words
    return Bandit(candidates=candidates, **words)


def _in_single_precision(number: int) -> Bandit:
    arms = torch.rand(number, 6, generator=torch.Generator().manual_seed(0))
    return _bandit(Arms(arms), 0.5, prior=_prior(0.5, arms.dtype), dictionary=FixedDictionary(arms[:100]))


def _rounds(make: Callable[[], Bandit], rounds: int) -> Steps:
    bandit, generator = make(), torch.Generator().manual_seed(1)
    outcomes: dict[str, Any] = {"outcomes": {"cost": 0.5}} if bandit.outcomes else {}
    for t in range(rounds):
        given: dict[str, Any] = offered(t) if bandit.candidates.is_contextual else {}
        told = outcomes | {name: given[name] for name in given if name == "context"}
        start = time.perf_counter()
        x = bandit.ask(**given)
        asked = time.perf_counter() - start
        y = reward(x, given.get("context")) + 0.1 * torch.randn(1, generator=generator, dtype=x.dtype)
        start = time.perf_counter()
        bandit.tell(x, y, **told)
        yield 1e3 * (asked + time.perf_counter() - start), lambda: bandit.inducing_points


def _told(make: Callable[[], Bandit], arms: Tensor, number: int) -> Steps:
    rows = torch.randint(len(arms), (number,), generator=torch.Generator().manual_seed(1))
    for bandit in (make() for _ in range(3)):
        tell = partial(bandit.tell, arms[rows], reward(arms[rows]))
        yield 1e3 * seconds_of(tell), partial(getattr, bandit, "inducing_points")


def _replayed(make: Callable[[], Bandit], rounds: int) -> Steps:
    played, bandit = make(), make()
    for _ in _rounds(lambda: played, rounds):
        pass
    replay = partial(bandit.replay, played.history)
    yield 1e3 * seconds_of(replay) / rounds, lambda: bandit.inducing_points


def _example(starts: int) -> Steps:
    """Run README's first example so many times with one cache of loops, empty at first, and yield the last."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    folder = Path(torch_kbandits.__file__).parents[1]
    with TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache}
        words = {"cwd": folder, "env": environment, "check": True, "capture_output": True}
        play = partial(subprocess.run, [sys.executable, "-c", code], **words)
        *_, last = [seconds_of(play) for _ in range(starts)]
        yield 1e3 * last, tuple


# -------------------------------------------------------------------- how it is measured and shown


def measure(case: Case) -> dict[str, Any]:
    """Return the milliseconds of the rounds that count, by what they did to the dictionary, and its size in the end.

    Who looks at a dictionary may disturb what is timed: for that the same rounds are played once more. What is put off
    until somebody looks is in the last round.
    """
    steps = case.steps()
    for _, look in islice(steps, case.first):
        look()
    times = list(steps)
    start = time.perf_counter()
    points = len(times[-1][1]())
    rounds = {ANY: [ms for ms, _ in times]}
    rounds[ANY][-1] += 1e3 * (time.perf_counter() - start)
    if not case.arms:
        return {"rounds": rounds, "points": points}
    held = set[tuple[float, ...]]()
    for number, (_, look) in enumerate(case.steps(), -case.first):
        before, held = held, set(map(tuple, look().tolist()))
        if number >= 0:
            change = LOSES if before - held else GAINS if held - before else STAYS
            rounds.setdefault(change, []).append(rounds[ANY][number])
    return {"rounds": rounds, "points": points, "product_ms": product_ms(case.arms, points, case.dtype)}


def serve() -> None:
    """Measure the cases whose names come in, a line each; null for one that cannot be played."""
    torch.set_num_threads(2)
    known, out, sys.stdout = cases(**json.loads(sys.argv[2])), sys.stdout, sys.stderr
    for name in sys.stdin:
        try:
            found = measure(known[name.rstrip("\n")])
        except Exception as error:  # whatever it is: it cannot play that
            found = print(f"{name.rstrip()}: {error!r}")
        print(json.dumps(found), file=out, flush=True)


@contextmanager
def _other(folder: Path, sizes: dict[str, Any]) -> Iterator[Callable[[str], dict[str, Any] | None]]:
    command = [sys.executable, "-W", "ignore", "-c", _SERVE, str(folder.resolve()), json.dumps(sizes)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def there(name: str) -> dict[str, Any] | None:
            print(name, file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]

        yield there


def _table(found: list[Measurement], compares: bool) -> Table:
    rows, median = [], statistics.median
    for name, change in product(kinds(found, "case"), CHANGES):
        here, there = ([run[at] for run in chosen(found, case=name) if run[at]] for at in ("here", "there"))
        ours, theirs = ([run["rounds"][change] for run in runs if change in run["rounds"]] for runs in (here, there))
        if ours:
            mean, points = median(map(statistics.fmean, ours)), median(run["points"] for run in here)
            products = [run["product_ms"] for run in here if "product_ms" in run]
            row = [name, f"{points:.0f}", change, *_shown(ours), f"{mean / median(products):.1f}" if products else ""]
            ratio = f"{median(map(statistics.fmean, theirs)) / mean:.2f}" if theirs else ""
            rows.append(row + ([*_shown(theirs), ratio] if compares else []))
    columns = ["case", "points", "dictionary", "mean, ms", "median, ms", "mean / product"]
    columns += ["there, mean", "there, median", "there / here, means"] if compares else []
    return Table("A round, or what is said: median (least–most) of runs, two threads", columns, rows)


def _shown(runs: list[list[float]]) -> list[str]:
    """Return what rounds of runs take in the mean and in the median."""
    return [spread([*map(of, runs)], 3) if runs else "" for of in (statistics.fmean, statistics.median)]

"""What a bandit does depends on what it was told alone: not on torch's modes and defaults, nor on other threads."""

import ast
import os
import sys
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from pathlib import Path
from pickle import dumps, loads
from threading import Barrier, Thread

import pytest
import torch
from problems import DOUBLE, difference, on_a_cube, rbf, reward
from test_algorithms import BOUNDS, NAMES, make

import torch_kbandits
from torch_kbandits import Bandit, Box, ContextualActions, algorithms
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.numerics.random import Lock, seeded

NEEDS_INTO = {"sparq-gp-ucb"}
SMALL_BOX = Box(BOUNDS, num_restarts=2, raw_samples=16)


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SURROUNDINGS = {
    "none": nullcontext,
    "another default dtype": lambda: default_dtype(DOUBLE),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "another default device": lambda: torch.device("meta"),
}


def fitted(num_initial=3):
    return on_a_cube(num_initial=num_initial)


def built(case, kernel):
    """A bandit on arms, on a box or with actions of its own, by the name of the algorithm."""
    if case.startswith("fitted"):
        return fitted(*map(int, case.split()[1:]))
    name, _, kind = case.partition(" ")
    if kind == "box":
        few = {"discretization_size": 64} if name == "gp-ts" else {}
        return make(name, candidates=SMALL_BOX, kernel=kernel, **few)
    if kind == "contexts":
        return make(name, candidates=ContextualActions(BOUNDS.mean(1, keepdim=True), context_dim=1), kernel=kernel)
    return make(name, kernel=kernel)


def play_in(surroundings, case, rounds=5, folder=None):
    """Play every call in the next of the surroundings; saved in one and loaded in the next where there is a folder."""
    calls, kernel = iter([name for name in surroundings for _ in range(2)] * 9), rbf(0.3)

    def call(function, *arguments):
        with SURROUNDINGS[next(calls)]():
            return function(*arguments)

    bandit, asked = call(built, case, kernel), []
    for number in range(rounds):
        x = call(bandit.ask, 2 if number == 1 else 1)
        call(bandit.tell, x, reward(x))
        asked.append(x)
        if folder is not None and number == 2 and case not in NEEDS_INTO:
            call(bandit.save, folder / "bandit.kb")
            bandit = call(type(bandit).load, folder / "bandit.kb")
    return torch.cat([*asked, call(bandit.recommend), call(bandit.ask)]), bandit


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    "case", [*NAMES, "fitted 3", pytest.param("bkb box", marks=pytest.mark.slow), "gp-ucb box", "gp-ts box"]
)
def test_modes_and_defaults_of_torch_change_no_choice(case, tmp_path):
    expected, _ = play_in(["none"], case)
    found, bandit = play_in([*SURROUNDINGS], case, folder=tmp_path)
    # A box is searched by gradients, which amplify the rounding of another order of computation after loading.
    assert difference(found, expected) <= (1e-3 if case.endswith("box") else 0.0)
    assert not any(part.is_inference() for part in (found, bandit.history.X, bandit.history.Y, bandit.pending))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", ["ek-ucb", "igp-ucb", "gp-ei", "bkb", "gp-ucb box"])
def test_what_was_told_in_inference_mode_can_be_differentiated(case):
    _, bandit = play_in(["inference"], case)
    X = BOUNDS.mean(0).reshape(1, 1, 2).requires_grad_()
    bandit.acquisition()(X).sum().backward()
    assert bool(torch.isfinite(X.grad).all())


def calls_of(names):
    """All calls of functions of torch with these names in the package: file, line, name and keywords."""
    for path in sorted(Path(torch_kbandits.__file__).parent.rglob("*.py")):
        text = path.read_text()
        mentioned = any(f"torch.{name}(" in text for name in names)
        for node in ast.walk(ast.parse(text)) if mentioned else ():
            function = node.func if isinstance(node, ast.Call) else None
            if (
                isinstance(function, ast.Attribute)
                and function.attr in names
                and ast.unparse(function.value) == "torch"
            ):
                yield f"{path.name}:{node.lineno}", function.attr, {keyword.arg for keyword in node.keywords}


def test_every_draw_says_where_and_in_which_precision():
    """So nothing of the package, bandit or not, draws something else under another default."""
    needed = {name: {"device", "dtype"} for name in ("rand", "randn", "normal")}
    needed |= {"randint": {"device"}, "randperm": {"device"}}
    found = list(calls_of([*needed, "zeros", "ones", "eye", "linspace"]))
    assert sum(name in needed for _, name, _ in found) > 40
    for place, name, keywords in found:
        if name in needed:
            assert None in keywords or needed[name] <= keywords, place
        else:
            assert "dtype" in keywords, place


# ---------------------------------------------------------------- threads


@contextmanager
def switching():
    """Threads take turns as often as Python allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(*functions):
    """Run functions at once; raise what one of them raises."""
    errors, start = [], Barrier(len(functions))

    def run(function):
        try:
            start.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(function,)) for function in functions]
    with switching():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


ONE_BANDIT = {
    "arms": lambda: make("bkb"),
    "exact": lambda: make("igp-ucb"),
    "window": lambda: make("bkb", memory=SlidingWindow(5)),
    "adaptive": lambda: make("et-gp-ucb"),
    "actions": lambda: make("ek-ucb", candidates=ContextualActions(BOUNDS, context_dim=0)),
    "box": lambda: make("bkb", candidates=SMALL_BOX),
    "fitted": lambda: fitted(4),
}


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(7)
@pytest.mark.parametrize("kind", ONE_BANDIT)
def test_two_threads_on_one_bandit_see_rounds_in_some_order(kind):
    """Ids are given once, nothing told is lost, and who is told the same in that order goes on in the same way."""
    bandit, ids = ONE_BANDIT[kind](), []
    rounds = 3 if kind in ("fitted", "box") else 12

    def work():
        for _ in range(rounds):
            asked = bandit.ask(return_ids=True)
            ids.extend(asked.ids)
            bandit.tell(ids=asked.ids, y=reward(asked.actions))
            assert len(bandit.history.X) <= bandit.num_told

    in_threads(work, work)
    assert sorted(ids) == list(range(2 * rounds))
    assert bandit.num_told == 2 * rounds
    assert bandit.pending_ids == ()
    assert torch.equal(bandit.history.Y, reward(bandit.history.X[:, -2:]))
    replayed = ONE_BANDIT[kind]()
    replayed.replay(bandit.history)
    assert difference(replayed.ask(), bandit.ask()) <= (1e-3 if kind == "box" else 0.0)


@pytest.mark.usefixtures("short_searches")
def test_two_bandits_in_two_threads_play_as_they_do_alone():
    """Also where their searches seed torch's global generator, which is in the end as it was."""

    def run(seed, into):
        bandit = make("gp-ucb", candidates=SMALL_BOX, seed=seed)
        for _ in range(4):
            x = bandit.ask()
            bandit.tell(x, reward(x))
        into[seed] = bandit.history.X

    alone, beside = {}, {}
    for seed in (0, 1):
        run(seed, alone)
    before = torch.get_rng_state()
    in_threads(lambda: run(0, beside), lambda: run(1, beside))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(beside[seed], alone[seed]) for seed in (0, 1))


def test_the_global_generator_is_seeded_by_one_thread_at_a_time():
    drawn = {}

    def draw(seed):
        with seeded(seed):
            drawn[seed] = torch.stack([torch.rand(3) for _ in range(200)])

    draw(0)
    draw(1)
    expected, before = dict(drawn), torch.get_rng_state()
    in_threads(lambda: draw(0), lambda: draw(1))
    assert all(torch.equal(drawn[seed], expected[seed]) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_process_that_is_forked_does_not_wait_for_a_lock_held_before():
    lock, read, write = Lock(), *os.pipe()
    taken, done = Barrier(2), Barrier(2)

    def hold():
        with lock.held:
            taken.wait()
            done.wait()

    holder = Thread(target=hold)
    holder.start()
    taken.wait()
    if (child := os.fork()) == 0:
        os.write(write, b"free" if lock.held.acquire(blocking=False) else b"held")
        os._exit(0)
    os.waitpid(child, 0)
    done.wait()
    holder.join()
    assert os.read(read, 4) == b"free"


# ---------------------------------------------------------------- copies


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(16)
@pytest.mark.parametrize("kind", ["bkb", "igp-ucb", "bkb contexts", "gp-ts box", "et-gp-ucb", "fitted 10"])
@pytest.mark.parametrize(
    "copied", [copy, deepcopy, lambda bandit: loads(dumps(bandit))], ids=["copy", "deep", "pickle"]
)
def test_a_copy_goes_its_own_way(kind, copied):
    words = {"context": BOUNDS[0, :1]} if kind.endswith("contexts") else {}

    def go_on(bandit, rounds, sign=1.0):
        asked = []
        for _ in range(rounds):
            x = bandit.ask(**words)
            bandit.tell(x, sign * reward(x), **words)
            asked.append(x)
        return torch.cat(asked)

    bandit, untouched = built(kind, rbf(0.3)), built(kind, rbf(0.3))
    for each in (bandit, untouched):
        go_on(each, 4)
        each.ask(**words)
    other = copied(bandit)
    assert type(other) is type(bandit)
    assert torch.equal(other.pending, bandit.pending)
    go_on(other, 3, sign=-1.0)
    assert bandit.num_told == 4
    assert torch.equal(go_on(bandit, 3), go_on(untouched, 3))
    assert torch.equal(go_on(copied(bandit), 2), go_on(bandit, 2))


def test_a_bandit_class_of_ones_own_is_as_undisturbed():
    class Counting(algorithms.BKB):
        """Counts what was asked, in two steps that another thread could come between."""

        count = 0

        def ask(self, *args, **kwargs):
            """See ``Bandit.ask``."""
            count = self.count
            asked = super().ask(*args, **kwargs)
            self.count = count + 1
            return asked

        @property
        def is_usual(self):
            return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    bandit = Counting(candidates=make("bkb").candidates, kernel=rbf(0.3), regularization=0.05, beta=2.0, seed=0)
    in_threads(*[lambda: [bandit.ask() for _ in range(8)]] * 2)
    assert bandit.count == 16 == bandit.num_asked
    with torch.inference_mode():
        assert bandit.is_usual
    assert isinstance(bandit, Bandit)

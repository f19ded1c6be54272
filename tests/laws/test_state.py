"""What a bandit does is a function of its configuration, seed, history and pending points, and of nothing else."""

import ast
import io
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from pathlib import Path
from pickle import dumps, loads
from threading import Barrier, Thread

import pytest
import torch
from kinds import ARMS, KINDS, SMALL_BOX, future, known, make, play, points, same, started
from problems import DOUBLE, data, difference, linear, rbf, reward

import torch_kbandits
from torch_kbandits import Arms, Bandit, ConstantWidth, RidgeLeverageSampling, algorithms
from torch_kbandits.acquisition import ThompsonRule

pytestmark = pytest.mark.usefixtures("short_searches")
every_kind = pytest.mark.parametrize("name", KINDS)


@pytest.mark.one_in(9)
@every_kind
def test_loaded_replayed_and_copied_bandits_go_on_as_the_original(name, tmp_path):
    kind = KINDS[name]
    bandit, from_state = started(kind), kind.make()
    file = io.BytesIO()
    torch.save(bandit.state_dict(), file)
    file.seek(0)
    play(kind, from_state, 2)  # what it knew is replaced
    from_state.load_state_dict(torch.load(file, weights_only=True))
    bandit.save(tmp_path / "bandit.kb")
    loaded = Bandit.load(tmp_path / "bandit.kb", into=None if kind.loads else kind.make())
    assert type(loaded) is type(bandit)
    twins, expected = {"state": from_state, "file": loaded}, future(kind, deepcopy(bandit))
    if not kind.tolerance:  # a search takes long
        twins |= {"copy": copy(bandit), "pickle": loads(dumps(bandit)) if kind.loads else deepcopy(bandit)}
    for way, twin in twins.items():
        assert same(twin.state_dict(), bandit.state_dict()), way
        assert (twin.round, twin.pending_ids, twin.memory) == (bandit.round, bandit.pending_ids, bandit.memory)
        assert difference(known(kind, twin), known(kind, bandit)) < 1e-6
        assert difference(future(kind, twin), expected) <= kind.tolerance, way
    assert same(started(kind).state_dict(), bandit.state_dict())  # what copies learned reached nobody else
    if kind.replays:
        replayed = kind.make()
        replayed.replay(bandit.history)
        bandit.forget()
        assert (replayed.num_since_restart, replayed.memory) == (bandit.num_since_restart, bandit.memory)
        ours, theirs = replayed.health(), bandit.health()
        if "sparq" not in name:  # whose predictions had answers of an expert, which no history has
            for word in ("residuals_since", "num_residuals", "coverage", "flagged_round", "slack_round"):
                assert getattr(ours, word) == getattr(theirs, word), word
            for word in ("recent_mean", "recent_spread", "log_evidence"):
                assert getattr(ours, word) == pytest.approx(getattr(theirs, word), rel=1e-5, abs=1e-6), word
        assert difference(future(kind, replayed), future(kind, bandit)) <= kind.tolerance


SCRIPT = """
import sys, torch; sys.path[:0] = sys.argv[2:]
from kinds import KINDS, future
from torch_kbandits import Bandit
for number, (name, kind) in enumerate(KINDS.items()):
    bandit = Bandit.load(f'{sys.argv[1]}/{number}', into=None if kind.loads else kind.make())
    torch.save(future(kind, bandit), f'{sys.argv[1]}/{number}.pt')
"""


@pytest.mark.slow
def test_a_new_process_goes_on_alike(tmp_path):
    for number, kind in enumerate(KINDS.values()):
        started(kind).save(tmp_path / str(number))
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, tmp_path, str(Path(__file__).parents[1])]
    subprocess.run(command, check=True, timeout=900)
    for number, (name, kind) in enumerate(KINDS.items()):
        theirs = torch.load(tmp_path / f"{number}.pt", weights_only=True)
        assert difference(theirs, future(kind, started(kind))) <= kind.tolerance, name


@pytest.mark.one_in(7)
@every_kind
def test_looking_and_what_is_forgotten_leave_no_trace_and_parts_are_the_whole(name):
    """Nor is torch's global generator any other."""
    kind = KINDS[name]
    bandit, calm = started(kind), started(kind)
    words, (first, *_) = kind.words(kind.rounds), bandit.pending_ids[-2:]
    torch.manual_seed(7)
    looked = points(bandit.ask(3, remember=False, **words))
    parts = torch.cat([points(bandit.ask(q, **words)) for q in (1, 2)])
    # The probability of improvement is so flat in places that a search may end elsewhere: there one point must do.
    assert difference(looked, parts) <= kind.tolerance
    assert len(bandit.pending) == len(calm.pending) + 3
    bandit.forget(ids=bandit.pending_ids[-3:])
    for each in (bandit.history.X, bandit.history.Y, bandit.pending, bandit.inducing_points):
        each.zero_()  # copies
    bandit.recommend(**words)
    state = torch.get_rng_state()
    torch.manual_seed(7)
    assert torch.equal(torch.get_rng_state(), state)
    known = bandit.state_dict()
    assert same(known, calm.state_dict() | {"num_asked": calm.num_asked + 3, "checksum": known["checksum"]})
    for each in (bandit, calm):
        each.tell(ids=first, **kind.told(each.pending[each.pending_ids.index(first), None], 1))
        assert first not in each.pending_ids
    assert difference(future(kind, bandit), future(kind, calm)) <= kind.tolerance


@contextmanager
def in_double_precision():
    torch.set_default_dtype(DOUBLE)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SURROUNDINGS = [nullcontext, in_double_precision, torch.no_grad, torch.inference_mode, lambda: torch.device("meta")]


@pytest.mark.needs("torch>=2.8")
@pytest.mark.one_in(7)
@every_kind
def test_modes_and_defaults_of_torch_change_no_choice(name, tmp_path):
    """Every call is made in the next of them: also those that make, save and load."""
    kind, calls = KINDS[name], 0

    def call(function, *args, **words):
        nonlocal calls
        calls += 1
        with SURROUNDINGS[calls // 2 % len(SURROUNDINGS)]():
            return function(*args, **words)

    expected = kind.make()
    bandit = call(kind.make)
    for number in range(5 if kind.rounds > 3 else 3):
        words = kind.words(number)
        ours, theirs = call(bandit.ask, 1 + number % 2, **words), expected.ask(1 + number % 2, **words)
        assert difference(points(ours), points(theirs)) <= kind.tolerance
        told = kind.told(bandit.pending, number)
        call(bandit.tell, ids=bandit.pending_ids, **told)
        expected.tell(ids=expected.pending_ids, **told)
        if number == 2 and kind.loads:
            call(bandit.save, tmp_path / "bandit.kb")
            bandit = call(Bandit.load, tmp_path / "bandit.kb")
    assert not any(part.is_inference() for part in (bandit.history.X, bandit.history.Y, bandit.pending))


@pytest.mark.parametrize("candidates", [ARMS, SMALL_BOX], ids=["arms", "box"])
def test_what_was_told_in_inference_mode_can_be_differentiated(candidates):
    with torch.inference_mode():
        bandit = make("bkb", candidates=candidates)
        x = bandit.ask(2)
        bandit.tell(x, reward(x))
    X = torch.full((1, 1, 2), 0.3, dtype=DOUBLE, requires_grad=True)
    bandit.acquisition()(X).sum().backward()
    assert bool(torch.isfinite(X.grad).all())


def test_draws_of_a_loaded_bandit_whose_dictionary_spans_more_than_it_needs():
    """A linear function of two columns: any two points span it, and which do depends on who came first."""
    words = {"candidates": Arms(data(100, 2, 1)[0]), "kernel": linear(), "regularization": 0.1, "seed": 0}
    words |= {"dictionary": RidgeLeverageSampling(2.0, "coupled"), "acquisition": ThompsonRule()}
    bandit, loaded = (Bandit(width=ConstantWidth(1.5), **words) for _ in range(2))
    for _ in range(12):
        x = bandit.ask()
        bandit.tell(x, reward(x))
        loaded.load_state_dict(bandit.state_dict())
        assert torch.equal(loaded.ask(9, remember=False), bandit.ask(9, remember=False))


def test_every_draw_says_where_and_in_which_precision():
    """So nothing of the package, bandit or not, draws something else under another default."""
    needed = {name: {"device", "dtype"} for name in ("rand", "randn", "normal")}
    needed |= {"randint": {"device"}, "randperm": {"device"}}
    needed |= {name: {"dtype"} for name in ("zeros", "ones", "eye", "linspace")}
    called, found = re.compile(rf"torch\.({'|'.join(needed)})\("), 0
    for path in sorted(Path(torch_kbandits.__file__).parent.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if called.search(text) else ():
            if isinstance(node, ast.Call) and (name := called.fullmatch(f"{ast.unparse(node.func)}(")):
                given, found = {keyword.arg for keyword in node.keywords}, found + 1
                assert None in given or needed[name[1]] <= given, f"{path.name}:{node.lineno}"
    assert found > 40


def test_what_is_asked_for_may_be_changed():
    played, calm = make("igp-ucb"), make("igp-ucb")
    played.run(lambda x: (x.sum().clone(), x.zero_())[0], 4)
    calm.run(lambda x: x.sum(), 4)
    assert torch.equal(played.history.X, calm.history.X)
    for q in (1, 3):
        x = played.ask(q)
        kept = x.clone()
        x.zero_()
        assert torch.equal(played.pending[-q:], kept)


def in_threads(*functions):
    """Run functions at once, which take turns as often as Python allows; raise what one of them raises."""
    start, before = Barrier(len(functions)), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(functions)) as pool:
            for done in [pool.submit(lambda function=each: (start.wait(), function())) for each in functions]:
                done.result()
    finally:
        sys.setswitchinterval(before)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["bkb", "igp-ucb", "dms-gp-ucb", "et-gp-ucb", "gp-ucb, box", "learned prior"])
def test_two_threads_on_one_bandit_see_rounds_in_some_order(name):
    """Ids are given once, nothing told is lost, and who is told the same in that order goes on in the same way."""
    kind, ids = KINDS[name], []
    bandit, rounds = kind.make(), 3 if kind.tolerance else 12

    def work():
        for _ in range(rounds):
            asked = bandit.ask(details=True)
            ids.extend(asked.ids)
            bandit.tell(ids=asked.ids, y=reward(asked.x))
            assert len(bandit.history.X) <= bandit.num_observations

    in_threads(work, work)
    assert sorted(ids) == list(range(2 * rounds))
    assert (bandit.num_observations, bandit.pending_ids) == (2 * rounds, ())
    assert torch.equal(bandit.history.Y, reward(bandit.history.X[:, -2:]))
    replayed = kind.make()
    replayed.replay(bandit.history)
    assert difference(replayed.ask(), bandit.ask()) <= kind.tolerance


def test_two_bandits_in_two_threads_play_as_they_do_alone():
    """Also where their searches seed torch's global generator, which is in the end as it was."""

    def run(seed, into):
        into[seed] = make("gp-ucb", candidates=SMALL_BOX, seed=seed).run(reward, 3)

    alone, beside = {}, {}
    run(0, alone)
    run(1, alone)
    before = torch.get_rng_state()
    in_threads(lambda: run(0, beside), lambda: run(1, beside))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(beside[seed], alone[seed]) for seed in (0, 1))


def test_a_process_that_is_forked_does_not_wait_for_a_lock_held_before():
    bandit, taken, done, (read, write) = make("bkb"), Barrier(2), Barrier(2), os.pipe()

    def pull(x):
        taken.wait()
        done.wait()
        return 1.0

    holder = Thread(target=bandit.run, args=(pull, 1))
    holder.start()
    taken.wait()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        os.write(write, b"free" if len(bandit.history.X) == 0 else b"told")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    done.wait()
    holder.join()
    assert os.read(read, 4) == b"free"


def test_a_bandit_class_of_ones_own_is_as_undisturbed():
    class Counting(algorithms.BKB):
        count = 0

        def ask(self, *args, **kwargs):
            count = self.count  # and another thread could come between
            asked = super().ask(*args, **kwargs)
            self.count = count + 1
            return asked

        @property
        def is_usual(self):
            return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    bandit = Counting(candidates=ARMS, kernel=rbf(0.3), regularization=0.05, beta=2.0, seed=0)
    in_threads(*[lambda: [bandit.ask() for _ in range(8)]] * 2)
    assert bandit.count == 16 == bandit.num_asked
    with torch.inference_mode():
        assert bandit.is_usual

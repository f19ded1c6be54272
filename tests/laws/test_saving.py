"""A bandit that was saved and loaded, here or in another process, goes on as the one that was not."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import gpytorch
import numpy as np
import pytest
import torch
from problems import DOUBLE, data, difference, on_a_cube, play, rbf, reward
from test_algorithms import ARMS, BOUNDS, CASES, NAMES, make

from torch_kbandits import (
    KDPP,
    KORS,
    ArmBlocks,
    Arms,
    ArmsChangedError,
    Bandit,
    Box,
    CappedDictionary,
    Category,
    ColumnSpec,
    ConstantWidth,
    ContextualActions,
    FixedDictionary,
    InputError,
    MappedArms,
    Number,
    RidgeLeverageSampling,
    ScaledWidth,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.bandit.adaptation import ResidualTrigger
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.confidence import GreedyGain, IGPUCBWidth, RateGain, SumGain
from torch_kbandits.memory import Discount, Quadratic, Restart, SlidingWindow, UncertaintyInjection

HERE = Path(__file__).parent
NEEDS_INTO = {"sparq-gp-ucb"}

IN_A_NEW_PROCESS = """
import sys, torch
from pathlib import Path
folder, *paths = sys.argv[1:]
sys.path[:0] = paths
from problems import play
from torch_kbandits import Bandit
for file in sorted(Path(folder).glob("*.kb")):
    if file.stem.startswith("sparq-gp-ucb"):
        from test_algorithms import make
        bandit = Bandit.load(file, into=make(*file.stem.split("+")))
    else:
        bandit = Bandit.load(file)
    rounds = 10 if file.stem.endswith("arms") else 2
    torch.save(play(bandit, rounds), file.with_suffix(".pt"))
"""


def save_and_load(bandit, folder, **words):
    bandit.save(folder / "bandit.kb")
    return Bandit.load(folder / "bandit.kb", **words)


def same(ours, theirs):
    """Whether two states have the same values."""
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize(
    ("domain", "names"),
    [("arms", NAMES[::8]), *(pytest.param(domain, NAMES, marks=pytest.mark.slow) for domain in ("arms", "box"))],
    ids=["arms, an eighth", "arms", "box"],
)
def test_every_algorithm_goes_on_in_a_new_process(domain, names, tmp_path):
    bandits = {name: make(name, domain) for name in names if (name, domain) in CASES}
    for name, bandit in bandits.items():
        if domain == "box":  # of fewer rewards improvement is equal all around a point
            bandit.tell(*data(9, 2, seed=4))
        play(bandit, 6 if domain == "arms" else 2)
        bandit.save(tmp_path / f"{name}+{domain}.kb")
    paths = [str(HERE), str(HERE.parent)]
    subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS, tmp_path, *paths], check=True, timeout=300)
    # Boxes are searched by gradients, which amplify the rounding of another order of computation.
    rounds, tolerance = (10, 0.0) if domain == "arms" else (2, 1e-3)
    for name, bandit in bandits.items():
        theirs = torch.load(tmp_path / f"{name}+{domain}.pt", weights_only=True)
        assert difference(theirs, play(bandit, rounds)) <= tolerance, name


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", NAMES)
def test_all_of_the_state_and_of_the_configuration_comes_back(name, tmp_path):
    bandit = make(name)
    play(bandit, 5)
    asked = bandit.ask(3)
    bandit.tell(asked[1:2], reward(asked[1:2]))
    into = {"into": make(name)} if name in NEEDS_INTO else {}
    loaded = save_and_load(bandit, tmp_path, **into)
    assert type(loaded) is type(bandit)
    assert vars(loaded).keys() == vars(bandit).keys()  # no constructor that is passed by gives more
    assert same(loaded.state_dict(), bandit.state_dict())
    assert loaded.pending_ids == bandit.pending_ids
    assert loaded.round == bandit.round
    assert torch.equal(loaded.ask(), bandit.ask())
    first = bandit.pending_ids[:1]
    for each in (bandit, loaded):
        each.tell(ids=first, y=0.5)
    assert torch.equal(loaded.ask(), bandit.ask())


def test_a_bandit_that_knows_nothing_is_saved(tmp_path):
    bandit = make("bkb")
    loaded = save_and_load(bandit, tmp_path)
    assert torch.equal(play(loaded, 5), play(bandit, 5))


def test_a_saved_file_is_saved_again_as_it_is(tmp_path):
    bandit = make("bbkb")
    play(bandit, 5)
    bandit.save(tmp_path / "one.kb")
    Bandit.load(tmp_path / "one.kb").save(tmp_path / "two.kb")
    assert (tmp_path / "one.kb").read_bytes() == (tmp_path / "two.kb").read_bytes()


DAY = 86_400.0
MEMORIES = {
    "window": SlidingWindow(6.0 * DAY),
    "observations": SlidingWindow(6, "observations"),
    "restart": Restart(7.0 * DAY),
    "discount": Discount(0.9 ** (1.0 / DAY), 1e-3),
    "injection": UncertaintyInjection(Quadratic(0.01 / DAY**2), max_variance=2.0),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    "dictionary", [pytest.param(None, id="exact"), pytest.param(KORS(3.0), id="kors", marks=pytest.mark.slow)]
)
def test_memories_and_dates(memory, dictionary, tmp_path):
    bandit = Bandit(
        candidates=Arms(ARMS),
        kernel=rbf(0.3),
        regularization=0.05,
        dictionary=dictionary,
        width=ConstantWidth(1.5),
        memory=MEMORIES[memory],
        seed=1,
    )
    days = [datetime(2024, 3, day, tzinfo=UTC) for day in range(1, 18)]
    for day in days[:9]:
        x = bandit.ask(time=day)
        bandit.tell(x, reward(x), time=day)
    loaded = save_and_load(bandit, tmp_path)
    with pytest.raises(InputError, match="backwards"):
        loaded.ask(time=days[0])
    with pytest.raises(InputError, match="times are dates with a time zone"):
        loaded.ask(time=1.0)
    for day in days[9:]:
        x, theirs = bandit.ask(time=day), loaded.ask(time=day)
        assert torch.equal(x, theirs)
        bandit.tell(x, reward(x), time=day)
        loaded.tell(x, reward(x), time=day)


def test_an_adaptive_bandit_with_a_trigger_and_memories(tmp_path):
    words = {"candidates": ARMS, "kernel": rbf(0.3), "regularization": 0.05, "horizon": 60, "beta": 1.0, "seed": 4}
    bandit = algorithms.BOBGPUCB(**words, block_size=5, reward_bounds=(-1.0, 1.0))
    play(bandit, 13)
    loaded = save_and_load(bandit, tmp_path)
    assert loaded.memory == bandit.memory
    assert loaded.memory_probabilities == bandit.memory_probabilities
    assert torch.equal(play(loaded, 9), play(bandit, 9))
    restarted = Bandit(
        candidates=Arms(ARMS),
        kernel=rbf(0.3),
        regularization=0.05,
        width=ConstantWidth(1.0),
        trigger=ResidualTrigger(0.5),
        seed=4,
    )
    play(restarted, 4)
    restarted.tell(restarted.ask(), 40.0)
    assert restarted.num_since_restart == 1
    loaded = save_and_load(restarted, tmp_path)
    assert loaded.num_since_restart == 1
    assert torch.equal(play(loaded, 5), play(restarted, 5))


def test_batches_keep_what_is_held_back(tmp_path):
    bandit = Bandit(
        candidates=Arms(ARMS),
        kernel=rbf(0.3),
        regularization=0.05,
        dictionary=RidgeLeverageSampling(3.0),
        width=ConstantWidth(1.5),
        batches=GlobalBatchRule(100.0),
        seed=2,
    )
    X = bandit.ask(None)
    bandit.tell(X[:2], reward(X[:2]))
    loaded = save_and_load(bandit, tmp_path)
    for each in (bandit, loaded):
        each.tell(X[2:], reward(X[2:]))
    assert torch.equal(loaded.ask(None), bandit.ask(None))


COLUMNS = ColumnSpec([Number("age", 0.0, 100.0), Category("city", ["Rome", "Paris"], other=True)])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["set", "rounds", pytest.param("box", marks=pytest.mark.slow), "rows"])
def test_contexts(kind, tmp_path):
    actions = {
        "set": {"actions": data(9, 2, seed=1)[0], "context_dim": 1},
        "rounds": {"action_dim": 2, "context_dim": 1, "row_memory": 1000},
        "box": {"bounds": BOUNDS, "context_dim": 1, "num_restarts": 2, "raw_samples": 16},
        "rows": {"actions": data(9, 2, seed=1)[0], "context_columns": COLUMNS},
    }[kind]
    words = {"kernel": rbf(0.5), "regularization": 0.1, "beta": 1.0, "seed": 0}
    bandit = algorithms.EKUCB(candidates=ContextualActions(**actions), **words)
    loaded = None
    for number in range(8):
        context = (
            {"age": 10.0 * number, "city": "Rome"} if kind == "rows" else torch.tensor([number / 12], dtype=DOUBLE)
        )
        offered = {"candidates": data(5, 2, seed=number)[0]} if kind == "rounds" else {}
        x = bandit.ask(context=context, **offered)
        if number == 4:
            bandit.forget()
            loaded = save_and_load(bandit, tmp_path)
            theirs = loaded.ask(context=context, remember=False, **offered)
            assert difference(theirs, x) <= (1e-3 if kind == "box" else 0.0)
        for each in (bandit, loaded):
            if each is not None:
                each.tell(x, reward(x), context=context)
    x = bandit.ask(context=context, **offered)
    assert difference(loaded.ask(context=context, **offered), x) <= (1e-3 if kind == "box" else 0.0)


WIDTHS = {
    "scaled": ScaledWidth(IGPUCBWidth(0.1, 1.0, 0.1, RateGain("rbf", dimension=2)), 0.3),
    "greedy": IGPUCBWidth(0.1, 1.0, 0.1, GreedyGain(rbf(0.4), ARMS, 30, 0.05)),
    "sum": IGPUCBWidth(0.1, 1.0, 0.1, SumGain([RateGain("rbf", dimension=1), RateGain("linear", dimension=2)])),
}
DICTIONARIES = {
    "capped": CappedDictionary(RidgeLeverageSampling(2.0, "coupled"), 8, "stop"),
    "fixed": FixedDictionary(ARMS[:7].clone()),
    "k-dpp": KDPP(6),
}


@pytest.mark.one_in(8)
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_pieces_within_pieces(width, dictionary, tmp_path):
    bandit = Bandit(
        candidates=Arms(ARMS, column_memory=0),
        kernel=rbf(0.4),
        regularization=0.05,
        dictionary=DICTIONARIES[dictionary],
        width=WIDTHS[width],
        seed=6,
    )
    play(bandit, 8)
    loaded = save_and_load(bandit, tmp_path)
    assert loaded.candidates.column_memory == 0
    assert torch.equal(loaded.beta, bandit.beta)
    assert torch.equal(play(loaded, 10), play(bandit, 10))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_arms_in_a_file_are_looked_for_where_they_were(dtype, tmp_path):
    file = tmp_path / "arms.npy"
    np.save(file, ARMS.numpy())
    bandit = algorithms.BKB(
        candidates=Arms(MappedArms(file, dtype)), kernel=rbf(0.3), regularization=0.05, beta=1.0, seed=0
    )
    play(bandit, 4)
    loaded = save_and_load(bandit, tmp_path)
    assert isinstance(loaded.candidates.source, MappedArms)
    assert torch.equal(play(loaded, 5), play(bandit, 5))
    np.save(file, ARMS.numpy() + 1.0)
    with pytest.raises(StateMismatchError, match=r"another configuration. candidates.arms"):
        Bandit.load(tmp_path / "bandit.kb")
    file.unlink()
    with pytest.raises(StateMismatchError, match=r"arms.npy cannot be mapped.*Bandit.load\(path, into=bandit\)"):
        Bandit.load(tmp_path / "bandit.kb")
    with pytest.raises(ArmsChangedError):
        bandit.ask()


class OwnKernel(gpytorch.kernels.RBFKernel):
    pass


class OwnBandit(Bandit):
    pass


def own_bandit(**words):
    return OwnBandit(candidates=Arms(ARMS), kernel=rbf(0.3), regularization=0.05, width=ConstantWidth(1.0), **words)


NOT_MADE_AGAIN = {
    "kernel": (lambda: make("bkb", kernel=OwnKernel().double()), "kernel: kernels of the class OwnKernel"),
    "part": (
        lambda: make("bkb", kernel=gpytorch.kernels.ScaleKernel(OwnKernel()).double()),
        "kernel: kernels of the class OwnKernel",
    ),
    "arms": (
        lambda: make("bkb", candidates=Arms(ArmBlocks(lambda number: ARMS[:30], 2))),
        "candidates.arms: objects of the class ArmBlocks",
    ),
    "expert": (lambda: make("sparq-gp-ucb"), "memories: objects of the class SparQCutoff"),
    "class": (lambda: own_bandit(seed=1), "the class OwnBandit is not known"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", NOT_MADE_AGAIN)
def test_what_cannot_be_made_again_is_loaded_into_one_made_as_it_was(what, tmp_path):
    build, message = NOT_MADE_AGAIN[what]
    bandit = build()
    play(bandit, 5)
    bandit.save(tmp_path / "bandit.kb")
    with pytest.raises(StateMismatchError, match=message) as caught:
        Bandit.load(tmp_path / "bandit.kb")
    assert "Make the bandit as it was and give it: Bandit.load(path, into=bandit)" in str(caught.value)
    twin = build()
    assert Bandit.load(tmp_path / "bandit.kb", into=twin) is twin
    assert torch.equal(play(twin, 5), play(bandit, 5))


def test_another_configuration_is_refused_and_named(tmp_path):
    bandit = make("bkb")
    play(bandit, 5)
    bandit.save(tmp_path / "bandit.kb")
    other = make("bkb", regularization=0.06, kernel=rbf(0.4))
    play(other, 3)
    before, expected = other.state_dict(), other.ask(remember=False)
    with pytest.raises(StateMismatchError, match=r"bandit.kb.*kernel.raw_lengthscale.*regularization: saved 0.05"):
        Bandit.load(tmp_path / "bandit.kb", into=other)
    assert same(other.state_dict(), before)
    assert torch.equal(other.ask(remember=False), expected)
    with pytest.raises(StateMismatchError, match="algorithm: saved BKB, here IGPUCB"):
        Bandit.load(tmp_path / "bandit.kb", into=make("igp-ucb"))


def test_a_class_loads_its_own_algorithm(tmp_path):
    make("bkb").save(tmp_path / "bandit.kb")
    assert type(algorithms.BKB.load(tmp_path / "bandit.kb")) is algorithms.BKB
    with pytest.raises(StateMismatchError, match=r"holds a BKB, and IGPUCB.load takes none: use BKB.load"):
        algorithms.IGPUCB.load(tmp_path / "bandit.kb")
    with pytest.raises(StateMismatchError, match=r"holds a BKB, and OwnBandit.load takes none"):
        OwnBandit.load(tmp_path / "bandit.kb")
    with pytest.raises(InputError, match="into must be a bandit, a IGPUCB, got BKB"):
        algorithms.IGPUCB.load(tmp_path / "bandit.kb", into=make("bkb"))
    with pytest.raises(InputError, match="Leave out device"):
        Bandit.load(tmp_path / "bandit.kb", into=make("bkb"), device="cpu")
    with pytest.raises(InputError, match="device='cuda:99' cannot be used here"):
        Bandit.load(tmp_path / "bandit.kb", device="cuda:99")
    assert isinstance(Bandit.load(tmp_path / "bandit.kb", device="cpu").candidates, Arms)


def test_boxes_keep_the_effort_of_their_search(tmp_path):
    bandit = algorithms.GPUCB(
        candidates=Box(BOUNDS, num_restarts=3, raw_samples=17), kernel=rbf(0.3), regularization=0.05, beta=1.0, seed=0
    )
    loaded = save_and_load(bandit, tmp_path)
    assert (loaded.candidates.num_restarts, loaded.candidates.raw_samples) == (3, 17)


@pytest.mark.parametrize("algorithm", ["ek-ucb", pytest.param("gp-ts", marks=pytest.mark.slow)])
def test_a_bandit_that_fits_its_kernel_goes_on(algorithm, tmp_path):
    memory = SlidingWindow(20, "observations")
    bandit = on_a_cube(1, algorithm=algorithm, num_initial=4, beta=1.5, memory=memory, seed=1)
    x = bandit.ask(4)
    bandit.tell(x, 10.0 + reward(x))
    pending = bandit.ask(2)
    bandit.save(tmp_path / "bandit.kb")
    loaded = Bandit.load(tmp_path / "bandit.kb")
    assert same(loaded.state_dict(), bandit.state_dict())
    assert torch.equal(loaded.pending, pending)
    for each in (bandit, loaded):  # which is fitted again after each of these
        each.tell(pending[:1], 10.0)
    assert torch.equal(loaded.ask(), bandit.ask())
    assert loaded.state_dict()["prior"]["number"] == 5


def test_a_cube_with_a_function_is_loaded_into_one_that_has_it(tmp_path, short_searches):
    def make_one():
        return on_a_cube(1, snap=lambda points: (points * 8.0).round() / 8.0, num_initial=3, seed=2)

    bandit = make_one()
    x = bandit.ask(4)
    bandit.tell(x, reward(x))
    bandit.save(tmp_path / "bandit.kb")
    with pytest.raises(StateMismatchError, match=r"snap: .*function.*Bandit.load\(path, into=bandit\)"):
        Bandit.load(tmp_path / "bandit.kb")
    loaded = Bandit.load(tmp_path / "bandit.kb", into=make_one())
    assert torch.equal(loaded.ask(), bandit.ask())


def test_numbers_of_numpy_and_views_of_large_tensors(tmp_path):
    many = data(5_000, 2)[0]
    bandit = algorithms.BKB(
        candidates=many[:50],
        kernel=rbf(0.3),
        regularization=np.float64(0.05),
        oversampling=np.float64(2.0),
        beta=np.float64(1.5),
        seed=0,
    )
    play(bandit, 4)
    loaded = save_and_load(bandit, tmp_path)
    assert torch.equal(play(loaded, 5), play(bandit, 5))
    assert (tmp_path / "bandit.kb").stat().st_size < 30_000


class Noted(Bandit):
    def state_dict(self):
        return super().state_dict() | {"notes": {"since": datetime(2024, 1, 1)}}


def test_a_state_of_more_than_tensors_numbers_and_strings_is_refused_before_anything_is_written(tmp_path):
    bandit = Noted(candidates=Arms(ARMS), kernel=rbf(0.3), regularization=0.05, width=ConstantWidth(1.0), seed=0)
    with pytest.raises(InputError, match=r"the content.state.notes.since is a datetime"):
        bandit.save(tmp_path / "bandit.kb")
    assert not list(tmp_path.iterdir())

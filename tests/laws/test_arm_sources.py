"""Arms in a file or in computed blocks are the arms of a tensor, read piece by piece, and stay what they were."""

import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, KERNELS, data, difference, linear, matern, play, rbf, reward

from torch_kbandits import (
    ArmBlocks,
    Arms,
    ArmsChangedError,
    Bandit,
    ConstantWidth,
    InputError,
    KernelUCB,
    MappedArms,
    RidgeLeverageSampling,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.candidates import TensorArms, Timed
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.looking.belief import recommended_point
from torch_kbandits.memory import BackToPrior, Discount, SlidingWindow
from torch_kbandits.numerics.waves import Waves
from torch_kbandits.tables.columns import KernelColumns
from torch_kbandits.tables.points import PointList

#: More arms than an exact posterior keeps the covariance of; two rows come twice.
MANY = torch.cat([data(700, 2)[0], data(700, 2)[0][[3, 0]]])
FEW = MANY[:60]


@pytest.fixture
def saved(tmp_path):
    """A function that writes arms to a file and maps it."""

    def save(arms, **words):
        path = tmp_path / f"arms-{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, arms.numpy() if isinstance(arms, torch.Tensor) else arms)
        return MappedArms(path, **words)

    return save


def in_blocks(arms, length):
    return ArmBlocks(lambda number: arms[number * length : (number + 1) * length], -(-len(arms) // length))


SOURCES = ["mapped", "blocks"]


def source_of(kind, arms, saved):
    return saved(arms) if kind == "mapped" else in_blocks(arms, 97)


def scramble(path):
    """Change a file, and the time at which it changed also where clocks are coarse."""
    array = np.load(path)
    np.save(path, array[::-1] + 0.125)
    os.utime(path, ns=(1, 1))


# ---------------------------------------------------------------- what is read


@given(
    size=st.integers(1, 15),
    d=st.integers(1, 3),
    length=st.integers(1, 18),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    block_bytes=st.sampled_from([1, 100, 2**22]),
    seed=st.integers(0, 10_000),
)
def test_every_source_gives_the_arms(tmp_path_factory, size, d, length, dtype, block_bytes, seed):
    generator = torch.Generator().manual_seed(seed)
    arms = torch.randint(-2, 3, (size, d), generator=generator).to(dtype)  # small integers, so that rows come twice
    arms[::2] *= -1.0  # zeros of either sign
    path = tmp_path_factory.mktemp("arms") / "arms.npy"
    np.save(path, arms.numpy())
    start, stop = sorted(torch.randint(size + 1, (2,), generator=generator).tolist())
    index = torch.randint(size, (7,), generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch_kbandits.candidates.sources._BLOCK_BYTES", block_bytes)
        for source in (TensorArms(arms), MappedArms(path), in_blocks(arms, length)):
            assert (len(source), source.dimension, source.dtype) == (size, d, dtype)
            assert source.device == arms.device
            assert torch.equal(source.block(start, stop), arms[start:stop])
            assert torch.equal(source.rows(index), arms[index])
            assert torch.equal(torch.cat([block for _, block in source.blocks()]), arms)
            assert source.fingerprint() == TensorArms(arms).fingerprint()
            assert source.fingerprint() != TensorArms(arms + 1.0).fingerprint()
            for point in arms:
                assert source.find(point) == int((arms == point).all(-1).nonzero()[0])
                assert source.find(-point) == source.find(-point + 0.0)
            assert source.find(arms[0] + 0.5) is None


@given(size=st.integers(1, 50), others=st.lists(st.integers(1, 40), max_size=3), seed=st.integers(0, 1000))
def test_a_list_of_points_is_the_arms_and_then_the_others(size, others, seed):
    generator = torch.Generator().manual_seed(seed)
    arms = torch.rand(size, 2, generator=generator, dtype=DOUBLE)
    points, everything = PointList(in_blocks(arms, 7)), arms
    for count in others:
        shorter, fresh = points, torch.rand(count, 2, generator=generator, dtype=DOUBLE) + 2.0
        points, everything = points.with_points(fresh), torch.cat([everything, fresh])
        assert shorter.find(fresh) == [None] * count
    total = len(everything)
    assert (len(points), points.num_arms) == (total, size)
    start, stop = sorted(torch.randint(total + 1, (2,), generator=generator).tolist())
    index = torch.randint(total, (9,), generator=generator)
    assert torch.equal(points.block(start, stop), everything[start:stop])
    assert torch.equal(points.rows(index), everything[index])
    assert torch.equal(torch.cat([block for _, block in points.blocks(4)]), everything)
    assert points.find(torch.cat([everything, everything[:1] - 9.0])) == [*range(total), None]
    assert points.find(everything[index]) == index.tolist()
    assert points.tensor is None


@pytest.mark.parametrize("memory", [0, 101 * 8 * 2, 2**20])
def test_kernel_columns_are_kernel_values_whatever_is_kept(memory, monkeypatch):
    monkeypatch.setattr("torch_kbandits.tables.columns._BLOCK", 24)
    arms, others = data(101, 3)[0], data(9, 3, seed=1)[0] + 1.0
    points = PointList(in_blocks(arms, 40)).with_points(others)
    everything = torch.cat([arms, others]).numpy()
    expected = KERNELS["matern"].dense(everything, everything)
    columns = KernelColumns(KERNELS["matern"].make(), points, memory)
    lists = [torch.tensor(rows) for rows in ([5], [100, 104, 3], [7, 5, 9], [109, 0])]
    for rows in [*lists, *lists]:
        kept = columns._num_kept
        apart = columns.over_arms(rows, slice(20, 90), keep=False)
        assert difference(apart, expected[rows.numpy(), 20:90]) < 1e-12
        assert difference(columns.between(rows, lists[1]), expected[np.ix_(rows.numpy(), [100, 104, 3])]) < 1e-12
        assert columns._num_kept == kept
        assert difference(columns.over_arms(rows, slice(0, 101), keep=True), expected[rows.numpy(), :101]) < 1e-12
    assert columns._num_kept == {0: 0, 101 * 8 * 2: 2, 2**20: 8}[memory]


@pytest.mark.parametrize("stored", ["<f4", ">f8", "<i2", "<f2", "fortran"])
def test_blocks_are_converted(saved, stored):
    values = np.arange(-6, 6).reshape(4, 3)
    array = np.asfortranarray(values.astype(float)) if stored == "fortran" else values.astype(stored)
    for dtype in (torch.float64, torch.float32):
        source = saved(array, dtype=dtype)
        assert torch.equal(source.block(1, 4), torch.from_numpy(values[1:]).to(dtype))
        assert torch.equal(source.rows(torch.tensor([2, 0])), torch.from_numpy(values[[2, 0]]).to(dtype))
    if stored in (">f8", "fortran"):
        assert saved(array).dtype == torch.float64


# ---------------------------------------------------------------- bandits

COMMON = {"regularization": 0.05, "beta": 2.0, "seed": 3}
BANDITS = {
    "bkb": lambda arms: algorithms.BKB(candidates=arms, kernel=rbf(0.3), **COMMON),
    "bbkb": lambda arms: algorithms.BBKB(candidates=arms, kernel=rbf(0.3), batch_threshold=1.5, **COMMON),
    "gp-ucb": lambda arms: algorithms.GPUCB(candidates=arms, kernel=rbf(0.3), **COMMON),
    "bkb without columns": lambda arms: algorithms.BKB(
        candidates=Arms(arms, column_memory=0), kernel=matern(0.3), **COMMON
    ),
    "gp-ts": lambda arms: algorithms.GPTS(candidates=arms, kernel=matern(0.3), **COMMON),
    "gp-ts with a dictionary": lambda arms: Bandit(
        candidates=arms if isinstance(arms, Arms) else Arms(arms), kernel=rbf(0.3), regularization=0.05, seed=3,
        dictionary=RidgeLeverageSampling(2.0), acquisition=ThompsonRule(), width=ConstantWidth(1.0),
    ),
}  # fmt: skip


@pytest.mark.one_in(36)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("arms", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", sorted(BANDITS))
def test_a_bandit_chooses_the_arms_that_it_chooses_from_a_tensor(name, arms, kind, saved, monkeypatch):
    monkeypatch.setattr(TableBelief, "is_part", True)  # so that draws of arms in memory are made of the same waves
    monkeypatch.setattr("torch_kbandits.tables.columns._BLOCK", 100)
    source = source_of(kind, arms, saved)
    make = BANDITS[name]
    ours, theirs = make(Arms(source) if "columns" not in name else source), make(arms)
    q = None if name == "bbkb" else 2
    strangers = data(12, 2, seed=9)[0]
    for number in range(6):
        X = ours.ask(q)
        assert torch.equal(X, theirs.ask(q))
        if number % 3 == 2:
            X = torch.cat([X, strangers[number, None], arms[number, None]])
        for bandit in (ours, theirs):
            bandit.tell(X, reward(X))
    saved_by_tensor = make(Arms(source) if "columns" not in name else source)
    saved_by_tensor.load_state_dict(theirs.state_dict())  # states go from one source to another of the same arms
    replayed = make(Arms(source) if "columns" not in name else source)
    replayed.replay(theirs.history)
    for _ in range(2):
        X = theirs.ask(q)
        for bandit in (ours, saved_by_tensor, replayed):
            assert torch.equal(bandit.ask(q), X)
            bandit.tell(X, reward(X))
        theirs.tell(X, reward(X))
    assert torch.equal(ours.recommend(), theirs.recommend())
    assert torch.equal(ours.inducing_points, theirs.inducing_points)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("rule", [ExpectedImprovementRule(), ProbabilityOfImprovementRule(), UniformRule()])
def test_rules_of_mean_and_variance_choose_alike(rule, kind, saved):
    words = {"kernel": rbf(0.3), "regularization": 0.05, "acquisition": rule, "seed": 0}
    ours = Bandit(candidates=Arms(source_of(kind, MANY, saved)), dictionary=RidgeLeverageSampling(2.0), **words)
    theirs = Bandit(candidates=Arms(MANY), dictionary=RidgeLeverageSampling(2.0), **words)
    assert torch.equal(play(ours, 8, 2), play(theirs, 8, 2))


def drawing(arms, kernel=None):
    return Bandit(
        candidates=Arms(arms), kernel=kernel or matern(0.3), regularization=0.05, dictionary=RidgeLeverageSampling(2.0),
        acquisition=ThompsonRule(), width=ConstantWidth(1.0), seed=0,
    )  # fmt: skip


def test_a_draw_of_many_arms_in_memory_is_that_of_arms_in_blocks_to_single_precision(monkeypatch):
    monkeypatch.setattr("torch_kbandits.numerics.prior_draws.JOINT_LIMIT", 2)
    ours, theirs = drawing(in_blocks(MANY, 97)), drawing(MANY)
    X = play(theirs, 6, 2)
    ours.tell(X, reward(X))
    theirs.load_state_dict(ours.state_dict())
    for seed in range(5):
        assert 0.0 < difference(ours._belief.deviation(seed), theirs._belief.deviation(seed)) < 1e-3


def test_a_draw_of_arms_in_blocks_has_the_same_bits_in_other_blocks():
    bandits = [drawing(in_blocks(MANY, length)) for length in (702, 97, 10)]
    X = MANY[:40]
    for bandit in bandits:
        bandit.tell(X, reward(X))
    for seed in range(3):
        first, *others = (bandit._belief.deviation(seed) for bandit in bandits)
        assert all(torch.equal(first, other) for other in others)
        # Rows 700 and 701 are 3 and 0 again; what is added to the draw of the prior is the same to rounding.
        assert difference(first[[700, 701]], first[[3, 0]]) < 1e-12


def test_a_draw_of_arms_in_blocks_is_made_a_block_at_a_time(monkeypatch):
    evaluate, sizes = Waves.at, []
    monkeypatch.setattr(Waves, "at", lambda waves, points: sizes.append(len(points)) or evaluate(waves, points))
    bandit = drawing(in_blocks(MANY, 97))
    bandit.tell(MANY[:5], reward(MANY[:5]))
    bandit.ask()
    assert max(sizes) == 97
    assert sum(size for size in sizes if size > 5) == len(MANY)


@pytest.mark.parametrize("arms", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("kind", SOURCES)
def test_thompson_sampling_without_waves_says_what_works_instead(kind, arms, saved):
    source = source_of(kind, arms, saved)
    with pytest.raises(InputError, match=r"no random Fourier features of LinearKernel.*or give Arms a tensor"):
        drawing(source, linear())
    bandit = drawing(source)
    bandit.tell(arms[:1], 1.0)
    with pytest.raises(InputError, match=r"not in memory.*Call ask"):
        bandit.acquisition()


def test_the_acquisition_function_needs_no_arms(saved):
    bandit = algorithms.BKB(candidates=Arms(saved(MANY)), kernel=rbf(0.3), **COMMON)
    play(bandit, 4)
    acquisition = bandit.acquisition()
    assert isinstance(acquisition, KernelUCB)
    best = float(acquisition(MANY.unsqueeze(-2)).detach().max())
    assert float(acquisition(bandit.ask().unsqueeze(0)).detach()) == pytest.approx(best, abs=1e-7)


def test_points_that_were_asked_for_are_not_looked_for(saved, monkeypatch):
    bandit = algorithms.BKB(candidates=Arms(saved(MANY)), kernel=rbf(0.3), **COMMON)
    monkeypatch.setattr(MappedArms, "find", lambda *_: pytest.fail("all arms were gone through"))
    play(bandit, 6, 3)


@pytest.mark.parametrize("exact", [True, False])
def test_a_point_told_in_vain_is_not_taken_for_a_row(exact, monkeypatch):
    """It was given a row, the tell failed and the row went; later another point has that row."""
    dictionary = None if exact else RidgeLeverageSampling(2.0)
    words = {"candidates": Arms(MANY), "kernel": rbf(0.3), "regularization": 0.05, "dictionary": dictionary}
    bandit, twin = (Bandit(**words, width=ConstantWidth(2.0), seed=0) for _ in range(2))
    first, second = data(2, 2, seed=9)[0].split(1)
    with monkeypatch.context() as patch:
        name = "torch_kbandits.beliefs.features.require_finite"
        patch.setattr(name, lambda *_: (_ for _ in ()).throw(RuntimeError("in vain")))
        with pytest.raises(RuntimeError, match="in vain"):
            bandit.tell(first, 5.0)
    for each in (bandit, twin):
        each.tell(second, 1.0)
        each.tell(first, -1.0)
    assert torch.equal(bandit.ask(), twin.ask())
    assert difference(bandit._belief.mean, twin._belief.mean) < 1e-12


# ---------------------------------------------------------------- files that change


@pytest.mark.one_in(6)
@pytest.mark.parametrize("change", ["other numbers", "longer", "gone"])
@pytest.mark.parametrize("arms", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", ["bkb", "gp-ucb"])
def test_a_file_that_changed_is_noticed_and_nothing_is_learned(name, arms, change, saved):
    source = saved(arms)
    bandit = BANDITS[name](Arms(source))
    play(bandit, 5)
    X = bandit.ask(2)
    belief = bandit._belief
    before = bandit.state_dict(), belief.mean.clone(), belief.variance.clone(), bandit.beta
    if change == "gone":
        source.path.unlink()
    elif change == "longer":
        np.save(source.path, np.zeros((1000, 2)))
    else:
        scramble(source.path)
    message = "is gone" if change == "gone" else "size in bytes was" if change == "longer" else "modification time"
    played = bandit.history.X[:1]
    for call in (
        bandit.ask, lambda: bandit.tell(X, reward(X)), lambda: bandit.tell(played, 1.0),
        lambda: bandit.tell(X + 5.0, reward(X)), lambda: bandit.load_state_dict(before[0]),
    ):  # fmt: skip
        with pytest.raises(ArmsChangedError, match=rf"{message}.*replay\(history\)"):
            call()
    after = bandit.state_dict(), bandit._belief.mean, bandit._belief.variance, bandit.beta
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(before[1:], after[1:], strict=True))
    for key in ("history", "inducing_points", "pending", "num_learned"):
        assert str(before[0][key]) == str(after[0][key])


def test_a_kept_column_does_not_hide_a_change(saved):
    source = saved(FEW)
    columns = KernelColumns(rbf(), PointList(source), 2**20)
    rows = torch.tensor([1, 2])
    columns.over_arms(rows, slice(0, 5), keep=True)
    scramble(source.path)
    for call in (
        lambda: columns.over_arms(rows, slice(0, 5), keep=True),
        lambda: columns.over_arms(rows, slice(0, 5), keep=False),
        lambda: columns.between(rows, rows),
    ):
        with pytest.raises(ArmsChangedError, match="changed under the bandit"):
            call()


def test_a_state_of_other_arms_does_not_load(saved):
    source = saved(MANY)
    state = BANDITS["bkb"](Arms(source)).state_dict()
    scramble(source.path)
    with pytest.raises(StateMismatchError, match=r"candidates\.arms"):
        BANDITS["bkb"](Arms(MappedArms(source.path))).load_state_dict(state)


# ---------------------------------------------------------------- bad input


BAD_ARRAYS = {
    "no matrix": (np.zeros(3), {}, r"array \(A, d\).*got shape \(3,\)"),
    "no arms": (np.zeros((0, 2)), {}, r"array \(A, d\).*got shape \(0, 2\)|cannot be mapped"),
    "no columns": (np.zeros((2, 0)), {}, r"array \(A, d\).*got shape \(2, 0\)|cannot be mapped"),
    "integers": (np.zeros((2, 2), dtype=int), {}, "float64 or float32, got int64: give dtype=torch.float64"),
    "complex numbers": (np.zeros((2, 2), dtype=complex), {"dtype": torch.float64}, "real numbers, got .* complex128"),
    "objects": (np.array([[None]]), {}, "cannot be mapped as a NumPy file"),
    "half precision": (np.zeros((2, 2)), {"dtype": torch.float16}, "dtype must be torch.float64 or torch.float32"),
    "NaN": (np.where(np.arange(20_000).reshape(-1, 2) == 15_001, np.nan, 0.0), {}, "nan in row 7500, column 1"),
    "too large for float32": (np.full((2, 2), 1e300), {"dtype": torch.float32}, "in torch.float32 .* inf in row 0"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_a_file_that_does_not_fit_is_refused(case, saved, monkeypatch):
    monkeypatch.setattr("torch_kbandits.candidates.sources._BLOCK_BYTES", 1000)
    array, words, message = BAD_ARRAYS[case]
    with pytest.raises(InputError, match=message):
        saved(array, **words)


def test_what_is_no_file_of_numpy_is_refused(tmp_path):
    (tmp_path / "text.npy").write_text("1.0 2.0")
    np.savez(tmp_path / "archive.npz", arms=np.zeros((2, 2)))
    with pytest.raises(InputError, match="cannot be mapped as a NumPy file"):
        MappedArms(tmp_path / "text.npy")
    with pytest.raises(InputError, match="cannot be mapped as a NumPy file"):
        MappedArms(tmp_path / "missing.npy")
    with pytest.raises(InputError, match="an archive of arrays"):
        MappedArms(tmp_path / "archive.npz")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_budget_for_no_column_says_what_one_needs(dtype):
    column = len(MANY) * dtype.itemsize
    Arms(MANY.to(dtype), column_memory=column)
    Arms(MANY.to(dtype), column_memory=0)
    with pytest.raises(InputError, match=f"needs {column} bytes.*or 0 to keep no columns"):
        Arms(MANY.to(dtype), column_memory=column - 1)
    for budget in (-1, 1.5, True):
        with pytest.raises(InputError, match="column_memory must be a whole number of at least 0"):
            Arms(MANY.to(dtype), column_memory=budget)


def blocks_of(*blocks):
    return ArmBlocks(lambda number: blocks[number], len(blocks))


BAD_BLOCKS = {
    "a short one before the last": ([FEW[:3], FEW[:2], FEW[:3]], "block 0, 3, .* block 1 of 3 has 2"),
    "a long last one": ([FEW[:3], FEW[:4]], "only the last may have fewer; block 1 of 2 has 4"),
    "an empty one": ([FEW[:3], FEW[:0]], "block 1 must be .* at least one arm"),
    "other columns": ([FEW[:3], torch.zeros(3, 3, dtype=DOUBLE)], "block 1 must have d = 2 columns"),
    "another dtype": ([FEW[:3], FEW[:3].float()], "block 1 must have dtype torch.float64"),
    "integers": ([torch.zeros(2, 2, dtype=torch.long)], "block 0 must have a floating dtype"),
    "NaN": ([FEW[:3], FEW[:3] * float("nan")], "block 1 must be finite"),
    "texts": ([[["a", "b"]]], "block 0 must be real numbers"),
    "a vector": ([FEW[0]], "block 0 must have a row for each point"),
}


@pytest.mark.parametrize("case", BAD_BLOCKS)
def test_blocks_that_do_not_fit_are_refused(case):
    blocks, message = BAD_BLOCKS[case]
    with pytest.raises(InputError, match=message):
        blocks_of(*blocks)


def test_arguments_of_blocks_are_checked():
    with pytest.raises(InputError, match="num_blocks must be a whole number of at least 1"):
        ArmBlocks(lambda _: FEW, 0)
    with pytest.raises(InputError, match="function must take a block's number"):
        ArmBlocks(FEW, 1)


@pytest.mark.parametrize(
    "lie",
    [
        lambda arms: torch.rand(arms.shape, dtype=DOUBLE),
        lambda arms: arms.flip(0),
        lambda arms: arms.reshape(2, -1),
        lambda arms: arms[:-1],
        lambda arms: arms[:0],
        lambda arms: arms.float(),
    ],
)
def test_a_function_that_lies_is_found_out(lie):
    honest = True
    source = ArmBlocks(lambda number: (lambda a: a if honest else lie(a))(MANY[117 * number : 117 * (number + 1)]), 6)
    bandit = BANDITS["bkb"](Arms(source))
    play(bandit, 3)
    X, before = MANY[-1:] + 5.0, bandit._belief.mean.clone()
    honest = False
    with pytest.raises(ArmsChangedError, match=r"Block \d came out differently from the first time"):
        bandit.tell(X, 1.0)
    assert bandit.round == 3
    assert torch.equal(bandit._belief.mean, before)


def test_a_function_may_fill_the_same_tensor_again():
    room = torch.empty(100, 2, dtype=DOUBLE)

    def fill(number):
        size = len(MANY[100 * number : 100 * (number + 1)])
        room[:size] = MANY[100 * number : 100 * number + size]
        return room[:size]

    source = ArmBlocks(fill, 8)
    assert torch.equal(source.block(50, 650), MANY[50:650])
    assert torch.equal(play(BANDITS["bkb"](Arms(source)), 5), play(BANDITS["bkb"](MANY), 5))


# ---------------------------------------------------------------- memory

_MEMORY_SCRIPT = """
import sys, numpy as np, torch
from gpytorch.kernels import RBFKernel
from torch_kbandits import Arms, MappedArms, algorithms
torch.set_num_threads(1)
def play(arms):
    kernel = RBFKernel()
    kernel.lengthscale = 5.0
    bandit = algorithms.BKB(candidates=Arms(arms, column_memory=0), kernel=kernel, regularization=0.1, beta=2.0, seed=0)
    for _ in range(4):
        X = bandit.ask()
        bandit.tell(X, X.sum(-1))
    bandit.tell(X + 1.0, X.sum(-1))
    bandit.state_dict()
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
play(torch.rand(5000, 256, dtype=torch.float64))  # what is loaded and allocated once
before = peak()
play(MappedArms(sys.argv[1]) if sys.argv[2] == "mapped" else torch.from_numpy(np.load(sys.argv[1])))
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
def test_arms_in_a_file_are_never_all_in_memory(tmp_path):
    """100 MB of arms: a bandit on the file takes a small part of that, one on the tensor more than all of it."""
    # Freed blocks go back to the system, so that the peak is what was in use and not what the allocator keeps.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "262144"}
    arms = np.random.default_rng(0).random((50_000, 256))
    np.save(tmp_path / "arms.npy", arms)
    growth = {
        kind: int(
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", _MEMORY_SCRIPT, str(tmp_path / "arms.npy"), kind],
                check=True, timeout=120, capture_output=True, text=True, env=environment,
            ).stdout
        )
        for kind in ("mapped", "tensor")
    }  # fmt: skip
    assert growth["mapped"] < arms.nbytes / 4, growth
    assert growth["tensor"] > arms.nbytes, growth


#: Under a prior on time there is no table of arms: all of them are read for every choice, block by block.
REMEMBERED = {
    "window": (SlidingWindow(4.0), None),
    "ageing": (Discount(0.8), None),
    "ageing, dictionary": (Discount(0.8), RidgeLeverageSampling(2.0)),
    "prior on time": (BackToPrior(0.1, 0.6), None),
    "prior on time, dictionary": (BackToPrior(0.1, 0.6), RidgeLeverageSampling(2.0)),
}


@pytest.mark.one_in(15)
@pytest.mark.parametrize("rule", [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule()])
@pytest.mark.parametrize("name", REMEMBERED)
def test_under_a_memory_arms_are_those_in_memory_wherever_they_are(name, rule, saved, tmp_path):
    memory, dictionary = REMEMBERED[name]
    bandits = [
        Bandit(
            candidates=Arms(arms), kernel=rbf(0.3), regularization=0.1, memory=memory, dictionary=dictionary,
            acquisition=rule, width=ConstantWidth(1.5), seed=2,
        )
        for arms in (FEW, in_blocks(FEW, 7), saved(FEW))
    ]  # fmt: skip
    for number in range(4):
        asked = [bandit.ask(2) for bandit in bandits]
        assert all(torch.equal(x, asked[0]) for x in asked)
        for bandit in bandits:
            bandit.forget()
            bandit.tell(asked[0], reward(asked[0]) * (-1.0) ** (number // 2))
        best = [bandit.recommend() for bandit in bandits]
        assert all(torch.equal(x, best[0]) for x in best)
    if bandits[1].candidates.is_timed:
        assert torch.equal(bandits[1].candidates.actions(recommended_point(bandits[1])), best[0])
    functions = [bandit.acquisition() for bandit in bandits]
    x = bandits[0].ask(remember=False).unsqueeze(0)
    assert [float(function(x)) for function in functions] == pytest.approx([float(functions[0](x))] * 3, rel=1e-9)
    bandits[2].save(tmp_path / "bandit")
    assert torch.equal(Bandit.load(tmp_path / "bandit").ask(), bandits[0].ask())
    bandits[1].load_state_dict(bandits[0].state_dict())


def test_draws_of_functions_that_change_need_no_arms_in_memory():
    """A memory that is a prior on time is a kernel that knows the time; others that do have their own waves."""
    words = {"regularization": 0.1, "acquisition": ThompsonRule(), "width": ConstantWidth(1.0), "seed": 2}
    arms = Arms(in_blocks(FEW, 7))
    bandits = [
        Bandit(candidates=arms, kernel=rbf(0.3), memory=BackToPrior(0.1), **words),
        Bandit(candidates=Timed(arms), kernel=SpaceTimeKernel(rbf(0.3), ForgettingKernel(0.1)), **words),
        Bandit(candidates=Timed(Arms(in_blocks(FEW, 5))), kernel=rbf(2.0), **words),
    ]
    for _ in range(4):
        asked = [bandit.ask() for bandit in bandits]
        assert torch.equal(asked[0], asked[1])
        for bandit, x in zip(bandits, asked, strict=True):
            assert bandit.candidates.untimed.offers(x)
            bandit.tell(x, reward(x))
    with pytest.raises(InputError, match="draws a sum of random waves"):
        Bandit(candidates=Timed(arms), kernel=SpaceTimeKernel(linear(), ForgettingKernel(0.1)), **words)


def test_where_there_is_no_table_arms_that_change_are_noticed(saved):
    memory, _ = REMEMBERED["prior on time"]
    words = {"kernel": rbf(0.3), "regularization": 0.1, "memory": memory, "width": ConstantWidth(1.5), "seed": 2}
    arms = saved(FEW)
    bandit = Bandit(candidates=Arms(arms), **words)
    play(bandit, 3)
    before = bandit.state_dict()
    scramble(arms.path)
    with pytest.raises(ArmsChangedError):
        bandit.ask()
    assert torch.equal(bandit.state_dict()["history"]["X"], before["history"]["X"])
    assert len(bandit.pending) == 0


@pytest.mark.parametrize(
    "dictionary", [None, pytest.param(RidgeLeverageSampling(1.0), marks=pytest.mark.slow)], ids=["exact", "dictionary"]
)
def test_under_a_prior_on_time_a_draw_is_one_function_in_whatever_blocks_and_has_the_posterior_moments(dictionary):
    """Of 300 draws at 12 arms there are 90 means and products; by chance one is 5 errors off with probability 5e-5."""
    words = {"kernel": rbf(0.3), "regularization": 0.1, "memory": BackToPrior(0.2), "seed": 2}
    words |= {"dictionary": dictionary, "acquisition": ThompsonRule(), "width": ConstantWidth(1.0)}
    bandits = [Bandit(candidates=Arms(in_blocks(FEW, length)), **words) for length in (len(FEW), 7)]
    asked = []
    for _ in range(4):
        asked = [bandit.ask(2) for bandit in bandits]
        assert torch.equal(*asked)
        for bandit, x in zip(bandits, asked, strict=True):
            bandit.tell(x, reward(x))
    offers = []
    for bandit in bandits:
        standing, domain = bandit._now(None, None, None)
        offers.append(standing.belief.lookahead(domain.in_context(FEW[:0])).offered(domain))
    assert difference(*(offer.deviation(3) for offer in offers)) < 1e-9
    draws = np.stack([offers[0].deviation(seed)[:12].numpy() for seed in range(300)])
    now = torch.cat([torch.full((12, 1), 4.0, dtype=DOUBLE), FEW[:12]], dim=1)
    covariance = bandits[0].model.posterior(now).distribution.covariance_matrix.detach().numpy()
    products = draws[:, :, None] * draws[:, None, :]
    assert (np.abs(products.mean(0) - covariance) < 5.0 * products.std(0) / np.sqrt(len(draws))).all()
    assert (np.abs(draws.mean(0)) < 5.0 * draws.std(0) / np.sqrt(len(draws))).all()

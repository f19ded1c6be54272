"""Arms in a file are the arms of a tensor, read piece by piece, and stay what they were."""

import os
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, play, rbf, reward

import torch_kbandits as kb
from torch_kbandits.acquisition import ExpectedImprovementRule, StagedRule, ThompsonRule, UniformRule
from torch_kbandits.candidates import ArmSource
from torch_kbandits.memory import TemporalPrior

#: More arms than an exact posterior keeps the covariance of; two rows come twice.
MANY = torch.cat([data(700, 2)[0], data(700, 2)[0][[3, 0]]])
FEW = MANY[:60]


@pytest.fixture
def saved(tmp_path):
    def save(arms, **words):
        path = tmp_path / f"arms-{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, arms.numpy() if isinstance(arms, torch.Tensor) else arms)
        return ArmSource(np.load(path, mmap_mode="r"), **words)

    return save


def scramble(path):
    """Change a file, and the time at which it changed also where clocks are coarse."""
    array = np.load(path)
    np.save(path, array[::-1] + 0.125)
    os.utime(path, ns=(1, 1))


# ---------------------------------------------------------------- what is read


@given(
    size=st.integers(1, 15), d=st.integers(1, 3), seed=st.integers(0, 10_000),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)  # fmt: skip
def test_every_source_gives_the_arms(tmp_path_factory, size, d, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    arms = torch.randint(-2, 3, (size, d), generator=generator).to(dtype)  # small integers, so that rows come twice
    arms[::2] *= -1.0  # zeros of either sign
    path = tmp_path_factory.mktemp("arms") / "arms.npy"
    np.save(path, arms.numpy())
    start, stop = sorted(torch.randint(size + 1, (2,), generator=generator).tolist())
    index = torch.randint(size, (7,), generator=generator)
    for source in (ArmSource(arms), ArmSource(np.load(path, mmap_mode="r"))):
        assert (len(source), source.dimension, source.dtype) == (size, d, dtype)
        assert torch.equal(source.block(start, stop), arms[start:stop])
        assert torch.equal(source.rows(index), arms[index])
        assert torch.equal(torch.cat([block for _, block in source.blocks()]), arms)
        assert source.fingerprint() == ArmSource(arms).fingerprint()
        assert source.fingerprint() != ArmSource(arms + 1.0).fingerprint()
        assert torch.equal(source.ranges, torch.stack(arms.double().aminmax(dim=0)))
        assert source.has(torch.cat([arms, arms + 0.0, arms + 0.5])).tolist() == [True] * (2 * size) + [False] * size


@pytest.mark.parametrize("stored", ["<f4", ">f8", "<i2", "<f2", "fortran"])
def test_blocks_are_converted(saved, stored):
    values = np.arange(-6, 6).reshape(4, 3)
    array = np.asfortranarray(values.astype(float)) if stored == "fortran" else values.astype(stored)
    for dtype in (torch.float64, torch.float32):
        source = saved(array, dtype=dtype)
        assert torch.equal(source.block(1, 4), torch.from_numpy(values[1:]).to(dtype))
        assert torch.equal(source.rows(torch.tensor([2, 0])), torch.from_numpy(values[[2, 0]]).to(dtype))


COMMON = {"regularization": 0.05, "seed": 3}


def composed(rule, **words):
    words = {"kernel": rbf(0.3), "dictionary": kb.RidgeLeverageSampling(2.0)} | words
    return lambda arms: kb.Bandit(candidates=arms, acquisition=rule, **words, **COMMON)


BANDITS = {
    "bkb": lambda arms: kb.algorithms.BKB(candidates=arms, kernel=rbf(0.3), beta=2.0, **COMMON),
    "gp-ucb": lambda arms: kb.algorithms.GPUCB(candidates=arms, kernel=rbf(0.3), beta=2.0, **COMMON),
    "gp-ei": composed(ExpectedImprovementRule()),
    "uniform": composed(UniformRule()),
    "stages": composed(StagedRule(60), width=kb.ConstantWidth(0.5)),
    "gp-ts": composed(ThompsonRule(), width=kb.ConstantWidth(1.0)),
    "gp-ts, exact": composed(ThompsonRule(), width=kb.ConstantWidth(1.0), dictionary=None),
    "gp-ts, prior on time": composed(ThompsonRule(), width=kb.ConstantWidth(1.0), memory=TemporalPrior(0.2)),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("arms", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", BANDITS)
def test_a_bandit_chooses_the_arms_that_it_chooses_from_a_tensor(name, arms, saved, monkeypatch):
    """Draws of arms in memory are others; those in a file are the same in blocks of another length."""
    make, sources = BANDITS[name], [saved(arms), saved(arms)]
    monkeypatch.setattr("torch_kbandits.candidates.arms._BLOCK_BYTES", 16 * 97)
    if "gp-ts" not in name:
        sources.append(ArmSource(arms))
    bandits = [make(kb.Arms(source)) for source in sources]
    strangers = data(12, 2, seed=9)[0]
    for number in range(6):
        X, *others = [bandit.ask(2) for bandit in bandits]
        assert all(torch.equal(X, other) for other in others)
        if number % 3 == 2:
            X = torch.cat([X, strangers[number, None], arms[number, None]])
        for bandit in bandits:
            bandit.tell(X, reward(X))
    loaded, replayed = (make(kb.Arms(sources[0])) for _ in range(2))
    loaded.load_state_dict(bandits[-1].state_dict())  # states go from one source to another of the same arms
    replayed.replay(bandits[-1].history)
    assert torch.equal(bandits[0].recommend(), bandits[-1].recommend())
    assert torch.equal(bandits[0].inducing_points, bandits[-1].inducing_points)
    X, *others = [bandit.ask(2) for bandit in (*bandits, loaded, replayed)]
    assert all(torch.equal(X, other) for other in others)


def test_arms_in_a_file_are_not_looked_through_for_what_was_asked_and_needed_by_no_function(saved, monkeypatch):
    bandit = BANDITS["bkb"](kb.Arms(saved(MANY)))
    drawing = BANDITS["gp-ts"](kb.Arms(saved(MANY)))
    drawing.tell(MANY[:1], 1.0)
    with pytest.raises(kb.InputError, match="needs arms in memory: call ask"):
        drawing.acquisition()
    monkeypatch.setattr(ArmSource, "has", lambda *_: pytest.fail("all arms were gone through"))
    play(bandit, 4, 3)
    acquisition = bandit.acquisition()
    assert isinstance(acquisition, kb.KernelUCB)
    best = float(acquisition(MANY.unsqueeze(-2)).detach().max())
    assert float(acquisition(bandit.ask().unsqueeze(0)).detach()) == pytest.approx(best, abs=1e-7)


ACTIONS = data(3_000, 3)[0]


def on_actions(actions, **words):
    candidates = kb.ContextualActions(actions, context_dim=1, **words)
    bandit = kb.algorithms.EKUCB(candidates=candidates, kernel=rbf(0.7), beta=2.0, **COMMON)
    for number in range(5):
        context = torch.tensor([number / 5.0], dtype=bandit.history.X.dtype)
        x = bandit.ask(context=context)
        bandit.tell(x, float(x.sum()), context=context)
    return bandit


def test_actions_beside_a_context_may_come_from_a_file(saved, tmp_path):
    source, context = saved(ACTIONS), torch.tensor([0.5], dtype=DOUBLE)
    bandit, from_memory = on_actions(source), on_actions(ACTIONS)
    assert torch.equal(bandit.history.X, from_memory.history.X)
    assert on_actions(kb.Arms(source.file, torch.float32)).history.X.dtype == torch.float32
    spec = kb.ColumnSpec([kb.Category("banner", ["plain", "bold", "blinking"])])
    assert on_actions(source, action_columns=spec).candidates.groups == [0, 1, 1, 1]
    bandit.save(tmp_path / "small.kb")
    from_memory.save(tmp_path / "large.kb")
    sizes = [(tmp_path / name).stat().st_size for name in ("small.kb", "large.kb")]
    assert sizes[0] + ACTIONS.numel() * 8 < sizes[1] + 4_096
    assert torch.equal(kb.Bandit.load(tmp_path / "small.kb").ask(context=context), bandit.ask(context=context))
    scramble(source.file.path)
    with pytest.raises(kb.StateMismatchError, match=r"candidates\.arms"):
        kb.Bandit.load(tmp_path / "small.kb")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", ["other numbers", "longer", "gone"])
@pytest.mark.parametrize("arms", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", ["bkb", "gp-ucb", "gp-ts, prior on time"])
def test_a_file_that_changed_is_noticed_and_nothing_is_learned(name, arms, change, saved):
    source = saved(arms)
    bandit = BANDITS[name](kb.Arms(source))
    play(bandit, 5)
    X = bandit.ask(2)
    before = bandit.state_dict(), bandit.beta
    if change == "gone":
        os.unlink(source.file.path)
    elif change == "longer":
        np.save(source.file.path, np.zeros((1000, 2)))
    else:
        scramble(source.file.path)
    message = "is gone" if change == "gone" else "size in bytes was" if change == "longer" else "modification time"
    calls = [bandit.ask]
    if "time" not in name:  # else arms are read to choose among them alone
        calls += [lambda: bandit.tell(X, reward(X)), lambda: bandit.tell(bandit.history.X[:1], 1.0)]
        calls += [lambda: bandit.tell(X + 5.0, reward(X)), lambda: bandit.load_state_dict(before[0])]
    for call in calls:
        with pytest.raises(kb.ArmsChangedError, match=rf"{message}.*replay\(history\)"):
            call()
    after = bandit.state_dict()
    assert torch.equal(before[1], bandit.beta)
    for key in ("history", "inducing_points", "pending", "num_learned"):
        assert str(before[0][key]) == str(after[key])


BAD_ARRAYS = [
    (np.zeros(3), {}, r"array \(A, d\).*got shape \(3,\)"),
    (np.zeros((2, 2), dtype=int), {}, "float64 or float32, got int64: give Arms"),
    (np.zeros((2, 2), dtype=complex), {"dtype": torch.float64}, "real numbers, got .* complex128"),
    (np.where(np.arange(20_000).reshape(-1, 2) == 15_001, np.nan, 0.0), {}, "nan in row 7500, column 1"),
    (np.full((2, 2), 1e300), {"dtype": torch.float32}, "in torch.float32 .* inf in row 0"),
]


def test_arms_that_do_not_fit_are_refused(saved):
    for array, words, message in BAD_ARRAYS:
        with pytest.raises(kb.InputError, match=message):
            saved(array, **words)
    path = saved(FEW).file.path
    for part in (np.load(path, mmap_mode="r")[1:], np.load(path, mmap_mode="c")):
        with pytest.raises(kb.InputError, match=r"whole array of a file, as numpy.load\(path"):
            kb.Arms(part)


# ---------------------------------------------------------------- memory

_MEMORY_SCRIPT = """
import sys, numpy as np, torch
from gpytorch.kernels import RBFKernel
from torch_kbandits import Arms, algorithms
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
def play(arms):
    kernel = RBFKernel().initialize(lengthscale=5.0)
    bandit = algorithms.BKB(candidates=Arms(arms), kernel=kernel, regularization=0.1, beta=2.0, seed=0)
    bandit.run(lambda x: x.sum(), 4)
    bandit.tell(bandit.ask() + 1.0, 1.0)
    bandit.state_dict()
play(torch.rand(5000, 256, dtype=torch.float64))  # what is loaded and allocated once
before = peak()
array = np.load(sys.argv[1], mmap_mode="r")
play(array if sys.argv[2] == "mapped" else torch.from_numpy(np.array(array)))
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux says it")
def test_arms_in_a_file_are_never_all_in_memory(tmp_path):
    """100 MB of arms: a bandit on the file takes a small part of that, one on the tensor more than all of it."""
    # Freed blocks go back to the system, so that the peak is what was in use and not what the allocator keeps.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "262144"}
    file, arms, growth = str(tmp_path / "arms.npy"), np.random.default_rng(0).random((50_000, 256)), {}
    np.save(file, arms)
    for kind in ("mapped", "tensor"):
        command = [sys.executable, "-W", "ignore", "-c", _MEMORY_SCRIPT, file, kind]
        growth[kind] = int(subprocess.check_output(command, timeout=120, text=True, env=environment))
    assert growth["mapped"] < arms.nbytes / 4, growth
    assert growth["tensor"] > arms.nbytes, growth

"""Files of saved bandits: written whole or not at all, made again as they were, refused where they are something else.

That what is loaded goes on as the original is a law of every kind of bandit in ``test_state.py``.
"""

import errno
import hashlib
import io
import json
import os
import resource
from datetime import datetime
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch import kernels as gp
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.priors import GammaPrior
from hypothesis import given
from hypothesis import strategies as st
from interrupts import Interrupt
from kinds import ARMS, KINDS, NAMES, SMALL_BOX, composed, make, same, started
from problems import DOUBLE, data, examples, play, rbf
from torch.overrides import TorchFunctionMode

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.bandit.saving import read, write
from torch_kbandits.confidence import GreedyGain, IGPUCBWidth, RateGain
from torch_kbandits.kernels import (
    GroupedKernel,
    NormalizedKernel,
    PerActionLinearKernel,
    PrecomputedKernel,
    SpaceTimeKernel,
)
from torch_kbandits.memory import SlidingWindow

pytestmark = pytest.mark.usefixtures("short_searches")


def save_and_load(bandit, folder, **words):
    bandit.save(folder / "bandit.kb")
    return kb.Bandit.load(folder / "bandit.kb", **words)


def test_a_saved_file_is_saved_again_as_it_is_and_says_what_it_is(tmp_path):
    started(KINDS["bbkb"]).save(tmp_path / "one.kb")
    kb.Bandit.load(tmp_path / "one.kb").save(tmp_path / "two.kb")
    assert (tmp_path / "one.kb").read_bytes() == (tmp_path / "two.kb").read_bytes()
    first = (tmp_path / "one.kb").read_text(errors="replace").split("\n")[0]
    assert first.startswith(f"torch_kbandits {kb.__version__} bandit 5 ")


PIECES = [
    {
        "width": kb.ScaledWidth(IGPUCBWidth(0.1, 1.0, 0.1, RateGain("rbf", dimension=2)), 0.3),
        "dictionary": kb.CappedDictionary(kb.RidgeLeverageSampling(2.0, "coupled"), 8, "stop"),
    },
    {
        "width": IGPUCBWidth(0.1, 1.0, 0.1, GreedyGain(rbf(0.4), ARMS, 30, 0.05)),
        "dictionary": kb.FixedDictionary(ARMS[:7].clone()),
    },
    {
        "width": IGPUCBWidth(0.1, 1.0, 0.1, RateGain("matern", dimension=2, nu=1.5)),
        "dictionary": kb.KDPP(6),
        "regularization": np.float64(0.05),
    },
]


@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("pieces", PIECES)
def test_pieces_within_pieces_come_back(pieces, tmp_path):
    bandit = composed(candidates=kb.Arms(data(5_000, 2)[0][:50]), kernel=rbf(0.4), **pieces)
    play(bandit, 6)
    loaded = save_and_load(bandit, tmp_path)
    assert torch.equal(loaded.beta, bandit.beta)
    assert torch.equal(play(loaded, 8), play(bandit, 8))
    assert (tmp_path / "bandit.kb").stat().st_size < 30_000  # though arms are a view of a large tensor


def test_columns_of_contexts_and_the_effort_of_searches_come_back(tmp_path):
    columns = kb.ColumnSpec([kb.Number("age", 0.0, 100.0), kb.Category("city", ["Rome", "Paris"], other=True)])
    bandit = make("ek-ucb", candidates=kb.ContextualActions(ARMS[:9], context_columns=columns))
    row = {"age": 31, "city": "Rome"}
    bandit.tell(bandit.ask(context=row), 0.3, context=row)
    assert torch.equal(save_and_load(bandit, tmp_path).ask(context=row), bandit.ask(context=row))
    boxed = save_and_load(make("gp-ucb", candidates=SMALL_BOX), tmp_path).candidates
    assert (boxed.num_restarts, boxed.raw_samples) == (SMALL_BOX.num_restarts, SMALL_BOX.raw_samples)


def test_arms_in_a_file_are_looked_for_where_they_were(tmp_path):
    file = tmp_path / "arms.npy"
    np.save(file, ARMS.numpy())
    bandit = make("bkb", candidates=kb.Arms(np.load(file, mmap_mode="r"), torch.float32))
    play(bandit, 4)
    loaded = save_and_load(bandit, tmp_path)
    assert loaded.candidates.source.file.path == str(file)
    assert torch.equal(play(loaded, 5), play(bandit, 5))
    np.save(file, ARMS.numpy() + 1.0)
    with pytest.raises(kb.StateMismatchError, match=r"another configuration. candidates.arms"):
        kb.Bandit.load(tmp_path / "bandit.kb")
    file.unlink()
    with pytest.raises(kb.StateMismatchError, match=r"arms.npy cannot be mapped.*Bandit.load\(path, into=bandit\)"):
        kb.Bandit.load(tmp_path / "bandit.kb")
    with pytest.raises(kb.ArmsChangedError):
        bandit.ask()


X = data(12, 3)[0]


def nested():
    time = kb.WienerKernel(0.3, origin=-1.0, active_dims=(2,)) + kb.ForgettingKernel(0.2, active_dims=(2,))
    space = gp.MaternKernel(nu=1.5, ard_num_dims=2, active_dims=(0, 1)) * gp.PeriodicKernel(active_dims=(1,))
    return gp.ScaleKernel(space) * time + gp.LinearKernel(variance_constraint=GreaterThan(0.01))


def frozen():
    kernel = gp.ScaleKernel(gp.RBFKernel(ard_num_dims=3))
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    return kernel.eval()


KERNELS = {
    "ard": lambda: gp.RBFKernel(ard_num_dims=3, lengthscale_constraint=Interval(0.01, 5.0)),
    "single precision": lambda: gp.ScaleKernel(gp.RBFKernel(ard_num_dims=3)).float(),
    "matern": lambda: gp.MaternKernel(nu=0.5, active_dims=(2, 0)),
    "periodic": lambda: gp.PeriodicKernel(period_length_prior=GammaPrior(2.0, 3.0)),
    "rational quadratic": lambda: gp.RQKernel(alpha_constraint=Positive(transform=torch.exp, inv_transform=torch.log)),
    "botorch's": lambda: get_covar_module_with_dim_scaled_prior(ard_num_dims=3),
    "categories": lambda: gp.RBFKernel(active_dims=(0, 1)) * CategoricalKernel(active_dims=(2,), ard_num_dims=1),
    "space and time": lambda: SpaceTimeKernel(gp.RBFKernel(ard_num_dims=2), kb.ForgettingKernel(0.03)),
    "grouped": lambda: gp.ScaleKernel(
        GroupedKernel(gp.MaternKernel(nu=1.5), (0, 1, 1), lengthscale_prior=GammaPrior(3.0, 6.0), active_dims=(2, 0, 1))
    ),
    "normalized": lambda: NormalizedKernel(gp.RBFKernel(), torch.ones(3).double(), torch.full((3,), 2.0).double()),
    "per action": lambda: PerActionLinearKernel(2),
    "nested": nested,
    "frozen": frozen,
}


def of_kernel(kernel, arms=X):
    return algorithms.GPUCB(candidates=arms, kernel=kernel, regularization=0.05, beta=1.0, seed=0)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_comes_back_with_its_numbers_constraints_and_priors(name, tmp_path):
    kernel = KERNELS[name]() if name == "single precision" else KERNELS[name]().double()
    generator = torch.Generator().manual_seed(1)
    for parameter in kernel.parameters():  # numbers that no constructor gives
        parameter.data += 0.1 * torch.rand(parameter.shape, generator=generator).to(parameter)
    bandit = of_kernel(kernel)
    found = save_and_load(bandit, tmp_path)
    found.load_state_dict(bandit.state_dict())  # which refuses another kernel
    loaded = found.prior.kernel
    assert type(loaded) is type(kernel)
    assert same(dict(loaded.state_dict()), dict(kernel.state_dict()))
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in kernel.parameters()]
    assert loaded.training == kernel.training
    points = X.to(next(kernel.parameters()).dtype) if name != "per action" else X
    with torch.no_grad():
        assert torch.equal(loaded(points).to_dense(), kernel(points).to_dense())
    at = torch.tensor(0.7, dtype=DOUBLE)
    for mine, its in zip(loaded.named_priors(), kernel.named_priors(), strict=True):
        assert mine[0] == its[0]
        assert torch.equal(mine[2].log_prob(at), its[2].log_prob(at))
        assert torch.equal(mine[3](mine[1]), its[3](its[1]))


def test_a_covariance_matrix_comes_back_is_written_once_and_told_from_another_in_few_words(tmp_path):
    root, arms = data(100, 100)[0], torch.arange(100, dtype=DOUBLE).unsqueeze(-1)
    other = (table := root @ root.mT).clone()
    bandit = of_kernel(gp.ScaleKernel(PrecomputedKernel(table)).double(), arms)
    bandit.tell(bandit.ask(), 0.3)
    assert torch.equal(save_and_load(bandit, tmp_path).ask(), bandit.ask())
    assert (tmp_path / "bandit.kb").stat().st_size < 1.2 * 8 * 100**2
    other[7, 7] = torch.nextafter(other[7, 7], other[0, 0] + 1e3)
    state = of_kernel(PrecomputedKernel(table), arms).state_dict()
    with pytest.raises(kb.StateMismatchError, match=r"kernel.covariance: saved \(100, 100\) numbers.*here") as caught:
        of_kernel(PrecomputedKernel(other), arms).load_state_dict(state)
    assert len(str(caught.value)) < 500


class OwnKernel(gp.RBFKernel):
    pass


class OwnBandit(kb.Bandit):
    pass


OWN = {"candidates": kb.Arms(ARMS), "kernel": rbf(0.3), "regularization": 0.05, "width": composed().width, "seed": 1}


def snapped(points):
    return (points * 8.0).round() / 8.0


NOT_MADE_AGAIN = [
    (
        lambda: make("bkb", kernel=gp.ScaleKernel(OwnKernel()).double()),
        "prior.kernel.base_kernel: OwnKernel is not",
    ),
    (lambda: make("sparq-gp-ucb"), "advice.expert: GuardedExpert is not known"),
    (lambda: OwnBandit(**OWN), "OwnBandit cannot be made again: its class is not known"),
    (lambda: make("gp-ts", candidates=kb.UnitCube(2, snap=snapped)), "candidates.snap: snapped is not known"),
]


@pytest.mark.parametrize(("build", "message"), NOT_MADE_AGAIN)
def test_what_cannot_be_made_again_is_loaded_into_one_made_as_it_was(build, message, tmp_path):
    bandit = build()
    play(bandit, 3)
    bandit.save(tmp_path / "bandit.kb")
    with pytest.raises(kb.StateMismatchError, match=message) as caught:
        kb.Bandit.load(tmp_path / "bandit.kb")
    assert "Make the bandit as it was and give it: Bandit.load(path, into=bandit)" in str(caught.value)
    twin = build()
    assert kb.Bandit.load(tmp_path / "bandit.kb", into=twin) is twin
    assert torch.equal(play(twin, 3), play(bandit, 3))


OTHERS = [
    ({"seed": 4}, "seed: saved 3, here 4"),
    ({"regularization": 0.06}, "regularization: saved 0.05, here 0.06"),
    ({"candidates": ARMS + 1.0}, r"candidates.arms: saved \(60, 2\)"),
    ({"candidates": SMALL_BOX}, "candidates.bounds: saved nothing"),
    ({"kernel": rbf(0.4)}, "kernel.raw_lengthscale"),
    ({"kernel": gp.MaternKernel(nu=0.5).double()}, "kernel.nu: saved nothing, here 0.5"),
    ({"beta": 2.5}, "width.value: saved 1.5, here 2.5"),
    ({"mean": 2.0}, "prior.mean: saved 0.0, here 2.0"),
    ({"mean": torch.ones(60, dtype=torch.float64)}, "prior.mean"),
    ({"resampling": "coupled"}, "dictionary.resampling: saved fresh, here coupled"),
    ({"outcomes": ["heat"]}, "outcomes"),
    ({"objective": kb.Scalarization({"reward": "maximize", "cost": "minimize"})}, "objective"),
    ({"memory": SlidingWindow(7.0)}, "memory.size: saved nothing, here 7.0"),
    ({"max_dictionary": 9}, "dictionary.max_size: saved nothing, here 9"),
]


def test_a_state_of_another_configuration_or_algorithm_is_refused_and_named():
    bandit = make("bkb")
    bandit.tell(ARMS[:3], [0.1, 0.2, 0.3])
    others = [(make("bkb", **words), message) for words, message in OTHERS]
    for stranger, message in [*others, *((make(name), "algorithm: saved BKB") for name in {*NAMES} - {"bkb"})]:
        stranger.tell(ARMS[:1], 0.1)
        before = stranger.state_dict()
        with pytest.raises(kb.StateMismatchError, match=message):
            stranger.load_state_dict(bandit.state_dict())
        assert same(stranger.state_dict(), before)


class Noted(kb.Bandit):
    def state_dict(self):
        return super().state_dict() | {"notes": {"since": datetime(2024, 1, 1)}}


def test_a_class_loads_its_own_algorithm_and_into_what_fits_and_saves_tensors_numbers_and_strings_alone(tmp_path):
    with pytest.raises(kb.InputError, match=r"tensors, numbers and strings only, and no datetime"):
        Noted(**OWN).save(tmp_path / "bandit.kb")
    assert not list(tmp_path.iterdir())  # nothing was written
    make("bkb").save(tmp_path / "bandit.kb")
    assert type(algorithms.BKB.load(tmp_path / "bandit.kb")) is algorithms.BKB
    assert isinstance(kb.Bandit.load(tmp_path / "bandit.kb", device="cpu").candidates, kb.Arms)
    for kind, words, error, message in (
        (algorithms.IGPUCB, {}, kb.StateMismatchError, r"holds a BKB, and IGPUCB.load takes none: use BKB.load"),
        (OwnBandit, {}, kb.StateMismatchError, r"holds a BKB, and OwnBandit.load takes none"),
        (algorithms.IGPUCB, {"into": make("bkb")}, kb.InputError, "into must be a bandit, a IGPUCB, got BKB"),
        (kb.Bandit, {"into": make("igp-ucb")}, kb.StateMismatchError, "bandit.kb.*algorithm: saved BKB, here IGPUCB"),
        (kb.Bandit, {"into": make("bkb"), "device": "cpu"}, kb.InputError, "Leave out device"),
        (kb.Bandit, {"device": "cuda:99"}, kb.InputError, "device='cuda:99' cannot be used here"),
    ):
        with pytest.raises(error, match=message):
            kind.load(tmp_path / "bandit.kb", **words)


@cache
def complete():
    """The bytes of a saved bandit."""
    bandit = make("bkb")
    play(bandit, 6)
    with TemporaryDirectory() as folder:
        bandit.save(Path(folder) / "bandit.kb")
        return (Path(folder) / "bandit.kb").read_bytes()


def with_first(place, word):
    """The file with another word in its first line."""
    first, body = complete().split(b"\n", 1)
    words = first.split()
    return b" ".join([*words[:place], word, *words[place + 1 :]]) + b"\n" + body


def content_of(file):
    """What a file holds."""
    with TemporaryDirectory() as folder:
        (path := Path(folder) / "it").write_bytes(file)
        return read(path, "bandit")


def packed(content):
    """The bytes of a file with a content."""
    with TemporaryDirectory() as folder:
        write(path := Path(folder) / "it", "bandit", content)
        return path.read_bytes()


def sealed(body):
    """A file with a valid checksum."""
    return f"torch_kbandits {kb.__version__} bandit 5 {hashlib.sha256(body).hexdigest()}\n".encode() + body


def pickled(content):
    """The bytes that ``torch.save`` writes."""
    torch.save(content, stream := io.BytesIO())
    return stream.getvalue()


def without(*path):
    """A file that lacks a part."""
    return packed(changed(content_of(complete()), path, places))


DAMAGED = {
    "empty": (lambda: b"", "is no file of a bandit"),
    "torch.save": (lambda: pickled(make("bkb").state_dict()), r"bandit.load_state_dict\(torch.load"),
    "another kind": (lambda: with_first(2, b"checkpoint"), "is no file of a bandit"),
    "cut": (lambda: complete()[:-1], r"is cut or changed"),
    "grown": (lambda: complete() + b"\n", "is cut or changed"),
    "no archive": (lambda: sealed(b"nothing"), "holds no bandit"),
    "no dictionary": (lambda: packed([1]), "of another kind"),
    "no state": (lambda: without("state"), "'state' is 'missing'"),
    "no candidates": (lambda: without("pieces", "candidates"), "does not fit"),
}


def test_what_is_no_saved_bandit_is_refused_and_newer_formats_with_the_version_that_reads_them(tmp_path):
    file, into = tmp_path / "bandit.kb", make("bkb")
    before, content = into.state_dict(), content_of(complete())
    for what, (wrong, message) in DAMAGED.items():
        file.write_bytes(wrong())
        with pytest.raises(kb.DamagedFileError, match=message) as caught:
            kb.Bandit.load(file)
        assert "bandit.kb" in str(caught.value)
        if not what.startswith("no "):
            with pytest.raises(kb.DamagedFileError):
                kb.Bandit.load(file, into=into)
        assert same(into.state_dict(), before)
    newer = content | {"state": content["state"] | {"format": 99}, "version": "9.1.0"}
    for wrong, message in (
        (with_first(3, b"6"), r"format 6, and torch_kbandits .*or newer"),
        (packed(newer), "by torch_kbandits 9.1.0: The state has format 99 and this version reads 12"),
    ):
        file.write_bytes(wrong)
        with pytest.raises(kb.StateMismatchError, match=message) as caught:
            kb.Bandit.load(file)
        assert "bandit.kb" in str(caught.value)


def test_a_changed_state_is_refused():
    bandit, twin = make("bkb"), make("bkb")
    play(bandit, 3)
    state = bandit.state_dict()
    for path, value in (
        (("history", "Y"), state["history"]["Y"] + 1e-9),
        (("history", "Y"), places),
        (("pending", "ids"), [1]),
        (("inducing_points",), state["inducing_points"][:0]),
    ):
        with pytest.raises(kb.StateMismatchError, match="damaged: it is not as it was saved"):
            twin.load_state_dict(changed(state, path, value))
    assert twin.round == 0


@examples(60)
@given(data=st.data())
def test_no_changed_byte_is_overlooked(data, tmp_path_factory):
    """Any cut, and any other byte but those of the version, is refused with an error of the package."""
    whole = bytearray(complete())
    file = tmp_path_factory.mktemp("files") / "bandit.kb"
    if data.draw(st.booleans()):
        changed = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, 14) | st.integers(whole.index(b" bandit"), len(whole) - 1))
        changed = whole.copy()
        changed[at] ^= data.draw(st.integers(1, 255))
    file.write_bytes(changed)
    with pytest.raises(kb.KernelBanditError) as caught:
        kb.Bandit.load(file)
    assert "bandit.kb" in str(caught.value)


class Exploit:
    def __reduce__(self):
        return os.system, ("touch exploited",)


def test_loading_runs_nothing_that_a_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pieces = {"x": {"is": "Popen", "of": {}}}
    for file, message in (
        (sealed(pickled({"state": Exploit()})), "holds no bandit"),
        (packed(content_of(complete()) | {"pieces": pieces}), "Popen"),
    ):
        Path("bandit.kb").write_bytes(file)
        with pytest.raises(kb.DamagedFileError, match=message):
            kb.Bandit.load("bandit.kb")
        assert not Path("exploited").exists()


class Work(TorchFunctionMode):
    """The bytes of the largest tensor that is made."""

    largest = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not made.is_nested and made.layout == torch.strided and not made.is_meta:
            self.largest = max(self.largest, made.untyped_storage().nbytes())
        return made


#: Bandits of each kind of state and of pieces, and one attack in so many.
ATTACKED = {"bkb": 23, "learned prior": 61, "sparq-gp-ucb": 31}
SLOWLY = ["ek-ucb, contexts", "bob-gp-ucb", "dms-gp-ucb", "tv-gp-ucb", "stages", "bbkb", "outcomes", *ATTACKED]
BY_KIND = [*ATTACKED.items()] + [pytest.param(kind, 3, marks=pytest.mark.slow) for kind in SLOWLY]


def places(value, path=()):
    """The path of every part of a content."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(value, path, part):
    """A copy with another part at a path; ``places`` for none."""
    if not path:
        return part
    copy = list(value) if isinstance(value, tuple) else value.copy()
    if part is places and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], part)
    return tuple(copy) if isinstance(value, tuple) else copy


def attacks(part):
    """Other values for a part: of another kind, none, too large, or without numbers of their own."""
    yield from (None, "x", -1, 2.5, 10**300, [], {}, places, {"is": "Bandit", "of": {}})
    if isinstance(part, torch.Tensor):
        one = part.reshape(-1)[:1] if part.numel() else torch.zeros(1, dtype=part.dtype)
        yield one.reshape([1] * part.dim()).expand([10**5] * part.dim()) if part.dim() else one.expand(10**9)
        yield from (part.to(torch.complex64), part.bool(), part.to_sparse(), part.unsqueeze(0), part.reshape(-1)[:0])
        yield torch.full_like(part, -3) if not part.is_floating_point() else torch.full_like(part, torch.nan)
    elif isinstance(part, (int, float)):
        yield from (10**9, float("inf"), part + 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "share"), BY_KIND)
def test_any_part_of_a_file_may_be_anything(name, share, tmp_path):
    kind, file = KINDS[name], tmp_path / "bandit.kb"
    bandit = started(kind)
    bandit.save(file)
    content = content_of(file.read_bytes())
    root = {key: content[key] for key in content if key != "state"}
    for number, path in enumerate(places(root)):
        for other, part in enumerate(attacks(reduce(getitem, path, root))):
            if (number + other) % share:
                continue
            damaged = changed(root, path, part)
            try:
                write(file, "bandit", content | damaged if isinstance(damaged, dict) else damaged)
            except kb.InputError:
                continue
            message = ""
            with Work() as work:
                try:
                    type(bandit).load(file)
                except kb.KernelBanditError as error:
                    message = str(error)
            assert len(message) < 5000
            assert work.largest < 2**25


def in_kernel(word, size):
    """A change of what the kernel is made of."""
    path = ("pieces", "prior", "of", "kernel", "of", word)
    return lambda content: changed(content, path, size)


MANY_COLUMNS = {"is": "ContextualActions", "of": {"context_dim": 0, "action_dim": 10**9}}
CRAFTED = {
    "lengths": in_kernel("raw_lengthscale", 10**9),
    "columns": lambda content: changed(content, ("pieces", "candidates"), MANY_COLUMNS),
    "device": lambda content: changed(content, ("device",), "meta"),
}


def test_few_bytes_do_not_become_many(tmp_path):
    content, file = content_of(complete()), tmp_path / "bandit.kb"
    for attack, craft in CRAFTED.items():
        file.write_bytes(packed(craft(content)))
        with Work() as work, pytest.raises((kb.DamagedFileError, kb.InputError, kb.StateMismatchError)):
            kb.Bandit.load(file)
        assert work.largest < 2**24, attack
    many = json.dumps({"__tensor__": "float64", "shape": [10**9]}).encode()
    for body, message in ((many + b"\n" + bytes(80), "more numbers than the file"), (b"[" * 10**5, "holds no bandit")):
        file.write_bytes(sealed(body))
        with pytest.raises(kb.DamagedFileError, match=message):
            kb.Bandit.load(file)


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_has_no_end_is_not_read(what, tmp_path):
    path = tmp_path / "arms.npy" if what == "pipe" else "/dev/zero"
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(kb.FileError, match="which may have no end"):
        kb.Bandit.load(path)
    words = {"path": str(path), "dtype": "<f8", "offset": 0, "shape": {"is": "list", "of": [60, 2]}, "order": "C"}
    arms = {"is": "MappedFile", "of": words}
    content = changed(content_of(complete()), ("pieces", "candidates", "of", "arms"), arms)
    (tmp_path / "bandit.kb").write_bytes(packed(content))
    with pytest.raises(kb.StateMismatchError, match="no regular file"):
        kb.Bandit.load(tmp_path / "bandit.kb")


def test_missing_files_and_directories_links_and_paths_of_any_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bandit, (here, file, plain, latest) = make("bkb"), (tmp_path / name for name in ("", "file", "plain", "latest.kb"))
    file.write_text("")
    for call, path, message in (
        (kb.Bandit.load, here / "none.kb", r"none.kb' cannot be read: No such file"),
        (kb.Bandit.load, here, r"Is a directory\. Give the path of a file"),
        (bandit.save, here, r"Is a directory\. Give the path of a file"),
        (bandit.save, here / "none" / "it.kb", r"No such file or directory\. Make its directory"),
        (bandit.save, file / "it.kb", "cannot be written: Not a directory"),
    ):
        with pytest.raises(kb.FileError, match=message) as caught:
            call(path)
        assert isinstance(caught.value, OSError)
        assert caught.value.filename == str(path)
    assert [*here.iterdir()] == [file]
    for path in ("bändit ζ.kb", Path("plain"), str(here / "x.pt")):
        bandit.save(path)
        assert kb.Bandit.load(path).round == 0
    latest.symlink_to(plain)
    play(bandit, 2)
    bandit.save(latest)
    assert latest.is_symlink()
    assert kb.Bandit.load(plain).round == 2


@pytest.mark.parametrize(("where", "code"), [("fsync", errno.ENOSPC), ("replace", errno.EROFS), ("limit", errno.EFBIG)])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(where, code, tmp_path, monkeypatch):
    bandit, file = make("bkb"), tmp_path / "bandit.kb"
    bandit.save(file)
    before, limit = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    play(bandit, 3)
    state = bandit.state_dict()
    with monkeypatch.context() as patched:
        if where == "limit":  # of the system, reached while writing
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
        else:
            patched.setattr(os, where, lambda *_: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
        try:
            with pytest.raises(kb.FileError, match=f"cannot be written: {os.strerror(code)}") as caught:
                bandit.save(file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == code
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == before
    assert same(bandit.state_dict(), state)
    bandit.save(file)
    assert kb.Bandit.load(file).round == 3


# An interrupt between opening a file and the block that closes it leaves that to the collector, which says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_near_the_end_of_saving_leaves_the_old_file_or_the_new_one(tmp_path):
    """At each of the last fifty lines, which write it; only an interrupt within the clearing up may leave a draft."""
    bandit, path, files = make("bkb"), tmp_path / "bandit.kb", []
    for _ in range(2):
        bandit.save(path)
        files.append(path.read_bytes())
        bandit.tell(ARMS[:1], 1.0)
    bandit.load_state_dict(kb.Bandit.load(path).state_dict())
    with Interrupt(10**9) as whole:
        bandit.save(path)
    drafts = 0
    for line in range(whole.passed - 50, whole.passed + 9):
        path.write_bytes(files[0])
        with Interrupt(line) as interrupt:
            bandit.save(path)
        assert path.read_bytes() in files
        for draft in tmp_path.glob(".*kb*"):
            draft.unlink()
            drafts += 1
        if interrupt.at is None:
            break
    assert drafts <= 3
    assert path.read_bytes() == files[1]

"""Whatever a file with a valid checksum says, or a state that is given: a named error, little work, no change."""

import io
import os
import zipfile
from copy import deepcopy

import pytest
import torch
from problems import DOUBLE, data, on_a_cube, rbf
from test_algorithms import make
from test_saved_files import sealed
from torch.overrides import TorchFunctionMode

from torch_kbandits import (
    Bandit,
    ContextualActions,
    DamagedFileError,
    FileError,
    InputError,
    KernelBanditError,
    MappedArms,
    StateMismatchError,
    algorithms,
)
from torch_kbandits.bandit.saving import schema

WORDS = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.0, "seed": 3}


def contextual():
    actions = ContextualActions(data(9, 2)[0], context_dim=1)
    return algorithms.EKUCB(candidates=actions, **WORDS)


def fitted():
    return on_a_cube(num_initial=9, kernel=rbf(0.3), seed=1)


#: Bandits of each kind of state and of pieces.
KINDS = {
    "bkb": lambda: make("bkb"),
    "contextual": contextual,
    "fitted": fitted,
    "bob-gp-ucb": lambda: make("bob-gp-ucb", block_size=3),
    "dms-gp-ucb": lambda: make("dms-gp-ucb", block_size=3),
    "tv-gp-ucb": lambda: make("tv-gp-ucb"),
    "sup-kernel-ucb": lambda: make("sup-kernel-ucb"),
    "sparq-gp-ucb": lambda: make("sparq-gp-ucb"),
    "bbkb": lambda: make("bbkb"),
}
#: In the quick suite one of each shape, and a part of the attacks.
QUICK = {"bkb": 11, "fitted": 37, "sparq-gp-ucb": 11}
BY_KIND = [*QUICK.items()] + [pytest.param(kind, 1, marks=pytest.mark.slow) for kind in KINDS]


class Work(TorchFunctionMode):
    """The bytes of the largest tensor that is made."""

    largest = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not made.is_nested and made.layout == torch.strided and not made.is_meta:
            self.largest = max(self.largest, made.untyped_storage().nbytes())
        return made


def played(kind):
    bandit = KINDS[kind]()
    context = {"context": torch.tensor([0.5], dtype=DOUBLE)} if kind == "contextual" else {}
    for number in range(7):
        x = bandit.ask(**context)
        bandit.tell(x, x.sum(-1) + 0.1 * number, **context)
    bandit.ask(2, **context)
    return bandit


def content_of(bandit, folder):
    """What the file of a bandit holds, and the first line of it."""
    bandit.save(folder / "bandit.kb")
    first, _, body = (folder / "bandit.kb").read_bytes().split(b"\n", 2)
    return torch.load(io.BytesIO(body), weights_only=True), first


def body_of(content):
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def places(value, path=()):
    """The path of every part of a content."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


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
    yield from (None, "x", -1, 2.5, 10**300, [], {}, places, {"is": "Bandit", "words": {}})
    if isinstance(part, torch.Tensor):
        one = part.reshape(-1)[:1] if part.numel() else torch.zeros(1, dtype=part.dtype)
        yield one.reshape([1] * part.dim()).expand([10**5] * part.dim()) if part.dim() else one.expand(10**9)
        yield from (part.to(torch.complex64), part.bool(), part.to_sparse(), part.unsqueeze(0), part.reshape(-1)[:0])
        yield torch.full_like(part, -3) if not part.is_floating_point() else torch.full_like(part, torch.nan)
    elif isinstance(part, (int, float)):
        yield from (10**9, float("inf"), part + 1)


def attacked(root, share):
    """Paths of a content with what is put there: all attacks, or at each place one of so many, in turn."""
    for number, path in enumerate(places(root)):
        for other, part in enumerate(attacks(at(root, path))):
            if (number + other) % share == 0:
                yield path, part


def attempt(act, into):
    """Try something that may be refused by a named error: with little work, and a bandit stays as it was."""
    before = str(into.state_dict())
    with Work() as work:
        try:
            act()
        except KernelBanditError as error:
            message = str(error)
            assert str(into.state_dict()) == before
        else:
            message = ""
    assert work.largest < 2**25
    assert len(message) < 5000


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "share"), BY_KIND)
def test_any_part_of_a_state_may_be_anything(kind, share):
    into, state = KINDS[kind](), played(kind).state_dict()
    for path, part in attacked(state, share):
        damaged = changed(state, path, part)
        attempt(lambda into=into, damaged=damaged: into.load_state_dict(damaged), into)
        if into.num_told:
            into = KINDS[kind]()
    into.load_state_dict(state)
    assert into.num_told == 7


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "share"), BY_KIND)
def test_any_part_of_a_file_may_be_anything(kind, share, tmp_path):
    bandit, into = played(kind), KINDS[kind]()
    content, first = content_of(bandit, tmp_path)
    file = tmp_path / "bandit.kb"
    for path, part in attacked({key: part for key, part in content.items() if key != "state"}, share):
        file.write_bytes(sealed(first, body_of(changed(content, path, part))))
        attempt(lambda: type(bandit).load(file), into)


ROOT = ("pieces", "words", "kernel", "covariance", "root")


def in_kernel(**parts):
    """A change of what the kernel is made of."""
    return lambda content: changed(content, ROOT, at(content, ROOT) | parts)


def many_parts(content):
    """A sum of a thousand kernels of ten thousand lengths each."""
    part = at(content, ROOT)
    parts = [deepcopy(part) | {"number": number, "words": {"ard_num_dims": 10**4}} for number in range(1, 1000)]
    whole = {"number": 0, "kernel": "AdditiveKernel", "words": {}, "parts": [parts], "constraints": {}, "priors": {}}
    return changed(content, ROOT, whole)


def twice(content):
    """Lists within lists, each the same two: few bytes, and 2⁴⁰ places."""
    part = []
    for _ in range(40):
        part = [part, part]
    return content | {"more": part}


def shared(content):
    """Many tensors that are one."""
    one = torch.zeros(10**4, dtype=DOUBLE)
    return content | {"more": [one[: len(one) - number] for number in range(1000)]}


def deep(content):
    part = None
    for _ in range(300):
        part = [part]
    return content | {"more": part}


CRAFTED = {
    "lengths": in_kernel(words={"ard_num_dims": 10**9}),
    "batch": in_kernel(words={"batch_shape": (10**5, 10**5)}),
    "mixtures": in_kernel(kernel="SpectralMixtureKernel", words={"num_mixtures": 10**9}),
    "layers": in_kernel(kernel="InfiniteWidthBNNKernel", words={"depth": 10**9, "acos_eps": 1e-7}, constraints={}),
    "many parts": many_parts,
    "twice": twice,
    "shared": shared,
    "deep": deep,
    "columns": lambda content: changed(
        content,
        ("pieces", "words", "candidates"),
        {"is": "ContextualActions", "words": {"context_dim": 0, "action_dim": 10**9}},
    ),
    "device": lambda content: changed(content, ("pieces", "device"), "meta"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("attack", CRAFTED)
def test_few_bytes_do_not_become_many(attack, tmp_path):
    content, first = content_of(played("bkb"), tmp_path)
    (tmp_path / "bandit.kb").write_bytes(sealed(first, body_of(CRAFTED[attack](content))))
    with Work() as work, pytest.raises((DamagedFileError, InputError)):
        Bandit.load(tmp_path / "bandit.kb")
    assert work.largest < 2**24


def test_packed_archives_are_refused(tmp_path):
    content, first = content_of(played("bkb"), tmp_path)
    packed = io.BytesIO()
    zeros = torch.zeros(10**6, dtype=DOUBLE)
    with (
        zipfile.ZipFile(io.BytesIO(body_of(content | {"more": zeros}))) as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for part in plain.infolist():
            archive.writestr(part.filename, plain.read(part))
    assert len(packed.getvalue()) < 10**5
    (tmp_path / "bandit.kb").write_bytes(sealed(first, packed.getvalue()))
    with pytest.raises(DamagedFileError, match="packed"):
        Bandit.load(tmp_path / "bandit.kb")


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_has_no_end_is_not_read(what, tmp_path):
    path = tmp_path / "arms.npy" if what == "pipe" else "/dev/zero"
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match="no regular file"):
        MappedArms(path)
    with pytest.raises(FileError, match="which may have no end"):
        Bandit.load(path)
    content, first = content_of(played("bkb"), tmp_path)
    arms = {"is": "MappedArms", "words": {"path": str(path), "dtype": {"dtype": "torch.float64"}}}
    content = changed(content, ("pieces", "words", "candidates", "words", "arms"), arms)
    (tmp_path / "bandit.kb").write_bytes(sealed(first, body_of(content)))
    with pytest.raises(StateMismatchError, match="no regular file"):
        Bandit.load(tmp_path / "bandit.kb")


def test_what_is_beyond_the_limits_is_saved_and_loaded_into_a_bandit_made_as_it_was(tmp_path, monkeypatch):
    """Limits refuse nothing that was saved: the kernel is then made by the one who loads it."""
    bandit = played("bkb")
    monkeypatch.setattr(schema, "_SPARE", -5)
    bandit.save(tmp_path / "bandit.kb")
    with pytest.raises(StateMismatchError, match=r"more numbers than there are.*into=bandit"):
        Bandit.load(tmp_path / "bandit.kb")
    assert Bandit.load(tmp_path / "bandit.kb", into=make("bkb")).num_told == 7


STATES = (None, [], "state", 3, {}, {"format": 3}, {"format": 3, "config": None}, torch.zeros(3), b"")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_state_or_history_is_refused(kind):
    into = KINDS[kind]()
    for state in STATES:
        with pytest.raises(KernelBanditError):
            into.load_state_dict(state)
        with pytest.raises(KernelBanditError):
            into.replay(state)
    assert into.num_told == 0

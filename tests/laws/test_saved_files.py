"""Files of saved bandits: written whole or not at all, and refused with what is wrong where they are not what was."""

import errno
import hashlib
import io
import json
import os
import pickle
import resource
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interrupts import Interrupt
from problems import examples, play
from test_algorithms import make

from torch_kbandits import (
    Bandit,
    DamagedFileError,
    FileError,
    KernelBanditError,
    StateMismatchError,
    __version__,
)
from torch_kbandits.bandit.saving import container

_COMPLETE = {}


def complete():
    """The bytes of a saved bandit, made once."""
    if not _COMPLETE:
        bandit = make("bkb")
        play(bandit, 6)
        _COMPLETE["bytes"] = _bytes_of(bandit)
    return _COMPLETE["bytes"]


def _bytes_of(bandit):
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        bandit.save(Path(folder) / "bandit.kb")
        return (Path(folder) / "bandit.kb").read_bytes()


def with_header(**changes):
    """The file with other words in its second line."""
    first, line, body = complete().split(b"\n", 2)
    header = {key: value for key, value in (json.loads(line) | changes).items() if value is not None}
    return b"\n".join([first, json.dumps(header).encode(), body])


def with_content(change):
    """The file of another content, with the checksum of that."""
    first, _, body = complete().split(b"\n", 2)
    content = torch.load(io.BytesIO(body), weights_only=True)
    content = change(content)
    stream = io.BytesIO()
    torch.save(content, stream)
    return sealed(first, stream.getvalue())


def sealed(first, body):
    header = {"format": 2, "version": __version__, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return b"\n".join([first, json.dumps(header).encode(), body])


def without(*keys):
    def change(content):
        part = content
        for key in keys[:-1]:
            part = part[key]
        del part[keys[-1]]
        return content

    return change


def torch_file(state):
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


DAMAGED = {
    "empty": (lambda: b"", "is empty"),
    "another file": (lambda: b"x,y\n1,2\n", "was not written by bandit.save"),
    "torch.save": (lambda: torch_file(make("bkb").state_dict()), r"bandit.load_state_dict\(torch.load"),
    "pickle": (lambda: pickle.dumps({"a": 1}), "was not written by bandit.save"),
    "another kind": (lambda: complete().replace(b"s bandit\n", b"s checkpoint\n", 1), "holds a checkpoint and not a"),
    "first line": (lambda: complete()[:10], "its beginning is lost"),
    "no second line": (lambda: complete().split(b"\n")[0], "second line"),
    "cut second line": (lambda: complete()[:40], "second line"),
    "second line": (lambda: with_header(sha256=None), "second line"),
    "cut": (lambda: complete()[:-1], r"is cut or has grown: it has \d+ of \d+ bytes"),
    "grown": (lambda: complete() + b"\n", "is cut or has grown"),
    "changed": (lambda: complete()[:-30] + b"?" + complete()[-29:], "its content is not the one that was written"),
    "no archive": (lambda: sealed(b"torch_kbandits bandit", b"nothing"), "does not read"),
    "no dictionary": (lambda: with_content(lambda content: [1]), "of another kind"),
    "no state": (lambda: with_content(without("state")), "'state'.* is missing"),
    "no pieces": (lambda: with_content(without("pieces")), "'pieces'.* is missing"),
    "no words": (lambda: with_content(without("pieces", "words")), "does not fit"),
    "no seed": (lambda: with_content(without("pieces", "words", "seed")), "does not fit"),
    "no class": (lambda: with_content(without("pieces", "words", "dictionary", "is")), "does not fit"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_saved_bandit_is_refused(what, tmp_path):
    content, message = DAMAGED[what]
    file = tmp_path / "bandit.kb"
    file.write_bytes(content())
    into = make("bkb")
    before = str(into.state_dict())
    with pytest.raises(DamagedFileError, match=message) as caught:
        Bandit.load(file)
    assert "bandit.kb" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    if "pieces" not in message and "fit" not in message:
        with pytest.raises(DamagedFileError):
            Bandit.load(file, into=into)
    assert str(into.state_dict()) == before


NEWER = {
    "file": (lambda: with_header(format=3, version="9.1.0"), r"format 3, written by torch_kbandits 9.1.0.*or newer"),
    "state": (
        lambda: with_content(
            lambda content: content | {"state": content["state"] | {"format": 99}, "version": "9.1.0"}
        ),
        "by torch_kbandits 9.1.0: The state has format 99 and this version reads",
    ),
}


@pytest.mark.parametrize("what", NEWER)
def test_newer_formats_are_refused_with_the_version_that_reads_them(what, tmp_path):
    content, message = NEWER[what]
    (tmp_path / "bandit.kb").write_bytes(content())
    with pytest.raises(StateMismatchError, match=message) as caught:
        Bandit.load(tmp_path / "bandit.kb")
    assert "bandit.kb" in str(caught.value)


def test_a_state_that_lacks_something_is_refused(tmp_path):
    for key in ("history", "pending", "num_asked"):
        (tmp_path / "bandit.kb").write_bytes(with_content(without("state", key)))
        with pytest.raises(StateMismatchError, match=f"lacks .'{key}'."):
            Bandit.load(tmp_path / "bandit.kb")


@examples(60)
@given(data=st.data())
def test_no_changed_byte_is_overlooked(data, tmp_path_factory):
    """Any cut, and any other byte but those of words for people, is refused with an error of the package."""
    whole = bytearray(complete())
    file = tmp_path_factory.mktemp("files") / "bandit.kb"
    if data.draw(st.booleans()):
        changed = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        header = whole.index(b"\n", whole.index(b"\n") + 1)
        at = data.draw(st.integers(0, 40) | st.integers(header - 90, len(whole) - 1))
        changed = whole.copy()
        changed[at] ^= data.draw(st.integers(1, 255))
    file.write_bytes(changed)
    with pytest.raises(KernelBanditError) as caught:
        Bandit.load(file)
    assert "bandit.kb" in str(caught.value)


class Exploit:
    def __reduce__(self):
        return os.system, ("touch exploited",)


def test_loading_runs_nothing_that_a_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for body in (torch_file({"state": Exploit()}), pickle.dumps(Exploit(), protocol=2)):
        Path("bandit.kb").write_bytes(sealed(b"torch_kbandits bandit", body))
        with pytest.raises(DamagedFileError, match="does not read"):
            Bandit.load("bandit.kb")
        assert not Path("exploited").exists()
    Path("named.kb").write_bytes(
        with_content(
            lambda content: content | {"pieces": {"device": "cpu", "words": {"x": {"is": "Popen", "words": {}}}}}
        )
    )
    with pytest.raises(DamagedFileError, match="Popen"):
        Bandit.load("named.kb")


def test_the_file_says_what_it_is():
    first, line, body = complete().split(b"\n", 2)
    header = json.loads(line)
    assert first == b"torch_kbandits bandit"
    assert (header["format"], header["version"], header["bandit"], header["rewards"]) == (2, __version__, "BKB", 6)
    assert zipfile.is_zipfile(io.BytesIO(body))


def test_missing_files_and_directories(tmp_path):
    bandit = make("bkb")
    with pytest.raises(FileError, match=r"none.kb' cannot be read: No such file") as caught:
        Bandit.load(tmp_path / "none.kb")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path / "none.kb")
    with pytest.raises(FileError, match=r"Is a directory\. Give the path of a file"):
        Bandit.load(tmp_path)
    with pytest.raises(FileError, match=r"Is a directory\. Give the path of a file"):
        bandit.save(tmp_path)
    with pytest.raises(FileError, match=r"cannot be written: No such file or directory\. Make its directory first"):
        bandit.save(tmp_path / "none" / "bandit.kb")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written: Not a directory"):
        bandit.save(tmp_path / "file" / "bandit.kb")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Full:
    """A file on a disk that is full after some bytes, or when it is asked to keep them."""

    def __init__(self, stream, room, code):
        self._stream, self._room, self._code = stream, room, code

    def write(self, content):
        self._stream.write(content[: self._room])
        if self._room < len(content):
            raise OSError(self._code, os.strerror(self._code))

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()


def failing(monkeypatch, where, code):
    error = OSError(code, os.strerror(code))

    def refuse(*_, **__):
        raise error

    if where in ("fsync", "replace"):
        monkeypatch.setattr(f"torch_kbandits.files.os.{where}", refuse)
        return
    opened = Path.open

    def open_full(path, mode="r", *args, **words):
        if "x" not in mode:
            return opened(path, mode, *args, **words)
        if where == "open":
            raise error
        return Full(opened(path, mode, *args, **words), {"first": 0, "middle": 500}[where], code)

    monkeypatch.setattr(Path, "open", open_full)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("where", ["open", "first", "middle", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(where, code, tmp_path, monkeypatch):
    bandit = make("bkb")
    bandit.save(tmp_path / "bandit.kb")
    before = (tmp_path / "bandit.kb").read_bytes()
    play(bandit, 3)
    state = str(bandit.state_dict())
    with monkeypatch.context() as patched:
        failing(patched, where, code)
        with pytest.raises(FileError, match=f"cannot be written: {os.strerror(code)}") as caught:
            bandit.save(tmp_path / "bandit.kb")
    assert caught.value.errno == code
    assert [path.name for path in tmp_path.iterdir()] == ["bandit.kb"]
    assert (tmp_path / "bandit.kb").read_bytes() == before
    assert str(bandit.state_dict()) == state
    bandit.save(tmp_path / "bandit.kb")
    assert Bandit.load(tmp_path / "bandit.kb").round == 3


def test_a_limit_of_the_system_that_is_reached_while_writing(tmp_path):
    bandit = make("bkb")
    bandit.save(tmp_path / "bandit.kb")
    bandit.tell(bandit.ask(), 1.0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(FileError, match="cannot be written: File too large") as caught:
            bandit.save(tmp_path / "bandit.kb")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert [path.name for path in tmp_path.iterdir()] == ["bandit.kb"]
    assert Bandit.load(tmp_path / "bandit.kb").round == 0


# An interrupt between opening a file and the block that closes it leaves that to the collector, which says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path):
    bandit = make("bkb")
    bandit.save(tmp_path / "bandit.kb")
    old = (tmp_path / "bandit.kb").read_bytes()
    bandit.tell(bandit.ask(), 1.0)
    bandit.save(tmp_path / "new.kb")
    new = (tmp_path / "new.kb").read_bytes()
    (tmp_path / "new.kb").unlink()
    content = new.split(b"\n", 2)[2]
    stopped, line = set(), 0
    while True:
        line += 1
        with Interrupt(line) as interrupt:
            container.write_whole(tmp_path / "bandit.kb", new)
        assert (tmp_path / "bandit.kb").read_bytes() in (old, new)
        if interrupt.at is None:
            break
        stopped.add(interrupt.at)
        (tmp_path / "bandit.kb").write_bytes(old)
        for path in tmp_path.glob(".bandit.kb*"):
            # Only an interrupt within the clearing up itself may leave the draft.
            assert "unlink" in _line(interrupt.at) or "suppress" in _line(interrupt.at), interrupt.at
            path.unlink()
    assert len(stopped) > 10
    assert content in (tmp_path / "bandit.kb").read_bytes()


def _line(at):
    name, _, number = at.partition(" ")[0].partition(":")
    source = next(Path(container.__file__).parents[2].glob(name)).read_text().splitlines()
    return source[int(number) - 1]


def test_a_link_stays_one_and_the_file_behind_it_is_replaced(tmp_path):
    (tmp_path / "store").mkdir()
    make("bkb").save(tmp_path / "store" / "bandit.kb")
    (tmp_path / "latest.kb").symlink_to(tmp_path / "store" / "bandit.kb")
    bandit = make("bkb")
    play(bandit, 2)
    bandit.save(tmp_path / "latest.kb")
    assert (tmp_path / "latest.kb").is_symlink()
    assert Bandit.load(tmp_path / "store" / "bandit.kb").round == 2


def test_paths_of_any_kind_and_any_letters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bandit = make("bkb")
    for path in ("bändit ζ.kb", Path("plain"), str(tmp_path / "x.pt")):
        bandit.save(path)
        assert Bandit.load(path).round == 0
    assert len(list(tmp_path.iterdir())) == 3

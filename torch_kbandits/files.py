"""Files that are written whole or not at all."""

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from torch_kbandits.errors import FileError, InputError

#: What ``write_whole`` calls the file beside that of a name.
_DRAFT = re.compile(r"\..+\.\d+\.[0-9a-f]{8}")


def write_whole(path: str | PathLike[str], content: bytes) -> None:
    """Put a file in place at once: a reader, also after a crash, sees the old one or the new one, never a part.

    The content goes to a file beside it, to the disk, and then to its name; where that is a link, to what it points to.
    A process that is killed meanwhile may leave the file beside it, whose name begins with a dot. Where it cannot be
    written, ``FileError``, the old file is as it was, and nothing is left beside it.
    """
    path = checked_path(path)
    # Not ``absolute``: replacing a link would leave the file that others read under its own name as it was.
    file = Path(os.path.realpath(path))
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _replace(draft, file)
    except OSError as error:
        raise file_error("written", path, error) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def put_in_place(draft: Path, file: Path) -> None:
    """Give a file that is on the disk the name of another beside it, at once, or leave both as they are."""
    try:
        _replace(draft, file)
    except OSError as error:
        raise file_error("written", file, error) from error


def _replace(draft: Path, file: Path) -> None:
    os.replace(draft, file)
    with suppress(OSError):  # where the system cannot be asked for it
        directory = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Do as ``write_whole`` with a text, in UTF-8."""
    write_whole(path, text.encode())


def clear_drafts(directory: Path) -> None:
    """Remove what processes left that were killed while they wrote; nobody may be writing there."""
    for file in directory.glob(".*"):
        if _DRAFT.fullmatch(file.name):
            with suppress(OSError):
                file.unlink(missing_ok=True)


def read_whole(path: str | PathLike[str]) -> bytes:
    """Return the content of a file; a ``FileError`` if it cannot be read, an ``InputError`` if that is no path."""
    path = checked_path(path)
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "it is a device, a pipe or a socket, which may have no end")
        return Path(path).read_bytes()
    except OSError as error:
        raise file_error("read", path, error) from error


def locked(path: Path, refusal: str) -> FileLock:
    """Return a lock that this process holds, and that the system frees with it; refuse, in these words, a held one."""
    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(refusal) from None
    except OSError as error:
        raise file_error("written", path, error) from error
    return lock


def checked_path(path: Any) -> str:
    """Return the path of a file as a text; an ``InputError`` if it is none."""
    text = os.fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"path must be that of a file, a text or a path of pathlib, got a {type(path).__name__}.")
    return text


def file_error(done: str, path: str | PathLike[str], error: OSError) -> FileError:
    """Return the package's error for one of the system, with its number and what to do."""
    advice = "What was there is as it was: make room or give another path." if done == "written" else "Try again."
    if isinstance(error, IsADirectoryError | NotADirectoryError) or error.errno == errno.EINVAL:
        advice = "Give the path of a file."
    elif isinstance(error, FileNotFoundError):
        advice = "Make its directory first." if done == "written" else "Look at the path."
    elif isinstance(error, PermissionError):
        advice = f"Give a path that may be {done}, or its permissions."
    reason, file = error.strerror or str(error) or type(error).__name__, os.fspath(path)
    return FileError(error.errno, f"{file!r} cannot be {done}: {reason}. {advice}", file)

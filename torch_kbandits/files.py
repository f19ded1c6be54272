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

    The content goes to a file beside it, to the disk, and then to its name. A process that is killed meanwhile may
    leave that file, whose name begins with a dot.

    Args:
        path: of the file; where it is a link, what it points to is replaced.
        content: of the file.

    Raises:
        FileError: if it cannot be written; then the old file is as it was, and nothing is left beside it.
        InputError: if that is no path.
    """
    path = checked_path(path)
    # Not ``absolute``: replacing a link would leave the file that others read under its own name as it was.
    file = Path(os.path.realpath(path))
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        if file.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        try:
            with draft.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, file)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise file_error("written", path, error) from error
    _settle(file.parent)


def put_in_place(draft: Path, file: Path) -> None:
    """Give a file that is on the disk the name of another beside it, at once, and let the disk have that.

    Raises:
        FileError: if that cannot be done; then both are as they were.
    """
    try:
        os.replace(draft, file)
    except OSError as error:
        raise file_error("written", file, error) from error
    _settle(file.parent)


def locked(path: Path, refusal: str) -> FileLock:
    """Return a lock that this process holds, and that the system frees with it, however that ends.

    Raises:
        InputError: with what is said, if another holds it.
        FileError: if its file cannot be written.
    """
    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(refusal) from None
    except OSError as error:
        raise file_error("written", path, error) from error
    return lock


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
    """Return the content of a file.

    Raises:
        FileError: if it cannot be read.
        InputError: if that is no path.
    """
    path = checked_path(path)
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "it is a device, a pipe or a socket, which may have no end")
        return Path(path).read_bytes()
    except OSError as error:
        raise file_error("read", path, error) from error


def checked_path(path: Any) -> str:
    """Return the path of a file as a text.

    Raises:
        InputError: if it is none.
    """
    text = os.fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"path must be that of a file, a text or a path of pathlib, got a {type(path).__name__}.")
    return text


def file_error(done: str, path: str | PathLike[str], error: OSError) -> FileError:
    """Return the package's error for one of the system, with its number and what to do."""
    reason = error.strerror or str(error) or type(error).__name__
    file = os.fspath(path)
    return FileError(error.errno, f"{file!r} cannot be {done}: {reason}. {_advice(done, error)}", file)


def _advice(done: str, error: OSError) -> str:
    if isinstance(error, IsADirectoryError | NotADirectoryError) or error.errno == errno.EINVAL:
        return "Give the path of a file."
    if isinstance(error, FileNotFoundError):
        return "Make its directory first." if done == "written" else "Look at the path."
    if isinstance(error, PermissionError):
        return f"Give a path that may be {done}, or its permissions."
    return "What was there is as it was: make room or give another path." if done == "written" else "Try again."


def _settle(directory: Path) -> None:
    """Let the disk have the new name, where the system can be asked for it."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

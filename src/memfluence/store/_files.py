"""Files that appear whole or not at all, and errors of the file system in words."""

import errno
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memfluence.errors import InputError, StoreError
from memfluence.store.locations import refuse_uri

__all__ = [
    "PARTIAL_PREFIX",
    "file_errors",
    "make_directory",
    "move_file",
    "publish",
    "remove_stale_partials",
    "write_whole",
]

PARTIAL_PREFIX = ".partial-"
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def publish(path: Path, content: bytes, *, replace: bool) -> bool:
    """Write `content` to `path` so that a reader sees all of it or nothing, even across a power cut.

    Unique temporary name in the same directory, fsync, rename, fsync of the directory. With `replace` false an existing
    file wins and the answer is False: of several processes that publish one name, exactly one gets True.
    """
    partial = path.with_name(f"{_partials_of_this_host()}{os.getpid()}-{uuid.uuid4().hex}")
    with file_errors(f"writing {path}"):
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                partial.replace(path)
            else:
                try:
                    os.link(partial, path)  # unlike rename, refuses to replace
                except FileExistsError:
                    return False
                except OSError as error:
                    if error.errno not in _NO_HARD_LINKS:
                        raise
                    if path.exists():
                        return False
                    partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync_directory(path.parent)
    return True


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that the user named, in a directory that is made where it is missing.

    What was there before stays until all of the new content is on the disk.
    """
    if refuse_uri(path).is_dir():
        raise InputError(f"{path} is a directory; name a file.")
    with file_errors(f"writing {path}"):
        make_directory(path.parent)
    publish(path, content, replace=True)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, so that a power cut does not take them away again.

    A name is on the disk when the directory that it stands in is synced. That of a directory that is there already is
    synced, too: the process that made it may have been killed before it could.
    """
    made = [path]
    while not made[-1].parent.is_dir():
        made.append(made[-1].parent)
    for directory in reversed(made):
        directory.mkdir(exist_ok=True)
        with suppress(PermissionError):  # one may be allowed to write where one may not read
            _sync_directory(directory.parent)


def move_file(path: Path, to: Path) -> None:
    """Rename a file; a power cut does not take it back, and at no moment is there no such file."""
    path.rename(to)
    _sync_directory(to.parent)
    _sync_directory(path.parent)


def _partials_of_this_host() -> str:
    host = "".join(letter if letter.isalnum() else "_" for letter in socket.gethostname())
    return f"{PARTIAL_PREFIX}{host}-"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_partials(directory: Path) -> None:
    """Delete what processes of this machine left half-written when they were killed."""
    prefix = _partials_of_this_host()
    for partial in directory.glob(f"{prefix}*"):
        pid = partial.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not _is_running(int(pid)):
            partial.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def file_errors(doing: str) -> Iterator[None]:
    """Turn an OSError into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "the disk is full or over quota: free some space, then run the same command again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "this user may not do that: change its permissions or choose another --out"
        else:
            advice = "check the disk and the path"
        reason = os.strerror(error.errno) if error.errno else str(error)  # Arrow's own texts name the file again
        raise StoreError(f"Failed {doing}: {reason}; {advice}.") from error

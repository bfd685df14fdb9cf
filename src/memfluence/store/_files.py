"""Files that appear whole or not at all, and errors of the file system in words."""

import errno
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
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
_WRITER = re.compile(rf"{re.escape(PARTIAL_PREFIX)}([0-9a-f]{{16}})-(\d+)-(\d+)-[0-9a-f]{{32}}")
_ABANDONED = 86400.0  # seconds; writing a file takes seconds, and clocks of two machines may be hours apart
_ATTEMPTS = 3
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def publish(path: Path, content: bytes, *, replace: bool) -> bool:
    """Write `content` to `path` so that a reader sees all of it or nothing, even across a power cut.

    Unique temporary name in the same directory, fsync, rename, fsync of the directory. With `replace` false an existing
    file wins and the answer is False: of several processes that publish one name, exactly one gets True. If somebody
    takes the temporary file away meanwhile, it is written again.
    """
    with file_errors(f"writing {path}"):
        for _ in range(_ATTEMPTS - 1):
            with suppress(FileNotFoundError):
                return _publish(path, content, replace)
        return _publish(path, content, replace)


def _publish(path: Path, content: bytes, replace: bool) -> bool:
    partial = path.with_name(_name_of_partial())
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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_of_partial() -> str:
    """A name that says who writes the file: the system that runs here, the process's number and when it began."""
    return f"{PARTIAL_PREFIX}{_this_system()}-{os.getpid()}-{_began(os.getpid())}-{uuid.uuid4().hex}"


@cache
def _this_system() -> str:
    """16 hex digits for the system and its processes, in which a number means one process; "unknown" where not told.

    Names of hosts do not do: two hosts may have the same one, and containers share that of their host. What is asked
    for is the machine, its present boot, and the set of processes that is seen from here.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        processes = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"
    machine = Path("/etc/machine-id")
    names = [machine.read_text() if machine.is_file() else "", boot, processes]
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()


def _began(pid: int) -> int:
    """When a process began, in the system's ticks; 0 where that is not told."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def remove_stale_partials(directory: Path) -> None:
    """Delete what processes left half-written when they were killed.

    Of processes of this system it is known that they are gone. Of all others (another machine, a container, this
    machine before it was started anew) nothing is known, so their files have to be a day old.
    """
    for partial in directory.glob(f"{PARTIAL_PREFIX}*"):
        writer = _WRITER.fullmatch(partial.name)
        if writer and writer[1] == _this_system():
            is_stale = not _is_running(int(writer[2]), int(writer[3]))
        else:
            is_stale = _age(partial) > _ABANDONED
        if is_stale:
            partial.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_running(pid: int, began: int) -> bool:
    """Whether that process is there, and not another one that got its number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return began == 0 or _began(pid) in (0, began)


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

"""Places: names of files and folders here and elsewhere, and the file system of this machine.

A file appears whole or not at all. More is not asked of a remote file system (`store.remote`): no renames, no locks,
and no listing that is up to date (a segment that is not listed yet is a trial that runs again, with the same result).
"""

import errno
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa

from memfluence.errors import InputError, StoreError
from memfluence.store.parquet import read_bytes

# Where an upload is one object that appears when it is complete; elsewhere files are written and then renamed.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "obs", "b2", "memory"}
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<slash>/?)(?P<rest>.*)", re.DOTALL)
_SECRET = re.compile(r"secret|password|token|(access|account|shared|private)_?key|^key$|^sig", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Uri:
    """A file or folder that is not of this machine's file system, with what of `pathlib` a name needs."""

    root: str  # s3://bucket
    path: str  # runs/digits
    query: str = ""  # endpoint_override=host:9000&scheme=http

    def __str__(self) -> str:
        return "/".join(filter(None, (self.root, self.path))) + (f"?{self.query}" if self.query else "")

    def __truediv__(self, name: str) -> "Uri":
        return Uri(self.root, f"{self.path}/{name}".lstrip("/"), self.query)

    @property
    def scheme(self) -> str:
        return self.root.partition(":")[0]

    @property
    def authority(self) -> str:
        """The bucket, or the host."""
        return self.root.partition("://")[2]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.authority

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.root, *filter(None, self.path.split("/")))

    def absolute(self) -> "Uri":
        return self

    resolve = absolute

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name


Location = Path | Uri


def locate(given: str | Path | Uri) -> Location:
    """The place that a caller means: a path, or a URI such as s3://bucket/runs/digits."""
    if isinstance(given, Uri) or (isinstance(given, Path) and given.is_absolute()):
        return given
    match = _URI.fullmatch(str(given))
    if match is None or (not match["slash"] and isinstance(given, str)):
        return _directory(Path(given))
    scheme = match["scheme"].lower()
    if scheme == "file":
        if match["slash"] and not match["rest"].startswith("/"):
            raise InputError(f"{given} names another machine's file; write file:///directory, or the path alone.")
        return Path("/") / match["rest"]
    place, _, query = match["rest"].partition("?")
    authority, *parts = place.split("/")
    path = [part for part in parts if part]
    secrets = [name for name, _ in parse_qsl(query, keep_blank_values=True) if _SECRET.search(name)]
    if (":" in authority.partition("@")[0] and "@" in authority) or secrets:
        shown = f"...?{secrets[0]}=..." if secrets else f"...@{authority.rpartition('@')[2]}"
        raise InputError(
            f"A password does not belong into a URI ({scheme}://{shown}), which is shown and logged; give credentials"
            " as that file system's tools take them (AWS_PROFILE, environment variables, ...)."
        )
    if (not authority and scheme in OBJECT_STORES) or not (authority or path) or {".", ".."} & set(path):
        raise InputError(f"{given} is no place for a run; write {scheme}://BUCKET/PATH, without . and .. in the path.")
    return Uri(f"{scheme}://{authority}", "/".join(path), query)


def _directory(path: Path) -> Path:
    """The path, if run.json can say its name; an absolute one if it begins with a dash, as options of commands do."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"The name {str(path)!a} is not UTF-8, so neither run.json nor any table could say it; name another"
            " directory, or a link to this one."
        ) from None
    return path.absolute() if str(path).startswith("-") else path  # it would be taken for an option


def folder_for(location: Location) -> Path:
    """The folder for things that are made from a run: its directory, or runs/ in the current one for a remote run."""
    if isinstance(location, Path):
        return location
    return Path("runs") / re.sub("[^A-Za-z0-9.]+", "-", f"{location.root}/{location.path}").strip("-.")


def refuse_uri(path: Path) -> Path:
    """A path of this machine; files that are made from a run are written nowhere else."""
    if (match := _URI.match(str(path))) and match["scheme"] != "file":
        raise InputError(f"{path} is not of this machine's file system; write the file here, then copy it there.")
    return path


PARTIAL_PREFIX = ".partial-"
_PROCESS = re.compile(r"([0-9a-f]{16})-(\d+)-(\d+)")
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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_of_partial() -> str:
    """A name that says who writes the file."""
    return f"{PARTIAL_PREFIX}{this_process()}-{uuid.uuid4().hex}"


def this_process() -> str:
    """The system that runs here, this process's number, and when it began."""
    return f"{_this_system()}-{os.getpid()}-{_began(os.getpid())}"


def is_running(process: str) -> bool | None:
    """Whether the process of that name runs; None where nothing is known of it: it is of another system."""
    found = _PROCESS.fullmatch(process)
    if not found or found[1] != _this_system():
        return None
    return _is_running(int(found[2]), int(found[3]))


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
    """When a process began, in the system's ticks; 0 where that is not told, -1 if it has ended and waits for its end
    to be noticed."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return 0


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
        raise file_error(doing, error) from error


def file_error(doing: str, error: OSError) -> StoreError:
    """One sentence that says what failed, why, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "the disk is full or over quota: free some space, then run the same command again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "this user may not do that: change its permissions or choose another `out`"
    else:
        advice = "check the disk and the path"
    reason = os.strerror(error.errno) if error.errno else str(error)  # Arrow's own texts name the file again
    return StoreError(f"Failed {doing}: {reason}; {advice}.")


def content_of(path: Location, read: Callable[[], pa.Buffer]) -> pa.Buffer:
    """A file's bytes. FileNotFoundError: it is gone. One that cannot be read may be good, which is another error."""
    try:
        return read()
    except OSError as error:
        if error.errno == errno.ESTALE:  # how a network's file system says that it is gone
            raise FileNotFoundError(str(path)) from error
        if isinstance(error, FileNotFoundError):
            raise
        raise file_error(f"reading {path}", error) from error


def is_no_file(path: Location) -> bool:
    """True for a directory, or for a pipe, whose reader would wait for ever.

    It looks once: a file that vanishes between two looks, because it is compacted, was a file.
    """
    try:
        return isinstance(path, Path) and not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


class Place:
    """The file system of this machine, or one that is mounted; `store.remote` has the same for others.

    A file that is not there is a FileNotFoundError. `patience` is for how many seconds a call that is not answered is
    tried again, where that can happen (a minute).
    """

    def read(self, path: Any, most: int | None = None) -> pa.Buffer:
        """A file's bytes, or the first of them."""
        if most is None:
            return read_bytes(path)
        with pa.OSFile(os.fsencode(path)) as file:
            return file.read_buffer(min(most, file.size()))  # it is allocated before it is read

    def read_all(self, paths: Iterable[Any], *, fresh: bool = False) -> Iterator[tuple[Any, Callable[[], pa.Buffer]]]:
        """Many files, in order; call what comes with each path for its bytes. `fresh`: not from a cache."""
        return ((path, partial(read_bytes, path)) for path in paths)

    def publish(self, path: Any, content: bytes, *, replace: bool, patience: float | None = None) -> bool:
        """Write a file that appears whole. With `replace` false one that is there stays, and the answer is False."""
        return publish(path, content, replace=replace)

    def names(self, directory: Any) -> list[str]:
        """What is in a directory, sorted; nothing in one that is not there."""
        with file_errors(f"listing {directory}"):
            try:
                return sorted(entry.name for entry in directory.iterdir())
            except FileNotFoundError:
                return []

    def is_file(self, path: Any) -> bool:
        return path.exists() and not path.is_dir()

    def age(self, path: Any) -> float:
        """Seconds since the file was written."""
        return max(0.0, time.time() - float(path.stat().st_mtime))

    def check(self, directory: Any) -> None:
        """Raise if a directory is not there for another reason than that nobody made it, such as a missing bucket."""

    def make(self, directory: Any) -> None:
        """Make a directory for good, where there is such a thing."""
        with file_errors(f"creating {directory}"):
            make_directory(directory)

    def move(self, path: Any, to: Any) -> None:
        """Give a file another name: a power cut does not take it back, and at no moment is there no such file."""
        path.rename(to)
        _sync_directory(to.parent)
        _sync_directory(path.parent)

    def remove(self, path: Any, patience: float | None = None) -> None:
        """Delete a file; that it is gone already is fine."""
        path.unlink(missing_ok=True)

    def clean(self, directory: Any) -> None:
        """Delete what processes that are gone left half-written.

        Of processes of this system it is known that they are gone. Of all others (another machine, a container, this
        machine before it was started anew) nothing is known, so their files have to be a day old.
        """
        with file_errors(f"cleaning {directory}"):
            for left in directory.glob(f"{PARTIAL_PREFIX}*"):
                runs = is_running(left.name.removeprefix(PARTIAL_PREFIX).rpartition("-")[0])
                with suppress(FileNotFoundError):  # another process was quicker
                    if runs is False or (runs is None and self.age(left) > _ABANDONED):
                        left.unlink()


_HERE = Place()


def place_of(location: Location) -> Place:
    """The file system that a location is on."""
    return _HERE if isinstance(location, Path) else _remote(location.root, location.query)


@lru_cache
def _remote(root: str, query: str) -> Place:
    from memfluence.store.remote import RemotePlace

    return RemotePlace(Uri(root, "", query))

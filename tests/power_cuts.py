"""Power cuts: everything that may be on a disk if the power goes at some moment of a piece of work.

    with recorded(directory) as tape:
        work()
        tape.note("trial 3 is stored")
    for cut in tape.cuts("strict"):
        cut.write(elsewhere)  # and see what can be read there, and whether what `cut.notes` says is true

The names of files are recorded where they change (rename, link, unlink, mkdir, rmdir), and their content where it is
synced. Two models of a file system say what of it is on the disk after a cut:

strict   only what was synced is sure: the content of files that were synced, the names in directories that were
         synced. Of the changes of names since then any subset may be there.
ordered  names change on the disk in the order in which they were changed, and a sync of anything also writes all
         changes of names before it (as journals do).

In both a file that was never synced is empty. Only this process is recorded; whatever else changes the directory is
noticed at the end. Names that begin with `.partial-` are left out: they are nothing until they are renamed.
"""

import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

__all__ = ["Cut", "Tape", "recorded"]

_MOST = 16  # states of one moment, where there are more subsets than that
_PARTIAL = ".partial-"


class _File:
    """A file, by whatever names it is known."""


_DIRECTORY = _File()
_Entry = tuple[str, "_File | None"]  # a path below the recorded directory, and what it is from now on (None: nothing)


@dataclass(frozen=True, eq=False)
class _Step:
    """One thing that was done: names that changed, or a file or directory that was synced, or a note."""

    entries: tuple[_Entry, ...] = ()
    synced: "str | _File | None" = None  # a directory's path, or a file
    content: bytes = b""
    note: Any = None


@dataclass(frozen=True)
class Cut:
    """A state of the disk after a cut, and the notes that were made before it."""

    files: dict[str, bytes]
    directories: tuple[str, ...]
    notes: tuple[Any, ...]
    moment: int  # how many steps had been done

    def write(self, to: Path) -> None:
        """Make `to` a directory with this content and no other."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for directory in self.directories:
            (to / directory).mkdir()
        for path, content in self.files.items():
            (to / path).write_bytes(content)


@dataclass(eq=False)
class Tape:
    """What was done within a directory, see the module's text."""

    root: str
    steps: list[_Step] = field(default_factory=list)
    _files: dict[int, _File] = field(default_factory=dict)  # by inode
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """All that is there at the beginning is on the disk."""
        for path in sorted(Path(self.root).rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_dir():
                self.steps.append(_Step(((name, _DIRECTORY),)))
            else:
                file = self._file_of(path)
                self.steps += [_Step(((name, file),)), _Step(synced=file, content=path.read_bytes())]
        for directory in ["", *(name for step in self.steps for name, what in step.entries if what is _DIRECTORY)]:
            self.steps.append(_Step(synced=directory))
        self._begin = len(self.steps)

    def note(self, what: Any) -> None:
        """Something that was said at this moment, such as that a trial is stored."""
        with self._lock:
            self.steps.append(_Step(note=what))

    def cuts(self, model: str, seed: int = 0, most: int = _MOST) -> Iterator[Cut]:
        """Every state that a cut may leave; of a moment with more than `most` subsets some of them, drawn at random."""
        seen = set()
        found = {"strict": self._strict, "ordered": self._ordered}[model](random.Random(seed), most)
        for cut in found:
            if (key := (tuple(sorted(cut.files.items())), cut.directories, repr(cut.notes))) not in seen:
                seen.add(key)
                yield cut

    def _strict(self, rng: random.Random, most: int) -> Iterator[Cut]:
        for moment in range(self._begin, len(self.steps) + 1):
            sure: set[tuple[int, int]] = set()
            loose: list[list[tuple[int, int]]] = []
            synced: set[str] = set()
            for at in reversed(range(moment)):
                step = self.steps[at]
                if isinstance(step.synced, str):
                    synced.add(step.synced)
                halves = [(at, half) for half in range(len(step.entries))]
                is_sure = [_parent(step.entries[half][0]) in synced for _, half in halves]
                sure.update(one for one, yes in zip(halves, is_sure) if yes)
                if not all(is_sure):  # a rename happens as a whole, unless one of its directories was synced
                    loose.append([one for one, yes in zip(halves, is_sure) if not yes])
            for chosen in _subsets(len(loose), rng, most):
                yield self._state(sure.union(*(loose[k] for k in chosen)), moment)

    def _ordered(self, rng: random.Random, most: int) -> Iterator[Cut]:
        for last in range(self._begin, len(self.steps) + 1):
            is_sync = (step.synced is not None for step in self.steps[last:])
            moment = next((last + after for after, yes in enumerate(is_sync) if yes), len(self.steps))
            applied = {(at, half) for at in range(last) for half in range(len(self.steps[at].entries))}
            yield self._state(applied, moment)

    def _state(self, applied: set[tuple[int, int]], moment: int) -> Cut:
        names: dict[str, _File] = {}
        contents: dict[_File, bytes] = {}
        for at, step in enumerate(self.steps[:moment]):
            if isinstance(step.synced, _File):
                contents[step.synced] = step.content
            for half, (path, what) in enumerate(step.entries):
                if (at, half) in applied and what is None:
                    names.pop(path, None)
                elif (at, half) in applied and what is not None:
                    names[path] = what
        directories = {""}
        for path in sorted(names):  # a directory comes before what is in it
            if names[path] is _DIRECTORY and _parent(path) in directories:
                directories.add(path)
        files = {
            path: contents.get(what, b"")
            for path, what in names.items()
            if what is not _DIRECTORY and _parent(path) in directories and not _name(path).startswith(_PARTIAL)
        }
        notes = tuple(step.note for step in self.steps[:moment] if step.note is not None)
        return Cut(files, tuple(sorted(directories - {""})), notes, moment)

    def check_is_whole(self) -> None:
        """Raise if the directory is not what the recorded steps make of it."""
        everything = {(at, half) for at, step in enumerate(self.steps) for half in range(len(step.entries))}
        recorded = {*self._state(everything, len(self.steps)).files}
        there = {path.relative_to(self.root).as_posix() for path in Path(self.root).rglob("*") if path.is_file()}
        if others := recorded ^ {path for path in there if not _name(path).startswith(_PARTIAL)}:
            raise AssertionError(f"These files changed in a way that is not recorded: {sorted(others)[:5]}.")

    # What the patched functions of `os` tell:

    def _file_of(self, path: Any) -> _File:
        return self._files.setdefault(Path(path).stat().st_ino, _File())

    def _below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the root; None for the root's outside."""
        base = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        whole = os.path.normpath(base / os.fsdecode(path))
        return os.path.relpath(whole, self.root) if whole.startswith(self.root + os.sep) else None

    def _entry(self, path: str | None, what: _File | None) -> list[_Entry]:
        return [] if path is None else [(path, what)]

    def _rename(self, real: Callable[..., None], source: Any, to: Any, **options: Any) -> None:
        file = self._file_of(source) if self._below(to) else _File()
        self._forget(to)
        real(source, to, **options)
        entries = [*self._entry(self._below(to), file), *self._entry(self._below(source), None)]
        self.steps.append(_Step(tuple(entries)))

    def _link(self, real: Callable[..., None], source: Any, to: Any, **options: Any) -> None:
        real(source, to, **options)
        self.steps.append(_Step(tuple(self._entry(self._below(to), self._file_of(to)))))

    def _unlink(self, real: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            self._forget(path)
        real(path, dir_fd=dir_fd)
        self.steps.append(_Step(tuple(self._entry(self._below(path, dir_fd), None))))

    def _mkdir(self, real: Callable[..., None], path: Any, *mode: int, dir_fd: int | None = None) -> None:
        real(path, *mode, dir_fd=dir_fd)
        self.steps.append(_Step(tuple(self._entry(self._below(path, dir_fd), _DIRECTORY))))

    def _fsync(self, real: Callable[..., None], descriptor: int) -> None:
        real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        below = "" if str(path) == self.root else self._below(path)
        if below is not None and path.is_dir():
            self.steps.append(_Step(synced=below))
        elif below is not None:
            self.steps.append(_Step(synced=self._file_of(path), content=path.read_bytes()))

    def _forget(self, path: Any) -> None:
        """The number of a file that goes may be that of the next one."""
        try:
            found = os.lstat(path)
        except OSError:
            return
        if found.st_nlink == 1:
            self._files.pop(found.st_ino, None)


@contextmanager
def recorded(directory: Path) -> Iterator[Tape]:
    """Record what this process does below a directory, which has to be there; that it is itself there is sure."""
    tape = Tape(os.path.realpath(directory))
    told = {
        "rename": tape._rename,
        "replace": tape._rename,
        "link": tape._link,
        "unlink": tape._unlink,
        "remove": tape._unlink,
        "rmdir": tape._unlink,
        "mkdir": tape._mkdir,
        "fsync": tape._fsync,
        "fdatasync": tape._fsync,
    }

    def telling(name: str) -> Callable[..., None]:
        real, tell = getattr(os, name), told[name]

        def do(*arguments: Any, **options: Any) -> None:
            with tape._lock:
                tell(real, *arguments, **options)

        return do

    with mock.patch.multiple(os, **{name: telling(name) for name in told}):
        yield tape
    tape.check_is_whole()


def _subsets(count: int, rng: random.Random, most: int) -> Iterator[tuple[int, ...]]:
    """All subsets of so many things; or none, all, and some of the others."""
    if 2**count <= most:
        yield from itertools.chain.from_iterable(itertools.combinations(range(count), n) for n in range(count + 1))
        return
    yield ()
    yield tuple(range(count))
    for _ in range(most - 2):
        yield tuple(k for k in range(count) if rng.random() < 0.5)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]

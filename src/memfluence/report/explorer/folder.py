"""The folder of an explorer: it appears whole, and nothing that memfluence did not write is touched.

DIR/index.html        the page; names the folder of its data
DIR/data-DIGEST/      the program, its style and all data; another content has another name, so no browser's cache
                      mixes two reports
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memfluence.errors import InputError, StoreError
from memfluence.store import file_errors, refuse_uri, write_whole

PAGE = "index.html"
MARK = '<meta name="generator" content="memfluence">'  # only pages that carry it are written over
PARTIAL = ".partial-"
DATA = re.compile(r"data-[0-9a-f]{16}")


class Folder:
    """Files on their way: `add` them, then `publish` the page."""

    def __init__(self, out: Path, partial: Path) -> None:
        self._out, self._partial = out, partial
        self._digest = hashlib.sha256()
        self.bytes = 0

    def add(self, name: str, content: bytes) -> None:
        self._digest.update(f"{name}\0{len(content)}\0".encode())
        self._digest.update(content)
        self.bytes += len(content)
        with file_errors(f"writing {self._partial / name}"):
            (self._partial / name).write_bytes(content)

    def publish(self, page: Callable[[str], str]) -> Path:
        """Give the data their name, write the page that names them, and remove the data of earlier reports."""
        name = f"data-{self._digest.hexdigest()[:16]}"
        with file_errors(f"writing {self._out / name}"):
            if (self._out / name).exists():
                shutil.rmtree(self._out / name)
            self._partial.rename(self._out / name)
        path = self._out / PAGE
        try:
            write_whole(path, page(name).encode("utf-8", errors="replace"))  # names from files need not be text
        except StoreError:
            if name not in _text_of(path):
                shutil.rmtree(self._out / name, ignore_errors=True)
            raise
        for other in self._out.iterdir():
            if DATA.fullmatch(other.name) and other.name != name and (other / "meta.js").is_file():
                shutil.rmtree(other, ignore_errors=True)
        return path


@contextmanager
def new_folder(out: Path) -> Iterator[Folder]:
    """A folder to fill; what is not published leaves nothing behind."""
    partial = out / f"{PARTIAL}{os.getpid()}"
    was_there = out.exists()
    with file_errors(f"writing {out}"):
        partial.mkdir(parents=True, exist_ok=True)
        for other in out.glob(f"{PARTIAL}*"):  # of processes that were killed
            if not Path("/proc", other.name.removeprefix(PARTIAL)).exists() and Path("/proc/self").exists():
                shutil.rmtree(other, ignore_errors=True)
    try:
        yield Folder(out, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not was_there:
            with suppress(OSError):  # what is published stays
                out.rmdir()


def check_place(out: Path) -> None:
    """Refuse a place that cannot take the page, before any work is done."""
    try:
        if refuse_uri(out).exists() and not out.is_dir():
            raise InputError(f"{out} is a file, but a report is a directory; choose another `out`.")
        if (out / PAGE).exists() and MARK not in _text_of(out / PAGE):
            raise InputError(f"{out / PAGE} was not written by memfluence and is left alone; choose another `out`.")
    except OSError as error:
        raise StoreError(f"Failed reading {out / PAGE}: {error.strerror or error}; choose another `out`.") from error


def _text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8", errors="replace")[:4000] if page.exists() else ""

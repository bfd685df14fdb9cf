"""Arrays in .npz and .npy files, written as bytes and read without unpickling anything.

NumPy allocates what a header claims before it reads; here a header that claims other bytes than the file holds is
refused first. Every fault is one sentence in the error class that the caller names.
"""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from memfluence.errors import MemfluenceError, one_line, shortened

DEFLATE_LIMIT = 1032  # no deflate stream (zip, gzip) expands by more than this

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16  # NumPy reads 10,000 letters of it at most
_DAMAGED = "the file is damaged, write it again."
_FAULTS = (  # what zipfile, zlib and NumPy raise on damaged bytes
    *(zipfile.BadZipFile, zlib.error, struct.error, ValueError, OverflowError, EOFError),
    *(RuntimeError, NotImplementedError),  # encrypted
)


class NpzFile:
    """An open archive: the names of its arrays, and each array when asked for. `open_npz` makes one."""

    def __init__(self, archive: zipfile.ZipFile, bytes_on_disk: int, error: type[MemfluenceError], title: str) -> None:
        self._archive, self._bytes_on_disk, self._error, self._title = archive, bytes_on_disk, error, title
        self._members = {name.removesuffix(".npy"): name for name in sorted(archive.namelist())}  # .npy wins
        self.names = tuple(sorted(self._members))

    @property
    def listing(self) -> str:
        """The names of the first arrays, for a message."""
        is_plain = (name.isprintable() and len(name) <= 30 for name in self.names)
        shown = ", ".join(name if plain else shortened(name, 30) for name, plain in zip(self.names[:8], is_plain))
        more = len(self.names) - 8
        return f"{shown} and {more} more" if more > 0 else shown or "nothing"

    def read(self, name: str) -> np.ndarray:
        """One array."""
        member = self._archive.getinfo(self._members[name])
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(
                f"{self._title}: {name!r} uses an unusual compression; write the file with np.savez_compressed."
            )
        if member.file_size > DEFLATE_LIMIT * min(member.compress_size, self._bytes_on_disk):
            raise self._error(
                f"{self._title}: {name!r} claims {member.file_size} bytes, more than the file can hold"
                f" ({member.compress_size} bytes stored); {_DAMAGED}"
            )
        with _faults(self._error, self._title, repr(name)), self._archive.open(member) as stream:
            return _read_array(stream, member.file_size, self._error, self._title, repr(name))


@contextmanager
def open_npz(path: Path, error: type[MemfluenceError], title: str | None = None) -> Iterator[NpzFile]:
    """The archive at `path`. `title` is what messages call it, the path if None."""
    called = title or str(path)
    try:
        bytes_on_disk = path.stat().st_size
        archive = zipfile.ZipFile(path)
    except _FAULTS as fault:
        raise error(
            f"{called}: not a whole .npz (zip) file ({_line(fault)}); copy it again, or write it with np.savez."
        ) from fault
    except OSError as fault:
        raise error(f"{called}: the file cannot be read ({fault.strerror or fault}).") from fault
    with archive:
        yield NpzFile(archive, bytes_on_disk, error, called)


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A compressed .npz; the same bytes for the same arrays. Python's texts are NumPy's there, and none is pickled."""
    content = io.BytesIO()
    plain = {name: values.astype(str) if values.dtype == object else values for name, values in arrays.items()}
    np.savez_compressed(content, **plain)  # type: ignore[arg-type]
    return content.getvalue()


def is_npy(path: Path) -> bool:
    """True if the file begins as a single .npy array does."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_npy(path: Path, error: type[MemfluenceError], title: str | None = None) -> np.ndarray:
    """The single array of a .npy file."""
    called = title or str(path)
    with _faults(error, called, "the array"), path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size, error, called, "the array")


@contextmanager
def _faults(error: type[MemfluenceError], title: str, what: str) -> Iterator[None]:
    """Turn what reading `what` raises into the caller's error."""
    try:
        yield
    except _FAULTS as fault:
        raise error(f"{title}: {what} cannot be read ({_line(fault)}); {_DAMAGED}") from fault
    except MemoryError as fault:
        raise error(f"{title}: {what} does not fit in memory; use a machine with more.") from fault
    except OSError as fault:
        raise error(f"{title}: the file cannot be read ({fault.strerror or fault}).") from fault


def _line(fault: Exception) -> str:
    return f"{one_line(str(fault)) or type(fault).__name__:.150}"  # it may quote the file


def _read_array(stream: IO[bytes], size: int, error: type[MemfluenceError], title: str, what: str) -> np.ndarray:
    """The array in a stream that is said to hold `size` bytes."""
    shape, fortran_order, dtype = _read_header(stream)
    if dtype.hasobject or dtype.kind == "V":
        raise error(
            f"{title}: {what} holds Python objects or records, which are not read from files;"
            " save plain arrays of numbers or strings."
        )
    elements, held = math.prod(shape), size - stream.tell()
    promised = elements * dtype.itemsize
    if min(shape, default=0) < 0 or promised != held or (elements and not dtype.itemsize):
        raise error(
            f"{title}: the header of {what} claims {shortened(shape)} of {dtype!s:.60}, {shortened(promised)} bytes,"
            f" but the file holds {held}; {_DAMAGED}"
        )
    content = bytearray()
    for chunk in iter(partial(stream.read, 1 << 20), b""):
        content += chunk
    if len(content) != promised:
        raise ValueError(f"it ends after {len(content)} of {promised} bytes")
    if dtype.kind == "U":
        content.decode("utf-32-be" if dtype.byteorder == ">" else "utf-32-le")  # a ValueError where they are no letters
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran_order else "C")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type; no more is read than a header has."""
    start = stream.read(len(_MAGIC) + 2)
    width = {b"\1\0": 2, b"\2\0": 4}.get(start[len(_MAGIC) :], 0)
    length = stream.read(width)
    if not start.startswith(_MAGIC) or not width or int.from_bytes(length, "little") > _LONGEST_HEADER:
        raise ValueError("no array of version 1.0 or 2.0 begins like this")
    text = io.BytesIO(length + stream.read(int.from_bytes(length, "little")))
    reader = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    try:
        return reader(text)
    except Exception as fault:  # NumPy lets out whatever Python's parser raises: TokenError, RecursionError, ...
        raise ValueError(f"no array begins like this: {_line(fault)}") from fault

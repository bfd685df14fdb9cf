"""Arrays in .npz and .npy files: written as bytes, and read from files that may be damaged or lie about their size.

NumPy's own reader allocates what a header claims and raises whatever its parts raise. Here memory grows with what the
file holds, nothing is ever unpickled, and every fault is one sentence in the error class that the caller names.
"""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from memfluence.errors import MemfluenceError, shortened

__all__ = ["DEFLATE_LIMIT", "NpzFile", "Readable", "is_npy", "npz_bytes", "open_npz", "read_npy", "read_promised"]

DEFLATE_LIMIT = 1032  # no deflate stream (zip, gzip) expands by more than this

_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 16  # of an array; NumPy reads 10,000 letters of it at most
_NPY_MAGIC = b"\x93NUMPY"
_FAULTS = (  # what zipfile, zlib and NumPy raise on damaged bytes; BadZipFile is no ValueError, nor zlib.error
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    OverflowError,
    EOFError,
    RuntimeError,  # encrypted
    NotImplementedError,
)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


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
        """One array, allocated only as far as the file really holds it."""
        member = self._archive.getinfo(self._members[name])
        expansion = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_LIMIT}.get(member.compress_type)
        if expansion is None:
            raise self._error(
                f"{self._title}: {name!r} uses an unusual compression; write the file with np.savez_compressed."
            )
        if member.file_size > expansion * min(member.compress_size, self._bytes_on_disk):
            raise self._error(
                f"{self._title}: {name!r} claims {member.file_size} bytes, more than the file can hold"
                f" ({member.compress_size} bytes stored); the file is damaged, write it again."
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
    """A compressed .npz; the same bytes for the same arrays."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def is_npy(path: Path) -> bool:
    """Whether the file begins as a single .npy array does."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    except OSError:
        return False


def read_npy(path: Path, error: type[MemfluenceError], title: str | None = None) -> np.ndarray:
    """The single array of a .npy file."""
    called = title or str(path)
    with _faults(error, called, "the array"), path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size, error, called, "the array")


def read_promised(stream: Readable, promised: int) -> bytearray:
    """What the stream holds, up to one byte more than `promised`; the caller compares the lengths."""
    content = bytearray()
    while len(content) <= promised:
        chunk = stream.read(min(_CHUNK, promised + 1 - len(content)))
        if not chunk:
            break
        content += chunk
    return content


@contextmanager
def _faults(error: type[MemfluenceError], title: str, what: str) -> Iterator[None]:
    """Turn what reading `what` raises into the caller's error."""
    try:
        yield
    except _FAULTS as fault:
        raise error(f"{title}: {what} cannot be read ({_line(fault)}); the file is damaged, write it again.") from fault
    except MemoryError as fault:
        raise error(f"{title}: {what} does not fit in memory; use a machine with more.") from fault
    except OSError as fault:
        raise error(f"{title}: the file cannot be read ({fault.strerror or fault}).") from fault


def _line(fault: Exception) -> str:
    """What an exception says, on one line; it may quote the file."""
    line = " ".join(str(fault).split()) or type(fault).__name__
    return line if len(line) <= 150 else f"{line[:147]}..."


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
            f" but the file holds {held}; the file is damaged, write it again."
        )
    content = read_promised(stream, promised)
    if len(content) != promised:
        raise error(f"{title}: {what} ends after {len(content)} of {promised} bytes; write the file again.")
    if dtype.kind == "U" and not _is_text(np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.byteorder))):
        raise error(f"{title}: {what} holds texts that are not Unicode; the file is damaged, write it again.")
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran_order else "C")


def _is_text(codes: np.ndarray) -> bool:
    """Whether these are letters: none beyond Unicode, and no halves of letters, of which no file can be written."""
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any()


class _HeaderOnly:
    """A stream from which no more than a header is read, whatever length it claims."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise ValueError(f"its header claims {size} bytes")
        return self._stream.read(size)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    head = _HeaderOnly(stream)
    try:
        version = np.lib.format.read_magic(head)  # type: ignore[arg-type]
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(head)  # type: ignore[arg-type]
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(head)  # type: ignore[arg-type]
    except OSError:
        raise
    except Exception as fault:  # NumPy lets out whatever Python's parser raises: TokenError, RecursionError, ...
        raise ValueError(f"no array begins like this: {_line(fault)}") from fault
    raise ValueError(f"version {version} of the .npy format is not supported")

"""`npz:FILE`: arrays saved with `np.savez` or `np.savez_compressed`. Nothing in the file is ever unpickled."""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from memfluence.datasets._dataset import Dataset, from_arrays
from memfluence.datasets._files import DEFLATE_LIMIT, read_promised, require_file
from memfluence.errors import DatasetError

__all__ = ["load_npz"]

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path: Path, name: str) -> Dataset:
    """The arrays x_train, y_train, x_test and y_test of the file."""
    require_file(path, name)
    try:
        with zipfile.ZipFile(path) as archive:
            found = [member.removesuffix(".npy") for member in archive.namelist()]
            for key in _KEYS:
                if key not in found:
                    raise DatasetError(
                        f"{name}: the file has no array {key!r}; it must hold {', '.join(_KEYS)},"
                        f" and holds {', '.join(sorted(found)) or 'nothing'}."
                    )
            arrays = {key: _read_member(archive, key, path.stat().st_size, name) for key in _KEYS}
    except zipfile.BadZipFile as error:
        raise DatasetError(f"{name}: not a whole .npz (zip) file ({error}); write it with np.savez.") from error
    except OSError as error:
        raise DatasetError(f"{name}: the file cannot be read ({error}).") from error
    return from_arrays(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"], name=name)


def _read_member(archive: zipfile.ZipFile, key: str, bytes_on_disk: int, name: str) -> np.ndarray:
    """One array, allocated only as far as the file really holds it."""
    member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
    expansion = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_LIMIT}.get(member.compress_type)
    if expansion is None:
        raise DatasetError(f"{name}: {key!r} uses an unusual compression; write the file with np.savez_compressed.")
    if member.file_size > expansion * min(member.compress_size, bytes_on_disk):
        raise DatasetError(
            f"{name}: {key!r} claims {member.file_size} bytes, more than the file can hold"
            f" ({member.compress_size} bytes stored); the file is damaged, write it again."
        )
    try:
        with archive.open(member) as stream:
            shape, fortran_order, dtype = _read_header(stream)
            if dtype.hasobject or dtype.kind == "V":
                raise DatasetError(
                    f"{name}: {key!r} holds Python objects or records, which are not read from files;"
                    " save plain arrays of numbers or strings."
                )
            promised = math.prod(shape) * dtype.itemsize
            held = member.file_size - stream.tell()
            if min(shape, default=0) < 0 or promised != held:
                raise DatasetError(
                    f"{name}: the header of {key!r} claims {shape} of {dtype}, {promised} bytes,"
                    f" but the file holds {held}; the file is damaged, write it again."
                )
            content = read_promised(stream, promised)
    except (ValueError, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise DatasetError(f"{name}: {key!r} cannot be read ({error}); the file is damaged, write it again.") from error
    if len(content) != promised:
        raise DatasetError(f"{name}: {key!r} ends after {len(content)} of {promised} bytes; write the file again.")
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran_order else "C")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the .npy format is not supported")
